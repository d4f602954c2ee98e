package debuginfo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// always and never are for Library.IndexWhen.
func always(int64, int) bool { return true }
func never(int64, int) bool  { return false }

// library returns a Library that keeps indexes in a directory of its own, and the
// directory where debug files are installed for it.
func library(t *testing.T, when func(int64, int) bool) (l *Library, dir string) {
	t.Helper()
	dir = t.TempDir()
	return &Library{
		Finder:    Finder{Dirs: []string{dir}},
		Indexes:   Indexes{Dir: filepath.Join(t.TempDir(), "index")},
		IndexWhen: when,
	}, dir
}

// sourcesOf opens the symbols of a program and says what they are made from, and
// whether they are an index.
func sourcesOf(t *testing.T, l *Library, p *program) (sources []symbol.Source, isIndex bool) {
	t.Helper()
	s, why := l.Open(t.Context(), p.id, p.name)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	x, isIndex := s.(*symbol.Index)
	if isIndex {
		return x.Sources(), true
	}
	return s.(*symbol.File).Sources(), false
}

// prepare makes the index of a program as it is found now.
func prepare(t *testing.T, l *Library, p *program) {
	t.Helper()
	file, why := l.Finder.Search(t.Context(), Query{ID: p.id, Named: []string{p.name}, Local: true})
	if file == nil {
		t.Fatal(why)
	}
	defer file.Close()
	x, err := l.Prepare(t.Context(), p.id, file, symbol.IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
}

// pathOfIndex returns the path of the one index that is kept.
func pathOfIndex(t *testing.T, l *Library) string {
	t.Helper()
	kept, err := l.Indexes.List()
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d indexes are kept, %v", len(kept), err)
	}
	return kept[0].Path
}

// TestBetterFileReplacesIndex installs a debug file after an index was made without it,
// and removes it again.
func TestBetterFileReplacesIndex(t *testing.T) {
	p := build(t)
	l, dir := library(t, never)
	prepare(t, l, p)
	if sources, isIndex := sourcesOf(t, l, p); !isIndex || slices.Contains(sources, symbol.SourceDWARF) {
		t.Fatalf("without a debug file: %v, an index: %v", sources, isIndex)
	}
	debug := p.install(t, inTree(dir, p.id)+".debug")
	for _, step := range []string{"with a debug file", "with the new index"} {
		if sources, isIndex := sourcesOf(t, l, p); !isIndex || !slices.Contains(sources, symbol.SourceDWARF) {
			t.Errorf("%s: %v, an index: %v", step, sources, isIndex)
		}
	}
	for _, name := range []string{debug, p.name} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if sources, isIndex := sourcesOf(t, l, p); !isIndex || !slices.Contains(sources, symbol.SourceDWARF) {
			t.Errorf("without %s: %v, an index: %v", name, sources, isIndex)
		}
	}
}

// TestIndexIsAsGoodAsFile asks both for every address of the code.
func TestIndexIsAsGoodAsFile(t *testing.T) {
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	s, why := l.Open(t.Context(), p.id, p.name)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	r := s.LookupVirt(p.hidden)
	if len(r.Frames) != 1 || r.Frames[0].Func != hiddenFunction || r.Source != symbol.SourceDWARF || r.Frames[0].Line != 1 {
		t.Errorf("%+v, want line 1 of %s", r, hiddenFunction)
	}
	o, ok := addr.Offset(p.hidden), false
	if v, known := s.Virt(o); known && v == p.hidden { // as gcc and GNU ld lay a small program out
		ok = true
	}
	if r := s.LookupOffset(o); !ok || len(r.Frames) != 1 || r.Frames[0].Func != hiddenFunction {
		t.Errorf("by offset: %+v", r)
	}
}

// TestDebugFileAlone: an index of it could not say where in the file code is, so none is
// kept.
func TestDebugFileAlone(t *testing.T) {
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	s, why := l.Open(t.Context(), p.id)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	if r := s.LookupVirt(p.hidden); len(r.Frames) != 1 {
		t.Errorf("%+v", r)
	}
	if kept, err := l.Indexes.List(); len(kept) > 0 || err != nil {
		t.Errorf("%+v, %v", kept, err)
	}
}

// TestDebugFileIndexed: an index that somebody made from a debug file alone must not
// hide the file.
func TestDebugFileIndexed(t *testing.T) {
	p := build(t)
	l, dir := library(t, never)
	debug := p.install(t, inTree(dir, p.id)+".debug")
	prepare(t, l, &program{name: debug, id: p.id})
	s, why := l.Open(t.Context(), p.id, p.name)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	if _, ok := s.Virt(addr.Offset(p.hidden)); !ok {
		t.Error("no address is known for an offset in the code")
	}
	if r := s.LookupVirt(p.hidden); len(r.Frames) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestSplitOff compiles a program whose debug information is in a .dwo file.
func TestSplitOff(t *testing.T) {
	dir := t.TempDir()
	source, name := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", "-g", "-gsplit-dwarf", "-o", name, source)
	l, _ := library(t, never)
	s, why := l.Open(t.Context(), identify(t, name), name)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	if r := s.LookupVirt(symbolsOf(t, name)["main"]); len(r.Frames) != 1 || r.Source != symbol.SourceDWARF || r.Frames[0].Start != 1 {
		t.Errorf("%+v", r)
	}
}

// TestSplitOffIsAway takes away what was split off, wants an index, and puts it back.
func TestSplitOffIsAway(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("prog.c", []byte("int main(void) { return 0; }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", "-g", "-gsplit-dwarf", "-c", "prog.c")
	command(t, "gcc", "-o", "prog", "prog.o")
	name := filepath.Join(dir, "prog")
	l, _ := library(t, always)
	for _, there := range []bool{false, true} {
		from, to := "prog.dwo", "away.dwo"
		if there {
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		s, why := l.Open(t.Context(), identify(t, name), name)
		if s == nil {
			t.Fatal(why)
		}
		r := s.LookupVirt(symbolsOf(t, name)["main"])
		if len(r.Frames) != 1 || r.Frames[0].Line != 1 || r.Frames[0].Start == 1 != there {
			t.Errorf("there: %v: %+v", there, r)
		}
		s.Close()
		if kept, _ := l.Indexes.List(); len(kept) > 0 != there {
			t.Errorf("there: %v: kept %v", there, kept)
		}
	}
}

func TestOpenFile(t *testing.T) {
	p := build(t)
	l, dir := library(t, never)
	debug := p.install(t, inTree(dir, p.id)+".debug")
	prepare(t, l, p)
	index := pathOfIndex(t, l)
	for _, name := range []string{index, p.name, debug} {
		s, err := l.OpenFile(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.LookupVirt(p.hidden); len(r.Frames) != 1 || r.Frames[0].Line != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		s.Close()
	}
	content, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short.index")
	if err := os.WriteFile(short, content[:len(content)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	var damage *symbol.FormatError
	if _, err := l.OpenFile(t.Context(), short); !errors.As(err, &damage) || errors.Is(err, symbol.ErrNotELF) {
		t.Errorf("half of an index: %v", err)
	}
	if _, err := l.OpenFile(t.Context(), "/nonexistent"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := l.OpenFile(t.Context(), "/etc/passwd"); !errors.Is(err, symbol.ErrNotELF) {
		t.Error(err)
	}
}

// TestMadeOnce lets several Libraries, as several processes have them, want the same
// index at once.
func TestMadeOnce(t *testing.T) {
	p := build(t)
	first, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	var inodes sync.Map
	var wait sync.WaitGroup
	before := openFiles(t)
	for range 16 {
		l := &Library{Finder: Finder{Dirs: []string{dir}}, Indexes: first.Indexes, IndexWhen: always}
		for range 2 {
			wait.Go(func() {
				s, why := l.Open(t.Context(), p.id, p.name)
				if s == nil {
					t.Error(why)
					return
				}
				defer s.Close()
				if r := s.LookupVirt(p.hidden); len(r.Frames) != 1 || r.Frames[0].Func != hiddenFunction {
					t.Errorf("%+v", r)
				}
				if info, err := os.Stat(s.(*symbol.Index).Name()); err != nil {
					t.Error(err)
				} else {
					inodes.Store(inode(info), true)
				}
			})
		}
	}
	wait.Wait()
	n := 0
	inodes.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d indexes were made", n)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
	if left, err := os.ReadDir(first.Indexes.Dir); len(left) != 1 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDamagedIndexIsMadeAgain: what is damaged behind the header is not seen when an index
// is opened, but when one is wanted.
func TestDamagedIndexIsMadeAgain(t *testing.T) {
	p := build(t)
	l, dir := library(t, never)
	p.install(t, inTree(dir, p.id)+".debug")
	prepare(t, l, p)
	path := pathOfIndex(t, l)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(sound)
	damaged[len(damaged)/2] ^= 0xff
	if err := os.WriteFile(path, damaged, 0o666); err != nil {
		t.Fatal(err)
	}
	prepare(t, l, p)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, sound) {
		t.Errorf("the index is still damaged (%v)", err)
	}
}

// TestIndexOfOldVersionIsMadeAgain: an index of another version counts as none, and the
// next one takes its place, without a word.
func TestIndexOfOldVersionIsMadeAgain(t *testing.T) {
	const (
		atVersion   = 8 // in the header, as package symbol describes it
		atHeaderSum = 124
	)
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	prepare(t, l, p)
	path := pathOfIndex(t, l)
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := slices.Clone(now)
	binary.LittleEndian.PutUint32(old[atVersion:], binary.LittleEndian.Uint32(old[atVersion:])-1)
	binary.LittleEndian.PutUint32(old[atHeaderSum:], crc32.Checksum(old[:atHeaderSum], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, old, 0o666); err != nil {
		t.Fatal(err)
	}
	if x, err := l.Indexes.Open(p.id, buildid.Content{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v of an old version", x, err)
	}
	if _, isIndex := sourcesOf(t, l, p); !isIndex {
		t.Error("no index is made")
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, now) {
		t.Errorf("the old index is still there (%v)", err)
	}
}

// TestCacheThatCannotBeWritten: there are symbols all the same.
func TestCacheThatCannotBeWritten(t *testing.T) {
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	l.Indexes.Dir = "/proc/nothing"
	s, why := l.Open(t.Context(), p.id, p.name)
	if s == nil {
		t.Fatal(why)
	}
	defer s.Close()
	if r := s.LookupVirt(p.hidden); len(r.Frames) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestWorthIndexing(t *testing.T) {
	const libc, vmlinux, ceph = 5 << 20, 166 << 20, 363 << 20
	for _, test := range []struct {
		size      int64
		addresses int
		want      bool
	}{
		{0, 1e6, false},
		{1<<20 - 1, 1e6, false},
		{libc, 1, false},
		{libc, 100, true},
		{vmlinux, 100, false},
		{vmlinux, 2000, true},
		{ceph, 1000, false},
		{ceph, 100_000, true},
	} {
		if got := WorthIndexing(test.size, test.addresses); got != test.want {
			t.Errorf("%d MiB, %d addresses: %v", test.size>>20, test.addresses, got)
		}
	}
}

// TestNothingFound says why, as a Finder does.
func TestNothingFound(t *testing.T) {
	l, _ := library(t, always)
	id, err := buildid.Parse("00112233445566778899")
	if err != nil {
		t.Fatal(err)
	}
	if s, why := l.Open(t.Context(), id, "/nonexistent"); s != nil || why != reason.NoFile {
		t.Errorf("%v, %v", s, why)
	}
	if s, why := l.Open(t.Context(), id, os.Args[0]); s != nil || why != reason.FileChanged {
		t.Errorf("%v, %v", s, why)
	}
}

// TestCompanionsAreShared misses files by several goroutines at once. The race detector watches.
func TestCompanionsAreShared(t *testing.T) {
	c := companions{open: func(symbol.Companion) *symbol.File { return nil }}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				c.find(symbol.Companion{Path: "a.dwp", Package: "a"}) // need not be there
				c.find(symbol.Companion{Path: "a.dwo"})
			}
		})
	}
	all.Wait()
	if c.lost != "a.dwo" {
		t.Errorf("lost %q", c.lost)
	}
}
