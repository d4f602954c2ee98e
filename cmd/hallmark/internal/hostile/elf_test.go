package hostile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
)

// Where the code of all programs is.
const (
	textAt   = 0x401000
	textSize = 0x1000
)

// buildID is the identity of all programs.
var buildID = bytes.Repeat([]byte{0xab}, 20)

const buildIDText = "abababababababababababababababababababab"

// program returns a program with code, an identity and these sections.
func program(sections ...elftest.Section) []byte {
	return programWith(nil, sections...)
}

func programWith(symbols []elf.Symbol, sections ...elftest.Section) []byte {
	all := append([]elftest.Section{
		{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Addr: 0x400200, Align: 4,
			Data: elftest.Notes(nil, 4, elftest.GNU(buildID))},
		{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: textAt, Offset: 0x1000,
			Align: 16, Data: bytes.Repeat([]byte{0x90}, textSize)},
	}, sections...)
	return elftest.File{
		Type: elf.ET_EXEC,
		Segments: []elftest.Segment{
			{Type: elf.PT_NOTE, Flags: elf.PF_R, From: ".note.gnu.build-id", Vaddr: 0x400200},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: textAt, Align: 0x1000},
		},
		Sections: all,
		Symbols:  symbols,
	}.Build()
}

// section is a section of debug information.
func section(name string, data []byte) elftest.Section {
	return elftest.Section{Name: name, Type: elf.SHT_PROGBITS, Data: data}
}

const (
	asZlib = 1
	asZstd = 2
)

// packed is a compressed section of so many bytes, with room behind the stream.
func packed(name string, kind uint32, size int, room int, write func(w io.Writer)) elftest.Section {
	var out bytes.Buffer
	binary.Write(&out, binary.LittleEndian, elf.Chdr64{Type: kind, Size: uint64(size), Addralign: 1})
	var w io.WriteCloser
	if kind == asZlib {
		w, _ = zlib.NewWriterLevel(&out, zlib.BestSpeed)
	} else {
		w, _ = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	}
	write(w)
	w.Close()
	out.Write(make([]byte, room))
	return elftest.Section{Name: name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: out.Bytes()}
}

// dwarf is debug information in the making.
type dwarf struct{ b []byte }

func (d *dwarf) u8(ns ...int) *dwarf {
	for _, n := range ns {
		d.b = append(d.b, byte(n))
	}
	return d
}
func (d *dwarf) u16(n int) *dwarf  { d.b = binary.LittleEndian.AppendUint16(d.b, uint16(n)); return d }
func (d *dwarf) u32(n int) *dwarf  { d.b = binary.LittleEndian.AppendUint32(d.b, uint32(n)); return d }
func (d *dwarf) u64(n int) *dwarf  { d.b = binary.LittleEndian.AppendUint64(d.b, uint64(n)); return d }
func (d *dwarf) uleb(n int) *dwarf { d.b = varint(d.b, uint64(n)); return d }
func (d *dwarf) text(s string) *dwarf {
	d.b = append(append(d.b, s...), 0)
	return d
}

// unit returns a compilation unit of DWARF 4 with these entries.
func unit(entries []byte) []byte {
	d := new(dwarf).u32(7 + len(entries)).u16(4).u32(0).u8(8)
	return append(d.b, entries...)
}

// Constants of DWARF 4.
const (
	tagInlined, tagUnit, tagFunction, tagNamespace, tagImported, tagClass = 0x1d, 0x11, 0x2e, 0x39, 0x3d, 0x02

	atName, atSibling, atStmtList, atLow, atHigh, atRanges = 0x03, 0x01, 0x10, 0x11, 0x12, 0x55
	atOrigin, atSpecification, atImport, atCallLine        = 0x31, 0x47, 0x18, 0x59

	formAddr, formData1, formData4, formString, formStrp, formSecOffset, formRef4 = 0x01, 0x0b, 0x06, 0x08, 0x0e, 0x17, 0x13
)

// abbreviation describes an entry: code, tag, whether it has children, pairs of attributes and
// forms.
func abbreviation(code, tag, children int, pairs ...int) []byte {
	d := new(dwarf).uleb(code).uleb(tag).u8(children)
	for _, p := range pairs {
		d.uleb(p)
	}
	return d.u8(0, 0).b
}

// abbreviations are those that the programs here use.
var abbreviations = bytes.Join([][]byte{
	abbreviation(1, tagUnit, 1, atName, formString, atLow, formAddr, atHigh, formData4, atStmtList, formSecOffset),
	abbreviation(2, tagFunction, 0),
	abbreviation(3, tagFunction, 0, atName, formStrp, atLow, formAddr, atHigh, formData4),
	abbreviation(4, tagFunction, 0, atName, formStrp, atRanges, formSecOffset),
	abbreviation(5, tagFunction, 1, atName, formStrp, atLow, formAddr, atHigh, formData4),
	abbreviation(6, tagInlined, 1, atOrigin, formRef4, atLow, formAddr, atHigh, formData4, atCallLine, formData1),
	abbreviation(7, tagNamespace, 1, atName, formStrp),
	abbreviation(8, tagFunction, 0, atOrigin, formRef4, atLow, formAddr, atHigh, formData4),
	abbreviation(9, tagImported, 0, atImport, formRef4),
	abbreviation(10, tagInlined, 0, atOrigin, formRef4, atRanges, formSecOffset),
	abbreviation(11, tagFunction, 1, atName, formStrp, atSibling, formRef4),
	abbreviation(12, tagUnit, 1),
	{0},
}, nil)

// root begins a unit that covers the code.
func root() *dwarf {
	return new(dwarf).u8(1).text("f.c").u64(textAt).u32(textSize).u32(0)
}

// lineTable is a line program with this code.
func lineTable(code []byte) []byte {
	return lineTableOf([]string{"f.c"}, code)
}

func lineTableOf(files []string, code []byte) []byte {
	h := new(dwarf).u8(1, 1, 1).u8(0xfb, 14, 13)
	h.u8(0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
	h.u8(0) // no directories
	for _, f := range files {
		h.text(f).u8(0, 0, 0)
	}
	h.u8(0)
	d := new(dwarf).u32(2 + 4 + len(h.b) + len(code)).u16(4).u32(len(h.b))
	return append(append(d.b, h.b...), code...)
}

// start sets the address of a line program.
var start = new(dwarf).u8(0, 9, 2).u64(textAt).b

func many(n int, f func(d *dwarf, i int)) []byte {
	d := new(dwarf)
	for i := range n {
		f(d, i)
	}
	return d.b
}

// programs are programs that stand for far more than they are.
var programs = map[string]func(t *testing.T) []byte{
	"room behind a stream": func(t *testing.T) []byte {
		const room = 160_000
		size := 60 * room
		zeros := func(w io.Writer) { repeat(w, size, []byte{0}) }
		all := []elftest.Section{section(".debug_abbrev", abbreviations)}
		for _, name := range []string{"line", "str", "line_str", "str_offsets", "addr", "ranges", "rnglists"} {
			all = append(all, packed(".debug_"+name, asZlib, size, room, zeros))
		}
		one := unit([]byte{12, 0})
		return program(append(all, packed(".debug_info", asZlib, size/len(one)*len(one), room, func(w io.Writer) {
			repeat(w, size/len(one), one)
		}))...)
	},
	"units": func(t *testing.T) []byte {
		one := unit([]byte{12, 0})
		const n = 6_000_000
		return program(section(".debug_abbrev", abbreviations), packed(".debug_info", asZlib, n*len(one), 1_200_000, func(w io.Writer) {
			repeat(w, n, one)
		}))
	},
	"units that cover": func(t *testing.T) []byte {
		one := unit(root().u8(0).b)
		const n = 2_000_000
		return program(section(".debug_abbrev", abbreviations), section(".debug_line", lineTable(start)),
			packed(".debug_info", asZstd, n*len(one), 1_200_000, func(w io.Writer) { repeat(w, n, one) }))
	},
	"entries": func(t *testing.T) []byte {
		const n = 80 << 20
		head := unit(root().b)
		binary.LittleEndian.PutUint32(head, uint32(len(head)-4+n))
		return program(section(".debug_abbrev", abbreviations), packed(".debug_info", asZlib, len(head)+n, 1_300_000, func(w io.Writer) {
			w.Write(head)
			repeat(w, n, []byte{2})
		}))
	},
	"functions": func(t *testing.T) []byte {
		one := new(dwarf).u8(3).u32(0).u64(textAt).u32(textSize).b
		const n = 4_000_000
		head := unit(root().b)
		binary.LittleEndian.PutUint32(head, uint32(len(head)-4+n*len(one)))
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", []byte("name\x00")),
			packed(".debug_info", asZlib, len(head)+n*len(one), 1_200_000, func(w io.Writer) {
				w.Write(head)
				repeat(w, n, one)
			}))
	},
	"different functions": func(t *testing.T) []byte {
		const n = 400_000
		body := many(n, func(d *dwarf, i int) { d.u8(3).u32(i % 50_000).u64(textAt + i%textSize).u32(1 + i%7) })
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", bytes.Repeat([]byte("n"), 60_000)),
			section(".debug_info", unit(append(root().b, body...))))
	},
	"shared ranges": func(t *testing.T) []byte {
		list := many(4000, func(d *dwarf, i int) { d.u64(i % textSize).u64(i%textSize + 1) })
		body := many(40_000, func(d *dwarf, i int) { d.u8(4).u32(0).u32(0) })
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", []byte("name\x00")),
			section(".debug_ranges", append(list, make([]byte, 16)...)), section(".debug_info", unit(append(root().b, body...))))
	},
	"shared ranges of inlined calls": func(t *testing.T) []byte {
		list := many(4000, func(d *dwarf, i int) { d.u64(i % textSize).u64(i%textSize + 1) })
		body := new(dwarf).u8(5).u32(0).u64(textAt).u32(textSize).b
		body = append(body, many(40_000, func(d *dwarf, i int) { d.u8(10).u32(30).u32(0) })...)
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", []byte("name\x00")),
			section(".debug_ranges", append(list, make([]byte, 16)...)), section(".debug_info", unit(append(root().b, body...))))
	},
	"nested calls": func(t *testing.T) []byte {
		body := new(dwarf).u8(5).u32(0).u64(textAt).u32(textSize).b
		body = append(body, many(250, func(d *dwarf, i int) { d.u8(6).u32(len(unit(root().b))).u64(textAt).u32(textSize).u8(i) })...)
		one := unit(append(root().b, body...))
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", append(bytes.Repeat([]byte("n"), 60_000), 0)),
			section(".debug_info", bytes.Repeat(one, 100)))
	},
	"many nested calls": func(t *testing.T) []byte {
		var body []byte
		at := len(unit(root().b))
		for i := range 2000 {
			body = append(body, new(dwarf).u8(5).u32(i).u64(textAt+2*i%textSize).u32(2).b...)
			body = append(body, many(200, func(d *dwarf, k int) { d.u8(6).u32(at).u64(textAt + 2*i%textSize).u32(2).u8(k) })...)
			body = append(body, make([]byte, 201)...)
		}
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", append(bytes.Repeat([]byte("n"), 60_000), 0)),
			section(".debug_info", unit(append(root().b, body...))))
	},
	"names in names": func(t *testing.T) []byte {
		body := many(200, func(d *dwarf, i int) { d.u8(7).u32(0) })
		body = append(body, many(200_000, func(d *dwarf, i int) { d.u8(3).u32(i % 60_000).u64(textAt + i%textSize).u32(1) })...)
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", append(bytes.Repeat([]byte("n"), 60_000), 0)),
			section(".debug_info", unit(append(root().b, body...))))
	},
	"reference to itself": func(t *testing.T) []byte {
		at := len(unit(root().b))
		body := new(dwarf).u8(8).u32(at).u64(textAt).u32(textSize).u8(9).u32(at).u8(0)
		return program(section(".debug_abbrev", abbreviations), section(".debug_info", unit(append(root().b, body.b...))))
	},
	"chain of references": func(t *testing.T) []byte {
		at := len(unit(root().b))
		body := many(100_000, func(d *dwarf, i int) { d.u8(8).u32(at + (i+1)*17).u64(textAt).u32(textSize) })
		return program(section(".debug_abbrev", abbreviations), section(".debug_info", unit(append(root().b, body...))))
	},
	"sibling before": func(t *testing.T) []byte {
		at := len(unit(root().b))
		body := many(1000, func(d *dwarf, i int) { d.u8(11).u32(0).u32(at) })
		return program(section(".debug_abbrev", abbreviations), section(".debug_str", []byte("s\x00")), section(".debug_info", unit(append(root().b, body...))))
	},
	"rows": func(t *testing.T) []byte {
		const n = 80 << 20
		table := lineTable(start)
		binary.LittleEndian.PutUint32(table, uint32(len(table)-4+n))
		return program(section(".debug_abbrev", abbreviations), section(".debug_info", unit(root().u8(0).b)),
			packed(".debug_line", asZlib, len(table)+n, 1_300_000, func(w io.Writer) {
				w.Write(table)
				repeat(w, n, []byte{0x20})
			}))
	},
	"sequences": func(t *testing.T) []byte {
		one := append(append([]byte{}, start...), 0x20, 0, 1, 1)
		const n = 5_000_000
		table := lineTable(nil)
		binary.LittleEndian.PutUint32(table, uint32(len(table)-4+n*len(one)))
		return program(section(".debug_abbrev", abbreviations), section(".debug_info", unit(root().u8(0).b)),
			packed(".debug_line", asZlib, len(table)+n*len(one), 1_300_000, func(w io.Writer) {
				w.Write(table)
				repeat(w, n, one)
			}))
	},
	"files": func(t *testing.T) []byte {
		const n = 15_000_000
		h := new(dwarf).u8(1, 1, 1).u8(0xfb, 14, 13).u8(0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1).u8(0)
		one := new(dwarf).text("f").u8(0, 0, 0).b
		size := len(h.b) + n*len(one) + 1
		head := append(new(dwarf).u32(2+4+size).u16(4).u32(size).b, h.b...)
		return program(section(".debug_abbrev", abbreviations), section(".debug_info", unit(root().u8(0).b)),
			packed(".debug_line", asZlib, 4+2+4+size, 1_300_000, func(w io.Writer) {
				w.Write(head)
				repeat(w, n, one)
				w.Write([]byte{0})
			}))
	},
	"abbreviations": func(t *testing.T) []byte {
		const n = 12_000_000
		one := abbreviation(200, tagFunction, 0)
		return program(section(".debug_info", unit(root().u8(0).b)), packed(".debug_abbrev", asZlib, n*len(one)+len(abbreviations), 1_300_000, func(w io.Writer) {
			w.Write(abbreviations[:len(abbreviations)-1])
			repeat(w, n, one)
			w.Write([]byte{0})
		}))
	},
	"attributes": func(t *testing.T) []byte {
		const n = 30_000_000
		return program(section(".debug_info", unit(root().u8(0).b)), packed(".debug_abbrev", asZlib, 2*n+6+len(abbreviations), 1_300_000, func(w io.Writer) {
			w.Write(abbreviations[:len(abbreviations)-1])
			w.Write([]byte{100, tagFunction, 0})
			repeat(w, n, []byte{atName, formData1})
			w.Write([]byte{0, 0, 0})
		}))
	},
	"names of symbols": func(t *testing.T) []byte { return manySymbols(60_000, strings.Repeat("n", 100_000)) },
	"demangled": func(t *testing.T) []byte {
		// each name is short, and long when it is made readable
		name := "_Z1f1AIiiiiiiiiiiiiiiiiE"
		for i := range 12 {
			name += fmt.Sprintf("1BIS%c_S%c_S%c_S%c_E", "0123456789ABCDEF"[i], "0123456789ABCDEF"[i], "0123456789ABCDEF"[i], "0123456789ABCDEF"[i])
		}
		return manySymbols(60_000, name)
	},
	"symbols in symbols": func(t *testing.T) []byte {
		var symbols []elf.Symbol
		for i := range 60_000 {
			symbols = append(symbols, elf.Symbol{Name: fmt.Sprint("s", i), Info: 0x12, Section: 2, Value: textAt + uint64(i%textSize), Size: textSize})
		}
		return programWith(symbols)
	},
	"symbols of xz": func(t *testing.T) []byte { return xzProgram(t) },
	"rules": func(t *testing.T) []byte {
		return program(frames(30, 3000, bytes.Repeat([]byte{0x41}, 4000)))
	},
	"one long rule": func(t *testing.T) []byte {
		return program(frames(textSize, 1, bytes.Repeat([]byte{0x41, 0x0e, 0x08, 0x0e, 0x10}, 2_000_000)))
	},
	"remembered": func(t *testing.T) []byte {
		return program(frames(textSize, 1, bytes.Repeat([]byte{0x0a}, 8_000_000)))
	},
	"functions of a few bytes": func(t *testing.T) []byte {
		n := size(200_000, 1_000_000)
		data := debugFrames(n)
		text := elftest.Section{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: textAt, Offset: 0x1000,
			Align: 16, Data: bytes.Repeat([]byte{0x90}, 8*n)}
		return elftest.File{Type: elf.ET_EXEC,
			Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: textAt, Align: 0x1000}},
			Sections: []elftest.Section{text, packed(".debug_frame", asZlib, len(data), 0, func(w io.Writer) { w.Write(data) })}}.Build()
	},
	"packed rules": func(t *testing.T) []byte {
		data := frames(textSize, 400_000, []byte{0x41, 0x0e, 0x10, 0x41, 0x0e, 0x18, 0x41, 0x0e, 0x20, 0x41, 0x0e, 0x28}).Data
		return program(packed(".debug_frame", asZlib, len(data), 1_000_000, func(w io.Writer) { w.Write(data) }))
	},
	"notes": func(t *testing.T) []byte {
		f := elftest.File{Type: elf.ET_EXEC}
		f.Sections = []elftest.Section{{Name: ".note", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Data: bytes.Repeat(elftest.Notes(nil, 4, elftest.ABITag()), 500_000)}}
		for range 60_000 {
			f.Segments = append(f.Segments, elftest.Segment{Type: elf.PT_NOTE, From: ".note"})
		}
		return f.Build()
	},
	"sections": func(t *testing.T) []byte {
		f := elftest.File{Type: elf.ET_EXEC}
		for range 60_000 {
			f.Sections = append(f.Sections, elftest.Section{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: []byte{1}})
		}
		return f.Build()
	},
}

// manySymbols is a program with symbols of one name each at an address of its own.
func manySymbols(n int, name string) []byte {
	table := new(bytes.Buffer)
	binary.Write(table, binary.LittleEndian, elf.Sym64{})
	for i := range n {
		binary.Write(table, binary.LittleEndian, elf.Sym64{Name: 1 + uint32(i%min(7, len(name))), Info: 0x12, Shndx: 2, Value: textAt + uint64(i%textSize), Size: 1 + uint64(i%5)})
	}
	return program(
		elftest.Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Data: table.Bytes(), Link: 4, Entsize: 24, Align: 8},
		elftest.Section{Name: ".strtab", Type: elf.SHT_STRTAB, Data: append(append([]byte{0}, name...), 0)})
}

// frames is an .eh_frame with n functions of so many bytes, all with the same rules.
func frames(size, n int, rules []byte) elftest.Section {
	pad := func(b []byte) []byte {
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		return b
	}
	cie := pad(append(new(dwarf).u32(0).u8(1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1).b, 0, 0))
	data := append(new(dwarf).u32(len(cie)).b, cie...)
	for i := range n {
		body := new(dwarf).u32(len(data) + 4).u64(textAt + i*size%textSize).u64(size)
		b := pad(append(body.b, rules...))
		data = append(append(data, new(dwarf).u32(len(b)).b...), b...)
	}
	data = append(data, 0, 0, 0, 0)
	return elftest.Section{Name: ".eh_frame", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC, Addr: 0x500000, Align: 8, Data: data}
}

// debugFrames is a .debug_frame of n functions of eight bytes, each with rules of its own.
func debugFrames(n int) []byte {
	cie := new(dwarf).u32(0xffffffff).u8(4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1)
	for len(cie.b)%8 != 4 {
		cie.u8(0)
	}
	data := append(new(dwarf).u32(len(cie.b)).b, cie.b...)
	for i := range n {
		body := new(dwarf).u32(0).u64(textAt+8*i).u64(8).u8(0x41, 0x0e).uleb(16+i%50_000).u8(0x42, 0x0e).uleb(24+i%60_000).u8(0x42, 0x0e).uleb(32 + i%70_000)
		for len(body.b)%8 != 4 {
			body.u8(0)
		}
		data = append(append(data, new(dwarf).u32(len(body.b)).b...), body.b...)
	}
	return data
}

// xzProgram has symbols that xz compressed.
func xzProgram(t *testing.T) []byte {
	inner := manySymbols(size(100_000, 1_000_000), "name")
	cmd := exec.Command(testenv.Tool(t, "xz"), "-c", "-0")
	cmd.Stdin = bytes.NewReader(inner)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return program(section(".gnu_debugdata", append(out, make([]byte, 1_200_000)...)))
}

// programReaders are the commands that read a program.
func (p *place) programReaders(in string) []command {
	text := p.write("log", []byte("    #0 0x401000  ("+in+"+0x1000) (BuildId: "+buildIDText+")\n"))
	pp := newBuilt()
	pp.mapping(1, in, buildIDText)
	for i := range uint64(100) {
		pp.location(i+1, 1, 0x400000+0x1000+i*8)
		pp.sample(func(m *message) { m.num(sampleLocation, i+1) })
	}
	prof := p.write("names.pb.gz", pp.done())
	addresses := p.write("addresses", []byte(strings.Repeat("0x401000 0x401008 0x401010 0x401ff0\n", 50)))
	offsets := p.write("offsets", []byte(strings.Repeat("0x1000 0x1008 0x1010 0x1ff0\n", 50)))
	return []command{
		line("id", "-v", in), line("id", "--json", "-r", p.in("")),
		line("lookup", "--virtual", in, "401000"),
		{args: []string{"lookup", "--json", in, "-"}, stdin: offsets},
		line("index", "-o", p.out("index"), in), line("index", in),
		line("unwind", "--stats", in), line("unwind", "--check", "1000", in), line("unwind", in),
		{args: []string{"addr2line", "-f", "-i", "-e", in, "401000"}, raw: true},
		{args: []string{"addr2line", "--as=llvm-symbolizer", "--obj=" + in}, stdin: addresses, raw: true},
		line("symbolize", "--binary", in, text), line("symbolize", "--json", "--binary", in, text),
		line("report", "--debug-path", in, prof),
		line("convert", "--debug-path", in, "-o", p.out("a.pb.gz"), prof),
	}
}

func TestPrograms(t *testing.T) {
	for name, make := range programs {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.runAll(p.programReaders(p.write("in", make(t)))...)
		})
	}
}
