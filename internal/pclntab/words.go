package pclntab

// Words reads numbers in a file's byte order from strings. Past the end of the
// string it reads 0.
type Words struct {
	Big bool
	Ptr uint64 // bytes of an address
}

// U32 reads a number of 4 bytes at off.
func (w Words) U32(s string, off uint64) uint32 {
	if off > uint64(len(s)) || uint64(len(s))-off < 4 {
		return 0
	}
	b := s[off : off+4]
	if w.Big {
		return uint32(b[3]) | uint32(b[2])<<8 | uint32(b[1])<<16 | uint32(b[0])<<24
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// Word reads a number of size bytes, 4 or 8.
func (w Words) Word(s string, off, size uint64) uint64 {
	first := uint64(w.U32(s, off))
	switch {
	case size == 4:
		return first
	case w.Big:
		return first<<32 | uint64(w.U32(s, off+4))
	default:
		return first | uint64(w.U32(s, off+4))<<32
	}
}
