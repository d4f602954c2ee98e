package symbolize

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/symbol"
)

// program is a program that a test compiled, and the symbols of it alone.
type program struct {
	path    string
	id      buildid.ID
	library *debuginfo.Library
}

// programs are those compiled already, in a directory that all tests share.
var (
	programs   = map[string]*program{}
	programDir string
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "symbolize")
	if err != nil {
		panic(err)
	}
	programDir = dir
	status := testenv.Isolated(m).Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// compile compiles a program in testdata and indexes it.
func compile(t testing.TB, source, compiler string, flags ...string) *program {
	t.Helper()
	key := fmt.Sprint(source, compiler, flags)
	p := programs[key]
	if p == nil {
		p = build(t, source, compiler, flags)
		programs[key] = p
	}
	return p
}

func build(t testing.TB, source, compiler string, flags []string) *program {
	t.Helper()
	dir, err := os.MkdirTemp(programDir, "")
	if err != nil {
		t.Fatal(err)
	}
	source, err = filepath.Abs(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "prog")
	args := append([]string{"-g", "-o", name, source}, flags...)
	if out, err := exec.Command(testenv.Tool(t, compiler), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return index(t, name)
}

// index indexes a file, in its directory.
func index(t testing.TB, name string) *program {
	t.Helper()
	file, err := symbol.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := buildid.Read(file.Reader())
	if err != nil {
		t.Fatal(err)
	}
	p := &program{path: name, id: info.ID, library: alone(t)}
	p.library.Indexes.Dir = filepath.Dir(name)
	x, err := p.library.Prepare(t.Context(), p.id, file, symbol.IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	return p
}

// alone returns a library with nothing of this machine.
func alone(t testing.TB) *debuginfo.Library {
	return &debuginfo.Library{
		Finder:  debuginfo.Finder{Dirs: []string{}},
		Indexes: debuginfo.Indexes{Dir: t.TempDir()},
	}
}

// output runs the program and returns all that it prints. Sanitizers have it fail.
func (p *program) output(t testing.TB, env ...string) string {
	t.Helper()
	cmd := exec.Command(p.path)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if len(out) == 0 {
		t.Fatalf("%s printed nothing: %v", p.path, err)
	}
	return string(out)
}

// at returns the virtual address of a function of the program, plus an offset.
func (p *program) at(t testing.TB, function string, offset uint64) uint64 {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nm"), p.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^([0-9a-f]+) \S ` + function + `$`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("nm finds no %s", function)
	}
	n, err := strconv.ParseUint(m[1], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n + offset
}

// buildIDDirectory returns a directory in which debuggers find the program.
func (p *program) buildIDDirectory(t testing.TB) string {
	t.Helper()
	dir, id := t.TempDir(), p.id.String()
	if err := os.MkdirAll(filepath.Join(dir, ".build-id", id[:2]), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.path, filepath.Join(dir, ".build-id", id[:2], id[2:]+".debug")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rewrite filters a text.
func rewrite(t testing.TB, f *Filter, text string) (string, *Summary) {
	t.Helper()
	var out bytes.Buffer
	s, err := f.Copy(context.Background(), &out, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), s
}

// TestOtherTextStays filters what has no frames, and what has frames of files that
// nobody has: not a byte may change.
func TestOtherTextStays(t *testing.T) {
	texts := map[string]string{
		"empty":         "",
		"newlines":      "\n\r\n\n\r",
		"no newline":    "    #0 0x55 in main (/x+0x1) (BuildId: 0011223344556677)",
		"crlf":          "    #0 0x55  (/x+0x1) (BuildId: 0011223344556677)\r\nnext\r\n",
		"binary":        "\x00\xff\xfe{{{bt:0:0x1}}}\x00\n\x80(+0x1)[0x1]\n",
		"escapes":       "\x1b[1m\x1b[31m    #0 0x55  (/x+0x1)\x1b[0m\n\x1b]8;;\x07\n",
		"long line":     strings.Repeat("(/x+0x1) (BuildId: 0011223344556677) ", 100000) + "\nnext\n",
		"half elements": "{{{bt:0\n{{{}}}\n{{{mmap:}}}\n{{{module:0:::}}}\n{{{pc:0x1}}}{{{\n{{{bt:0:0x1}}} {{{bt:\n",
		"go":            "goroutine 1 [running]:\nmain.main()\n\t/x/main.go:3 +0x1d\nexit status 2\n",
		"go 1.27":       "goroutine 1 [running] {pattern: \"GET /x+0x1/0x2 ec9be1cd3b7fe64ad8ad58e9d62637f49a69b512+0x1\"}:\nmain.main()\n\t/x/main.go:3 +0x1d\n",
		"gdb":           "#0  0x00007f0 in ?? () from /lib/libc.so.6\n#1  main () at x.c:3\n",
		"java":          "\tat org.foo.Bar.baz(Bar.java:12)\n\tdeadbeef (foo)\n",
		"rust":          "  12:     0x56405c608af4 - <unknown>\n  14:     0x7f0a008f424a - main\n             at ./x.rs:58:16\n",
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			for _, folded := range []bool{false, true} {
				got, s := rewrite(t, &Filter{Library: alone(t), Folded: folded}, text)
				if got != text {
					t.Errorf("%q became %q", text, got)
				}
				if s.Symbolized != 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// TestLinesComeThroughAsTheyCome writes lines into a pipe, and each must be there
// before the next one is written.
func TestLinesComeThroughAsTheyCome(t *testing.T) {
	in, write := io.Pipe()
	read, out := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		_, err := (&Filter{Library: alone(t)}).Copy(context.Background(), out, in)
		failed <- err
	}()
	for _, line := range []string{"first\n", "\n", "#0 0x55 in f (/x+0x1)\n", strings.Repeat("x", 2*maxLine) + "\n", "last\n"} {
		go io.WriteString(write, line)
		got := make([]byte, len(line))
		if _, err := io.ReadFull(read, got); err != nil || string(got) != line {
			t.Fatalf("%.20q came as %.20q, %v", line, got, err)
		}
	}
	write.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("a failure to read became %v", err)
	}
}

func TestFailureToWrite(t *testing.T) {
	read, out := io.Pipe()
	read.Close()
	_, err := new(Filter).Copy(context.Background(), out, strings.NewReader("text\n"))
	if err != io.ErrClosedPipe {
		t.Errorf("became %v", err)
	}
}

// TestIdentity checks which file may answer for a frame.
func TestIdentity(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	other := compile(t, "tsan.c", "gcc", "-O1")
	frame := func(module string, id string) string {
		line := "#0 0x55d1  (" + module + "+0x" + strconv.FormatUint(p.at(t, "outer", 0), 16) + ")"
		if id != "" {
			line += " (BuildId: " + id + ")"
		}
		return line + "\n"
	}
	id, otherID := p.id.String(), other.id.String()
	elsewhere := filepath.Join("elsewhere", filepath.Base(p.path))
	for _, test := range []struct {
		name, text string
		filter     Filter
		want       reason.Reason
		trusted    int64
	}{
		{"identity", frame("/nowhere/prog", id), Filter{}, reason.None, 0},
		{"identity and another's path", frame(other.path, id), Filter{}, reason.None, 0},
		{"another identity", frame(p.path, otherID), Filter{}, reason.FileChanged, 0},
		{"another identity, paths are trusted", frame(p.path, otherID), Filter{TrustPaths: true}, reason.FileChanged, 0},
		{"another identity, the file is named", frame("prog", otherID), Filter{Binaries: []string{p.path}}, reason.NoFile, 0},
		{"no identity", frame(p.path, ""), Filter{}, reason.NoIdentity, 0},
		{"no identity, paths are trusted", frame(p.path, ""), Filter{TrustPaths: true}, reason.None, 1},
		{"no path, paths are trusted", frame("prog", ""), Filter{TrustPaths: true}, reason.NoIdentity, 0},
		{"no file, paths are trusted", frame("/nowhere/prog", ""), Filter{TrustPaths: true}, reason.NoFile, 0},
		{"the file is named", frame(elsewhere, ""), Filter{Binaries: []string{"/x", p.path}}, reason.None, 1},
		{"another file is named", frame("/nowhere/prog2", ""), Filter{Binaries: []string{p.path}}, reason.NoIdentity, 0},
		{"two files are named", frame(elsewhere, ""), Filter{Binaries: []string{p.path, other.path}}, reason.NoIdentity, 0},
		{"two files are named, one by its path", frame(p.path, ""), Filter{Binaries: []string{other.path, p.path}}, reason.None, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.filter.Library = p.library
			got, s := rewrite(t, &test.filter, test.text)
			why := reason.None
			if len(s.Gaps) > 0 {
				why = s.Gaps[0].Reason
			}
			if named := strings.Contains(got, " in outer "); named != (test.want == reason.None) || why != test.want || s.Trusted != test.trusted || s.Frames != 1 {
				t.Errorf("%q, %+v, want %v and %d trusted", got, s, test.want, test.trusted)
			}
			if test.want != reason.None && got != test.text {
				t.Errorf("%q became %q", test.text, got)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	const text = "#0 0x1  (/a+0x1)\n#0 0x1  (/b+0x1)\n#0 0x1  (/b+0x2)\n#0 0x1  (/c+0x2) (BuildId: 0011)\n#0 0x1 in f (/c+0x2) (BuildId: 0011)\n"
	_, s := rewrite(t, &Filter{Library: alone(t)}, text)
	if s.Frames != 5 || s.Named != 1 || len(s.Gaps) != 2 {
		t.Fatalf("%+v", s)
	}
	if g := s.Gaps[0]; g.Reason != reason.NoIdentity || g.Frames != 3 || strings.Join(g.Modules, " ") != "/b /a" {
		t.Errorf("%+v", g)
	}
	if g := s.Gaps[1]; g.Reason != reason.NoFile || g.Frames != 1 || strings.Join(g.Modules, " ") != "/c" {
		t.Errorf("%+v", g)
	}
}

// TestFound checks what a program gets to know of frames.
func TestFound(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	var got []string
	f := &Filter{Library: p.library, Found: func(f Frame) {
		line := fmt.Sprint(f.Line, f.Module, f.ID, f.Virt, f.Offset, f.Trusted, f.Reason)
		for _, fn := range f.Frames {
			line += " " + fn.Func
		}
		got = append(got, line)
	}}
	virt, one, offset := addr.Virt(p.at(t, "outer", 0)), addr.Virt(1), addr.Offset(5)
	rewrite(t, f, fmt.Sprintf("\n#0 0x55d1  (prog+%v) (BuildId: %v)\n#1 0x1  (/y+0x1)\n%v+0x5\n", virt, p.id, p.id))
	want := []string{
		fmt.Sprint(int64(2), "prog", p.id, &virt, (*addr.Offset)(nil), false, reason.None, " inner outer"),
		fmt.Sprint(int64(3), "/y", buildid.ID{}, &one, (*addr.Offset)(nil), false, reason.NoIdentity),
		fmt.Sprint(int64(4), p.id.String(), p.id, (*addr.Virt)(nil), &offset, false, reason.NotCode),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestManyFiles mentions more files than are kept open, twice.
func TestManyFiles(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	offset := strconv.FormatUint(p.at(t, "outer", 0), 16)
	var text strings.Builder
	for range 2 {
		for i := range 2 * maxSources {
			text.WriteString("#0 0x55d1  (prog" + strconv.Itoa(i) + "+0x" + offset + ") (BuildId: " + p.id.String() + ")\n")
		}
	}
	_, s := rewrite(t, &Filter{Library: p.library}, text.String())
	if s.Symbolized != 4*maxSources {
		t.Errorf("%+v", s)
	}
}

// TestIndexForManyAddresses asks for so many addresses of a file that an index pays.
func TestIndexForManyAddresses(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	library := alone(t)
	start := p.at(t, "_start", 0)
	library.IndexWhen = func(_ int64, addresses int) bool { return addresses >= 2*fewAnswers }
	text := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "    #0 0x55d1  (%s+%#x) (BuildId: %s)\n", p.path, start+uint64(i), p.id)
		}
		return text.String()
	}
	few, many := text(fewAnswers-1), text(3*fewAnswers)
	for _, test := range []struct {
		text    string
		indexed bool
	}{{few, false}, {many, true}} {
		want, _ := rewrite(t, &Filter{Library: p.library}, test.text)
		if got, _ := rewrite(t, &Filter{Library: library}, test.text); got != want {
			t.Errorf("got\n%swith an index\n%s", got, want)
		}
		x, err := library.Indexes.Open(p.id, buildid.Content{})
		if (err == nil) != test.indexed {
			t.Errorf("after %d addresses: %v", strings.Count(test.text, "\n"), err)
		}
		if err == nil {
			x.Close()
		}
	}
}

// TestPathsOfOthersAreNotOpened has lines that name what is no file.
func TestPathsOfOthersAreNotOpened(t *testing.T) {
	trap := testenv.Trap(t, filepath.Join(t.TempDir(), "trap"))
	for _, id := range []string{"", " (BuildId: 0123456789abcdef0123456789abcdef01234567)"} {
		text := "    #0 0x55d0c0de1234  (" + trap + "+0x1234)" + id + "\n"
		if got, _ := rewrite(t, &Filter{Library: alone(t), TrustPaths: true}, text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
