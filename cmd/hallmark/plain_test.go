package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"hallmark/internal/testenv"
)

// steering is what somebody may put into any name: sequences that clear a screen, also of 8
// bits; ends of lines before a line that Hallmark never printed; controls of direction.
const steering = "\x1b[2J\u009b2J\x9b2J\r\nhallmark: all is well\u202e\u2066\a"

// spinning is a program whose source, thread and function have such names. It runs until its
// standard input ends, with an argument not at all.
const spinning = `#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>
volatile unsigned long n;
#line 7 "a\033[2J\nhallmark: all is well\342\200\256.c"
__attribute__((noinline)) void spin(void) { for (int i = 0; i < 1000000; i++) n++; }
int main(int argc, char **argv)
{
	char c;
	prctl(PR_SET_NAME, "\033[2J\nhallmark:\342");
	fcntl(0, F_SETFL, O_NONBLOCK);
	while (argc < 2 && read(0, &c, 1) != 0)
		spin();
}
`

// steeringProgram makes the program, in a file of such a name.
func steeringProgram(t *testing.T) string {
	t.Helper()
	gcc, objcopy := testenv.Tool(t, "gcc"), testenv.Tool(t, "objcopy")
	dir := t.TempDir()
	source, built := filepath.Join(dir, "source.c"), filepath.Join(dir, "built")
	if err := os.WriteFile(source, []byte(spinning), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "prog"+steering)
	for _, cmd := range [][]string{
		{gcc, "-g", "-O1", "-no-pie", "-Wl,--build-id", "-o", built, source},
		// The name that debug information gives is the source's; this one is the linker's.
		{objcopy, "--redefine-sym", "spin=spin" + strings.ReplaceAll(steering, "\r", ""), built, program},
	} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", cmd, err, out)
		}
	}
	return program
}

// TestNamesSteerNoTerminal runs every verb that prints names which others chose.
func TestNamesSteerNoTerminal(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to see all that ps and exec show
	recording.Lock()
	defer recording.Unlock()
	program := steeringProgram(t)
	dir := t.TempDir()
	at, file := addressOf(t, program, "spin")

	running := exec.Command(program)
	stdin, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); running.Wait() }()
	pid := strconv.Itoa(running.Process.Pid)
	bare := filepath.Join(dir, "bare"+steering)
	if out, err := exec.Command(testenv.Tool(t, "strip"), "-o", bare, program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	profile := filepath.Join(dir, "out.pb.gz")
	damaged := filepath.Join(dir, "damaged"+steering)
	if err := os.WriteFile(damaged, []byte("\x7fELF"+steering), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, args := range [][]string{
		{"record", "-d", "500ms", "-o", profile, "-p", pid},
		{"report", profile}, {"report", "--top", "0", profile}, {"report", "--json", profile}, {"report", "--tree", profile},
		{"report", "--tree", "--json", profile}, {"report", "--diff", profile, profile}, {"report", "--json", "--diff", profile, profile},
		{"top", "-p", pid, "--rounds", "1", "--interval", "300ms"}, {"top", "-p", pid, "--rounds", "1", "--interval", "300ms", "--json"},
		{"convert", "--format", "folded", "-o", "-", profile},
		{"convert", "-o", filepath.Join(dir, "perf.data"), profile}, {"report", filepath.Join(dir, "perf.data")},
		{"inject", "-o", filepath.Join(dir, "filled.data"), filepath.Join(dir, "perf.data")},
		{"inject", "-o", filepath.Join(dir, "no", steering), filepath.Join(dir, "perf.data")},
		{"id", program}, {"id", "-v", program}, {"id", pid}, {"id", damaged}, {"id", program + "gone"}, {"id", "--json", program},
		{"maps", pid}, {"maps", "--json", pid}, {"ps"}, {"ps", program}, {"ps", pid}, {"ps", "--json", program},
		{"addr", pid, at}, {"addr", "--json", pid, at}, {"exec", "--", program, steering}, {"exec", "--json", "--", program, steering},
		{"index", program}, {"index", "--list"}, {"index", "-o", filepath.Join(dir, "index"+steering), program},
		{"index", "--check", filepath.Join(dir, "index"+steering)}, {"index", "--dump", filepath.Join(dir, "index"+steering)},
		{"lookup", program, file}, {"lookup", "--json", program, file}, {"lookup", bare, file}, {"lookup", damaged, "1"},
		{"unwind", "--check", file, program}, {"unwind", program, bare, damaged}, {"unwind", "--stats", program, bare},
		{"symbolize", "--trust-paths", text(t, program, at)}, {"symbolize", "--json", "--trust-paths", text(t, program, at)},
		{"addr2line", "-e", damaged, at}, {steering}, {"report", damaged}, {"report", "--" + steering}, {"view", "--no-browser", damaged},
		{"doctor"}, {"census"}, {"push", "--server", "http://127.0.0.1:1", program, damaged}, {"serve", "--tokens", damaged}, {"serve", "gc", "--store", damaged}, {"serve", "pin", steering},
	} {
		checkPlain(t, args, run(t, dir, args))
	}
}

// untested are the verbs that print no name which another program chose.
var untested = []string{"bench", "man", "help", "completion", "version"}

// TestEveryVerbIsAskedForNames wants a new verb in TestNamesSteerNoTerminal.
func TestEveryVerbIsAskedForNames(t *testing.T) {
	source, err := os.ReadFile("plain_test.go")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.Command("hallmark", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(help), "hallmark [command]\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	verbs := 0
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "  ") {
			continue // a group's name
		}
		verb := strings.Fields(line)[0]
		verbs++
		if !slices.Contains(untested, verb) && !bytes.Contains(source, []byte(`{"`+verb+`"`)) {
			t.Errorf("%s is not asked", verb)
		}
	}
	if verbs < 20 {
		t.Errorf("help lists %d verbs", verbs)
	}
}

// run returns all that a verb prints. It may fail.
func run(t *testing.T, dir string, args []string) []byte {
	t.Helper()
	cmd := exec.Command("hallmark", args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "DEBUGINFOD_URLS=")
	out, _ := cmd.CombinedOutput()
	return out
}

func checkPlain(t *testing.T, args []string, out []byte) {
	t.Helper()
	if len(out) == 0 {
		return
	}
	if !utf8.Valid(out) {
		t.Errorf("%q prints what is no UTF-8", args)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "hallmark: all is well") {
			t.Errorf("%q prints a forged line", args)
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }); i >= 0 {
			t.Errorf("%q prints %+q", args, line[max(0, i-40):min(len(line), i+40)])
		}
	}
}

// addressOf returns the address of a function and its offset in the file, in hexadecimal.
func addressOf(t *testing.T, program, function string) (at, offset string) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nm"), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && strings.HasPrefix(words[2], function) {
			v, err := strconv.ParseUint(words[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%x", v), fmt.Sprintf("%x", v-0x400000) // of a small program, not PIE
		}
	}
	t.Fatalf("%s has no function %s:\n%s", program, function, out)
	return "", ""
}

// text returns a file of a text with a frame of the program, as a sanitizer writes it.
func text(t *testing.T, program, at string) string {
	t.Helper()
	dir := t.TempDir()
	link := filepath.Join(dir, "prog") // the text itself is copied as it is
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "log")
	if err := os.WriteFile(name, []byte("    #0 0x"+at+"  ("+link+"+0x"+at+")\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestNamesForgeNoAnswer asks in place of the programs whose answers others read, a line each:
// a name with the end of a line would answer for what is asked next.
func TestNamesForgeNoAnswer(t *testing.T) {
	program := steeringProgram(t)
	at, _ := addressOf(t, program, "spin")
	at = "0x" + at
	for _, args := range [][]string{
		{"--as=addr2line", "-f", "-e", program, at, "0"},
		{"--as=llvm-addr2line", "-f", "-e", program, at, "0"},
		{"--as=llvm-symbolizer", "--output-style=GNU", "-e", program, at, "0"},
		{"--as=addr2line", "-p", "-f", "-e", program, at, "0"},
	} {
		out := run(t, t.TempDir(), append([]string{"addr2line"}, args...))
		want := 4
		if slices.Contains(args, "-p") {
			want = 2
		}
		if got := bytes.Count(out, []byte("\n")); got != want || bytes.Contains(out, []byte("\nhallmark")) {
			t.Errorf("%q: %d lines, want %d:\n%+q", args, got, want, out)
		}
		if !bytes.Contains(out, []byte("\x1b[2J")) {
			t.Errorf("%q: other bytes are not as the original prints them: %+q", args, out)
		}
	}
}
