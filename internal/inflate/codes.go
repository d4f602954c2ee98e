package inflate

import "math/bits"

// codes are the Huffman codes of a block.
type codes struct {
	literals  literalTable
	distances distanceTable
	isFixed   bool // they are those that the standard fixes
}

// Sizes of tables of codes. Codes that have no more bits than that are looked up at once. For
// the others, an entry leads to a part behind the first one. No complete set of codes of 15
// bits at most needs more room than that (the program enough of zlib counts it).
const (
	literalBits   = 11
	distanceBits  = 8
	literalRoom   = 2342
	distanceRoom  = 402
	maxCode       = 15
	maxMatch      = 258
	literalCodes  = 288
	distanceCodes = 32
	endOfBlock    = 256
)

// isInvalid reports whether an entry is that of no code, or of one that means nothing.
func isInvalid(e uint32) bool { return e&(isSpecial|isEnd) == isSpecial }

type (
	literalTable  [literalRoom]uint32
	distanceTable [distanceRoom]uint32
)

// An entry of a table has, from the lowest bit on: 6 bits of how many bits the code and what
// follows it have, 2 unused, 4 of the code alone, flags, and 16 bits of a value. That is the
// literal, or what the bits behind the code are added to. Of an entry that leads to a part of
// the table it is where that is, and the 4 bits say how many bits are looked up there.
const (
	isEnd      = 1 << 12 // of the block, if isSpecial
	isTable    = 1 << 13
	isSpecial  = 1 << 14 // neither a literal nor a length or distance: the end, or what no code may mean
	isLiteral  = 1 << 15
	invalid    = isSpecial // which no code has
	valueShift = 16
)

// within returns the entry of a code that e, an entry of the first part, leads to.
func (t *literalTable) within(e uint32, rest uint64) uint32 { return within(t[:], e, rest) }

func (t *distanceTable) within(e uint32, rest uint64) uint32 { return within(t[:], e, rest) }

func within(table []uint32, e uint32, rest uint64) uint32 {
	return table[e>>valueShift+uint32(rest)&(1<<(e>>8&15)-1)]
}

// find returns the entry of the code that the lowest bits are.
func (t *literalTable) find(bits uint64) uint32 {
	e := t[bits&(1<<literalBits-1)]
	if e&isTable != 0 {
		e = t.within(e, bits>>literalBits)
	}
	return e
}

func (t *distanceTable) find(bits uint64) uint32 {
	e := t[bits&(1<<distanceBits-1)]
	if e&isTable != 0 {
		e = t.within(e, bits>>distanceBits)
	}
	return e
}

// makeTable makes the table of codes with these lengths, 0 for symbols without a code. meaning
// returns the value, flags and number of bits behind the code of a symbol. It reports whether
// the codes are complete; none, or a single one of one bit, may be alone.
func makeTable(table []uint32, first uint, lengths []uint8, meaning func(symbol int) (entry uint32, extra uint)) bool {
	var next [maxCode + 2]uint32 // code of each length
	for _, n := range lengths {
		next[n+1]++
	}
	next[0], next[1] = 0, 0
	code, used := uint32(0), uint32(0)
	for n := 1; n <= maxCode; n++ {
		count := next[n+1]
		code <<= 1
		next[n], code = code, code+count
		if code > 1<<n {
			return false
		}
		used += count
	}
	if code != 1<<maxCode && !(used == 0 || used == 1 && code == 1<<(maxCode-1)) {
		return false
	}
	table[0] = invalid
	for n := 1; n < 1<<first; n *= 2 {
		copy(table[n:2*n], table[:n]) // many at once: a stream can be made of blocks with nothing but codes
	}
	return fillTable(table, first, lengths, &next, meaning)
}

// fillTable puts the codes into the table. next has the first one of each length.
func fillTable(table []uint32, first uint, lengths []uint8, next *[maxCode + 2]uint32, meaning func(symbol int) (entry uint32, extra uint)) bool {
	var deepest [1 << literalBits]uint8 // how many bits codes have that begin so, where it is more than first
	codes := *next
	for _, n := range lengths {
		if n := uint(n); n > first {
			start := reverse(codes[n], n) & (1<<first - 1)
			deepest[start] = max(deepest[start], uint8(n))
			codes[n]++
		}
	}
	end := uint32(1) << first
	for symbol, n := range lengths {
		if n == 0 {
			continue
		}
		n := uint(n)
		at := reverse(next[n], n)
		next[n]++
		e, extra := meaning(symbol)
		e |= uint32(n+extra) | uint32(n)<<8
		if n <= first {
			for ; at < 1<<first; at += 1 << n {
				table[at] = e
			}
			continue
		}
		start := at & (1<<first - 1)
		depth := uint(deepest[start]) - first
		if table[start]&isTable == 0 {
			if end+1<<depth > uint32(len(table)) {
				return false
			}
			table[start] = isTable | uint32(depth)<<8 | end<<valueShift
			end += 1 << depth
		}
		part := table[table[start]>>valueShift:][:1<<depth]
		for at >>= first; at < 1<<depth; at += 1 << (n - first) {
			part[at] = e
		}
	}
	return true
}

// reverse returns a code of n bits with its first bit lowest, as it is in the stream.
func reverse(code uint32, n uint) uint32 { return bits.Reverse32(code) >> (32 - n) }

// literal returns what a symbol of the first alphabet means: a literal, the end of the block,
// or a length.
func literal(symbol int) (entry uint32, extra uint) {
	switch {
	case symbol < endOfBlock:
		return isLiteral | uint32(symbol)<<valueShift, 0
	case symbol == endOfBlock:
		return isSpecial | isEnd, 0
	case symbol < 265:
		return uint32(symbol-254) << valueShift, 0
	case symbol < 285:
		extra = uint(symbol-261) / 4
		return (uint32(symbol-261)%4+4)<<extra<<valueShift + 3<<valueShift, extra
	case symbol == 285:
		return maxMatch << valueShift, 0
	default:
		return invalid, 0
	}
}

// distance returns what a symbol of the second alphabet means.
func distance(symbol int) (entry uint32, extra uint) {
	switch {
	case symbol < 4:
		return uint32(symbol+1) << valueShift, 0
	case symbol < 30:
		extra = uint(symbol-2) / 2
		return (uint32(symbol)%2+2)<<extra<<valueShift + 1<<valueShift, extra
	default:
		return invalid, 0
	}
}

// fix makes the codes that the standard fixes (RFC 1951, section 3.2.6).
func (c *codes) fix() {
	if c.isFixed {
		return
	}
	c.isFixed = true
	var lengths [literalCodes]uint8
	for i := range lengths {
		switch {
		case i < 144:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		case i < 280:
			lengths[i] = 7
		default:
			lengths[i] = 8
		}
	}
	makeTable(c.literals[:], literalBits, lengths[:], literal)
	var far [distanceCodes]uint8
	for i := range far {
		far[i] = 5
	}
	makeTable(c.distances[:], distanceBits, far[:], distance)
}

// lengthOrder is the order of the lengths of the codes for lengths.
var lengthOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// readCodes reads the codes of a block (RFC 1951, section 3.2.7).
func (d *Decoder) readCodes() error {
	head, err := d.number(14)
	if err != nil {
		return err
	}
	literals, distances, n := int(head&31)+257, int(head>>5&31)+1, int(head>>10)+4
	if literals > 286 || distances > 30 {
		return d.fail("too many codes")
	}
	var order [19]uint8
	for _, at := range lengthOrder[:n] {
		size, err := d.number(3)
		if err != nil {
			return err
		}
		order[at] = uint8(size)
	}
	var table [1 << 7]uint32
	plain := func(symbol int) (uint32, uint) { return uint32(symbol) << valueShift, 0 }
	if !makeTable(table[:], 7, order[:], plain) {
		return d.fail("damaged codes of lengths")
	}
	var lengths [literalCodes + distanceCodes]uint8
	if err := d.readLengths(lengths[:literals+distances], &table); err != nil {
		return err
	}
	d.codes.isFixed = false
	if !makeTable(d.codes.literals[:], literalBits, lengths[:literals], literal) ||
		!makeTable(d.codes.distances[:], distanceBits, lengths[literals:literals+distances], distance) {
		return d.fail("damaged codes")
	}
	return nil
}

// readLengths reads lengths of codes, by the codes for lengths.
func (d *Decoder) readLengths(lengths []uint8, table *[1 << 7]uint32) error {
	find := func(bits uint64) uint32 { return table[bits&(1<<7-1)] }
	for i := 0; i < len(lengths); {
		e, err := d.code(find, "no code of a length")
		if err != nil {
			return err
		}
		symbol := uint8(d.value(e))
		if symbol < 16 {
			lengths[i] = symbol
			i++
			continue
		}
		var again uint8
		if symbol == 16 {
			if i == 0 {
				return d.fail("no length to repeat")
			}
			again = lengths[i-1]
		}
		repeat := [...]struct{ least, bits uint }{{3, 2}, {3, 3}, {11, 7}}[symbol-16]
		more, err := d.number(repeat.bits)
		if err != nil {
			return err
		}
		if n := int(repeat.least + more); n <= len(lengths)-i {
			for range n {
				lengths[i] = again
				i++
			}
			continue
		}
		return d.fail("more lengths than codes")
	}
	return nil
}
