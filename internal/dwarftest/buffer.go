package dwarftest

// buffer is a section in the making.
type buffer struct {
	b   []byte
	big bool
}

func (b *buffer) len() int { return len(b.b) }

// num appends a number of size bytes.
func (b *buffer) num(v uint64, size int) {
	at := len(b.b)
	b.b = append(b.b, make([]byte, size)...)
	b.set(at, v, size)
}

// set puts a number of size bytes in the place of others.
func (b *buffer) set(at int, v uint64, size int) {
	for i := range size {
		shift := 8 * i
		if b.big {
			shift = 8 * (size - 1 - i)
		}
		if shift < 64 {
			b.b[at+i] = byte(v >> shift)
		} else {
			b.b[at+i] = 0
		}
	}
}

// setLEB puts a LEB128 number of size bytes, with padding, in the place of others.
func (b *buffer) setLEB(at int, v uint64, size int) {
	for i := range size {
		b.b[at+i] = byte(v>>(7*i)) | 0x80
	}
	b.b[at+size-1] &= 0x7f
}

func (b *buffer) u8(v int) { b.b = append(b.b, byte(v)) }

func (b *buffer) uleb(v uint64) {
	for v >= 0x80 {
		b.b = append(b.b, byte(v)|0x80)
		v >>= 7
	}
	b.b = append(b.b, byte(v))
}

func (b *buffer) sleb(v int64) {
	for v < -0x40 || v >= 0x40 {
		b.b = append(b.b, byte(v)|0x80)
		v >>= 7
	}
	b.b = append(b.b, byte(v)&0x7f)
}

func (b *buffer) bytes(p []byte) { b.b = append(b.b, p...) }

// str appends a string and its NUL.
func (b *buffer) str(s string) { b.b = append(append(b.b, s...), 0) }

// length appends the length of what follows, for 32-bit or 64-bit DWARF, and returns
// what sets it once that is there.
func (b *buffer) length(offsetSize int) (done func()) {
	if offsetSize == 8 {
		b.num(0xffffffff, 4)
	}
	at := b.len()
	b.num(0, offsetSize)
	return func() { b.set(at, uint64(b.len()-at-offsetSize), offsetSize) }
}

// fixup is a number that is known when all is laid out.
type fixup struct {
	to       *buffer
	at, size int
	leb      bool
	value    func() uint64
}

func (f *fixup) apply() {
	if f.leb {
		f.to.setLEB(f.at, f.value(), f.size)
	} else {
		f.to.set(f.at, f.value(), f.size)
	}
}

// label is a place in a section.
type label struct{ at int }

func (l *label) offset() uint64 { return uint64(l.at) }
