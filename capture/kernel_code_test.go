package capture

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/testenv"
	"hallmark/profile"
)

// TestRecordPassingKernelCode records a program that loads code into the kernel,
// runs it and ends: when names are read, the code is gone.
func TestRecordPassingKernelCode(t *testing.T) { eachBackend(t, recordPassingKernelCode) }

func recordPassingKernelCode(t *testing.T, backend Backend) {
	testenv.Root(t)
	file := filepath.Join(t.TempDir(), "bpfloop")
	if msg, err := exec.Command(testenv.Tool(t, "gcc"), "-O1", "-o", file, "testdata/bpfloop.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	t.Run("loaded while recording", func(t *testing.T) {
		p, _, stats := recordCommand(t, Options{Backend: backend}, file, "300")
		checkInLoop(t, p, stats)
	})
	t.Run("loaded before", func(t *testing.T) {
		pid := start(t, file, "1500")
		p, _, stats := recordSession(t, t.Context(), Options{Backend: backend, PIDs: []int{pid}})
		checkInLoop(t, p, stats)
	})
}

// checkInLoop wants most samples in the program of bpfloop.c, by its name.
func checkInLoop(t *testing.T, p *pprof.Profile, stats Stats) {
	t.Helper()
	found := int64(0)
	for _, s := range p.Sample {
		for c := range profile.Calls(s) {
			if strings.HasSuffix(c.Name(), "_hallmark_loop") {
				found += s.Value[0]
				break
			}
		}
	}
	if found*10 < int64(stats.Samples)*7 || found == 0 {
		t.Errorf("%d of %d samples in the BPF program", found, stats.Samples)
	}
}
