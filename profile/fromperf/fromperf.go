// Package fromperf makes a profile of a perf.data file, wherever it was recorded.
//
// It looks at nothing but the file, and at the unwind tables and identities that Options give: the
// stacks of perf record --call-graph dwarf are copies of memory. The mappings of a process follow from the
// records, in the order of time; which file that is, from the build ID in the record
// (perf record --buildid-mmap) or from perf's list of build IDs by path. A path at
// which different files were mapped has no identity by that list: perf read what was
// there in the end.
package fromperf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/perfregs"
	"hallmark/internal/plaintext"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/unwind"
)

// Options say what of a file is wanted.
type Options struct {
	// Event is the name of the event whose samples are counted: by default the first one in
	// the file that has samples. "cpu-clock" is also "cpu-clock:ppp".
	Event string
	// All counts the samples of all events instead, each with a value of its own in the
	// profile. They keep no times then.
	All bool
	// Tables has unwind tables, by which copied stacks are walked; nil for none.
	Tables Tables
	// Identify returns the identity of a file that perf has none of, from the record of
	// its mapping and that of the kernel's image (nil where there is none); zero for none. It is
	// nil where nobody knows more than the recording.
	Identify func(file, kernel *perfdata.Mmap2) buildid.ID
	// Content returns the content of a file that Identify gave an identity and that frames are
	// in; zero where that is not proven to be what was mapped. It may be nil.
	Content func(file *perfdata.Mmap2) buildid.Content
	// Times is whether the samples keep when they were taken (profile.Times). That takes
	// memory for each sample, up to a bound: see Stats.Untimed.
	Times bool
	// Memory bounds what the profile takes, in bytes: beyond it Read returns
	// profile.ErrTooLarge. Zero is no bound.
	Memory int64
}

// Stats says what a profile lacks.
type Stats struct {
	Samples   int64
	Lost      uint64 // records that perf or the kernel lost
	Malformed int64
	// Unwalked counts samples that have a copy of the stack instead of its addresses
	// (perf record --call-graph dwarf) and lack callers, because a file that is needed to
	// find them is not at hand.
	Unwalked int64
	// Unrecorded counts files that frames are in and that perf recorded no build ID of.
	Unrecorded int64
	// Untimed counts samples whose times were wanted, and for which there was no room.
	Untimed int64
	// Unnumbered counts samples that have their process and thread by name only, for want
	// of room.
	Unnumbered int64
	// Events are the events of the file in its order, without those that only report processes
	// and mappings.
	Events []EventCount
	// Damage is where the file is damaged or cut off; the profile is of what stands
	// before. nil when it is whole.
	Damage error

	named bool // the event was asked for
}

// replay follows the records of one file.
type replay struct {
	group        group
	r            *perfdata.Reader
	events       tallies
	processes    map[uint32]*process
	ended        []uint32 // processes whose first thread ended, the first to end first
	threads      map[uint32]string
	layouts      uint64 // how many there were
	kernel       space  // of what is mapped for the kernel itself: image and modules
	programs     []perfdata.Ksymbol
	kernelLayout uint64 // of kernel and programs
	cgroups      map[uint64]string
	files        *files
	stats        Stats
	unrecorded   map[*file]bool // that Stats counts
	known        *places
	places       []uint32 // of the sample at hand, by their numbers in known

	machine  *perfregs.Machine // nil when its stacks cannot be walked
	tables   Tables
	memory   int64               // that may be taken, 0 for any
	mappings int                 // of all processes
	list     map[string]listedID // perf's, when it had
	listed   int                 // so many
}

func newReplay(r *perfdata.Reader, o Options) *replay {
	p := &replay{
		r: r, tables: o.Tables,
		events:    tallies{wanted: o.Event, every: o.All, times: o.Times && !o.All},
		processes: map[uint32]*process{}, threads: map[uint32]string{}, cgroups: map[uint64]string{},
		files: newFiles(), known: newPlaces(),
		layouts: emptyKernel, kernelLayout: emptyKernel,
	}
	p.files.identify, p.files.content = o.Identify, o.Content
	p.memory = o.Memory
	p.events.enough = p.enough()
	p.stats.named = o.Event != ""
	return p
}

// Read makes the profile of what is left in r. The error is about the file as a whole:
// no event of that name, no samples at all. A file that is damaged later on gives what
// stands before, and Stats has the error.
func Read(r *perfdata.Reader, o Options) (*pprof.Profile, Stats, error) {
	p := newReplay(r, o)
	if err := p.run(); err != nil {
		return nil, p.stats, err
	}
	out := p.build(p.events.all)
	return out, p.stats, nil
}

// ReadEach makes a profile of each event that has samples, in the order of the file. Of
// Options, Event and All say nothing.
func ReadEach(r *perfdata.Reader, o Options) ([]*pprof.Profile, Stats, error) {
	o.Event, o.All = "", true
	p := newReplay(r, o)
	if err := p.run(); err != nil {
		return nil, p.stats, err
	}
	var all []*pprof.Profile
	for i := range p.events.all {
		all = append(all, p.build(p.events.all[i:i+1]))
	}
	return all, p.stats, nil
}

// run follows all records. The error is that nothing was counted.
func (p *replay) run() error {
	for {
		rec, err := p.r.Next()
		if err != nil {
			if err != io.EOF {
				p.stats.Damage = err
			}
			break
		}
		p.handle(rec)
		if err := p.checkMemory(); err != nil {
			return err
		}
	}
	p.events.learn(p.r.Events())
	p.stats.Events = p.events.list()
	switch {
	case len(p.events.all) > 0:
		p.files.settle(p.r.Info())
		return nil
	case p.stats.named:
		return fmt.Errorf("no samples of an event %q: the file has %s", p.events.wanted, cmp.Or(strings.Join(p.stats.others(), ", "), "no events"))
	}
	return errors.Join(errors.New("the file has no samples"), p.stats.Damage)
}

func (p *replay) handle(r perfdata.Record) {
	switch r := r.(type) {
	case *perfdata.Sample:
		p.sample(r)
	case *perfdata.Mmap2:
		p.mmap(r)
	case *perfdata.Comm:
		p.comm(r)
	case *perfdata.Task:
		p.task(r)
	case *perfdata.Lost:
		p.stats.Lost += r.Count
	case *perfdata.Ksymbol:
		p.ksymbol(r)
	case *perfdata.Cgroup:
		p.cgroups[r.Cgroup] = r.Path
	case *perfdata.Malformed:
		p.stats.Malformed++
	}
}

// sample counts a sample for its event, and for others that it has counts of.
func (p *replay) sample(s *perfdata.Sample) {
	e := p.r.Event()
	if e == nil {
		return
	}
	p.events.learn(p.r.Events())
	if t := p.events.of(e); t != nil {
		p.count(s, t, weight(e.Attr, s))
	}
	for _, m := range p.group.read(s, e, p.events.byID) {
		if t := p.events.of(m.event); t != nil {
			p.count(s, t, int64(m.counts))
		}
	}
}

// count counts a sample for an event.
func (p *replay) count(s *perfdata.Sample, t *tally, weighs int64) {
	t.samples++
	t.first, t.last = cmp.Or(t.first, s.Time), max(t.last, s.Time)
	proc := p.process(s.PID)
	proc.seen = s.Time
	p.places = p.places[:0]
	walk := p.chain(s, proc)
	switch {
	case walk == profile.Walk{} && p.hasCopy():
		walk = p.copied(s, proc)
	case walk == profile.Walk{} && len(p.places) == 0 && s.Mode() == perfdata.ModeUser:
		walk = profile.Walk{Methods: profile.Methods(0).With(unwind.ByRegs)}
	}
	if len(p.places) == 0 { // no stacks were asked for
		p.places = append(p.places, p.place(proc, s.IP, s.Mode()))
	}
	labels := p.labels(proc, s)
	if walk.End == unwind.NoTable {
		t.unwalked++
	}
	number := t.counts.add(p.places, walk, &labels, weighs)
	if t.times != nil && t.event.Attr.Fields&perfdata.SampleTime != 0 {
		t.times.add(number, s.Time)
	}
}

// modeOf returns what the processor was doing where the frames of a call chain are from that
// follow a marker. A marker that is not known here is of the kernel.
func modeOf(marker uint64) perfdata.Mode {
	switch marker {
	case perfdata.ContextUser:
		return perfdata.ModeUser
	case perfdata.ContextHypervisor:
		return perfdata.ModeHypervisor
	case perfdata.ContextGuest, perfdata.ContextGuestKernel:
		return perfdata.ModeGuestKernel
	case perfdata.ContextGuestUser:
		return perfdata.ModeGuestUser
	}
	return perfdata.ModeKernel
}

// chain adds the frames of the call chain, and says how those of user code were found.
func (p *replay) chain(s *perfdata.Sample, proc *process) (walk profile.Walk) {
	mode, first := perfdata.ModeKernel, true
	for _, ip := range s.Callchain {
		if ip >= perfdata.ContextMax {
			mode, first = modeOf(ip), true
			continue
		}
		// All but the innermost of each context are return addresses: the call
		// is before them.
		method := unwind.ByRegs
		if !first {
			ip--
			method = unwind.ByFP
		}
		first = false
		p.places = append(p.places, p.place(proc, addr.Abs(ip), mode))
		if mode == perfdata.ModeUser {
			walk = profile.Walk{End: unwind.FramePointers, Methods: walk.Methods.With(method)}
		}
	}
	if p.isOurs() {
		return profile.Walk{}
	}
	return walk
}

// isOurs reports whether Hallmark wrote the recording, in a file: how it found the callers is
// not in there, and need not have been as the kernel does, by frame pointers.
func (p *replay) isOurs() bool { return p.r != nil && p.r.Info().Version == ourVersion }

// ourVersion stands where perf writes its version: writePerfHere of cmd/hallmark/internal/cli.
const ourVersion = "hallmark"

func (p *replay) labels(proc *process, s *perfdata.Sample) profile.Labels {
	l := profile.Labels{Process: proc.name, Thread: cmp.Or(p.threads[s.TID], proc.name), Cgroup: p.cgroups[s.Cgroup]}
	if s.PID != perfdata.NoTask {
		l.PID = int(s.PID)
	}
	if s.TID != perfdata.NoTask { // a thread loses its number before its process does
		l.TID = int(s.TID)
	}
	return l
}

// timesOf returns the times of all that was counted, nil when they are not wanted. They are
// not kept here any more.
func (t *tally) timesOf(move int64) [][]int64 {
	if t.times == nil {
		return nil
	}
	all := t.times.all(len(t.counts.all), move)
	t.times = nil
	return all
}

// Notes says in sentences what the profile lacks. They are its comments as well.
func (s *Stats) Notes() []string {
	all := s.eventNotes()
	if s.Lost > 0 {
		all = append(all, plaintext.Plural(int64(s.Lost), "record was lost", "records were lost"))
	}
	if s.Malformed > 0 {
		all = append(all, plaintext.Plural(int64(s.Malformed), "record is malformed", "records are malformed"))
	}
	if s.Unwalked > 0 {
		all = append(all, plaintext.Plural(int64(s.Unwalked), "stack ends early, because a file that perf recorded is not at hand", "stacks end early, because a file that perf recorded is not at hand"))
	}
	if s.Unrecorded > 0 {
		files := "a file"
		if s.Unrecorded > 1 {
			files = plaintext.Plural(int64(s.Unrecorded), "file")
		}
		all = append(all, fmt.Sprintf("perf recorded no build ID of %s that frames are in", files))
	}
	if s.Untimed > 0 {
		all = append(all, plaintext.Plural(int64(s.Untimed), "sample has no time, for want of memory", "samples have no time, for want of memory"))
	}
	if s.Unnumbered > 0 {
		all = append(all, plaintext.Plural(int64(s.Unnumbered), "sample has its process by name only and not by number, for want of memory", "samples have their process by name only and not by number, for want of memory"))
	}
	if s.Damage != nil {
		all = append(all, fmt.Sprintf("the recording ends where it is damaged: %v", s.Damage))
	}
	return all
}
