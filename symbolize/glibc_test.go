package symbolize

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

var (
	wanted    = regexp.MustCompile(`(?m)^want (\w+) (\d+)$`)
	annotates = regexp.MustCompile(`(?m) in (\w+) at .*backtrace\.c:(\d+):\d+`)
)

// TestBacktrace compares lines with those that the program itself knows of its calls,
// one of which is the last instruction of its function.
func TestBacktrace(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O2", "-fno-optimize-sibling-calls"}, {"-O1", "-no-pie"}, {"-O1", "-rdynamic"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			p := compile(t, "backtrace.c", "gcc", flags...)
			raw := p.output(t)
			text, _ := rewrite(t, &Filter{Library: p.library, TrustPaths: true}, raw)
			var want, got []string
			for _, m := range wanted.FindAllStringSubmatch(text, -1) {
				want = append(want, m[1]+" "+m[2])
			}
			for _, m := range annotates.FindAllStringSubmatch(text, -1) {
				got = append(got, m[1]+" "+m[2])
			}
			if len(want) != 5 {
				t.Fatalf("the program knows %q", want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, the program knows %q in\n%s", got, want, raw)
			}
		})
	}
}

func TestBacktraceForms(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	at := p.at(t, "main", 0)
	outer := p.at(t, "outer", 0)
	frame := fmt.Sprintf("%s(+%#x)", p.path, at+1)
	const main = " in main at SOURCE/asan.c:13:33"
	for _, test := range []struct{ name, line, want string }{
		{"with a blank", frame + " [0x55d1]", frame + " [0x55d1]" + main},
		{"without a blank", frame + "[0x55d1]", frame + "[0x55d1]" + main},
		{"in a log", "2026-01-02 E: " + frame + "[0x55d1] ...\x1b[0m", "2026-01-02 E: " + frame + "[0x55d1]" + main + " ...\x1b[0m"},
		{"a stack with a function", frame + "[0x10001]\n" + p.path + "(main+0x1)[0x10001]\n\n" + p.path + "(main+0x1)[0x10001]",
			frame + "[0x10001]" + main + "\n" + p.path + "(main+0x1)[0x10001]" + main + "\n\n" + p.path + "(main+0x1)[0x10001]"},
		{"interrupted by a signal", "/x(__restore_rt+0x0)[0x1]\n" + fmt.Sprintf("%s(+%#x)[0x1]", p.path, at), "/x(__restore_rt+0x0)[0x1]\n" + fmt.Sprintf("%s(+%#x)[0x1]", p.path, at) + main},
		{"inlined", fmt.Sprintf("%s(+%#x) [0x1]", p.path, outer+1), fmt.Sprintf("%[1]s(+%#[2]x) [0x1] in inner at SOURCE/asan.c:5:10 (inlined)\n%[1]s(+%#[2]x) [0x1] in outer at SOURCE/asan.c:9:10", p.path, outer+1)},
		{"a function", "/x/prog(main+0x1) [0x55d1]", ""},
		{"an address alone", "[0x55d1]", ""},
		{"a file and an address", "prog[0x55d1]", ""},
		{"a call in C", "x = f(+0x12)[0x1", ""},
		{"not a number", "f(+0x1g)[0x1] f(+0x)[0x1] (+0x1)[0x1] f(+0x1)[0x]", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library, TrustPaths: true}, test.line)
			got = regexp.MustCompile(` at /[^\n]*?/asan.c`).ReplaceAllString(got, " at SOURCE/asan.c")
			want := test.want
			if want == "" {
				want = test.line
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// crashing crashes in the midst of a function, or with an argument at the first instruction of one, and
// prints its stack by backtrace_symbols_fd.
const crashing = `#include <execinfo.h>
#include <signal.h>
#include <unistd.h>
static void handler(int s) { void *a[32]; backtrace_symbols_fd(a, backtrace(a, 32), 1); _exit(0); }
int *volatile p;
__attribute__((naked, noinline)) void first(void) { __asm__("movl $1, 0\n\tret"); }
__attribute__((noinline)) int victim(int x) {
	x += 3;
	x *= 2;
	*p = x;
	return x;
}
int main(int argc, char **argv) { signal(SIGSEGV, handler); if (argc > 1) first(); return victim(argc); }
`

// TestGlibcSignal looks at the stacks of programs that crashed: the frame of the function that the handler
// returns to is no return address, nor is that of the instruction which the signal interrupted.
func TestGlibcSignal(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on arm64 handlers return to the vdso")
	}
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	cmd := exec.Command(testenv.Tool(t, "gcc"), "-g", "-O1", "-x", "c", "-o", prog, "-")
	cmd.Stdin = strings.NewReader(crashing)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, `in victim at .*:10\b`},
		{[]string{"first"}, `in first\b`},
	} {
		log, err := exec.Command(prog, c.args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		f := Filter{TrustPaths: true}
		if _, err := f.Copy(context.Background(), &out, bytes.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`in __restore_rt\b`, c.want, `in main at .*:13\b`} {
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("%q: no %s in\n%s", c.args, want, &out)
			}
		}
	}
}
