package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
	r, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
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

// TestPerfMapOfAnotherTime refuses a map that was there before the process, and
// one that is a link: /tmp is anybody's.
func TestPerfMapOfAnotherTime(t *testing.T) {
	p := &process{pid: uint32(os.Getpid()), since: monotonic() - uint64(time.Second)}
	name := filepath.Join(t.TempDir(), "perf-1.map")
	if err := os.WriteFile(name, []byte("1000 10 old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := openPerfMap(name, p); err != nil {
		t.Errorf("a map that is younger than the process: %v", err)
	} else {
		f.Close()
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if f, err := openPerfMap(name, p); err == nil {
		f.Close()
		t.Error("a map that is older than the process was taken")
	}
	link := filepath.Join(t.TempDir(), "perf-2.map")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if f, err := openPerfMap(link, &process{}); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
}

// TestStartTime compares with the time at which a process was really started.
func TestStartTime(t *testing.T) {
	before := time.Now()
	p := &process{pid: uint32(start(t, "sleep", "60"))}
	if got := p.startTime(); got.Before(before.Add(-50*time.Millisecond)) || got.After(time.Now().Add(50*time.Millisecond)) {
		t.Errorf("started at %v, /proc gives %v", before, got)
	}
}
