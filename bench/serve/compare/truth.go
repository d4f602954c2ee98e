package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is what Go's reader of ELF says of a file. Nothing here is Hallmark's.
type file struct {
	id       string   // GNU build ID
	open     *os.File // stays open: packages of this machine may be upgraded meanwhile
	from     string   // as it was pushed: a path, or that in a package
	sum      string   // SHA-256 of the bytes
	exe      bool     // it has contents that a process maps
	debug    bool     // it has debug information, or nothing but symbols
	knows    int
	info     uint64 // bytes of .debug_info, as they are stored
	segments string // machine, addresses and sizes of its code
	code     string // hash of its code, "" where it has none
	push     int    // which push brought it first
	trust    trust
}

// How much a file knows of its code.
const (
	nothing = iota
	exported
	functions
	lines
)

type trust int

const (
	agent trust = iota
	ci
	operator
)

// collect returns the files with a GNU build ID below a directory, by ID, and how many other ELF files there are.
func collect(dir string, push int, into map[string][]*file, from func(path string) string) (others int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := read(path)
		switch {
		case err != nil:
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			others++
			return nil
		case f == nil:
			return nil
		case f.id == "":
			others++
			return nil
		}
		f.push, f.trust, f.from = push, ci, from(path)
		add(into, f)
		return nil
	})
	return others, err
}

// add adds a file, unless its bytes are there. It returns the file that has them.
func add(into map[string][]*file, f *file) *file {
	for _, g := range into[f.id] {
		if g.sum == f.sum {
			f.open.Close()
			return g
		}
	}
	into[f.id] = append(into[f.id], f)
	return f
}

// read returns what a file is, nil if it is not ELF. A file with a build ID is open.
func read(path string) (f *file, err error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if f == nil || f.open == nil {
			r.Close()
		}
	}()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != elf.ELFMAG {
		return nil, nil
	}
	x, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	f = &file{id: buildID(x)}
	if f.id == "" {
		return f, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(r, 0, 1<<62)); err != nil {
		return nil, err
	}
	f.sum = hex.EncodeToString(h.Sum(nil))
	f.classify(x)
	if f.code, err = codeOf(x, r); err != nil {
		return nil, err
	}
	f.open = r
	return f, nil
}

// content returns all of a file, from its start.
func (f *file) content() io.Reader { return io.NewSectionReader(f.open, 0, 1<<62) }

// buildID looks for the note in sections, and else in segments.
func buildID(x *elf.File) string {
	for _, s := range x.Sections {
		if s.Type == elf.SHT_NOTE {
			if id := noteIn(s.ReaderAt, s.FileSize, x.ByteOrder); id != "" {
				return id
			}
		}
	}
	for _, p := range x.Progs {
		if p.Type == elf.PT_NOTE {
			if id := noteIn(p.ReaderAt, p.Filesz, x.ByteOrder); id != "" {
				return id
			}
		}
	}
	return ""
}

// noteIn returns the build ID in notes: three words, name and content, each padded to four bytes.
func noteIn(r io.ReaderAt, size uint64, order binary.ByteOrder) string {
	if r == nil || size > 1<<20 {
		return ""
	}
	b := make([]byte, size)
	n, _ := r.ReadAt(b, 0)
	b = b[:n]
	for len(b) >= 12 {
		name, content, kind := order.Uint32(b), order.Uint32(b[4:]), order.Uint32(b[8:])
		start := 12 + (uint64(name)+3)&^3
		end := start + uint64(content)
		if end > uint64(len(b)) {
			return ""
		}
		if kind == 3 && name == 4 && string(b[12:16]) == "GNU\x00" && content > 0 {
			return hex.EncodeToString(b[start:end])
		}
		b = b[min(uint64(len(b)), (end+3)&^3):]
	}
	return ""
}

func (f *file) classify(x *elf.File) {
	for _, s := range x.Sections {
		if s.Type == elf.SHT_NOBITS || s.FileSize == 0 {
			continue
		}
		f.exe = f.exe || s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_ALLOC != 0
		switch {
		case s.Name == ".debug_info" || s.Name == ".zdebug_info":
			f.debug, f.knows = true, lines
			f.info += s.FileSize
		case strings.HasPrefix(s.Name, ".debug_") || strings.HasPrefix(s.Name, ".zdebug_"):
			f.debug = true
		case strings.HasSuffix(s.Name, ".gopclntab"):
			f.knows = lines
		case s.Type == elf.SHT_SYMTAB:
			f.knows = max(f.knows, functions)
		case s.Type == elf.SHT_DYNSYM || s.Name == ".gnu_debugdata":
			f.knows = max(f.knows, exported)
		}
	}
	f.debug = f.debug || !f.exe && f.knows >= functions
	var all []string
	for _, p := range x.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Memsz > 0 {
			all = append(all, fmt.Sprintf("%x+%x", p.Vaddr, p.Memsz))
		}
	}
	f.segments = fmt.Sprint(x.Machine, x.Type == elf.ET_REL, all)
}

// codeOf hashes the sections with instructions: strip changes the headers that are in some segments of code.
func codeOf(x *elf.File, r io.ReaderAt) (string, error) {
	h, any := sha256.New(), false
	for _, s := range x.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 || s.Type != elf.SHT_PROGBITS {
			continue
		}
		any = true
		fmt.Fprintln(h, s.Name, s.Addr, s.Size)
		if _, err := io.Copy(h, io.NewSectionReader(r, int64(s.Offset), int64(s.FileSize))); err != nil {
			return "", err
		}
	}
	if !any {
		return "", nil
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// goesWith reports whether two files can be of one program.
func (f *file) goesWith(g *file) bool {
	return f.segments == g.segments && (f.code == "" || g.code == "" || f.code == g.code)
}

// The rules of docs/server.md ("Identity and trust") by which one of several files is served.
const (
	onlyOne   = "the only one"
	byTrust   = "more trusted"
	byKnowing = "knows more"
	byFitting = "fits the other file"
	byTime    = "came first"
	byNothing = "equal, of one push"
)

// choice is which files may be served, by which rule.
type choice struct {
	files []*file // several where one push brought them, which sends four at a time
	rule  string
}

// served applies the rules.
func served(all []*file) (exe, debug choice) {
	exe, debug = best(all, func(f *file) bool { return f.exe }), best(all, func(f *file) bool { return f.debug })
	if len(exe.files) == 0 || len(debug.files) == 0 {
		return exe, debug
	}
	fitting := func(is func(*file) bool, other choice) choice {
		c := best(all, func(f *file) bool { return is(f) && slices.ContainsFunc(other.files, f.goesWith) })
		if free := best(all, is); len(c.files) == 0 || !slices.Equal(c.files, free.files) {
			c.rule = byFitting
		}
		return c
	}
	if debug.files[0].trust > exe.files[0].trust {
		exe = fitting(func(f *file) bool { return f.exe }, debug)
	} else {
		debug = fitting(func(f *file) bool { return f.debug }, exe)
	}
	return exe, debug
}

func best(all []*file, is func(*file) bool) (c choice) {
	others := slices.ContainsFunc(all, func(f *file) bool { return f.trust != agent })
	var list []*file
	for _, f := range all {
		if is(f) && (f.trust != agent || !others) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return choice{}
	}
	order := func(a, b *file) int {
		return cmp.Or(cmp.Compare(b.trust, a.trust), cmp.Compare(b.knows, a.knows), cmp.Compare(b.info, a.info), cmp.Compare(a.push, b.push))
	}
	slices.SortStableFunc(list, order)
	first := list[0]
	for _, f := range list {
		if order(first, f) == 0 {
			c.files = append(c.files, f)
		}
	}
	switch {
	case len(list) == 1:
		c.rule = onlyOne
	case len(c.files) > 1:
		c.rule = byNothing
	case first.trust != list[1].trust:
		c.rule = byTrust
	case first.knows != list[1].knows || first.info != list[1].info:
		c.rule = byKnowing
	default:
		c.rule = byTime
	}
	return c
}

// section returns the bytes of a section as they are stored, nil where there are none.
func (f *file) section(name string) (io.Reader, error) {
	x, err := elf.NewFile(f.open)
	if err != nil {
		return nil, err
	}
	for _, s := range x.Sections {
		if s.Name == name && s.Type != elf.SHT_NOBITS {
			return io.NewSectionReader(f.open, int64(s.Offset), int64(s.FileSize)), nil
		}
	}
	return nil, nil
}

// same compares two files byte for byte.
func same(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}
