// Package columns is the binary form of questions for symbols and of their answers: protobuf
// messages whose fields are columns, so that a million addresses take a few bytes each.
//
//	message Question {
//	  repeated File file = 1;
//	  uint64 wait_ms = 2;            // how long to wait for indexes that are being made
//	}
//	message File {
//	  string id = 1;                 // identity, as hallmark id prints it
//	  bool virtual = 2;              // virtual addresses; otherwise file offsets
//	  repeated uint64 delta = 3;     // packed: each address less the one before; they ascend
//	}
//	message Answer {
//	  repeated string text = 1;      // texts, from number 1 on; 0 is ""
//	  // The columns of frames, packed. Frames are numbered from 0.
//	  repeated uint64 linkage = 2;   // number of a text
//	  repeated uint64 function = 3;  // the name for people; 0 where it is the same
//	  repeated uint64 source = 4;    // source file
//	  repeated uint64 line = 5;
//	  repeated uint64 column = 6;
//	  repeated uint64 start = 7;     // line where the function starts
//	  repeated uint64 symbol = 8;
//	  repeated uint64 flags = 9;     // 1 inlined, 2 local, language from bit 2 on
//	  // The columns of chains, which are the frames at an address, innermost first.
//	  repeated uint64 length = 10;   // frames of each chain
//	  repeated uint64 frame = 11;    // their numbers, chain after chain
//	  repeated FileAnswer file = 12; // in the order of the question
//	  string error = 13;             // why the answer ends before its time
//	}
//	message FileAnswer {
//	  string why = 1;                // "" or: no file, pending, poor, damaged
//	  string code = 2;               // content of the code that answered, in hexadecimal
//	  repeated uint64 chain = 3;     // packed, for each address: number of its chain from 1 on, 0 for none
//	  repeated uint64 from = 4;      // packed, the same: its source (symbol.Source), or without a chain the text of the reason's code
//	  // Packed, where a debug file answered whose program the server does not have: its segments with code, of each
//	  // the virtual address, the bytes in memory, the file offset and the bytes in the file.
//	  repeated uint64 segment = 5;
//	}
//
// An answer comes in parts, each of which is a message with what the ones before lack: one after the other
// they are one message, as protobuf joins repeated fields.
package columns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"hallmark/addr"
	"hallmark/reason"
	"hallmark/symbol"
)

// ErrFormat says that a message is malformed. It arrives wrapped.
var ErrFormat = errors.New("malformed message")

// ErrEnded says that the server ended its answer before its time. It arrives wrapped.
var ErrEnded = errors.New("the answer ended before its time")

// MediaType is the Content-Type of messages.
const MediaType = "application/x-protobuf; messageType=hallmark.Symbols"

// A Question asks for symbols.
type Question struct {
	Files  []File
	WaitMS uint64
}

// A File is what is asked of one file. Addresses ascend.
type File struct {
	ID        string
	Virtual   bool
	Addresses []uint64
}

// An Answer has the symbols.
type Answer struct {
	Texts   []string // from number 1 on; 0 is ""
	Frames  []Frame
	Lengths []uint64 // frames of each chain
	Numbers []uint64 // of the frames of all chains
	Files   []FileAnswer
}

// A Frame is a row of the columns of frames: numbers of texts, and lines.
type Frame struct {
	Linkage, Function, Source, Line, Column, Start, Symbol, Flags uint64
}

// A FileAnswer answers for one file.
type FileAnswer struct {
	Why    string
	Code   string
	Chains []uint64 // for each address, from 1 on; 0 for none
	From   []uint64 // for each address: its source, or without a chain its reason
	// Segments are those with code of a debug file alone; nil where the code itself is known.
	Segments []symbol.Segment
}

// Encoding.

func appendTag(b []byte, field, wire uint64) []byte { return binary.AppendUvarint(b, field<<3|wire) }

func appendBytes(b []byte, field uint64, v []byte) []byte {
	b = binary.AppendUvarint(appendTag(b, field, 2), uint64(len(v)))
	return append(b, v...)
}

func appendString(b []byte, field uint64, v string) []byte {
	if v == "" {
		return b
	}
	b = binary.AppendUvarint(appendTag(b, field, 2), uint64(len(v)))
	return append(b, v...)
}

func appendPacked(b []byte, field uint64, scratch *[]byte, n int, at func(int) uint64) []byte {
	if n == 0 {
		return b
	}
	s := (*scratch)[:0]
	for i := range n {
		s = binary.AppendUvarint(s, at(i))
	}
	*scratch = s
	return appendBytes(b, field, s)
}

// Append appends the message to b. The addresses of each file must ascend.
func (q *Question) Append(b []byte) []byte {
	var scratch, message []byte
	for i := range q.Files {
		f := &q.Files[i]
		message = appendString(message[:0], 1, f.ID)
		if f.Virtual {
			message = append(appendTag(message, 2, 0), 1)
		}
		last := uint64(0)
		message = appendPacked(message, 3, &scratch, len(f.Addresses), func(i int) uint64 {
			d := f.Addresses[i] - last
			last = f.Addresses[i]
			return d
		})
		b = appendBytes(b, 1, message)
	}
	if q.WaitMS > 0 {
		b = binary.AppendUvarint(appendTag(b, 2, 0), q.WaitMS)
	}
	return b
}

// frameColumns are the columns of frames, from field 2 on.
var frameColumns = []func(*Frame) *uint64{
	func(f *Frame) *uint64 { return &f.Linkage }, func(f *Frame) *uint64 { return &f.Function }, func(f *Frame) *uint64 { return &f.Source },
	func(f *Frame) *uint64 { return &f.Line }, func(f *Frame) *uint64 { return &f.Column }, func(f *Frame) *uint64 { return &f.Start },
	func(f *Frame) *uint64 { return &f.Symbol }, func(f *Frame) *uint64 { return &f.Flags },
}

// Append appends the message to b.
func (a *Answer) Append(b []byte) []byte {
	var scratch, message []byte
	for _, t := range a.Texts {
		b = appendBytes(b, 1, []byte(t))
	}
	for i, column := range frameColumns {
		b = appendPacked(b, uint64(2+i), &scratch, len(a.Frames), func(j int) uint64 { return *column(&a.Frames[j]) })
	}
	b = appendPacked(b, 10, &scratch, len(a.Lengths), func(i int) uint64 { return a.Lengths[i] })
	b = appendPacked(b, 11, &scratch, len(a.Numbers), func(i int) uint64 { return a.Numbers[i] })
	for i := range a.Files {
		f := &a.Files[i]
		message = appendString(message[:0], 1, f.Why)
		message = appendString(message, 2, f.Code)
		message = appendPacked(message, 3, &scratch, len(f.Chains), func(i int) uint64 { return f.Chains[i] })
		message = appendPacked(message, 4, &scratch, len(f.From), func(i int) uint64 { return f.From[i] })
		message = appendPacked(message, 5, &scratch, 4*len(f.Segments), func(i int) uint64 {
			s := &f.Segments[i/4]
			return [...]uint64{uint64(s.Virt), s.MemSize, uint64(s.Offset), s.FileSize}[i%4]
		})
		b = appendBytes(b, 12, message)
	}
	return b
}

// Decoding.

// each calls f for each field of a message: its number, and its value or its bytes.
func each(b []byte, f func(field, value uint64, bytes []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return fmt.Errorf("%w: a tag", ErrFormat)
		}
		b = b[n:]
		var value uint64
		var bytes []byte
		switch tag & 7 {
		case 0:
			if value, n = binary.Uvarint(b); n <= 0 {
				return fmt.Errorf("%w: field %d", ErrFormat, tag>>3)
			}
			b = b[n:]
		case 1:
			if len(b) < 8 {
				return fmt.Errorf("%w: field %d", ErrFormat, tag>>3)
			}
			b = b[8:]
		case 2:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return fmt.Errorf("%w: field %d is longer than the message", ErrFormat, tag>>3)
			}
			bytes, b = b[n:n+int(size)], b[n+int(size):]
		case 5:
			if len(b) < 4 {
				return fmt.Errorf("%w: field %d", ErrFormat, tag>>3)
			}
			b = b[4:]
		default:
			return fmt.Errorf("%w: a field of type %d", ErrFormat, tag&7)
		}
		if err := f(tag>>3, value, bytes); err != nil {
			return err
		}
	}
	return nil
}

// unpack appends the numbers of a packed field, at most most in all.
func unpack(to []uint64, b []byte, most int) ([]uint64, error) {
	if n := count(b); n > most-len(to) {
		return nil, fmt.Errorf("%w: more than %d numbers", ErrFormat, most)
	} else if to == nil {
		to = make([]uint64, 0, n)
	}
	for len(b) > 0 {
		if b[0] < 0x80 {
			to, b = append(to, uint64(b[0])), b[1:]
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: a packed number", ErrFormat)
		}
		to, b = append(to, v), b[n:]
	}
	return to, nil
}

// count returns how many numbers a packed field has.
func count(b []byte) (n int) {
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// ParseQuestion reads a question about at most most addresses.
func ParseQuestion(b []byte, most int) (*Question, error) {
	q := new(Question)
	err := each(b, func(field, value uint64, bytes []byte) error {
		switch field {
		case 1:
			var f File
			if err := f.parse(bytes, most); err != nil {
				return err
			}
			most -= len(f.Addresses)
			if len(q.Files) >= maxFiles {
				return fmt.Errorf("%w: more than %d files", ErrFormat, maxFiles)
			}
			q.Files = append(q.Files, f)
		case 2:
			q.WaitMS = value
		}
		return nil
	})
	return q, err
}

const maxFiles = 1 << 16 // of a message

func (f *File) parse(b []byte, most int) error {
	err := each(b, func(field, value uint64, bytes []byte) (err error) {
		switch field {
		case 1:
			f.ID = string(bytes)
		case 2:
			f.Virtual = value != 0
		case 3:
			f.Addresses, err = unpack(f.Addresses, bytes, most)
		}
		return err
	})
	last := uint64(0)
	for i, d := range f.Addresses {
		if last+d < last {
			return fmt.Errorf("%w: addresses do not ascend", ErrFormat)
		}
		last += d
		f.Addresses[i] = last
	}
	return err
}

// ParseAnswer reads an answer to a question, and checks that all numbers in it lead somewhere.
func ParseAnswer(b []byte, q *Question) (*Answer, error) {
	a := new(Answer)
	columns := make([][]uint64, len(frameColumns))
	err := each(b, func(field, _ uint64, bytes []byte) (err error) {
		switch {
		case field == 1:
			a.Texts = append(a.Texts, string(bytes))
		case field >= 2 && field < 10:
			columns[field-2], err = unpack(columns[field-2], bytes, len(b))
		case field == 10:
			a.Lengths, err = unpack(a.Lengths, bytes, len(b))
		case field == 11:
			a.Numbers, err = unpack(a.Numbers, bytes, len(b))
		case field == 12:
			err = a.parseFile(bytes)
		case field == 13:
			err = fmt.Errorf("%w: %q", ErrEnded, bytes[:min(len(bytes), maxError)])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, a.check(q, columns)
}

const maxError = 1000 // bytes

// AppendError appends the part that ends an answer before its time.
func AppendError(b []byte, why string) []byte { return appendString(b, 13, why) }

// maxSegments bounds the segments of a file.
const maxSegments = 64

func (a *Answer) parseFile(b []byte) error {
	var f FileAnswer
	var segments []uint64
	err := each(b, func(field, _ uint64, bytes []byte) (err error) {
		switch field {
		case 1:
			f.Why = string(bytes)
		case 2:
			f.Code = string(bytes)
		case 3:
			f.Chains, err = unpack(f.Chains, bytes, len(b))
		case 4:
			f.From, err = unpack(f.From, bytes, len(b))
		case 5:
			segments, err = unpack(segments, bytes, 4*maxSegments)
		}
		return err
	})
	for s := range slices.Chunk(segments, 4) {
		if len(s) == 4 {
			f.Segments = append(f.Segments, symbol.Segment{Virt: addr.Virt(s[0]), MemSize: s[1], Offset: addr.Offset(s[2]), FileSize: s[3], Flags: 1})
		}
	}
	a.Files = append(a.Files, f)
	return err
}

// check fills the frames, and refuses numbers that lead nowhere.
func (a *Answer) check(q *Question, columns [][]uint64) error {
	a.Frames = make([]Frame, len(columns[0]))
	for c, column := range columns {
		if len(column) != len(a.Frames) {
			return fmt.Errorf("%w: columns of frames differ in length", ErrFormat)
		}
		for i, v := range column {
			*frameColumns[c](&a.Frames[i]) = v
		}
	}
	for _, f := range a.Frames {
		for _, t := range []uint64{f.Linkage, f.Function, f.Source, f.Symbol} {
			if t > uint64(len(a.Texts)) {
				return fmt.Errorf("%w: text %d of %d", ErrFormat, t, len(a.Texts))
			}
		}
	}
	total := uint64(0)
	for _, n := range a.Lengths {
		if total += n; n > uint64(len(a.Numbers)) || total > uint64(len(a.Numbers)) {
			return fmt.Errorf("%w: chains have more frames than there are", ErrFormat)
		}
	}
	for _, n := range a.Numbers {
		if n >= uint64(len(a.Frames)) {
			return fmt.Errorf("%w: frame %d of %d", ErrFormat, n, len(a.Frames))
		}
	}
	if len(a.Files) != len(q.Files) {
		return fmt.Errorf("%w: an answer for %d files of %d", ErrFormat, len(a.Files), len(q.Files))
	}
	for i := range a.Files {
		f := &a.Files[i]
		if f.Why == "" && (len(f.Chains) != len(q.Files[i].Addresses) || len(f.From) != len(f.Chains)) {
			return fmt.Errorf("%w: an answer for %d addresses of %d", ErrFormat, len(f.Chains), len(q.Files[i].Addresses))
		}
		for _, c := range f.Chains {
			if c > uint64(len(a.Lengths)) {
				return fmt.Errorf("%w: chain %d of %d", ErrFormat, c, len(a.Lengths))
			}
		}
	}
	return nil
}

// Results returns the answer for the addresses of a file, for those who have frames as package
// symbol does. Results of one chain share their frames. Without symbols of the file it is nil.
func (a *Answer) Results(file int) []symbol.Result {
	f := &a.Files[file]
	if f.Why != "" {
		return nil
	}
	starts := a.starts()
	chains := make([][]symbol.Frame, len(a.Lengths)+1)
	results := make([]symbol.Result, len(f.Chains))
	for i, c := range f.Chains {
		if c == 0 {
			results[i] = symbol.Miss(a.reason(f.From[i]))
			continue
		}
		if chains[c] == nil {
			chains[c] = a.chain(nil, starts, c)
		}
		results[i] = symbol.Result{Frames: chains[c], Source: symbol.Source(f.From[i])}
	}
	return results
}

// starts returns where each chain begins among the numbers, and behind the last one where it ends.
func (a *Answer) starts() []uint64 {
	starts := make([]uint64, len(a.Lengths)+1)
	for i, n := range a.Lengths {
		starts[i+1] = starts[i] + n
	}
	return starts
}

// chain appends the frames of a chain.
func (a *Answer) chain(frames []symbol.Frame, starts []uint64, c uint64) []symbol.Frame {
	for _, n := range a.Numbers[starts[c-1]:starts[c]] {
		frames = append(frames, a.frame(&a.Frames[n]))
	}
	return frames
}

// A Reader returns results one by one: the frames of all of them together can take a hundred times
// the memory of the answer.
type Reader struct {
	answer *Answer
	starts []uint64
	frames []symbol.Frame
	texts  []int64 // of each chain, 0 for one that nobody asked for
}

// Reader returns a Reader of the results.
func (a *Answer) Reader() *Reader {
	return &Reader{answer: a, starts: a.starts(), texts: make([]int64, len(a.Lengths)+1)}
}

// Len returns how many results a file has, 0 without symbols of the file.
func (r *Reader) Len(file int) int {
	if f := &r.answer.Files[file]; f.Why == "" {
		return len(f.Chains)
	}
	return 0
}

// At returns a result of a file. Its frames are valid until the next call.
func (r *Reader) At(file, i int) symbol.Result {
	f := &r.answer.Files[file]
	c := f.Chains[i]
	if c == 0 {
		return symbol.Miss(r.answer.reason(f.From[i]))
	}
	r.frames = r.answer.chain(r.frames[:0], r.starts, c)
	return symbol.Result{Frames: r.frames, Source: symbol.Source(f.From[i])}
}

// Text returns how many bytes the texts of a file's results have, each as often as it is there.
func (r *Reader) Text(file int) (sum int64) {
	a := r.answer
	size := func(n uint64) int64 {
		if n == 0 {
			return 0
		}
		return int64(len(a.Texts[n-1]))
	}
	for i := range r.Len(file) {
		c := a.Files[file].Chains[i]
		if c > 0 && r.texts[c] == 0 {
			for _, n := range a.Numbers[r.starts[c-1]:r.starts[c]] {
				f := &a.Frames[n]
				r.texts[c] += size(f.Linkage) + size(f.Function) + size(f.Source) + size(f.Symbol)
			}
		}
		sum += r.texts[c]
	}
	return sum
}

// reason returns the reason whose code is a text.
func (a *Answer) reason(n uint64) reason.Reason {
	if n > 0 && n <= uint64(len(a.Texts)) {
		if r, ok := reason.Parse(a.Texts[n-1]); ok && r != reason.None {
			return r
		}
	}
	return reason.NoSymbol
}

// Reason returns the number of the text of a reason's code, for FileAnswer.From.
func (b *Builder) Reason(r reason.Reason) uint64 { return b.text(r.Code()) }

// Bits of Frame.Flags.
const (
	flagInlined = 1
	flagLocal   = 2
	langShift   = 2
)

func (a *Answer) frame(f *Frame) symbol.Frame {
	text := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return a.Texts[n-1]
	}
	out := symbol.Frame{
		Linkage: text(f.Linkage), Func: text(f.Function), File: text(f.Source), Symbol: text(f.Symbol),
		Line: int(f.Line), Column: int(f.Column), Start: int(f.Start),
		Inlined: f.Flags&flagInlined != 0, Local: f.Flags&flagLocal != 0, Lang: symbol.Lang(f.Flags >> langShift),
	}
	if f.Function == 0 {
		out.Func = out.Linkage
	}
	return out
}

// A Builder makes an Answer.
type Builder struct {
	Answer
	texts  map[string]uint64
	frames map[Frame]uint64
	chains map[string]uint64 // by the numbers of their frames
	key    []byte
	sent   struct{ texts, frames, lengths, numbers int } // in parts
}

// Part appends to out what was added since the last part, and drops the answers for files among it.
func (b *Builder) Part(out []byte) []byte {
	part := Answer{Texts: b.Texts[b.sent.texts:], Frames: b.Frames[b.sent.frames:], Lengths: b.Lengths[b.sent.lengths:], Numbers: b.Numbers[b.sent.numbers:], Files: b.Files}
	b.sent.texts, b.sent.frames, b.sent.lengths, b.sent.numbers = len(b.Texts), len(b.Frames), len(b.Lengths), len(b.Numbers)
	out = part.Append(out)
	clear(b.Files)
	b.Files = b.Files[:0]
	return out
}

// NewBuilder returns a Builder of an empty answer.
func NewBuilder() *Builder {
	return &Builder{texts: map[string]uint64{}, frames: map[Frame]uint64{}, chains: map[string]uint64{}}
}

func (b *Builder) text(s string) uint64 {
	if s == "" {
		return 0
	}
	n, ok := b.texts[s]
	if !ok {
		s = string([]byte(s)) // that of an index goes with it
		b.Texts = append(b.Texts, s)
		n = uint64(len(b.Texts))
		b.texts[s] = n
	}
	return n
}

// Chain returns the number of a chain, from 1 on.
func (b *Builder) Chain(frames []symbol.Frame) uint64 {
	b.key = b.key[:0]
	first := len(b.Numbers)
	for i := range frames {
		n := b.frame(&frames[i])
		b.Numbers = append(b.Numbers, n)
		b.key = binary.LittleEndian.AppendUint32(b.key, uint32(n))
	}
	if n, ok := b.chains[string(b.key)]; ok {
		b.Numbers = b.Numbers[:first]
		return n
	}
	b.Lengths = append(b.Lengths, uint64(len(frames)))
	n := uint64(len(b.Lengths))
	b.chains[string(b.key)] = n
	return n
}

func (b *Builder) frame(f *symbol.Frame) uint64 {
	row := Frame{Linkage: b.text(f.Linkage), Source: b.text(f.File), Symbol: b.text(f.Symbol), Line: clamp(f.Line), Column: clamp(f.Column), Start: clamp(f.Start), Flags: uint64(f.Lang) << langShift}
	if f.Inlined {
		row.Flags |= flagInlined
	}
	if f.Local {
		row.Flags |= flagLocal
	}
	n, ok := b.frames[row]
	if !ok {
		n = uint64(len(b.Frames))
		b.frames[row] = n
		// The name for people is made once for each frame.
		named := row
		if readable := f.Readable(); readable != f.Linkage {
			named.Function = b.text(readable)
		}
		b.Frames = append(b.Frames, named)
	}
	return n
}

func clamp(n int) uint64 { return uint64(max(n, 0)) }
