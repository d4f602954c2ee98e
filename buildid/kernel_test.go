package buildid_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// TestKernel asks perf, which reads the same notes with other code.
func TestKernel(t *testing.T) {
	info, err := buildid.ReadKernel()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testenv.Tool(t, "perf"), "buildid-list", "--kernel").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != info.ID.String() || info.Where != buildid.InNotes || info.ELF {
		t.Errorf("got %+v, perf %s", info, got)
	}
}

func TestNotes(t *testing.T) {
	native := binary.NativeEndian
	linux := elftest.Note{Name: "Linux\x00", Type: 0x101, Desc: make([]byte, 6)}
	for _, test := range []struct {
		name  string
		notes []byte
		want  want
	}{
		{"none", nil, want{}},
		{"another", elftest.Notes(native, 4, linux), want{}},
		{"first", elftest.Notes(native, 4, elftest.GNU(gnu20), linux), gnu(gnu20, buildid.InNotes, 0)},
		{"second", elftest.Notes(native, 4, linux, elftest.GNU(gnu20[:16])), gnu(gnu20[:16], buildid.InNotes, 28)},
		{"Go", elftest.Notes(native, 4, elftest.Go("text")), want{id: "go:text", where: buildid.InNotes}},
		{"cut off", elftest.Notes(native, 4, elftest.GNU(gnu20))[:30], want{damage: "beyond"}},
		{"large", elftest.Notes(native, 4, elftest.Note{Name: "X\x00", Desc: make([]byte, 9000)}, elftest.GNU(gnu20)),
			gnu(gnu20, buildid.InNotes, 16+9000)},
	} {
		info, err := buildid.ReadNotes(test.notes)
		if err := test.want.check(info, err); err != nil || info.ELF {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestModules compares with the notes that the kernel shows of its modules.
func TestModules(t *testing.T) {
	names, err := buildid.Modules()
	if err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Glob("/sys/module/*/notes/.note.gnu.build-id")
	if err != nil || len(want) != len(names) {
		t.Errorf("%d modules, sysfs has %d, %v", len(names), len(want), err)
	}
	for _, name := range names {
		info, err := buildid.ReadModule(name)
		if err != nil || info.ID.Kind() != buildid.GNU {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	for _, name := range []string{"no_such_module", "", ".", "..", "../module", "a/b", "/"} {
		if info, err := buildid.ReadModule(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %+v, %v", name, info, err)
		}
	}
	t.Logf("%d modules", len(names))
}

// TestModuleTree reads modules that are not loaded here.
func TestModuleTree(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, notes []byte) {
		path := filepath.Join(dir, name, "notes", ".note.gnu.build-id")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, notes, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("xfs", elftest.Notes(binary.NativeEndian, 4, elftest.GNU(gnu20)))
	write("broken", []byte{4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0})
	write("empty", nil)
	if err := os.MkdirAll(filepath.Join(dir, "built_in", "parameters"), 0o755); err != nil {
		t.Fatal(err)
	}
	names, err := buildid.ModulesIn(dir)
	if want := []string{"broken", "empty", "xfs"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("modules %v, %v; want %v", names, err, want)
	}
	info, err := buildid.ReadModuleIn(dir, "xfs")
	if err := gnu(gnu20, buildid.InNotes, 0).check(info, err); err != nil {
		t.Error(err)
	}
	if _, err := buildid.ReadModuleIn(dir, "broken"); !errors.Is(err, buildid.ErrFormat) || !strings.Contains(err.Error(), dir) {
		t.Errorf("broken: %v", err)
	}
	if info, err := buildid.ReadModuleIn(dir, "empty"); err == nil {
		t.Errorf("empty: %+v", info)
	}
	if _, err := buildid.ReadModuleIn(dir, "built_in"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("built in: %v", err)
	}
}
