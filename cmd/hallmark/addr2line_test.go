package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/testenv"
)

// standIn returns a directory with this test binary, which is hallmark, under the names
// of other programs.
func standIn(t *testing.T, names ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// compileC compiles a program and returns its path.
func compileC(t *testing.T, source, compiler string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(in, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(testenv.Tool(t, compiler), append(args, "-g", "-o", out, in)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", compiler, err, text)
	}
	return out
}

// runWith runs a command with additions to the environment and returns all that it
// prints, whatever its status.
func runWith(t *testing.T, env []string, stdin, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Args[0] = filepath.Base(name) // perf called by a path looks for tools beside itself
	c.Env = append(os.Environ(), append(env, "XDG_CACHE_HOME="+t.TempDir(), "DEBUGINFOD_URLS=")...)
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	return string(out)
}

func path(dirs ...string) string { return "PATH=" + strings.Join(dirs, ":") }

const overflow = `#include <stdlib.h>
__attribute__((noinline)) static int past(int *p, int n) {
	return p[n];
}
__attribute__((always_inline)) static inline int between(int *p, int n) {
	return past(p, n) + 1;
}
int main(int argc, char **argv) {
	int *p = malloc(4 * sizeof *p);
	int r = between(p, 3 + argc);
	free(p);
	return r & 1;
}
`

// TestSanitizers has sanitizers start the stand-in, keep it open, and ask for one
// address after another. clang's have no symbolizer of their own, unlike gcc's.
func TestSanitizers(t *testing.T) {
	testenv.Tool(t, "clang-19")
	want := regexp.MustCompile(`#0 0x[0-9a-f]+ in past \S*/prog\.c:3:9\n` +
		` +#1 0x[0-9a-f]+ in between \S*/prog\.c:6:9\n` +
		` +#2 0x[0-9a-f]+ in main \S*/prog\.c:10:10\n`)
	address := compileC(t, overflow, "clang-19", "-O1", "-fsanitize=address")
	symbolizer := filepath.Join(standIn(t, "llvm-symbolizer"), "llvm-symbolizer")
	out := runWith(t, []string{path("/nonexistent"), "ASAN_SYMBOLIZER_PATH=" + symbolizer}, "", address)
	if !want.MatchString(out) {
		t.Errorf("AddressSanitizer with ASAN_SYMBOLIZER_PATH prints\n%s", out)
	}
	out = runWith(t, []string{path(standIn(t, "llvm-symbolizer"))}, "", address)
	if !want.MatchString(out) {
		t.Errorf("AddressSanitizer with llvm-symbolizer in PATH prints\n%s", out)
	}
	out = runWith(t, []string{path("/nonexistent"), "ASAN_SYMBOLIZER_PATH="}, "", address)
	if strings.Contains(out, "in past") {
		t.Errorf("AddressSanitizer without a symbolizer knows functions:\n%s", out)
	}
	undefined := compileC(t, "int main(int argc, char **argv) {\n\tint n = 0x7fffffff;\n\treturn n + argc;\n}\n", "clang-19", "-O1", "-fsanitize=undefined")
	out = runWith(t, []string{path("/nonexistent"), "UBSAN_SYMBOLIZER_PATH=" + symbolizer, "UBSAN_OPTIONS=print_stacktrace=1"}, "", undefined)
	if !regexp.MustCompile(`#0 0x[0-9a-f]+ in main \S*/prog\.c:3:11\n`).MatchString(out) {
		t.Errorf("UndefinedBehaviorSanitizer prints\n%s", out)
	}
}

// TestSanitizerAddr2line has AddressSanitizer use addr2line, which it does without
// llvm-symbolizer.
func TestSanitizerAddr2line(t *testing.T) {
	address := compileC(t, overflow, "clang-19", "-O1", "-fsanitize=address")
	symbolizer := filepath.Join(standIn(t, "addr2line"), "addr2line")
	out := runWith(t, []string{path("/nonexistent"), "ASAN_SYMBOLIZER_PATH=" + symbolizer}, "", address)
	if !regexp.MustCompile(`in past \S*/prog\.c:3\n +#1 0x[0-9a-f]+ in between \S*/prog\.c:6\n +#2 0x[0-9a-f]+ in main \S*/prog\.c:10\n`).MatchString(out) {
		t.Errorf("AddressSanitizer with addr2line prints\n%s", out)
	}
}

const busy = `volatile unsigned sink;
__attribute__((always_inline)) static inline void burn(unsigned n) {
	for (unsigned i = 0; i < n; i++)
		sink += i;
}
__attribute__((noinline)) void spin(unsigned n) {
	burn(n);
}
int main(void) {
	spin(150000000);
}
`

// TestPerf has perf ask for lines: what it prints with the stand-in and with binutils is
// the same, and it is not what it prints without.
func TestPerf(t *testing.T) {
	// perf prints this for assembly of the dynamic linker that has no line, by what GNU answers.
	noLine := regexp.MustCompile(`(?m)^ *:0\n`)
	perf := testenv.Tool(t, "perf")
	original := filepath.Dir(testenv.Tool(t, "addr2line"))
	program := compileC(t, busy, "gcc", "-O1")
	data := filepath.Join(t.TempDir(), "perf.data")
	home := "HOME=" + t.TempDir() // where perf keeps copies of files
	if out, err := exec.Command(perf, "record", "-N", "--buildid-mmap", "-e", "cpu-clock:u", "-F", "499", "-g", "-o", data, program).CombinedOutput(); err != nil {
		testenv.Need(t, false, "perf record: "+string(out))
	}
	script := func(dirs ...string) string {
		out := runWith(t, []string{path(dirs...), home}, "", perf, "script", "-i", data, "-F", "ip,sym,srcline", "--comms", "prog")
		return noLine.ReplaceAllString(out, "")
	}
	silent := t.TempDir()
	if err := os.Symlink("/bin/false", filepath.Join(silent, "addr2line")); err != nil {
		t.Fatal(err)
	}
	ours, theirs, neither := script(standIn(t, "addr2line")), script(original), script(silent)
	if !strings.Contains(ours, "prog.c:4") {
		t.Errorf("perf script has no lines:\n%.2000s", ours)
	}
	if ours == neither {
		t.Error("perf script does not use addr2line")
	}
	if ours != theirs {
		t.Errorf("perf script prints\n%.2000s\nwith binutils\n%.2000s", ours, theirs)
	}
}

// TestPipes has scripts ask for what perf and nm print, as flame graph scripts do.
func TestPipes(t *testing.T) {
	testenv.Tool(t, "nm")
	program := compileC(t, busy, "gcc", "-O1")
	for _, script := range []string{
		`nm "$1" | awk '$3 == "spin" || $3 == "main" {print $1}' | addr2line -f -C -e "$1"`,
		`nm "$1" | awk '$3 == "spin" {print "0x" $1}' | xargs addr2line -e "$1" -afip`,
		`nm "$1" | awk '$3 == "spin" {print "0x" $1}' | while read a; do addr2line -e "$1" -f -i "$a"; done`,
		`cd "$(dirname "$1")" && cp prog a.out && addr2line -s $(nm a.out | awk '$3 == "main" {print $1}')`,
	} {
		ours := runWith(t, []string{path(standIn(t, "addr2line"), os.Getenv("PATH"))}, "", "/bin/sh", "-c", script, "sh", program)
		theirs := runWith(t, nil, "", "/bin/sh", "-c", script, "sh", program)
		if ours != theirs || !strings.Contains(ours, "prog.c:") {
			t.Errorf("%s prints\n%s\nwith binutils\n%s", script, ours, theirs)
		}
	}
}

// TestPprofTools has Go's pprof add functions and lines to a profile of addresses.
func TestPprofTools(t *testing.T) {
	program := compileC(t, busy, "gcc", "-O1", "-no-pie")
	profile := filepath.Join(t.TempDir(), "profile.pb.gz")
	writeAddresses(t, profile, program, "spin", "main")
	for _, tool := range []string{"addr2line", "llvm-symbolizer"} {
		dir := standIn(t, tool)
		for _, tools := range []string{dir, tool + ":" + dir} {
			out := runWith(t, []string{"PPROF_TMPDIR=" + t.TempDir()}, "", pprofTool(t),
				"-tools", tools, "-symbolize=force", "-traces", "-lines", program, profile)
			if !regexp.MustCompile(`\sspin \S*prog\.c:\d+`).MatchString(out) || !regexp.MustCompile(`\smain \S*prog\.c:\d+`).MatchString(out) {
				t.Errorf("pprof -tools %s prints\n%s", tools, out)
			}
		}
	}
}

// pprofTool returns the path of Go's pprof, which the go command builds when it is
// first needed.
func pprofTool(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "go"), "tool", "-n", "pprof").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// writeAddresses writes a profile with a sample at the start of each function, by
// address alone.
func writeAddresses(t *testing.T, name, program string, functions ...string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	m := &pprof.Mapping{ID: 1, Start: text.Addr &^ 0xfff, Limit: (text.Addr + text.Size + 0xfff) &^ 0xfff, Offset: text.Offset &^ 0xfff, File: program}
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		Mapping:    []*pprof.Mapping{m},
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		for _, function := range functions {
			if s.Name == function {
				l := &pprof.Location{ID: uint64(len(p.Location) + 1), Mapping: m, Address: s.Value + 1}
				p.Location = append(p.Location, l)
				p.Sample = append(p.Sample, &pprof.Sample{Location: []*pprof.Location{l}, Value: []int64{1}})
			}
		}
	}
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := p.Write(out); err != nil {
		t.Fatal(err)
	}
}
