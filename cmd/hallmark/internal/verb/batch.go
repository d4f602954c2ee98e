package verb

import (
	"io"
	"sync"
	"time"
)

const (
	batchSize = 32 << 10              // bytes
	batchTime = 50 * time.Millisecond // that they wait at most
)

// Batch hands on what is written to it, many lines at a time: a system call for each of them would cost as
// much as finding it out. A line waits 50 ms at most. Its methods may be called by several
// goroutines at once.
type Batch struct {
	mu    sync.Mutex
	w     io.Writer
	lines []byte
	timer *time.Timer
	err   error
}

// NewBatch returns a Batch for w. The caller flushes it in the end.
func NewBatch(w io.Writer) *Batch { return &Batch{w: w} }

// Write takes whole lines. Its error is that of writing any line before.
func (b *Batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	switch {
	case len(b.lines) > 0:
	case b.timer == nil:
		b.timer = time.AfterFunc(batchTime, func() { _ = b.Flush() }) // whoever writes next gets the error
	default:
		b.timer.Reset(batchTime)
	}
	b.lines = append(b.lines, p...)
	if len(b.lines) >= batchSize {
		b.flush()
	}
	return len(p), b.err
}

// Flush hands on what is left.
func (b *Batch) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
	return b.err
}

func (b *Batch) flush() {
	if len(b.lines) > 0 && b.err == nil {
		_, b.err = b.w.Write(b.lines)
	}
	b.lines = b.lines[:0]
}
