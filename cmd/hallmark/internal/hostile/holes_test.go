package hostile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"hallmark/internal/testenv"
)

// holeSize is how large each hole is: the largest table that a file may have.
const holeSize = (1 << 30) / 24 * 24

// A hole is sections of a program of which nothing is on the disk.
type hole struct {
	name     string
	typ      elf.SectionType
	flags    elf.SectionFlag
	n        int
	replaces bool // the one of this name is gone
}

// holes are programs that are far larger than what is on the disk.
var holes = map[string]func() []hole{
	"relocations": func() []hole {
		return []hole{{name: ".rela.plt", typ: elf.SHT_RELA, flags: elf.SHF_ALLOC, n: size(64, 12_000)}}
	},
	"symbols": func() []hole { return []hole{{name: ".symtab", typ: elf.SHT_SYMTAB, n: 1, replaces: true}} },
	"names":   func() []hole { return []hole{{name: ".strtab", typ: elf.SHT_STRTAB, n: 1, replaces: true}} },
	"dynamic": func() []hole {
		return []hole{{name: ".dynsym", typ: elf.SHT_DYNSYM, flags: elf.SHF_ALLOC, n: 1, replaces: true}}
	},
	"data": func() []hole {
		return []hole{{name: ".data.rel.ro", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, n: size(64, 12_000)}}
	},
	"frames": func() []hole {
		return []hole{{name: ".eh_frame", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, n: 1, replaces: true}}
	},
	"DWARF": func() []hole { return []hole{{name: ".debug_info", typ: elf.SHT_PROGBITS, n: 1, replaces: true}} },
	"lines": func() []hole { return []hole{{name: ".debug_line", typ: elf.SHT_PROGBITS, n: 1, replaces: true}} },
	"everywhere": func() []hole {
		return []hole{
			{name: ".symtab", typ: elf.SHT_SYMTAB, n: 1, replaces: true}, {name: ".strtab", typ: elf.SHT_STRTAB, n: 1, replaces: true},
			{name: ".rela.plt", typ: elf.SHT_RELA, flags: elf.SHF_ALLOC, n: size(64, 12_000)},
			{name: ".plt.sec", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, n: 1},
		}
	},
}

// makeHoles writes a program with holes behind it. Its own sections keep their numbers.
func makeHoles(t *testing.T, program []byte, to string, holes []hole) {
	t.Helper()
	const entry = 64
	le := binary.LittleEndian
	at, count, names := le.Uint64(program[40:]), int(le.Uint16(program[60:])), int(le.Uint16(program[62:]))
	if count == 0 || at+uint64(count)*entry > uint64(len(program)) {
		t.Fatal("the program has no sections")
	}
	table := append([]byte{}, program[at:at+uint64(count)*entry]...)
	field := func(i, off int) uint64 { return le.Uint64(table[i*entry+off:]) }
	text := append([]byte{}, program[field(names, 24):field(names, 24)+field(names, 32)]...)
	nameOf := func(i int) string {
		s := text[le.Uint32(table[i*entry:]):]
		for n, c := range s {
			if c == 0 {
				return string(s[:n])
			}
		}
		return ""
	}
	total := count
	for _, h := range holes {
		if !h.replaces {
			total += h.n
		}
	}
	headers := (uint64(len(program)) + 1<<20 - 1) &^ (1<<20 - 1)
	end := (headers + uint64(total*entry) + uint64(len(text)) + 1<<20) &^ (1<<20 - 1)
	for _, h := range holes {
		put := func(i int) {
			le.PutUint32(table[i*entry+4:], uint32(h.typ))
			le.PutUint64(table[i*entry+24:], end)
			le.PutUint64(table[i*entry+32:], holeSize)
			end += 1 << 30
		}
		replaced := false
		for i := range count {
			if h.replaces && nameOf(i) == h.name {
				put(i)
				replaced = true
			}
		}
		if replaced {
			continue
		}
		for range h.n {
			i := len(table) / entry
			table = append(table, make([]byte, entry)...)
			le.PutUint32(table[i*entry:], uint32(len(text)))
			le.PutUint64(table[i*entry+8:], uint64(h.flags))
			le.PutUint64(table[i*entry+16:], 1<<40+end)
			le.PutUint64(table[i*entry+48:], 8)
			put(i)
		}
		text = append(append(text, h.name...), 0)
	}
	le.PutUint64(table[names*entry+24:], headers+uint64(len(table)))
	le.PutUint64(table[names*entry+32:], uint64(len(text)))
	head := append([]byte{}, program[:64]...)
	le.PutUint64(head[40:], headers)
	le.PutUint16(head[60:], uint16(len(table)/entry))
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := f.Write(program)
	_, err2 := f.WriteAt(head, 0)
	_, err3 := f.WriteAt(append(table, text...), int64(headers))
	if err := errors.Join(err1, err2, err3, f.Truncate(int64(end)), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// buildBusy builds a program that is busy for a moment.
func buildBusy(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(buildC(t, `#include <stdio.h>
#include <time.h>
int main(void)
{
	volatile unsigned long n = 0;
	for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;)
		for (int i = 0; i < 100000; i++)
			n += i;
	puts("done");
}
`))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestHoles reads programs with holes. Each is asked for a function, and for an entry of its
// procedure linkage table.
func TestHoles(t *testing.T) {
	busy := buildBusy(t)
	f, err := elf.NewFile(bytes.NewReader(busy))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return fmt.Sprintf("%#x", f.Section(name).Addr+16) }
	for name, make := range holes {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			in := p.in("in")
			makeHoles(t, busy, in, make())
			p.run(line("lookup", "--virtual", in, at(".text"), at(".plt")))
			if name == "everywhere" || testenv.Thorough() {
				p.run(line("record", "--backend", "perf", "-o", p.out("a.pb.gz"), "--", in))
			}
			p.runAll(p.programReaders(in)...)
		})
	}
}

// TestManyHoles records and reports many programs with holes: all of them together have a bound.
func TestManyHoles(t *testing.T) {
	busy, p := buildBusy(t), newPlace(t)
	n := size(6, 64)
	script := ""
	for i := range n {
		program := append([]byte{}, busy...)
		copy(program[len(program)-1:], []byte{byte(i)})
		name := fmt.Sprintf("in%d", i)
		makeHoles(t, program, p.in(name), holes["everywhere"]())
		script += filepath.Join(p.dir, "in", name) + " >/dev/null & "
	}
	sh := testenv.Tool(t, "sh")
	out := p.out("a.pb.gz")
	p.run(line("record", "--backend", "perf", "-o", out, "--", sh, "-c", script+"wait"))
	p.run(line("report", out))
}
