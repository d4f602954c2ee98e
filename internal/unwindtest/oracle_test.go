package unwindtest

import (
	"debug/elf"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/perftest"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// oddRate is how many stacks may differ from perf's where no rule says who is right: what
// nobody can unwind, such as the C++ runtime's unwinder while it overwrites its own frame.
const oddRate = 1. / 1000

// fewest is how many samples a program must have to be judged. With 150, testenv.TooMany
// leaves 6 to chance: a wrong rule for 4 % of the samples shows.
const fewest = 150

// judged are the programs of the test: perf knows the stacks of each (see Program.command
// for those of which it does not), and together they are quick.
var judged = []string{"calls-O2", "calls-clang-O2", "calls-nopie", "exceptions", "libc", "plt", "plt-now", "signals", "threads", "frames", "jumps", "syscalls", "rust", "python"}

func TestFramesAreThoseOfPerf(t *testing.T) {
	dir := corpusOf(t)
	for _, p := range Corpus() {
		if slices.Contains(judged, p.Name) {
			t.Run(p.Name, func(t *testing.T) { judge(t, dir, &p) })
		}
	}
}

// TestBesideOtherRecordings judges a program while others record the whole machine, and ask
// for build IDs: perf and the kernel mix up recordings that do not.
func TestBesideOtherRecordings(t *testing.T) {
	dir := corpusOf(t)
	perftest.Disturb(t)
	for _, p := range Corpus() {
		if p.Name == "libc" {
			judge(t, dir, &p)
		}
	}
}

// corpusOf returns a directory with the sources of the corpus.
func corpusOf(t *testing.T) (dir string) {
	t.Helper()
	testenv.Tool(t, "perf")
	if out, err := exec.Command("perf", "version", "--build-options").CombinedOutput(); err == nil {
		testenv.Need(t, strings.Contains(string(out), "libunwind: [ on"), "a perf that unwinds by libunwind")
	}
	dir = t.TempDir()
	if err := Unpack(dir); err != nil {
		t.Fatal(err)
	}
	return dir
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
	cases := enough(t, dir, p)
	s := Summarize(cases, false)
	t.Logf("%d samples, %d of %d frames are the same", s.Samples, s.SamePerf, s.Frames)
	if s.OurFrames < 3*s.Samples {
		t.Errorf("%d frames in %d stacks: programs of the corpus have more", s.OurFrames, s.Samples)
	}
	var odd []Case
	coverage, rules, steps := coverage{}, map[string]int{}, map[step]*judgedSteps{}
	for _, c := range cases {
		rule := ""
		v := c.WithPerf()
		if !v.Equal() {
			if rule = coverage.oursIsRight(t, &c); rule != "" {
				rules[rule]++
			} else {
				odd = append(odd, c)
			}
		}
		countSteps(steps, &c, v.Same, !v.Equal() && rule == "")
	}
	if len(rules) > 0 {
		t.Logf("perf is wrong: %v", rules)
	}
	for _, c := range Summarize(odd, false).WithPerf {
		t.Logf("%d stacks: %s at %s\n%v", c.N, c.How, c.File, c.Example)
	}
	if testenv.TooMany(int64(len(odd)), int64(len(cases)), oddRate) {
		t.Errorf("%d of %d stacks differ from perf's, where a share of %v is tolerated", len(odd), len(cases), oddRate)
	}
	for at, k := range steps {
		if testenv.TooMany(int64(k.odd), int64(k.n), oddRate) {
			t.Errorf("%d of %d stacks differ from perf's behind %+v, where a share of %v is tolerated", k.odd, k.n, at, oddRate)
		}
	}
}

// step is a function from which stacks go on to its callers. Where it is innermost, it may have
// been interrupted at any instruction.
type step struct {
	symbol, file string
	innermost    bool
}

// judgedSteps is how many stacks there are with a step, and how many of them differ there:
// what is wrong with a function that few stacks have shows in these, and not in all.
type judgedSteps struct{ n, odd int }

func countSteps(steps map[step]*judgedSteps, c *Case, same int, odd bool) {
	seen := map[step]bool{}
	at := step{symbol: "(none)"}
	for i := range same {
		at = step{c.Perf[i].Symbol, c.Perf[i].File, i == 0}
		seen[at] = true
	}
	seen[at] = true
	for s := range seen {
		if steps[s] == nil {
			steps[s] = &judgedSteps{}
		}
		steps[s].n++
	}
	if odd {
		steps[at].odd++
	}
}

// enough records a program for as long as it takes to have enough samples, and returns them
// with what perf says of each.
func enough(t *testing.T, dir string, p *Program) []Case {
	t.Helper()
	n := 0
	for _, ms := range []int{700, 2000, 6000, 20_000} {
		file, err := p.Record(t.Context(), dir, Recording{Milliseconds: ms, Hz: 499, StackSize: 32768})
		testenv.Need(t, err == nil || !strings.Contains(err.Error(), "perf_event_paranoid"), "to record with perf")
		if err != nil {
			t.Fatal(err)
		}
		samples, err := Samples(file)
		if err != nil {
			t.Fatal(err)
		}
		if n = len(samples); n < fewest {
			continue
		}
		told, err := Script(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		tables := &Tables{Warn: func(file string, err error) { t.Logf("%s: %v", file, err) }}
		cases := Cases(samples, tables, told)
		if len(cases) != n {
			t.Fatalf("perf tells of %d of %d samples", len(cases), n)
		}
		if p.Name != "signals" || handlers(cases) >= fewestHandlers {
			return cases
		}
	}
	testenv.Lack(t, "%d samples of %s in 20 s, too few or of too little", n, p.Name)
	return nil
}

// fewestHandlers is how many samples of signal handlers there must be.
const fewestHandlers = 10

// handlers returns in how many of perf's stacks a handler was called, which returns to code of
// the C library that has no name, or that of its source.
func handlers(cases []Case) (n int) {
	for _, c := range cases {
		if slices.ContainsFunc(c.Perf, func(p Site) bool {
			return strings.Contains(p.File, "/libc.so") && (p.Symbol == "[unknown]" || strings.Contains(p.Symbol, "restore_rt"))
		}) {
			n++
		}
	}
	return n
}

// oursIsRight returns the rule by which our stack counts where perf's is another one, or "".
//
// There is one: perf's stack is ours as far as it goes, and ends in code of which call frame
// information says nothing, the functions of crtbegin.o and the like: perf has no way on. We
// follow their code, which unwind's own tests judge. That we are right shows in that our
// stack reaches the program's or the thread's entry.
//
// perf is right everywhere else.
func (c coverage) oursIsRight(t *testing.T, k *Case) string {
	t.Helper()
	v := k.WithPerf()
	if v.Same == 0 || v.Same != v.Theirs || k.Ours.End != unwind.Complete {
		return ""
	}
	if last := &k.Ours.Frames[v.Same-1]; last.Map == nil || last.Map.Generated() || c.has(t, last) {
		return ""
	}
	return "it ends in code without CFI"
}

// coverage is where files have call frame information, as readelf prints it.
type coverage map[string]*covered

type covered struct {
	file  *elf.File
	spans [][2]uint64
}

var spanOfFDE = regexp.MustCompile(`(?m)^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE (?:cie=[0-9a-f]+ )?pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

// has reports whether there is call frame information for the place of a frame.
func (c coverage) has(t *testing.T, f *Frame) bool {
	t.Helper()
	name := f.Map.Name
	if !strings.HasPrefix(name, "/") {
		return true // [vdso]
	}
	if c[name] == nil {
		file, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		// readelf also fails when it does not find the file of a debug link.
		out, err := exec.Command(testenv.Tool(t, "readelf"), "--debug-dump=frames", name).Output()
		spans := spanOfFDE.FindAllSubmatch(out, -1)
		if len(spans) == 0 {
			t.Fatalf("readelf %s: %v", name, err)
		}
		c[name] = &covered{file: file}
		for _, m := range spans {
			start, _ := strconv.ParseUint(string(m[1]), 16, 64)
			end, _ := strconv.ParseUint(string(m[2]), 16, 64)
			c[name].spans = append(c[name].spans, [2]uint64{start, end})
		}
	}
	for _, p := range c[name].file.Progs {
		if p.Type != elf.PT_LOAD || uint64(f.Offset) < p.Off || uint64(f.Offset)-p.Off >= p.Filesz {
			continue
		}
		virt := uint64(f.Offset) - p.Off + p.Vaddr
		if p.Flags&elf.PF_X != 0 {
			return slices.ContainsFunc(c[name].spans, func(s [2]uint64) bool { return s[0] <= virt && virt < s[1] })
		}
	}
	return false
}
