package scan

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/blob"
	"hallmark/server/store"
)

// newScanner returns a scanner of a directory over a store of its own.
func newScanner(t *testing.T, dir string) *Scanner {
	t.Helper()
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &store.Store{Blobs: blobs, Scratch: t.TempDir()}
	t.Cleanup(func() { s.Close(); blobs.Close() })
	return &Scanner{Dirs: []string{dir}, Store: s, Log: slog.New(slog.DiscardHandler), Cache: filepath.Join(t.TempDir(), "scan.json")}
}

func must(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// makeProgram builds a program, its stripped form and its debug file, and returns its identity.
func makeProgram(t *testing.T, dir string) buildid.ID {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "p.c"), []byte("int main(int c, char **v) { return c * 2; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "gcc", "-g", "-Wl,--build-id", "-o", "full", "p.c")
	must(t, dir, "objcopy", "--only-keep-debug", "full", "debug")
	must(t, dir, "strip", "-o", "prog", "full")
	info, err := buildid.ReadFile(filepath.Join(dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// makeDeb puts files into a package.
func makeDeb(t *testing.T, out, control string, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for to, from := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, to), b)
	}
	write(t, filepath.Join(root, "DEBIAN/control"), []byte(control))
	must(t, root, "dpkg-deb", "--root-owner-group", "--build", root, out)
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func control(name, more string) string {
	return "Package: " + name + "\nVersion: 1\nSource: src\nArchitecture: amd64\nMaintainer: A <a@b>\nDescription: d\n" + more
}

func TestPackages(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	hex := id.String()
	path := filepath.Join(work, "prog")
	makeDeb(t, filepath.Join(dir, "prog.deb"), control("prog", ""), map[string]string{"usr/bin/prog": path})
	makeDeb(t, filepath.Join(dir, "prog-dbgsym.deb"), control("prog-dbgsym", "Build-Ids: "+hex+"\n"), map[string]string{"usr/lib/debug/.build-id/" + hex[:2] + "/" + hex[2:] + ".debug": filepath.Join(work, "debug")})
	makeDeb(t, filepath.Join(dir, "src.deb"), control("src", ""), map[string]string{"usr/src/debug/src-1/p.c": filepath.Join(work, "p.c")})
	write(t, filepath.Join(dir, "broken.deb"), []byte("!<arch>\nbroken"))
	write(t, filepath.Join(dir, "plain"), []byte("\x7fELFbroken")) // which is no package
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if packs, ids := s.Counts(); packs != 4 || ids != 1 {
		t.Errorf("%d packages, %d identities", packs, ids)
	}
	for info := range s.Store.Blobs.List(t.Context(), "id/") {
		t.Errorf("%s was copied before anybody asked", info.Key)
	}
	for want := range 2 {
		added, err := s.Publish(t.Context(), id, false, nil)
		if err != nil || added != (want == 0) {
			t.Errorf("call %d: %t, %v", want, added, err)
		}
	}
	m, err := s.Store.Manifest(t.Context(), id)
	if err != nil || m.Executable() == nil || m.DebugInfo() == nil {
		t.Fatalf("%+v, %v", m, err)
	}
	if o := m.Executable().Origins[0]; o.Path != "/usr/bin/prog" || o.Archive != filepath.Join(dir, "prog.deb") || o.Build != "src 1" || o.Package != "prog 1 amd64" || o.Trust != store.Operator {
		t.Errorf("%+v", o)
	}
	// It was not asked for, and removed from the store.
	old := &store.Store{Blobs: s.Store.Blobs, Now: func() time.Time { return time.Now().AddDate(0, 0, 9) }}
	if c, err := old.Collect(t.Context(), store.Collection{Retention: store.Retention{Age: time.Hour}}); err != nil || c.Removed != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	s.Store = &store.Store{Blobs: s.Store.Blobs, Scratch: s.Store.Scratch} // that knows nothing of before
	if added, err := s.Publish(t.Context(), id, false, nil); !added || err != nil {
		t.Errorf("after it was removed: %t, %v", added, err)
	}
	r, _, ok, err := s.Source(t.Context(), m, "/usr/src/debug/src-1/p.c", func() (func(), error) { return func() {}, nil })
	if err != nil || !ok {
		t.Fatalf("no source: %v", err)
	}
	r.Close()
	if _, _, ok, _ := s.Source(t.Context(), m, "/etc/passwd", func() (func(), error) { return func() {}, nil }); ok {
		t.Error("a source file of this machine")
	}
}

// TestChanges wants new files to be found, old ones to be gone, and nothing to be looked at
// twice, by another process either.
// TestForged has a package that names the build IDs of others, with a file of its own in their places. Nobody gets that file for
// them, and the package is read once for each and not for each request.
func TestForged(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	own := makeProgram(t, work)
	const other = "0123456789abcdef0123456789abcdef01234567"
	of := func(hex string) string { return "usr/lib/debug/.build-id/" + hex[:2] + "/" + hex[2:] + ".debug" }
	makeDeb(t, filepath.Join(dir, "forged.deb"), control("forged", "Build-Ids: "+other+" "+own.String()+"\n"), map[string]string{of(other): filepath.Join(work, "debug"), of(own.String()): filepath.Join(work, "debug")})
	s := newScanner(t, dir)
	if err := s.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for text, isThere := range map[string]bool{other: false, own.String(): true} {
		id, err := buildid.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if pending, err := s.Pending(t.Context(), id); !pending || err != nil {
			t.Fatalf("%v: %t, %v", id, pending, err)
		}
		early := func(a *store.Arriving) {
			if !isThere {
				t.Errorf("%v: %+v came early", id, a.Origin)
			}
		}
		if added, err := s.Publish(t.Context(), id, true, early); added != isThere || err != nil {
			t.Errorf("%v: added %t, %v", id, added, err)
		}
		if pending, err := s.Pending(t.Context(), id); pending || err != nil {
			t.Errorf("%v: it is to be read again: %t, %v", id, pending, err)
		}
	}
}

func TestChanges(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	s := newScanner(t, dir)
	scan := func(s *Scanner, want int64) {
		t.Helper()
		if err := s.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, ids := s.Counts(); ids != want {
			t.Errorf("%d identities, want %d", ids, want)
		}
	}
	scan(s, 0)
	b, err := os.ReadFile(filepath.Join(work, "full"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "sub", "full"), b)
	scan(s, 1)
	again := &Scanner{Dirs: s.Dirs, Store: s.Store, Log: s.Log, Cache: s.Cache}
	scan(again, 1)
	if again.files[filepath.Join(dir, "sub", "full")].Stamp != s.files[filepath.Join(dir, "sub", "full")].Stamp {
		t.Error("what was found is not kept")
	}
	// It becomes another file after it was scanned: nobody gets it under the old identity.
	write(t, filepath.Join(dir, "sub", "full"), b[:len(b)/2])
	if added, err := s.Publish(t.Context(), id, false, nil); added || err != nil {
		t.Errorf("%t, %v", added, err)
	}
	if err := os.Chtimes(filepath.Join(dir, "sub", "full"), time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "sub", "full")); err != nil {
		t.Fatal(err)
	}
	scan(s, 0)
}

// TestInterrupted ends a scan before it has looked at everything: what it found is known, and the next one goes on there.
func TestInterrupted(t *testing.T) {
	work, dir := t.TempDir(), t.TempDir()
	id := makeProgram(t, work)
	b, err := os.ReadFile(filepath.Join(work, "prog"))
	if err != nil {
		t.Fatal(err)
	}
	const files = 300
	for i := range files {
		write(t, filepath.Join(dir, fmt.Sprintf("f%03d", i)), b)
	}
	defer func(old time.Duration) { keepTime = old }(keepTime)
	keepTime = 0
	s := newScanner(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Scan(ctx) }()
	testenv.Await(t, "an identity before the scan has ended", func() bool { _, ids := s.Counts(); return ids > 0 })
	cancel()
	err = <-ended
	s.mu.Lock()
	before := len(s.files)
	s.mu.Unlock()
	if err == nil && before < files {
		t.Errorf("%d of %d files, and no error", before, files)
	}
	again := &Scanner{Dirs: s.Dirs, Store: s.Store, Log: s.Log, Cache: s.Cache}
	again.mu.Lock()
	again.load()
	if len(again.files) != before || len(again.places[id]) != before {
		t.Errorf("%d files are kept, of %d that were looked at", len(again.files), before)
	}
	again.mu.Unlock()
	if err := again.Scan(t.Context()); err != nil || len(again.places[id]) != files {
		t.Errorf("the next scan knows %d files, %v", len(again.places[id]), err)
	}
}

// TestMissingDirectory has a directory of two missing: it is logged once, not in each round, and not all names are known
// until it is there.
func TestMissingDirectory(t *testing.T) {
	s := newScanner(t, t.TempDir())
	away := filepath.Join(t.TempDir(), "away")
	s.Dirs = append(s.Dirs, away)
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	scanned := func() (complete bool) {
		t.Helper()
		if err := s.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.Names(buildid.ID{}, func(string, buildid.ID, string, string) bool { return true })
	}
	for range 2 {
		if scanned() {
			t.Error("all names are known, and a directory is missing")
		}
	}
	if n := strings.Count(log.String(), "a directory cannot be read"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, log.String())
	}
	if err := os.Mkdir(away, 0o755); err != nil {
		t.Fatal(err)
	}
	if !scanned() {
		t.Error("it is there, and not all names are known")
	}
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	if scanned() {
		t.Error("it is missing again, and all names are known")
	}
	if n := strings.Count(log.String(), "a directory cannot be read"); n != 2 {
		t.Errorf("%d lines about it:\n%s", n, log.String())
	}
}
