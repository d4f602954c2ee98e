package capture

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/kernelcode"
	"hallmark/internal/objects"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Recording is what a Session saw.
type Recording struct {
	// Profile has the symbols of the kernel and of generated code, which are only
	// known now, and none of files: see Symbolize.
	Profile *pprof.Profile

	files map[distinct]*identified
	// reading is held while a file's tables are in memory. Those of two large
	// programs at a time would be more than all else that a recording needs.
	reading sync.Mutex
}

// errFinished is the error of a recording that cannot be finished again.
var errFinished = errors.New("the recording was finished before")

// Finish ends the recording and returns what it saw. The Session can only be
// Closed afterwards. Finish waits for files that are still being read, some seconds at most. When ctx is
// done before that, the recording is lost, and the error is that of ctx. To finish twice is an error as well.
func (s *Session) Finish(ctx context.Context) (*Recording, error) {
	if s.finished {
		return nil, errFinished
	}
	s.finished = true
	s.stop()
	t := s.tally
	defer context.AfterFunc(ctx, t.objects.GiveUp)()
	t.objects.Stop()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.objects.Review()
	t.stats.Disagreed = t.objects.Disagreements()
	f := finisher{
		stacks:   t.stacks,
		objects:  t.objects,
		kernel:   t.kernel,
		files:    map[distinct]*identified{},
		ofObject: map[*objects.Object]*identified{},
	}
	if t.times != nil {
		f.times = t.times.times()
	}
	f.times = separate(t.stacks, t.objects, f.times, t.rewrites)
	p := f.build(profile.NewBuilder(int64(t.perSample)))
	t.stacks = nil // room for symbols
	if c := s.opts.Command; c != nil {
		putFirst(p, c.Path())
	}
	p.TimeNanos = s.started.UnixNano()
	p.DurationNanos = int64(s.elapsed)
	if t.stats.Coarse > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Coarse), "sample is counted without its thread and process, or only by its innermost frame", "samples are counted without their thread and process, or only by their innermost frame"))
	}
	if t.stats.Untimed > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Untimed), "sample has no time", "samples have no time"))
	}
	if t.stats.Collided > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Collided), "sample had no place in the kernel's map of stacks", "samples had no place in the kernel's map of stacks"))
	}
	if t.stats.Unfollowed > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Unfollowed), "process was not recorded, because too many ran at once", "processes were not recorded, because too many ran at once"))
	}
	if t.stats.Cut > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Cut), "stack is ", "stacks are ")+CutNote)
	}
	if t.stats.Continued > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Continued), "stack goes ", "stacks go ")+ContinuedNote+" the copy ends")
	}
	if t.stats.Lost > 0 {
		p.Comments = append(p.Comments, plaintext.Plural(int64(t.stats.Lost), "record was lost", "records were lost"))
	}
	p.Comments = append(p.Comments, t.rewrites.Notes()...)
	p.Comments = append(p.Comments, t.objects.Notes()...)
	p.Comments = append(p.Comments, t.stats.Table.Notes()...)
	p.Comments = append(p.Comments, t.stats.Unwind.Notes()...)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &Recording{Profile: p, files: f.files}, nil
}

// Parts of the notes of a profile on stacks that samples have copied. Notes of before have them, too.
const (
	CutNote       = "deeper than what was copied"
	ContinuedNote = "on by frame pointers where"
)

// putFirst puts the mappings of a file before all others: pprof calls a profile
// by its first mapping.
func putFirst(p *pprof.Profile, path string) {
	slices.SortStableFunc(p.Mapping, func(a, b *pprof.Mapping) int {
		switch {
		case (a.File == path) == (b.File == path):
			return 0
		case a.File == path:
			return -1
		}
		return 1
	})
}

// finisher turns counted stacks into a profile.
type finisher struct {
	stacks  *stacks
	objects *objects.Set
	kernel  *kernelcode.Kernel
	files   map[distinct]*identified
	// ofObject has the file that each object shows.
	ofObject map[*objects.Object]*identified
	// guests are what a frame beyond the code of its file is of, where that may not be shown
	// under the file of ofObject.
	guests map[*objects.Object]*profile.Binary
	times  map[counted][]int64 // when stacks were seen, if that was wanted
}

func (f *finisher) build(b *profile.Builder) *pprof.Profile {
	files := f.prepare()
	f.doubt(b, files)
	places := f.stacks.places.All()
	b.Expect(len(places), f.stacks.counts.Len())
	locations := make([]*pprof.Location, len(places))
	for i, p := range places {
		frame := f.frame(p)
		locations[i] = b.Location(&frame)
	}
	stacks := make([]profile.Stack, f.stacks.walks.Len())
	var stack []*pprof.Location
	for i := range stacks {
		stack = stack[:0]
		for _, n := range f.stacks.numbers(uint32(i)) {
			stack = append(stack, locations[n])
		}
		stacks[i] = b.Stack(stack, f.stacks.walk(uint32(i)))
	}
	owners := make([]profile.Owner, f.stacks.owners.Len())
	for i := range owners {
		owners[i] = b.Owner(&f.stacks.owners.All()[i])
	}
	for i, key := range f.stacks.counts.All() {
		t := f.stacks.totals[i]
		s := b.Count(stacks[key.stack], owners[key.owner], t.samples, t.nanos)
		b.AddTimes(s, f.times[key])
	}
	return b.Profile()
}

// prepare learns what must be known whole before the first frame is made: files,
// which several objects may show, and the symbols of the kernel.
func (f *finisher) prepare() []read {
	var addresses []addr.Abs
	var files []*objects.Object
	seen := map[*objects.Object]bool{}
	for _, p := range f.stacks.places.All() {
		switch o := p.object; {
		case o.Kind == objects.Kernel:
			addresses = append(addresses, addr.Abs(p.at))
		case o.IsFile() && !o.ID.IsZero() && !seen[o]:
			seen[o] = true
			files = append(files, o)
		}
	}
	all := f.read(files, contentLimits)
	f.distinguish(all)
	if len(addresses) > 0 {
		f.kernel.Load(addresses)
	}
	return all
}

// frame says what is known of a place.
func (f *finisher) frame(p place) profile.Frame {
	o := p.object
	switch o.Kind {
	case objects.Kernel:
		return f.kernel.Frame(addr.Abs(p.at))
	case objects.Generated:
		return o.Code.Frame(addr.Abs(p.at))
	case objects.Missing:
		return profile.Frame{Reason: o.Why, Addr: addr.Abs(p.at)}
	}
	if o.ID.IsZero() {
		return profile.Frame{Reason: o.Why, Path: o.Path, Addr: addr.Abs(p.at)}
	}
	b := f.ofObject[o]
	if o.Doubted && b.file != nil && !b.executes(addr.Offset(p.at)) {
		return profile.Frame{Reason: reason.BadOffset, Addr: addr.Abs(p.at)}
	}
	if guest := f.guests[o]; guest != nil && b.file != nil && !b.executes(addr.Offset(p.at)) {
		return profile.Frame{Binary: guest, Offset: addr.Offset(p.at)}
	}
	return profile.Frame{Binary: &b.Binary, Offset: addr.Offset(p.at)}
}

// identified is a file with an identity, by whatever mappings and paths it was met.
type identified struct {
	profile.Binary
	content  io.ReaderAt  // nil when it could not be reached
	file     *symbol.File // nil when the content is not ELF
	doubtful bool         // it is several files, of unknown content
}

func (b *identified) readSegments() {
	file, err := symbol.NewFile(b.content, b.Path)
	if err != nil {
		return // not an ELF file, or a malformed one: it has an identity all the same
	}
	b.file = file
	for _, s := range file.Segments() {
		if s.Executable() {
			b.Segments = append(b.Segments, profile.Segment{Offset: s.Offset, Virt: s.Virt, Size: s.FileSize})
		}
	}
}

// executes reports whether the offset lies in a page of which some is code. Pages
// are mapped as a whole.
func (b *identified) executes(o addr.Offset) bool {
	const page = 4096
	return slices.ContainsFunc(b.Segments, func(s profile.Segment) bool {
		return o >= s.Offset&^(page-1) && o < (s.Offset+addr.Offset(s.Size)+page-1)&^(page-1)
	})
}
