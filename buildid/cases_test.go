package buildid_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/elftest"
)

// A form is one of the ways in which ELF writes numbers.
type form struct {
	name  string
	class elf.Class
	order binary.ByteOrder
}

var forms = []form{
	{"64le", elf.ELFCLASS64, binary.LittleEndian},
	{"64be", elf.ELFCLASS64, binary.BigEndian},
	{"32le", elf.ELFCLASS32, binary.LittleEndian},
	{"32be", elf.ELFCLASS32, binary.BigEndian},
}

// Identities that the cases contain. The second one is always in a place that
// must not win.
var (
	gnu20     = []byte("0123456789abcdefghij")
	otherGNU  = []byte("jihgfedcba9876543210")
	goText    = "kOo6/BmXH/7Ygw/VH"
	otherNote = elftest.Note{Name: "stapsdt\x00", Type: 3, Desc: []byte("not an identity")}
)

// A want is what a search should answer. An empty id stands for the content in a
// file and for nothing in memory; with damage it is a FormatError that contains it.
type want struct {
	id     string // as ID.String has it
	where  buildid.Where
	offset addr.Offset
	damage string
}

// A testCase is an ELF file that each door must understand.
type testCase struct {
	name  string
	build func(form) []byte
	file  want
	// memory is what is found once the file is laid out in memory, nil for what
	// is found in the file.
	memory   *want
	unloaded bool // the file cannot be laid out in memory
}

var nothing = &want{}

func gnu(id []byte, where buildid.Where, offset addr.Offset) want {
	return want{id: hex.EncodeToString(id), where: where, offset: offset}
}

// headers, notesAt and textAt are where the sections of most cases are.
const (
	notesAt = 0x300
	textAt  = 0x800
)

// file has the note sections one after another from notesAt on, as they would be
// linked: addresses are offsets plus 0x10000, in one PT_LOAD from the file's start.
func file(f form, segments []elftest.Segment, notes ...elftest.Section) elftest.File {
	const base = 0x10000
	at := uint64(notesAt)
	for i := range notes {
		at = (at + notes[i].Align - 1) / notes[i].Align * notes[i].Align
		notes[i].Offset, notes[i].Addr = at, base+at
		at += uint64(len(notes[i].Data))
	}
	text := elftest.Section{
		Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
		Addr: base + textAt, Offset: max(textAt, at), Data: make([]byte, 64),
	}
	load := elftest.Segment{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, To: ".text", Vaddr: base, Align: 4096}
	return elftest.File{
		Class: f.class, Order: f.order,
		Segments: append([]elftest.Segment{load}, segments...),
		Sections: append(notes, text),
	}
}

// note is a PT_NOTE segment over the sections from and to.
func note(align uint64, from, to string) elftest.Segment {
	return elftest.Segment{Type: elf.PT_NOTE, Flags: elf.PF_R, From: from, To: to, Align: align}
}

// notes is a section of notes padded to align bytes.
func notes(f form, name string, align int, list ...elftest.Note) elftest.Section {
	return elftest.NoteSection(name, 0, uint64(align), elftest.Notes(f.order, align, list...))
}

// Parts of many cases.
func gnuSection(f form) elftest.Section { return notes(f, ".note.gnu.build-id", 4, elftest.GNU(gnu20)) }
func goSection(f form) elftest.Section  { return notes(f, ".note.go.buildid", 4, elftest.Go(goText)) }

// linked is what GNU ld makes of most programs.
func linked(f form) elftest.File {
	return file(f, []elftest.Segment{note(4, ".note.gnu.build-id", ".note.ABI-tag")},
		gnuSection(f), notes(f, ".note.ABI-tag", 4, elftest.ABITag()))
}

var cases = []testCase{
	{
		name:  "one note segment",
		build: func(f form) []byte { return linked(f).Build() },
		file:  gnu(gnu20, buildid.InSegment, notesAt),
	},
	{
		name: "no section headers",
		build: func(f form) []byte {
			file := linked(f)
			file.NoSectionHeaders = true
			return file.Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt),
	},
	{
		name: "behind other notes",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")},
				notes(f, ".note", 4, elftest.ABITag(), otherNote, elftest.GNU(gnu20))).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+32+36),
	},
	{
		name: "eight bytes long",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")}, notes(f, ".note", 4, elftest.GNU(gnu20[:8]))).Build()
		},
		file: gnu(gnu20[:8], buildid.InSegment, notesAt),
	},
	{
		name: "five bytes long, then another note",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")},
				notes(f, ".note", 4, elftest.GNU(gnu20[:5]), elftest.ABITag())).Build()
		},
		file: gnu(gnu20[:5], buildid.InSegment, notesAt),
	},
	{
		name: "as long as can be",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")},
				notes(f, ".note", 4, elftest.GNU(bytes.Repeat(gnu20, 13)[:buildid.MaxSize]))).Build()
		},
		file: gnu(bytes.Repeat(gnu20, 13)[:buildid.MaxSize], buildid.InSegment, notesAt),
	},
	{
		name: "the last note is not padded",
		build: func(f form) []byte {
			s := notes(f, ".note", 4, elftest.ABITag(), elftest.GNU(gnu20[:5]))
			s.Data = s.Data[:len(s.Data)-3]
			return file(f, []elftest.Segment{note(4, ".note", "")}, s).Build()
		},
		file: gnu(gnu20[:5], buildid.InSegment, notesAt+32),
	},
	{
		name: "second note segment",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(8, ".note.gnu.property", ""), note(4, ".note.gnu.build-id", "")},
				property(f), gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+32),
	},
	{
		name: "padded to 8",
		build: func(f form) []byte {
			odd := elftest.Note{Name: "GNU\x00", Type: 5, Desc: make([]byte, 12)}
			return file(f, []elftest.Segment{note(8, ".note", "")}, notes(f, ".note", 8, odd, elftest.GNU(gnu20))).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+32),
	},
	{
		name: "padded to 8, long name before",
		build: func(f form) []byte {
			odd := elftest.Note{Name: "five\x00", Type: 5, Desc: make([]byte, 3)}
			return file(f, []elftest.Segment{note(8, ".note", "")}, notes(f, ".note", 8, odd, elftest.GNU(gnu20))).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+32),
	},
	{
		name: "padded to 4 in a segment that says 8",
		build: func(f form) []byte {
			odd := elftest.Note{Name: "GNU\x00", Type: 7, Desc: make([]byte, 12)}
			return file(f, []elftest.Segment{note(8, ".note", "")}, notes(f, ".note", 4, odd, elftest.GNU(gnu20))).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+28),
	},
	{
		name: "padded to 8, no identity",
		build: func(f form) []byte {
			odd := elftest.Note{Name: "GNU\x00", Type: 5, Desc: bytes.Repeat([]byte{0xff}, 12)}
			return file(f, []elftest.Segment{note(8, ".note", "")}, notes(f, ".note", 8, odd, odd)).Build()
		},
		memory: nothing,
	},
	{
		name: "Go's linker",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")}, goSection(f), gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.AfterSegment, notesAt+36),
	},
	{
		name: "Go's linker, far from the start",
		build: func(f form) []byte {
			s := goSection(f)
			s.Align = 0x8000
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")}, s, gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.AfterSegment, 0x8000+36),
	},
	{
		name: "Go's linker, across the first read's end",
		build: func(f form) []byte {
			s := goSection(f)
			s.Align = 4096 - 20
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")}, s, gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.AfterSegment, 4096-20+36),
	},
	{
		name: "a covered note before one that is not",
		build: func(f form) []byte {
			other := notes(f, ".note.other", 4, elftest.GNU(otherGNU))
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", ""), note(4, ".note.gnu.build-id", "")},
				goSection(f), other, gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+36+36),
	},
	{
		name: "not directly behind the segment",
		build: func(f form) []byte {
			s := gnuSection(f)
			s.Align = 64
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")}, goSection(f), s).Build()
		},
		file:   gnu(gnu20, buildid.InSection, notesAt+64),
		memory: &want{id: "go:" + goText, where: buildid.InSegment, offset: notesAt},
	},
	{
		name:   "only a section",
		build:  func(f form) []byte { return file(f, nil, gnuSection(f)).Build() },
		file:   gnu(gnu20, buildid.InSection, notesAt),
		memory: nothing,
	},
	{
		name: "the segment wins over the section",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note.gnu.build-id", "")},
				notes(f, ".note.other", 4, elftest.GNU(otherGNU)), gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+36),
	},
	{
		name: "the GNU note in a section wins over the Go note in a segment",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")},
				gnuSection(f), goSection(f)).Build()
		},
		file:   gnu(gnu20, buildid.InSection, notesAt),
		memory: &want{id: "go:" + goText, where: buildid.InSegment, offset: notesAt + 36},
	},
	{
		name: "Go note in a segment",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")}, goSection(f)).Build()
		},
		file: want{id: "go:" + goText, where: buildid.InSegment, offset: notesAt},
	},
	{
		name:   "Go note in a section",
		build:  func(f form) []byte { return file(f, nil, goSection(f)).Build() },
		file:   want{id: "go:" + goText, where: buildid.InSection, offset: notesAt},
		memory: nothing,
	},
	{
		name: "Go note that would not fit a line",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note.go.buildid", "")},
				notes(f, ".note.go.buildid", 4, elftest.Go("two\nlines"))).Build()
		},
		memory: nothing,
	},
	{
		name: "notes of others that look similar",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")}, notes(f, ".note", 4,
				elftest.Note{Name: "Xen\x00", Type: 3, Desc: otherGNU},
				elftest.Note{Name: "GNU\x00", Type: 4, Desc: []byte("gold 1.16")},
				elftest.Note{Name: "Go\x00\x00", Type: 3, Desc: otherGNU},
				elftest.Note{Name: "GNU", Type: 3, Desc: otherGNU},
				elftest.Note{Name: "", Type: 3, Desc: otherGNU})).Build()
		},
		memory: nothing,
	},
	{
		name:   "no notes",
		build:  func(f form) []byte { return file(f, nil).Build() },
		memory: nothing,
	},
	{
		name: "nothing but a header",
		build: func(f form) []byte {
			return elftest.File{Class: f.class, Order: f.order, NoSectionHeaders: true}.Build()
		},
		unloaded: true,
	},
	{
		name: "an empty note segment",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".empty", ".empty")}, notes(f, ".empty", 4), gnuSection(f)).Build()
		},
		file:   gnu(gnu20, buildid.InSection, notesAt),
		memory: nothing,
	},
	{
		name: "more sections than one read holds",
		build: func(f form) []byte {
			file := file(f, nil)
			for i := range 300 {
				file.Sections = append(file.Sections, elftest.Section{Name: fmt.Sprintf(".s%d", i), Type: elf.SHT_PROGBITS})
			}
			file.Sections = append(file.Sections, notes(f, ".note.gnu.build-id", 4, elftest.GNU(gnu20)))
			return file.Build()
		},
		file:   gnu(gnu20, buildid.InSection, textAt+64),
		memory: nothing,
	},
	{
		name: "the number of sections is in section header 0",
		build: func(f form) []byte {
			file := file(f, nil, gnuSection(f))
			file.Damage = func(h *elf.Header64, _ []elf.Prog64, sections []elf.Section64) {
				sections[0].Size, h.Shnum = uint64(h.Shnum), 0
			}
			return file.Build()
		},
		file:     gnu(gnu20, buildid.InSection, notesAt),
		unloaded: true,
	},
	{
		name: "the number of program headers is in section header 0",
		build: func(f form) []byte {
			file := linked(f)
			file.Damage = func(h *elf.Header64, _ []elf.Prog64, sections []elf.Section64) {
				sections[0].Info, h.Phnum = uint32(h.Phnum), 0xffff
			}
			return file.Build()
		},
		file:     gnu(gnu20, buildid.InSegment, notesAt),
		unloaded: true,
	},
	{
		name: "damage that does not matter",
		build: func(f form) []byte {
			file := linked(f)
			file.Damage = func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) {
				h.Shoff, h.Shentsize = 1<<31, 1
			}
			return file.Build()
		},
		file:     gnu(gnu20, buildid.InSegment, notesAt),
		unloaded: true,
	},
	{
		name: "an unusable segment, a good section",
		build: func(f form) []byte {
			file := linked(f)
			file.Damage = func(_ *elf.Header64, programs []elf.Prog64, _ []elf.Section64) {
				programs[1].Off, programs[1].Vaddr = 1<<30, 1<<30
			}
			return file.Build()
		},
		file:   gnu(gnu20, buildid.InSection, notesAt),
		memory: nothing,
	},
	{
		name: "a malformed segment, a good one",
		build: func(f form) []byte {
			bad := notes(f, ".note.bad", 4, elftest.ABITag())
			bad.Data = bad.Data[:20]
			return file(f, []elftest.Segment{note(4, ".note.bad", ""), note(4, ".note.gnu.build-id", "")},
				bad, gnuSection(f)).Build()
		},
		file: gnu(gnu20, buildid.InSegment, notesAt+20),
	},
	{
		name:  "notes away from the header",
		build: scattered,
		file:  gnu(gnu20, buildid.InSegment, 0x1100+32),
	},
}

// scattered has its notes in the second of three PT_LOAD segments, further away in
// memory than in the file, and another note that is not loaded at all.
func scattered(f form) []byte {
	const base = 0x40000
	loose := notes(f, ".note.loose", 4, elftest.Note{Name: "GNU\x00", Type: 1})
	loose.Offset = 0x3000
	noted := notes(f, ".note.gnu.build-id", 4, elftest.ABITag(), elftest.GNU(gnu20))
	noted.Offset, noted.Addr = 0x1100, base+0x9100
	return elftest.File{
		Class: f.class, Order: f.order,
		Segments: []elftest.Segment{
			note(4, ".note.loose", ""),
			note(4, ".note.gnu.build-id", ""),
			{Type: elf.PT_LOAD, Vaddr: base, Size: 0x400, Align: 4096},
			{Type: elf.PT_LOAD, Offset: 0x1000, Vaddr: base + 0x9000, Size: 0x800, Align: 4096},
			{Type: elf.PT_LOAD, Offset: 0x2000, Vaddr: base + 0xa000, Size: 0x800, Align: 4096},
		},
		Sections: []elftest.Section{noted, loose},
	}.Build()
}

// damaged are files from which no identity can be had.
var damaged = []testCase{
	{
		name:  "header cut off",
		build: func(f form) []byte { return linked(f).Build()[:40] },
		file:  want{damage: "ELF header outside the file"},
	},
	{
		name:  "header cut off in e_ident",
		build: func(f form) []byte { return linked(f).Build()[:10] },
		file:  want{damage: "ELF header outside the file"},
	},
	{
		name:  "class",
		build: damagedHeader(func(h *elf.Header64) { h.Ident[elf.EI_CLASS] = 3 }),
		file:  want{offset: 4, damage: "ELF class 3"},
	},
	{
		name:  "byte order",
		build: damagedHeader(func(h *elf.Header64) { h.Ident[elf.EI_DATA] = 0 }),
		file:  want{offset: 5, damage: "ELF byte order 0"},
	},
	{
		name:  "size of program headers",
		build: damagedHeader(func(h *elf.Header64) { h.Phentsize--; h.Shoff = 0 }),
		file:  want{damage: "program header of "},
	},
	{
		name:  "size of section headers",
		build: damagedHeader(func(h *elf.Header64) { h.Phnum = 0; h.Shentsize = 0 }),
		file:  want{damage: "section header of 0 bytes"},
	},
	{
		name:  "program headers behind the end",
		build: damagedHeader(func(h *elf.Header64) { h.Phoff = 1 << 30; h.Shoff = 0 }),
		file:  want{offset: 1 << 30, damage: "program header outside the file"},
	},
	{
		name:  "program headers across the end",
		build: damagedHeader(func(h *elf.Header64) { h.Phoff = h.Shoff; h.Phnum = 1000; h.Shoff = 0 }),
		file:  want{damage: "program header outside the file"},
	},
	{
		name:  "section headers behind the end",
		build: damagedHeader(func(h *elf.Header64) { h.Phnum = 0; h.Shoff = 1 << 30 }),
		file:  want{offset: 1 << 30, damage: "section header outside the file"},
	},
	{
		name:  "section header 0 behind the end",
		build: damagedHeader(func(h *elf.Header64) { h.Phnum = 0xffff; h.Shoff = 1 << 30 }),
		file:  want{offset: 1 << 30, damage: "section header outside the file"},
	},
	{
		name: "identity without bytes",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")}, notes(f, ".note", 4, elftest.GNU(nil))).Build()
		},
		file: want{offset: notesAt, damage: "size"},
	},
	{
		name: "identity too long",
		build: func(f form) []byte {
			return file(f, []elftest.Segment{note(4, ".note", "")},
				notes(f, ".note", 4, elftest.GNU(make([]byte, buildid.MaxSize+1)))).Build()
		},
		file: want{offset: notesAt, damage: "size"},
	},
	{
		name: "identity reaches out of the segment",
		build: func(f form) []byte {
			s := gnuSection(f)
			s.Data = s.Data[:30]
			return file(f, []elftest.Segment{note(4, s.Name, "")}, s).Build()
		},
		file: want{offset: notesAt, damage: "beyond its segment or section"},
	},
	{
		name: "a note of 4 GiB",
		build: func(f form) []byte {
			s := gnuSection(f)
			for i := range 8 {
				s.Data[i] = 0xff
			}
			return file(f, []elftest.Segment{note(4, s.Name, "")}, s).Build()
		},
		file: want{offset: notesAt, damage: "beyond its segment or section"},
	},
	{
		name: "Go note found, but the sections are gone",
		build: func(f form) []byte {
			s := goSection(f)
			file := file(f, []elftest.Segment{note(4, s.Name, "")}, s)
			file.Damage = func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { h.Shoff = 1 << 30 }
			return file.Build()
		},
		file: want{offset: 1 << 30, damage: "section header outside the file"},
	},
}

func damagedHeader(damage func(*elf.Header64)) func(form) []byte {
	return func(f form) []byte {
		file := linked(f)
		file.Damage = func(h *elf.Header64, _ []elf.Prog64, _ []elf.Section64) { damage(h) }
		return file.Build()
	}
}

// property is the section that x86 linkers pad to 8 bytes in 64-bit files.
func property(f form) elftest.Section {
	return notes(f, ".note.gnu.property", 8, elftest.Note{Name: "GNU\x00", Type: 5, Desc: make([]byte, 16)})
}

// check compares an answer with what is wanted, size being that of the file.
func (w want) check(info buildid.Info, err error) error {
	if w.damage != "" {
		return w.checkDamage(err)
	}
	if err != nil {
		return err
	}
	if w.id == "" && info.ID.Kind() == buildid.ByContent && info.Where == buildid.Hashed && info.Offset == 0 {
		return nil
	}
	if info.ID.String() != w.id || info.Where != w.where || info.Offset != w.offset {
		return fmt.Errorf("got %q, %v at %v; want %q, %v at %v", info.ID, info.Where, info.Offset, w.id, w.where, w.offset)
	}
	return nil
}

func (w want) checkDamage(err error) error {
	damage, ok := err.(*buildid.FormatError)
	if !ok {
		return fmt.Errorf("got error %v, want a FormatError about %q", err, w.damage)
	}
	if !strings.Contains(damage.Msg, w.damage) || w.offset != 0 && damage.Offset != w.offset {
		return fmt.Errorf("got damage at %v: %s; want it at %v: %s", damage.Offset, damage.Msg, w.offset, w.damage)
	}
	return nil
}
