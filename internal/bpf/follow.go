package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxFollowed is MAX_FOLLOWED of follow.h.
const maxFollowed = 16384

// follower keeps the map of the processes that are recorded: follow.bpf.c.
type follower struct {
	objects followCore
	copies  followCopies // where programs may be preempted
	links   []link.Link
}

// followCore is what every follower has.
type followCore struct {
	Followed   *ebpf.Map      `ebpf:"followed"`
	Unfollowed *ebpf.Variable `ebpf:"unfollowed"`
	FollowFork *ebpf.Program  `ebpf:"follow_fork"`
	FollowExec *ebpf.Program  `ebpf:"follow_exec"`
	FollowFree *ebpf.Program  `ebpf:"follow_free"`
}

// followCopies do what the first programs were left out of: see follow.bpf.c.
type followCopies struct {
	FollowFork2 *ebpf.Program `ebpf:"follow_fork_2"`
	FollowFork3 *ebpf.Program `ebpf:"follow_fork_3"`
	FollowExec2 *ebpf.Program `ebpf:"follow_exec_2"`
	FollowExec3 *ebpf.Program `ebpf:"follow_exec_3"`
}

// setFollow prepares programs that sample everything, or what is followed.
func setFollow(spec *ebpf.CollectionSpec, follow bool) error {
	spec.Maps["followed"].MaxEntries = 1
	if follow {
		spec.Maps["followed"].MaxEntries = maxFollowed
	}
	return spec.Variables["follow"].Set(follow)
}

// newFollower attaches the programs that keep the map of programs that sample.
func newFollower(followed *ebpf.Map) (*follower, error) {
	f := new(follower)
	if err := f.attach(followed); err != nil {
		return nil, errors.Join(fmt.Errorf("following processes: %w", err), f.close())
	}
	return f, nil
}

func (f *follower) attach(followed *ebpf.Map) error {
	spec, err := loadFollow()
	if err != nil {
		return err
	}
	opts := loadOptions(spec)
	if opts == nil {
		opts = new(ebpf.CollectionOptions)
	}
	opts.MapReplacements = map[string]*ebpf.Map{"followed": followed}
	if err := spec.LoadAndAssign(&f.objects, opts); err != nil {
		return err
	}
	if preempts() {
		if err := spec.LoadAndAssign(&f.copies, opts); err != nil {
			return err
		}
	}
	for name, programs := range map[string][]*ebpf.Program{
		"sched_process_fork": f.forks(),
		"sched_process_exec": f.execs(),
		"sched_process_free": {f.objects.FollowFree}, // follow_fork makes good what it was left out of
	} {
		for _, program := range programs {
			if program == nil {
				continue
			}
			l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			f.links = append(f.links, l)
		}
	}
	return nil
}

// forks and execs return the programs that do one thing; those that are not needed are nil.
func (f *follower) forks() []*ebpf.Program {
	return []*ebpf.Program{f.objects.FollowFork, f.copies.FollowFork2, f.copies.FollowFork3}
}

func (f *follower) execs() []*ebpf.Program {
	return []*ebpf.Program{f.objects.FollowExec, f.copies.FollowExec2, f.copies.FollowExec3}
}

// add follows a process, and those that it will start.
func (f *follower) add(pid uint32, fromExec bool) error {
	state := uint32(1) // FOLLOW_RUNS
	if fromExec {
		state = 0 // FOLLOW_WAITS
	}
	if err := f.objects.Followed.Put(pid, state); err != nil {
		return fmt.Errorf("following process %d: %w", pid, err)
	}
	return nil
}

// missed returns how many processes there was no room for, or may have been left out by the
// kernel.
func (f *follower) missed() (uint64, error) {
	if f == nil {
		return 0, nil
	}
	var n uint64
	if err := f.objects.Unfollowed.Get(&n); err != nil {
		return 0, fmt.Errorf("reading the counters of BPF: %w", err)
	}
	return n + missedRuns(f.forks()...) + missedRuns(f.execs()...), nil
}

func (f *follower) close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	for _, p := range append(append(f.forks(), f.execs()...), f.objects.FollowFree) {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, f.objects.Followed.Close())...)
}
