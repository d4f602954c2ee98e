package capture

import (
	"os"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/patience"
	"hallmark/internal/turns"
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
func silentObject(t *testing.T, s *objects) *object {
	f := silent{make(chan struct{})}
	t.Cleanup(func() { f.Close() })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(&object{path: "/silent", content: f})
}

// TestSilentFile has a sample wait for the table of a file that cannot be read at all: the
// recording ends, and the sample counts as it is.
func TestSilentFile(t *testing.T) {
	objects := newObjects()
	defer objects.work.stop()
	tables := newTables(objects, newFakeKernel(), tableCache{})
	tables.most = time.Millisecond
	tables.introduce(1, silentObject(t, objects), nil)
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
	objects := newObjects()
	defer objects.work.stop()
	tables := newBuiltTables(objects, tableCache{})
	tables.most = time.Millisecond
	o := silentObject(t, objects)
	if table, settled := tables.table(o); table != nil || settled {
		t.Fatalf("it has the table %v at once, settled: %v", table, settled)
	}
	tables.wait()
	if table, settled := tables.table(o); table != nil || !settled {
		t.Errorf("it has the table %v, settled: %v", table, settled)
	}
	if _, settled := tables.table(silentObject(t, objects)); !settled {
		t.Error("another file is waited for")
	}
	tables.stop()
}

// TestSilentOpening has a file be opened for longer than is waited for: what comes of it then
// changes nothing.
func TestSilentOpening(t *testing.T) {
	objects := newObjects()
	objects.work.workers.Stop(patience.Long)
	objects.work.most = time.Millisecond
	begun, answer := make(chan struct{}), make(chan struct{})
	objects.work.workers = turns.New(func(job) func() {
		close(begun)
		<-answer // that is how long it takes
		return nil
	})
	objects.work.workers.Ask(0, job{})
	<-begun
	objects.work.stop()
	defer objects.close()
	o, j := ownProgram(t, objects)
	objects.work.do(j)
	close(answer)
	if o.content != nil || o.id != (buildid.ID{}) {
		t.Errorf("the file is %v, open: %v", o.id, o.content != nil)
	}
}
