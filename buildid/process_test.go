package buildid_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// TestDeletedProgram runs a program whose file is replaced and deleted meanwhile.
func TestDeletedProgram(t *testing.T) {
	cat := testenv.Tool(t, "cat")
	want, err := buildid.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, content, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	// Once it answers, all is mapped.
	if _, err := io.WriteString(in, "."); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("something else"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := buildid.ReadProcess(cmd.Process.Pid)
	if err != nil || got != want {
		t.Errorf("the process: %+v, %v; want %+v", got, err, want)
	}
	testMapFiles(t, cmd.Process.Pid, name, want)
}

// testMapFiles reads the mappings of a deleted program.
func testMapFiles(t *testing.T, pid int, name string, want buildid.Info) {
	testenv.Root(t)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mappings := 0
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, name+" (deleted)") {
			continue
		}
		mappings++
		var start, end addr.Abs
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			t.Fatal(err)
		}
		got, err := buildid.ReadMapFile(pid, start, end)
		if err != nil || got != want {
			t.Errorf("%v-%v: %+v, %v; want %+v", start, end, got, err, want)
		}
		if _, err := buildid.ReadMapFile(pid, start, end+1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a range that is no mapping: %v", err)
		}
	}
	if mappings == 0 {
		t.Errorf("no mapping of %s in\n%s", name, maps)
	}
}

func TestNoProcess(t *testing.T) {
	cmd := exec.Command(testenv.Tool(t, "true"))
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{cmd.Process.Pid, 0, -1} {
		if _, err := buildid.ReadProcess(pid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}
