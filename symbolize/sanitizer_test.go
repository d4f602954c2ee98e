package symbolize

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// compilers are those whose sanitizers print stacks, each with its own runtime and its
// own symbolizer.
func compilers(t *testing.T, try func(t *testing.T, compiler string)) {
	t.Run("gcc", func(t *testing.T) { try(t, "gcc") })
	t.Run("clang", func(t *testing.T) {
		clang := testenv.Tool(t, "clang-19")
		out, err := exec.Command(clang, "--print-file-name=lib/linux/libclang_rt.asan-x86_64.a").Output()
		testenv.Need(t, err == nil && filepath.IsAbs(string(out)), "the sanitizers of clang-19 (Debian: libclang-rt-19-dev)")
		testenv.Tool(t, "llvm-symbolizer-19")
		try(t, clang)
	})
}

var (
	address = regexp.MustCompile(`0x[0-9a-f]{8,}`)
	columns = regexp.MustCompile(`(\.c:\d+):\d+`)
	ours    = regexp.MustCompile(`(?m)^ +#\d+ .* in (inner|outer|main) .*$|^SUMMARY.*$`)
)

// frames returns the frames of the program itself in a report, without what differs
// from run to run and without columns, which not every program prints.
func frames(report string) []string {
	var all []string
	for _, line := range ours.FindAllString(report, -1) {
		line = columns.ReplaceAllString(address.ReplaceAllString(line, "ADDR"), "$1")
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// TestSanitizerAgreesWithItself compares what becomes of a report without functions with
// what the sanitizer prints when it symbolizes itself.
func TestSanitizerAgreesWithItself(t *testing.T) {
	compilers(t, func(t *testing.T, compiler string) {
		p := compile(t, "asan.c", compiler, "-O1", "-fsanitize=address")
		symbolizer := "ASAN_SYMBOLIZER_PATH=" + testenv.Tool(t, "llvm-symbolizer-19")
		want := frames(p.output(t, symbolizer))
		if len(want) != 5 {
			t.Fatalf("the sanitizer itself says %q", want)
		}
		f := &Filter{Library: p.library, Binaries: []string{p.path}}
		raw := p.output(t, "ASAN_OPTIONS=symbolize=0")
		if got := frames(raw); len(got) != 1 {
			t.Fatalf("the sanitizer alone says %q", got)
		}
		text, _ := rewrite(t, f, raw)
		if got := frames(text); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), raw)
		}
		if again, _ := rewrite(t, f, text); again != text {
			t.Errorf("twice is not the same:\n%s\n%s", text, again)
		}
	})
}

// TestThreadSanitizer looks for the lines of the race, whose order is not certain.
func TestThreadSanitizer(t *testing.T) {
	compilers(t, func(t *testing.T, compiler string) {
		p := compile(t, "tsan.c", compiler, "-O1", "-fsanitize=thread")
		text, _ := rewrite(t, &Filter{Library: p.library, Binaries: []string{p.path}}, p.output(t, "TSAN_OPTIONS=symbolize=0"))
		for _, want := range []string{
			`(?m)^    #0 run .*/?tsan\.c:8(:\d+)? \(prog\+0x[0-9a-f]+\)`,
			`(?m)^    #0 main .*/?tsan\.c:19(:\d+)? \(prog\+0x`,
			`(?m)^    #1 main .*/?tsan\.c:16(:\d+)? \(prog\+0x`,
			`(?m)^SUMMARY: ThreadSanitizer: data race .*/?tsan\.c:(8|19)(:\d+)? in (run|main) ?$`,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	})
}

// TestSanitizerForms gives the forms of a frame that programs print, and what they
// print with a symbolizer.
func TestSanitizerForms(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	source, err := filepath.Abs("testdata/asan.c")
	if err != nil {
		t.Fatal(err)
	}
	at := p.at(t, "main", 0)
	inner := p.at(t, "outer", 0)
	ref := fmt.Sprintf("(/x (1)/prog+%#x) (BuildId: %s)", at, p.id)
	call := fmt.Sprintf("(/x/prog+%#x) (BuildId: %s)", at+1, p.id)
	deep := fmt.Sprintf("(/x/prog+%#x) (BuildId: %s)", inner, p.id)
	for _, test := range []struct{ name, line, want string }{
		{"no function", "    #3 0x5565f8a3  " + ref, "    #3 0x5565f8a3 in main SOURCE:13:33"},
		{"a function", "    #3 0x5565f8a3 in main " + ref, "    #3 0x5565f8a3 in main SOURCE:13:33"},
		{"a function with parameters", "    #3 0x5565f8a3 in main(int, char**) " + ref, "    #3 0x5565f8a3 in main SOURCE:13:33"},
		{"another function", "    #3 0x5565f8a3 in puts " + ref, ""},
		{"a line", "    #3 0x5565f8a3 in main /x.c:3:4", ""},
		{"something before and behind", "\x1b[1mE/app (12): #3 0x5565f8a3  " + ref + "\x1b[0m !", "\x1b[1mE/app (12): #3 0x5565f8a3 in main SOURCE:13:33\x1b[0m !"},
		{"two frames", "#0 0x1  " + deep + "\n#1 0x2 in f /x.c:2:3\n#2 0x5565f8a3  " + ref, "#0 0x1 in inner SOURCE:5:10\n#1 0x1 in outer SOURCE:9:10\n#2 0x2 in f /x.c:2:3\n#3 0x5565f8a3 in main SOURCE:13:33"},
		{"the next stack", "#0 0x1  " + deep + "\n#0 0x2 in f /x.c:2:3", "#0 0x1 in inner SOURCE:5:10\n#1 0x1 in outer SOURCE:9:10\n#0 0x2 in f /x.c:2:3"},
		{"threads", "    #0 <null> <null> " + ref, "    #0 main SOURCE:13:33 " + ref},
		{"threads, a function", "    #0 main <null> " + ref, "    #0 main SOURCE:13:33 " + ref},
		{"threads, a line", "    #0 main /x.c:3:4 " + ref, ""},
		{"llvm", " #3 0x00005565f8a30000 " + call, " #3 0x00005565f8a30000 main SOURCE:13:33"},
		{"llvm, a function", " #3 0x00005565f8a30000 main " + call, " #3 0x00005565f8a30000 main SOURCE:13:33"},
		{"llvm, not a caller", " #3 0x00005565f8a30000 main " + ref, ""},
		{"llvm, interrupted by a signal", " #2 0x00005565f8a30000 __restore_rt (/x/libc.so.6+0x1)\n #3 0x00005565f8a30000 " + ref, " #2 0x00005565f8a30000 __restore_rt (/x/libc.so.6+0x1)\n #3 0x00005565f8a30000 main SOURCE:13:33"},
		{"an unrelated number", "#0 0x1  " + deep + "\ntext\n#1 0x1234 is a bug", "#0 0x1 in inner SOURCE:5:10\n#1 0x1 in outer SOURCE:9:10\ntext\n#1 0x1234 is a bug"},
		{"summary", "SUMMARY: AddressSanitizer: SEGV " + ref, "SUMMARY: AddressSanitizer: SEGV SOURCE:13:33 in main"},
		{"no frame", "Location is global '<null>' at 0x0 (prog+0x4054)", ""},
		{"no address", "#1 0x (/x+0x1)\n#1 0x1(/x+0x1)\n#1\n#1 \n# 1 0x1 (/x+0x1)\n#99999999999999999999 0x1 (/x+0x1)", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, &Filter{Library: p.library}, test.line)
			want := strings.ReplaceAll(test.want, "SOURCE", source)
			if want == "" {
				want = test.line
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
