package debuginfo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/symbol"
)

// program is a stripped program and the debug file that was split from it.
type program struct {
	dir         string
	name, debug string
	id          buildid.ID
	hidden      addr.Virt // address of a function that only the debug file names
}

const (
	hiddenFunction = "hidden_function"
	hiddenSource   = "static __attribute__((noinline)) int " + hiddenFunction + "(int a) { return a * 7 + 1; }\nint main(int n, char **v) { return " + hiddenFunction + "(n); }\n"
)

// built are the programs that were compiled, by the arguments for it.
var built = map[string]*program{}

// build compiles a program with the compiler's arguments and splits it.
func build(t *testing.T, args ...string) *program {
	t.Helper()
	first := built[strings.Join(args, " ")]
	if first == nil {
		first = compile(t, args)
		built[strings.Join(args, " ")] = first
	}
	p := *first
	// Debug links are looked for beside the file that is meant.
	p.dir, _ = filepath.EvalSymlinks(t.TempDir())
	p.name = copyFile(t, first.name, filepath.Join(p.dir, "prog"))
	p.debug = copyFile(t, first.debug, filepath.Join(t.TempDir(), "prog.debug"))
	return &p
}

func compile(t *testing.T, args []string) *program {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("HOME"), "program")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{name: filepath.Join(dir, "prog"), debug: filepath.Join(dir, "prog.debug")}
	source := filepath.Join(dir, "prog.c")
	if err := os.WriteFile(source, []byte(hiddenSource), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", append([]string{"-g", "-O1", "-o", p.name, source}, args...)...)
	for _, line := range strings.Split(command(t, "nm", p.name), "\n") {
		if value, ok := strings.CutSuffix(line, " t "+hiddenFunction); ok {
			p.hidden = addr.Virt(number(t, value))
		}
	}
	if p.hidden == 0 {
		t.Fatal("nm does not show the function")
	}
	command(t, "objcopy", "--only-keep-debug", p.name, p.debug)
	command(t, "strip", "--strip-all", p.name)
	p.id = identify(t, p.name)
	return p
}

// number reads a hexadecimal number as nm writes it.
func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// link gives the program a debug link to its debug file.
func (p *program) link(t *testing.T) {
	t.Helper()
	command(t, "objcopy", "--add-gnu-debuglink="+p.debug, p.name)
	p.id = identify(t, p.name) // another one, if it is a hash
}

// install copies the debug file.
func (p *program) install(t *testing.T, path string) string {
	t.Helper()
	return copyFile(t, p.debug, path)
}

func copyFile(t *testing.T, from, to string) string {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return to
}

// inTree returns where a tree has the file of a build ID.
func inTree(dir string, id buildid.ID) string {
	path, _ := byBuildID(dir, id)
	return path
}

// trace remembers the last step of a search.
type trace struct{ steps []Step }

func (tr *trace) add(_ buildid.ID, s Step) { tr.steps = append(tr.steps, s) }

func (tr *trace) last() Step { return tr.steps[len(tr.steps)-1] }

// TestPlaces installs a debug file in each of the places.
func TestPlaces(t *testing.T) {
	p := build(t)
	p.link(t)
	for _, test := range []struct {
		place   Place
		install func(t *testing.T, p *program, dir string, f *Finder) string
	}{
		{InDirs, func(t *testing.T, p *program, dir string, f *Finder) string {
			return p.install(t, inTree(dir, p.id)+".debug")
		}},
		{ByDebugLink, func(t *testing.T, p *program, dir string, f *Finder) string {
			return p.install(t, filepath.Join(p.dir, "prog.debug"))
		}},
		{ByDebugLink, func(t *testing.T, p *program, dir string, f *Finder) string {
			return p.install(t, filepath.Join(p.dir, ".debug/prog.debug"))
		}},
		{ByDebugLink, func(t *testing.T, p *program, dir string, f *Finder) string {
			return p.install(t, filepath.Join(dir, p.dir, "prog.debug"))
		}},
		{PerfCache, func(t *testing.T, p *program, dir string, f *Finder) string {
			t.Setenv("HOME", dir)
			if os.Geteuid() == 0 { // whose perf keeps files of all users
				f.Extra = []string{dir + "/.debug/"}
			}
			return p.install(t, filepath.Join(inTree(dir+"/.debug", p.id), "debug"))
		}},
		{DebuginfodCache, func(t *testing.T, p *program, dir string, f *Finder) string {
			t.Setenv("DEBUGINFOD_CACHE_PATH", dir)
			return p.install(t, filepath.Join(dir, p.id.String(), "debuginfo"))
		}},
		{InExtra, func(t *testing.T, p *program, dir string, f *Finder) string {
			f.Extra = []string{filepath.Join(t.TempDir(), "file")}
			return p.install(t, f.Extra[0])
		}},
		{InExtra, func(t *testing.T, p *program, dir string, f *Finder) string {
			f.Extra = []string{t.TempDir()}
			return p.install(t, inTree(f.Extra[0], p.id)+".debug")
		}},
		{InExtra, func(t *testing.T, p *program, dir string, f *Finder) string {
			f.Extra = []string{"/nonexistent", t.TempDir()}
			return p.install(t, filepath.Join(f.Extra[1], "some/where/any.name"))
		}},
	} {
		t.Run(string(test.place), func(t *testing.T) {
			var steps trace
			f := &Finder{Dirs: []string{t.TempDir()}, Trace: steps.add}
			file, why := f.Open(p.id, p.name)
			if file == nil {
				t.Fatal(why)
			}
			if r := file.LookupVirt(p.hidden); r.Frames != nil {
				t.Errorf("before: %+v", r)
			}
			file.Close()

			want := test.install(t, p, f.Dirs[0], f)
			defer os.Remove(want)
			f = &Finder{Dirs: f.Dirs, Extra: f.Extra, Trace: f.Trace}
			if file, why = f.Open(p.id, p.name); file == nil {
				t.Fatal(why)
			}
			defer file.Close()
			if last := steps.last(); last != (Step{Place: test.place, Path: want}) {
				t.Errorf("the last step is %+v, want %s", last, want)
			}
			if r := file.LookupVirt(p.hidden); len(r.Frames) != 1 || r.Frames[0].Linkage != hiddenFunction {
				t.Errorf("%+v, want %s", r, hiddenFunction)
			}
			f.Places = []Place{AtPath}
			bare, _ := f.Open(p.id, p.name)
			if bare.DebugSize() != 0 {
				t.Error("a place was looked at that is not wanted")
			}
			bare.Close()
		})
	}
}

// TestOrderOfPlaces has a debug file everywhere, and takes away the one that was found.
func TestOrderOfPlaces(t *testing.T) {
	p := build(t)
	p.link(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DEBUGINFOD_CACHE_PATH", filepath.Join(home, "cache"))
	dirs := []string{t.TempDir(), t.TempDir()}
	want := []string{
		p.install(t, inTree(dirs[0], p.id)+".debug"),
		p.install(t, inTree(dirs[1], p.id)+".debug"),
		p.install(t, filepath.Join(p.dir, "prog.debug")),
		p.install(t, filepath.Join(p.dir, ".debug/prog.debug")),
		p.install(t, filepath.Join(dirs[0], p.dir, "prog.debug")),
		p.install(t, filepath.Join(inTree(home+"/.debug", p.id), "debug")),
		p.install(t, filepath.Join(home, "cache", p.id.String(), "debuginfo")),
		p.install(t, filepath.Join(home, "extra")),
	}
	for _, path := range want {
		var steps trace
		f := &Finder{Dirs: dirs, Extra: []string{filepath.Join(home, "extra"), filepath.Join(home, ".debug")}, Trace: steps.add}
		file, why := f.Open(p.id, p.name)
		if file == nil || steps.last().Path != path {
			t.Fatalf("found %+v, %v; want %s", steps.last(), why, path)
		}
		file.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDebugLinkHere opens a program by names that count from the working directory, as
// people type them.
func TestDebugLinkHere(t *testing.T) {
	p := build(t)
	p.link(t)
	t.Chdir(p.dir)
	base := filepath.Base(p.name)
	for _, name := range []string{base, "./" + base, "../" + filepath.Base(p.dir) + "/" + base} {
		want := p.install(t, filepath.Join(p.dir, "prog.debug"))
		file, why := (&Finder{Dirs: []string{}}).Open(p.id, name)
		if file == nil {
			t.Fatal(why)
		}
		if r := file.LookupVirt(p.hidden); len(r.Frames) != 1 || r.Frames[0].Linkage != hiddenFunction {
			t.Errorf("%s: %+v, want %s of %s", name, r, hiddenFunction, want)
		}
		file.Close()
	}
}

// TestDebugLinkOfAnother has debug links that lead to another file.
func TestDebugLinkOfAnother(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		wrong bool // another program's debug file is there
		want  bool
	}{
		{"with a build ID", nil, false, true},
		{"with another build ID", nil, true, false},
		{"with a checksum", []string{"-Wl,--build-id=none"}, false, true},
		{"with another checksum", []string{"-Wl,--build-id=none"}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := build(t, test.args...)
			p.link(t)
			from := p.debug
			if test.wrong {
				from = build(t, append(test.args, "-DX=1", "-Wl,--section-start=.text=0x9000")...).debug
			}
			copyFile(t, from, filepath.Join(p.dir, "prog.debug"))
			file, why := (&Finder{Dirs: []string{}}).Open(p.id, p.name)
			if file == nil {
				t.Fatal(why)
			}
			defer file.Close()
			if got := file.DebugSize() > 0; got != test.want {
				t.Errorf("used: %v, want %v", got, test.want)
			}
		})
	}
}

// TestPerfFillsItsCache lets perf put a program into its cache, from where it is found
// when the program is gone. In root's, there may be a program of anybody's.
func TestPerfFillsItsCache(t *testing.T) {
	p := build(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	command(t, "perf", "--buildid-dir", filepath.Join(home, ".debug"), "buildid-cache", "-a", p.name)
	if err := os.Remove(p.name); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if file, why := (&Finder{Dirs: []string{}}).Open(p.id, p.name); file != nil || why != reason.NotBelieved {
			t.Errorf("root believes what perf copied: %v", why)
		}
	}
	var steps trace
	file, why := (&Finder{Dirs: []string{}, Extra: []string{filepath.Join(home, ".debug")}, Trace: steps.add}).Open(p.id, p.name)
	if file == nil {
		t.Fatalf("%v: %+v", why, steps.steps)
	}
	defer file.Close()
	if !strings.HasPrefix(file.Name(), filepath.Join(home, ".debug")) || !slices.Contains(steps.steps, Step{Place: PerfCache, Path: file.Name()}) {
		t.Errorf("found %s: %+v", file.Name(), steps.steps)
	}
}

// TestServers asks elfutils' server for a program that this machine does not have, and
// for its debug file.
func TestServers(t *testing.T) {
	p := build(t)
	dir := t.TempDir()
	copyFile(t, p.name, filepath.Join(dir, "prog"))
	if err := os.Chmod(filepath.Join(dir, "prog"), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, p.debug, filepath.Join(dir, "prog.debug"))
	url := testenv.Debuginfod(t, dir, "/buildid/"+p.id.String()+"/debuginfo")
	cache := t.TempDir()
	finder := func(urls ...string) *Finder {
		return &Finder{Dirs: []string{}, Servers: &debuginfod.Client{URLs: urls, Dir: cache}}
	}
	if file, why := finder(url).Open(p.id); file != nil || why != reason.NoFile {
		t.Errorf("Open has asked a server: %v", why)
	}
	file, why := finder(url).Search(t.Context(), Query{ID: p.id})
	if file == nil {
		t.Fatal(why)
	}
	o, ok := file.Offset(p.hidden)
	if r := file.LookupOffset(o); !ok || len(r.Frames) != 1 || r.Frames[0].Linkage != hiddenFunction {
		t.Errorf("%+v, want %s", r, hiddenFunction)
	}
	file.Close()

	// What was fetched is used without a server, and by those who ask none.
	t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
	file, why = (&Finder{Dirs: []string{}}).Open(p.id)
	if file == nil {
		t.Fatal(why)
	}
	if file.DebugSize() == 0 {
		t.Error("no debug file is in the cache")
	}
	file.Close()
}

// TestDeadServer has a server that nobody answers for: that is no reason not to use what
// is here, and it is reported once.
func TestDeadServer(t *testing.T) {
	p := build(t)
	var steps trace
	f := &Finder{Dirs: []string{}, Servers: &debuginfod.Client{URLs: []string{"http://127.0.0.1:1"}, Dir: t.TempDir()}, Trace: steps.add}
	file, why := f.Search(t.Context(), Query{ID: p.id, Paths: []string{p.name}})
	if file == nil {
		t.Fatal(why)
	}
	file.Close()
	if last := steps.last(); last.Place != OnServers || last.Why != reason.ServerFailed || last.Err == nil {
		t.Errorf("%+v", last)
	}
	if file, why := f.Search(t.Context(), Query{ID: p.id}); file != nil || why != reason.ServerFailed {
		t.Errorf("%v, %v", file, why)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if file, _ := f.Search(ended, Query{ID: p.id, Paths: []string{p.name}}); file == nil {
		t.Error("the file is not found when nobody wants to wait for a server")
	} else {
		file.Close()
	}
}

// TestHostileDebugLink has links that lead out of the directories.
func TestHostileDebugLink(t *testing.T) {
	p := build(t)
	for _, name := range []string{"..", "a/b", "/etc/passwd", "", "."} {
		raw := filepath.Join(t.TempDir(), "link")
		content := append([]byte(name), make([]byte, 8-len(name)%4)...)
		if err := os.WriteFile(raw, content, 0o666); err != nil {
			t.Fatal(err)
		}
		linked := filepath.Join(t.TempDir(), "prog")
		command(t, "objcopy", "--add-section", ".gnu_debuglink="+raw, p.name, linked)
		file, err := symbol.OpenFile(linked)
		if err != nil {
			t.Fatal(err)
		}
		if link, ok := file.DebugLink(); ok {
			t.Errorf("%q: %+v", name, link)
		}
		file.Close()
	}
}
