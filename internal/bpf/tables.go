package bpf

import (
	"errors"

	"hallmark/unwind"
)

// DefaultUnwindMemory is how many bytes of tables the programs have unless Options say it.
const DefaultUnwindMemory = 64 << 20

// VDSOSerial stands for the vdso of 64-bit processes among the tables. It is the number
// of no file.
const VDSOSerial = 0xffff0001

// ErrNoRoom is the error of tables that there is no room for.
var ErrNoRoom = errors.New("no room for the unwind table")

// Tables are what the programs unwind by. Their methods may be called by several
// goroutines at once.
type Tables struct{}

// TablesStats tell what the tables take.
type TablesStats struct {
	Bytes    int64  // taken by tables
	Capacity int64  // that they may take
	Memory   int64  // taken from the kernel so far
	Tables   int    // files that there is something about
	Evicted  uint64 // tables that were taken out to make room
	Refused  uint64 // tables that there was no room for
}

// Put gives the programs the table of a file. If there is no room, tables that were not
// used for longest are taken out; a table that is too large even then is an error that
// wraps ErrNoRoom.
func (t *Tables) Put(serial uint32, table *unwind.Table) error { return ErrNoRoom }

// PutNone says that a file has no unwind information: its code is taken to keep frame
// pointers.
func (t *Tables) PutNone(serial uint32) error { return ErrNoRoom }

// PutUnavailable says that the table of a file will not come: stacks end in it with
// unwind.NoTable, and none is sent as a Copy.
func (t *Tables) PutUnavailable(serial uint32) error { return ErrNoRoom }

// Has reports whether something is known of the file: if not, it was never put, or
// evicted.
func (t *Tables) Has(serial uint32) bool { return false }

// Remove takes out what there is about a file, if there is something.
func (t *Tables) Remove(serial uint32) error { return nil }

// Stats tells what the tables take.
func (t *Tables) Stats() TablesStats { return TablesStats{} }

// Tables returns the tables of the programs, or nil without Options.Unwind.
func (s *Sampler) Tables() *Tables { return s.tables }
