package symbol

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// realFiles are ELF files that nobody made for these tests: with .symtab and
// without, C, C++ and Go, hand-written assembler, debug files.
func realFiles(t testing.TB) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6",
		"/lib/*-linux-gnu/libm.so.6",
		"/usr/lib/*-linux-gnu/libcrypto.so.*",
		"/usr/lib/*-linux-gnu/ld-linux-*.so.*",
		"/usr/lib/*-linux-gnu/libstdc++.so.6",
		"/usr/lib/*-linux-gnu/libpython3*.so.1.0",
		"/usr/bin/perl",
		"/usr/bin/readelf",
		"/usr/local/go/bin/go",
		"/usr/local/go/pkg/tool/*/link",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			files = append(files, name)
			if debug := debugFile(t, name); debug != "" {
				files = append(files, debug)
			}
		}
	}
	testenv.Need(t, len(files) >= 10, "libraries of a distribution, libc6-dbg and Go")
	if testenv.Brief() {
		files = slices.DeleteFunc(files, func(name string) bool { return !isSmall(t, name) })
	}
	return files
}

// isSmall reports whether the race detector lets tests look at a whole file in seconds.
func isSmall(t testing.TB, name string) bool {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size() < 3<<20
}

// debugFile returns the path of a file's debug file, or "" if it is not installed.
func debugFile(t testing.TB, name string) string {
	for _, line := range output(t, nil, "readelf", "-nW", name) {
		if _, id, ok := strings.Cut(line, "Build ID: "); ok {
			debug := filepath.Join("/usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
			if _, err := os.Stat(debug); err == nil {
				return debug
			}
		}
	}
	return ""
}

// goRoot returns where Go is installed.
func goRoot(t testing.TB) string {
	t.Helper()
	return output(t, nil, "go", "env", "GOROOT")[0]
}

// goTool returns the path of the go command, a large program in Go, or of one that is not
// so large for the race detector.
func goTool(t testing.TB) string {
	name := "go"
	if testenv.Brief() {
		name = "gofmt"
	}
	return filepath.Join(goRoot(t), "bin", name)
}

func open(t testing.TB, name string) *File {
	t.Helper()
	f, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// random returns the same random numbers in every run.
func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// textAddresses returns n random addresses of the file's code.
func textAddresses(t testing.TB, facts *readelfFacts, n int) []addr.Virt {
	t.Helper()
	total := uint64(0)
	for _, s := range facts.text {
		total += s.size
	}
	if total == 0 {
		t.Fatal("no code")
	}
	r := random()
	addresses := make([]addr.Virt, n)
	for i := range addresses {
		at := r.Uint64N(total)
		for _, s := range facts.text {
			if at < s.size {
				addresses[i] = addr.Virt(s.addr + at)
				break
			}
			at -= s.size
		}
	}
	return addresses
}

// linkage returns the linkage name of the outermost function at v, or "".
func linkage(t Table, v addr.Virt) string {
	frames := t.LookupVirt(v).Frames
	if len(frames) == 0 {
		return ""
	}
	return frames[len(frames)-1].Linkage
}

// readelfFacts is what readelf says about a file.
type readelfFacts struct {
	text    []readelfSection
	symbols []readelfSymbol // of .symtab, or else of .dynsym
	dynamic bool            // they are of .dynsym

	code map[string][]readelfSymbol // those that count, by section
}

// sectionAt returns the section of code that has address v.
func (f *readelfFacts) sectionAt(v uint64) readelfSection {
	i := slices.IndexFunc(f.text, func(s readelfSection) bool { return v-s.addr < s.size })
	return f.text[i]
}

type readelfSection struct {
	index      string
	addr, size uint64
}

type readelfSymbol struct {
	value, size    uint64
	typ, bind, ndx string
	name           string // without version
}

func readelf(t testing.TB, file string) *readelfFacts {
	t.Helper()
	facts := new(readelfFacts)
	for _, line := range output(t, nil, "readelf", "-SW", file) {
		// "  [12] .init  PROGBITS  0000000000049000 049000 000017 00  AX  0   0  4"
		index, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "["), "]")
		if f := strings.Fields(rest); ok && len(f) >= 7 && strings.Contains(f[6], "X") {
			facts.text = append(facts.text, readelfSection{strings.TrimSpace(index), hex(t, f[2]), hex(t, f[4])})
		}
	}
	for _, line := range output(t, nil, "readelf", "-sW", file) {
		if strings.HasPrefix(line, "Symbol table") {
			// .dynsym comes first, and does not count where there is .symtab.
			facts.dynamic = strings.Contains(line, ".dynsym")
			facts.symbols = nil
		}
		if s, ok := parseReadelfSymbol(t, line); ok {
			facts.symbols = append(facts.symbols, s)
		}
	}
	facts.code = map[string][]readelfSymbol{}
	for _, text := range facts.text {
		for _, s := range facts.symbols {
			if s.ndx == text.index && s.value-text.addr < text.size && s.countsAsCode() {
				facts.code[s.ndx] = append(facts.code[s.ndx], s)
			}
		}
	}
	return facts
}

// parseReadelfSymbol reads a line like
// "    97: 000000000008bb00   485 FUNC    GLOBAL DEFAULT   16 pthread_mutex_init@@GLIBC_2.2.5".
func parseReadelfSymbol(t testing.TB, line string) (readelfSymbol, bool) {
	f := strings.Fields(line)
	if len(f) < 8 || !strings.HasSuffix(f[0], ":") || f[0] == "Num:" {
		return readelfSymbol{}, false
	}
	size, err := strconv.ParseUint(f[2], 0, 64)
	if err != nil {
		t.Fatal(line, err)
	}
	name, _, _ := strings.Cut(strings.Join(f[7:], " "), "@")
	return readelfSymbol{hex(t, f[1]), size, f[3], f[4], f[6], name}, true
}

func hex(t testing.TB, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// output returns the lines that a tool prints.
func output(t testing.TB, stdin io.Reader, tool string, args ...string) []string {
	t.Helper()
	c := exec.Command(testenv.Tool(t, tool), args...)
	c.Env = append(c.Environ(), "DEBUGINFOD_URLS=")
	c.Stdin = stdin
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%s %s: %v", tool, strings.Join(args, " "), err)
	}
	return lines
}

// asInput writes addresses one on a line, as symbolizers read them.
func asInput(addresses []addr.Virt) io.Reader {
	var b strings.Builder
	for _, v := range addresses {
		fmt.Fprintln(&b, v)
	}
	return strings.NewReader(b.String())
}
