package capture

import (
	"errors"
	"fmt"
	"runtime"

	"hallmark/internal/backend"
	"hallmark/internal/bpf"
	"hallmark/internal/capability"
	"hallmark/internal/perfregs"
	"hallmark/internal/procfs"
	"hallmark/unwind"
)

// newSampler makes the sampler of the backend that is demanded, and of the best
// that works where none is.
func (s *Session) newSampler() error {
	switch s.opts.Backend {
	case Perf:
		return s.usePerf()
	case BPF:
		return orPerf(s.useBPF())
	case Stackmap:
		return orPerf(s.useStackmap())
	}
	err := s.useBPF()
	if err == nil || backend.IsShortage(err) { // perf would run out of files as well, later and in silence
		return err
	}
	if perfErr := s.usePerf(); perfErr != nil {
		return perfErr
	}
	if capability.LackingForBPF() == "" { // others know that they are ordinary users
		s.tally.stats.Reduced = append(s.tally.stats.Reduced, "BPF programs: "+backend.WhyNot(err))
	}
	return nil
}

// orPerf adds the way out that there always is.
func orPerf(err error) error {
	var e *backend.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%w, or use 'record --backend perf'", err)
	}
	return err
}

func (s *Session) usePerf() error {
	if s.opts.CallGraph.By == AutoCallGraph && perfregs.Of(runtime.GOARCH) != nil {
		s.opts.CallGraph.By = ByDWARF // frame pointers find no callers of most code in C
	}
	sampler, err := newPerfSampler(s.newTally(Perf, procfs.CgroupRoots), s.opts)
	if n := s.opts.TableEntries; n != 0 && n != DefaultTableEntries {
		s.tally.stats.Reduced = append(s.tally.stats.Reduced, "a table of files, which only the backend bpf has")
	}
	if err == nil {
		s.sampler = sampler
	}
	return err
}

func (s *Session) useBPF() error {
	if err := procfs.CheckPIDNamespace(); err != nil {
		return backend.Unusable(BPF, err)
	}
	programs, reduced, err := s.newPrograms()
	if err != nil {
		return backend.Unusable(BPF, err)
	}
	sampler, err := newBPFSampler(s.newTally(BPF, procfs.UnifiedRoots), s.opts, programs)
	if err != nil {
		s.stopTables()
		s.tally.objects.Close()
		return err
	}
	s.tally.stats.Reduced = reduced
	s.sampler = sampler
	return nil
}

// newPrograms loads the programs, without the part that unwinds where that does not load
// and nobody demands it.
func (s *Session) newPrograms() (programs *bpf.Sampler, reduced []string, err error) {
	o := bpf.Options{
		NoTaskWork:   s.opts.noTaskWork,
		Times:        s.opts.Timeline,
		Follow:       !s.opts.SystemWide,
		Entries:      s.opts.TableEntries,
		Running:      s.opts.Command == nil && (s.opts.noTaskWork || !bpf.HasTaskWork()),
		Unwind:       s.opts.CallGraph.By != ByFP && unwind.MachineOf(runtime.GOARCH) != 0,
		UnwindMemory: s.opts.UnwindMemory,
		CopyAll:      s.opts.copyAll,
	}
	if programs, err = bpf.NewSampler(o); err == nil || !o.Unwind || s.opts.CallGraph.By == ByDWARF {
		return programs, nil, err
	}
	o.Unwind = false
	programs, withoutErr := bpf.NewSampler(o)
	if withoutErr != nil {
		return nil, nil, err
	}
	return programs, []string{fmt.Sprintf("callers in code without frame pointers (%v)", err)}, nil
}

func (s *Session) useStackmap() error {
	if s.opts.CallGraph.By == ByDWARF {
		return errors.New("the backend stackmap knows frame pointers only: use --call-graph fp, or the backend bpf or perf")
	}
	if err := procfs.CheckPIDNamespace(); err != nil {
		return backend.Unusable(Stackmap, err)
	}
	stacks := stackPlaces(s.opts.Frequency, runtime.NumCPU())
	programs, err := bpf.NewStackmap(bpf.StackmapOptions{Follow: !s.opts.SystemWide, Stacks: stacks, Times: s.opts.Timeline})
	if err != nil {
		return backend.Unusable(Stackmap, err)
	}
	sampler, err := newStackmapSampler(s.newTally(Stackmap, procfs.UnifiedRoots), s.opts, programs)
	if err != nil {
		s.tally.objects.Close()
		return err
	}
	s.sampler = sampler
	return nil
}
