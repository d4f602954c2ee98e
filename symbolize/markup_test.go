package symbolize

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// TestMarkup compares with what llvm-symbolizer makes of the same text.
func TestMarkup(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	outer, main := p.at(t, "outer", 0), p.at(t, "main", 0)
	const base = 0x7f20c9d91000
	text := fmt.Sprintf("{{{module:0:prog:elf:%s}}}\n{{{mmap:%#x:0x1000:load:0:rx:0x1000}}}\n", p.id, uint64(base))
	for _, at := range []uint64{outer + 1, main, main + 1} {
		a := at - 0x1000 + base
		text += fmt.Sprintf("{{{bt:0:%#x:pc}}}\n{{{bt:1:%#x:ra}}}\n{{{bt:2:%#x}}}\n", a, a, a)
	}
	// Of inlined calls it reports the outer function and the inner line there.
	a := main + 1 - 0x1000 + base
	text += fmt.Sprintf("at {{{pc:%#x}}} and {{{pc:%#x:ra}}}.\n", a, a)
	cmd := exec.Command(testenv.Tool(t, "llvm-symbolizer-19"), "--filter-markup", "--no-debuginfod", "--debug-file-directory="+p.buildIDDirectory(t))
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(out), "]]]\n") // which stands for module and mmap
	got, s := rewrite(t, &Filter{Library: p.library}, text)
	_, got, _ = strings.Cut(got, "rx:0x1000}}}\n")
	if got != want {
		t.Errorf("got\n%s\nllvm-symbolizer has\n%s", got, want)
	}
	if s.Symbolized != 11 {
		t.Errorf("%+v", s)
	}
}
