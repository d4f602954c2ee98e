package buildid_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

const contentSource = `
int answer(void) { return %s; }
int main(void) { return answer(); }
`

// compileNumber compiles a program whose function returns a number.
func compileNumber(t *testing.T, dir, name, number string, options ...string) string {
	t.Helper()
	source, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	text := bytes.ReplaceAll([]byte(contentSource), []byte("%s"), []byte(number))
	if err := os.WriteFile(source, text, 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", append([]string{"-g", "-O1", "-o", program, source}, options...)...)
	return program
}

func run(t *testing.T, tool string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, tool), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", tool, args, err, out)
	}
}

func contentOf(t *testing.T, name string) buildid.Content {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := buildid.ReadContent(t.Context(), f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// TestContentOfCopies wants one Content for a program and each copy of its code, and
// none for debug files, whatever tool made them.
func TestContentOfCopies(t *testing.T) {
	for _, layout := range [][]string{{}, {"-Wl,-z,noseparate-code"}, {"-m32", "-nostdlib", "-Wl,-e,main"}, {"-fuse-ld=mold"}, {"-fuse-ld=gold"}, {"-static"}} {
		t.Run("layout "+strings.Join(layout, " "), func(t *testing.T) {
			dir := t.TempDir()
			program := compileNumber(t, dir, "one", "1", layout...)
			want := contentOf(t, program)
			if want.IsZero() {
				t.Fatal("a program has no content")
			}
			for tool, args := range map[string][]string{
				"strip": {"-o", "OUT", "IN"}, "objcopy": {"--strip-debug", "IN", "OUT"},
				"eu-strip": {"-o", "OUT", "-f", "OUT.debug", "IN"}, "llvm-objcopy-19": {"--strip-sections", "IN", "OUT"},
			} {
				if tool == "llvm-objcopy-19" && slices.Contains(layout, "-static") {
					continue // it refuses to remove the symbols that relocations refer to
				}
				out := filepath.Join(dir, "one."+tool)
				paths := strings.NewReplacer("IN", program, "OUT", out)
				for i, a := range args {
					args[i] = paths.Replace(a)
				}
				run(t, tool, args...)
				if got := contentOf(t, out); got != want {
					t.Errorf("by %s: %v, want %v", tool, got, want)
				}
			}
			debug := filepath.Join(dir, "one.debug")
			run(t, "objcopy", "--only-keep-debug", program, debug)
			for _, name := range []string{debug, filepath.Join(dir, "one.eu-strip.debug")} {
				if got := contentOf(t, name); !got.IsZero() {
					t.Errorf("%s: %v, want none", name, got)
				}
			}
			if other := contentOf(t, compileNumber(t, dir, "two", "2", layout...)); other == want {
				t.Error("two builds have one content")
			}
		})
	}
}

// TestContentOfGoProgram: Go's linker puts section headers into the segment of the code.
// llvm-strip leaves them there beside new ones, so that nothing distinguishes them from code.
func TestContentOfGoProgram(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "prog")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"", "-B gobuildid", "-w", "-compressdwarf=false", "-buildmode=pie", "GOARCH=386"} {
		buildGo(t, program, source, flags)
		want := contentOf(t, program)
		for tool, args := range map[string][]string{"strip": {"-o"}, "eu-strip": {"-o"}} {
			stripped := filepath.Join(dir, tool)
			run(t, tool, append(args, stripped, program)...)
			if got := contentOf(t, stripped); got != want {
				t.Errorf("%s by %s: %v, want %v", flags, tool, got, want)
			}
		}
	}
}

// buildGo has Go's own linker make a program. Flags are the linker's, or a way to build, or an
// architecture.
func buildGo(t *testing.T, program, source, flags string) {
	t.Helper()
	option := "-ldflags=" + flags
	if strings.HasPrefix(flags, "-buildmode=") {
		option = flags
	}
	t.Setenv("CGO_ENABLED", "0")
	t.Setenv("GOARCH", runtime.GOARCH)
	if arch, ok := strings.CutPrefix(flags, "GOARCH="); ok {
		t.Setenv("GOARCH", arch)
		option = "-ldflags="
	}
	run(t, "go", "build", "-o", program, option, source)
}

// TestHeadersHideNoCode writes eight bytes over each place in front of the code, of programs that
// have headers in the segment of the code: none of them has the content of the program. What
// stripping changes leaves less room.
func TestHeadersHideNoCode(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	programs := []string{compileNumber(t, dir, "one", "1", "-Wl,-z,noseparate-code")}
	for _, flags := range []string{"", "-buildmode=pie"} {
		program := filepath.Join(dir, "go"+flags)
		buildGo(t, program, source, flags)
		programs = append(programs, program)
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) { writeOverHeaders(t, program) })
	}
}

// writeOverHeaders writes over the first page of a program, as far as it is in the segment of the code.
func writeOverHeaders(t *testing.T, program string) {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	first := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD })
	if load := f.Progs[first]; load.Off != 0 || load.Flags&elf.PF_X == 0 {
		t.Fatalf("the first segment is %+v", load.ProgHeader)
	}
	contentOf := func() buildid.Content {
		c, err := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		if err != nil {
			return buildid.Content{} // of no file that runs
		}
		return c
	}
	want := contentOf()
	const code = "\x90\x48\x31\xc0\x0f\x05\xeb\x38"
	end := int(min(f.Progs[first].Filesz, 0x1000)) - len(code)
	for at := 16; at <= end; at += 3 { // each byte is written, at each alignment
		old := [len(code)]byte(b[at:])
		copy(b[at:], code)
		if contentOf() == want {
			t.Errorf("code at %#x does not count", at)
		}
		copy(b[at:], old[:])
	}
}

// TestCodeThatPassesForHeaders has programs that are nothing but code in a table of section
// headers, as their headers say: they have different contents.
func TestCodeThatPassesForHeaders(t *testing.T) {
	const base, at = 0x400000, 64 + 56
	of := func(code string, sections uint16) buildid.Content {
		b := make([]byte, 4096)
		copy(b, "\x7fELF\x02\x01\x01")
		le := binary.LittleEndian
		for i, v := range []uint16{2, 62, 1} { // ET_EXEC, EM_X86_64
			le.PutUint16(b[16+2*i:], v)
		}
		for i, v := range []uint64{base + at, 64, at} { // e_entry, e_phoff, e_shoff
			le.PutUint64(b[24+8*i:], v)
		}
		for i, v := range []uint16{64, 56, 1, 64, sections, 0} {
			le.PutUint16(b[52+2*i:], v)
		}
		le.PutUint64(b[64:], 1|5<<32) // PT_LOAD, PF_R and PF_X
		for i, v := range []uint64{0, base, base, 4096, 4096, 4096} {
			le.PutUint64(b[72+8*i:], v)
		}
		copy(b[at:], code)
		c, err := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		if err != nil || c.IsZero() {
			t.Fatal(c, err)
		}
		return c
	}
	for _, sections := range []uint16{1, 2, 62} {
		for _, at := range []int{0, 16, 64, 80, 96, 127} {
			hidden := strings.Repeat("\x00", at)
			if of(hidden+"\x90", sections) == of(hidden+"\xcc", sections) {
				t.Errorf("%d headers: code at %#x does not count", sections, at)
			}
		}
	}
}

// TestContentOfFileWithoutCode wants all bytes to count where there is no code.
func TestContentOfFileWithoutCode(t *testing.T) {
	read := func(b string) buildid.Content {
		c, err := buildid.ReadContent(t.Context(), strings.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	long := strings.Repeat("text ", 1<<20)
	if a, b := read(long), read(long[:len(long)/2]+"T"+long[len(long)/2+1:]); a == b || a.IsZero() {
		t.Errorf("%v and %v", a, b)
	}
	if read("") == read("\x00") {
		t.Error("an empty file and a byte have one content")
	}
}

// TestContentIsRead wants each byte of the code to count, and no other but the headers'.
func TestContentIsRead(t *testing.T) {
	b, err := os.ReadFile(compileNumber(t, t.TempDir(), "one", "1"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(b []byte) buildid.Content {
		c, err := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	want := of(b)
	for at := 0; at < len(b); at += 7 {
		isCode := false
		for _, p := range f.Progs {
			isCode = isCode || p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && uint64(at) >= p.Off && uint64(at) < p.Off+p.Filesz
		}
		if !isCode && (at < 0x1000 || at > len(b)-0x2000) {
			continue // headers
		}
		b[at] ^= 0x80
		if got := of(b); (got != want) != isCode {
			t.Fatalf("byte %#x (code: %v): %v, was %v", at, isCode, got, want)
		}
		b[at] ^= 0x80
	}
}

// TestContentErrors wants an error for what cannot be read whole.
func TestContentErrors(t *testing.T) {
	b, err := os.ReadFile(compileNumber(t, t.TempDir(), "one", "1"))
	if err != nil {
		t.Fatal(err)
	}
	cut := b[:0x1080]
	var damage *buildid.FormatError
	if c, err := buildid.ReadContent(t.Context(), bytes.NewReader(cut)); !errors.As(err, &damage) || !c.IsZero() {
		t.Errorf("a file that is cut off: %v, %v", c, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := buildid.ReadContent(stopped, bytes.NewReader(b)); !errors.Is(err, context.Canceled) || !c.IsZero() {
		t.Errorf("after the end: %v, %v", c, err)
	}
	if c, err := buildid.ReadContent(t.Context(), struct{ io.ReaderAt }{strings.NewReader("text")}); err == nil || !c.IsZero() {
		t.Errorf("text of unknown size: %v, %v", c, err)
	}
	huge := io.NewSectionReader(zeros{}, 0, 1<<40)
	if c, err := buildid.ReadContent(t.Context(), huge); !errors.Is(err, buildid.ErrTooLarge) || !c.IsZero() {
		t.Errorf("a file of 1 TiB: %v, %v", c, err)
	}
}

// zeros is a file without an end.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

// TestReadTellsContentsApart has two builds without build ID that differ in one word in the
// middle, and what is left of them when they are stripped.
func TestReadTellsContentsApart(t *testing.T) {
	read := func(name string) buildid.Info {
		info, err := buildid.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	var builds []buildid.Info
	for _, number := range []string{"1", "2"} {
		dir := t.TempDir()
		program := compileNumber(t, dir, "prog", number, "-g0", "-Wl,--build-id=none")
		info := read(program)
		if info.ID.Kind() != buildid.ByContent || info.ID.Content() != contentOf(t, program) {
			t.Errorf("%+v", info)
		}
		run(t, "strip", "-o", program+".stripped", program)
		if stripped := read(program + ".stripped"); stripped.ID != info.ID {
			t.Errorf("%v, stripped %v", info.ID, stripped.ID)
		}
		builds = append(builds, info)
	}
	if builds[0].Also != builds[1].Also {
		t.Errorf("head, tail or length differ: %v", builds)
	}
	if builds[0].ID == builds[1].ID {
		t.Errorf("two builds have the identity %v", builds[0].ID)
	}
}

// TestBudget wants files that are too large for what is left to be no error, and to leave
// it to others.
func TestBudget(t *testing.T) {
	ctx := buildid.WithBudget(t.Context(), buildid.Budget{Bytes: 1000})
	for _, file := range []struct {
		size  int64
		where buildid.Where
	}{
		{600, buildid.Hashed}, {600, buildid.OverBudget}, {0, buildid.Hashed}, {400, buildid.Hashed}, {1, buildid.OverBudget},
		{1<<30 + 1, buildid.TooLarge}, // which comes first
	} {
		info, err := buildid.ReadContext(ctx, io.NewSectionReader(zeros{}, 0, file.size))
		if err != nil || info.Where != file.where || info.ID.IsZero() == (file.where == buildid.Hashed) {
			t.Errorf("%d bytes: %+v, %v", file.size, info, err)
		}
	}
	if _, err := buildid.ReadContent(ctx, strings.NewReader("x")); !errors.Is(err, buildid.ErrBudget) {
		t.Error(err)
	}
	ctx = buildid.WithBudget(t.Context(), buildid.Budget{Bytes: 1000, Second: 1 << 62})
	for range 3 {
		if info, err := buildid.ReadContext(ctx, io.NewSectionReader(zeros{}, 0, 1000)); err != nil || info.Where != buildid.Hashed {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

// restless is a file that changes while it is read.
type restless struct{ *os.File }

func (r restless) ReadAt(b []byte, at int64) (int, error) {
	if at >= 1<<20 {
		if err := os.Chtimes(r.Name(), time.Time{}, time.Unix(1, 0)); err != nil {
			return 0, err
		}
	}
	return r.File.ReadAt(b, at)
}

// TestContentOfChangingFile wants no content of a file that somebody changes.
func TestContentOfChangingFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(3 << 20); err != nil {
		t.Fatal(err)
	}
	if c, err := buildid.ReadContent(t.Context(), restless{f}); !errors.Is(err, buildid.ErrChanging) || !c.IsZero() {
		t.Errorf("%v, %v", c, err)
	}
	if info, err := buildid.Read(restless{f}); err != nil && !errors.Is(err, buildid.ErrChanging) {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestReadStops wants hashing to end with its context, whatever door the file is read by.
func TestReadStops(t *testing.T) {
	name := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(name, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if info, err := buildid.ReadFileContext(ctx, name); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", info, err)
	}
	for e := range buildid.ScanContext(ctx, filepath.Dir(name)) {
		t.Errorf("%+v", e)
	}
}

func TestContentText(t *testing.T) {
	c, err := buildid.ReadContent(t.Context(), strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := buildid.ParseContent(c.String()); err != nil || got != c {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := buildid.Parse(c.ID().String()); err != nil || got != c.ID() || got.Content() != c || got.Kind() != buildid.ByContent {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "00", c.String() + "00", "x" + c.String()[1:]} {
		if got, err := buildid.ParseContent(bad); err == nil || !got.IsZero() {
			t.Errorf("%q is %v", bad, got)
		}
	}
	if !(buildid.Content{}).ID().IsZero() || (buildid.Content{}).String() != "" {
		t.Error("unknown content has a name")
	}
}

func FuzzContent(f *testing.F) {
	for _, c := range append(cases, damaged...) {
		for _, form := range forms {
			f.Add(c.build(form))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		one, err := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		two, again := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		if one != two || (err == nil) != (again == nil) || err != nil && !one.IsZero() {
			t.Errorf("%v, %v, then %v, %v", one, err, two, again)
		}
	})
}

// TestContentHasTheHeader has section headers that claim to be in the ELF header: they hide
// nothing of what that says.
func TestContentHasTheHeader(t *testing.T) {
	b, err := os.ReadFile(compileNumber(t, t.TempDir(), "one", "1", "-Wl,-z,noseparate-code"))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b[40:], 16) // e_shoff
	binary.LittleEndian.PutUint16(b[60:], 1)  // e_shnum
	read := func() buildid.Content {
		c, err := buildid.ReadContent(t.Context(), bytes.NewReader(b))
		if err != nil || c.IsZero() {
			t.Fatal(c, err)
		}
		return c
	}
	before := read()
	b[24] ^= 1 // e_entry
	if read() == before {
		t.Error("programs that begin elsewhere have one content")
	}
}

// hideCode gives each section of code the type of one that has no bytes in the file, as a debug
// file has it. The loader does not look at sections.
func hideCode(t *testing.T, b []byte) []byte {
	t.Helper()
	b = bytes.Clone(b)
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	at := binary.LittleEndian.Uint64(b[40:]) // e_shoff
	for i, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 {
			binary.LittleEndian.PutUint32(b[at+uint64(i)*64+4:], uint32(elf.SHT_NOBITS))
		}
	}
	return b
}

// TestContentOfMappedFile wants files that were executed to have a content whatever their
// sections say, and that of the same code.
func TestContentOfMappedFile(t *testing.T) {
	dir := t.TempDir()
	program := compileNumber(t, dir, "one", "1")
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	hidden := hideCode(t, b)
	if c, err := buildid.ReadContent(t.Context(), bytes.NewReader(hidden)); err != nil || !c.IsZero() {
		t.Fatalf("it is no debug file: %v, %v", c, err)
	}
	if c, err := buildid.ReadMapped(t.Context(), bytes.NewReader(hidden)); err != nil || c != contentOf(t, program) {
		t.Errorf("%v, %v, want %v", c, err, contentOf(t, program))
	}
	debug := filepath.Join(dir, "one.debug")
	run(t, "objcopy", "--only-keep-debug", program, debug)
	if b, err = os.ReadFile(debug); err != nil {
		t.Fatal(err)
	}
	if c, err := buildid.ReadMapped(t.Context(), bytes.NewReader(b)); err != nil || c.IsZero() {
		t.Errorf("a debug file that was mapped: %v, %v", c, err)
	}
}

// reading counts the bytes that are read of a file.
type reading struct {
	*bytes.Reader
	n *atomic.Int64
}

func (r reading) ReadAt(b []byte, at int64) (int, error) {
	n, err := r.Reader.ReadAt(b, at)
	r.n.Add(int64(n))
	return n, err
}

// TestContentOfOverlaps has segments of code that show the same bytes: they are no content, and
// no more is read than the file has.
func TestContentOfOverlaps(t *testing.T) {
	const size, header, entry = 4 << 20, 64, 56
	of := func(segments ...[2]uint64) (buildid.Content, int64, error) {
		b := make([]byte, size)
		copy(b, "\x7fELF\x02\x01\x01")
		put := binary.LittleEndian
		put.PutUint16(b[16:], uint16(elf.ET_EXEC))
		put.PutUint16(b[18:], uint16(elf.EM_X86_64))
		put.PutUint32(b[20:], 1)
		put.PutUint64(b[32:], header)
		put.PutUint16(b[52:], header)
		put.PutUint16(b[54:], entry)
		put.PutUint16(b[56:], uint16(len(segments)))
		for i, s := range segments {
			p := b[header+i*entry:]
			put.PutUint32(p, uint32(elf.PT_LOAD))
			put.PutUint32(p[4:], uint32(elf.PF_R|elf.PF_X))
			put.PutUint64(p[8:], s[0])
			put.PutUint64(p[16:], uint64(i+1)*size)
			put.PutUint64(p[32:], s[1])
			put.PutUint64(p[40:], s[1])
		}
		n := new(atomic.Int64)
		c, err := buildid.ReadContent(t.Context(), reading{bytes.NewReader(b), n})
		return c, n.Load(), err
	}
	if c, _, err := of([2]uint64{0, size / 2}, [2]uint64{size / 2, size / 2}); err != nil || c.IsZero() {
		t.Errorf("segments beside each other: %v, %v", c, err)
	}
	if c, _, err := of([2]uint64{0, 0x2000}, [2]uint64{0x1000, 0x2000}); err != nil || c.IsZero() {
		t.Errorf("segments that share a page: %v, %v", c, err)
	}
	var damage *buildid.FormatError
	all := slices.Repeat([][2]uint64{{0, size}}, 255)
	for name, segments := range map[string][][2]uint64{
		"the same bytes":          all,
		"one behind the file too": append(all[:254:254], [2]uint64{1 << 29, 1 << 29}),
	} {
		if c, read, err := of(segments...); !errors.As(err, &damage) || !c.IsZero() || read > size {
			t.Errorf("%s: %v, %v, %d bytes were read", name, c, err, read)
		}
	}
}
