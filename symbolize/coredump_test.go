package symbolize

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestEuStack filters what eu-stack says of a running program without its symbols, and
// compares it with what it says itself with them.
func TestEuStack(t *testing.T) {
	for _, flag := range []string{"-pie", "-no-pie"} {
		t.Run(flag, func(t *testing.T) {
			p := compile(t, "sleeper.c", "gcc", "-O1", "-fno-optimize-sibling-calls", flag)
			cmd := exec.Command(p.path)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cmd.Process.Kill(); cmd.Wait() }()
			bufio.NewReader(out).ReadString('\n')
			stack := func(args ...string) string {
				args = append(args, "-p", fmt.Sprint(cmd.Process.Pid))
				out, err := exec.Command(testenv.Tool(t, "eu-stack"), args...).Output()
				testenv.Need(t, err == nil, "permission to trace a process")
				return string(out)
			}
			want := regexp.MustCompile(`sleeper\.c:\d+`).FindAllString(stack("-i", "-s"), -1)
			text, s := rewrite(t, &Filter{Library: p.library}, stack("-b", "-q"))
			got := regexp.MustCompile(`sleeper\.c:\d+`).FindAllString(text, -1)
			if len(want) != 4 || !slices.Equal(got, want) || s.Symbolized == 0 {
				t.Errorf("got %q, eu-stack says %q of\n%s", got, want, text)
			}
		})
	}
}

// TestCoredump gives lines as systemd-coredump writes them into the journal.
func TestCoredump(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1", "-no-pie")
	source, err := filepath.Abs("testdata/asan.c")
	if err != nil {
		t.Fatal(err)
	}
	const base = 0x400000 // where ld puts programs
	known := fmt.Sprintf("Module /x/prog with build-id %s\n", p.id)
	packaged := fmt.Sprintf("Module prog from rpm foo, build-id=%s\n", p.id)
	found := fmt.Sprintf("Found module prog with build-id: %s\n", p.id)
	head := "                #1  0x00000000004011ca "
	main := fmt.Sprintf(" (/x/prog + %#x)", p.at(t, "main", 1)-base)
	short := fmt.Sprintf(" (prog + %#x)", p.at(t, "main", 1)-base)
	outer := fmt.Sprintf(" (/x/prog + %#x)", p.at(t, "outer", 1)-base)
	for _, test := range []struct{ name, text, want string }{
		{"a caller", known + head + "n/a" + main, known + head + "main" + main + " SOURCE:13:33"},
		{"of a package", packaged + head + "n/a" + short, packaged + head + "main" + short + " SOURCE:13:33"},
		{"of an older version", found + head + "n/a" + short, found + head + "main" + short + " SOURCE:13:33"},
		{"a name", known + head + "main" + main, known + head + "main" + main + " SOURCE:13:33"},
		{"another name", known + head + "abort" + main, ""},
		{"the innermost", known + "#0  0x00000000004011ca n/a" + main, known + "#0  0x00000000004011ca main" + main + " SOURCE:14:12"},
		{"interrupted", known + "#3  0x00000000004011ca __restore_rt (libc.so.6 + 0x1)\n#4  0x00000000004011ca n/a" + main, known + "#3  0x00000000004011ca __restore_rt (libc.so.6 + 0x1)\n#4  0x00000000004011ca main" + main + " SOURCE:14:12"},
		{"inlined", known + head + "n/a" + outer, known + head + "inner" + outer + " SOURCE:5:10 (inlined)\n" + head + "outer" + outer + " SOURCE:9:10"},
		{"another file", known + head + "n/a" + short, ""},
		{"nothing", known + "#0  0x1 n/a" + main + "\n#1  0x00000000004011ca (/x/prog + 0x1)\n" + head + "n/a (/x/prog + 0x)\n + 0x\n]@0x\n    [0]@0x1+0x1\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.text)
			want := strings.ReplaceAll(test.want, "SOURCE", source)
			if want == "" {
				want = test.text
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
