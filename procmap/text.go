package procmap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"hallmark/addr"
)

// maxLine bounds a line of text. The kernel limits a path to 4 KiB for whoever
// looks it up, not for whoever builds it directory by directory.
const maxLine = 1 << 20

// A TextError is a line that is not one of /proc/PID/maps.
type TextError struct {
	Line int    // number of the line, from 1
	Text string // the line, or its first bytes
	Msg  string // what is wrong with it
}

// Error returns the complaint with the line's number and text.
func (e *TextError) Error() string {
	return fmt.Sprintf("line %d: %s in %.80q", e.Line, e.Msg, e.Text)
}

// ParseLine reads a line in the form of /proc/PID/maps, without its newline. Its
// error is a *TextError.
func ParseLine(line []byte) (VMA, error) {
	f := fields{rest: line}
	start, end := f.span()
	v := VMA{
		Start:  start,
		End:    end,
		Perm:   f.perm(),
		Offset: addr.Offset(f.hex(' ')),
		Dev:    f.dev(),
		Inode:  f.decimal(' '),
	}
	if f.msg != "" {
		return VMA{}, f.err(line)
	}
	v.Name = string(unescape(bytes.TrimLeft(f.rest, " ")))
	return v, nil
}

// parseRange reads the addresses at the start of a line.
func parseRange(line []byte) (start, end addr.Abs, err error) {
	f := fields{rest: line}
	start, end = f.span()
	if f.msg != "" {
		err = f.err(line)
	}
	return start, end, err
}

// unescape turns \012, the only escape that the kernel writes there, into a newline.
func unescape(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name
	}
	return bytes.ReplaceAll(name, []byte(`\012`), []byte("\n"))
}

// fields takes a line apart and remembers the first thing that is wrong.
type fields struct {
	rest []byte
	msg  string
}

// err returns the complaint about the line.
func (f *fields) err(line []byte) error {
	return &TextError{Line: 1, Text: string(line[:min(len(line), 200)]), Msg: f.msg}
}

// span reads a range of addresses, which is not empty.
func (f *fields) span() (start, end addr.Abs) {
	start, end = addr.Abs(f.hex('-')), addr.Abs(f.hex(' '))
	if start >= end {
		f.fail("empty address range")
	}
	return start, end
}

func (f *fields) hex(end byte) uint64     { return f.number(16, end) }
func (f *fields) decimal(end byte) uint64 { return f.number(10, end) }

// number reads an unsigned number of base 10 or 16 and the byte that ends it.
func (f *fields) number(base uint64, end byte) uint64 {
	var n uint64
	for i, c := range f.rest {
		d := digit(c)
		switch {
		case c == end && i > 0:
			f.rest = f.rest[i+1:]
			return n
		case d >= base:
			f.fail("unexpected character")
			return 0
		case n > (1<<64-1-d)/base:
			f.fail("number too large")
			return 0
		}
		n = n*base + d
	}
	f.fail("line too short")
	return 0
}

// digit returns the value of a hexadecimal digit in lower case, or 16.
func digit(c byte) uint64 {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0')
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10
	default:
		return 16
	}
}

// perm reads the four letters of the permissions and the blank after them.
func (f *fields) perm() Perm {
	if len(f.rest) < 5 || f.rest[4] != ' ' {
		f.fail("bad permissions")
		return 0
	}
	letters := f.rest[:4]
	f.rest = f.rest[5:]
	var p Perm
	for i, c := range letters {
		switch c {
		case permLetters[i]:
			p |= 1 << i
		case noPerm[i]:
		default:
			f.fail("bad permissions")
		}
	}
	return p
}

func (f *fields) dev() Dev {
	major, minor := f.hex(':'), f.hex(' ')
	if major > 1<<32-1 || minor > 1<<32-1 {
		f.fail("device number too large")
	}
	return Dev{uint32(major), uint32(minor)}
}

func (f *fields) fail(msg string) {
	if f.msg == "" {
		f.msg = msg
	}
	f.rest = nil
}

// ReadText reads text in the form of /proc/PID/maps, a copy kept in a file for
// instance, and returns its VMAs in order. An error is that of r, or a
// *TextError for the first line that cannot be read; what was read before it is
// returned too.
func ReadText(r io.Reader) ([]VMA, error) {
	var list []VMA
	err := scanText(r, func(line []byte) error {
		v, err := ParseLine(line)
		if err == nil {
			list = appendNewer(list, v)
		}
		return err
	})
	return list, err
}

// errStop ends a scan early, without an error.
var errStop = errors.New("stop")

// scanText calls fn with every line of r. The line is only valid during the call.
func scanText(r io.Reader, fn func(line []byte) error) error {
	// The kernel hands out at most a page at a time, unless one line is longer.
	br := bufio.NewReaderSize(r, 8<<10)
	for n := 1; ; n++ {
		line, err := readLine(br)
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return numbered(err, n)
		}
		if err := fn(line); err != nil {
			return numbered(err, n)
		}
	}
}

// readLine returns the next line without its newline; it is valid until the next
// read. A last line without a newline is returned together with io.EOF.
func readLine(br *bufio.Reader) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		for err == bufio.ErrBufferFull && len(line) < maxLine {
			var more []byte
			more, err = br.ReadSlice('\n')
			line = append(line, more...)
		}
	}
	if err == bufio.ErrBufferFull {
		return nil, &TextError{Text: string(line[:200]), Msg: "line too long"}
	}
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// numbered puts the number of the line into an error about it.
func numbered(err error, line int) error {
	var bad *TextError
	if errors.As(err, &bad) {
		bad.Line = line
	}
	if err == errStop {
		return nil
	}
	return err
}

// appendNewer appends v to a list that is in order. The kernel does not hold a
// process still while its VMAs are read, so v may lie upon what was read just
// before; being the newer truth it wins, and the list stays in order and free of
// overlaps.
func appendNewer(list []VMA, v VMA) []VMA {
	for len(list) > 0 && list[len(list)-1].Start >= v.Start {
		list = list[:len(list)-1]
	}
	if n := len(list); n > 0 && list[n-1].End > v.Start {
		list[n-1].End = v.Start
	}
	return append(list, v)
}

// names has the names of a list, each in one place: many VMAs of a process have the same ones.
type names map[string]string

func (n names) one(name string) string {
	if kept, ok := n[name]; ok {
		return kept
	}
	n[name] = name
	return name
}

// textNext returns the first VMA that ends above a, from the text.
func (p *Process) textNext(a addr.Abs) (VMA, bool, error) {
	if err := p.maps.hold(); err != nil {
		return VMA{}, false, err
	}
	defer p.maps.release()
	return p.textNextHeld(a)
}

// textNextHeld is textNext for whoever holds the maps of p.
func (p *Process) textNextHeld(a addr.Abs) (v VMA, ok bool, err error) {
	err = p.scanHeld(func(line []byte) error {
		w, err := ParseLine(line)
		if err == nil && w.End > a {
			v, ok, err = w, true, errStop
		}
		return err
	})
	return v, ok, err
}

// textList returns all VMAs that pass flags, from the text.
func (p *Process) textList(flags uint64, more func(VMA) bool) ([]VMA, error) {
	var list []VMA
	names := names{}
	err := p.scan(func(line []byte) error {
		v, err := ParseLine(line)
		if err != nil || !v.passes(flags) {
			return err
		}
		v.Name = names.one(v.Name)
		if !more(v) {
			return ErrStopped
		}
		list = appendNewer(list, v)
		return nil
	})
	return list, err
}

// scan calls fn with every line of the text of p.
func (p *Process) scan(fn func(line []byte) error) error {
	if err := p.maps.hold(); err != nil {
		return err
	}
	defer p.maps.release()
	return p.scanHeld(fn)
}

// scanHeld is scan for whoever holds the maps of p.
func (p *Process) scanHeld(fn func(line []byte) error) error {
	if err := p.maps.scanHeld(fn); err != nil {
		return err
	}
	// A text that ends early, because the process exited, ends without an error.
	return p.maps.aliveHeld()
}
