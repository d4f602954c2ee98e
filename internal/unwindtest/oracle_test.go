package unwindtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// enough is how many of a program's frames must be the same as perf's. It leaves room for
// what nobody can unwind: the C++ runtime's unwinder while it overwrites its own frame.
const enough = 0.999

// judged are the programs of the test: perf knows the stacks of each (see Program.command
// for those of which it does not), and together they are quick.
var judged = []string{"calls-O2", "calls-clang-O2", "calls-nopie", "exceptions", "libc", "plt", "plt-now", "signals", "threads", "frames", "jumps", "syscalls", "rust", "python"}

func TestFramesAreThoseOfPerf(t *testing.T) {
	testenv.Tool(t, "perf")
	if out, err := exec.Command("perf", "version", "--build-options").CombinedOutput(); err == nil {
		testenv.Need(t, strings.Contains(string(out), "libunwind: [ on"), "a perf that unwinds by libunwind")
	}
	dir := t.TempDir()
	if err := Unpack(dir); err != nil {
		t.Fatal(err)
	}
	for _, p := range Corpus() {
		if slices.Contains(judged, p.Name) {
			t.Run(p.Name, func(t *testing.T) { judge(t, dir, &p) })
		}
	}
}

func judge(t *testing.T, dir string, p *Program) {
	if tool := p.Missing(); tool != "" {
		if tool == "rustc" { // CI has none
			t.Skip("NOT CHECKED: needs rustc in PATH")
		}
		testenv.Need(t, false, tool+" in PATH")
	}
	if err := p.Make(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	file, err := p.Record(t.Context(), dir, Recording{Milliseconds: 700, Hz: 499, StackSize: 32768})
	if err != nil {
		testenv.Need(t, false, "to record with perf: "+err.Error())
	}
	samples, err := Samples(file)
	if err != nil {
		t.Fatal(err)
	}
	told, err := Script(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	tables := &Tables{Warn: func(file string, err error) { t.Logf("%s: %v", file, err) }}
	cases := Cases(samples, tables, told)
	if len(cases) < 10 || len(cases) < len(samples) {
		t.Fatalf("%d samples, and perf tells of %d of them: too few", len(samples), len(cases))
	}
	cases = slices.DeleteFunc(cases, func(c Case) bool { return c.withoutCFI() })
	s := Summarize(cases, false)
	t.Logf("%d samples, %d of %d frames are the same", s.Samples, s.SamePerf, s.Frames)
	if float64(s.SamePerf) < enough*float64(s.Frames) {
		for _, c := range s.WithPerf {
			t.Errorf("%d stacks: %s at %s\n%v", c.N, c.How, c.File, c.Example)
		}
	}
	if s.OurFrames < 3*s.Samples {
		t.Errorf("%d frames in %d stacks: programs of the corpus have more", s.OurFrames, s.Samples)
	}
}

// runtimeFunctions are linked into every program and have no CFI: perf cannot say what called
// them. We follow their code, which unwind's own tests judge.
var runtimeFunctions = []string{"_init", "_fini", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux", "frame_dummy"}

// withoutCFI reports whether perf's stack is ours and ends in a function without CFI, and ours
// reaches the program's entry.
func (c *Case) withoutCFI() bool {
	v := c.WithPerf()
	return v.Same > 0 && v.Same == v.Theirs && c.Ours.End == unwind.Complete &&
		slices.Contains(runtimeFunctions, c.Perf[v.Same-1].Symbol)
}
