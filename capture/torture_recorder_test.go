package capture

import (
	"os"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/profile"
)

// tortureFrequency is in samples a second and CPU. Copies of stacks at that rate would not fit the ring.
const tortureFrequency = 1999

// recorder is a way of recording this process and all that it starts, and processes that run
// already. Some can only record the whole machine.
type recorder struct {
	name   string
	need   func(t testing.TB)
	record func(t testing.TB, running []int, during func()) []sampled
}

// recorders are our own ways.
var recorders = []recorder{
	{"bpf", needBPF, func(t testing.TB, running []int, during func()) []sampled {
		return recordOurs(t, Options{Backend: BPF, PIDs: append(running, os.Getpid())}, during)
	}},
	{"bpf without task work", needBPF, func(t testing.TB, running []int, during func()) []sampled {
		return recordOurs(t, Options{Backend: BPF, PIDs: append(running, os.Getpid()), noTaskWork: true}, during)
	}},
	// Events that are inherited never sample who lives for less than a period.
	{"perf", needPerf, func(t testing.TB, _ []int, during func()) []sampled {
		return recordOurs(t, Options{Backend: Perf, SystemWide: true, CallGraph: CallGraph{By: ByFP}}, during)
	}},
}

// ofProfile returns the innermost frame of user code of each sample.
func ofProfile(p *pprof.Profile) []sampled {
	var all []sampled
	proofs := profile.Proofs(p)
	for _, s := range p.Sample {
		for call := range profile.Calls(s) {
			if call.Kernel() {
				continue
			}
			l := call.Location
			name, pid := profile.Process(s)
			all = append(all, sampled{
				who:    who{int(pid), name},
				file:   l.Mapping.File,
				id:     l.Mapping.BuildID,
				offset: uint64(profile.FileOffset(l)),
				why:    profile.ReasonOf(l.Mapping).Code(),
				proof:  proofs[l.Mapping],
				n:      s.Value[0],
			})
			break
		}
	}
	return all
}
