package unwindtables

import (
	"testing"
	"time"

	"hallmark/internal/objects"
	"hallmark/internal/proctest"
)

// TestSilentFileOfCopies has somebody wait for the table of a file that cannot be read at all.
func TestSilentFileOfCopies(t *testing.T) {
	set := objects.New()
	defer set.Stop()
	tables := NewBuilder(set, Cache{})
	tables.most = time.Millisecond
	o := silentFile(t, set)
	if table, settled := tables.Table(o); table != nil || settled {
		t.Fatalf("it has the table %v at once, settled: %v", table, settled)
	}
	tables.Wait()
	if table, settled := tables.Table(o); table != nil || !settled {
		t.Errorf("it has the table %v, settled: %v", table, settled)
	}
	if _, settled := tables.Table(silentFile(t, set)); !settled {
		t.Error("another file is waited for")
	}
	tables.Stop()
}

// silentFile returns the object of such a file.
func silentFile(t *testing.T, s *objects.Set) *objects.Object {
	f := proctest.Silent()
	t.Cleanup(func() { f.Close() })
	return s.OfOpened(objects.Opened{Path: "/silent", Content: f})
}
