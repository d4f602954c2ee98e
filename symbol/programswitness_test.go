package symbol

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/dwarftest"
	"hallmark/internal/testenv"
)

// exemption is a class of programs of which a witness does not know the truth: those
// with all of the traits. The model is right there.
type exemption struct {
	witness string
	traits  []string
	why     string
}

var exemptions = []exemption{
	{"llvm-symbolizer-19", []string{"package with an offset of abbreviations"}, "it takes no offset but 0 there"},
	{"eu-addr2line", []string{"zdebug"}, "version 0.188 crashes in the midst of some"},
	{"llvm-symbolizer-19", []string{"zdebug"}, "it does not know .zdebug sections any more"},
	{"llvm-symbolizer-19", []string{"sdata"}, "it takes no number of DW_FORM_sdata where it expects one without a sign"},
	{"llvm-symbolizer-19", []string{"supplementary entries"}, "it reads no supplementary files"},
	{"llvm-symbolizer-19", []string{"supplementary strings"}, "it reads no supplementary files"},
	{"llvm-symbolizer-19", []string{"huge codes"}, "its codes of abbreviations have 32 bits"},
	{"llvm-symbolizer-19", []string{"split units elsewhere"}, "it has no other place to look for them"},
	{"llvm-symbolizer-19", []string{"unit without addresses", "not all aranges"}, "it does not look into units for their functions"},
	{"llvm-symbolizer-19", []string{"unclaimed code", "not all aranges"}, "it does not look into line programs of units that claim other code"},
}

// exempt returns whether a witness need not know the truth of a program.
func exempt(witness string, p *dwarftest.Program) bool {
	return slices.ContainsFunc(exemptions, func(e exemption) bool {
		return e.witness == witness && !slices.ContainsFunc(e.traits, func(trait string) bool { return !p.Has(trait) })
	})
}

// programWitnesses are tools that answer for programs in a directory. diff returns how
// frames differ from what the tool says.
var programWitnesses = []struct {
	name string
	ask  func(t *testing.T, dir string, programs []*dwarftest.Program) [][]witnessFrames
	diff func(says witnessFrames, frames []Frame) string
}{
	{"llvm-symbolizer-19", askLLVM, differsFromLLVM},
	{"eu-addr2line", askElfutils, differsFromElfutils},
}

// differsFromLLVM returns how frames differ from what llvm-symbolizer says. It names the
// outermost function by its symbol.
func differsFromLLVM(says witnessFrames, frames []Frame) string {
	var names []string
	if n := len(frames); n > 0 {
		names = []string{frames[n-1].Symbol, frames[n-1].Linkage}
	}
	return says.compare(frames, names)
}

// differsFromElfutils returns how the innermost line differs from what eu-addr2line says,
// if it knows one. It leaves out what .debug_aranges does not have, and version 0.188 many
// functions: what it says is to be true, and is a second opinion of line tables.
func differsFromElfutils(says witnessFrames, frames []Frame) string {
	if len(says) == 0 || says[0].line == 0 {
		return ""
	}
	place := says[0]
	place.function, place.file = "", strings.TrimPrefix(place.file, "(null)") // for a unit without a directory
	return witnessFrames{place}.compare(frames[:min(len(frames), 1)], nil)
}

// TestGeneratedProgramsWitnessed compares what is true of generated programs with what
// other tools say of them, so that the generator and our reader do not agree on an error.
func TestGeneratedProgramsWitnessed(t *testing.T) {
	n := 300
	if testenv.Brief() {
		n = 60
	}
	first, end := programs(t, n)
	for _, w := range programWitnesses {
		t.Run(w.name, func(t *testing.T) {
			testenv.Tool(t, w.name)
			d := newDisputes()
			programs, addresses := 0, 0
			for at := first; at < end; at += 200 {
				asked := writePrograms(t, w.name, at, min(at+200, end))
				for i, answers := range w.ask(t, asked.dir, asked.programs) {
					p := asked.programs[i]
					programs++
					d.look(p)
					addresses += len(answers)
					compareWitness(d, p, answers, w.diff)
				}
				if err := os.RemoveAll(asked.dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d of %d programs, %d addresses", programs, end-first, addresses)
			d.report(t)
		})
	}
}

// askedPrograms are programs in a directory.
type askedPrograms struct {
	dir      string
	programs []*dwarftest.Program
}

// writePrograms writes the programs of which a witness may know the truth.
func writePrograms(t *testing.T, witness string, first, end uint64) askedPrograms {
	t.Helper()
	asked := askedPrograms{dir: t.TempDir()}
	for seed := first; seed < end; seed++ {
		p := dwarftest.Generate(seed)
		if exempt(witness, p) {
			continue
		}
		asked.programs = append(asked.programs, p)
		for name, data := range p.Files {
			if err := os.WriteFile(filepath.Join(asked.dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return asked
}

// compareWitness notes where a witness does not say what is true of a program.
func compareWitness(d *disputes, p *dwarftest.Program, answers []witnessFrames, differ func(witnessFrames, []Frame) string) {
	if len(answers) != len(p.Answers) {
		d.add(p, "answers", fmt.Sprintf("%d for %d addresses", len(answers), len(p.Answers)))
		return
	}
	for i, a := range p.Answers {
		if diff := differ(answers[i], truth(a).Frames); diff != "" {
			d.add(p, "frames", fmt.Sprintf("%#x: %s", a.Addr, diff))
			return
		}
	}
}

// askLLVM asks one process for the addresses of all programs.
func askLLVM(t *testing.T, dir string, programs []*dwarftest.Program) (answers [][]witnessFrames) {
	t.Helper()
	var input bytes.Buffer
	for _, p := range programs {
		for _, a := range p.Answers {
			fmt.Fprintf(&input, "%q %#x\n", p.Main, a.Addr)
		}
	}
	lines := runWitness(t, dir, &input, "llvm-symbolizer-19", "--no-demangle", "--functions=linkage", "--inlines", "--output-style=LLVM")
	at := 0
	for _, p := range programs {
		var all []witnessFrames
		for range p.Answers {
			var frames witnessFrames
			for ; at+1 < len(lines) && lines[at] != ""; at += 2 {
				frames = append(frames, parseWitness(lines[at], lines[at+1]))
			}
			at++
			all = append(all, frames)
		}
		answers = append(answers, all)
	}
	return answers
}

// askElfutils asks a process for each program.
func askElfutils(t *testing.T, dir string, programs []*dwarftest.Program) (answers [][]witnessFrames) {
	t.Helper()
	for _, p := range programs {
		var input bytes.Buffer
		for _, a := range p.Answers {
			fmt.Fprintf(&input, "%#x\n", a.Addr)
		}
		lines := runWitness(t, dir, &input, "eu-addr2line", "-a", "-f", "-i", "-e", p.Main)
		var all []witnessFrames
		for i := 0; i < len(lines); i++ {
			if strings.HasPrefix(lines[i], "0x") {
				all = append(all, nil)
				continue
			}
			if n := len(all) - 1; n >= 0 && i+1 < len(lines) {
				name, _, _ := strings.Cut(lines[i], " inlined at ")
				all[n] = append(all[n], parseWitness(name, lines[i+1]))
				i++
			}
		}
		answers = append(answers, all)
	}
	return answers
}

// runWitness returns the lines that a witness writes. That it fails, or says that a file
// is damaged, is its opinion: the answers count.
func runWitness(t *testing.T, dir string, input *bytes.Buffer, name string, args ...string) []string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Stdin = dir, input
	out, err := c.Output()
	if err != nil && len(out) == 0 {
		t.Logf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}
