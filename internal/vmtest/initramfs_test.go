package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestInitramfs has cpio unpack an archive.
func TestInitramfs(t *testing.T) {
	cpio := testenv.Tool(t, "cpio")
	dir := t.TempDir()
	archive := filepath.Join(dir, "archive")
	a, err := CreateInitramfs(archive, System{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "", "b/c": "1", "b/d": "four", "b/e/f": strings.Repeat("long ", 5000)}
	for name, content := range want {
		a.Write("/"+name, 0o750, []byte(content))
	}
	a.Write("/a", 0o750, []byte("who comes second is not taken"))
	a.Link("/b/link", "d")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want["b/link"] = "four"
	out := filepath.Join(dir, "out")
	cmd := exec.Command(cpio, "-i", "-d", "--quiet", "--nonmatching", "dev/*")
	cmd.Dir = out
	if cmd.Stdin, err = os.Open(archive); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, msg)
	}
	for name, content := range want {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(b) != content {
			t.Errorf("%s has %d bytes, want %d: %v", name, len(b), len(content), err)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "b/d")); err != nil || info.Mode() != 0o750 {
		t.Errorf("%v, %v", info, err)
	}
	list, err := exec.Command("sh", "-c", cpio+" -t --quiet <"+archive).Output()
	if names := strings.Fields(string(list)); err != nil || !slices.Contains(names, "dev/null") || !slices.Contains(names, "dev/console") {
		t.Errorf("%q, %v", names, err)
	}
}

// TestSkipsAreJudged wants that only what a guest cannot have excuses a skip.
func TestSkipsAreJudged(t *testing.T) {
	old, young := kernel{lacks: `BPF programs|Linux 6\.11`}, kernel{}
	for _, test := range []struct {
		says             string
		tool, old, young bool
	}{
		{"NOT CHECKED: needs gcc in PATH", true, false, false},
		{"NOT CHECKED: needs BPF programs (see hallmark doctor): invalid argument", false, true, false},
		{"NOT CHECKED: needs root", false, false, false},
		{"a machine without modules", false, false, false},
	} {
		o := outcome{"skip", "=== RUN   TestX\n    x_test.go:1: " + test.says + "\n--- SKIP: TestX (0.00s)\n"}
		if o.wantsTool() != test.tool || old.excuses(o) != test.old || young.excuses(o) != test.young {
			t.Errorf("%q: %v, %v, %v", test.says, o.wantsTool(), old.excuses(o), young.excuses(o))
		}
	}
}

// TestLacksAreRead wants a lack to be one only where the test was skipped for it.
func TestLacksAreRead(t *testing.T) {
	for _, test := range []struct{ action, output, want string }{
		{"skip", "    x_test.go:1: LACK: 3 samples of scene\n--- SKIP: TestX (0.00s)\n", "3 samples of scene"},
		{"fail", "    x_test.go:1: LACK: 3 samples of scene\n--- FAIL: TestX (0.00s)\n", ""},
		{"skip", "    x_test.go:1: NOT CHECKED: needs root\n", ""},
	} {
		if got := (outcome{test.action, test.output}).lack(); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
