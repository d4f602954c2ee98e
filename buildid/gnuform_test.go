package buildid

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// TestGNUForm compares with what the Go toolchain's linker makes of its build ID.
func TestGNUForm(t *testing.T) {
	goTool := testenv.Tool(t, "go")
	dir := t.TempDir()
	const text = "some/build/ID/of-go"
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if out, err := exec.Command(goTool, "build", "-ldflags=-buildid="+text+" -B gobuildid", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	linked, err := ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	made, err := New(Go, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := made.GNUForm(); got != linked.ID {
		t.Errorf("%v, and the linker makes %v", got, linked.ID)
	}
	for in, want := range map[string]string{
		"0102": "0102",
		"0102030405060708090a0b0c0d0e0f1011121314ff": "0102030405060708090a0b0c0d0e0f1011121314",
		"htl:00112233445566778899aabbccddeeff":       "00112233445566778899aabbccddeeff",
	} {
		id, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := id.GNUForm().String(); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
	if got := (ID{}).GNUForm(); !got.IsZero() {
		t.Errorf("no identity is %v", got)
	}
}
