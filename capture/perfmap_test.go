package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// TestRecordGeneratedCode wants the names that a program wrote for the code that
// it generated, also though it has ended when they are read.
func TestRecordGeneratedCode(t *testing.T) {
	needPerf(t)
	file := filepath.Join(t.TempDir(), "jit")
	if msg, err := exec.Command(testenv.Tool(t, "gcc"), "-O1", "-o", file, "testdata/jit.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	c, err := StartCommand([]string{file, "300"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", c.PID())) })
	s := startSession(t, Options{Command: c})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := s.Finish()
	found := int64(0)
	for _, sample := range r.Profile.Sample {
		leaf := sample.Location[0]
		if len(leaf.Line) == 1 && leaf.Line[0].Function.Name == "generated_loop" {
			found += sample.Value[0]
			if why := profile.ReasonOf(leaf.Mapping); why != reason.Anonymous {
				t.Errorf("generated code has the reason %v", why)
			}
		}
	}
	if found*10 < int64(s.Stats().Samples)*8 || found == 0 {
		t.Errorf("%d of %d samples in the generated loop", found, s.Stats().Samples)
	}
}
