// Package inflate decompresses zlib streams (RFC 1950, RFC 1951) that are in memory as a
// whole, into memory for all that comes out of them.
//
// Compressed debug information is such a stream, and a header says how long it will be.
// Decompressors of other packages take bytes one by one from a reader, put what comes out into
// a window, and copy it from there. This one reads 8 bytes at once, and its window is the
// memory that it fills: that takes little more than half the time.
package inflate

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
)

// Error is damage found in a stream.
type Error struct {
	Offset int // in the stream, of a byte at or behind the damage
	Msg    string
}

// Error returns the damage and its place.
func (e *Error) Error() string { return fmt.Sprintf("offset %#x: %s", e.Offset, e.Msg) }

// A Decoder decompresses one stream.
type Decoder struct {
	in   []byte
	at   int    // byte of in that is next
	bits uint64 // bits before it that were not used yet, the next one lowest
	have uint   // how many; higher bits of bits may be those of in from at on

	out []byte
	n   int // bytes that are there

	block  block
	last   bool // no block follows this one
	stored int  // bytes of a stored block to come
	codes  codes

	sum    hash.Hash32
	summed int // bytes of out that are in sum
	err    error
}

// block is what the next bits are of.
type block uint8

const (
	blockHeader block = iota
	blockStored
	blockCoded
	blockEnd // of the stream
)

// chunk is how many bytes are decompressed before their sum is taken, while the cache of the
// processor has them.
const chunk = 64 << 10

// header is the size of what is before the blocks of a stream.
const header = 2

// NewDecoder returns a Decoder that fills out with what the stream in has.
func NewDecoder(out, in []byte) *Decoder {
	d := &Decoder{in: in, out: out, sum: adler32.New()}
	switch {
	case len(in) < header:
		d.err = io.ErrUnexpectedEOF
	case in[0]&0xf != 8 || in[0]>>4 > 7 || (uint(in[0])<<8|uint(in[1]))%31 != 0:
		d.err = &Error{0, "no header of zlib"}
	case in[1]&0x20 != 0:
		d.err = &Error{0, "a dictionary is needed"}
	}
	d.at = header
	return d
}

// Fill decompresses until at least the first end bytes are there, and returns how many are. The
// last ones are only there when the stream ends with them, and its checksum is theirs.
func (d *Decoder) Fill(end int) (int, error) {
	end = min(end, len(d.out))
	for d.err == nil && (d.n < end || end == len(d.out) && d.block != blockEnd) {
		d.err = d.advance(min(d.n+chunk, end))
		d.sum.Write(d.out[d.summed:d.n])
		d.summed = d.n
		if d.err == nil && d.block == blockEnd {
			d.err = d.finish()
		}
	}
	if d.err != nil {
		return max(0, min(d.n, len(d.out)-1)), d.err
	}
	return d.n, nil
}

// Close does nothing: a Decoder has nothing to give back.
func (d *Decoder) Close() error { return nil }

// finish compares what came out with what the end of the stream says.
func (d *Decoder) finish() error {
	d.at -= int(d.have / 8) // whole bytes behind the last block
	if len(d.in)-d.at < 4 || d.n < len(d.out) {
		return io.ErrUnexpectedEOF
	}
	if binary.BigEndian.Uint32(d.in[d.at:]) != d.sum.Sum32() {
		return d.fail("wrong checksum")
	}
	return nil
}

func (d *Decoder) fail(msg string) error { return &Error{d.at, msg} }

// advance goes on until so many bytes are there, or the stream ends.
func (d *Decoder) advance(end int) error {
	for {
		var err error
		switch d.block {
		case blockHeader:
			err = d.header()
		case blockStored:
			err = d.copyStored()
		case blockCoded:
			err = d.decode(end)
		}
		if err != nil || d.block == blockEnd || d.n >= end && d.n < len(d.out) {
			return err
		}
	}
}

// need makes n bits be there, 32 at most.
func (d *Decoder) need(n uint) error {
	for d.have < n {
		if d.at >= len(d.in) {
			return io.ErrUnexpectedEOF
		}
		d.bits |= uint64(d.in[d.at]) << d.have
		d.at++
		d.have += 8
	}
	return nil
}

// take returns the next n bits, which are there.
func (d *Decoder) take(n uint) uint {
	v := uint(d.bits & (1<<n - 1))
	d.bits >>= n
	d.have -= n
	return v
}

// number reads n bits.
func (d *Decoder) number(n uint) (uint, error) {
	if err := d.need(n); err != nil {
		return 0, err
	}
	return d.take(n), nil
}

// header reads the header of a block, or ends the stream.
func (d *Decoder) header() error {
	if d.last {
		d.block = blockEnd
		return nil
	}
	head, err := d.number(3)
	if err != nil {
		return err
	}
	d.last = head&1 != 0
	switch head >> 1 {
	case 0:
		return d.storedHeader()
	case 1:
		d.codes.fix()
	case 2:
		if err := d.readCodes(); err != nil {
			return err
		}
	default:
		return d.fail("unknown kind of block")
	}
	d.block = blockCoded
	return nil
}

func (d *Decoder) storedHeader() error {
	d.take(d.have % 8)
	size, err := d.number(16)
	if err != nil {
		return err
	}
	inverse, err := d.number(16)
	if err != nil {
		return err
	}
	if size != ^inverse&0xffff {
		return d.fail("damaged stored block")
	}
	d.at -= int(d.have / 8)
	d.bits, d.have = 0, 0
	d.block, d.stored = blockStored, int(size)
	return nil
}

func (d *Decoder) copyStored() error {
	if d.stored > len(d.in)-d.at {
		return io.ErrUnexpectedEOF
	}
	if d.stored > len(d.out)-d.n {
		return d.fail(tooLong)
	}
	d.n += copy(d.out[d.n:], d.in[d.at:d.at+d.stored])
	d.at += d.stored
	d.block = blockHeader
	return nil
}

// Bounds of what one round of decodeFast reads and writes: 8 bytes twice; two literals and a
// match that is copied by 8 bytes at a time.
const (
	fastIn  = 16
	fastOut = 2 + maxMatch + 8
)

// decode decompresses the coded block until so many bytes are there, or the block ends.
func (d *Decoder) decode(end int) error {
	for d.n < end || d.n == len(d.out) {
		if err := d.decodeFast(min(end, len(d.out)-fastOut)); err != nil || d.block != blockCoded {
			return err
		}
		if d.n >= end && d.n < len(d.out) {
			return nil
		}
		if err := d.decodeOne(); err != nil || d.block != blockCoded {
			return err
		}
	}
	return nil
}

// decodeFast decompresses the coded block until so many bytes are there, the block ends, or
// the end of the stream is near. Bits above those that are there are set too: they are those of
// the bytes that come next, and what is read again sets the same.
func (d *Decoder) decodeFast(end int) error {
	in, out := d.in, d.out
	at, bits, have, n := d.at, d.bits, d.have, d.n
	literals, distances := &d.codes.literals, &d.codes.distances
	safe := len(in) - fastIn
	var damage string
	var special uint32
	for n < end && at <= safe {
		bits |= binary.LittleEndian.Uint64(in[at:at+8]) << (have & 63)
		at += int((63 - have&63) >> 3)
		have |= 56
		e := literals[bits&(1<<literalBits-1)]
		if e&isLiteral != 0 {
			bits >>= e & 63
			have -= uint(e & 63)
			out[n] = byte(e >> valueShift)
			n++
			e = literals[bits&(1<<literalBits-1)]
			if e&isLiteral != 0 {
				bits >>= e & 63
				have -= uint(e & 63)
				out[n] = byte(e >> valueShift)
				n++
				continue
			}
			bits |= binary.LittleEndian.Uint64(in[at:at+8]) << (have & 63)
			at += int((63 - have&63) >> 3)
			have |= 56
		}
		if e&isTable != 0 {
			e = literals.within(e, bits>>literalBits)
			if e&isLiteral != 0 {
				bits >>= e & 63
				have -= uint(e & 63)
				out[n] = byte(e >> valueShift)
				n++
				continue
			}
		}
		if e&isSpecial != 0 {
			special = e
			break
		}
		length := int(e>>valueShift) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		have -= uint(e & 63)
		e = distances[bits&(1<<distanceBits-1)]
		if e&isTable != 0 {
			e = distances.within(e, bits>>distanceBits)
		}
		if e&isSpecial != 0 {
			damage = noDistance
			break
		}
		distance := int(e>>valueShift) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		have -= uint(e & 63)
		if distance > n {
			damage = tooFar
			break
		}
		from, stop := n-distance, n+length
		switch {
		case distance >= 8:
			for ; n < stop; n, from = n+8, from+8 {
				binary.LittleEndian.PutUint64(out[n:n+8], binary.LittleEndian.Uint64(out[from:from+8]))
			}
		case distance == 1:
			word := uint64(out[from]) * 0x0101010101010101
			for ; n < stop; n += 8 {
				binary.LittleEndian.PutUint64(out[n:n+8], word)
			}
		default:
			for ; n < stop; n, from = n+1, from+1 {
				out[n] = out[from]
			}
		}
		n = stop
	}
	d.at, d.bits, d.have, d.n = at, bits&(1<<(have&63)-1), have, n
	switch {
	case damage != "":
		return d.fail(damage)
	case special != 0:
		return d.special(special)
	}
	return nil
}

// special ends the block, if e is the code for that, whose bits are there.
func (d *Decoder) special(e uint32) error {
	if e&isEnd == 0 {
		return d.fail(noLiteral)
	}
	d.take(uint(e & 63))
	d.block = blockHeader
	return nil
}

// Damage that is found in more than one place.
const (
	noLiteral  = "no code of a literal or a length"
	noDistance = "no code of a distance"
	tooFar     = "distance to before the start"
	tooLong    = "more bytes than its size"
)

// decodeOne decompresses one literal or match, or ends the block, however near the end of
// the stream is.
func (d *Decoder) decodeOne() error {
	e, err := d.code(d.codes.literals.find, noLiteral)
	switch {
	case err != nil:
		return err
	case e&isEnd != 0:
		return d.special(e)
	case e&isLiteral != 0:
		if d.n == len(d.out) {
			return d.fail(tooLong)
		}
		d.take(uint(e & 63))
		d.out[d.n] = byte(e >> valueShift)
		d.n++
		return nil
	}
	length := d.value(e)
	if e, err = d.code(d.codes.distances.find, noDistance); err != nil {
		return err
	}
	distance := d.value(e)
	switch {
	case distance > d.n:
		return d.fail(tooFar)
	case length > len(d.out)-d.n:
		return d.fail(tooLong)
	}
	for end := d.n + length; d.n < end; d.n++ {
		d.out[d.n] = d.out[d.n-distance]
	}
	return nil
}

// code returns the entry of the next code, all of whose bits are there.
func (d *Decoder) code(find func(bits uint64) uint32, none string) (uint32, error) {
	for d.have < 32 && d.at < len(d.in) {
		d.bits |= uint64(d.in[d.at]) << d.have
		d.at++
		d.have += 8
	}
	e := find(d.bits)
	switch {
	case uint(e&63) > d.have || isInvalid(e) && d.at == len(d.in):
		return 0, io.ErrUnexpectedEOF
	case isInvalid(e):
		return 0, d.fail(none)
	}
	return e, nil
}

// value returns what a code and the bits behind it stand for, which are there.
func (d *Decoder) value(e uint32) int {
	all, code := uint(e&63), uint(e>>8&15)
	return int(e>>valueShift) + int(d.take(all)>>code)
}
