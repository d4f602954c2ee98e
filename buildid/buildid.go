// Package buildid reads the identity of an ELF file, with one small read in most
// cases. The file may be on disk, behind an io.ReaderAt, in the memory of a process,
// or the running kernel.
//
// The identity is the GNU build ID if there is one, else the Go toolchain's
// build ID, else (for files of which the whole content is at hand) a hash of the
// code. The search goes in this order:
//
//  1. a GNU note in a PT_NOTE segment;
//  2. a GNU note directly behind the last note of a PT_NOTE segment, where Go's
//     linker puts it without letting the segment cover it;
//  3. a GNU note in an SHT_NOTE section;
//  4. a Go note in a PT_NOTE segment or an SHT_NOTE section;
//  5. the hash of the code, see [Content].
//
// Segments come first because the kernel reads only them, and memory holds only them. A file and its
// memory give the same identity where a segment has the note. Only the file shows a note that is in a
// section alone.
//
// A file may be damaged or hostile, so each length and position is checked. One search makes at most 64 reads of at most
// 4 KiB, most often one, and what these do not reach counts as absent. The hash is
// the exception: for a file without notes all of its code is read, up to 1 GiB.
// A program that reads other users' files bounds the hashing by [WithBudget].
package buildid

import (
	"fmt"

	"hallmark/addr"
)

// Info is an identity and where it was found.
type Info struct {
	ID     ID
	Where  Where
	Offset addr.Offset // of the note in the file; 0 if it was found in none
	ELF    bool        // the content starts as an ELF file does

	// Also is what OpenTelemetry's profilers call a file of which the ID is the Content, if
	// its size is known: see [Hash]. It is no identity.
	Also ID
}

// Where says in which part of a file its identity was found.
type Where uint8

// The places of an identity.
const (
	Nowhere      Where = iota
	InSegment          // a note in a PT_NOTE segment
	AfterSegment       // a note directly behind the last note of a PT_NOTE segment
	InSection          // a note in an SHT_NOTE section
	InNotes            // notes without a file around them, as sysfs has them
	Hashed             // not found but computed: the ID is the Content

	// Why there is no ID, where there might be one.

	TooLarge   // no notes, and more code than is hashed: ErrTooLarge
	OverBudget // no notes, and more code than the context allows to hash: ErrBudget
)

var whereNames = [...]string{
	Nowhere: "nowhere", InSegment: "segment", AfterSegment: "after-segment",
	InSection: "section", InNotes: "notes", Hashed: "hash",
	TooLarge: "too-large", OverBudget: "over-budget",
}

// String returns the place as one word, "segment" for instance.
func (w Where) String() string {
	if int(w) < len(whereNames) {
		return whereNames[w]
	}
	return fmt.Sprintf("where-%d", uint8(w))
}

// MarshalText returns what String returns.
func (w Where) MarshalText() ([]byte, error) { return []byte(w.String()), nil }
