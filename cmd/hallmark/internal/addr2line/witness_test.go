package addr2line

import (
	"debug/elf"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// witnessFile is a file that the originals and we are asked about.
type witnessFile struct {
	name      string
	addresses []uint64
	symbols   []elf.Symbol // with those of its debug file
}

// witnessFiles are programs in C, C++ and Go, and the C library with its debug file.
func witnessFiles(t *testing.T) []witnessFile {
	t.Helper()
	libc, _ := filepath.Glob("/lib/*-linux-gnu/libc.so.6")
	testenv.Need(t, len(libc) == 1, "a C library")
	names := []string{
		build(t, "inlines.c", "gcc", "-g", "-O2"),
		build(t, "names.cc", "g++", "-g", "-O2"),
		build(t, "prog.go", "go", "build"),
		libc[0],
	}
	var files []witnessFile
	for _, name := range names {
		f := witnessFile{name: name, addresses: codeAddresses(t, name, 3000), symbols: readSymbols(t, name)}
		if name == libc[0] {
			debug := debugFileOf(t, name)
			testenv.Need(t, debug != "", "libc6-dbg")
			f.symbols = append(f.symbols, readSymbols(t, debug)...)
		}
		files = append(files, f)
	}
	return files
}

func readSymbols(t *testing.T, name string) []elf.Symbol {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	return append(static, dynamic...)
}

// debugFileOf returns the path of a file's debug file, or "" if it is not installed.
func debugFileOf(t *testing.T, name string) string {
	for line := range strings.Lines(toolOutput(t, "readelf", "-nW", name)) {
		if _, id, ok := strings.Cut(strings.TrimSpace(line), "Build ID: "); ok {
			found, _ := filepath.Glob("/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug")
			return strings.Join(found, "")
		}
	}
	return ""
}

// isIn reports whether a function with this name has an address, or any function if
// the name is empty.
func (f *witnessFile) isIn(v uint64, name string) bool {
	return slices.ContainsFunc(f.symbols, func(s elf.Symbol) bool {
		typ := elf.ST_TYPE(s.Info)
		base, _, _ := strings.Cut(s.Name, "@")
		return s.Section != elf.SHN_UNDEF && (typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC || typ == elf.STT_NOTYPE) &&
			v-s.Value < max(s.Size, 1) && (name == "" || base == name)
	})
}

// place is a frame as it is printed.
type place struct{ name, file, line string }

func (p place) isUnknown() bool { return p.name == "??" && p.file == "??" }

// parseAnswers reads what was printed with -a and -f: for each address a line with it,
// and two lines for each frame.
func parseAnswers(t *testing.T, text string) [][]place {
	t.Helper()
	var answers [][]place
	var name string
	isName := true
	for line := range strings.Lines(discriminator.ReplaceAllString(text, "")) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
		case strings.HasPrefix(line, "0x"):
			answers, isName = append(answers, nil), true
		case isName:
			name, isName = line, false
		default:
			file, number, ok := strings.Cut(line, ":")
			if !ok || len(answers) == 0 {
				t.Fatalf("line %q", line)
			}
			last := &answers[len(answers)-1]
			*last, isName = append(*last, place{name, file, number}), true
		}
	}
	return answers
}

// TestAgainstOriginals compares answers for thousands of addresses. Every difference
// must be of a known class.
func TestAgainstOriginals(t *testing.T) {
	for _, f := range witnessFiles(t) {
		t.Run(filepath.Base(f.name), func(t *testing.T) {
			compareAnswers(t, &f, GNU, explainGNU, "-afie", f.name)
			compareAnswers(t, &f, LLVMSymbolizer, explainLLVM, "-a", "--no-demangle", "-e", f.name)
			if strings.HasPrefix(filepath.Base(f.name), "libc") {
				return
			}
			compareAnswers(t, &f, LLVMSymbolizer, explainLLVM, "-a", "--no-demangle", "--no-inlines", "-e", f.name)
			compareAnswers(t, &f, LLVMAddr2line, explainLLVM, "-afie", f.name)
			compareShort(t, &f)
			compareJSON(t, &f)
		})
	}
}

// explainGNU returns why GNU addr2line says something else, or "".
func explainGNU(f *witnessFile, v uint64, want, got []place) string {
	if got[0].isUnknown() {
		if f.isIn(v, "") {
			return ""
		}
		return "between functions: theirs is the function before"
	}
	if isPLT(got) {
		return "entry of a procedure linkage table: they have no name for it"
	}
	if len(want) != len(got) {
		return ""
	}
	class := ""
	for i, w := range want {
		g := got[i]
		switch {
		case w == g:
		case g.name == "??" && len(want) == 1 && w.line == g.line && !f.isIn(v, w.name):
			class = "line of no function: theirs has the name of the function before"
		case w.name != g.name && i == 0 && len(want) > 1 && w.name == want[len(want)-1].name && w.file == g.file && w.line == g.line:
			class = "inlined in Go: theirs is the name of the outermost function"
		case w.name != g.name && len(want) == 1 && f.isIn(v, w.name) && w.line == g.line:
			class = "another symbol at the address"
		case len(want) == 1 && w.name == shortName(g.name) && f.isIn(v, g.name) && w.file == g.file && w.line == g.line:
			class = "local to its file: theirs has the last part of the name where the function has several parts"
		case w.name == g.name && w.line == "?" && g.line == "?" && g.file == "??":
			class = "no line: theirs has a file of the symbol table"
		case w.name == g.name && w.line == g.line && isJoinedTwice(w.file, g.file):
			class = "relative directory of compilation: theirs is joined twice"
		case w.name == g.name && w.line == g.line:
			class = "another file: llvm-symbolizer has ours"
		default:
			return ""
		}
	}
	return class
}

// isJoinedTwice reports whether theirs is ours with its first directories in front once
// more: "./intl/./intl/a.c" and "./intl/a.c".
func isJoinedTwice(theirs, ours string) bool {
	twice, ok := strings.CutSuffix(theirs, ours)
	return ok && !path.IsAbs(ours) && twice != ""
}

func isPLT(places []place) bool {
	return len(places) == 1 && strings.HasSuffix(places[0].name, "@plt") && places[0].file == "??"
}

// explainLLVM returns why llvm-symbolizer says something else, or "".
func explainLLVM(f *witnessFile, v uint64, want, got []place) string {
	last := len(want) - 1
	switch {
	case len(got) != len(want) || !slices.Equal(got[:last], want[:last]):
		return ""
	case got[0].isUnknown() && !f.isIn(v, ""):
		return "between functions: theirs is a symbol without a size, or a line"
	case isPLT(got) && !f.isIn(v, ""):
		return "entry of a procedure linkage table: they have no name for it"
	}
	w, g := want[last], got[last]
	base, _, _ := strings.Cut(w.name, "@")
	switch {
	case w.isUnknown() && g.file == "??" && f.isIn(v, g.name):
		return "symbol of the debug file: theirs does not read it"
	case w.isUnknown() && strings.HasPrefix(g.line, "0"):
		return "symbol without a size: ours reaches to the next one"
	case w.file != g.file || w.line != g.line:
		return ""
	case base == g.name:
		return "versioned symbol: theirs has the version"
	case f.isIn(v, base) && f.isIn(v, g.name):
		return "several symbols at an address: theirs is another one"
	case f.isIn(v, base) && strings.HasPrefix(base, g.name+"."):
		return "part of a function: theirs has the name of the part"
	case f.isIn(v, g.name) && strings.HasPrefix(g.name, base+"."):
		return "part of a function: ours has the name of the part, from the debug file"
	}
	return ""
}

// compareAnswers asks the original and us about all addresses of a file.
func compareAnswers(t *testing.T, f *witnessFile, p Program, explain func(f *witnessFile, v uint64, want, got []place) string, args ...string) {
	t.Helper()
	theirText, _, _ := theirs(t, p, strings.NewReader(asInput(f.addresses)), args...)
	ourText, _, _ := ours(t, p, strings.NewReader(asInput(f.addresses)), args...)
	want, got := parseAnswers(t, theirText), parseAnswers(t, ourText)
	if len(want) != len(f.addresses) || len(got) != len(want) {
		t.Fatalf("%v: %d answers to %d addresses, want %d", args, len(got), len(f.addresses), len(want))
	}
	classes := map[string]int{}
	for i, v := range f.addresses {
		if slices.Equal(want[i], got[i]) {
			classes["the same"]++
			continue
		}
		class := explain(f, v, want[i], got[i])
		if class == "" {
			t.Errorf("%v %#x:\n%q\nwant\n%q", args, v, got[i], want[i])
		}
		classes[class]++
	}
	for class, n := range classes {
		t.Logf("%v: %d %s", args, n, class)
	}
}

// compareShort compares short names, but for template arguments, which compilers spell
// in their own ways.
func compareShort(t *testing.T, f *witnessFile) {
	t.Helper()
	args := []string{"-a", "--functions=short", "-e", f.name}
	theirText, _, _ := theirs(t, LLVMSymbolizer, strings.NewReader(asInput(f.addresses)), args...)
	ourText, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(asInput(f.addresses)), args...)
	want, got := parseAnswers(t, theirText), parseAnswers(t, ourText)
	for i, v := range f.addresses {
		if len(got[i]) != len(want[i]) {
			t.Errorf("%#x: %d frames, want %d", v, len(got[i]), len(want[i]))
			continue
		}
		for j, w := range want[i] {
			theirs, _, _ := strings.Cut(w.name, "<")
			ours, _, _ := strings.Cut(got[i][j].name, "<")
			if theirs != ours && f.isIn(v, "") {
				t.Errorf("%#x: short name %q, want %q", v, got[i][j].name, w.name)
			}
		}
	}
}

// compareJSON compares JSON, but for what is between functions. Theirs loses the file
// where a function starts if its number stands in the abbreviation, as gcc puts it.
func compareJSON(t *testing.T, f *witnessFile) {
	t.Helper()
	stdin := strings.ReplaceAll(asInput(f.addresses[:500]), "0x", f.name+" 0x")
	theirText, _, _ := theirs(t, LLVMSymbolizer, strings.NewReader(stdin), "--output-style=JSON", "--no-demangle")
	ourText, _, _ := ours(t, LLVMSymbolizer, strings.NewReader(stdin), "--output-style=JSON", "--no-demangle")
	want, got := strings.Split(theirText, "\n"), strings.Split(ourText, "\n")
	if len(got) != len(want) || len(got) != 501 {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	lost := 0
	for i, v := range f.addresses[:500] {
		if got[i] == want[i] || !f.isIn(v, "") {
			continue
		}
		if !isStartFileLost(t, want[i], got[i]) {
			t.Errorf("%s, want %s", got[i], want[i])
		}
		lost++
	}
	t.Logf("%d of 500 differ in the file where a function starts: theirs has none", lost)
}

// isStartFileLost reports whether answers in JSON differ in nothing but that theirs
// has no file where a function starts.
func isStartFileLost(t *testing.T, theirs, ours string) bool {
	t.Helper()
	var want, got answerJSON
	if json.Unmarshal([]byte(theirs), &want) != nil || json.Unmarshal([]byte(ours), &got) != nil || len(*want.Symbol) != len(*got.Symbol) {
		return false
	}
	for i, w := range *want.Symbol {
		if w.StartFileName == "" {
			(*got.Symbol)[i].StartFileName = ""
		}
	}
	return mustMarshal(t, got) == mustMarshal(t, want)
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDemangling compares readable names with those of c++filt and llvm-cxxfilt.
func TestDemangling(t *testing.T) {
	names := mangledNames(t, build(t, "names.cc", "g++", "-g", "-O1"))
	for _, c := range []struct {
		tool     string
		args     []string
		demangle demangler
	}{
		{"c++filt", []string{"--no-verbose"}, demangleGNU}, // as addr2line does it
		{"llvm-cxxfilt-19", nil, demangleLLVM},
	} {
		input := strings.Join(names, "\n") + "\n"
		lines := strings.Split(strings.TrimSuffix(filter(t, input, c.tool, c.args...), "\n"), "\n")
		if len(lines) != len(names) {
			t.Fatalf("%s: %d lines for %d names", c.tool, len(lines), len(names))
		}
		classes := map[string]int{}
		for i, want := range lines {
			got := c.demangle(names[i])
			if got == want {
				classes["the same"]++
				continue
			}
			class := explainFilt(names[i], want, got)
			if class == "" {
				t.Errorf("%s: %s\nis %s\nwant %s", c.tool, names[i], got, want)
			}
			classes[class]++
		}
		for class, n := range classes {
			t.Logf("%s: %d %s", c.tool, n, class)
		}
	}
}

// explainFilt returns why a demangler writes something else, or "".
func explainFilt(name, want, got string) string {
	switch {
	case want == name:
		return "theirs does not know it"
	case strings.ReplaceAll(want, " ", "") == strings.ReplaceAll(got, " ", ""):
		return "blanks between angle brackets"
	}
	return ""
}

// mangledNames returns the mangled names of a program and of the C++ library.
func mangledNames(t *testing.T, program string) []string {
	t.Helper()
	library, _ := filepath.Glob("/usr/lib/*-linux-gnu/libstdc++.so.6")
	testenv.Need(t, len(library) == 1, "libstdc++")
	var names []string
	for _, file := range append(library, program) {
		for _, s := range readSymbols(t, file) {
			if name, _, _ := strings.Cut(s.Name, "@"); isMangled(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 4000 {
		t.Fatalf("only %d names", len(names))
	}
	return names
}
