// Package proftest gives tests profiles: real ones that Go's runtime made, built
// ones, and what 'go tool pprof' says of either.
package proftest

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	runtimepprof "runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/testenv"
)

// CPU returns a profile that Go's runtime made of this process while it was
// busy, with some dozens of samples.
func CPU(t testing.TB) *pprof.Profile {
	t.Helper()
	for range 10 {
		var out bytes.Buffer
		if err := runtimepprof.StartCPUProfile(&out); err != nil {
			t.Fatal(err)
		}
		work(500 * time.Millisecond)
		runtimepprof.StopCPUProfile()
		if p := parse(t, out.Bytes()); len(p.Sample) > 10 {
			return p
		}
	}
	t.Fatal("the runtime took no samples of a busy process")
	return nil
}

// work uses that much time of processors, which on a busy machine takes longer, with
// code that is deep, and inlined in part.
func work(d time.Duration) {
	src := []byte("package p\n" + strings.Repeat("func f(x int) int { return g(x)*(x+1) + len([]int{1, 2}) }\n", 1000))
	for end := used() + d; used() < end; {
		parser.ParseFile(token.NewFileSet(), "", src, 0)
	}
}

// used returns the time of processors that this process has used.
func used() time.Duration {
	var t syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Utime.Nano() + t.Stime.Nano())
}

// Heap returns a profile of the memory of this process.
func Heap(t testing.TB) *pprof.Profile {
	t.Helper()
	work(10 * time.Millisecond)
	var out bytes.Buffer
	if err := runtimepprof.Lookup("allocs").WriteTo(&out, 0); err != nil {
		t.Fatal(err)
	}
	return parse(t, out.Bytes())
}

func parse(t testing.TB, data []byte) *pprof.Profile {
	t.Helper()
	p, err := pprof.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Save writes p to a file of the test and returns its name.
func Save(t testing.TB, p *pprof.Profile) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "profile.pb.gz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// Strip takes the functions and lines out of p.
func Strip(p *pprof.Profile) {
	for _, l := range p.Location {
		l.Line = nil
	}
	for _, m := range p.Mapping {
		m.HasFunctions, m.HasFilenames, m.HasLineNumbers, m.HasInlineFrames = false, false, false, false
	}
	p.Function = nil
}

// Pprof returns what 'go tool pprof' with these arguments writes. It does not
// look for symbols.
func Pprof(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "go"), append([]string{"tool", "pprof", "-symbolize=none"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}

// Value is the two figures that pprof gives for a function.
type Value struct{ Flat, Cum int64 }

// topLine is a line of pprof -top in a unit that it does not scale:
//
//	10000000ns  1.02%  1.02% 20000000ns  2.04%  runtime.mallocgc (inline)
var topLine = regexp.MustCompile(`^\s*(-?\d+)\w*\s+\S+%\s+\S+%\s+(-?\d+)\w*\s+\S+%\s+(.*?)(?: \((?:partial-)?inline\))?$`)

// Top returns what 'go tool pprof -top' says of every function in the file, for a
// sample type and its unit ("cpu", "ns").
func Top(t testing.TB, file, sampleType, unit string) map[string]Value {
	t.Helper()
	out := Pprof(t, "-top", "-nodecount=0", "-nodefraction=0", "-edgefraction=0",
		"-sample_index="+sampleType, "-unit="+unit, file)
	top := map[string]Value{}
	for line := range strings.Lines(out) {
		m := topLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		flat, _ := strconv.ParseInt(m[1], 10, 64)
		cum, _ := strconv.ParseInt(m[2], 10, 64)
		top[m[3]] = Value{flat, cum}
	}
	if len(top) == 0 {
		t.Fatalf("pprof -top shows no function:\n%s", out)
	}
	return top
}
