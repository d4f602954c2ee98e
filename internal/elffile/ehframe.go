package elffile

import "hallmark/internal/cursor"

// How an address is written (DW_EH_PE in the Linux Standard Base, 10.5.1).
const (
	peOmit    = 0xff
	peSize    = 0x0f // the bits that say how many bytes it has
	peSigned  = 0x08
	peFrom    = 0x70 // the bits that say what it is relative to
	peFromPC  = 0x10
	peFromHdr = 0x30 // the start of .eh_frame_hdr
)

// EHFrame returns where .eh_frame starts and how many functions it has, 0 if that is not given, as .eh_frame_hdr
// says (LSB Core 10.6.2). The section ends where its segment does, or before: size is up to there. It is 0 where
// the file has no PT_GNU_EH_FRAME.
func (m *Image) EHFrame() (virt, off, size, count uint64, err error) {
	if m.EHFrameHeader.FileSize == 0 {
		return 0, 0, 0, 0, nil
	}
	header := uint64(m.EHFrameHeader.Virt)
	at, room := m.inFile(header)
	if room == 0 {
		return 0, 0, 0, 0, m.Fail(0, "PT_GNU_EH_FRAME leads to no part of the file")
	}
	head, err := m.Read(at, min(m.EHFrameHeader.FileSize, room, 32))
	if err != nil {
		return 0, 0, 0, 0, err
	}
	c := m.Cursor(head, at)
	version, encoding, countEncoding := c.U8(), c.U8(), c.U8()
	c.U8() // of the table
	virt, ok := m.encoded(&c, encoding, header)
	if version != 1 || !ok {
		return 0, 0, 0, 0, m.Fail(at, "malformed .eh_frame_hdr")
	}
	if countEncoding != peOmit {
		count, _ = m.encoded(&c, countEncoding&peSize, header)
	}
	if off, size = m.inFile(virt); size == 0 {
		return 0, 0, 0, 0, m.Fail(at, ".eh_frame_hdr leads to no part of the file")
	}
	return virt, off, size, count, nil
}

// encoded reads an address of .eh_frame_hdr, which is at an address itself.
func (m *Image) encoded(c *cursor.Cursor, encoding uint8, header uint64) (v uint64, ok bool) {
	at := header + uint64(c.Pos())
	size := 8
	switch encoding & peSize &^ peSigned {
	case 0:
		size = int(m.Size(4, 8))
	case 2:
		size = 2
	case 3:
		size = 4
	case 4:
	default:
		return 0, false
	}
	v = c.Word(size)
	if encoding&peSigned != 0 {
		shift := 64 - 8*size
		v = uint64(int64(v<<shift) >> shift)
	}
	switch encoding & peFrom {
	case 0:
	case peFromPC:
		v += at
	case peFromHdr:
		v += header
	default:
		return 0, false
	}
	if !m.Is64 {
		v &= 0xffffffff
	}
	return v, c.Err() == nil && encoding&0x80 == 0
}

// inFile returns where the byte at a virtual address is in the file, and how many bytes of its segment follow,
// itself included; 0 where it is not there.
func (m *Image) inFile(v uint64) (off, room uint64) {
	for _, s := range m.Segments {
		if in := v - uint64(s.Virt); in < s.FileSize {
			return uint64(s.Offset) + in, s.FileSize - in
		}
	}
	return 0, 0
}
