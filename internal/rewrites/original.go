package rewrites

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/addr"
	"hallmark/internal/objects"
	"hallmark/internal/patience"
	"hallmark/internal/procfs"
	"hallmark/procmap"
)

// Programs that want their code in huge pages put a copy of it, in anonymous memory,
// in the place of the file's mapping. The rest of the mapping on both sides shows
// which file and offset were there (procmap.Process.Origin), and the bytes whether it
// is still the file's code.
//
// Such memory can be written at any time. So each page that samples are in is compared
// when it is first met, and again at each look for rewritten pages: see rewrites.

// PageSize is the size of the pages that are compared with their origin.
const PageSize = 4096

const (
	// maxOriginals bounds what is remembered of a process: pages that were looked
	// at, and areas of code that is no copy.
	maxOriginals = 1 << 14
	// aliveAgain is how often a program with copies is asked whether it still runs.
	aliveAgain = 100 * time.Millisecond
)

// Origins remembers where the anonymous code of a process comes from.
type Origins struct {
	pages  map[addr.Abs]origin // by the page's address; without an object for none
	own    []area              // code of the process's own making
	copies *copies             // the pages that have a place; nil for none
	asked  time.Time           // when its program was last asked whether it runs
	rests  time.Time           // until when its user has no more looks: see patience.Shares
}

// origin is the place in a file that code was copied from: the zero one if it was not.
type origin struct {
	object *objects.Object
	at     uint64 // offset
}

// area is a range of addresses.
type area struct{ start, end addr.Abs }

// Original returns the file that code of a process was copied from, and the offset in it, as long
// as the process runs and the page is the same in both. Else it is generated code. If the
// page differs later, the frame has the reason rewritten in the end.
func (r *Watcher) Original(p *objects.Process, known *Origins, a addr.Abs) (file *objects.Object, at uint64, ok bool) {
	known.renew()
	page := a &^ (PageSize - 1)
	from, isKnown := known.find(page)
	if !isKnown && time.Now().Before(known.rests) {
		return nil, 0, false
	}
	if !isKnown {
		var err error
		if from, err = r.findOriginal(p, known, page); !errors.Is(err, patience.ErrSilent) {
			known.remember(page, from)
		}
	}
	if from.object == nil {
		return nil, 0, false
	}
	return from.object, from.at + uint64(a-page), true
}

// renew forgets everything when the process executes another program, with other code at the same
// addresses, or may do so.
func (o *Origins) renew() {
	if o.copies == nil || time.Since(o.asked) < aliveAgain {
		return
	}
	if o.asked = time.Now(); o.copies.replaced() {
		*o = Origins{}
	}
}

func (o *Origins) find(page addr.Abs) (from origin, known bool) {
	for _, v := range o.own {
		if v.start <= page && page < v.end {
			return origin{}, true
		}
	}
	from, known = o.pages[page]
	return from, known || len(o.pages)+len(o.own) >= maxOriginals
}

func (o *Origins) remember(page addr.Abs, from origin) {
	if o.pages == nil {
		o.pages = map[addr.Abs]origin{}
	}
	o.pages[page] = from
}

// foundCopy is what a process says of a page of its own.
type foundCopy struct {
	program *procmap.Process // open
	v       procmap.VMA      // that has the page
	from    copiedPage
	left    procmap.VMA // of the file
	copied  bool
}

// findOriginal asks the process.
func (r *Watcher) findOriginal(p *objects.Process, known *Origins, page addr.Abs) (origin, error) {
	user := procfs.AccountOf(p.PID)
	end := r.looks.Take(user)
	if end == nil {
		known.rests = time.Now().Add(aliveAgain)
		return origin{}, patience.ErrSilent
	}
	defer end()
	var late atomic.Bool
	f, err := patience.InTime(int(p.PID), rewritesTime, func() (foundCopy, error) {
		f, err := findCopy(int(p.PID), page, user == 0 || user == uint32(os.Geteuid()))
		if late.Load() && f.copied {
			f.program.Close()
		}
		return f, err
	})
	switch {
	case err != nil:
		late.Store(true)
		return origin{}, err
	case f.v.Start < f.v.End && !f.copied:
		known.own = append(known.own, area{f.v.Start, f.v.End})
	}
	if !f.copied {
		return origin{}, nil
	}
	c := r.follow(int(p.PID), f.program, page, f.from)
	if c == nil {
		return origin{}, nil
	}
	known.copies, known.asked = c, time.Now()
	return origin{r.objects.OfVMA(f.left, p), uint64(f.from.offset)}, nil
}

// findCopy looks whether a page of a process is a copy of a file's. Its answer has no VMA if
// only that page is none. Its program is closed if it is none. On a device without a disk, where files of
// several layers or subvolumes have one number, the owner of the process must be trusted.
func findCopy(pid int, page addr.Abs, isTrusted bool) (f foundCopy, err error) {
	f.program, err = procmap.Open(pid)
	if err != nil {
		return foundCopy{}, err
	}
	defer func() {
		if !f.copied {
			f.program.Close()
		}
	}()
	v, ok, err := f.program.Find(page)
	if err != nil || !ok {
		return f, err
	}
	was, ok, err := f.program.Origin(v)
	if err != nil || !ok || was.Dev.Major == 0 && !isTrusted {
		f.v = v
		return f, nil
	}
	f.from = copiedPage{path: cmp.Or(was.Path(), was.Name), dev: was.Dev, inode: was.Inode, offset: was.FileOffset(page)}
	if f.left, ok = leftOf(f.program, was); !ok {
		return f, nil
	}
	unlike, err := f.program.UnlikeOrigin(v, []procmap.Pages{{Start: page, End: page + PageSize}})
	f.copied = err == nil && len(unlike) == 0
	return f, nil
}

// leftOf returns what is left of the mapping of a file that was replaced in part.
func leftOf(proc *procmap.Process, was procmap.VMA) (procmap.VMA, bool) {
	vmas, err := proc.All()
	if err != nil {
		return procmap.VMA{}, false
	}
	for _, v := range vmas {
		if v.Dev == was.Dev && v.Inode == was.Inode && v.FileBacked() {
			return v, true
		}
	}
	return procmap.VMA{}, false
}

// copies are the pages of a program that were copies of a file's when samples in them were first met.
type copies struct {
	program *procmap.Process // stays open: no later program of the process is taken for it
	over    atomic.Bool      // the program has ended

	mu    sync.Mutex
	pages map[addr.Abs]copiedPage
}

// copiedPage is the place in a file that a page was copied from.
type copiedPage struct {
	path   string
	dev    procmap.Dev
	inode  uint64
	offset addr.Offset
}

// maxCopiers bounds the programs whose copies are remembered, each of which takes a descriptor. The
// code of others is anonymous.
const maxCopiers = 256

// alive returns an error that wraps os.ErrProcessDone when the program has ended, and another one
// when nobody knows.
func (c *copies) alive() error {
	if c.over.Load() {
		return os.ErrProcessDone
	}
	_, err := patience.InTime(c.program.PID(), patience.LookTime, func() (bool, error) {
		_, ok, err := c.program.Next(0)
		return ok, err
	})
	return err
}

// replaced reports whether the process executes another program, or may do so. One that is gone keeps
// the places of its samples.
func (c *copies) replaced() bool {
	err := c.alive()
	if errors.Is(err, os.ErrProcessDone) {
		_, err = patience.InTime(c.program.PID(), patience.LookTime, func() (struct{}, error) {
			p, err := procmap.Open(c.program.PID())
			if err == nil {
				p.Close()
				err = errReplaced
			}
			return struct{}{}, err
		})
	}
	return err != nil && !errors.Is(err, procmap.ErrNoProcess) && !errors.Is(err, procmap.ErrNoMemory)
}

var errReplaced = errors.New("it executes another program")

// add adds a page.
func (c *copies) add(page addr.Abs, from copiedPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages[page] = from
}

// all returns the pages in the order of their addresses, and where they were copied from.
func (c *copies) all() ([]addr.Abs, map[addr.Abs]copiedPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := make(map[addr.Abs]copiedPage, len(c.pages))
	var pages []addr.Abs
	for page, place := range c.pages {
		pages = append(pages, page)
		from[page] = place
	}
	slices.Sort(pages)
	return pages, from
}

// ended notes that the program has ended, or that nobody looks any more, and closes it. It does not
// wait for a look that is under way.
func (c *copies) ended() {
	c.over.Store(true)
	go c.program.Close()
}

// unknown returns the places of all pages.
func (c *copies) unknown() []copiedSpan {
	pages, from := c.all()
	spans := make([]copiedSpan, len(pages))
	for i, page := range pages {
		spans[i] = copiedSpan{from[page], PageSize}
	}
	return spans
}

// spans returns the places of pages that are no copies now, or are not known to be. There are none
// once the program has ended: then nobody knows what became of them.
func (c *copies) spans() ([]copiedSpan, error) {
	pages, from := c.all()
	var unlike []copiedSpan
	for len(pages) > 0 {
		v, ok, err := c.program.Find(pages[0])
		if err != nil {
			return nil, err
		}
		n := 1
		for ok && n < len(pages) && pages[n] < v.End {
			n++
		}
		found, err := c.unlike(v, pages[:n], from)
		if err != nil {
			return nil, err
		}
		unlike, pages = append(unlike, found...), pages[n:]
	}
	if _, _, err := c.program.Next(0); err != nil {
		return nil, err // what was read may have been of no program
	}
	return unlike, nil
}

// copiedSpan is a range of a file that copies are of.
type copiedSpan struct {
	copiedPage
	size addr.Offset
}

// unlike returns the places of pages that are no copies now, of those in a VMA: the zero VMA for a page
// that is not mapped.
func (c *copies) unlike(v procmap.VMA, pages []addr.Abs, from map[addr.Abs]copiedPage) (unlike []copiedSpan, err error) {
	origin, inHole, err := procmap.VMA{}, false, error(nil)
	if v.Perm&procmap.Exec != 0 {
		origin, inHole, err = c.program.Origin(v)
	}
	if err != nil {
		return nil, err
	}
	if !inHole {
		origin = v // it may be the file's mapping again, at which others look
	}
	var compare []procmap.Pages
	for _, page := range pages {
		if p := from[page]; !v.Contains(page) || origin.Dev != p.dev || origin.Inode != p.inode || origin.FileOffset(page) != p.offset {
			unlike = append(unlike, copiedSpan{p, PageSize})
			continue
		}
		if inHole {
			compare = append(compare, procmap.Pages{Start: page, End: page + PageSize})
		}
	}
	if len(compare) == 0 {
		return unlike, nil
	}
	found, err := c.program.UnlikeOrigin(v, compare)
	if errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	for _, r := range found {
		unlike = append(unlike, copiedSpan{from[r.Start], addr.Offset(r.End - r.Start)})
	}
	return unlike, nil
}
