package symbolize

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// seeds are texts with every form of frame.
func seeds(id string) []string {
	return []string{
		"    #0 0x55653b3381cf  (/bin/prog+0x1149) (BuildId: " + id + ")\n    #1 0x55653b3381cf in f() (/bin/prog+0x1155)\r\n",
		"    #0 <null> <null> (prog+0x1149) (BuildId: " + id + ")\n    #1 main <null> (prog+0x1149)\n",
		"SUMMARY: AddressSanitizer: SEGV (/bin/prog+0x1149) (BuildId: " + id + ") \n",
		"#01 pc 0000000000001149  /lib/libx.so (offset 0x1000) (abort+164) (BuildId: " + id + ")\n",
		"./prog(+0x1149) [0x55d11149]\n./prog(main+0x9)[0x55d11155]\n./prog() [0x4011ca]\n",
		"{{{reset}}}\n{{{module:0:prog:elf:" + id + "}}}\n{{{mmap:0x7f0000:0x1000:load:0:rx:0x1000}}}\n{{{bt:1:0x7f0149:ra}}}\nat {{{pc:0x7f0149}}}{{{\n",
		"x 0 1.5: PERF_RECORD_MMAP2 7/7: [0x5621615d8000(0x1000) @ 0x1000 <" + id + ">]: r-xp /bin/prog\nx 7 [000] 1.5: 1 cycles: \n\t            1149 [unknown] (/bin/prog)\n\t    5621615d8149 main+0x3 (/bin/prog+0x1149)\n\n",
		"x 0 1.5: PERF_RECORD_FORK(7:9):(7:7)\nx 0 1.5: PERF_RECORD_EXIT(7:9):(7:7)\nx 0 1.5: PERF_RECORD_COMM exec: y:7/7\n",
		id + " /bin/prog\n at " + id + "+0x1149, " + id + " 0x1149\n",
		"main;[prog+0x1149];[" + id + "+0x1155] 3\n",
		"CPU: 0 PID: 1 Comm: x Not tainted 6.1.0 #1 " + id + "\n main+0x1/0x34\n RIP: 0010:f+0x12/0x34 [mod " + id + "]\n",
		"Module /x/prog with build-id " + id + "\n#1  0x00000000004011ca n/a (/x/prog + 0x1149)\n    [" + id + "]@0x1000+0x1149\n",
	}
}

// FuzzFilter checks that text stays as it is where nothing is known of its files, and
// that little is added where something is.
func FuzzFilter(f *testing.F) {
	testenv.Tool(f, "gcc")
	p := compile(f, "asan.c", "gcc", "-O1")
	for _, text := range seeds(p.id.String()) {
		f.Add(text)
	}
	f.Add(strings.Join(seeds(p.id.String()), ""))
	nothing := alone(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, folded := range []bool{false, true} {
			if got := fuzzOnce(t, &Filter{Library: nothing, Folded: folded}, text); got != text {
				t.Errorf("%q became %q", text, got)
			}
			known := &Filter{Library: p.library, Binaries: []string{p.path}, Replace: true, Lines: true, Folded: folded}
			got := fuzzOnce(t, known, text)
			if most := 4*len(text) + 1000*strings.Count(text, "\n") + 1000*strings.Count(text, ";") + 1000*strings.Count(text, "{{{") + 1000; len(got) > most {
				t.Errorf("%d bytes became %d", len(text), len(got))
			}
		}
	})
}

func fuzzOnce(t *testing.T, f *Filter, text string) string {
	var out bytes.Buffer
	if _, err := f.Copy(context.Background(), &out, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLongLines filters lines full of starts of frames: what is looked at again and
// again would take hours.
func TestLongLines(t *testing.T) {
	for i, part := range []string{"#1 ", "+0x1) (BuildId: ", " (/", "{{{", "{{{pc:1}}}", "(+0x1)[0x", "\t1 ", "00112233445566778899aabbccddeeff ", "0011223344556677", "PERF_RECORD_MMAP2 1/1: [0x1(0x1) @ ", "a b 1 ", ";[x+0x1]", " (offset 0x", "+0x1/0x2 [x ", " + 0x1", "[00]@0x1+0x1", "module x with build-id 00 "} {
		line := strings.Repeat(part, maxLine/len(part)-1)
		for k, text := range []string{line + "\n", "#1 0x1 " + line + "\n", "\t" + line + ")\n"} {
			if k != i%3 && !testenv.Thorough() {
				continue
			}
			if got := fuzzOnce(t, &Filter{Library: alone(t)}, text); got != text {
				t.Errorf("%q changed", part)
			}
		}
	}
	var deep strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&deep, "x 0 1.5: PERF_RECORD_MMAP2 1/1: [%#x(0x1000) @ 0 08:01 1 0]: r-xp /x\n", 0x100000000-i*0x1000)
	}
	fuzzOnce(t, &Filter{Library: alone(t)}, deep.String())
}
