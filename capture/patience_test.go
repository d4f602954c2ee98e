package capture

import (
	"hallmark/internal/objects"

	"os"
	"testing"
	"time"

	"hallmark/internal/bpf"
	"hallmark/unwind"
)

// silent is a file on a file system that does not answer until it is closed.
type silent struct{ closed chan struct{} }

func (s silent) ReadAt([]byte, int64) (int, error) {
	<-s.closed
	return 0, os.ErrClosed
}

func (s silent) Close() error {
	close(s.closed)
	return nil
}

// silentObject returns the object of such a file.
func silentObject(t *testing.T, s *objects.Set) *objects.Object {
	f := silent{make(chan struct{})}
	t.Cleanup(func() { f.Close() })
	return s.OfOpened(objects.Opened{Path: "/silent", Content: f})
}

// TestSilentFile has a sample wait for the table of a file that cannot be read at all: the
// recording ends, and the sample counts as it is.
func TestSilentFile(t *testing.T) {
	set := objects.New()
	defer set.Stop()
	tables := newTables(set, newFakeKernel(), tableCache{})
	tables.most = time.Millisecond
	tables.introduce(1, silentObject(t, set), nil)
	end, u := walkIn(t, &bpf.Space{Areas: []bpf.Area{{Start: 0x4000, End: 0x6000, Kind: bpf.InFile, Serial: 1}}}, tables)
	if len(u.waiting[1]) != 1 {
		t.Fatalf("it does not wait: it ends %d", end)
	}
	u.compared = func(_ bpf.StackID, _ []bpf.Frame, e unwind.End) { end = e }
	u.end()
	tables.stop()
	if end != unwind.NoTable || u.held != 0 {
		t.Errorf("it ends %d, %d bytes are held", end, u.held)
	}
}

// TestSilentFileOfCopies is the same where samples bring their stacks.
func TestSilentFileOfCopies(t *testing.T) {
	set := objects.New()
	defer set.Stop()
	tables := newBuiltTables(set, tableCache{})
	tables.most = time.Millisecond
	o := silentObject(t, set)
	if table, settled := tables.table(o); table != nil || settled {
		t.Fatalf("it has the table %v at once, settled: %v", table, settled)
	}
	tables.wait()
	if table, settled := tables.table(o); table != nil || !settled {
		t.Errorf("it has the table %v, settled: %v", table, settled)
	}
	if _, settled := tables.table(silentObject(t, set)); !settled {
		t.Error("another file is waited for")
	}
	tables.stop()
}
