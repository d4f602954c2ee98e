package buildid

import "hallmark/addr"

// Types of the notes that carry an identity, and the names that they have.
const (
	ntGNUBuildID = 3 // binutils include/elf/common.h
	ntGoBuildID  = 4 // Go cmd/link/internal/ld/elf.go

	gnuName = "GNU\x00"
	goName  = "Go\x00\x00"

	noteHeaderSize = 12
	noteNameSize   = 4 // of both names
)

// A region is a place where notes are.
type region struct {
	pos    uint64      // in the image
	size   uint64      // in bytes
	align  uint64      // of the notes in it, 4 or 8
	file   addr.Offset // what pos is in the file
	loaded bool        // into memory; pos is a virtual address
	end    uint64      // where the walk over the notes ended
	damage string      // why it ended before the end of the region, if it did
}

// inFile returns the offset in the file of pos, which is in or behind r.
func (r *region) inFile(pos uint64) addr.Offset { return r.file + addr.Offset(pos-r.pos) }

// load sets the place in memory if it is p that carries the region there.
func (r *region) load(p segment) {
	if in := uint64(r.file) - p.offset; !r.loaded && uint64(r.file) >= p.offset && in < p.size {
		r.pos, r.loaded = p.vaddr+in, true
	}
}

// A note is one as its header describes it.
type note struct {
	kind uint32
	pos  uint64 // of the header
	name uint64 // bytes of the name, without padding
	desc uint64 // where the content is
	size uint64 // bytes of the content, without padding
	next uint64 // where another note would be
}

// note reads the header of the note at pos. Name and content are padded to a
// multiple of align (gABI chapter 7, "Note Section"; for 8 as binutils and
// elfutils do it).
func (s *search) note(pos, align uint64) (n note, ok bool) {
	b := s.at(pos, noteHeaderSize)
	if b == nil {
		return n, false
	}
	n.pos, n.name = pos, uint64(s.layout.u32(b))
	n.size, n.kind = uint64(s.layout.u32(b[4:])), s.layout.u32(b[8:])
	n.desc = pos + padded(noteHeaderSize+n.name, align)
	n.next = n.desc + padded(n.size, align)
	return n, true
}

// padded rounds n up to a multiple of align, a power of two.
func padded(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// scan goes through the listed notes until a GNU note turns up. Linkers have put
// notes padded to 4 bytes into segments that claim 8, and the kernel walks by 4
// everywhere: what is not found by 8 is tried by 4.
func (s *search) scan(where Where) bool {
	for i := range s.notes {
		r := &s.notes[i]
		r.end, r.damage = s.walk(r, r.align, where)
		if s.found() {
			return true
		}
	}
	for i := range s.notes {
		r := &s.notes[i]
		if r.align == 8 && s.scanAgain(r, where) {
			return true
		}
		if r.damage != "" {
			s.damaged(r.inFile(r.end), "%s", r.damage)
		}
	}
	return false
}

// scanAgain walks by 4 over what should be padded to 8.
func (s *search) scanAgain(r *region, where Where) bool {
	end, damage := s.walk(r, 4, where)
	if r.damage != "" {
		r.end, r.damage = end, damage
	}
	return s.found()
}

// walk goes over the notes of r until a GNU note turns up. It returns where it
// stopped, and why if there was damage.
func (s *search) walk(r *region, align uint64, where Where) (pos uint64, damage string) {
	end := r.pos + r.size
	for pos = r.pos; pos+noteHeaderSize <= end && !s.found(); {
		n, ok := s.note(pos, align)
		if !ok {
			return pos, "note outside the file"
		}
		if n.desc+n.size > end {
			return pos, "note reaches beyond its segment or section"
		}
		if err := s.take(n, r, where); err != nil {
			return pos, err.Error()
		}
		pos = n.next
	}
	return pos, ""
}

// take keeps what a note says that carries an identity; an error says that it
// carries a GNU build ID that cannot be one.
func (s *search) take(n note, r *region, where Where) error {
	kind := s.identity(n)
	if kind == None {
		return nil
	}
	id, err := s.content(kind, n)
	info := Info{ID: id, Where: where, Offset: r.inFile(n.pos), ELF: true}
	switch {
	case kind == GNU && err != nil:
		return err
	case kind == GNU:
		s.gnu = info
	case err == nil && s.golang.ID.IsZero():
		s.golang = info
	}
	return nil
}

// identity returns the kind of identity that n carries, None for other notes.
func (s *search) identity(n note) Kind {
	if n.name != noteNameSize || n.kind != ntGNUBuildID && n.kind != ntGoBuildID {
		return None
	}
	switch name := string(s.at(n.pos+noteHeaderSize, noteNameSize)); {
	case n.kind == ntGNUBuildID && name == gnuName:
		return GNU
	case n.kind == ntGoBuildID && name == goName:
		return Go
	default:
		return None
	}
}

func (s *search) content(kind Kind, n note) (ID, error) {
	if n.size == 0 || n.size > MaxSize {
		return ID{}, errSize
	}
	b := s.at(n.desc, int(n.size))
	if b == nil {
		return ID{}, errCut
	}
	return New(kind, b)
}

// scanBehind looks for a GNU note directly behind the last note of a listed
// segment. Go's linker (1.24 to 1.26 at least) writes it there and ends the segment
// before it; the page is mapped all the same.
func (s *search) scanBehind() bool {
	for i := range s.notes {
		r := &s.notes[i]
		if r.damage != "" || r.end == r.pos {
			continue
		}
		if n, ok := s.note(r.end, 4); ok && s.identity(n) == GNU {
			s.take(n, r, AfterSegment)
		}
		if s.found() {
			return true
		}
	}
	return false
}
