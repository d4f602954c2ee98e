package buildid_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// tree makes files of the given names and returns the directory.
func tree(t *testing.T, content []byte, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestScanMachine compares a scan with the files that a plain walk finds.
func TestScanMachine(t *testing.T) {
	want := map[string]buildid.Info{}
	for _, name := range machineFiles(t) {
		info, err := buildid.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = info
	}
	done := 0.0
	for _, dir := range testenv.ELFTrees {
		if strings.HasPrefix(dir, "/usr/") {
			continue // below another one
		}
		for e := range buildid.Scan(dir) {
			if e.Done < done || e.Done > 1 {
				t.Fatalf("%s: done %v after %v", e.Path, e.Done, done)
			}
			done = e.Done
			if e.Err != nil {
				t.Error(e.Err)
			}
			if e.Info.ELF && want[e.Path] != e.Info {
				t.Errorf("%s: %+v, ReadFile says %+v", e.Path, e.Info, want[e.Path])
			}
			if !e.Info.ELF && !e.Info.ID.IsZero() {
				t.Errorf("%s: the identity of what is not ELF: %v", e.Path, e.Info.ID)
			}
			if e.Info.ELF {
				delete(want, e.Path)
			}
		}
	}
	for name := range want {
		t.Errorf("%s: not found", name)
	}
}

func TestScanOrder(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("d%02d/f%03d", i%7, i))
	}
	dir := tree(t, cases[0].build(forms[0]), names...)
	slices.Sort(names)
	var got []string
	last := 0.0
	for e := range buildid.Scan(dir) {
		if e.Err != nil || e.Info.ID.Kind() != buildid.GNU {
			t.Errorf("%s: %+v, %v", e.Path, e.Info, e.Err)
		}
		name, _ := filepath.Rel(dir, e.Path)
		got = append(got, name)
		last = e.Done
	}
	if !slices.Equal(got, names) {
		t.Errorf("%d files, or another order than that of the alphabet", len(got))
	}
	if last < 0.999 || last > 1 {
		t.Errorf("done %v at the end", last)
	}
}

func TestScanLeavesOut(t *testing.T) {
	dir := tree(t, nil, "a/file", "b/file")
	if err := os.Symlink("/bin", filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(dir, "b", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "b", "loop")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b", "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e := range buildid.Scan(dir) {
		name, _ := filepath.Rel(dir, e.Path)
		got = append(got, name)
	}
	if want := []string{"a/file", "b/file"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestKernelFileSystems(t *testing.T) {
	for dir, want := range map[string]bool{"/proc": true, "/sys": true, "/proc/self/fd": true, "/usr": false, t.TempDir(): false} {
		if got := buildid.KernelFS(dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
}

func TestScanErrors(t *testing.T) {
	for _, name := range []string{"/no/such/directory", "/dev/null"} {
		var entries []buildid.Entry
		for e := range buildid.Scan(name) {
			entries = append(entries, e)
		}
		if len(entries) != 1 || entries[0].Err == nil || entries[0].Path != name {
			t.Errorf("%s: got %+v", name, entries)
		}
	}
	dir := tree(t, []byte("\x7fELF"), "a/damaged", "b/damaged")
	count := 0
	for e := range buildid.Scan(dir) {
		var damage *buildid.FormatError
		if !errors.As(e.Err, &damage) || damage.Name != e.Path {
			t.Errorf("%s: %v", e.Path, e.Err)
		}
		count++
	}
	if count != 2 {
		t.Errorf("%d errors, want 2", count)
	}
}

// TestScanUnreadable has a directory that nobody can open, root included: its path
// is too long.
func TestScanUnreadable(t *testing.T) {
	dir := tree(t, nil, "a", "z")
	long := strings.Repeat("m", 250)
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(home)
	for below := dir; ; below = long {
		if err := os.Chdir(below); err != nil {
			t.Fatal(err)
		}
		if below, err := os.Getwd(); err != nil || len(below) > 4096 {
			break
		}
		if err := os.Mkdir(long, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for e := range buildid.Scan(dir) {
		if e.Err != nil && errors.Is(e.Err, syscall.ENAMETOOLONG) {
			got = append(got, "too long")
		} else {
			got = append(got, filepath.Base(e.Path))
		}
	}
	if want := []string{"a", "too long", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestScanStops breaks off at every point; TestMain looks for what is left over.
func TestScanStops(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("%03d", i))
	}
	dir := tree(t, nil, names...)
	for stop := range 500 {
		n := 0
		for range buildid.Scan(dir) {
			if n++; n > stop {
				break
			}
		}
	}
}

// TestScanLooksFirst has directories that others can change, and some below them: there a scan
// looks at what has a name before it opens that.
func TestScanLooksFirst(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"own", "shared", "shared/below", "group"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "shared"), 0o1777), os.Chmod(filepath.Join(dir, "group"), 0o775)); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"own/file": true, "shared/file": false, "shared/below/file": false, "group/file": false}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(filepath.Join(dir, "theirs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "theirs", "file"), nil, 0o644), os.Chown(filepath.Join(dir, "theirs"), 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		want["theirs/file"] = false
	}
	for e := range buildid.Scan(dir) {
		name, err := filepath.Rel(dir, e.Path)
		if own, ok := want[name]; !ok || err != nil || e.Err != nil || e.IsOwn() != own {
			t.Errorf("%s: own %v, want %v; %v, %v", name, e.IsOwn(), own, err, e.Err)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}
