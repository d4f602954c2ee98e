package debuginfo

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
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

// TestMain keeps what the user of this machine has in caches out of the tests.
func TestMain(m *testing.M) { os.Exit(testenv.Isolated(m).Run()) }

const system = "/usr/lib/debug/.build-id"

// TestFindEveryDebugFile finds the debug files that packages installed, whose
// names are their build IDs.
func TestFindEveryDebugFile(t *testing.T) {
	names, err := filepath.Glob(system + "/*/*.debug")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, len(names) > 0, "debug files in "+system+" (libc6-dbg)")
	before := openFiles(t)
	for _, name := range names {
		hex := strings.TrimSuffix(strings.TrimPrefix(name, system), ".debug")
		id, err := buildid.Parse(strings.ReplaceAll(hex, "/", ""))
		if err != nil {
			t.Fatal(err)
		}
		if path, why := new(Finder).Find(id); path != name || why != nil {
			t.Errorf("%v: found %q, %v; want %s", id, path, why, name)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// libc returns the path of a stripped libc whose debug file is installed.
func libc(t *testing.T) (string, buildid.ID) {
	t.Helper()
	names, _ := filepath.Glob("/lib/*-linux-gnu/libc.so.6")
	testenv.Need(t, len(names) > 0, "a libc of Debian's")
	id := identify(t, names[0])
	debug, _ := new(Finder).Find(id)
	testenv.Need(t, debug != "", "the debug file of libc (libc6-dbg)")
	return names[0], id
}

func identify(t *testing.T, name string) buildid.ID {
	t.Helper()
	info, err := buildid.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// staticFunction is a function of libc's that only its debug file names.
const staticFunction = "_int_malloc"

// addressOf searches for a function, in steps that no such function is shorter than.
func addressOf(t *testing.T, f *symbol.File, name string) addr.Virt {
	t.Helper()
	for _, s := range f.Segments() {
		if !s.Executable() {
			continue
		}
		for at := uint64(0); at < s.MemSize; at += 64 {
			v := s.Virt + addr.Virt(at)
			if frames := f.LookupVirt(v).Frames; len(frames) == 1 && frames[0].Func == name {
				return v
			}
		}
	}
	t.Fatalf("no function %s", name)
	return 0
}

func TestOpen(t *testing.T) {
	name, id := libc(t)
	var finder Finder
	before := openFiles(t)
	joined, why := finder.Open(id, "/nonexistent", os.Args[0], name)
	if joined == nil {
		t.Fatal(why)
	}
	v := addressOf(t, joined, staticFunction)
	o, ok := joined.Offset(v)
	if got := joined.LookupOffset(o); !ok || len(got.Frames) != 1 || got.Source != symbol.SourceDWARF {
		t.Errorf("%s at offset %v is %+v", staticFunction, o, got)
	}

	debug, why := finder.Open(id)
	if debug == nil {
		t.Fatal(why)
	}
	if got := debug.LookupVirt(v); len(got.Frames) != 1 || got.Frames[0].Func != staticFunction {
		t.Errorf("%s is %+v in the debug file alone", staticFunction, got)
	}

	binary, why := (&Finder{Dirs: []string{}}).Open(id, name)
	if binary == nil {
		t.Fatal(why)
	}
	if got := binary.LookupVirt(v); got.Frames != nil {
		t.Errorf("%s is %+v without a debug file", staticFunction, got)
	}
	for _, f := range []*symbol.File{joined, debug, binary} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func TestOpenSaysWhyNot(t *testing.T) {
	name, id := libc(t)
	dir := t.TempDir()
	write := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	nowhere := Finder{Dirs: []string{dir, filepath.Join(dir, "nothing")}}
	for _, test := range []struct {
		candidates []string
		want       reason.Reason
	}{
		{nil, reason.NoFile},
		{[]string{filepath.Join(dir, "nothing")}, reason.NoFile},
		{[]string{filepath.Join(dir, "nothing"), os.Args[0]}, reason.FileChanged},
		{[]string{write("text", "text", 0o600)}, reason.FileChanged},
		{[]string{dir}, reason.FileChanged},
		{[]string{write("damaged", string(content[:5000]), 0o600)}, reason.FileDamaged},
	} {
		f, why := nowhere.Open(id, test.candidates...)
		if f != nil || why != test.want {
			t.Errorf("%q: %v, %v, want %v", test.candidates, f, why, test.want)
		}
	}
}

// TestNamesProveNothing puts another file where a debug file should be.
func TestNamesProveNothing(t *testing.T) {
	name, id := libc(t)
	dir := t.TempDir()
	hex := id.String()
	path := filepath.Join(dir, ".build-id", hex[:2], hex[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], path); err != nil {
		t.Fatal(err)
	}
	wrong := Finder{Dirs: []string{dir}}
	if got, why := wrong.Find(id); got != "" || why != reason.FileChanged {
		t.Errorf("found %q, %v", got, why)
	}
	both := Finder{Dirs: []string{dir, "/usr/lib/debug"}}
	if got, why := both.Find(id); !strings.HasPrefix(got, system) || why != nil {
		t.Errorf("found %q, %v", got, why)
	}
	f, why := wrong.Open(id, name)
	if f == nil {
		t.Fatal(why)
	}
	defer f.Close()
	if s := f.Sources(); s[0] != symbol.SourceDynsym { // the best that the file itself has
		t.Errorf("sources %v", s)
	}
}

// TestOtherKinds: identities that are no GNU build ID have no debug files, but
// their files are checked as well.
func TestOtherKinds(t *testing.T) {
	for _, text := range []string{"go:abc/def", "htl:00112233445566778899aabbccddeeff", "00"} {
		id, err := buildid.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if path, why := new(Finder).Find(id); path != "" || why != reason.NoFile {
			t.Errorf("%s: found %q, %v", text, path, why)
		}
		if f, why := new(Finder).Open(id, os.Args[0]); f != nil || why != reason.FileChanged {
			t.Errorf("%s: %v, %v", text, f, why)
		}
	}
}

// TestOpenByPerfsID finds files without a GNU build ID by what perf.data has in its place.
func TestOpenByPerfsID(t *testing.T) {
	goTool := testenv.Tool(t, "go")
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if out, err := exec.Command(goTool, "build", "-ldflags=-B none", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	id := identify(t, program)
	if id.Kind() != buildid.Go {
		t.Fatalf("the program has %v", id)
	}
	f, why := new(Finder).Open(id.GNUForm(), program)
	if f == nil {
		t.Fatal(why)
	}
	defer f.Close()
	addressOf(t, f, "main.main")
	other, err := buildid.New(buildid.GNU, []byte("another that has 20 "))
	if err != nil {
		t.Fatal(err)
	}
	if f, why := new(Finder).Open(other, program); f != nil || why != reason.FileChanged {
		t.Errorf("by another ID: %v, %v", f, why)
	}
}

// TestOpenByHash finds a file without a build ID by OpenTelemetry's hash of it. No index is
// kept under that: other builds have it as well.
func TestOpenByHash(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	source := filepath.Join(dir, "main.c")
	if err := os.WriteFile(source, []byte("int answer(void) { return 42; }\nint main(void) { return answer(); }\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-g", "-Wl,--build-id=none", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := buildid.ReadFile(program)
	if err != nil || info.ID.Kind() != buildid.ByContent || info.Also.Kind() != buildid.HTL {
		t.Fatalf("%+v, %v", info, err)
	}
	l, _ := library(t, always)
	for _, id := range []buildid.ID{info.Also, info.ID, info.ID.GNUForm()} {
		s, why := l.Open(t.Context(), id, source, program)
		if s == nil {
			t.Fatalf("%v: %v", id, why)
		}
		if _, isIndex := s.(*symbol.Index); isIndex == (id == info.Also) {
			t.Errorf("%v: an index: %v", id, isIndex)
		}
		s.Close()
	}
	if err := os.WriteFile(program, []byte("another file"), 0o666); err != nil {
		t.Fatal(err)
	}
	if s, why := l.Open(t.Context(), info.Also, program); s != nil || why == nil {
		t.Errorf("by the hash of another file: %v, %v", s, why)
	}
}

func TestWhyNot(t *testing.T) {
	for _, test := range []struct {
		err  error
		want reason.Reason
	}{
		{fs.ErrPermission, reason.NotPermitted},
		{&symbol.FormatError{Name: "x", Err: errors.New("damage")}, reason.FileDamaged},
		{&buildid.FormatError{}, reason.FileDamaged},
		{errors.New("input/output error"), reason.FileGone},
	} {
		if got := whyNot(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// TestCompanion looks for a supplementary file by path and by build ID, and for one
// that is another file.
func TestCompanion(t *testing.T) {
	self := self(t)
	info, err := buildid.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, info.ID.Kind() == buildid.GNU, "a test program with a GNU build ID")
	dir := t.TempDir()
	name := info.ID.String()
	installed := filepath.Join(dir, ".build-id", name[:2], name[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(installed), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, installed); err != nil {
		t.Fatal(err)
	}
	other := slices.Repeat([]byte{7}, len(info.ID.Bytes()))
	for _, test := range []struct {
		name  string
		found bool
		symbol.Companion
	}{
		{"by path", true, symbol.Companion{Path: self, BuildID: info.ID.Bytes()}},
		{"by build ID", true, symbol.Companion{Path: "/no/such/file", BuildID: info.ID.Bytes()}},
		{"another file", false, symbol.Companion{Path: self, BuildID: other}},
		{"without build ID", true, symbol.Companion{Path: self}},
		{"nowhere", false, symbol.Companion{Path: "/no/such/file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := (&Finder{Dirs: []string{dir}}).Companion(test.Companion)
			if (file != nil) != test.found {
				t.Fatalf("found: %v", file != nil)
			}
			if file != nil {
				file.Close()
			}
		})
	}
}
