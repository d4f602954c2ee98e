package proof

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// TestFilledDifferent has programs that get one build ID: copies, which are one build, and
// another one.
func TestFilledDifferent(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "prog.c")
	verdicts := map[File]Verdict{}
	var names []string
	for i, number := range []string{"1", "1", "2"} {
		text := "int main(void) { return " + number + "; }\n"
		if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, string(rune('a'+i)))
		out, err := exec.Command(testenv.Tool(t, "gcc"), "-Wl,--build-id=0x0011223344556677", "-o", name, source).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := buildid.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		verdicts[File{Name: name}] = Verdict{ID: info.ID}
	}
	verdicts[File{Name: "[vdso]"}] = Verdict{ID: verdicts[File{Name: names[0]}].ID}
	if got := DifferentFiles(verdicts); !slices.Equal(got, [][2]string{{names[0], names[2]}}) {
		t.Errorf("%q", got)
	}
	delete(verdicts, File{Name: names[2]})
	if got := DifferentFiles(verdicts); len(got) > 0 {
		t.Errorf("copies are different: %q", got)
	}
}
