package bpf

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// newTestExecWatcher loads the programs, where that is possible.
func newTestExecWatcher(t *testing.T, o ExecOptions) *ExecWatcher {
	t.Helper()
	testenv.Root(t)
	w, err := NewExecWatcher(o)
	testenv.Need(t, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// told is what an ExecWatcher told.
type told struct {
	files map[uint32]File
	ids   map[uint32]buildid.ID
	execs []*Exec
	exits []*Exit
	ended []*Ended
}

func newTold() *told { return &told{files: map[uint32]File{}, ids: map[uint32]buildid.ID{}} }

func (s *told) File(f File)                           { s.files[f.Serial] = f }
func (s *told) Identity(serial uint32, id buildid.ID) { s.ids[serial] = id }
func (s *told) Exec(e *Exec)                          { s.execs = append(s.execs, e) }
func (s *told) Exit(e *Exit)                          { s.exits = append(s.exits, e) }
func (s *told) Ended(e *Ended)                        { s.ended = append(s.ended, e) }

// readUntil reads until something is there.
func (s *told) readUntil(t *testing.T, w *ExecWatcher, what string, seen func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := w.Read(s); err != nil {
			t.Fatal(err)
		}
		if seen() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func (s *told) of(pid int) *Exec {
	for _, e := range s.execs {
		if int(e.PID) == pid {
			return e
		}
	}
	return nil
}

// TestExecWatcher runs a program.
func TestExecWatcher(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	got := newTold()
	cmd := exec.Command("/proc/self/exe", "a", "", "b c")
	cmd.Env = append(os.Environ(), role+"=exit")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	got.readUntil(t, w, "the execution", func() bool { return got.of(pid) != nil })
	e := got.of(pid)
	t.Logf("%+v", e)
	t.Logf("%+v", got.files)
	t.Logf("%+v", got.ids)
	got.readUntil(t, w, "the end", func() bool {
		for _, e := range got.ended {
			if int(e.PID) == pid {
				t.Logf("%+v", e)
				return true
			}
		}
		return false
	})
	for _, e := range got.exits {
		if int(e.PID) == pid {
			t.Logf("%+v", e)
		}
	}
}

// BenchmarkExec tells what the programs cost, by the kernel's own count.
func BenchmarkExec(b *testing.B) {
	testenv.Root(b)
	w, err := NewExecWatcher(ExecOptions{Exits: true})
	testenv.Need(b, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	defer w.Close()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	testenv.Need(b, err == nil, fmt.Sprint("statistics of BPF programs: ", err))
	defer stats.Close()
	if err := w.Wake(false); err != nil {
		b.Fatal(err)
	}
	program := testenv.Tool(b, "true")
	for b.Loop() {
		if err := exec.Command(program).Run(); err != nil {
			b.Fatal(err)
		}
		if err := w.Read(newTold()); err != nil {
			b.Fatal(err)
		}
	}
	for name, p := range map[string]*ebpf.Program{"exec": w.objects.SeeExec, "exit": w.exits.SeeExit, "free": w.exits.SeeFree} {
		s, err := p.Stats()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), name+"-ns")
	}
}
