package doctor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"hallmark/internal/backend"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// needPrograms ends the test where the programs of a backend cannot be loaded.
func needPrograms(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	_, err := backend.TryBPF()
	testenv.Need(t, err == nil, fmt.Sprint("BPF programs (see hallmark doctor): ", err))
	err = backend.TryStackmap()
	testenv.Need(t, err == nil, fmt.Sprint("the kernel's stackmap (see hallmark doctor): ", err))
}

// TestCompare measures while a C program runs that has a build ID: all ways must
// have sampled, the kernel's own way must know frames in its code, and ours all but
// a few of those in files.
func TestCompare(t *testing.T) {
	needPrograms(t)
	c, err := Compare(t.Context(), CompareOptions{Frequency: 499, Duration: 3 * time.Second, Load: []string{proctest.BuildC(t), "300"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Costs) != len(costed)+2 {
		t.Errorf("costs of %d ways", len(c.Costs))
	}
	for _, w := range c.Costs {
		if w.Samples == 0 {
			testenv.Lack(t, "no samples: %+v", w)
		}
		if w.Nanos <= 0 {
			t.Errorf("%+v", w)
		}
	}
	if c.Stacks == 0 {
		testenv.Lack(t, "no stacks were compared")
	}
	if code := c.Frames[0]; code.Valid == 0 {
		t.Errorf("%d stacks, %+v", c.Stacks, c.Frames)
	}
	if len(c.Backends) != 3 {
		t.Fatalf("%d backends", len(c.Backends))
	}
	for _, b := range c.Backends {
		t.Logf("%s: %d samples, %d lost, %d of %d frames in files", b.Backend, b.Samples, b.Lost, b.Coverage.FileIdentified, b.Coverage.FileFrames)
		if b.Samples == 0 {
			testenv.Lack(t, "no samples by %s", b.Backend)
		}
		if b.Coverage.FileIdentified == 0 {
			t.Errorf("%+v", b)
		}
	}
	ours := c.Backends[0].Coverage
	what := fmt.Sprintf("frames in files without identity (%+v)", ours.Gaps)
	testenv.AtMost(t, what, int64(ours.FileFrames-ours.FileIdentified), int64(ours.FileFrames), 0.01)
}

// TestCompareFailingLoad wants the error of a load that cannot run, or fails.
func TestCompareFailingLoad(t *testing.T) {
	needPrograms(t)
	for _, load := range [][]string{{"/nonexistent/command"}, {"false"}} {
		if _, err := Compare(t.Context(), CompareOptions{Duration: 100 * time.Millisecond, Load: load}); err == nil {
			t.Errorf("%v: no error", load)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, CompareOptions{Duration: time.Hour}); err == nil {
		t.Error("no error when interrupted")
	}
}
