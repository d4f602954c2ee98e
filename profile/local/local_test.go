package local

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// names returns the linkage names of the functions at every address, innermost first.
func names(p *pprof.Profile) map[uint64]string {
	all := map[uint64]string{}
	for _, l := range p.Location {
		var functions []string
		for _, line := range l.Line {
			functions = append(functions, line.Function.SystemName)
		}
		all[l.Address] = strings.Join(functions, " < ")
	}
	return all
}

// wrappers are functions that the compiler made for deferred calls: the runtime leaves
// them out of profiles, though not always.
var wrappers = regexp.MustCompile(` < [^<]*\.deferwrap\d+$`)

// TestAgreesWithGoRuntime takes the symbols out of a profile that Go's runtime
// made of this test, inlined functions and all, and puts them back from the
// test's executable.
func TestAgreesWithGoRuntime(t *testing.T) {
	p := proftest.CPU(t)
	want := names(p)
	proftest.Strip(p)
	misses, _ := profile.Symbolize(t.Context(), p, &Symbols{})
	got := names(p)
	inlined := 0
	for _, l := range p.Location {
		if l.Mapping.File == "[vdso]" || want[l.Address] == "" {
			continue
		}
		if wrappers.ReplaceAllString(got[l.Address], "") != wrappers.ReplaceAllString(want[l.Address], "") {
			t.Errorf("%#x is %q (%v), the runtime says %q", l.Address, got[l.Address], misses[l], want[l.Address])
		}
		if strings.Contains(want[l.Address], " < ") {
			inlined++
		}
	}
	if inlined == 0 {
		t.Error("the profile has no inlined functions to compare")
	}
}

func TestOnlyTheRightFileAnswers(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildid.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	pipe := testenv.Trap(t, filepath.Join(dir, "pipe"))
	for _, test := range []struct {
		name, path string
		want       reason.Reason
	}{
		{"another file", other, reason.FileChanged},
		{"another executable", testenv.Tool(t, "go"), reason.FileChanged},
		{"no file", filepath.Join(dir, "missing"), reason.NoFile},
		{"a pipe that nobody writes to", pipe, reason.NoFile},
		{"a directory", dir, reason.NoFile},
		{"a relative path", filepath.Base(self), reason.NoFile},
		{"no path", "", reason.NoFile},
		{"the kernel's name", "[kernel]", reason.NoFile},
		{"the vdso's name", "[vdso]", reason.NoFile},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range (&Symbols{}).Lookup(t.Context(), &profile.Binary{ID: info.ID, Path: test.path}, []addr.Offset{0x1000, 0x2000}) {
				if len(r.Frames) != 0 || r.Reason != test.want {
					t.Errorf("%v because of %v, want nothing because of %v", r.Frames, r.Reason, test.want)
				}
			}
		})
	}
}

func TestKernel(t *testing.T) {
	running, err := buildid.ReadKernel()
	testenv.Need(t, err == nil, "/sys/kernel/notes")
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := symbol.ReadKallsyms(f)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, symbols.Text() != 0, "kernel addresses in /proc/kallsyms (root)")
	var offsets []addr.Offset
	for at := symbols.Stext(); at < symbols.Etext(); at += 0x1001 {
		offsets = append(offsets, addr.Offset(at-symbols.Text()))
	}
	// Without vmlinux the first one to ask makes an index, by which the second one answers.
	nowhere := &debuginfo.Library{Finder: debuginfo.Finder{Places: []debuginfo.Place{}}, Indexes: debuginfo.Indexes{Dir: t.TempDir()}}
	if r := (&Symbols{Library: nowhere}).Lines(t.Context(), &profile.Binary{ID: running.ID, Path: "[kernel]"}, offsets[:1])[0]; r.Frames != nil || r.Reason != reason.NoFile {
		t.Errorf("lines without vmlinux: %+v", r)
	}
	for _, who := range []string{"kernel", "index"} {
		for i, r := range (&Symbols{Library: nowhere}).Lookup(t.Context(), &profile.Binary{ID: running.ID, Path: "[kernel]"}, offsets) {
			want := symbols.Lookup(symbols.Text() + addr.Abs(offsets[i]))
			if !slices.Equal(r.Frames, want.Frames) || r.Source != want.Source {
				t.Fatalf("%s: at %v is %+v, want %+v", who, offsets[i], r, want)
			}
		}
		if kept, err := nowhere.Indexes.List(); err != nil || len(kept) != 1 {
			t.Fatalf("%d indexes are kept, %v", len(kept), err)
		}
	}
}

// TestVDSO looks up every function that the vdso exports, by its value in the
// dynamic symbol table, which in a vdso is the file offset too.
func TestVDSO(t *testing.T) {
	info, err := buildid.ReadVDSO()
	testenv.Need(t, err == nil, "a vdso with a build ID")
	found := false
	offsets := make([]addr.Offset, 0x2000)
	for i := range offsets {
		offsets[i] = addr.Offset(i)
	}
	for _, r := range (&Symbols{}).Lookup(t.Context(), &profile.Binary{ID: info.ID, Path: "[vdso]"}, offsets) {
		for _, f := range r.Frames {
			found = found || strings.Contains(f.Func, "clock_gettime")
		}
	}
	if !found {
		t.Error("the vdso has no clock_gettime")
	}
}
