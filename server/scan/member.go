package scan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/server/packages"
	"hallmark/server/store"
)

// memberOf reads what a file says of itself. It has no identity where it claims none.
func memberOf(r io.ReaderAt) (member, error) {
	info, err := buildid.ReadClaim(r)
	if info.ID.IsZero() {
		return member{}, err
	}
	m := member{ID: info.ID}
	facts, err := store.Headers(r, "the file")
	m.Executable, m.Debug, m.Segments, m.Machine = facts.Executable, facts.Debug, facts.Segments, facts.Machine
	return m, err
}

// Sizes of what is read of a member of a package: notes and segments are in its first pages, most often, and section
// headers with their names at its end.
const (
	headSize = 64 << 10
	tailSize = 1 << 20
)

// maxClaim is how much of a member is kept on the disk for what is elsewhere.
const maxClaim = 1 << 30

// looking looks at the members of a package, one after another.
type looking struct {
	buffer []byte // of the first bytes of a member, and the last ones
}

// ends are the first and the last bytes of a file.
type ends struct {
	head, tail []byte
	size       int64
}

// errInside says that something is neither in the first nor in the last bytes.
var errInside = errors.New("it is inside of the file")

// ReadAt implements io.ReaderAt.
func (e *ends) ReadAt(p []byte, off int64) (int, error) {
	from := e.head
	if at := e.size - int64(len(e.tail)); off >= at {
		from, off = e.tail, off-at
	} else if off < 0 || off+int64(len(p)) > int64(len(from)) {
		return 0, errInside
	}
	if off > int64(len(from)) {
		return 0, io.EOF
	}
	n := copy(p, from[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// look reads what a member of a package says of itself, which has no identity where it is not ELF or claims none.
func (l *looking) look(m packages.Member) (member, error) {
	if l.buffer == nil {
		l.buffer = make([]byte, headSize+tailSize)
	}
	head, err := l.read(m, 0, min(headSize, m.Size))
	if err != nil || !isELF(head) {
		return member{}, err
	}
	if m.Size <= headSize+tailSize {
		rest, err := l.read(m, len(head), m.Size-int64(len(head)))
		if err != nil {
			return member{}, err
		}
		return harmless(memberOf(bytes.NewReader(l.buffer[:len(head)+len(rest)])))
	}
	// Where the head has a GNU note, the whole file has it, too: it is looked for there first.
	if info, err := buildid.ReadClaim(bytes.NewReader(head)); err != nil || info.ID.Kind() != buildid.GNU || sectionsAt(head) < m.Size-tailSize {
		return lookInto(m, head)
	}
	if _, err := io.CopyN(io.Discard, m, m.Size-headSize-tailSize); err != nil {
		return member{}, err
	}
	tail, err := l.read(m, headSize, tailSize)
	if err != nil {
		return member{}, err
	}
	return harmless(memberOf(&ends{head, tail, m.Size}))
}

// read reads a part of a member into the buffer, and less where it ends before.
func (l *looking) read(m packages.Member, at int, n int64) ([]byte, error) {
	b := l.buffer[at : at+int(n)]
	got, err := io.ReadFull(m, b)
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = nil
	}
	return b[:got], err
}

// sectionsAt returns where a file has its section headers (e_shoff of the ELF header), 0 where it has none.
func sectionsAt(head []byte) int64 {
	var order binary.ByteOrder = binary.LittleEndian
	if head[5] == 2 {
		order = binary.BigEndian
	}
	if head[4] == 2 {
		return int64(order.Uint64(head[40:]))
	}
	return int64(order.Uint32(head[32:]))
}

// lookInto looks at all of a member, of which the head was read.
func lookInto(m packages.Member, head []byte) (member, error) {
	if m.Size > maxClaim {
		return member{}, nil
	}
	whole, err := atomicfile.Scratch()
	if err != nil {
		return member{}, err
	}
	defer whole.Close()
	if _, err := io.Copy(whole, io.MultiReader(bytes.NewReader(head), m)); err != nil {
		return member{}, err
	}
	return harmless(memberOf(whole))
}

// harmless takes an error away that says that a member is damaged: the others are not.
func harmless(m member, err error) (member, error) {
	var format *store.FormatError
	if errors.Is(err, buildid.ErrFormat) || errors.As(err, &format) || errors.Is(err, errInside) {
		err = nil
	}
	return m, err
}
