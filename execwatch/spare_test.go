package execwatch

import (
	"fmt"
	"slices"
	"testing"

	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
)

// newReusingWatch returns a watch whose events a test makes, and whose reports it gets.
func newReusingWatch(t *testing.T, reuse bool) (*Watch, *bpfWatch) {
	t.Helper()
	w := &Watch{opts: Options{Exits: true, Reuse: reuse}, queue: newWatchQueue()}
	b := &bpfWatch{
		queue: w.queue, objects: objects.NewPassing(), cgroups: procfs.NewCgroups(nil), exits: true,
		lives: map[life]*Binary{}, ends: map[life]*reportedEnd{}, homes: map[uint64]home{},
	}
	if reuse {
		b.args = map[string][]string{}
	}
	t.Cleanup(b.objects.Close)
	return w, b
}

// livesOnce has a process execute a program and end.
func (b *bpfWatch) livesOnce(pid uint32, e *bpf.Exec, x *bpf.Exit, ended *bpf.Ended) {
	now := perfring.Monotonic()
	*e = bpf.Exec{
		PID: pid, Started: uint64(pid), Time: now, Name: "program", Path: "/program", File: "program", Args: e.Args,
		Program: bpf.Object{Kind: bpf.Generated}, Interpreter: bpf.Object{Kind: bpf.NotMapped},
	}
	*x = bpf.Exit{PID: pid, Started: uint64(pid), Time: now, Name: "program"}
	*ended = bpf.Ended{PID: pid, Started: uint64(pid)}
	b.Exec(e)
	b.Exit(x)
	b.Ended(ended)
}

// TestReusedEvents wants the same events whether their memory is used again or not: many that wait at a time, of
// processes that execute several programs, with many arguments.
func TestReusedEvents(t *testing.T) {
	var got [2][]string
	for i, reuse := range []bool{false, true} {
		w, b := newReusingWatch(t, reuse)
		var e bpf.Exec
		var x bpf.Exit
		var ended bpf.Ended
		for round := range 30 {
			for n := range uint32(200) {
				e.Args = fmt.Appendf(nil, "program\x00%d\x00%0*d\x00", n%7, n, round)
				if n%3 == 0 {
					b.Exec(&bpf.Exec{PID: n, Started: uint64(n), Time: perfring.Monotonic(), Path: "/before", Program: bpf.Object{Kind: bpf.NotMapped}})
				}
				b.livesOnce(n, &e, &x, &ended)
			}
			err := w.report(perfring.Monotonic()+1, func(ev *Event) error {
				line := fmt.Sprint(ev.Kind, ev.PID, ev.Name, ev.File, ev.Args, ev.Program.Path, ev.Program.Reason)
				if ev.Interpreter != nil {
					line += ev.Interpreter.Reason.Code()
				}
				got[i] = append(got[i], line)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.args); n > maxArgs {
			t.Errorf("the arguments of %d programs are remembered", n)
		}
	}
	if len(got[0]) == 0 || !slices.Equal(got[0], got[1]) {
		t.Errorf("%d events, and %d with memory that is used again", len(got[0]), len(got[1]))
	}
}

// TestReusedEventsAreNoGarbage is the budget of what executions and ends allocate, once some were reported.
func TestReusedEventsAreNoGarbage(t *testing.T) {
	w, b := newReusingWatch(t, true)
	e := bpf.Exec{Args: []byte("program\x00argument\x00")}
	var x bpf.Exit
	var ended bpf.Ended
	each := func(*Event) error { return nil }
	round := func() {
		for n := range uint32(100) {
			b.livesOnce(n, &e, &x, &ended)
		}
		if err := w.report(perfring.Monotonic()+1, each); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n > 0 {
		t.Errorf("100 processes allocate %v times", n)
	}
}
