package symbolize

import (
	"fmt"
	"strings"
	"testing"
)

func TestFolded(t *testing.T) {
	p := compile(t, "asan.c", "gcc", "-O1")
	outer, main := p.at(t, "outer", 0), p.at(t, "main", 0) // their offsets as well
	f := &Filter{Library: p.library, Binaries: []string{p.path}, Folded: true}
	for _, test := range []struct{ name, line, want string }{
		{"by name", fmt.Sprintf("a b;[prog+%#x];f 12", main), "a b;main;f 12"},
		{"by path", fmt.Sprintf("a;[%s+%#x] 12", p.path, main), "a;main 12"},
		{"by identity", fmt.Sprintf("a;[%s+%#x] 12", p.id, main), "a;main 12"},
		{"by name and identity", fmt.Sprintf("a;[y+%#x (BuildId: %s)] 12", main, p.id), "a;main 12"},
		{"inlined", fmt.Sprintf("[prog+%#x];[prog+%#x] 1", main, outer), "main;outer;inner 1"},
		{"another file", "a;[libc.so.6+0x3abc] 1", ""},
		{"the kernel", fmt.Sprintf("a;[prog+%#x]_[k] 1", main), ""},
		{"no count", fmt.Sprintf("a;[prog+%#x] x", main), ""},
		{"no stack", fmt.Sprintf("[prog+%#x]", main), ""},
		{"not in brackets", fmt.Sprintf("a;prog+%#x 1", main), ""},
		{"nothing", "a;[+0x1];[x+0x];[prog+0x1;] 1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := rewrite(t, f, test.line)
			if test.want == "" {
				test.want = test.line
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for start, want := range map[string]Format{
		"":                               Text,
		"\n":                             Text,
		"\n\nx":                          Text,
		"\n\x04\x08\x01\x10\x02":         Pprof,
		"PERFILE2\x68":                   PerfData,
		"main;f 1":                       Folded,
		"main;f 1\nmain;g 2\nmain;g":     Folded,
		"[libc.so.6+0x1] 1\nx 2\n":       Folded,
		"main 1\n":                       Text,
		"[    0.000000] memory at 1\n":   Text,
		"[    0.000000] [x] 1\n":         Text,
		"insert; then 5\n":               Text,
		"main;f 1\nmain;g\nx;y 1\n":      Text,
		"if (x) { a; b; }\n":             Text,
		"==1==ERROR: AddressSanitizer\n": Text,
		strings.Repeat("x", 100):         Text,
	} {
		if got := Detect([]byte(start)); got != want {
			t.Errorf("%q is %d, want %d", start, got, want)
		}
	}
}
