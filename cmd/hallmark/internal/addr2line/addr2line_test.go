package addr2line

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestProgramOf(t *testing.T) {
	for name, want := range map[string]string{
		"addr2line":                                "addr2line",
		"/opt/bin/addr2line":                       "addr2line",
		"x86_64-linux-gnu-addr2line":               "addr2line",
		"addr2line-2.40":                           "addr2line",
		"llvm-addr2line":                           "llvm-addr2line",
		"/usr/lib/llvm-19/bin/llvm-addr2line-19":   "llvm-addr2line",
		"llvm-symbolizer":                          "llvm-symbolizer",
		"llvm-symbolizer-19":                       "llvm-symbolizer",
		"x86_64-pc-linux-gnu-llvm-symbolizer-19.1": "llvm-symbolizer",
		"hallmark":                                 "",
		"eu-addr2line.bak":                         "",
		"myaddr2line":                              "",
		"addr2line-":                               "",
		"addr2liner":                               "",
		"llvm-symbolizer/hallmark":                 "",
		"":                                         "",
	} {
		got := ""
		if p, ok := ProgramOf(name); ok {
			got = p.String()
		}
		if got != want {
			t.Errorf("%q calls for %q, want %q", name, got, want)
		}
	}
}

// sameCase is a command line, and what is on standard input.
type sameCase struct {
	args  string // words; {} is the program, {WORK} the address of its function work
	stdin string
}

var gnuCases = []sameCase{
	{args: "-e {} {WORK} 0 zz"}, {args: "-a -e {} {WORK} 0"}, {args: "-f -e {} {WORK}"},
	{args: "-afie{}", stdin: "{WORK}\n"}, {args: "--exe={} --func --inl --pretty -C {WORK}"}, {args: "-apfis --exe {} {WORK} 1"},
	{args: "-e nofile 1"}, {args: "-e . 1"}, {args: "-e /dev/null 1"}, {args: "-e text 1"}, {args: "-e empty 1"}, {args: "-e text/x 1"},
	{args: "-e lib.a 1"}, {args: "1"}, {args: "-e {} -e nofile 1"},
	{args: "-b foo -e {} 1"}, {args: "-b elf64-x86-64 -e {} {WORK}"}, {args: "--target"}, {args: "-e"},
	{args: "-j .foo -e {} 1"}, {args: "--section .text -f -e {} 10"}, {args: "-j.text -fe {} 0x10"}, {args: "-j .text -fe {} fffffff"},
	{args: "-x"}, {args: "--foo"}, {args: "--version=3"}, {args: "--re -e {} {WORK}"}, {args: "--de -e {} {WORK}"}, {args: "--demangle=foo -e {} 1"},
	{args: "--demangle=auto -fe {} {WORK}"}, {args: "--demangle=none -fe {} {WORK}"}, {args: "-rR --no-recursion-limit -e {} {WORK}"},
	{args: "{WORK} -e {} {WORK} -f"}, {args: "@words -e {}"}, {args: "@nofile -e {}"}, {args: "-- -e {}"}, {args: "-e {} -- {WORK} -1"},
	{args: "-afe {} work work+4 work+0x10 work+010 foo foo+1 +5 add add+1 work+0x14+-4 work+zz x+1+2 ++3 w+"},
	{args: "-e {}", stdin: ""},
	{args: "-afe {}", stdin: "work +4\nwork+ 4\n work+1\nwork zz\n  add\n0x\n0xg\n-1\n+1\n\n\n \n{WORK}zz\n\t{WORK}\r\n0X1\n1ffffffffffffffff\n{WORK}"},
	{args: "-ae {}", stdin: strings.Repeat("0", 250) + "\n{WORK}\n" + strings.Repeat("1", 99) + "\n" + strings.Repeat("1", 98) + "\n"},
}

var llvmCases = []sameCase{
	{args: "-e {} {WORK} 0 zz"}, {args: "--obj={} {WORK}"}, {args: "-a -p --obj {} {WORK} 0"}, {args: "-apfCsi -e={} {WORK}"}, {args: "-afe={} {WORK}"},
	{args: "--no-inlines -e {} {WORK}"}, {args: "--functions=none -e {} {WORK}"}, {args: "-f=short -e {} {WORK}"}, {args: "--inlining=true -demangle=false -e{} {WORK}"},
	{args: "--output-style=GNU -e {} {WORK} 0"}, {args: "--output-style GNU -p -a -e {} {WORK} 0"}, {args: "--output-style=LLVM -e {} {WORK}"},
	{args: "--adjust-vma=0x10 -ae {} {WORK}"}, {args: "--relative-address --untag-addresses --no-debuginfod --default-arch=x86_64 --dwp x -e {} {WORK}"},
	{args: "-e nofile 1"}, {args: "--output-style=JSON -e nofile 1"}, {args: "-e . 1"}, {args: "-e text 1"}, {args: "-e lib.a 1"}, {args: "-e empty 1"},
	{args: "--foo -e {} 1"}, {args: "-e"}, {args: "-x -e {} 1"}, {args: "-inlines"}, {args: "--debug-file-directory"},
	{args: "--build-id=abcd -e {} 1"}, {args: "--build-id=abcd 1 2"}, {args: "-e {} work work+4 work+0x10 work+ 1x"},
	{args: "@words -e {}"},
	{stdin: "{} {WORK}\n{} 0\nCODE {} {WORK}\r\n\"{}\" {WORK}\n'{}' {WORK}\nFILE:{} {WORK}\nFILE: {}  {WORK} more\n{}:x86_64 {WORK}\n"},
	{stdin: "x\n\n \n{} zz\n{} 1x\nnofile 1\nnofile 2\nFILE:\nBUILDID:\nBUILDID:zz 1\nFILE:FILE:x 1\nFILE:BUILDID:x 1\n\"x 1\nCODE\nCODE {}\n{} 0xfffffffffffffffff\n"},
	{stdin: "BUILDID:abcd 1\nDATA nofile 1\nFRAME nofile 1\nDATA {} 0\nFRAME {} 0\nDATA {} {WORK}\n{} work+1\n"},
	{args: "-e {}", stdin: "{WORK}\nDATA {WORK}\nCODE {WORK}\nFILE:{} {WORK}\nBUILDID:abcd {WORK}\n{} {WORK}\n"},
	{args: "--output-style=JSON", stdin: "x\n\nnofile 1\nnofile 2\nDATA {} {WORK}\nFRAME {} 0\nBUILDID:abcd 1\nBUILDID:abc 1\n{} wo\"rk\n{} a\bb\fc\x1f\x7f\xff\\ufffd\xe2\x80\xa8\n\"\xc3\xa9<&>\t\" 1\n"},
	{stdin: strings.Repeat("x", 1022) + "\n" + strings.Repeat("y", 3000) + " 1\n{} {WORK}"},
}

// bothCases are those of llvmCases that llvm-addr2line answers in another way.
var bothCases = []sameCase{
	{args: "-e {} {WORK} 0 zz 10 010 work"}, {args: "-afCi -e {} {WORK} work+1"}, {args: "-pfe {} {WORK}"},
	{args: "--output-style=LLVM -e {} {WORK} 1x"}, {args: "--output-style=JSON -e nofile 1"}, {args: "--functions=none --inlines -e {} {WORK}"},
	{stdin: "{} {WORK}\nDATA {} {WORK}\nFRAME {} 0\nx\n\nnofile 1\n"},
}

// TestSame compares what is printed, also on standard error, and exit statuses.
func TestSame(t *testing.T) {
	program := build(t, "inlines.c", "gcc", "-g", "-O2")
	work := symbolAddress(t, program, "work")
	inDirectory(t)
	for p, cases := range map[Program][]sameCase{GNU: gnuCases, LLVMSymbolizer: llvmCases, LLVMAddr2line: bothCases} {
		for _, c := range cases {
			fill := strings.NewReplacer("{}", program, "{WORK}", work).Replace
			args, stdin := strings.Fields(fill(c.args)), fill(c.stdin)
			gotOut, gotErr, gotStatus := ours(t, p, strings.NewReader(stdin), args...)
			wantOut, wantErr, wantStatus := theirs(t, p, strings.NewReader(stdin), args...)
			if p == GNU {
				wantOut = discriminator.ReplaceAllString(wantOut, "")
			}
			if gotOut != wantOut {
				t.Errorf("%s %s <<%q prints\n%s\nwant\n%s", p, c.args, c.stdin, gotOut, wantOut)
			}
			if gotErr, wantErr := complaint(gotErr), complaint(wantErr); gotErr != wantErr {
				t.Errorf("%s %s <<%q complains\n%s\nwant\n%s", p, c.args, c.stdin, gotErr, wantErr)
			}
			if gotStatus != wantStatus {
				t.Errorf("%s %s <<%q: status %d, want %d", p, c.args, c.stdin, gotStatus, wantStatus)
			}
		}
	}
}

// discriminator is what we never print as GNU addr2line.
var discriminator = regexp.MustCompile(` \(discriminator \d+\)`)

// complaint is what was said on standard error, without the usage behind it, which is
// in our words.
func complaint(text string) string {
	text, _, _ = strings.Cut(text, "Usage: ")
	return text
}

// inDirectory changes to a directory with files that are no programs.
func inDirectory(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"text": "no program", "empty": "", "lib.a": "!<arch>\n", "words": "-a \"0\" '1'\n\t-\\f 2",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// TestConversation asks one thing after another and waits for each answer, as perf and
// sanitizers do: it hangs if an answer is kept back.
func TestConversation(t *testing.T) {
	program := build(t, "inlines.c", "gcc", "-g", "-O2")
	work := symbolAddress(t, program, "work")
	for _, c := range []struct {
		program  Program
		args     []string
		question string
		lines    int // of an answer
	}{
		{GNU, []string{"-fe", program}, work, 2},
		{LLVMAddr2line, []string{"-fe", program}, work, 2},
		{LLVMSymbolizer, nil, program + " " + work, 3},
	} {
		questions, ask := io.Pipe()
		hear, answers := io.Pipe()
		done := make(chan int)
		go func() {
			done <- Run(context.Background(), c.program, "x", c.args, World{
				Stdin: questions, Stdout: answers, Stderr: io.Discard, Getenv: os.Getenv,
			})
		}()
		in := bufio.NewReader(hear)
		for range 3 {
			fmt.Fprintln(ask, c.question)
			for i := range c.lines {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 && line != "work\n" {
					t.Errorf("%s answers %q", c.program, line)
				}
			}
		}
		ask.Close()
		if status := <-done; status != 0 {
			t.Errorf("%s ends with status %d", c.program, status)
		}
	}
}

// symbolAddress returns the address of a function by nm.
func symbolAddress(t testing.TB, program, name string) string {
	t.Helper()
	for line := range strings.Lines(toolOutput(t, "nm", program)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == name {
			return "0x" + f[0]
		}
	}
	t.Fatalf("%s has no %s", program, name)
	return ""
}

// TestShortRustNames has names as rustc mangles them (its RFC 2603, and the form before).
func TestShortRustNames(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN4core3fmt5Write9write_str17h0123456789abcdefE":                                          "write_str",
		"_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17h0123456789abcdefE": "fmt",
		"_RNvNtCs1234_7mycrate3foo3bar":                                                             "bar",
		"_RINvNtC3std3mem8align_ofjEB2_":                                                            "align_of::<usize>",
		"main":                                                                                      "main",
	} {
		if got := shortName(name); got != want {
			t.Errorf("short name of %s is %s, want %s", name, got, want)
		}
	}
}
