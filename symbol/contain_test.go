package symbol

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/defect"
	"hallmark/internal/dwarftest"
	"hallmark/internal/elffile"
	"hallmark/reason"
)

// Tests and fuzz targets of this package see panics.
func init() { defect.Escape(true) }

// trap is the contents of a file that panics where a section is read: as a reader of the
// section with a defect.
type trap struct {
	*bytes.Reader
	start, end int64
}

func (r *trap) ReadAt(b []byte, off int64) (int, error) {
	if off < r.end && off+int64(len(b)) > r.start {
		var none []byte
		_ = none[off]
	}
	return r.Reader.ReadAt(b, off)
}

// trapped is a program whose reader panics: in a section, or, if that is "", where a
// unit is split off, in the middle of reading another.
func trapped(t *testing.T, p *dwarftest.Program, in string) *File {
	t.Helper()
	name := "/gen/" + p.Main
	f, err := openProgram(p)
	if err != nil {
		t.Fatal(err)
	}
	if in == "" {
		f.Companion = func(c Companion) *File {
			if strings.HasSuffix(c.Path, ".dwp") {
				return nil
			}
			panic("in the middle of a unit")
		}
		return f
	}
	i := slices.IndexFunc(f.image.Sections, func(s elffile.Section) bool { return s.Name == in })
	if i < 0 {
		t.Fatalf("no section %s", in)
	}
	s := f.image.Sections[i]
	f, err = NewFile(&trap{bytes.NewReader(p.Files[p.Main]), int64(s.Offset), int64(s.Offset + s.Size)}, name)
	if err != nil {
		t.Fatal(err)
	}
	f.NoIndex = true
	return f
}

// findProgram returns the first generated program of a kind.
func findProgram(t *testing.T, has func(*dwarftest.Program) bool) *dwarftest.Program {
	t.Helper()
	for seed := range uint64(10_000) {
		if p := dwarftest.Generate(seed); has(p) {
			return p
		}
	}
	t.Fatal("no such program")
	return nil
}

// defective are the places where a reader panics.
var defective = []struct {
	section string
	has     func(*dwarftest.Program) bool
}{
	{".debug_abbrev", isPlain}, // where it is opened
	{".symtab", isPlain},       // in a table, on a goroutine of its own
	{"", func(p *dwarftest.Program) bool { return p.Has("split 5") && !p.Has("package") }}, // in units, on several
}

func isPlain(p *dwarftest.Program) bool {
	return len(p.Files) == 1 && len(p.Answers) > 50 && !p.Has("zlib") && !p.Has("zstd") && !p.Has("zdebug") && len(symbolsOf(p)) > 0
}

// symbolsOf returns the answers of a program that have a symbol.
func symbolsOf(p *dwarftest.Program) (answers []dwarftest.Answer) {
	for _, a := range p.Answers {
		if n := len(a.Frames); n > 0 && a.Frames[n-1].Symbol != "" {
			answers = append(answers, a)
		}
	}
	return answers
}

// TestDefectsAreContained has a reader panic, and wants its file to be without answers or
// with those of other tables, for that reason, and another file to have its own.
func TestDefectsAreContained(t *testing.T) {
	defer defect.Escape(false)()
	for _, d := range defective {
		t.Run(d.section, func(t *testing.T) {
			p := findProgram(t, d.has)
			var addresses []addr.Virt
			for _, a := range p.Answers {
				addresses = append(addresses, addr.Virt(a.Addr))
			}
			bad := trapped(t, p, d.section)
			defer bad.Close()
			var results [][]Result // as of a report: of one file and another
			good, err := openProgram(p)
			if err != nil {
				t.Fatal(err)
			}
			defer good.Close()
			for _, f := range []*File{bad, good} {
				results = append(results, f.LookupVirts(addresses))
			}
			reasons := 0
			for i, r := range results[0] {
				one := bad.LookupVirt(addresses[i])
				if one.Reason != r.Reason || len(one.Frames) != len(r.Frames) {
					t.Errorf("%#x is %+v alone, and %+v among others", p.Answers[i].Addr, one, r)
				}
				if r.Reason == reason.Defect {
					reasons++
				} else if len(r.Frames) == 0 && len(p.Answers[i].Frames) > 0 {
					t.Errorf("%#x is nothing: %v", p.Answers[i].Addr, r.Reason)
				}
				if diff := differs(p.Answers[i], results[1][i]); diff != "" {
					t.Errorf("the other file: %s", diff)
				}
			}
			if reasons == 0 {
				t.Error("no answer has the defect as its reason")
			}
			_, err = bad.Index(IndexOptions{Open: bad.Companion, Threads: 2})
			if !defect.Is(err) || !strings.Contains(err.Error(), "/gen/"+p.Main) || !strings.Contains(err.Error(), "report it") {
				t.Errorf("its index: %v", err)
			}
			t.Log(err)
		})
	}
}

// TestDefectsOfHeaders has the reader of a file's headers panic.
func TestDefectsOfHeaders(t *testing.T) {
	defer defect.Escape(false)()
	p := findProgram(t, isPlain)
	data := p.Files[p.Main]
	f, err := NewFile(&trap{bytes.NewReader(data), 0, 64}, "headers")
	if f != nil || !defect.Is(err) || !strings.HasPrefix(err.Error(), "headers: ") {
		t.Errorf("%v, %v", f, err)
	}
}

// TestDefectsEscape wants panics to end this test's own process, as they must end a fuzz
// target, whichever goroutine they are on: nothing contains them here.
func TestDefectsEscape(t *testing.T) {
	if !defect.Escapes() {
		t.Fatal("panics are contained in tests of this package, and fuzz targets would not see them")
	}
	if number := os.Getenv("HALLMARK_DEFECT"); number != "" {
		var n int
		fmt.Sscan(number, &n)
		f := trapped(t, findProgram(t, defective[n].has), defective[n].section)
		f.Index(IndexOptions{Open: f.Companion})
		return // which is the failure
	}
	for n := range defective {
		c := exec.Command(os.Args[0], "-test.run=^TestDefectsEscape$")
		c.Env = append(os.Environ(), fmt.Sprint("HALLMARK_DEFECT=", n))
		c.Dir = filepath.Dir(os.Args[0])
		out, err := c.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("panic: ")) {
			t.Errorf("%q: %v\n%s", defective[n].section, err, out)
		}
	}
}

// defectiveReader panics where it is read.
type defectiveReader struct{}

func (defectiveReader) Read([]byte) (int, error) { panic("in a line") }

// TestDefectsOfLists has the readers of kallsyms and of perf maps panic, and their lookups.
func TestDefectsOfLists(t *testing.T) {
	defer defect.Escape(false)()
	if _, err := ReadKallsyms(defectiveReader{}); !defect.Is(err) {
		t.Errorf("kallsyms: %v", err)
	}
	if _, err := ReadKallsymsAt(defectiveReader{}, []addr.Abs{1}); !defect.Is(err) {
		t.Errorf("kallsyms at addresses: %v", err)
	}
	if _, err := ReadPerfMap(defectiveReader{}); !defect.Is(err) {
		t.Errorf("perf map: %v", err)
	}
	if r := (*PerfMap)(nil).Lookup(1); r.Reason != reason.Defect {
		t.Errorf("perf map: %+v", r)
	}
	if r := (*Kallsyms)(nil).Lookup(1); r.Reason != reason.Defect {
		t.Errorf("kallsyms: %+v", r)
	}
}
