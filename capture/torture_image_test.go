package capture

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/elftest"
	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
)

// image is a file whose code runs at one place that no other image has: an identity
// and an offset that are not of the same image are wrong.
type image struct {
	path     string
	id       buildid.ID
	content  buildid.ID // of the same file, where another one claims id; zero if it is not known
	from, to uint64     // file offsets of the code that runs
	pages    uint64     // file offset of the pages that it is in
	mark     uint64     // at markAt in the file
	made     unix.Stat_t
}

// has reports whether the image's code is run at an offset. In the slots of others is
// the way to its own; but where they have their loops, nothing stays long enough for a
// sample to be anything but theirs.
func (i *image) has(offset uint64) bool {
	if i.from <= offset && offset < i.to {
		return true
	}
	at := (offset - i.pages) % slotSize
	return i.pages > 0 && offset-i.pages < textSize && (at < 3 || at > 8)
}

// form says what an image is like. The zero value is a library with a build ID of
// 20 bytes in its first page.
type form struct {
	class32 bool
	idSize  int // bytes; negative for none
	// Where the note is: behind the headers; or at an offset; and not where the
	// process maps it; and not in a segment of its own.
	noteAt     uint64
	noteApart  bool
	noteHidden bool
	textAt     uint64 // 0x1000 if zero
	moreText   bool   // another executable segment before that with the code
	program    bool   // runs by itself, for as many rounds
	rounds     uint32 // 70 million, some ten milliseconds, if zero
	status     byte   // with which a 64-bit program ends
	dir        string // the test's if empty
}

// maker makes images.
type maker struct {
	t    testing.TB
	dir  string
	made int
}

const (
	slotSize  = 64
	slots     = 64
	textSize  = slots * slotSize
	imageSize = 1 << 16 // all are of one size, to be the same in this as well
	base      = 0x400000
	markAt    = 0x400
)

// image makes a file of a form.
func (m *maker) image(f form) *image {
	m.t.Helper()
	m.made++
	if f.textAt == 0 {
		f.textAt = 0x1000
	}
	if f.idSize == 0 {
		f.idSize = 20
	}
	if f.dir == "" {
		f.dir = m.dir
	}
	slot := uint64(m.made % slots)
	i := &image{path: filepath.Join(f.dir, fmt.Sprintf("image-%d-%d", m.made, os.Getpid())), pages: f.textAt}
	i.from = f.textAt + slot*slotSize
	i.to = i.from + slotSize
	unique := sha256.Sum256(fmt.Appendf(nil, "image %d of process %d", m.made, os.Getpid()))
	if err := f.write(i, unique[:]); err != nil {
		m.t.Fatal(err)
	}
	i.id, i.mark = f.identity(m.t, i.path, unique[:]), binary.NativeEndian.Uint64(unique[:])
	if st, err := os.Stat(i.path); err == nil && st.Size() < 1<<20 {
		i.content = ownContent(m.t, i.path)
	}
	if err := unix.Stat(i.path, &i.made); err != nil {
		m.t.Fatal(err)
	}
	time.Sleep(fstimes.Delay() * 5 / 4) // what was just written may have no identity yet
	return i
}

// identity is what the image was made with.
func (f form) identity(t testing.TB, path string, unique []byte) buildid.ID {
	t.Helper()
	if f.idSize < 0 {
		return ownContent(t, path)
	}
	id, err := buildid.New(buildid.GNU, f.noteContent(unique))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (f form) noteContent(unique []byte) []byte {
	var b []byte
	for len(b) < f.idSize {
		b = append(b, unique...)
	}
	return b[:f.idSize]
}

// ownContent is the content of a file as the documentation of buildid.Content says it. No
// segment of the images has more than a piece.
func ownContent(t testing.TB, path string) buildid.ID {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var segments, sums []byte
	n := uint64(0)
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 {
			continue
		}
		n++
		for _, v := range []uint64{p.Off, p.Vaddr, p.Filesz, p.Memsz} {
			segments = binary.LittleEndian.AppendUint64(segments, v)
		}
		sum := sha256.Sum256(b[p.Off : p.Off+p.Filesz])
		sums = append(sums, sum[:]...)
	}
	all := []byte("hallmark content 2\n")
	for _, v := range []uint64{uint64(f.Class), uint64(f.Data), uint64(f.Machine), n} {
		all = binary.LittleEndian.AppendUint64(all, v)
	}
	sum := sha256.Sum256(slices.Concat(all, segments, sums))
	id, err := buildid.New(buildid.ByContent, sum[:buildid.ContentSize])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (f form) write(i *image, unique []byte) error {
	file, err := os.OpenFile(i.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.headers(i, unique).Build()); err != nil {
		return err
	}
	if _, err := file.WriteAt(f.text(i, unique), int64(f.textAt)); err != nil {
		return err
	}
	if err := file.Truncate(int64(max(imageSize, f.textAt+textSize))); err != nil {
		return err
	}
	return file.Close()
}

// headers describes all of the file but its code.
func (f form) headers(i *image, unique []byte) elftest.File {
	e := elftest.File{
		Sections: []elftest.Section{{Name: ".unique", Type: elf.SHT_PROGBITS, Align: 16, Offset: markAt, Data: unique}},
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Flags: elf.PF_R, Vaddr: base, Size: 0x1000, Align: 0x1000},
			{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Offset: f.textAt, Vaddr: base + f.textAt, Size: textSize, Align: 0x1000},
		},
	}
	if f.class32 {
		e.Class, e.Machine = elf.ELFCLASS32, elf.EM_386
	}
	if f.program {
		e.Type, e.Entry = elf.ET_EXEC, base+i.from
	}
	if f.moreText {
		e.Segments = append(e.Segments[:1], elftest.Segment{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Offset: 0x1000, Vaddr: base + 0x1000, Size: 0x1000, Align: 0x1000}, e.Segments[1])
	}
	if f.idSize > 0 {
		f.addNote(&e, unique)
	}
	return e
}

func (f form) addNote(e *elftest.File, unique []byte) {
	note := elftest.NoteSection(".note.gnu.build-id", base+f.noteAt, 4, elftest.Notes(nil, 4, elftest.GNU(f.noteContent(unique))))
	note.Offset = f.noteAt
	if f.noteAt == 0 {
		note.Offset, note.Addr = 0x600, base+0x600
	}
	e.Sections = append(e.Sections, note)
	if !f.noteHidden {
		e.Segments = append(e.Segments, elftest.Segment{Type: elf.PT_NOTE, Flags: elf.PF_R, From: note.Name, Align: 4})
	}
	if f.noteAt > 0 && !f.noteApart {
		e.Segments[0].Size = 0x1000 + f.noteAt // up to the code, which is behind it
	}
}

// text is the code. In the slots of all other images it goes to the slot of this
// one, so that a file that is overwritten while its code runs goes on with the new
// content where the new content's code is.
//
// Files without a build ID are distinguished by their code alone: theirs has something unique
// behind the end, where nothing runs.
func (f form) text(i *image, unique []byte) []byte {
	text := make([]byte, textSize)
	for at := range text {
		text[at] = 0x90 // nop
	}
	for slot := slotSize; slot <= textSize; slot += slotSize {
		text[slot-5] = 0xe9 // jmp
		binary.LittleEndian.PutUint32(text[slot-4:], uint32(int(i.from-f.textAt)-slot))
	}
	n := copy(text[i.from-f.textAt:], f.code())
	if f.idSize < 0 {
		copy(text[i.from-f.textAt+uint64(n):], unique)
	}
	return text
}

func (f form) code() []byte {
	rounds := binary.LittleEndian.AppendUint32(nil, cmp.Or(f.rounds, 70_000_000))
	switch {
	case f.program && f.class32:
		return slices.Concat([]byte{0xb9}, rounds, untilExit32) // mov rounds,%ecx
	case f.program:
		code := slices.Concat([]byte{0xbf}, rounds, untilExit64) // mov rounds,%edi
		code[exitStatus64] = f.status
		return code
	}
	return function
}

// exitStatus64 is where the status is in the code of a program.
const exitStatus64 = 5 + 3 + 2 + 5 + 1

var (
	// function counts %rdi down. A process may run it while it is written over nops, or nops over
	// it: from whatever byte it goes on, it returns. (The second bytes of dec and of a jump back by
	// five are enter and sti, which end the process.)
	function = []byte{
		0x48, 0x89, 0xf9, // mov %rdi,%rcx
		0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // nop
		0xe2, 0xf8, // loop to the first nop
		0xc3, // ret
	}
	untilExit64 = []byte{
		0x48, 0xff, 0xcf, // dec %rdi
		0x75, 0xfb, // jnz to dec
		0xb8, 60, 0, 0, 0, // mov 60,%eax: exit
		0xbf, 0, 0, 0, 0, // mov 0,%edi
		0x0f, 0x05, // syscall
	}
	untilExit32 = []byte{
		0x49,       // dec %ecx
		0x75, 0xfd, // jnz to dec
		0xb8, 1, 0, 0, 0, // mov 1,%eax: exit
		0x31, 0xdb, // xor %ebx,%ebx
		0xcd, 0x80, // int 0x80
	}
)

// built takes a file that another linker made, whose function burn may run anywhere.
func (m *maker) built(path string, id buildid.ID) *image {
	time.Sleep(fstimes.Delay() * 5 / 4) // see image
	return &image{path: path, id: id, to: math.MaxUint64}
}

// buildLibrary builds busy.c as a library.
func (m *maker) buildLibrary(flags ...string) *image {
	path := proctest.BuildC(m.t, append([]string{"-shared", "-fPIC", "-nostartfiles"}, flags...)...)
	i := m.built(path, proctest.FileID(m.t, path))
	file, err := elf.Open(path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		m.t.Fatal(err)
	}
	text := file.Section(".text")
	for _, s := range symbols {
		if s.Name == "burn" {
			i.from = s.Value - text.Addr + text.Offset
			i.to = i.from + s.Size
		}
	}
	return i
}

// buildHost builds testdata/host.c.
func buildHost(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "host")
	proctest.Compile(t, "gcc", out, "-O1", "-fno-omit-frame-pointer", "-pthread", "testdata/host.c")
	return out
}

// copyFile copies a file to a new one.
func copyFile(t testing.TB, dst, src string) {
	t.Helper()
	in, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}
