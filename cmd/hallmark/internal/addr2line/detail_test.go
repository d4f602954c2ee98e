package addr2line

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// detailBuilds are compilers and options that write DWARF in different ways.
var detailBuilds = [][]string{
	{"g++", "-g"},
	{"g++", "-g", "-O2"},
	{"g++", "-gdwarf-4", "-O2"},
	{"g++", "-gdwarf-3", "-gstrict-dwarf", "-O1"},
	{"clang++-19", "-g"},
	{"clang++-19", "-g", "-O2", "-fdebug-info-for-profiling"},
	{"clang++-19", "-gdwarf-4", "-O2"},
	{"clang++-19", "-gdwarf-5", "-gdwarf64", "-O1"},
	{"clang++-19", "-gline-tables-only", "-O2"},
	{"clang++-19", "-O2"},
	{"clang++-19", "-gsplit-dwarf", "-g", "-O1"},
}

// chosenBuilds returns detailBuilds, or a few of them where little is tested.
func chosenBuilds() [][]string {
	if testenv.Brief() {
		return detailBuilds[4:7]
	}
	return detailBuilds
}

// buildDetail compiles testdata/detail.cc by its relative path.
func buildDetail(t *testing.T, compiler string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "detail")
	c := exec.Command(testenv.Tool(t, compiler), append(args, "-Iinclude", "-o", out, "detail.cc")...)
	c.Dir = "testdata"
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %s", compiler, args, text)
	}
	return out
}

// codeOf returns addresses of the code of functions, and none between them.
func codeOf(t *testing.T, name string) []string {
	t.Helper()
	var code []string
	for _, s := range readSymbols(t, name) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			for v := s.Value; v < s.Value+s.Size; v += 3 {
				code = append(code, fmt.Sprintf("%#x", v))
			}
		}
	}
	return code
}

// dataOf returns addresses of data: where each begins, in it, and its last byte.
func dataOf(t *testing.T, name string) []string {
	t.Helper()
	var data []string
	for _, s := range readSymbols(t, name) {
		if elf.ST_TYPE(s.Info) == elf.STT_OBJECT && s.Section != elf.SHN_UNDEF {
			for _, v := range []uint64{s.Value, s.Value + s.Size/2, s.Value + max(s.Size, 1) - 1} {
				data = append(data, fmt.Sprintf("%#x", v))
			}
		}
	}
	return data
}

// ask asks one question for each address, and compares all that is printed.
func (c detailCase) ask(t *testing.T, name string, questions []string, prefix string, args ...string) {
	t.Helper()
	stdin := prefix + strings.Join(questions, "\n"+prefix) + "\n"
	args = append(args, "-e", name)
	got, gotErr, _ := ours(t, c.program, strings.NewReader(stdin), args...)
	want, wantErr, _ := theirs(t, c.program, strings.NewReader(stdin), args...)
	if got != want {
		t.Errorf("%s %v %s: %s", c.program, args, prefix, firstDifference(got, want))
	}
	if gotErr != wantErr {
		t.Errorf("%s %v complains\n%s\nwant\n%s", c.program, args, gotErr, wantErr)
	}
}

type detailCase struct{ program Program }

// firstDifference returns the first lines that differ, and those before.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d of %d is\n%s\nwant\n%s\nbehind\n%s", i, len(w), g[i], w[i], strings.Join(w[max(0, i-6):i], "\n"))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// TestDetail compares what only llvm's programs print, byte for byte, for every third
// address of the code: files and addresses where functions start, discriminators, lines
// of source, paths and JSON.
func TestDetail(t *testing.T) {
	for i, b := range chosenBuilds() {
		t.Run(strings.Join(b, " "), func(t *testing.T) {
			name := buildDetail(t, b[0], b[1:]...)
			code := codeOf(t, name)
			for n, args := range []string{
				"--verbose", "--verbose --no-inlines", "--verbose -s -p", "--verbose --relativenames --functions=none", "--relativenames -a",
				"--output-style=JSON", "--output-style=JSON --no-inlines -s", "--output-style=JSON --functions=short -p",
				"--print-source-context-lines=5", "--print-source-context-lines=12 --output-style=JSON -p", "--print-source-context-lines=3 --basenames",
				"--output-style=GNU -p", "--output-style=GNU --verbose", "--functions=none --output-style=JSON",
			} {
				if (i+n)%2 != 0 && !testenv.Thorough() {
					continue // the next build has it
				}
				if b[0] != "g++" && strings.Contains(args, "short") {
					continue // where no entry has a name ours is that of the symbol table
				}
				if !isStartFileKept(b) && (strings.Contains(args, "--verbose") || strings.Contains(args, "JSON")) {
					continue
				}
				detailCase{LLVMSymbolizer}.ask(t, name, code, "", strings.Fields(args)...)
			}
			names := []string{"_Z4workid", "_Z4workid+4", "_Z4workid+0x20", "main", "nosuch", "main+x"}
			detailCase{LLVMSymbolizer}.ask(t, name, names, "", "-a")
			detailCase{LLVMSymbolizer}.ask(t, name, names, "", "--output-style=GNU", "--no-inlines", "-p")
			detailCase{LLVMAddr2line}.ask(t, name, code, "", "-afi")
			detailCase{LLVMAddr2line}.ask(t, name, code, "", "-fC", "--relativenames")
		})
	}
}

// isStartFileKept reports whether llvm-symbolizer knows the file where functions start:
// not where its number stands in the abbreviation, as gcc with DWARF 5 has it.
func isStartFileKept(build []string) bool {
	return build[0] != "g++" || len(build) > 2 && build[1] != "-g"
}

// declared are the lines where data of testdata/detail.cc is declared, and defined.
var declared = map[string][]int{
	"shelf::count": {4, 7}, "buffer": {8}, "wide": {9}, "shop::depth": {11}, "grid": {13}, "chosen": {14}, "reference": {15}, "member": {16},
	"main::counter": {34},
}

// isDeclared reports whether an answer to DATA has a line where it is declared.
func isDeclared(answer string) bool {
	lines := strings.Split(answer, "\n")
	return len(lines) == 3 && slices.ContainsFunc(declared[lines[0]], func(line int) bool {
		return strings.HasSuffix(lines[2], fmt.Sprintf("/testdata/detail.cc:%d", line))
	})
}

// TestData compares DATA, byte for byte but for declarations that llvm-symbolizer loses:
// those whose file stands in the abbreviation, arrays with a bound of one byte that it
// takes for a negative number, and what a class says of its static members.
func TestData(t *testing.T) {
	for _, b := range chosenBuilds() {
		t.Run(strings.Join(b, " "), func(t *testing.T) {
			name := buildDetail(t, b[0], b[1:]...)
			data := dataOf(t, name)
			detailCase{LLVMSymbolizer}.ask(t, name, data, "DATA ", "--output-style=JSON", "-p")
			stdin := "DATA " + strings.Join(data, "\nDATA ") + "\n"
			got, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(stdin), "-s", "-e", name)
			want, _, _ := theirs(t, LLVMSymbolizer, strings.NewReader(stdin), "-s", "-e", name)
			theirs := strings.Split(want, "\n\n")
			same, better := 0, 0
			for i, ours := range strings.Split(got, "\n\n") {
				switch {
				case ours == theirs[i]:
					same++
				case isDeclared(ours) && regexp.MustCompile(`:[?0]$`).MatchString(theirs[i]):
					better++
				default:
					t.Errorf("%s\nwant\n%s", ours, theirs[i])
				}
			}
			t.Logf("%d the same, %d of which theirs has no line", same, better)
		})
	}
}

// TestDataByName asks about data and variables by names, which llvm-symbolizer 19 takes for
// address 0. Answers are those about the addresses.
func TestDataByName(t *testing.T) {
	name := buildDetail(t, "g++", "-g")
	answer := func(question string) string {
		got, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(question+"\n"), "-e", name)
		return got
	}
	for symbol, command := range map[string]string{"grid": "DATA ", "_Z4workid": "FRAME "} {
		want := answer(command + symbolAddress(t, name, symbol))
		if got := answer(command + symbol); got != want || strings.HasPrefix(got, "??") {
			t.Errorf("%s%s answers\n%s\nwant\n%s", command, symbol, got, want)
		}
		if got := answer(command + symbol + "+4"); got != want {
			t.Errorf("%s%s+4 answers\n%s\nwant\n%s", command, symbol, got, want)
		}
	}
	if got := answer("DATA nosuch"); got != "??\n0 0\n??:?\n\n" {
		t.Errorf("what is not there has the answer\n%s", got)
	}
}

// TestDataInSections asks about data in a file that is yet to be linked, whose sections
// all begin at 0.
func TestDataInSections(t *testing.T) {
	name := filepath.Join(t.TempDir(), "detail.o")
	c := exec.Command(testenv.Tool(t, "g++"), "-g", "-fdata-sections", "-ffunction-sections", "-Iinclude", "-c", "-o", name, "detail.cc")
	c.Dir = "testdata"
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s", text)
	}
	got, _, _ := ours(t, LLVMSymbolizer, strings.NewReader("DATA grid\nDATA 0x3\nFRAME main\n"), "-e", name)
	for _, want := range []string{`^grid\n\d+ 60\n/.*/detail\.cc:13\n\n`, `\n\n\w+(::\w+)?\n0 \d+\n/.*/detail\.cc:\d+\n`, `\n\nmain\nargc\n/.*/detail\.cc:33\n`} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestFrame compares FRAME, byte for byte. Ours reads units that were split off, too.
func TestFrame(t *testing.T) {
	for _, b := range chosenBuilds() {
		if strings.Contains(strings.Join(b, " "), "split") {
			continue
		}
		t.Run(strings.Join(b, " "), func(t *testing.T) {
			name := buildDetail(t, b[0], b[1:]...)
			for _, args := range []string{"", "-a", "--output-style=JSON", "--output-style=JSON -p -s"} {
				detailCase{LLVMSymbolizer}.ask(t, name, codeOf(t, name), "FRAME ", strings.Fields(args)...)
			}
		})
	}
}

// TestTagOffset compares FRAME of a function whose variables HWASan gave tags.
func TestTagOffset(t *testing.T) {
	name := filepath.Join(t.TempDir(), "detail.o")
	c := exec.Command(testenv.Tool(t, "clang++-19"), "--target=aarch64-linux-gnu", "-g", "-fsanitize=hwaddress", "-fsanitize-hwaddress-abi=platform",
		"-nostdinc", "-Iinclude", "-c", "-o", name, "detail.cc")
	c.Dir = "testdata"
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s", text)
	}
	stdin := "FRAME 0x8\nFRAME 0x40\n"
	got, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(stdin), "-e", name)
	want, _, _ := theirs(t, LLVMSymbolizer, strings.NewReader(stdin), "-e", name)
	if got != want || !regexp.MustCompile(`(?m)^-?\d+ \d+ \d+$`).MatchString(want) {
		t.Errorf("FRAME answers\n%s\nwant\n%s", got, want)
	}
}
