package symbolize

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestKernel gives lines as the kernel prints them, of a program in the kernel's place.
func TestKernel(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	p.library.Finder.Dirs = []string{p.buildIDDirectory(t)}
	cpu := "CPU: 0 PID: 1 Comm: a b Not tainted 6.1.0 #1 " + p.id.String() + "\n"
	size := p.at(t, "main", 0) - p.at(t, "outer", 0)
	main, outer := " main+0x1/0x99", fmt.Sprintf(" outer+0x1/%#x", size)
	for _, test := range []struct{ name, text, want string }{
		{"a caller", cpu + main, cpu + main + " (asan.c:13:33)"},
		{"in a log", cpu + "[   12.3]  ?" + main + "\r\n", cpu + "[   12.3]  ?" + main + " (asan.c:13:33)\r\n"},
		{"an instruction", cpu + "RIP: 0010:main+0x1/0x99", cpu + "RIP: 0010:main+0x1/0x99 (asan.c:14:12)"},
		{"an instruction on Arm", cpu + "pc : main+0x1/0x99", cpu + "pc : main+0x1/0x99 (asan.c:14:12)"},
		{"a return address on Arm", cpu + "lr : main+0x1/0x99", cpu + "lr : main+0x1/0x99 (asan.c:13:33)"},
		{"a function", cpu + "initcall main+0x0/0x99 returned 0", cpu + "initcall main+0x0/0x99 (asan.c:13:33) returned 0"},
		{"inlined", cpu + outer, cpu + " inner (asan.c:5:10) (inlined)\n" + outer + " (asan.c:9:10)"},
		{"another function", cpu + " nothing+0x1/0x99", ""},
		{"behind its end", cpu + " main+0x99/0x1", ""},
		{"another kernel", "CPU: 0 PID: 1 Comm: x Not tainted 6.1.0 #1 00112233445566778899aabbccddeeff00112233\n" + main, ""},
		{"no kernel", main, ""},
		{"no numbers", cpu + " main+0x/0x99 main+0x1/0x +0x1/0x2 main+0x1 main+0x11112222333344445/0x99", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.text)
			got = regexp.MustCompile(`\([^()\n]*/asan.c`).ReplaceAllString(got, "(asan.c")
			if test.want == "" {
				test.want = test.text
			}
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestKernelModule looks up two functions of one name in a relocatable file, and asks
// addr2line where their calls are.
func TestKernelModule(t *testing.T) {
	dir := t.TempDir()
	module := filepath.Join(dir, "mod.ko")
	for _, command := range [][]string{
		{"gcc", "-g", "-O1", "-c", "-o", filepath.Join(dir, "1.o"), "testdata/module.c"},
		{"gcc", "-g", "-O1", "-c", "-o", filepath.Join(dir, "2.o"), "testdata/module2.c"},
		{"ld", "-r", "--build-id", "-o", module, filepath.Join(dir, "1.o"), filepath.Join(dir, "2.o")},
	} {
		if out, err := exec.Command(testenv.Tool(t, command[0]), command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	p := index(t, module)
	out, err := exec.Command(testenv.Tool(t, "nm"), "-n", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	starts := regexp.MustCompile(`(?m)^(\w+) . (\w+)$`).FindAllStringSubmatch(string(out), -1)
	var text, want strings.Builder
	for i, m := range starts[:len(starts)-1] {
		var start, end uint64
		fmt.Sscanf(m[1]+" "+starts[i+1][1], "%x %x", &start, &end)
		if end == start {
			continue
		}
		frame := fmt.Sprintf(" %s+0x5/%#x", m[2], end-start)
		tail := fmt.Sprintf(" [mod %s]\n", p.id)
		text.WriteString(frame + tail)
		where, err := exec.Command(testenv.Tool(t, "addr2line"), "-i", "-j", ".text", "-e", module, fmt.Sprintf("%#x", start+4)).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(where)) // that of the function itself is the last
		want.WriteString(frame + " (" + filepath.Base(lines[len(lines)-1]) + ")" + tail)
	}
	if strings.Count(text.String(), "twin+") != 2 {
		t.Fatalf("not two functions of one name:\n%s", out)
	}
	for _, by := range []string{"", "xz", "zstd", "gzip"} {
		packed, library := module, p.library
		if by != "" { // also where no one names it
			tree := filepath.Join(t.TempDir(), "lib", "modules", "6.1.0", "kernel")
			packed = filepath.Join(tree, "mod.ko"+map[string]string{"xz": ".xz", "zstd": ".zst", "gzip": ".gz"}[by])
			data, err := exec.Command(testenv.Tool(t, by), "-c", module).Output()
			if err := errors.Join(err, os.MkdirAll(tree, 0o755), os.WriteFile(packed, data, 0o644)); err != nil {
				t.Fatal(err)
			}
			library = alone(t)
			library.Finder.Dirs = []string{filepath.Join(tree, "../../../..")}
		}
		filters := []*Filter{{Library: library, Binaries: []string{packed}}}
		if by != "" {
			filters = append(filters, &Filter{Library: library})
		}
		for _, f := range filters {
			checkModule(t, f, text.String(), want.String())
		}
	}
}

// checkModule gives the frames of a module to a filter.
func checkModule(t *testing.T, f *Filter, text, want string) {
	t.Helper()
	got, _ := rewrite(t, f, text)
	got = regexp.MustCompile(`\([^()\n]*/(module2?\.c:\d+):\d+\)`).ReplaceAllString(got, "($1)")
	got = regexp.MustCompile(`(?m)^.*\(inlined\).*\n`).ReplaceAllString(got, "")
	if got != want {
		t.Errorf("%q: got\n%swant\n%s", f.Binaries, got, want)
	}
}
