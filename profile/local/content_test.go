package local

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// buildOf compiles a program that claims a build ID, with a function of this name.
func buildOf(t *testing.T, dir, function string) (b *profile.Binary, at addr.Offset) {
	t.Helper()
	source, name := filepath.Join(dir, function+".c"), filepath.Join(dir, function+"-prog")
	text := fmt.Sprintf("__attribute__((noinline)) int %s(int a) { return a * %d; }\nint main(int n, char **v) { return %[1]s(n); }\n", function, 1000+int(function[0]))
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "gcc", "-g", "-O1", "-Wl,--build-id=0xb1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0b1d0", "-o", name, source)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := buildid.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	b = &profile.Binary{ID: info.ID, Path: name}
	if b.Content, err = buildid.ReadContent(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	headers, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range headers.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			b.Segments = append(b.Segments, profile.Segment{Offset: addr.Offset(p.Off), Virt: addr.Virt(p.Vaddr), Size: p.Filesz})
		}
	}
	symbols, err := headers.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == function {
			at = addr.Offset(s.Value-uint64(b.Segments[0].Virt)) + b.Segments[0].Offset
		}
	}
	return b, at
}

// recordedOnce returns a profile with a sample in each binary, as it is read from a file.
func recordedOnce(t *testing.T, at addr.Offset, binaries ...*profile.Binary) *pprof.Profile {
	t.Helper()
	b := profile.NewBuilder(1)
	for _, one := range binaries {
		b.Add([]profile.Frame{{Binary: one, Offset: at}}, &profile.Labels{}, 1, 1)
	}
	var file bytes.Buffer
	if err := profile.Write(&file, b.Profile()); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Read(&file, profile.ReadOptions{MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// namesOf returns the functions of the samples of a profile in their order, or why there is
// none.
func namesOf(p *pprof.Profile, misses profile.Misses) string {
	var all []string
	for _, s := range p.Sample {
		l := s.Location[0]
		if len(l.Line) == 0 {
			all = append(all, misses[l].Code())
			continue
		}
		all = append(all, l.Line[0].Function.SystemName)
	}
	return strings.Join(all, " ")
}

// TestTwoBuildsInProfile has two programs of one build ID in a profile, beside each other
// and at one path after each other, with the index of either.
func TestTwoBuildsInProfile(t *testing.T) {
	dir := t.TempDir()
	first, at := buildOf(t, dir, "first")
	second, same := buildOf(t, dir, "second")
	if at != same || at == 0 {
		t.Fatalf("functions at %v and %v", at, same)
	}
	for _, order := range [][2]*profile.Binary{{first, second}, {second, first}} {
		library := &debuginfo.Library{
			Finder:  debuginfo.Finder{Dirs: []string{}},
			Indexes: debuginfo.Indexes{Dir: t.TempDir()},
		}
		var told [][2]string
		library.Finder.Differ = func(_ buildid.ID, paths [2]string) { told = append(told, paths) }
		check := func(what, want string, p *pprof.Profile) {
			t.Helper()
			misses, _ := profile.Symbolize(t.Context(), p, &Symbols{Library: library})
			if got := namesOf(p, misses); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		name := func(b *profile.Binary) string { return strings.TrimSuffix(filepath.Base(b.Path), "-prog") }
		both := name(order[0]) + " " + name(order[1])
		check("without indexes", both, recordedOnce(t, at, order[0], order[1]))
		file, err := symbol.OpenFile(order[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		x, err := library.Prepare(t.Context(), order[0].ID, file, symbol.IndexOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x.Close()
		file.Close()
		check("with an index of the first", both, recordedOnce(t, at, order[0], order[1]))
		if len(told) == 0 {
			t.Error("nobody is told that there are two")
		}
		// The second one was at the path of the first, or its file is gone.
		gone := *order[1]
		gone.Path = order[0].Path
		different := reason.DifferentContent.Code()
		replaced := recordedOnce(t, at, order[0], &gone)
		misses, _ := profile.Symbolize(t.Context(), replaced, &Symbols{Library: library})
		if got := namesOf(replaced, misses); got != name(order[0])+" "+different && got != name(order[0])+" "+reason.FileChanged.Code() {
			t.Errorf("replaced: %s", got)
		}
		gone.Path = filepath.Join(dir, "gone")
		check("gone", name(order[0])+" "+different, recordedOnce(t, at, order[0], &gone))
		// Of a profile that has no contents nothing is known but the path.
		plain := profile.Binary{ID: order[1].ID, Path: order[1].Path, Segments: order[1].Segments}
		check("old profile", different, recordedOnce(t, at, &plain))
		plain.Path = order[0].Path
		check("old profile of the first", name(order[0]), recordedOnce(t, at, &plain))
	}
}
