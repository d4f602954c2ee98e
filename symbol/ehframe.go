package symbol

import (
	"cmp"
	"slices"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/elffile"
)

// NoStart is where no function starts.
const NoStart = addr.Offset(1<<64 - 1)

// Starts returns for each of the offsets where the function starts that holds it, as a
// file offset, or NoStart. It is for code that no symbol names: compilers describe each
// function once in the call frame information (.eh_frame), which is not stripped.
//
// A start is that of a description, never of a symbol: so it is the same for the file
// and for its stripped copy. The cold part of a function is described by itself.
func (f *File) Starts(offsets []addr.Offset) ([]addr.Offset, error) {
	f.renew()
	described, err := describedIn(f.image)
	return startsBy(offsets, f.image.Segments, func(v uint64) (uint64, bool) { return startOf(described, v) }), err
}

// startsBy returns where the functions at offsets start, as file offsets. startAt returns
// that for a virtual address as another one.
func startsBy(offsets []addr.Offset, segments []Segment, startAt func(uint64) (uint64, bool)) []addr.Offset {
	starts := make([]addr.Offset, len(offsets))
	for i, o := range offsets {
		starts[i] = NoStart
		v, ok := virtAt(segments, o)
		if !ok {
			continue
		}
		start, ok := startAt(uint64(v))
		if !ok {
			continue
		}
		at := o - addr.Offset(uint64(v)-start)
		if there, ok := virtAt(segments, at); ok && uint64(there) == start {
			starts[i] = at
		}
	}
	return starts
}

// startOf returns the start of the last range, of those in order, that begins up to v
// and holds it.
func startOf(described []extent, v uint64) (uint64, bool) {
	i, exact := slices.BinarySearchFunc(described, v, func(e extent, v uint64) int { return cmp.Compare(e.start, v) })
	if !exact {
		i--
	}
	if i < 0 || v-described[i].start >= described[i].size {
		return 0, false
	}
	return described[i].start, true
}

// describedIn returns the code that the call frame information describes, each start
// once and in order. Damaged parts are left out.
func describedIn(m *elffile.Image) ([]extent, error) {
	s, count, err := ehFrameOf(m)
	if s == nil || err != nil {
		return nil, err
	}
	data, err := m.Read(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	var described []extent
	functions := uint64(0)
	encodings := map[int]uint8{} // of the common part at a place
	for at := 0; at < len(data) && (count == 0 || functions < count); {
		c := m.Cursor(data, s.Offset)
		c.SeekTo(uint64(at))
		size := uint64(c.U32())
		if size == 0xffffffff {
			size = c.U64()
		}
		body := c.Pos()
		if size == 0 && functions < count {
			at = body // the end of the part of one object file
			continue
		}
		if c.Err() != nil || size < 4 || size > uint64(len(data)-body) {
			break // the end, or damage
		}
		at = body + int(size)
		if back := int(c.U32()); back == 0 {
			encodings[body-4] = commonEncoding(data[body+4 : at])
			continue
		} else if encoding, ok := encodings[body-back]; ok {
			if e, ok := describedBy(m, &c, encoding, s.Addr); ok && c.Pos() <= at {
				described = append(described, e)
			}
		}
		functions++
	}
	slices.SortStableFunc(described, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	return slices.CompactFunc(described, func(a, b extent) bool { return a.start == b.start }), nil
}

// ehFrameOf returns .eh_frame, nil where there is none, and how many functions it has at most, 0 if that is not
// known. Without section headers .eh_frame_hdr says where it starts and how many there are.
func ehFrameOf(m *elffile.Image) (s *elffile.Section, count uint64, err error) {
	if m.Headerless {
		virt, off, size, count, err := m.EHFrame()
		if size == 0 || err != nil {
			return nil, 0, err
		}
		return &elffile.Section{Addr: virt, Offset: off, Size: size}, count, nil
	}
	if s = m.Section(".eh_frame"); s == nil || m.Relocatable {
		return nil, 0, nil
	}
	return s, 0, nil
}

// unknownEncoding is how addresses are not written.
const unknownEncoding = 0xff

// commonEncoding returns how the addresses of functions are written whose common part
// is b, from its version on (DW_EH_PE in the Linux Standard Base).
func commonEncoding(b []byte) uint8 {
	c := cursor.New(b, 0, false)
	version, augmentation := c.U8(), c.String()
	if len(augmentation) == 0 {
		return 0
	}
	if augmentation[0] != 'z' {
		return unknownEncoding
	}
	c.Uvarint()
	c.Varint()
	if version == 1 {
		c.U8()
	} else {
		c.Uvarint()
	}
	c.Uvarint()
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			if encoding := c.U8(); c.Err() == nil {
				return encoding
			}
			return unknownEncoding
		case 'L':
			c.U8()
		case 'P':
			size := encodedSize(c.U8())
			if size == 0 {
				return unknownEncoding
			}
			c.Skip(uint64(size))
		case 'S', 'B', 'G':
		default:
			return unknownEncoding
		}
	}
	return 0
}

// encodedSize returns how many bytes an address takes in a 64-bit file, 0 if that is
// not known.
func encodedSize(encoding uint8) int {
	switch encoding & 0x0f {
	case 0, 4, 12:
		return 8
	case 2, 10:
		return 2
	case 3, 11:
		return 4
	}
	return 0
}

// describedBy reads the addresses of a function, which are at c in .eh_frame.
func describedBy(m *elffile.Image, c *cursor.Cursor, encoding uint8, section uint64) (extent, bool) {
	size := encodedSize(encoding)
	if encoding&0x0f == 0 {
		size = int(m.Size(4, 8))
	}
	at := section + uint64(c.Pos())
	if size < 4 {
		return extent{}, false
	}
	start := c.Word(size)
	e := extent{start, c.Word(size)}
	if encoding&0x08 != 0 { // a signed number
		shift := 64 - 8*size
		e.start = uint64(int64(start<<shift) >> shift)
	}
	switch encoding & 0xf0 {
	case 0:
	case 0x10:
		e.start += at
	default:
		return extent{}, false
	}
	if !m.Is64 {
		e.start = uint64(uint32(e.start))
	}
	return e, c.Err() == nil && e.size > 0
}
