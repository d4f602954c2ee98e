package execwatch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/backend"
	"hallmark/internal/fusetest"
	"hallmark/internal/perfring"
	"hallmark/internal/testenv"
)

// startBefore starts a program that runs before a watch begins, and waits for it.
func startBefore(t *testing.T, args ...string) (*exec.Cmd, io.Writer) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	wait := sync.OnceFunc(func() { _ = c.Wait() })
	t.Cleanup(func() {
		_ = c.Process.Kill()
		wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	go wait() // who has ended is gone only then
	return c, in
}

// watchAll watches everything until enough returns true, and calls begun at the first event.
func watchAll(t *testing.T, o Options, begun func(), enough func(*Event) bool) {
	t.Helper()
	testenv.Root(t)
	w, err := Start(o)
	if err != nil {
		testenv.Need(t, false, "a kernel that tells: "+err.Error())
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan struct{})
	go func() { // events come
		for {
			select {
			case <-seen:
				return
			case <-ctx.Done():
				return
			default:
				_ = exec.Command("true").Run()
			}
		}
	}()
	first := true
	err = w.Run(ctx, func(ev *Event) error {
		if first {
			first = false
			close(seen)
			begun()
		}
		if enough(ev) {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if first {
		close(seen)
	}
}

// TestEndOfWhatRanBefore ends processes that ran when the watch began, one of a file that was
// deleted since. Which build ended is known.
func TestEndOfWhatRanBefore(t *testing.T) {
	sh, err := filepath.EvalSymlinks(testenv.Tool(t, "sh"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sh)
	copied := filepath.Join(t.TempDir(), "copied")
	if err == nil {
		err = os.WriteFile(copied, b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	const waits = "echo; read line; :"
	eachWatch(t, func(t *testing.T, o Options) {
		o.Exits = true
		known, _ := startBefore(t, sh, "-c", waits)
		gone := copied + t.Name()[len("TestEndOfWhatRanBefore/"):]
		if err := os.Link(copied, gone); err != nil {
			t.Fatal(err)
		}
		deleted, _ := startBefore(t, gone, "-c", waits)
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		ends := map[int]*Event{}
		watchAll(t, o, func() {
			_ = known.Process.Signal(syscall.SIGSEGV)
			_ = deleted.Process.Signal(syscall.SIGSEGV)
		}, func(ev *Event) bool {
			if ev.Kind == Exited && (ev.PID == known.Process.Pid || ev.PID == deleted.Process.Pid) {
				ends[ev.PID] = ev
			}
			return len(ends) == 2
		})
		var late []string
		for pid, want := range map[int]string{known.Process.Pid: sh, deleted.Process.Pid: gone} {
			ev := ends[pid]
			if ev == nil {
				t.Errorf("%s: no end", want)
				continue
			}
			if ev.Program == nil { // an end waits for what runs to be read, but not for ever
				late = append(late, want)
				continue
			}
			if p := ev.Program; p.Path != want || p.ID != idOf(t, sh) || p.Deleted != (want == gone) {
				t.Errorf("%s: program %+v", want, p)
			}
			if ev.Name == "" {
				t.Errorf("%s: no name", want)
			}
		}
		if len(late) > 0 {
			testenv.Lack(t, "%v ended long before their files were read", late)
		}
	})
}

// TestEndOfForked ends a child that has executed nothing, of a process that ran before and of
// one whose execution was reported: it runs the program of its parent. BPF reports no forks.
func TestEndOfForked(t *testing.T) {
	sh, err := filepath.EvalSymlinks(testenv.Tool(t, "sh"))
	if err != nil {
		t.Fatal(err)
	}
	const forks = "echo; read line; (exit 7); :"
	before, in := startBefore(t, sh, "-c", forks)
	var parents []int
	found := map[int]*Event{}
	watchAll(t, Options{Exits: true, Backend: backend.Perf}, func() {
		parents = append(parents, before.Process.Pid)
		_, _ = io.WriteString(in, "\n")
		later, in := startBefore(t, sh, "-c", forks)
		parents = append(parents, later.Process.Pid)
		_, _ = io.WriteString(in, "\n")
	}, func(ev *Event) bool {
		for _, parent := range parents {
			if ev.Kind == Exited && ev.PPID == parent {
				found[parent] = ev
			}
		}
		return len(found) == 2
	})
	for _, parent := range parents {
		ev := found[parent]
		if ev == nil || ev.Program == nil || ev.Program.ID != idOf(t, sh) || ev.Program.Path != sh {
			t.Errorf("the end of a child of %d: %+v", parent, ev)
		}
	}
}

// TestNumberOfAnotherProcess wants no program of a process that had the number before.
func TestNumberOfAnotherProcess(t *testing.T) {
	clock := perfring.NewWallClock()
	done := make(chan struct{})
	close(done)
	began := perfring.Monotonic()
	list := &programList{began: began, done: done, programs: map[uint32]*runningProgram{
		1: {started: 0, binary: &Binary{Path: "old"}},
		2: {started: uint64(int64(began) + clock.Monotonic - clock.Boot), binary: &Binary{Path: "new"}},
	}}
	if b, _ := (&perfProgram{before: list, pid: 1}).known(&clock); b == nil || b.Path != "old" {
		t.Errorf("of a process that ran before: %v", b)
	}
	if b, _ := (&perfProgram{before: list, pid: 2}).known(&clock); b != nil {
		t.Errorf("of a process that was started when the list was begun: %v", b)
	}
}

// TestSilentProgram notes a process whose program is on a file system that does not answer:
// nobody waits for it, neither at the start nor at the end.
func TestSilentProgram(t *testing.T) {
	s := fusetest.Mount(t, fusetest.Options{})
	b, err := os.ReadFile(testenv.Tool(t, "cat"))
	if err == nil {
		err = os.WriteFile(s.Behind("cat"), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(s.Path("cat"))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = io.WriteString(in, "runs\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "runs\n" {
		t.Fatalf("%q, error %v", line, err)
	}
	s.Silence()
	noted := make(chan int)
	go func() {
		g := glimpseAll()
		defer g.close()
		found := 0
		for _, p := range g.processes {
			if p.pid == c.Process.Pid {
				found++
			}
		}
		noted <- found
	}()
	select {
	case n := <-noted:
		if n != 1 {
			t.Errorf("the process is noted %d times", n)
		}
	case <-time.After(testenv.Patience): // for nothing that takes time
		t.Error("somebody waits for the server")
	}
	_ = c.Process.Kill()
	s.Close() // which ends all waiting
	_ = c.Wait()
}

// TestNamesLikeDeletedOnes has a program be executed, and end that ran before, whose name is like that of a deleted
// file.
func TestNamesLikeDeletedOnes(t *testing.T) {
	b, err := os.ReadFile(testenv.Tool(t, "true"))
	if err != nil {
		t.Fatal(err)
	}
	sh, err := os.ReadFile(testenv.Tool(t, "sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	short, long := filepath.Join(dir, "short (deleted)"), filepath.Join(dir, "long (deleted)")
	if err := errors.Join(os.WriteFile(short, b, 0o700), os.WriteFile(long, sh, 0o700)); err != nil {
		t.Fatal(err)
	}
	eachWatch(t, func(t *testing.T, o Options) {
		seen := 0
		for _, ev := range watchCommand(t, o, "sh", "-c", "'"+short+"'; :") {
			p := ev.Program
			if ev.Kind != Executed || p == nil || !strings.Contains(p.Path, "short") {
				continue
			}
			seen++
			if p.ID.IsZero() {
				testenv.Lack(t, "it ended before its file was read: %+v", p)
			} else if p.Path != short || p.Deleted {
				t.Errorf("executed: %+v", p)
			}
		}
		if seen != 1 {
			t.Errorf("%d events of the program", seen)
		}
		o.Exits = true
		known, _ := startBefore(t, long, "-c", "echo; read line; :")
		var end *Event
		watchAll(t, o, func() { _ = known.Process.Signal(syscall.SIGSEGV) }, func(ev *Event) bool {
			if ev.Kind == Exited && ev.PID == known.Process.Pid {
				end = ev
			}
			return end != nil
		})
		switch {
		case end == nil || end.Program == nil:
			testenv.Lack(t, "it ended long before its file was read: %v", end)
		case end.Program.Path != long || end.Program.Deleted:
			t.Errorf("ended: %+v", end.Program)
		}
	})
}
