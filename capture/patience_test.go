package capture

import (
	"errors"
	"testing"
	"time"

	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/unwindtables"
	"hallmark/unwind"
)

// noKernel takes no tables.
type noKernel struct{}

func (noKernel) Put(uint32, *unwind.Table) error { return errors.ErrUnsupported }
func (noKernel) PutNone(uint32) error            { return nil }
func (noKernel) PutUnavailable(uint32) error     { return nil }
func (noKernel) Has(uint32) bool                 { return false }
func (noKernel) Remove(uint32) error             { return nil }
func (noKernel) Stats() bpf.TablesStats          { return bpf.TablesStats{} }

// TestSilentFile has a sample wait for the table of a file that cannot be read at all: the
// recording ends, and the sample counts as it is.
func TestSilentFile(t *testing.T) {
	set := objects.New()
	defer set.Stop()
	tables := unwindtables.NewSupply(set, noKernel{}, unwindtables.Cache{})
	tables.Most = time.Millisecond
	silent := proctest.Silent()
	defer silent.Close()
	tables.Introduce(1, set.OfOpened(objects.Opened{Path: "/silent", Content: silent}), nil)
	end, u := walkIn(t, &bpf.Space{VMAs: []bpf.VMA{{Start: 0x4000, End: 0x6000, Kind: bpf.InFile, Serial: 1}}}, tables)
	if len(u.waiting[1]) != 1 {
		t.Fatalf("it does not wait: it ends %d", end)
	}
	u.compared = func(_ bpf.StackID, _ []bpf.Frame, e unwind.End) { end = e }
	u.end()
	tables.Stop()
	if end != unwind.NoTable || u.room.held != 0 {
		t.Errorf("it ends %d, %d bytes are held", end, u.room.held)
	}
}
