// Package lookupprint prints the functions and lines of many offsets, as text or JSON, by several
// goroutines.
package lookupprint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"

	"hallmark/addr"
	"hallmark/cmd/hallmark/internal/advice"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/debuginfo"
	"hallmark/internal/plaintext"
	"hallmark/reason"
	"hallmark/symbol"
)

// Printer looks up offsets and prints what it finds. It must be closed.
type Printer struct {
	w      io.Writer
	Gaps   advice.Gaps
	Found  int            // offsets that have an answer
	pieces []*lookupPiece // for as many as are answered at once, and some that wait

	todo    chan *lookupPiece // nil while nothing was large enough for several goroutines
	workers sync.WaitGroup
}

// piecesEach is how many pieces there are for each processor, so that none waits while
// answers are written.
const piecesEach = 4

// Style says how answers are printed.
type Style struct {
	JSON    bool // one JSON object a line
	Virtual bool // offsets are virtual addresses
}

// NewPrinter returns a printer. different are two files that have the identity and
// different contents, nil for none.
func NewPrinter(w io.Writer, s debuginfo.Symbols, opt Style, different []string) *Printer {
	appendAnswer := newFrameCells(textFunction, textFile).appendText
	if opt.JSON {
		cells := newFrameCells(jsonFunction, jsonFile)
		cells.answerEnd = "}\n"
		if different != nil {
			cells.answerEnd = `,"different_content":[` + jsonString(different[0]) + "," + jsonString(different[1]) + "]}\n"
		}
		appendAnswer = cells.appendJSON
	}
	p := &Printer{w: w, Gaps: advice.Gaps{}}
	for range piecesEach * runtime.GOMAXPROCS(0) {
		p.pieces = append(p.pieces, &lookupPiece{
			symbols: s, append: appendAnswer, gaps: advice.Gaps{},
			answer: lookupAnswer{virtual: opt.Virtual}, done: make(chan struct{}, 1),
		})
	}
	return p
}

// Close ends what the printer started. Symbols are not used any more then.
func (p *Printer) Close() {
	if p.todo != nil {
		close(p.todo)
		p.workers.Wait()
	}
}

// lookupChunk is how much is read at once.
const lookupChunk = 64 << 10

var errLongOffset = errors.New("standard input: an offset without an end")

// PrintAll prints the offsets in r. It answers those that it has read before it waits for more
// for.
func (p *Printer) PrintAll(r io.Reader) error {
	buf := make([]byte, 0, lookupChunk)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		words := buf[:len(buf)+n]
		if err != io.EOF {
			words = words[:lastBlank(words)]
		}
		rest := buf[len(words) : len(buf)+n]
		wrong := p.Print(words)
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

// lastBlank returns where the last blank in text ends, 0 if there is none.
func lastBlank(text []byte) int {
	n := len(text)
	for n > 0 && !isBlank(text[n-1]) {
		n--
	}
	return n
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// Print prints what is known of offsets, which are answered by several goroutines where
// there are many. After an error the printer can only be closed.
func (p *Printer) Print(words []byte) error {
	started := 0
	for ; len(words) > 0; started++ {
		piece := p.pieces[started%len(p.pieces)]
		if started >= len(p.pieces) {
			if err := p.finish(piece); err != nil {
				return err
			}
		}
		size := pieceSize(words)
		piece.words, words = words[:size], words[size:]
		if started == 0 && len(words) == 0 {
			piece.look()
			piece.done <- struct{}{}
		} else {
			p.start(piece)
		}
	}
	for i := max(started-len(p.pieces), 0); i < started; i++ {
		if err := p.finish(p.pieces[i%len(p.pieces)]); err != nil {
			return err
		}
	}
	return nil
}

// pieceSize returns the size of the first piece of words. The answers are some hundred
// times as long in C++.
func pieceSize(words []byte) int {
	n := min(512, len(words))
	for n < len(words) && !isBlank(words[n]) {
		n++
	}
	return n
}

// start lets a goroutine answer a piece.
func (p *Printer) start(piece *lookupPiece) {
	if p.todo == nil {
		p.todo = make(chan *lookupPiece, len(p.pieces))
		for range runtime.GOMAXPROCS(0) {
			p.workers.Go(func() {
				for piece := range p.todo {
					piece.look()
					piece.done <- struct{}{}
				}
			})
		}
	}
	p.todo <- piece
}

// finish waits for the answers of a piece and writes them.
func (p *Printer) finish(piece *lookupPiece) error {
	<-piece.done
	for {
		if _, err := p.w.Write(piece.out); err != nil {
			return err
		}
		piece.out = piece.out[:0]
		if piece.err != nil {
			return piece.err
		}
		if len(piece.words) == 0 {
			break
		}
		piece.look()
	}
	for r, n := range piece.gaps {
		p.Gaps[r] += n
	}
	clear(piece.gaps)
	p.Found, piece.found = p.Found+piece.found, 0
	return nil
}

// lookupPiece is offsets that are answered one after another.
type lookupPiece struct {
	symbols debuginfo.Symbols
	append  func(out []byte, a *lookupAnswer) []byte // in text or JSON
	words   []byte                                   // what is not answered yet
	out     []byte                                   // the answers
	err     error
	gaps    advice.Gaps
	found   int
	answer  lookupAnswer
	done    chan struct{} // has something once there are answers
}

// lookupAnswer is what is known of an offset.
type lookupAnswer struct {
	offset  uint64
	virtual bool // offset is a virtual address
	frames  []symbol.Frame
	source  symbol.Source // of the frames
	reason  reason.Reason // why there are none
}

// maxPieceOut bounds the answers that are not written yet, but for the last one.
const maxPieceOut = 256 << 10

// look answers offsets until there are none, or many answers.
func (p *lookupPiece) look() {
	for len(p.out) < maxPieceOut {
		word := p.word()
		if len(word) == 0 {
			return
		}
		offset, err := ParseOffset(word)
		if err != nil {
			p.err = err
			return
		}
		p.lookAt(offset)
		p.gaps.Add(p.answer.reason)
		p.found += min(1, len(p.answer.frames))
		p.out = p.append(p.out, &p.answer)
	}
}

// word takes the next word, nothing if there is none.
func (p *lookupPiece) word() []byte {
	text := p.words
	for len(text) > 0 && isBlank(text[0]) {
		text = text[1:]
	}
	size := 0
	for size < len(text) && !isBlank(text[size]) {
		size++
	}
	p.words = text[size:]
	return text[:size]
}

// lookAt makes answer that for an offset.
func (p *lookupPiece) lookAt(offset uint64) {
	a := &p.answer
	a.offset, a.frames, a.reason = offset, a.frames[:0], reason.None
	v, inFile := addr.Virt(offset), true
	if !a.virtual {
		v, inFile = p.symbols.Virt(addr.Offset(offset))
	}
	if inFile {
		a.frames, a.source = p.symbols.AppendFrames(a.frames, v)
	}
	switch {
	case len(a.frames) > 0:
	case a.virtual:
		a.reason = p.symbols.LookupVirt(v).Reason
	default:
		a.reason = p.symbols.LookupOffset(addr.Offset(offset)).Reason
	}
}

// ParseOffset reads a hexadecimal number.
func ParseOffset(word []byte) (uint64, error) {
	digits := word
	if len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x' {
		digits = digits[2:]
	}
	n := uint64(0)
	for _, c := range digits {
		d := hexDigit(c)
		switch {
		case d > 15:
			return 0, fmt.Errorf("%q is not a hexadecimal offset", word)
		case n>>60 != 0:
			return 0, fmt.Errorf("%q is beyond 64 bits", word)
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

func textFunction(f *symbol.Frame) string { return cmp.Or(plaintext.Quote(f.Readable()), NoFunction) }

// NoFunction stands for the function where only the line is known.
var NoFunction = "[" + reason.NoSymbol.Code() + "]"

func textFile(f *symbol.Frame) string {
	if f.File == "" {
		return "-"
	}
	return plaintext.Name(f.File)
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
		out = append(append(out, terminal.Gap...), c.function(f)...)
		out = append(append(out, terminal.Gap...), c.file(f)...)
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

func jsonFile(f *symbol.Frame) string { return `,"source_file":` + jsonString(f.File) }

// jsonString returns s as in JSON.
func jsonString(s string) string {
	var text bytes.Buffer
	enc := json.NewEncoder(plaintext.JSON(&text))
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // strings have no errors
	}
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// appendJSON appends an answer as an object on a line.
func (c *frameCells) appendJSON(out []byte, a *lookupAnswer) []byte {
	key := verb.JSONStart + `,"offset":`
	if a.virtual {
		key = verb.JSONStart + `,"virtual":`
	}
	out = strconv.AppendUint(append(out, key...), a.offset, 10)
	if len(a.frames) == 0 {
		out = append(append(append(out, `,"symbol_reason":"`...), a.reason.Code()...), '"')
		return append(out, c.answerEnd...)
	}
	out = append(out, `,"frames":[`...)
	for i := range a.frames {
		if i > 0 {
			out = append(out, ',')
		}
		out = c.appendFrameJSON(append(out, '{'), &a.frames[i])
	}
	out = append(append(append(out, `],"symbol_source":"`...), a.source.String()...), '"')
	return append(out, c.answerEnd...)
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
