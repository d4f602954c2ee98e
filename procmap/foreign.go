package procmap

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/aside"
	"hallmark/internal/mounts"
	"hallmark/reason"
)

// A file of a file system that a program or another machine serves (FUSE, NFS) is foreign:
// whoever opens it, reads it or touches its pages may wait for ever, and so may the kernel
// when it is asked for its build ID. This process does none of that. It asks a helper, if
// it can have one (internal/aside), and else says FileUnresponsive.

// isForeign reports whether v maps a file that may not answer.
func (p *Process) isForeign(v VMA) bool {
	return v.FileBacked() && !p.view().Answers(mounts.Dev(v.Dev))
}

// view returns which file systems are believed to answer: those of this mount namespace and
// of the process's. Of overlays that only the process sees a helper is asked, or else what
// they say is believed.
func (p *Process) view() *mounts.View {
	p.viewOnce.Do(func() { p.mounted = mounts.Of(p.tid, !aside.Available()) })
	return p.mounted
}

// Content is a mapped file, open for reading: a *File of this process, or the file of
// another process that reads for this one.
type Content interface {
	io.ReaderAt
	io.Closer
}

// Open opens the file that v maps for reading, as OpenFile does, and those that OpenFile
// leaves alone because their file systems may not answer through another process.
func (p *Process) Open(v VMA) (Content, error) {
	f, err := p.OpenFile(v)
	switch {
	case err == nil:
		return f, nil
	case !errors.Is(err, reason.FileUnresponsive):
		return nil, err
	}
	c, why, err := p.openAside(v)
	if c == nil && err == nil {
		err = why
	}
	return c, err
}

// inProcess is what a helper is asked about.
type inProcess struct {
	PID    int
	Method Method
	VMA    VMA
}

// identified is an Identity that can be sent.
type identified struct {
	ID     string
	Also   string
	Where  buildid.Where
	Offset addr.Offset
	ELF    bool
	Reason reason.Reason
	Door   Door
	Gone   bool // the process, or what it had mapped
}

func (i *identified) identity() (Identity, error) {
	if i.Gone {
		return Identity{}, os.ErrProcessDone
	}
	id := Identity{Reason: i.Reason, Door: i.Door}
	id.Where, id.Offset, id.ELF = i.Where, i.Offset, i.ELF
	var err, alsoErr error
	if i.ID != "" {
		id.ID, err = buildid.Parse(i.ID)
	}
	if i.Also != "" {
		id.Also, alsoErr = buildid.Parse(i.Also)
	}
	return id, errors.Join(err, alsoErr)
}

// identifyAside is p.ofFile in a helper.
var (
	identifyAside = aside.Named[inProcess, identified]("procmap.identify")
	_             = identifyAside.Answer(identifyHere)
)

func identifyHere(q inProcess) (identified, error) {
	ctx, cancel := context.WithTimeout(hashing(), aside.AnswerTime)
	defer cancel()
	p, v, err := q.open(ctx)
	if err != nil {
		return identified{Gone: true}, nil
	}
	defer p.Close()
	id, err := p.ofFile(v)
	switch {
	case errors.Is(err, syscall.ESRCH), errors.Is(err, os.ErrProcessDone):
		return identified{Gone: true}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return identified{Reason: reason.HashBudget}, nil
	case err != nil:
		return identified{}, err
	}
	return send(id), nil
}

// send turns an Identity into one that can be sent.
func send(id Identity) identified {
	sent := identified{Where: id.Where, Offset: id.Offset, ELF: id.ELF, Reason: id.Reason, Door: id.Door}
	if !id.ID.IsZero() {
		sent.ID = id.ID.String()
	}
	if !id.Also.IsZero() {
		sent.Also = id.Also.String()
	}
	return sent
}

// hashing bounds how much code of files without notes a helper hashes.
var hashing = sync.OnceValue(func() context.Context {
	return buildid.WithBudget(context.Background(), buildid.Budget{Bytes: 4 << 30, Second: 32 << 20})
})

// openAside opens the file that a process maps in a helper.
var openAside = aside.NewOpener("procmap.open", func(q inProcess) (why reason.Reason, c aside.Content, err error) {
	p, v, err := q.open(context.Background())
	if err != nil {
		return reason.ProcessGone, nil, nil
	}
	defer p.Close()
	f, why, err := p.openFile(v)
	if f == nil {
		return why, nil, err
	}
	return why, f, nil
})

// open opens the process, if it still maps the file.
func (q *inProcess) open(ctx context.Context) (*Process, VMA, error) {
	p, err := OpenOptions(q.PID, Options{Method: q.Method, Context: ctx})
	if err != nil {
		return nil, VMA{}, err
	}
	v, ok, err := p.find(q.VMA.Start)
	if err != nil || !ok || !v.sameFile(q.VMA) {
		p.Close()
		return nil, VMA{}, os.ErrProcessDone
	}
	return p, v, nil
}

// about names the file system of v.
func (v VMA) about() string { return "file system " + v.Dev.String() }

// identifyForeign is ofFile for a file that may not answer.
func (p *Process) identifyForeign(v VMA) (Identity, error) {
	sent, err := identifyAside.Ask(v.about(), inProcess{p.tid, p.method, v})
	if err != nil {
		return Identity{Reason: reason.FileUnresponsive}, nil
	}
	id, err := sent.identity()
	if err != nil {
		return Identity{}, cmpGone(err)
	}
	return id, p.maps.alive()
}

// cmpGone returns ESRCH for a process that a helper has not found, as the kernel does.
func cmpGone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return syscall.ESRCH
	}
	return err
}

func (p *Process) openAside(v VMA) (Content, reason.Reason, error) {
	why, f, err := openAside.Ask(v.about(), inProcess{p.tid, p.method, v})
	switch {
	case err != nil:
		return nil, reason.FileUnresponsive, nil
	case f == nil:
		return nil, why, p.wrap(p.maps.alive())
	}
	return f, reason.None, nil
}

// claimed is what a helper is asked about whose content is wanted.
type claimed struct {
	In inProcess
	ID string // that the file claims
}

// contentAside reads the content of a file that a process maps, in a helper.
var contentAside = aside.New("procmap.content", func(q claimed) (content string, err error) {
	ctx, cancel := context.WithTimeout(hashing(), aside.AnswerTime)
	defer cancel()
	p, v, err := q.In.open(ctx)
	if err != nil {
		return "", err
	}
	defer p.Close()
	f, _, err := p.openFile(v)
	if f == nil {
		return "", err
	}
	defer f.Close()
	if info, err := buildid.ReadClaim(f); err != nil || info.ID.String() != q.ID {
		return "", err
	}
	c, err := buildid.ReadMapped(ctx, f)
	return c.String(), err
})

// ContentAside returns the content of the file that v maps if OpenFile leaves it alone, because
// its file system may not answer, and another process reads in time that it claims the
// identity. In all other cases the content is unknown.
func (p *Process) ContentAside(v VMA, id buildid.ID) (c buildid.Content) {
	f, err := p.OpenFile(v)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, reason.FileUnresponsive) {
		return c
	}
	text, err := contentAside.Ask(v.about(), claimed{inProcess{p.tid, p.method, v}, id.String()})
	if err == nil && text != "" {
		c, _ = buildid.ParseContent(text) // or it is unknown
	}
	return c
}

// inMemory is memory of a process that a helper is asked for.
type inMemory struct {
	PID  int
	At   int64
	Size int
}

// readAside reads memory in a helper: whoever owns the process may put a page of his own file
// system there at any moment.
var readAside = aside.New("procmap.memory", func(q inMemory) ([]byte, error) {
	f, err := os.Open(procDir(q.PID) + "/mem")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, min(q.Size, maxMemoryRead))
	n, err := f.ReadAt(b, q.At)
	if n > 0 {
		err = nil
	}
	return b[:n], err
})

const maxMemoryRead = 1 << 20

// memoryAside is the memory of a process as a helper reads it.
type memoryAside struct{ p *Process }

// ReadAt is as io.ReaderAt wants it.
func (m memoryAside) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		got, err := readAside.Ask("memory of process "+m.p.dir, inMemory{m.p.tid, off + int64(n), len(b) - n})
		if err != nil {
			return n, err
		}
		if len(got) == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += copy(b[n:], got)
	}
	// It may have been that of another program, or of another process.
	return n, m.p.maps.alive()
}

func (memoryAside) Close() error { return nil }

// ReadMemory opens the memory of p for reading: the offset is the absolute address. Where
// this process can have a helper, that reads it, because touching memory may mean waiting for
// a file system. The caller closes it.
func (p *Process) ReadMemory() (Content, error) {
	m, err := p.readMemory()
	return m, p.wrap(err)
}

func (p *Process) readMemory() (Content, error) {
	if aside.Available() && p.tid != 0 {
		return memoryAside{p}, nil
	}
	f, err := p.memory()
	if err != nil {
		return nil, err
	}
	return f, nil
}
