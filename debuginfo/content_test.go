package debuginfo

import (
	"debug/elf"
	"fmt"
	"io/fs"
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

// claimedID is the build ID that the builds of these tests claim.
const claimedID = "0xb1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0"

// version is a build that claims a build ID.
type version struct {
	name     string
	id       buildid.ID
	content  buildid.Content
	function string
	at       addr.Virt // of the function
}

// buildVersion compiles a program with a function of this name, which is at the same place
// in all versions. Their code differs in a constant.
func buildVersion(t *testing.T, dir, function string, args ...string) *version {
	t.Helper()
	v := &version{name: filepath.Join(dir, function+"-prog"), function: function}
	source := filepath.Join(dir, function+".c")
	text := fmt.Sprintf(`__attribute__((noinline)) int %s(int a) { return a * %d + 1; }
int main(int n, char **v) { return %[1]s(n); }
`, function, 1000+int(function[0]))
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", append([]string{"-g", "-O1", "-Wl,--build-id=" + claimedID, "-o", v.name, source}, args...)...)
	v.at = symbolsOf(t, v.name)[function]
	v.id = identify(t, v.name)
	v.content = contentAt(t, v.name)
	return v
}

func contentAt(t *testing.T, name string) buildid.Content {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := buildid.ReadContent(t.Context(), f)
	if err != nil || c.IsZero() {
		t.Fatalf("%s: content %v, %v", name, c, err)
	}
	return c
}

// nameAt returns what a Library says of an address, or why it says nothing.
func nameAt(t *testing.T, l *Library, q Query, v addr.Virt) string {
	t.Helper()
	s, err := l.Get(t.Context(), Request{Query: q})
	if err != nil {
		return reason.Of(err).Code()
	}
	defer s.Close()
	r := s.LookupVirt(v)
	if len(r.Frames) == 0 {
		return r.Reason.Code()
	}
	return strings.Clone(r.Frames[0].Linkage)
}

// nameInFile is nameAt for a file that the user names.
func nameInFile(t *testing.T, l *Library, name string, v addr.Virt) string {
	t.Helper()
	s, err := l.OpenFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := s.LookupVirt(v); len(r.Frames) > 0 {
		return strings.Clone(r.Frames[0].Linkage)
	}
	return ""
}

// differing counts the calls of Finder.Differ.
type differing struct{ pairs [][2]string }

func (d *differing) add(_ buildid.ID, paths [2]string) { d.pairs = append(d.pairs, paths) }

// says reports whether one pair names both files.
func (d *differing) says(one, other string) bool {
	return slices.ContainsFunc(d.pairs, func(p [2]string) bool {
		all := strings.Join(p[:], " ")
		return strings.Contains(all, one) && strings.Contains(all, other)
	})
}

// TestTwoBuildsOneID has two programs with one build ID, an index of either, and all ways to
// ask for the other.
func TestTwoBuildsOneID(t *testing.T) {
	dir := t.TempDir()
	first, second := buildVersion(t, dir, "first"), buildVersion(t, dir, "second")
	if first.id != second.id || first.at != second.at || first.content == second.content {
		t.Fatalf("%+v and %+v", first, second)
	}
	for _, order := range [][2]*version{{first, second}, {second, first}} {
		one, other := order[0], order[1]
		different := reason.DifferentContent.Code()
		for _, test := range []struct {
			name  string
			query Query
			want  string
			both  bool // the answer says that there are two
		}{
			{"identity", Query{}, one.function, false},
			{"content", Query{Content: one.content}, one.function, false},
			{"content of the other", Query{Content: other.content}, different, true},
			{"content and path", Query{Content: one.content, Paths: []string{other.name}}, one.function, false},
			{"content of the other and path", Query{Content: other.content, Paths: []string{other.name}}, other.function, true},
			{"path of the other", Query{Paths: []string{other.name}}, different, true},
			{"path", Query{Paths: []string{one.name}}, one.function, false},
			{"the other named", Query{Named: []string{other.name}}, different, true},
		} {
			t.Run(one.function+" "+test.name, func(t *testing.T) {
				l, _ := library(t, never)
				prepare(t, l, &program{name: one.name, id: one.id})
				var d differing
				l.Finder.Differ = d.add
				q := test.query
				q.ID = one.id
				if got := nameAt(t, l, q, one.at); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				if got := len(d.pairs) > 0; got != test.both {
					t.Errorf("told %q", d.pairs)
				}
			})
		}
		t.Run(one.function+" file", func(t *testing.T) {
			l, _ := library(t, always)
			prepare(t, l, &program{name: one.name, id: one.id})
			var d differing
			l.Finder.Differ = d.add
			for range 2 { // the second time there is an index of it, too
				if got := nameInFile(t, l, other.name, one.at); got != other.function {
					t.Errorf("%s, want %s", got, other.function)
				}
			}
			if got := nameInFile(t, l, one.name, one.at); got != one.function {
				t.Errorf("%s, want %s", got, one.function)
			}
			if len(d.pairs) != 1 || !d.says(one.name, other.name) {
				t.Errorf("told %q", d.pairs)
			}
			prepare(t, l, &program{name: other.name, id: other.id})
			if got := nameAt(t, l, Query{ID: one.id}, one.at); got != different {
				t.Errorf("by identity, with two indexes: %s", got)
			}
			if _, err := l.Indexes.Open(one.id, buildid.Content{}); err != ErrDifferentContent {
				t.Errorf("the index by identity: %v", err)
			}
			for _, v := range order {
				if got := nameAt(t, l, Query{ID: one.id, Content: v.content}, one.at); got != v.function {
					t.Errorf("by content: %s, want %s", got, v.function)
				}
			}
		})
		t.Run(one.function+" without indexes", func(t *testing.T) {
			l, _ := library(t, never)
			l.Finder.Extra = []string{one.name, other.name}
			var d differing
			l.Finder.Differ = d.add
			if got := nameAt(t, l, Query{ID: one.id}, one.at); got != different || !d.says(one.name, other.name) {
				t.Errorf("both named: %s, told %q", got, d.pairs)
			}
			for _, v := range order {
				if got := nameAt(t, l, Query{ID: one.id, Content: v.content}, one.at); got != v.function {
					t.Errorf("by content: %s, want %s", got, v.function)
				}
			}
			if got := nameAt(t, l, Query{ID: one.content.ID(), Paths: []string{one.name}}, one.at); got != one.function {
				t.Errorf("its content is its identity: %s", got)
			}
			if got := nameAt(t, l, Query{ID: one.content.ID(), Paths: []string{other.name}}, one.at); got == other.function {
				t.Error("the other one answers for a content")
			}
		})
	}
}

// TestReplacedInPlace: the program at a path is another one than when its index was made.
func TestReplacedInPlace(t *testing.T) {
	dir := t.TempDir()
	first, second := buildVersion(t, dir, "first"), buildVersion(t, dir, "second")
	l, _ := library(t, never)
	var d differing
	l.Finder.Differ = d.add
	name := copyFile(t, first.name, filepath.Join(dir, "prog"))
	prepare(t, l, &program{name: name, id: first.id})
	copyFile(t, second.name, name)
	if got := nameInFile(t, l, name, first.at); got != "second" || !d.says(name, name) {
		t.Errorf("%s, told %q", got, d.pairs)
	}
}

// TestDebugFileOfAnotherBuild: a build ID does not make a debug file that of the program.
func TestDebugFileOfAnotherBuild(t *testing.T) {
	dir := t.TempDir()
	first := buildVersion(t, dir, "first")
	second := buildVersion(t, dir, "second", "-DMORE", "-Wl,--section-start=.text=0x9000")
	debug := inTree(dir, first.id) + ".debug"
	if err := os.MkdirAll(filepath.Dir(debug), 0o777); err != nil {
		t.Fatal(err)
	}
	command(t, "objcopy", "--only-keep-debug", second.name, debug)
	command(t, "strip", "--strip-all", first.name)
	var d differing
	f := &Finder{Dirs: []string{dir}, Differ: d.add}
	file, why := f.Open(first.id, first.name)
	if file == nil {
		t.Fatal(why)
	}
	defer file.Close()
	if file.DebugSize() > 0 || !d.says(first.name, debug) {
		t.Errorf("the debug file is used, told %q", d.pairs)
	}
}

// TestFormsOfDebugFiles splits programs of all layouts as all tools do it, and finds each
// debug file again.
func TestFormsOfDebugFiles(t *testing.T) {
	split := map[string]func(t *testing.T, whole, stripped, debug string){
		"objcopy": func(t *testing.T, whole, stripped, debug string) {
			command(t, "objcopy", "--only-keep-debug", whole, debug)
			command(t, "strip", "-o", stripped, whole)
		},
		"objcopy compressed": func(t *testing.T, whole, stripped, debug string) {
			command(t, "objcopy", "--only-keep-debug", "--compress-debug-sections", whole, debug)
			command(t, "strip", "--strip-unneeded", "-o", stripped, whole)
		},
		"llvm-objcopy": func(t *testing.T, whole, stripped, debug string) {
			command(t, "llvm-objcopy-19", "--only-keep-debug", whole, debug)
			command(t, "llvm-strip-19", "-o", stripped, whole)
		},
		"eu-strip": func(t *testing.T, whole, stripped, debug string) {
			command(t, "eu-strip", "-f", debug, "-o", stripped, whole)
		},
		"eu-strip of sections": func(t *testing.T, whole, stripped, debug string) {
			command(t, "eu-strip", "--strip-sections", "-f", debug, "-o", stripped, whole)
		},
		"dwz": func(t *testing.T, whole, stripped, debug string) {
			command(t, "objcopy", "--only-keep-debug", whole, debug)
			command(t, "dwz", debug)
			command(t, "strip", "-o", stripped, whole)
		},
	}
	for _, layout := range []string{"", "-static", "-Wl,-z,noseparate-code", "-no-pie", "-fuse-ld=gold", "-fuse-ld=mold", "-shared -fPIC", "-Wl,-z,pack-relative-relocs"} {
		for tool, run := range split {
			t.Run(tool+" "+layout, func(t *testing.T) {
				dir := t.TempDir()
				v := buildVersion(t, dir, "first", strings.Fields(layout)...)
				stripped, debug := filepath.Join(dir, "stripped"), inTree(dir, v.id)+".debug"
				if err := os.MkdirAll(filepath.Dir(debug), 0o777); err != nil {
					t.Fatal(err)
				}
				if tool == "llvm-objcopy" && layout == "-static" {
					t.Skip("it refuses to remove the symbols that relocations refer to")
				}
				run(t, v.name, stripped, debug)
				checkJoined(t, dir, stripped, v)
				checkAlone(t, debug, v)
			})
		}
	}
}

// checkAlone wants a debug file without its program to answer for offsets of it, where mappings of
// the program show where these are, and for nothing where they do not.
func checkAlone(t *testing.T, debug string, v *version) {
	t.Helper()
	program, err := elf.Open(v.name)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	const page = 4096
	var right []symbol.Mapping
	var offset addr.Offset
	for _, p := range program.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			offset = addr.Offset(uint64(v.at) - p.Vaddr + p.Off)
			skew := p.Vaddr % page
			right = append(right, symbol.Mapping{
				Start: addr.Virt(p.Vaddr - skew), Offset: addr.Offset(p.Off - skew),
				Size: (skew + p.Filesz + page - 1) &^ (page - 1),
			})
		}
	}
	file, err := symbol.OpenFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	keptOffsets := slices.ContainsFunc(file.Segments(), func(s symbol.Segment) bool { return s.Executable() && s.Holds(offset) })
	file.Close()
	changed := func(change func(*symbol.Mapping)) []symbol.Mapping {
		all := slices.Clone(right)
		for i := range all {
			change(&all[i])
		}
		return all
	}
	unplaced := reason.DebugFileAlone.Code()
	for name, c := range map[string]struct {
		mapped []symbol.Mapping
		rival  bool
		want   string
	}{
		"as recorded":  {right, false, v.function},
		"in a process": {changed(func(m *symbol.Mapping) { m.Start += 0x5581_0000_0000 }), false, unplaced},
		"too large":    {changed(func(m *symbol.Mapping) { m.Size += 1 << 30 }), false, unplaced},
		"file offsets": {[]symbol.Mapping{{Size: 1<<64 - 1}}, false, unplaced},
		"nobody knows": {nil, false, unplaced},
		"a rival":      {right, true, reason.DifferentContent.Code()},
	} {
		want := c.want
		if keptOffsets && want == unplaced {
			want = v.function // its own headers show it
		}
		told := ""
		l := &Library{Finder: Finder{Dirs: []string{}, Extra: []string{debug}}, Indexes: Indexes{Dir: t.TempDir()}}
		l.Finder.Uncompared = func(_ buildid.ID, path string) { told = path }
		q := Query{ID: v.id, Content: v.content, Rival: c.rival, Mapped: c.mapped, Local: true}
		s, err := l.Get(t.Context(), Request{Query: q})
		got := reason.Of(err).Code()
		if s != nil {
			r := s.LookupOffset(offset)
			if got = r.Reason.Code(); len(r.Frames) > 0 {
				got = strings.Clone(r.Frames[0].Linkage)
			}
			s.Close()
		}
		if got != want {
			t.Errorf("%s, alone: %s, want %s", name, got, want)
		} else if (told == debug) != (got == v.function && c.mapped != nil) {
			t.Errorf("%s, alone: %s is called uncompared", name, told)
		}
	}
}

// checkJoined wants a stripped program and its debug file below dir to answer.
func checkJoined(t *testing.T, dir, stripped string, v *version) {
	t.Helper()
	f := &Finder{Dirs: []string{dir}}
	file, why := f.Search(t.Context(), Query{ID: v.id, Content: v.content, Paths: []string{stripped}, Local: true})
	if file == nil {
		t.Fatal(why)
	}
	defer file.Close()
	if r := file.LookupVirt(v.at); len(r.Frames) != 1 || r.Frames[0].Linkage != v.function || r.Frames[0].Line != 1 {
		t.Errorf("%+v", r)
	}
}

// TestGoDebugFile splits a program by Go's toolchain.
func TestGoDebugFile(t *testing.T) {
	dir := t.TempDir()
	source, whole := filepath.Join(dir, "main.go"), filepath.Join(dir, "whole")
	if err := os.WriteFile(source, []byte("package main\n\n//go:noinline\nfunc first() int { return len(source) }\n\nvar source = \"x\"\n\nfunc main() { first() }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "go", "build", "-ldflags=-B "+claimedID, "-o", whole, source)
	v := &version{name: whole, id: identify(t, whole), content: contentAt(t, whole), at: symbolsOf(t, whole)["main.first"]}
	for _, tool := range []string{"objcopy", "eu-strip"} {
		stripped, debug := filepath.Join(dir, tool+".stripped"), filepath.Join(t.TempDir(), "debug")
		if tool == "objcopy" {
			command(t, "objcopy", "--only-keep-debug", whole, debug)
			command(t, "strip", "-o", stripped, whole)
		} else {
			command(t, "eu-strip", "-f", debug, "-o", stripped, whole)
		}
		file, why := (&Finder{Extra: []string{debug}}).Search(t.Context(), Query{ID: v.id, Content: v.content, Paths: []string{stripped}, Local: true})
		if file == nil {
			t.Fatal(why)
		}
		if file.DebugSize() == 0 {
			t.Errorf("%s: without its debug file", tool)
		}
		file.Close()
	}
}

// nobody is a user who is not the one of the test.
const nobody = 65534

// give gives files to nobody.
func give(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Lchown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
}

// evil copies a program, code and build ID and all, and gives its function another name in
// all tables. Nobody owns it.
func evil(t *testing.T, v *version, name string) string {
	t.Helper()
	copyFile(t, v.name, name)
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lie := "evil!"[:len(v.function)]
	for at := 0; ; {
		i := strings.Index(string(content[at:]), v.function+"\x00")
		if i < 0 {
			break
		}
		at += i
		copy(content[at:], lie)
	}
	if err := os.WriteFile(name, content, 0o777); err != nil {
		t.Fatal(err)
	}
	if contentAt(t, name) != v.content || identify(t, name) != v.id {
		t.Fatal("the copy has another content")
	}
	give(t, name)
	return name
}

// TestNamesOfOthers: a program of another user claims the build ID, and even has the code,
// of root's. What it says of its functions is no answer for root's, however it was asked for.
func TestNamesOfOthers(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	v := buildVersion(t, dir, "first")
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	twin := evil(t, v, filepath.Join(theirs, "twin"))
	other := buildVersion(t, theirs, "other")
	give(t, theirs, other.name)
	for _, theirs := range []string{twin, other.name} {
		l, _ := library(t, always)
		if got := nameInFile(t, l, theirs, v.at); got == v.function {
			t.Errorf("%s does not answer for itself: %s", theirs, got)
		}
		if kept, err := l.Indexes.List(); err != nil || len(kept) != 1 {
			t.Errorf("%d indexes, %v", len(kept), err)
		}
		l.IndexWhen = never
		for name, q := range map[string]Query{
			"identity": {}, "content": {Content: v.content}, "path": {Paths: []string{v.name}}, "path and content": {Paths: []string{v.name}, Content: v.content},
		} {
			q.ID = v.id
			want := v.function
			if len(q.Paths) == 0 {
				want = reason.NotBelieved.Code()
			}
			if theirs == other.name && name == "content" {
				want = reason.NoFile.Code()
			}
			if got := nameAt(t, l, q, v.at); got != want {
				t.Errorf("after %s, by %s: %s, want %s", theirs, name, got, want)
			}
		}
		if got := nameInFile(t, l, v.name, v.at); got != v.function {
			t.Errorf("after %s: %s", theirs, got)
		}
		// Its own index answers for it.
		if got := nameInFile(t, l, theirs, v.at); got == v.function {
			t.Errorf("%s is named by another file: %s", theirs, got)
		}
	}
}

// TestNamedFileOfOthers: what the user asks an index of is believed for an identity, unless
// a better one is there.
func TestNamedFileOfOthers(t *testing.T) {
	testenv.Root(t)
	dir, theirs := t.TempDir(), t.TempDir()
	v := buildVersion(t, dir, "first")
	twin := evil(t, v, filepath.Join(theirs, "twin"))
	l, _ := library(t, never)
	prepare(t, l, &program{name: twin, id: v.id})
	if got := nameAt(t, l, Query{ID: v.id}, v.at); got != "evil!"[:len(v.function)] {
		t.Errorf("the user asked for it: %s", got)
	}
	if got := nameInFile(t, l, v.name, v.at); got != v.function {
		t.Errorf("for root's file: %s", got)
	}
	prepare(t, l, &program{name: v.name, id: v.id})
	for _, q := range []Query{{ID: v.id}, {ID: v.id, Content: v.content}} {
		if got := nameAt(t, l, q, v.at); got != v.function {
			t.Errorf("with root's index: %s", got)
		}
	}
}

// TestDebugFilesOfOthers puts debug files of another user where they are looked for.
func TestDebugFilesOfOthers(t *testing.T) {
	testenv.Root(t)
	for _, test := range []struct {
		name     string
		of       bool // the program is theirs, too
		named    bool
		used     bool
		debugDir string
	}{
		{"beside root's program", false, false, false, "."},
		{"in .debug", false, false, false, ".debug"},
		{"beside their own", true, false, true, "."},
		{"named", false, true, true, "."},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := build(t)
			p.link(t)
			debug := p.install(t, filepath.Join(p.dir, test.debugDir, "prog.debug"))
			give(t, debug)
			if test.of {
				give(t, p.name)
			}
			l, _ := library(t, always)
			if test.named {
				l.Finder.Extra = []string{debug}
			}
			var steps trace
			l.Finder.Trace = steps.add
			s, err := l.OpenFile(t.Context(), p.name)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := len(s.LookupVirt(p.hidden).Frames) > 0; got != test.used {
				t.Errorf("used: %v, want %v", got, test.used)
			}
			if said := steps.says(debug, reason.NotBelieved); said == test.used {
				t.Errorf("steps %+v", steps.steps)
			}
			if kept, _ := l.Indexes.List(); test.named && len(kept) > 0 {
				t.Errorf("an index is kept of what was named once: %v", kept)
			}
			if test.of {
				return
			}
			// Alone it is no better.
			if err := os.Remove(p.name); err != nil {
				t.Fatal(err)
			}
			t.Setenv("DEBUGINFOD_CACHE_PATH", p.dir)
			give(t, p.install(t, filepath.Join(p.dir, p.id.String(), "debuginfo")))
			if got := nameAt(t, l, Query{ID: p.id}, p.hidden); (got == hiddenFunction) != test.used {
				t.Errorf("alone: %s", got)
			}
		})
	}
}

func (tr *trace) says(path string, why reason.Reason) bool {
	return slices.ContainsFunc(tr.steps, func(s Step) bool { return s.Path == path && s.Why == why })
}

// TestDebugFileOfARival: root has a debug file, and another user's program claims its build ID:
// its code is in segments of the same addresses and sizes. The debug file names no code of it
// where the build ID is known to be contested; nor if it is the program that is not there.
func TestDebugFileOfARival(t *testing.T) {
	testenv.Root(t)
	dir, theirs := t.TempDir(), notShared(t)
	first, other := buildVersion(t, dir, "first"), buildVersion(t, theirs, "other")
	if first.at != other.at || first.content == other.content {
		t.Fatalf("%+v and %+v", first, other)
	}
	debug := inTree(dir, first.id) + ".debug"
	if err := os.MkdirAll(filepath.Dir(debug), 0o777); err != nil {
		t.Fatal(err)
	}
	command(t, "objcopy", "--only-keep-debug", first.name, debug)
	command(t, "strip", "--strip-all", other.name)
	ours, beside := copyFile(t, other.name, filepath.Join(dir, "ours")), copyFile(t, debug, filepath.Join(theirs, "debug"))
	give(t, other.name)
	named := func(f *Finder, q Query) bool {
		t.Helper()
		q.ID, q.Content, q.Local = other.id, other.content, true
		file, _ := f.Search(t.Context(), q)
		if file == nil {
			return false
		}
		defer file.Close()
		return len(file.LookupVirt(other.at).Frames) > 0
	}
	before := DefaultDirs
	DefaultDirs = append(slices.Clone(before), dir)
	defer func() { DefaultDirs = before }()
	installed := &Finder{Places: []Place{AtPath, InDirs}}
	for _, test := range []struct {
		name   string
		finder *Finder
		query  Query
		want   bool
	}{
		{"not contested", installed, Query{Paths: []string{other.name}}, true},
		{"contested", installed, Query{Paths: []string{other.name}, Rival: true}, false},
		{"contested, the program is gone", installed, Query{Rival: true}, false},
		{"contested, and of one owner", installed, Query{Paths: []string{ours}, Rival: true}, true},
		{"contested, and named", &Finder{Extra: []string{beside}, Places: []Place{AtPath, InExtra}}, Query{Paths: []string{other.name}, Rival: true}, true},
	} {
		if got := named(test.finder, test.query); got != test.want {
			t.Errorf("%s: named %v", test.name, got)
		}
	}
}

// notShared returns a directory in which nobody but root can put files.
func notShared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "hallmark-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestSharedPath: in a directory where all users can put files, the one at a path may be
// another user's than the one that was there.
func TestSharedPath(t *testing.T) {
	testenv.Root(t)
	dir := notShared(t)
	v := buildVersion(t, t.TempDir(), "first")
	l, _ := library(t, never)
	for mode, want := range map[fs.FileMode]string{0o755: v.function, 0o777 | fs.ModeSticky: reason.NotBelieved.Code()} {
		name := copyFile(t, v.name, filepath.Join(dir, "prog"))
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		give(t, name)
		for _, q := range []Query{{ID: v.id, Paths: []string{name}}, {ID: v.id, Content: v.content, Paths: []string{name}}} {
			if got := nameAt(t, l, q, v.at); got != want {
				t.Errorf("in a directory with mode %v: %s, want %s", mode, got, want)
			}
		}
		if got := nameAt(t, l, Query{ID: v.id, Named: []string{name}}, v.at); got != v.function {
			t.Errorf("named: %s", got)
		}
		if err := os.Chown(name, 0, 0); err != nil {
			t.Fatal(err)
		}
		if got := nameAt(t, l, Query{ID: v.id, Paths: []string{name}}, v.at); got != v.function {
			t.Errorf("root's in a directory with mode %v: %s", mode, got)
		}
	}
}

// TestPackagesOfOthers: the package of split units beside a program is another user's.
func TestPackagesOfOthers(t *testing.T) {
	testenv.Root(t)
	p := buildSplit(t, "-gdwarf-5")
	file := func(f *Finder) string {
		t.Helper()
		file, why := f.Search(t.Context(), Query{ID: identify(t, p.name), Named: []string{p.name}, Local: true})
		if file == nil {
			t.Fatal(why)
		}
		defer file.Close()
		return framesOf(file, p.work)
	}
	if got := file(new(Finder)); got != p.frames {
		t.Fatalf("root's own: %s", got)
	}
	give(t, p.dwp)
	if got := file(new(Finder)); got == p.frames {
		t.Error("another user's package is used for root's program")
	}
	if got := file(&Finder{Package: p.dwp}); got != p.frames {
		t.Errorf("named: %s", got)
	}
	give(t, p.name)
	if got := file(new(Finder)); got != p.frames {
		t.Errorf("both are theirs: %s", got)
	}
}

// TestSplitUnitOfOthers: so it is with a .dwo file, whose path the program says.
func TestSplitUnitOfOthers(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("prog.c", []byte("int main(void) { return 0; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", "-g", "-gsplit-dwarf", "-c", "prog.c")
	command(t, "gcc", "-o", "prog", "prog.o")
	name := filepath.Join(dir, "prog")
	knowsStart := func() bool {
		t.Helper()
		file, why := new(Finder).Search(t.Context(), Query{ID: identify(t, name), Named: []string{name}, Local: true})
		if file == nil {
			t.Fatal(why)
		}
		defer file.Close()
		r := file.LookupVirt(symbolsOf(t, name)["main"])
		return len(r.Frames) == 1 && r.Frames[0].Start == 1
	}
	if !knowsStart() {
		t.Fatal("root's own is not used")
	}
	give(t, "prog.dwo")
	if knowsStart() {
		t.Error("another user's unit is used for root's program")
	}
	give(t, name)
	if !knowsStart() {
		t.Error("both are theirs, and it is not used")
	}
}

// TestOriginText reads what it writes, and nothing else.
func TestOriginText(t *testing.T) {
	for _, o := range []Origin{
		{Author: AuthorRoot, Path: "/bin/x"},
		{Author: AuthorOthers, Witness: "1.2.3", Path: "/tmp/\"a\" path=\n"},
	} {
		if got, ok := parseOrigin(o.String()); !ok || got != o {
			t.Errorf("%q is %+v", o, got)
		}
	}
	for _, bad := range []string{"", "content=", "content=x author=root witness= path=\"\"", "content= author=god witness= path=\"\"", "content= author=root witness= path=x"} {
		if got, ok := parseOrigin(bad); ok {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

// TestOldIndexes: an index that does not say of which content it is was made by an older
// release, and nothing reads it.
func TestOldIndexes(t *testing.T) {
	v := buildVersion(t, t.TempDir(), "first")
	l, _ := library(t, never)
	file, err := symbol.OpenFile(v.name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	x, err := file.Index(symbol.IndexOptions{Identity: v.id.String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Indexes.Store(x); err == nil {
		t.Error("an index without origin is kept")
	}
	if err := os.MkdirAll(l.Indexes.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "-unknown", "-" + v.content.String()} {
		if err := os.WriteFile(filepath.Join(l.Indexes.Dir, v.id.String()+name+suffix), x.Bytes(), fs.FileMode(0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []Query{{ID: v.id}, {ID: v.id, Content: v.content}} {
		if got := nameAt(t, l, q, v.at); got != reason.NoFile.Code() {
			t.Errorf("%+v: %s", q, got)
		}
	}
}

// TestEveryDebugFileFits compares the program headers of the files of this system with those
// of their debug files.
func TestEveryDebugFileFits(t *testing.T) {
	compared := 0
	for _, name := range testenv.ELFFiles(t, "/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/debug/boot", "/boot") {
		file, err := symbol.OpenFile(name)
		if err != nil {
			continue
		}
		id, _ := Identify(file)
		path, _ := new(Finder).Find(id)
		debug, err := symbol.OpenFile(path)
		if err == nil {
			compared++
			if !fits(file, debug) {
				t.Errorf("%s: %s does not fit", name, path)
			}
			debug.Close()
		}
		file.Close()
	}
	testenv.Need(t, compared > 0, "debug files in "+system+" (libc6-dbg)")
	t.Logf("%d debug files fit", compared)
}
