package execwatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/backend"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/perfdata"
	"hallmark/reason"
)

// watchCommand returns the events that a backend has of a command.
func watchCommand(t *testing.T, o Options, args ...string) []*Event {
	t.Helper()
	c, err := launch.Start(args)
	if err != nil {
		t.Fatal(err)
	}
	o.Command = c
	if testenv.Emulated() {
		o.patience = testenv.Patience // one file is read in half a second
	}
	w, err := Start(o)
	if err != nil {
		c.Kill()
		c.Wait()
		testenv.Need(t, false, fmt.Sprint("a kernel that tells: ", err))
	}
	var told []*Event
	err = w.Run(t.Context(), func(ev *Event) error {
		told = append(told, ev)
		return nil
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if s := w.Stats(); s.Lost+s.Malformed+s.Unfollowed+s.Disagreed > 0 {
		t.Errorf("%+v", s)
	}
	return told
}

// eachWatch runs a test with each way of knowing.
func eachWatch(t *testing.T, f func(t *testing.T, o Options)) {
	for _, b := range []struct {
		name string
		opts Options
	}{
		{"bpf", Options{Backend: backend.BPF}},
		{"opened", Options{Backend: backend.BPF, NoTaskWork: true}},
		{"perf", Options{Backend: backend.Perf}},
	} {
		t.Run(b.name, func(t *testing.T) {
			if b.opts.Backend == backend.BPF {
				testenv.Root(t)
			}
			f(t, b.opts)
		})
	}
}

func idOf(t *testing.T, path string) buildid.ID {
	t.Helper()
	info, err := buildid.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// TestWatchCommand compares the events of a shell's children with the files.
func TestWatchCommand(t *testing.T) {
	shell, sleep := testenv.Tool(t, "sh"), testenv.Tool(t, "sleep")
	eachWatch(t, func(t *testing.T, o Options) {
		o.Exits, o.Libs = true, true
		before := time.Now()
		told := watchCommand(t, o, "sh", "-c", sleep+" 0.05; "+sleep+" 0.06; exit 3")
		after := time.Now()
		real, err := filepath.EvalSymlinks(sleep)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		var last time.Time
		late := 0
		for _, ev := range told {
			if ev.Time.Before(last) || ev.Time.Before(before) || ev.Time.After(after) {
				t.Errorf("%v: event of %v after one of %v", ev.Kind, ev.Time, last)
			}
			last = ev.Time
			switch {
			case o.isLate(ev):
				late++
				continue
			case ev.Kind == Loaded:
				if base := filepath.Base(real); ev.Library.ID.IsZero() || ev.Name != "sh" && ev.Name != base && ev.Name != "sleep" {
					t.Errorf("%+v of %q", ev.Library, ev.Name)
				}
				continue
			case ev.Program == nil || ev.Program.ID != idOf(t, ev.Program.Path):
				t.Errorf("%+v of %+v", ev.Program, ev)
				continue
			}
			kinds = append(kinds, ev.Kind.String()+" "+filepath.Base(ev.Program.Path))
			if ev.Kind == Executed && ev.Program.Path == real {
				if o.Backend == backend.Perf && (len(ev.Args) == 0 || ev.Credentials == nil) {
					continue // it ended before /proc was asked, or had reported all
				}
				if !slices.Equal(ev.Args, []string{sleep, "0.05"}) && !slices.Equal(ev.Args, []string{sleep, "0.06"}) {
					t.Errorf("arguments %q", ev.Args)
				}
				if ev.Credentials == nil || int(ev.Credentials.UID) != os.Getuid() || ev.PPID == 0 || ev.Interpreter == nil {
					t.Errorf("%+v", ev)
				}
			}
			if ev.Kind == Exited && o.Backend == backend.BPF && ev.Program.Path != real && ev.Exit.Status.ExitStatus() != 3 {
				t.Errorf("the shell ended with %v", ev.Exit.Status)
			}
		}
		if late > 0 {
			testenv.Lack(t, "%d files were opened too late", late)
		}
		sh, err := filepath.EvalSymlinks(shell)
		if err != nil {
			t.Fatal(err)
		}
		// Shells may become their last command or not.
		want := []string{"exec " + filepath.Base(sh), "exec sleep", "exit sleep", "exec sleep", "exit sleep", "exit " + filepath.Base(sh)}
		if !slices.Equal(kinds, want) {
			t.Errorf("told %q", kinds)
		}
	})
}

// isLate reports whether what an event names was gone before it was opened, in a slow machine.
// With perf, user space opens each file where the kernel's records have no build IDs, before 5.12.
func (o Options) isLate(ev *Event) bool {
	file := ev.Program
	if ev.Kind == Loaded {
		file = ev.Library
	}
	return o.Backend == backend.Perf && testenv.Emulated() && file != nil && file.ID.IsZero() && (file.Reason == reason.FileGone || file.Reason == reason.NotRead)
}

// TestWatchCost wants what a command costs to be its own: not the time that it waited for the
// programs to be loaded.
func TestWatchCost(t *testing.T) {
	testenv.Root(t)
	// An event may come without the CPU time of its process: see TestExecCPU of package bpf.
	for range 5 {
		if watchCost(t) {
			return
		}
	}
	testenv.Lack(t, "of five processes it was not told what they have run")
}

// watchCost reports whether an event had the CPU time of its process.
func watchCost(t *testing.T) bool {
	t.Helper()
	c, err := launch.Start([]string{testenv.Tool(t, "sleep"), "0.2"})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	w, err := Start(Options{Backend: backend.BPF, Exits: true, Command: c})
	if err != nil {
		c.Kill()
		c.Wait()
		testenv.Need(t, false, fmt.Sprint("a kernel that tells: ", err))
	}
	defer w.Close()
	var executed, ended *Event
	err = w.Run(t.Context(), func(ev *Event) error {
		if ev.Kind == Executed {
			executed = ev
		} else {
			ended = ev
		}
		return nil
	})
	c.Wait()
	if err != nil || executed == nil || ended == nil || executed.PID != ended.PID {
		t.Fatalf("%+v, %+v, %v", executed, ended, err)
	}
	if apart := ended.Time.Sub(executed.Time); ended.Exit.Lived != apart || apart < 200*time.Millisecond {
		t.Errorf("it lived %v, and the events are %v apart", ended.Exit.Lived, apart)
	}
	if ended.Exit.CPU == nil {
		return false
	}
	if usage := c.State(); *ended.Exit.CPU <= 0 || *ended.Exit.CPU >= usage.UserTime()+usage.SystemTime() {
		t.Errorf("it ran %v, and with the wait for its release %v", *ended.Exit.CPU, usage.UserTime()+usage.SystemTime())
	}
	return true
}

// TestWatchForks wants a process that executes nothing to be reported when it ends, by the name that it has
// from its parent. BPF reports no forks, so it has no program there; with perf it has its
// parent's.
func TestWatchForks(t *testing.T) {
	sh := testenv.Tool(t, "sh")
	eachWatch(t, func(t *testing.T, o Options) {
		o.Exits = true
		var parent int
		var found *Event
		for _, ev := range watchCommand(t, o, sh, "-c", "(exit 4); exit 3") {
			if ev.Kind == Executed {
				parent = ev.PID
			}
			if ev.Kind == Exited && ev.PID != parent {
				found = ev
			}
		}
		if found == nil {
			t.Fatal("the end of the shell's child was not told")
		}
		if found.Name != "sh" || found.PPID != parent || found.Exit.Lived <= 0 {
			t.Errorf("%+v, %+v", found, found.Exit)
		}
		if p := found.Program; o.Backend == backend.BPF && p != nil || o.Backend == backend.Perf && (p == nil || p.ID != idOf(t, sh)) {
			t.Errorf("program %+v", p)
		}
		if s := found.Exit.Status; o.Backend == backend.Perf && s != nil || o.Backend == backend.BPF && s.ExitStatus() != 4 {
			t.Errorf("it ended with %v", s)
		}
	})
}

// TestWatchScenes executes what is gone at once, and wants identities all the same.
func TestWatchScenes(t *testing.T) {
	testenv.Root(t)
	testenv.Need(t, tryWatch(t), "a kernel whose processes read identities (6.18)")
	program := testenv.Tool(t, "true")
	shell := testenv.Tool(t, "sh")
	unshare := testenv.Tool(t, "unshare")
	hidden := t.TempDir()
	if real, err := filepath.EvalSymlinks(hidden); err == nil {
		hidden = real
	}
	nested := filepath.Join(t.TempDir(), "nested")
	if err := os.WriteFile(nested, []byte("#!/usr/bin/env sh\n:\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	goProgram := buildGoNote(t)
	for _, test := range []struct {
		name string
		args []string
		path string // of the program, or its end
		file string // that it is
	}{
		{"mount namespace", []string{unshare, "-m", "sh", "-c", fmt.Sprintf("mount -t tmpfs tmpfs %[1]s && cp %[2]s %[1]s/hidden && %[1]s/hidden; :", hidden, program)}, hidden + "/hidden", program},
		{"bind mount", []string{unshare, "-m", "sh", "-c", fmt.Sprintf("touch %[1]s/bound; mount --bind %[2]s %[1]s/bound && %[1]s/bound; :", hidden, program)}, hidden + "/bound", program},
		{"PID namespace", []string{unshare, "-pf", program}, "/true", program},
		{"env", []string{nested}, shell, shell},
		{"Go", []string{goProgram}, goProgram, goProgram},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := watchCommand(t, Options{Backend: backend.BPF}, test.args...)
			real, err := filepath.EvalSymlinks(test.path)
			if err != nil {
				real = test.path
			}
			want := idOf(t, test.file)
			if !slices.ContainsFunc(told, func(ev *Event) bool {
				return ev.Kind == Executed && strings.HasSuffix(ev.Program.Path, real) && ev.Program.ID == want
			}) {
				for _, ev := range told {
					t.Errorf("told %+v %+v, want %v %v", ev, ev.Program, real, want)
				}
			}
		})
	}
}

// TestExecJustWritten wants a program to have its identity that is executed the moment it was
// written: in a container too, where others can write to the layer of the overlay and so the kernel
// does not keep them from writing to the program. When its times can be believed, it is not said to
// be another file than before; nor is a copy.
func TestExecJustWritten(t *testing.T) {
	testenv.Root(t)
	if !tryWatch(t) {
		t.Skip("the kernel reads no identities in the processes themselves")
	}
	program := proctest.BuildC(t, proctest.UniqueID()) // nobody else may claim it
	low, up, work, overlay := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	if err := unix.Mount("none", overlay, "overlay", 0, "lowerdir="+low+",upperdir="+up+",workdir="+work); err != nil {
		t.Skipf("no overlay can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(overlay, unix.MNT_DETACH) })
	const programs, script = 20, `for i in $(seq $2); do cp "$1" p$i; ./p$i 0; sleep .05; ./p$i 20; done`
	for name, dir := range map[string]string{"plain": t.TempDir(), "overlay": overlay} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(dir)
			got := map[string][]*Binary{}
			for _, ev := range watchCommand(t, Options{Backend: backend.BPF}, "sh", "-c", script, "sh", program, fmt.Sprint(programs)) {
				if name := filepath.Base(ev.Program.Path); ev.Kind == Executed && filepath.Dir(ev.Program.Path) == dir {
					got[name] = append(got[name], ev.Program)
				}
			}
			if len(got) != programs {
				t.Fatalf("%d programs, want %d", len(got), programs)
			}
			want, justWritten, gone := proctest.FileID(t, program), 0, 0
			for name, runs := range got {
				if len(runs) != 2 || runs[0].ID != want || runs[1].ID != want {
					t.Fatalf("%s is %+v, want %v twice", name, runs, want)
				}
				if runs[0].Content.IsZero() {
					justWritten++
				}
				switch later := runs[1]; {
				case later.Content.IsZero() && later.seen == (reach.Sighting{}): // nobody reached it
					gone++
				case later.Content.IsZero():
					t.Errorf("later, %s is %+v, want its content", name, later)
				case later.Contested:
					t.Errorf("later, %s is %+v, want the content that others have", name, later)
				}
			}
			t.Logf("%d of %d were just written", justWritten, programs)
			if gone > programs/2 && !t.Failed() {
				testenv.Lack(t, "%d of %d processes ended before anybody opened their file", gone, programs)
			}
			if name == "overlay" && justWritten == 0 {
				testenv.Lack(t, "no program was executed as soon as it was written")
			}
		})
	}
}

// tryWatch reports whether identities are read in the processes.
func tryWatch(t *testing.T) bool {
	t.Helper()
	w, err := Start(Options{Backend: backend.BPF})
	if err != nil {
		t.Log(err)
		return false
	}
	defer w.Close()
	return w.teller.(*bpfWatch).programs.TaskWork()
}

// buildGoNote builds a program with Go's own build ID and no GNU one.
func buildGoNote(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(testenv.Tool(t, "go"), "build", "-ldflags=-B=none", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestWatchLoses executes more programs than there is room for, while nobody reads. The watch
// reports each execution or counts it as lost, also if nothing follows, and if the watch ends.
func TestWatchLoses(t *testing.T) {
	testenv.Root(t)
	const count = 300 // of 1 kB each, for 64 KiB
	loop := fmt.Sprintf("a=$(printf %%01024d 0); i=0; while [ $i -lt %d ]; do %s $a; i=$((i+1)); done; ", count, testenv.Tool(t, "true"))
	dir := t.TempDir()
	for _, test := range []struct {
		name, then string
		waits      bool
	}{
		{"and waits", "echo > " + dir + "/ran; read end < " + dir + "/end; :", true},
		{"and ends", "echo > " + dir + "/ran", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var fifos []*os.File
			for _, name := range []string{"ran", "end"} {
				path := filepath.Join(dir, name)
				if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
					t.Fatal(err)
				}
				f, err := os.OpenFile(path, os.O_RDWR, 0) // does not wait for the other end
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				fifos = append(fifos, f)
			}
			c, err := launch.Start([]string{"sh", "-c", loop + test.then})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Kill()
			w, err := Start(Options{Backend: backend.BPF, Command: c, ring: 1 << 16})
			if err != nil {
				testenv.Need(t, false, fmt.Sprint("a kernel that tells: ", err))
			}
			reported := make(chan uint64, 2*count)
			over := make(chan error, 1)
			go func() {
				first := true
				over <- w.Run(t.Context(), func(ev *Event) error {
					if first {
						first = false
						if _, err := fifos[0].Read(make([]byte, 1)); err != nil {
							return err
						}
					}
					switch ev.Kind {
					case Executed:
						reported <- 1
					case Missed:
						reported <- ev.Lost
					}
					return nil
				})
			}()
			if test.waits {
				var sum uint64
				testenv.Await(t, "each execution told or counted as lost", func() bool {
					select {
					case n := <-reported:
						sum += n
					default:
					}
					return sum > count
				})
			}
			if _, err := fifos[1].WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			err = <-over
			if s := w.Stats(); s.Lost == 0 || s.Execs+s.Lost != count+1 {
				t.Errorf("%d told, %d lost, of %d", s.Execs, s.Lost, count+1)
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Error(err)
			}
			c.Wait()
		})
	}
}

// TestWatchMany executes a program many times, and wants each reported with its identity.
func TestWatchMany(t *testing.T) {
	eachWatch(t, func(t *testing.T, o Options) {
		count := 300
		if testenv.Emulated() {
			count = 60
		}
		o.Exits = true
		link := testenv.Tool(t, "true")
		program, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		told := watchCommand(t, o, "sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done", count, link))
		want, execs, exits, late := idOf(t, program), 0, 0, 0
		for _, ev := range told {
			// A shell of busybox is this program, too.
			if ev.Program == nil || ev.Program.Path != program || ev.PID == told[0].PID {
				continue
			}
			// User space may not open the file in time.
			switch isLate := ev.Program.ID.IsZero() && (ev.Program.Reason == reason.ProcessGone || ev.Program.Reason == reason.FileUnresponsive); {
			case isLate && !(o.Backend == backend.Perf && testenv.Emulated()):
				late++
			case ev.Program.ID != want && !isLate:
				t.Errorf("%v: %+v", ev.Kind, ev.Program)
			}
			switch ev.Kind {
			case Executed:
				execs++
			case Exited:
				exits++
			}
		}
		if execs != count || exits != count {
			t.Errorf("%d executions and %d ends, want %d", execs, exits, count)
		}
		if late > 0 {
			testenv.Lack(t, "the file of %d events was looked at too late", late)
		}
	})
}

// TestWatchEnds wants the end of a context and an error to end the reports.
func TestWatchEnds(t *testing.T) {
	testenv.Root(t)
	eachWatch(t, func(t *testing.T, o Options) {
		w, err := Start(o)
		testenv.Need(t, err == nil, fmt.Sprint("a kernel that tells: ", err))
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Run(ctx, func(*Event) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// completeWhen is complete when this reports it.
type completeWhen func() bool

func (c completeWhen) complete() bool { return c() }

func (c completeWhen) finish() {}

// TestWatchQueue wants the order of time, and what is not complete to hold up the rest for
// no longer than it may.
func TestWatchQueue(t *testing.T) {
	q := newWatchQueue()
	now := perfring.Monotonic()
	ready := false
	add := func(pid int, at uint64, complete func() bool, patience time.Duration) {
		e := &heldEvent{Event: &Event{PID: pid}, time: at}
		if complete != nil {
			e.missing = completeWhen(complete)
		}
		q.add(e, patience)
	}
	next := func() int {
		if ev := q.next(now); ev != nil {
			return ev.PID
		}
		return 0
	}
	add(3, now-10, nil, 0)
	add(1, now-30, nil, 0)
	add(2, now-20, func() bool { return ready }, time.Hour)
	add(5, now+uint64(time.Hour), nil, 0)
	if got := []int{next(), next(), next()}; !slices.Equal(got, []int{1, 0, 0}) {
		t.Errorf("told %v before the second is complete", got)
	}
	ready = true
	if got := []int{next(), next(), next()}; !slices.Equal(got, []int{2, 3, 0}) {
		t.Errorf("told %v", got)
	}
	add(4, now-5, func() bool { return false }, 0)
	if got := next(); got != 4 {
		t.Errorf("told %v when the patience is at its end", got)
	}
	ready = false
	add(7, 1, func() bool { return ready }, time.Duration(now/2)) // since the machine was started
	if got := next(); got != 0 {
		t.Errorf("told %v, which has come late, without a look at its file", got)
	}
	ready = true
	if got := next(); got != 7 {
		t.Errorf("told %v when it is complete", got)
	}
	for range maxQueued + 1 {
		add(6, now-1, func() bool { return false }, time.Hour)
	}
	if got := []int{next(), next()}; !slices.Equal(got, []int{6, 6}) || len(q.events) != maxQueued {
		t.Errorf("told %v of too many, and %d are left", got, len(q.events))
	}
}

// TestFactsAreDoubted wants facts in /proc of a later program not to be reported of an
// earlier one.
func TestFactsAreDoubted(t *testing.T) {
	for _, test := range []struct {
		read uint64
		want bool
	}{{150, true}, {200, false}, {250, false}} {
		for _, early := range []bool{false, true} { // read before the other program is known, or after
			facts := new(pendingFacts)
			p := &perfWatch{tasks: map[uint32]*watchedTask{7: {exec: &perfExec{facts: facts}}}}
			if early {
				facts.facts.Store(&factsOf{read: test.read})
			}
			p.doubt(7, 200)
			facts.facts.Store(&factsOf{read: test.read})
			if have, _ := facts.known(300); have != nil != test.want {
				t.Errorf("read at %d, another program at 200: kept %v", test.read, have)
			}
		}
	}
}

// TestFactsOfEndedProcess has the number of a process that has ended used again, by a process and
// by a thread: what was read since is not reported of the first one, and what was read before is.
func TestFactsOfEndedProcess(t *testing.T) {
	for name, again := range map[string]*perfdata.Task{
		"process": {ChildPID: 7, ChildTID: 7, ParentPID: 1, ParentTID: 1},
		"thread":  {ChildPID: 9, ChildTID: 7, ParentPID: 9, ParentTID: 9},
	} {
		for read, want := range map[uint64]bool{150: true, 250: true, 300: false, 350: false} {
			p := &perfWatch{queue: newWatchQueue(), tasks: map[uint32]*watchedTask{}}
			facts := new(pendingFacts)
			p.tasks[7] = &watchedTask{threads: 1, exec: &perfExec{facts: facts}}
			p.exit(&perfdata.Task{Exited: true, ChildPID: 7, ChildTID: 7, ID: perfdata.ID{Time: 200}})
			again.Time = 300
			p.fork(again)
			facts.facts.Store(&factsOf{read: read})
			if have, _ := facts.known(400); (have != nil) != want {
				t.Errorf("%s: read at %d, ended at 200, used again at 300: told %v", name, read, have != nil)
			}
		}
	}
}

// TestFactsAreNotWaitedFor has as many processes that let nobody look at them as are looked at
// at once: the next ones are reported without what /proc says, and wait once.
func TestFactsAreNotWaitedFor(t *testing.T) {
	r := newFactsReaders()
	for range maxFactsReaders {
		r.slots <- struct{}{}
	}
	if r.read(1) != nil || r.paused.IsZero() {
		t.Error("there was room for one more look")
	}
	r.paused = time.Now().Add(time.Hour)
	if r.read(1) != nil {
		t.Error("there was room for one more look")
	}
	<-r.slots
	p := r.read(uint32(os.Getpid()))
	r.all.Wait()
	if p == nil {
		t.Fatal("there was no room when a look had ended")
	}
	if facts, ok := p.known(math.MaxUint64); facts == nil || !ok || len(facts.args) == 0 {
		t.Errorf("this process has the facts %+v", facts)
	}
}

// TestLostRecords wants what comes after lost records not to be taken for what was lost.
func TestLostRecords(t *testing.T) {
	for _, lost := range []bool{false, true} {
		p := &perfWatch{queue: newWatchQueue(), objects: objects.NewPassing(), tasks: map[uint32]*watchedTask{}, opts: Options{Exits: true}}
		defer p.objects.Close()
		id := perfdata.ID{PID: 7, TID: 7}
		records := []perfdata.Record{
			&perfdata.Task{ID: id, ChildPID: 7, ChildTID: 7, ParentPID: 1, ParentTID: 1},
			&perfdata.Comm{ID: id, OwnerPID: 7, OwnerTID: 7, Name: "program", Exec: true},
			&perfdata.Lost{ID: id, Count: 1}, // the program's mapping may be among them
			&perfdata.Mmap2{ID: id, Owner: 7, Name: "/lib/ld.so", Start: 0x1000, Size: 0x1000, Prot: perfdata.ProtExec},
			&perfdata.Mmap2{ID: id, Owner: 7, Name: vdsoName, Start: 0x3000, Size: 0x1000, Prot: perfdata.ProtExec},
			&perfdata.Task{ID: id, Exited: true, ChildPID: 7, ChildTID: 7, ParentPID: 7, ParentTID: 7},
		}
		for i, r := range records {
			w := watchRecord{Record: r, time: uint64(i + 1)}
			switch r := r.(type) {
			case *perfdata.Lost:
				if !lost {
					continue
				}
			case *perfdata.Mmap2:
				if v := reach.VMAOfRecord(r); !reach.IsMemory(v) {
					w.object = p.objects.File(reach.KeyOfRecord(r), v, 0)
					p.objects.Learn(w.object, idOf(t, "/proc/self/exe"))
				}
			}
			p.handle(&w)
		}
		executed, ended := p.queue.next(math.MaxUint64), p.queue.next(math.MaxUint64)
		if executed == nil || ended == nil || ended.Kind != Exited {
			t.Fatalf("%+v, %+v", executed, ended)
		}
		if known := executed.Program.Path == "/lib/ld.so" && !executed.Program.ID.IsZero(); known == lost {
			t.Errorf("lost %v: executed %+v", lost, executed.Program)
		}
		if lost && (executed.Program.Path != "" || !executed.Program.ID.IsZero() || ended.Program != nil) {
			t.Errorf("executed %+v, ended %+v", executed.Program, ended.Program)
		}
	}
}

func TestReadFacts(t *testing.T) {
	f := readFacts(uint32(os.Getpid()))
	if !slices.Equal(splitArgs(f.args), os.Args) && !f.cut || f.ppid != os.Getppid() || f.owner == nil || int(f.owner.UID) != os.Getuid() || int(f.owner.EGID) != os.Getegid() {
		t.Errorf("%+v", f)
	}
	if gone := readFacts(1 << 30); gone.args != nil || gone.owner != nil {
		t.Errorf("%+v of nobody", gone)
	}
}
