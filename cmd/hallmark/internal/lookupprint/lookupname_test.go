package lookupprint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hallmark/internal/testenv"
	"hallmark/symbol"
)

// TestLookupLineWithoutName prints an address of which only the line is known.
func TestLookupLineWithoutName(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.s"), filepath.Join(dir, "prog")
	if err := os.WriteFile(source, []byte("\t.text\n\tnop\n\tret\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command(testenv.Tool(t, "gcc"), "-g", "-nostdlib", "-static", "-Wl,-e,0", "-o", program, source)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := symbol.OpenFile(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := f.Index(symbol.IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := ""
	for p := range x.Pieces() {
		at = p.Virt.String()
		break
	}
	for _, c := range []struct {
		JSON bool
		want string
	}{
		{false, `^0x[0-9a-f]+  \[no-symbol\]  /.*/a\.s:2\n$`},
		{true, `^\{"version":2,"virtual":[0-9]+,"frames":\[\{"function":"","source_file":"/.*/a\.s","line":2\}\],"symbol_source":"dwarf"\}\n$`},
	} {
		var out bytes.Buffer
		p := NewPrinter(&out, x, Style{JSON: c.JSON, Virtual: true}, nil)
		if err := p.PrintAll(strings.NewReader(at + "\n")); err != nil {
			t.Fatal(err)
		}
		p.Close()
		if !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("%q, want %s", out.String(), c.want)
		}
	}
}
