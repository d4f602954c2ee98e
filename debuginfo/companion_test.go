package debuginfo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/symbol"
)

// TestDebugLinkBesideLink has a program and its debug file in two stores, and links to
// both in one directory.
func TestDebugLinkBesideLink(t *testing.T) {
	for _, args := range [][]string{nil, {"-Wl,--build-id=none"}} {
		for _, at := range []string{"bin/prog.debug", "bin/.debug/prog.debug", "store/prog.debug", "store/.debug/prog.debug"} {
			t.Run(fmt.Sprint(args, at), func(t *testing.T) {
				p := build(t, args...)
				p.link(t)
				name := filepath.Join(p.dir, "bin", "prog")
				symlink(t, copyFile(t, p.name, filepath.Join(p.dir, "store", "prog")), name)
				symlink(t, p.install(t, filepath.Join(p.dir, "store2", "prog.debug")), filepath.Join(p.dir, at))
				file, why := (&Finder{Dirs: []string{}}).Open(p.id, name)
				if file == nil {
					t.Fatal(why)
				}
				defer file.Close()
				if r := file.LookupVirt(p.hidden); len(r.Frames) != 1 || r.Frames[0].Linkage != hiddenFunction || r.Frames[0].Line != 1 {
					t.Errorf("%+v, want %s", r, hiddenFunction)
				}
			})
		}
	}
}

func symlink(t *testing.T, to, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// splitProgram is a program whose units are in a package.
type splitProgram struct {
	name, dwp string
	work      addr.Virt
	frames    string // what llvm-symbolizer says of work
}

const splitSource = `static inline __attribute__((always_inline)) int square(int x) { return x * x; }
__attribute__((noinline)) int work(int x) {
	return square(x) + 1;
}
int main(int n, char **v) { return work(n); }
`

func buildSplit(t *testing.T, args ...string) *splitProgram {
	t.Helper()
	dir := t.TempDir()
	p := &splitProgram{name: filepath.Join(dir, "made"), dwp: filepath.Join(dir, "made.dwp")}
	source := filepath.Join(dir, "made.c")
	if err := os.WriteFile(source, []byte(splitSource), 0o666); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(dir, "made.o")
	command(t, "clang-19", append([]string{"-O1", "-g", "-gsplit-dwarf", "-c", "-o", object, source}, args...)...)
	command(t, "clang-19", "-o", p.name, object)
	command(t, "llvm-dwp-19", "-e", p.name, "-o", p.dwp)
	if err := os.Remove(filepath.Join(dir, "made.dwo")); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(command(t, "nm", p.name), "\n") {
		if value, ok := strings.CutSuffix(line, " T work"); ok {
			p.work = addr.Virt(number(t, value))
		}
	}
	out := command(t, "llvm-symbolizer-19", "--output-style=GNU", "--functions=linkage", "--no-demangle", "--dwp="+p.dwp, "--obj="+p.name, p.work.String())
	p.frames = strings.TrimSpace(out)
	if !strings.HasPrefix(p.frames, "square\n") {
		t.Fatalf("llvm-symbolizer says %s of work", out)
	}
	return p
}

// framesOf returns what a file says of an address as llvm-symbolizer prints it.
func framesOf(file *symbol.File, v addr.Virt) string {
	var lines []string
	for _, f := range file.LookupVirt(v).Frames {
		lines = append(lines, f.Linkage, fmt.Sprintf("%s:%d", f.File, f.Line))
	}
	return strings.Join(lines, "\n")
}

// TestPackages puts the package of split units in each of the places, alone, and behind
// another program's package, which is refused.
func TestPackages(t *testing.T) {
	for _, version := range []string{"-gdwarf-5", "-gdwarf-4"} {
		p := buildSplit(t, version)
		other := buildSplit(t, version, "-O2", "-DOTHER", "-fPIC")
		for _, test := range []struct {
			name, at, another string
			finder            func(dir string) Finder
		}{
			{"beside the link", "bin/prog.dwp", "", nil},
			{"beside the file", "store/real.dwp", "bin/prog.dwp", nil},
			{"beside the debug file", "debug/real.debug.dwp", "store/real.dwp", nil},
			{"given", "elsewhere/x", "", func(dir string) Finder { return Finder{Package: filepath.Join(dir, "elsewhere/x")} }},
			{"another one given", "bin/prog.dwp", "elsewhere/x", func(dir string) Finder { return Finder{Package: filepath.Join(dir, "elsewhere/x")} }},
			{"in a directory", "extra/prog.dwp", "bin/prog.dwp", func(dir string) Finder { return Finder{Extra: []string{filepath.Join(dir, "extra")}} }},
			{"in a directory of the system", "lib/real.dwp", "bin/prog.dwp", func(dir string) Finder { return Finder{Dirs: []string{filepath.Join(dir, "lib")}} }},
			{"a file", "any.dwp", "bin/prog.dwp", func(dir string) Finder { return Finder{Extra: []string{filepath.Join(dir, "any.dwp")}} }},
		} {
			t.Run(version+" "+test.name, func(t *testing.T) {
				dir, _ := filepath.EvalSymlinks(t.TempDir())
				var finder Finder
				if test.finder != nil {
					finder = test.finder(dir)
				}
				var steps trace
				finder.Trace = steps.add
				copyFile(t, p.dwp, filepath.Join(dir, test.at))
				if test.another != "" {
					copyFile(t, other.dwp, filepath.Join(dir, test.another))
				}
				file := openSplit(t, p.name, dir, &finder)
				defer file.Close()
				if got := framesOf(file, p.work); got != p.frames {
					t.Errorf("got %s\nwant %s\nafter %+v", got, p.frames, steps.steps)
				}
				if test.another != "" && !steps.refused(filepath.Join(dir, test.another)) {
					t.Errorf("no step says that %s is refused: %+v", test.another, steps.steps)
				}
			})
		}
	}
}

// openSplit opens a program by a link, joined with its debug file, which is elsewhere.
func openSplit(t *testing.T, program, dir string, finder *Finder) *symbol.File {
	t.Helper()
	name, debug := filepath.Join(dir, "bin", "prog"), filepath.Join(dir, "debug", "real.debug")
	real := copyFile(t, program, filepath.Join(dir, "store", "real"))
	symlink(t, real, name)
	if err := os.MkdirAll(filepath.Dir(debug), 0o777); err != nil {
		t.Fatal(err)
	}
	command(t, "objcopy", "--only-keep-debug", real, debug)
	command(t, "strip", "--strip-all", real)
	file, err := symbol.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := symbol.OpenFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	joined := symbol.Join(file, d)
	joined.Companion = finder.Companion
	return joined
}

func (tr *trace) refused(path string) bool {
	return slices.ContainsFunc(tr.steps, func(s Step) bool {
		return s.Place == ForSplitUnits && s.Path == path && s.Why == reason.FileChanged
	})
}

// TestPackageOfAnother: without the right package the units stay unknown, and no index
// takes the place of that.
func TestPackageOfAnother(t *testing.T) {
	p, other := buildSplit(t, "-gdwarf-5"), buildSplit(t, "-gdwarf-5", "-DOTHER", "-O2")
	l := Library{Indexes: Indexes{Dir: t.TempDir()}, Finder: Finder{Package: other.dwp}}
	if err := os.Rename(p.dwp, p.dwp+".gone"); err != nil {
		t.Fatal(err)
	}
	file, err := symbol.OpenFile(p.name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.Companion = l.Finder.Companion
	if got := framesOf(file, p.work); strings.HasPrefix(got, "square\n") {
		t.Errorf("another program's package answers %s", got)
	}
	x, err := l.Prepare(t.Context(), identify(t, p.name), file, symbol.IndexOptions{})
	if x != nil {
		x.Close()
	}
	if err == nil {
		t.Error("an index without the units is kept")
	}
}

// TestSupplementary looks for the file that dwz made of two programs.
func TestSupplementary(t *testing.T) {
	dir, _ := filepath.EvalSymlinks(t.TempDir())
	source, common := writeSource(t, dir), filepath.Join(dir, "common.debug")
	names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for i, name := range names {
		command(t, "gcc", "-g3", "-O1", fmt.Sprintf("-DN=%d", i), "-o", name, source)
	}
	command(t, "dwz", append([]string{"-m", common, "-M", "/no/such/dir/common.debug"}, names...)...)
	id := identify(t, common)
	testenv.Need(t, id.Kind() == buildid.GNU, "a dwz that gives its file a build ID")
	other := slices.Repeat([]byte{7}, len(id.Bytes()))
	for _, test := range []struct {
		name, at  string
		companion symbol.Companion
	}{
		{"by build ID", ".build-id/" + id.String()[:2] + "/" + id.String()[2:] + ".debug", symbol.Companion{Path: "/no/such/dir/x"}},
		{"by path", "no/such/dir/common.debug", symbol.Companion{Path: "/no/such/dir/common.debug"}},
		{"by base name", "common.debug", symbol.Companion{Path: "/no/such/dir/common.debug"}},
	} {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprint(test.name, right), func(t *testing.T) {
				extra := t.TempDir()
				// A .build-id in it keeps the directory from being searched as a whole.
				if err := os.Mkdir(filepath.Join(extra, ".build-id"), 0o777); err != nil {
					t.Fatal(err)
				}
				copyFile(t, common, filepath.Join(extra, test.at))
				c := test.companion
				c.BuildID = id.Bytes()
				if !right {
					c.BuildID = other
				}
				file := (&Finder{Dirs: []string{}, Extra: []string{extra}}).Companion(c)
				if (file != nil) != right {
					t.Fatalf("found: %v", file != nil)
				}
				if file != nil {
					file.Close()
				}
			})
		}
	}
}

// TestSupplementaryOfLink: a name counts from the directory of the debug file, or of what
// a link to it leads to.
func TestSupplementaryOfLink(t *testing.T) {
	p := build(t)
	debug := filepath.Join(p.dir, "bin", "a.debug")
	symlink(t, copyFile(t, p.debug, filepath.Join(p.dir, "store", "lib", "a.debug")), debug)
	want := copyFile(t, p.debug, filepath.Join(p.dir, "store", "common.debug"))
	c := symbol.Companion{From: debug, Path: filepath.Join(p.dir, "common.debug"), Name: "../common.debug", BuildID: p.id.Bytes()}
	file := (&Finder{Dirs: []string{}}).Companion(c)
	if file == nil {
		t.Fatal("not found")
	}
	defer file.Close()
	if file.Name() != want {
		t.Errorf("found %s, want %s", file.Name(), want)
	}
}
