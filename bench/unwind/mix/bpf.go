package main

import (
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// bpfTime is how long the BPF programs that were loaded meanwhile have run, by the
// kernel's own account.
type bpfTime struct {
	total time.Duration
	runs  uint64 // of programs of perf events: one a sample
}

// watchBPF begins to watch. The function that it returns ends that.
func watchBPF() func() bpfTime {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return func() bpfTime { return bpfTime{} }
	}
	old := map[ebpf.ProgramID]bool{}
	eachProgram(func(id ebpf.ProgramID) { old[id] = true })
	times := map[ebpf.ProgramID]bpfTime{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			eachProgram(func(id ebpf.ProgramID) {
				if !old[id] {
					times[id] = programTime(id)
				}
			})
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() (sum bpfTime) {
		close(stop)
		<-done
		stats.Close()
		for _, t := range times {
			sum.total += t.total
			sum.runs += t.runs
		}
		return sum
	}
}

func eachProgram(f func(ebpf.ProgramID)) {
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		f(id)
	}
}

func programTime(id ebpf.ProgramID) (t bpfTime) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return t
	}
	defer p.Close()
	s, err := p.Stats()
	if err != nil {
		return t
	}
	t.total = s.Runtime
	if p.Type() == ebpf.PerfEvent {
		t.runs = s.RunCount
	}
	return t
}
