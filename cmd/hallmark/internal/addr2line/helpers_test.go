package addr2line

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// ours runs one of our programs and returns what it prints and its exit status.
func ours(t testing.TB, p Program, stdin io.Reader, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no indexes but those that are made here
	var out, errs bytes.Buffer
	status = Run(context.Background(), p, p.String(), args, World{
		Stdin: stdin, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Version: "test",
	})
	return out.String(), errs.String(), status
}

// witnesses are the programs that are stood in for.
var witnesses = [...]string{"addr2line", "llvm-addr2line-19", "llvm-symbolizer-19"}

// theirs runs the original, under the name that ours has.
func theirs(t testing.TB, p Program, stdin io.Reader, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(testenv.Tool(t, witnesses[p]), args...)
	c.Args[0] = p.String()
	c.Env = append(os.Environ(), "DEBUGINFOD_URLS=", "LC_ALL=C")
	c.Stdin, c.Stdout, c.Stderr = stdin, &out, &errs
	if err := c.Run(); err != nil {
		if _, ok := err.(*exec.ExitError); !ok {
			t.Fatal(err)
		}
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// build compiles a program of testdata and returns its path.
func build(t testing.TB, source, compiler string, args ...string) string {
	t.Helper()
	in, err := filepath.Abs(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source)))
	c := exec.Command(testenv.Tool(t, compiler), append(args, "-o", out, in)...)
	c.Env = append(os.Environ(), "GOEXPERIMENT=nodwarf5") // GNU addr2line 2.40 cannot read Go's DWARF 5
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// codeAddresses returns n random addresses of the code of a file, or all of them if it
// has no more.
func codeAddresses(t testing.TB, name string, n int) []uint64 {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []uint64
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 {
			for v := s.Addr; v < s.Addr+s.Size; v++ {
				all = append(all, v)
			}
		}
	}
	if len(all) > n {
		r := rand.New(rand.NewPCG(1, 2))
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:n]
	}
	return all
}

// asInput writes addresses one on a line.
func asInput(addresses []uint64) string {
	var b strings.Builder
	for _, v := range addresses {
		fmt.Fprintf(&b, "%#x\n", v)
	}
	return b.String()
}

// toolOutput returns what a tool prints.
func toolOutput(t testing.TB, tool string, args ...string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, tool), args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// filter returns what a tool makes of its input.
func filter(t testing.TB, input, tool string, args ...string) string {
	t.Helper()
	c := exec.Command(testenv.Tool(t, tool), args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
