package capture

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// TestCopiedStacksOfShortLives records programs that live for a millisecond or less, most of it
// in the dynamic linker, whose first instructions have no call frame information.
func TestCopiedStacksOfShortLives(t *testing.T) {
	needPerf(t)
	testenv.Root(t) // for what is not ours
	testenv.Need(t, runtime.GOARCH == "amd64", "x86-64")
	shell := exec.Command("/bin/sh", "-c", "while :; do /bin/true; done")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	p, _, _ := recordSession(t, context.Background(), Options{
		PIDs: []int{shell.Process.Pid}, Duration: 3 * time.Second, Frequency: 4999, Backend: Perf, CallGraph: CallGraph{By: ByDWARF},
	})
	ends, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		if s.Label["process"] == nil || s.Label["process"][0] != "true" {
			continue
		}
		why, told := profile.StackEnd(s)
		if !told {
			t.Fatal("a stack does not say how it ended")
		}
		total += s.Value[0]
		ends[why.Code()] += s.Value[0]
		if why != reason.None && why != reason.NoUserStack {
			t.Logf("%v: %v", why, userNames(s))
		}
	}
	t.Logf("%d samples: %v", total, ends)
	whole := ends[reason.None.Code()] + ends[reason.NoUserStack.Code()]
	testenv.AtMost(t, fmt.Sprintf("stacks that are not complete (%v)", ends), total-whole, total, 0.2)
}
