package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unsafe"

	"hallmark/addr"
	"hallmark/debuginfo"
	"hallmark/reason"
	"hallmark/symbol"
)

// lookupPrinter looks up offsets and prints what it finds.
type lookupPrinter struct {
	opt     lookupOptions
	symbols debuginfo.Symbols
	append  func(out []byte, a *lookupAnswer) []byte // in text or JSON
	gaps    gaps

	w      io.Writer
	out    []byte // what is not written yet
	answer lookupAnswer
}

// lookupAnswer is what is known of an offset.
type lookupAnswer struct {
	offset  uint64
	virtual bool // offset is a virtual address
	frames  []symbol.Frame
	source  symbol.Source // of the frames
	reason  reason.Reason // why there are none
}

func newLookupPrinter(w io.Writer, s debuginfo.Symbols, opt lookupOptions) *lookupPrinter {
	p := &lookupPrinter{opt: opt, symbols: s, gaps: gaps{}, w: w, answer: lookupAnswer{virtual: opt.virtual}}
	if opt.json {
		p.append = newFrameCells(jsonFunction, jsonFile).appendJSON
	} else {
		p.append = newFrameCells(textFunction, textFile).appendText
	}
	return p
}

// lookupChunk is how much is read at once, and about how much is written.
const lookupChunk = 64 << 10

var errLongOffset = errors.New("standard input: an offset without an end")

// printAll prints the offsets in r. What was read is answered before more is waited
// for.
func (p *lookupPrinter) printAll(r io.Reader) error {
	buf := make([]byte, 0, lookupChunk)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		rest, wrong := p.printWords(buf[:len(buf)+n], err == io.EOF)
		if wrong == nil {
			wrong = p.flush()
		}
		switch {
		case wrong != nil:
			return wrong
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("standard input: %w", err)
		case len(rest) == cap(buf):
			return errLongOffset
		}
		buf = buf[:copy(buf[:cap(buf)], rest)]
	}
}

// printWords prints the offsets in text, and returns the rest behind the last blank if
// this is not the end.
func (p *lookupPrinter) printWords(text []byte, end bool) (rest []byte, err error) {
	for {
		for len(text) > 0 && isBlank(text[0]) {
			text = text[1:]
		}
		size := 0
		for size < len(text) && !isBlank(text[size]) {
			size++
		}
		if size == 0 || size == len(text) && !end {
			return text, nil
		}
		if err := p.print(text[:size]); err != nil {
			return nil, err
		}
		text = text[size:]
	}
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// print prints what is known of an offset.
func (p *lookupPrinter) print(word []byte) error {
	offset, err := parseOffset(word)
	if err != nil {
		return err
	}
	p.look(offset)
	p.gaps.add(p.answer.reason)
	p.out = p.append(p.out, &p.answer)
	if len(p.out) >= lookupChunk {
		return p.flush()
	}
	return nil
}

// look makes answer that for an offset.
func (p *lookupPrinter) look(offset uint64) {
	a := &p.answer
	a.offset, a.frames, a.reason = offset, a.frames[:0], reason.None
	v, inFile := addr.Virt(offset), true
	if !p.opt.virtual {
		v, inFile = p.symbols.Virt(addr.Offset(offset))
	}
	if inFile {
		a.frames, a.source = p.symbols.AppendFrames(a.frames, v)
	}
	switch {
	case len(a.frames) > 0:
	case p.opt.virtual:
		a.reason = p.symbols.LookupVirt(v).Reason
	default:
		a.reason = p.symbols.LookupOffset(addr.Offset(offset)).Reason
	}
}

func (p *lookupPrinter) flush() error {
	if len(p.out) == 0 {
		return nil
	}
	_, err := p.w.Write(p.out)
	p.out = p.out[:0]
	return err
}

// parseOffset reads a hexadecimal number.
func parseOffset(word []byte) (uint64, error) {
	digits := word
	if len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x' {
		digits = digits[2:]
	}
	n := uint64(0)
	for _, c := range digits {
		d := hexDigit(c)
		if d > 15 || n>>60 != 0 {
			return 0, fmt.Errorf("%q is not a hexadecimal offset", word)
		}
		n = n<<4 | d
	}
	if len(digits) == 0 {
		return 0, fmt.Errorf("%q is not a hexadecimal offset", word)
	}
	return n, nil
}

// hexDigit returns the value of a hexadecimal digit, and more than 15 for others.
func hexDigit(c byte) uint64 {
	if d := c - '0'; d < 10 {
		return uint64(d)
	}
	if d := c | 0x20 - 'a'; d < 6 {
		return uint64(d) + 10
	}
	return 16
}

// frameCells knows how functions and files of frames are printed. The same ones come
// again and again, and names are costly to make readable.
type frameCells struct {
	functions, files           cellsByPlace // of Linkage and of File
	renderFunction, renderFile func(*symbol.Frame) string
}

// cellsByPlace are cells by the first byte of the strings that they are of, which stay
// where they are while a map points to them. Symbols have one copy of each string, so
// this finds it without looking at the text.
type cellsByPlace map[*byte]cell

// cell is how a string of this size is printed: one may start as another does.
type cell struct {
	size int
	text string
}

// maxCells bounds how many functions, and how many files, are remembered.
const maxCells = 1 << 18

func newFrameCells(function, file func(*symbol.Frame) string) *frameCells {
	return &frameCells{cellsByPlace{}, cellsByPlace{}, function, file}
}

func (c *frameCells) function(f *symbol.Frame) string {
	return c.functions.of(f.Linkage, f, c.renderFunction)
}

func (c *frameCells) file(f *symbol.Frame) string {
	return c.files.of(f.File, f, c.renderFile)
}

// of returns the cell of a string, which is made of f if it is new.
func (c cellsByPlace) of(s string, f *symbol.Frame, render func(*symbol.Frame) string) string {
	key := unsafe.StringData(s)
	found, ok := c[key]
	if !ok || found.size != len(s) {
		if len(c) == maxCells {
			clear(c)
		}
		found = cell{len(s), render(f)}
		c[key] = found
	}
	return found.text
}

func textFunction(f *symbol.Frame) string { return printable(f.Readable()) }

func textFile(f *symbol.Frame) string {
	if f.File == "" {
		return "-"
	}
	return printable(f.File)
}

// appendText appends the lines of an answer.
func (c *frameCells) appendText(out []byte, a *lookupAnswer) []byte {
	start := len(out)
	out = strconv.AppendUint(append(out, "0x"...), a.offset, 16)
	width := len(out) - start
	if len(a.frames) == 0 {
		return append(append(append(out, "  ["...), a.reason.Code()...), "]  -\n"...)
	}
	for i := range a.frames {
		for range min(i, 1) * width {
			out = append(out, ' ')
		}
		f := &a.frames[i]
		out = append(append(out, gap...), c.function(f)...)
		out = append(append(out, gap...), c.file(f)...)
		if f.File != "" && f.Line != 0 {
			out = strconv.AppendInt(append(out, ':'), int64(f.Line), 10)
		}
		out = append(out, '\n')
	}
	return out
}

func jsonFunction(f *symbol.Frame) string {
	name := f.Readable()
	cell := `"function":` + jsonString(name)
	if name != f.Linkage {
		cell += `,"linkage":` + jsonString(f.Linkage)
	}
	return cell
}

func jsonFile(f *symbol.Frame) string { return `,"file":` + jsonString(f.File) }

// jsonString returns s as in JSON.
func jsonString(s string) string {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // strings have no errors
	}
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// appendJSON appends an answer as an object on a line.
func (c *frameCells) appendJSON(out []byte, a *lookupAnswer) []byte {
	key := `{"offset":`
	if a.virtual {
		key = `{"virtual":`
	}
	out = strconv.AppendUint(append(out, key...), a.offset, 10)
	if len(a.frames) == 0 {
		return append(append(append(out, `,"reason":"`...), a.reason.Code()...), "\"}\n"...)
	}
	out = append(out, `,"frames":[`...)
	for i := range a.frames {
		if i > 0 {
			out = append(out, ',')
		}
		out = c.appendFrameJSON(append(out, '{'), &a.frames[i])
	}
	return append(append(append(out, `],"source":"`...), a.source.String()...), "\"}\n"...)
}

// appendFrameJSON appends the fields of a frame, in the order that frameRecord has.
func (c *frameCells) appendFrameJSON(out []byte, f *symbol.Frame) []byte {
	out = append(out, c.function(f)...)
	if f.File != "" {
		out = append(out, c.file(f)...)
	}
	if f.Line != 0 {
		out = strconv.AppendInt(append(out, `,"line":`...), int64(f.Line), 10)
	}
	if f.Column != 0 {
		out = strconv.AppendInt(append(out, `,"column":`...), int64(f.Column), 10)
	}
	if f.Symbol != "" {
		out = append(append(out, `,"symbol":`...), jsonString(f.Symbol)...)
	}
	if f.Inlined {
		out = append(out, `,"inlined":true`...)
	}
	return append(out, '}')
}
