package verb

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"hallmark/internal/testenv"
)

// counted counts writes.
type counted struct {
	mu    sync.Mutex
	text  strings.Builder
	calls int
	err   error
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.err != nil {
		return 0, c.err
	}
	return c.text.Write(p)
}

func (c *counted) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// TestBatch writes lines, and wants all of them in order, in few writes, and none to wait for a further one.
func TestBatch(t *testing.T) {
	var out counted
	b := NewBatch(&out)
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&want, "line %d\n", i)
		if _, err := fmt.Fprintf(b, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Await(t, "lines that nobody flushes", func() bool { return out.String() == want.String() })
	if out.calls > 100 {
		t.Errorf("%d writes", out.calls)
	}
	fmt.Fprintln(b, "again")
	testenv.Await(t, "a line after a pause", func() bool { return strings.HasSuffix(out.String(), "again\n") })
	fmt.Fprintln(b, "last")
	if err := b.Flush(); err != nil || !strings.HasSuffix(out.String(), "last\n") {
		t.Errorf("%v, %q", err, out.String()[want.Len():])
	}
	out.err = errors.New("gone")
	fmt.Fprintln(b, "lost")
	if err := b.Flush(); err != out.err {
		t.Errorf("flushed: %v", err)
	}
	if _, err := fmt.Fprintln(b, "lost"); err != out.err {
		t.Errorf("written: %v", err)
	}
}
