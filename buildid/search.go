package buildid

import (
	"fmt"
	"sync"

	"hallmark/addr"
	"hallmark/internal/regular"
)

// A search looks for the identity in one image.
type search struct {
	image
	layout   layout
	programs table
	sections table
	notes    []region // the segments, later the sections; at most maxRegions

	gnu    Info         // ends the search
	golang Info         // the answer if there is no GNU note
	damage *FormatError // the first

	file descriptor      // what the image reads if the file has no io.ReaderAt
	path regular.Scratch // its name, for the kernel
}

// searches recycles the windows and what else is large.
var searches = sync.Pool{New: func() any { return &search{notes: make([]region, 0, maxRegions)} }}

// getSearch returns a search that has to open an image, and must be released.
func getSearch() *search { return searches.Get().(*search) }

func (s *search) release() {
	s.r, s.err = nil, nil
	s.gnu, s.golang, s.damage = Info{}, Info{}, nil
	searches.Put(s)
}

// isELF reports whether the image starts as an ELF file does.
func (s *search) isELF() bool { return string(s.at(0, len(magic))) == magic }

// inFile goes through a whole file. A file that is not ELF has no notes.
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

// missing records that there is nothing where a part of the file should be.
func (s *search) missing(pos uint64, part string) {
	s.damaged(addr.Offset(pos), "%s outside the file", part)
}

// damaged records damage, the first only. A failure to read is none.
func (s *search) damaged(pos addr.Offset, format string, args ...any) {
	if s.damage == nil && s.err == nil && !s.spent() {
		s.damage = &FormatError{Offset: pos, Msg: fmt.Sprintf(format, args...)}
	}
}
