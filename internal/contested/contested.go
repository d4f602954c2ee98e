// Package contested distinguishes files that claim one identity.
//
// A build ID is what a file says of itself, so several may have the same one: copies, which
// are one build, and others, which are not. Their contents decide. To read all files is too
// much for a listing, so only those are read whose identity another file has, too; and nobody
// waits for files that are large or do not answer.
package contested

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
)

// A File is one that may be read.
type File struct {
	// Size is that of the file as far as it is known. Small files are read first.
	Size int64
	// Open returns the file, and what is to be called when it was read. The file is nil if
	// it cannot be reached, and done may be then. It may be nil where Ask is not.
	Open func() (f *os.File, done func())
	// Ask reads the content of a file that Open does not open, because its file system may not
	// answer; nil for nobody. It returns the zero content for one that it cannot read.
	Ask func(ctx context.Context) buildid.Content
	// IsSame reports, after the file was read, whether it still has the bytes that are asked
	// for; nil for yes.
	IsSame func(f *os.File) bool
}

// Limits bound what is read in sum. The zero value has those that are right.
type Limits struct {
	Time  time.Duration // until it is given up
	Bytes int64         // of the sizes of files
}

const (
	// defaultTime is what somebody waits for who asked for a list.
	defaultTime = 2 * time.Second
	// defaultBytes is more than the programs and libraries of a machine in use.
	defaultBytes = 8 << 30
	// readers read files at a time, each with several processors if the file is large.
	readers = 2
)

func (l Limits) orDefault() Limits {
	return Limits{cmp.Or(l.Time, defaultTime), cmp.Or(l.Bytes, defaultBytes)}
}

// Read returns the contents of files, in their order: the zero one of those that could not
// be read within the limits. A file that does not answer is left behind with its reader.
func Read(files []File, limits Limits) []buildid.Content {
	limits = limits.orDefault()
	ctx, cancel := context.WithTimeout(context.Background(), limits.Time)
	r := &reader{ctx: ctx, files: files, queue: within(files, limits.Bytes), contents: make([]buildid.Content, len(files))}
	var running sync.WaitGroup
	for range min(readers, runtime.GOMAXPROCS(0), len(r.queue)) {
		running.Go(r.run)
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		cancel()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done: // soon, but for a file that does not answer
		case <-time.After(grace):
		}
	}
	return r.end()
}

// grace is how long a reader may take to notice that the time is over.
const grace = 100 * time.Millisecond

// within returns the indexes of the smallest files that have at most so many bytes in sum.
func within(files []File, most int64) []int {
	order := make([]int, len(files))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(files[a].Size, files[b].Size) })
	for i, n := range order {
		if most -= max(0, files[n].Size); most < 0 {
			return order[:i]
		}
	}
	return order
}

// reader reads files until it is over.
type reader struct {
	ctx      context.Context
	files    []File
	mu       sync.Mutex
	queue    []int
	contents []buildid.Content
	over     bool
}

func (r *reader) run() {
	for {
		i, ok := r.next()
		if !ok {
			return
		}
		c := r.files[i].read(r.ctx)
		r.mu.Lock()
		if !r.over {
			r.contents[i] = c
		}
		r.mu.Unlock()
	}
}

func (r *reader) next() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.ctx.Err() != nil {
		return 0, false
	}
	i := r.queue[0]
	r.queue = r.queue[1:]
	return i, true
}

// end returns what was read so far. Later results come too late.
func (r *reader) end() []buildid.Content {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.contents
}

// read returns the content of a file, the zero one if it cannot be read.
func (f *File) read(ctx context.Context) buildid.Content {
	var file *os.File
	var done func()
	if f.Open != nil {
		file, done = f.Open()
	}
	switch {
	case file == nil && f.Ask != nil:
		return f.Ask(ctx)
	case file == nil:
		return buildid.Content{}
	}
	defer done()
	c, err := contentOf(ctx, file)
	if err != nil || f.IsSame != nil && !f.IsSame(file) {
		return buildid.Content{}
	}
	return c
}

// contentOf reads the content of a file, which was executed or may be.
func contentOf(ctx context.Context, f *os.File) (buildid.Content, error) {
	return contentcache.OfMapped(ctx, f)
}

// A Verdict is what is known of files that claim one identity.
type Verdict uint8

const (
	// Same says that there is one content. It is what most copies are.
	Same Verdict = iota
	// Unknown says that the content of some file is not known, and that no two are known
	// to be different.
	Unknown
	// Different says that two files have different contents.
	Different
)

// Judge returns the verdict on the contents of files that claim one identity.
func Judge(contents []buildid.Content) Verdict {
	verdict := Same
	var first buildid.Content
	for _, c := range contents {
		switch {
		case c.IsZero() && len(contents) > 1:
			verdict = max(verdict, Unknown)
		case first.IsZero():
			first = c
		case !c.IsZero() && c != first:
			return Different
		}
	}
	return verdict
}
