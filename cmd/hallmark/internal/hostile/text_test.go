package hostile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// lines returns n lines that f writes.
func lines(n int, f func(w io.Writer, i int)) []byte {
	var out bytes.Buffer
	for i := range n {
		f(&out, i)
	}
	return out.Bytes()
}

// stackTexts are folded stacks, and what perf script prints, that stand for more than they are.
var stackTexts = map[string]func() []byte{
	"short stacks": func() []byte { return bytes.Repeat([]byte("a;b 1\n"), size(1, 20)*mib) },
	"different stacks": func() []byte {
		return lines(size(50_000, 2_000_000), func(w io.Writer, i int) { fmt.Fprintf(w, "p;a%d;b%d 1\n", i, i%7) })
	},
	"deep stack": func() []byte { return []byte(strings.Repeat("a;", size(4, 20)*mib) + "a 1\n") },
	"deep stacks": func() []byte {
		deep := strings.Repeat("a;b;", 20_000)
		return lines(size(100, 500), func(w io.Writer, i int) { fmt.Fprintf(w, "%sleaf%d 1\n", deep, i) })
	},
	"empty frames": func() []byte { return []byte(strings.Repeat(";", size(3, 60)*mib) + " 1\n") },
	"one line":     func() []byte { return bytes.Repeat([]byte("1"), size(5, 120)*mib) },
	"long names": func() []byte {
		return lines(size(50, 300), func(w io.Writer, i int) { fmt.Fprintf(w, "p;%s%d 1\n", strings.Repeat("n", 100_000), i) })
	},
	"counts": func() []byte { return bytes.Repeat([]byte("p;a 9223372036854775807\n"), 100_000) },
	"wrong counts": func() []byte {
		return []byte("p;a -1\np;a 1e308\np;a NaN\np;a 99999999999999999999999999\np;a 0x10\np;a\n")
	},
	"folded, zeros": func() []byte { return append([]byte("p;a 1\n"), make([]byte, size(5, 120)*mib)...) },
	"folded, packed": func() []byte {
		return streamed(func(w io.Writer) { repeat(w, size(5, 200)*mib/6, []byte("a;b 1\n")) })
	},
	"folded, packed names": func() []byte {
		return streamed(func(w io.Writer) {
			for i := range size(400, 8000) {
				fmt.Fprintf(w, "p;%s%d 1\n", strings.Repeat("n", 100_000), i)
			}
		})
	},
	"folded, packed frames": func() []byte {
		return streamed(func(w io.Writer) {
			for i := range size(100, 1000) {
				repeat(w, 100_000, []byte("a;b;"))
				fmt.Fprintf(w, "leaf%d 1\n", i)
			}
		})
	},
	"packed twice": func() []byte { return compressed(streamed(func(w io.Writer) { repeat(w, 100*mib, []byte("a")) })) },
	"script, steering": func() []byte {
		return []byte("a" + steering + " 1/2 [000] 1.000001: 1 cycles" + steering + ":u: \n\t    7f00 f" + steering + "+0x10 (/lib/" + steering + ".so)\n\n")
	},
	"folded, steering": func() []byte {
		return []byte("p" + steering + ";f" + steering + ";</script><script>alert(1)</script> 1\n")
	},
	"script, events": func() []byte {
		return lines(size(10_000, 500_000), func(w io.Writer, i int) {
			fmt.Fprintf(w, "prog %d/%d [000] %d.%06d: 1 cycles:u: \n\t    %x f%d+0x10 (/lib/a%d.so)\n\n", i, i, i, i%1000000, i, i, i)
		})
	},
	"script, kinds of events": func() []byte {
		return lines(size(50_000, 200_000), func(w io.Writer, i int) {
			fmt.Fprintf(w, "prog 1 [000] 1.%06d: 1 event%d: \n\t    7f00 f+0x10 (/lib/a.so)\n\n", i, i)
		})
	},
	"script, deep": func() []byte {
		return []byte("prog 1 [000] 1.000001: 1 cycles: \n" + strings.Repeat("\t7f00 f (/a)\n", size(1, 5)*1_000_000) + "\n")
	},
	"script, no frames": func() []byte {
		return bytes.Repeat([]byte("prog 1 [000] 1.000001: 1 cycles: \n\n"), size(200_000, 1_000_000))
	},
	"script, fields": func() []byte {
		return []byte("prog 1 " + strings.Repeat("[000] ", size(2, 10)*mib) + "1.1: 1 cycles: \n\t7f00 f (/a)\n\n")
	},
	"script, parentheses": func() []byte {
		return []byte("prog 1 [000] 1.000001: 1 cycles: \n\t7f00 " + strings.Repeat("(", size(4, 20)*mib) + "\n\t7f00 f (" + strings.Repeat("(a) ", size(1, 5)*mib) + ")\n\n")
	},
	"script, long comm": func() []byte {
		return []byte(strings.Repeat("comm ", size(2, 10)*mib) + "1 [000] 1.000001: 1 cycles: \n\t7f00 f (/a)\n\n")
	},
	"script, packed": func() []byte {
		return streamed(func(w io.Writer) {
			repeat(w, size(300_000, 4_000_000), []byte("prog 1 [000] 1.000001: 1 cycles: \n\t7f00 f (/a)\n\n"))
		})
	},
	"script, comments": func() []byte {
		return append(bytes.Repeat([]byte("# comment\n"), size(1, 10)*mib), "prog 1 [000] 1.0: 1 cycles: \n\t7f00 f (/a)\n"...)
	},
}

// TestStackTexts has profiles as text, plain and by the reader's own way to guess what they are.
func TestStackTexts(t *testing.T) {
	for name, make := range stackTexts {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.write("in.txt", make())
			p.runAll(p.readers(in)[:9]...)
		})
	}
}

// TestViewStackTexts shows them in a browser.
func TestViewStackTexts(t *testing.T) {
	for name, make := range stackTexts {
		t.Run(name, func(t *testing.T) {
			if sum := len(name); !testenv.Thorough() && sum%8 != 0 {
				t.Skip("left to HALLMARK_THOROUGH=1")
			}
			p := newPlace(t)
			in := p.write("in.txt", make())
			p.serve(line("view", "--no-browser", in), pages...)
		})
	}
}
