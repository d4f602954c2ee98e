package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Stackmap counts stacks by the kernel's own means: a map of stacks whose user
// frames are a build ID and an offset, as far as the kernel finds them without
// waiting for anything (kernel/bpf/stackmap.c). Its methods are for one goroutine.
type Stackmap struct {
	objects  stackmapObjects
	follower *follower    // nil without StackmapOptions.Follow
	flags    [2]*ebpf.Map // what lies in the map of maps for each side
	writing  int          // the side that samples are counted in
	depth    int          // frames of a stack at most
	missing  uint64       // samples whose stack was not in the map
	keys     []samplerCountKey
	values   []uint64
	names    known // of processes and threads
}

// StackmapOptions say how a Stackmap samples. The zero value is right.
type StackmapOptions struct {
	UserOnly bool // leave the kernel's part of stacks out
	Follow   bool // sample only the processes that Follow names
	Times    bool // count each sample by itself: see Task.Seen
	// Stacks is how many places for stacks there are, rounded up to a power of two;
	// 4096 when 0. A stack has its place by its hash, and while another one is in it
	// the samples are lost: of n different stacks between two calls of Take, about
	// n/2 in Stacks. Each takes about 10 KB.
	Stacks int
}

// FrameStatus says what the kernel knows of a user frame: enum
// bpf_stack_build_id_status of include/uapi/linux/bpf.h.
type FrameStatus int32

// The statuses.
const (
	StatusEmpty FrameStatus = iota // nothing
	StatusValid                    // build ID and offset
	StatusIP                       // the absolute address
)

// StackmapFrame is a user frame: struct bpf_stack_build_id. Callers are where the
// call returns to.
type StackmapFrame struct {
	Status FrameStatus
	// BuildID is that of a Valid frame. The kernel does not say how long it is: a
	// shorter one has zeros behind it.
	BuildID [20]byte
	// At is an absolute address, or the file offset of a Valid frame. When the address
	// was in no mapping, the kernel may have taken the next one: then the offset
	// has nothing to do with it, and is negative most of the time.
	At uint64
}

// StackmapSample is what was counted of one stack in one owner.
type StackmapSample struct {
	Kernel  []uint64 // absolute addresses, leaf first
	User    []StackmapFrame
	Task    Task
	Samples uint64
}

// StackmapStats count what a Stackmap did and could not do.
type StackmapStats struct {
	Samples   uint64
	Collided  uint64 // lost, because another stack had their place
	NoRoom    uint64 // lost, because there was no memory for the stack
	Uncounted uint64 // lost, because there was no room to count them

	Unfollowed uint64 // processes that there was no room to follow
}

// Lost returns how many samples are not in any count.
func (s StackmapStats) Lost() uint64 { return s.Collided + s.NoRoom + s.Uncounted }

// NewStackmap loads the programs. They sample nothing until they are attached. The
// caller closes the Stackmap.
func NewStackmap(o StackmapOptions) (*Stackmap, error) {
	s := &Stackmap{depth: stackDepth(), keys: make([]samplerCountKey, countBatch), values: make([]uint64, countBatch)}
	if err := s.load(o); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the BPF programs of the kernel's stackmap: %w", err), s.Close())
	}
	return s, nil
}

func (s *Stackmap) load(o StackmapOptions) error {
	spec, err := loadStackmap()
	if err != nil {
		return err
	}
	limitStacks(spec, s.depth, o.Stacks)
	raiseLocked()
	err = errors.Join(spec.Variables["want_kernel"].Set(!o.UserOnly), spec.Variables["want_times"].Set(o.Times), setFollow(spec, o.Follow))
	if err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return err
	}
	if o.Follow {
		if s.follower, err = newFollower(s.objects.Followed); err != nil {
			return err
		}
	}
	for side := range s.flags {
		if s.flags[side], err = ebpf.NewMap(spec.Maps["side"].InnerMap); err != nil {
			return err
		}
		if err := s.flags[side].Put(uint32(0), uint32(side)); err != nil {
			return err
		}
	}
	return s.objects.Side.Put(uint32(0), s.flags[s.writing])
}

// raiseLocked lets this process have maps of any size: before Linux 5.11 they count as
// locked memory. A user who may not raise the limit may not load programs either.
func raiseLocked() {
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

// limitStacks sets how deep stacks may be and how many there is room for.
func limitStacks(spec *ebpf.CollectionSpec, depth, stacks int) {
	for _, m := range spec.Maps {
		if m.Type == ebpf.StackTrace {
			m.ValueSize = m.ValueSize / maxDepth * uint32(depth)
		}
		if stacks > 0 && (m.Type == ebpf.StackTrace || m.Type == ebpf.Hash) {
			m.MaxEntries = uint32(stacks)
		}
	}
}

// maxDepth is MAX_DEPTH of events/stack.h.
const maxDepth = 127

// stackDepth returns how deep a stack may be: maps of deeper ones than the
// administrator allows are refused.
func stackDepth() int {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_stack")
	if err != nil {
		return maxDepth
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 1 {
		return maxDepth
	}
	return min(n, maxDepth)
}

// Attach lets the program take the samples of a perf event.
func (s *Stackmap) Attach(event int) error { return attach(event, s.objects.SampleStackmap) }

// Follow has a process sampled, and all that it will start, from now on or from when it
// executes a program. It needs StackmapOptions.Follow.
func (s *Stackmap) Follow(pid uint32, fromExec bool) error { return s.follower.add(pid, fromExec) }

// stackmapSide is the maps of one side.
type stackmapSide struct{ users, kernels, counts *ebpf.Map }

func (s *Stackmap) side(i int) stackmapSide {
	o := &s.objects
	return [2]stackmapSide{{o.UsersA, o.KernelsA, o.CountsA}, {o.UsersB, o.KernelsB, o.CountsB}}[i]
}

// Take calls each for everything that was counted since the last call. Stacks may be
// shared between samples, and are not to be changed.
func (s *Stackmap) Take(each func(StackmapSample)) error {
	// This waits for the programs that still write into the side that is emptied
	// (maybe_wait_bpf_programs, kernel/bpf/syscall.c).
	if err := s.objects.Side.Put(uint32(0), s.flags[1-s.writing]); err != nil {
		return fmt.Errorf("taking the counts of BPF: %w", err)
	}
	full := s.side(s.writing)
	s.writing = 1 - s.writing
	users, err := drainStacks(full.users, s.depth, func(f StackmapFrame) bool { return f.Status == StatusEmpty })
	if err != nil {
		return err
	}
	kernels, err := drainStacks(full.kernels, s.depth, func(ip uint64) bool { return ip == 0 })
	if err != nil {
		return err
	}
	return drainCounts(full.counts, s.keys, s.values, func(k *samplerCountKey, n uint64) {
		user, ok := stackOf(users, k.Stack.A)
		kernel, okToo := stackOf(kernels, k.Stack.B)
		if !ok || !okToo {
			s.missing += n
			return
		}
		each(StackmapSample{kernel, user, taskOf(k, &s.names), n})
	})
}

// drainStacks takes all stacks out of a map that nobody writes into, some of which
// nobody may have counted. Behind the frames of a stack are empty ones.
func drainStacks[T any](m *ebpf.Map, depth int, empty func(T) bool) (map[uint32][]T, error) {
	stacks := map[uint32][]T{}
	frames := make([]T, depth)
	var id, next uint32
	err := m.NextKey(nil, &id)
	for ; err == nil; id = next {
		if err := m.Lookup(id, frames); err != nil {
			return nil, fmt.Errorf("reading a stack of BPF: %w", err)
		}
		used := depth
		for used > 0 && empty(frames[used-1]) {
			used--
		}
		stacks[id] = slices.Clone(frames[:used])
		err = m.NextKey(id, &next) // before id is gone
		if err := m.Delete(id); err != nil {
			return nil, fmt.Errorf("deleting a stack of BPF: %w", err)
		}
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("listing the stacks of BPF: %w", err)
	}
	return stacks, nil
}

// stackOf returns the stack with a number that the kernel gave, which is an error
// number where there was none.
func stackOf[T any](stacks map[uint32][]T, id uint64) ([]T, bool) {
	if int64(id) < 0 {
		return nil, true
	}
	stack, ok := stacks[uint32(id)]
	return stack, ok
}

// Stats returns what was counted since the programs were loaded.
func (s *Stackmap) Stats() (StackmapStats, error) {
	var n stackmapStackmapCounters
	if err := s.objects.N.Get(&n); err != nil {
		return StackmapStats{}, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	unfollowed, err := s.follower.missed()
	return StackmapStats{n.Samples, n.Collided, n.NoRoom, n.LostCounts + s.missing, unfollowed}, err
}

// Cost returns what the program took while costs were counted.
func (s *Stackmap) Cost() (Cost, error) { return costOf(s.objects.SampleStackmap) }

// Close unloads the programs.
func (s *Stackmap) Close() error {
	errs := []error{s.follower.close()}
	for _, m := range s.flags {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, s.objects.Close())...)
}
