package capture

import (
	"errors"
	"math/bits"
	"time"

	"hallmark/addr"
	"hallmark/internal/bpf"
	"hallmark/internal/perfring"
	"hallmark/reason"
)

// stackmapSampler takes samples by the kernel's own map of stacks with build IDs:
// see bpf.Stackmap. It shows what that mechanism gives and puts nothing of its own
// in place of what is missing: a frame of which the kernel reports the address only
// stays without identity.
//
// Where the kernel is known to err it is not believed. For an address in no mapping
// it takes the next one (find_vma), and reports the build ID of that file with an
// offset before the mapping's own. If that is below 0, it is refused at once; if it
// is not in an executable segment of the file, it is refused when the file could be
// found. What remains cannot be distinguished: a hole, less wide than the code that
// lies before the mapping in the same file. Build IDs come without their length,
// which only the file says when they end in zeros.
type stackmapSampler struct {
	bpfEvents
	programs *bpf.Stackmap
	files    stackmapFiles
}

// newStackmapSampler returns a sampler that closes the programs in the end.
func newStackmapSampler(t *tally, opts Options, programs *bpf.Stackmap) (*stackmapSampler, error) {
	events, err := newBPFEvents(t, opts, programs)
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	return &stackmapSampler{
		bpfEvents: events,
		programs:  programs,
		files:     stackmapFiles{objects: t.objects, byID: map[paddedID]*stackmapClaim{}},
	}, nil
}

// stackPlaces returns for how many stacks there is room: sixteen times the samples
// that are taken between two rounds, so that a thirtieth at most is lost.
func stackPlaces(hz, cpus int) int {
	samples := hz * cpus * int(perfring.LongestWait/time.Millisecond) / 1000
	return min(max(1<<bits.Len(uint(16*samples)), 1<<10), 1<<14)
}

// The samples wake no round, the time does.
func (s *stackmapSampler) descriptors() []int { return []int{s.notices.epoll} }
func (s *stackmapSampler) pending() bool      { return s.notices.pending() }
func (s *stackmapSampler) due() time.Duration { return perfring.LongestWait }

func (s *stackmapSampler) round() error {
	err := errors.Join(s.look(), s.programs.Take(s.count))
	s.files.find()
	return err
}

func (s *stackmapSampler) count(c bpf.StackmapSample) {
	places := make([]place, 0, len(c.Kernel)+len(c.User))
	for i, ip := range c.Kernel {
		places = append(places, s.inKernel(addr.Abs(callSite(ip, i))))
	}
	for i, f := range c.User {
		places = append(places, s.place(f, i, c.Task.PID))
	}
	n := total{int64(c.Samples), int64(c.Samples) * int64(s.perSample)}
	s.tally.add(places, framePointers(len(c.User)), s.labels(&c.Task), n, c.Task.Seen)
}

// callSite returns where the frame with this index is: all but the innermost are in
// the call before the address that it returns to.
func callSite(at uint64, index int) uint64 {
	if index > 0 {
		at--
	}
	return at
}

// place says what a user frame is.
func (s *stackmapSampler) place(f bpf.StackmapFrame, index int, pid uint32) place {
	at := callSite(f.At, index)
	switch {
	case f.Status != bpf.StatusValid:
		return place{s.objects.Missing(reason.StackmapIP), at}
	case int64(at) < 0: // loff_t
		return place{s.objects.Missing(reason.BadOffset), at}
	}
	return place{s.files.object(f.BuildID, pid), at}
}

func (s *stackmapSampler) finish() {
	err := s.programs.Take(s.count)
	s.files.findAnywhere(s.opts.Command)
	n, statsErr := s.programs.Stats()
	s.stats.Lost += n.Uncounted
	s.stats.Unfollowed = n.Unfollowed
	s.stats.Collided += n.Collided + n.NoRoom
	if errors.Join(err, statsErr) != nil {
		s.stats.Malformed++
	}
}

func (s *stackmapSampler) close() error { return errors.Join(s.closeEvents(), s.programs.Close()) }

func (s *stackmapSampler) cost() (bpf.Cost, error) { return s.programs.Cost() }
