package buildid

import (
	"fmt"
	"io"
	"sync"
)

// A search looks for the identity in one image.
type search struct {
	image
	layout   layout
	programs table
	sections table
	notes    regions // of the segments, later of the sections

	gnu    Info         // ends the search
	golang Info         // the answer if there is no GNU note
	damage *FormatError // the first

	file descriptor // what the image reads if the file has no io.ReaderAt
}

// searches recycles the windows.
var searches = sync.Pool{New: func() any { return new(search) }}

// newSearch begins a search in r, from base on. It must be released.
func newSearch(r io.ReaderAt, base uint64) *search {
	s := searches.Get().(*search)
	s.open(r, base)
	return s
}

// newFileSearch begins a search in an open file. It must be released.
func newFileSearch(fd int) *search {
	s := searches.Get().(*search)
	s.file = descriptor(fd)
	s.open(&s.file, 0)
	return s
}

func (s *search) release() {
	s.r, s.err = nil, nil
	s.gnu, s.golang, s.damage = Info{}, Info{}, nil
	searches.Put(s)
}

// isELF reports whether the image starts as an ELF file does.
func (s *search) isELF() bool { return string(s.at(0, len(magic))) == magic }

// inFile goes through a whole file. What is not ELF has no notes.
func (s *search) inFile() (Info, error) {
	if !s.isELF() {
		return Info{}, s.err
	}
	if s.readHeader() {
		s.listSegments()
		if !s.scan(InSegment) && !s.scanBehind() {
			s.listSections()
			s.scan(InSection)
		}
	}
	return s.result()
}

// inMemory goes through what the loader mapped of a file.
func (s *search) inMemory() (Info, error) {
	if s.readHeader() {
		s.listSegments()
		s.relocate()
		if !s.scan(InSegment) {
			err := s.err
			s.scanBehind()
			s.err = err // behind the last note memory may be unmapped
		}
	}
	return s.result()
}

// found reports whether the search has come to its end.
func (s *search) found() bool { return s.gnu.ID.kind != None }

// result prefers a failure to a Go ID: there may be a GNU ID that was not seen,
// and one file must not have two identities. Without any note the Info has no ID.
func (s *search) result() (Info, error) {
	switch {
	case s.found():
		return s.gnu, nil
	case s.err != nil:
		return Info{}, s.err
	case s.damage != nil:
		return Info{}, s.damage
	default:
		s.golang.ELF = true
		return s.golang, nil
	}
}

// read is at for what must be there.
func (s *search) read(pos uint64, n int, what string) []byte {
	b := s.at(pos, n)
	if b == nil {
		s.damaged(pos, "%s outside the file", what)
	}
	return b
}

// damaged records damage, the first only. What could not be read is none.
func (s *search) damaged(pos uint64, format string, args ...any) {
	if s.damage == nil && s.err == nil && !s.spent() {
		s.damage = &FormatError{Offset: int64(pos), Msg: fmt.Sprintf(format, args...)}
	}
}
