package addr2line

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"hallmark/cmd/hallmark/internal/dwarfentry"
	"hallmark/internal/plaintext"
	"hallmark/symbol"
)

// A printer writes answers as llvm's programs do.
type printer struct {
	*llvmOptions
	out   *output
	names *nameCache
	list  bool // answers are elements of one JSON array
	count int  // of its elements

	sources sourceReader
}

func newPrinter(opt *llvmOptions, out *output) *printer {
	var readable demangler
	switch {
	case opt.functions == shortNames:
		readable = shortName
	case opt.demangle:
		readable = demangleLLVM
	}
	return &printer{llvmOptions: opt, out: out, names: newNameCache(readable), sources: sourceReader{plain: out.isTerminal}}
}

// begin and end enclose the answers to a command line.
func (p *printer) begin() {
	if p.list = p.style == styleJSON; p.list {
		p.out.buf = append(p.out.buf, '[')
	}
}

func (p *printer) end() {
	if !p.list {
		return
	}
	if p.pretty && p.count > 0 {
		p.out.buf = append(p.out.buf, '\n')
	}
	p.out.buf = append(p.out.buf, "]\n"...)
}

// code answers with the functions at an address, innermost first.
func (p *printer) code(r *request, frames []frame) {
	shown := frames
	switch {
	case len(frames) == 0 && (p.style != styleJSON || !p.inlines):
		shown = nothing
	case !p.inlines:
		shown = frames[:1]
		if p.style != styleGNU {
			p.nameAfter(&shown[0], &frames[len(frames)-1])
		}
	}
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Symbol = &[]jsonFrame{}
		for i := range shown {
			*answer.Symbol = append(*answer.Symbol, p.jsonFrame(&shown[i]))
		}
		p.json(answer)
		return
	}
	p.header(r)
	for i := range shown {
		p.frameAt(&shown[i], i > 0)
	}
	p.footer()
}

// nameAfter gives a frame the name that llvm-symbolizer prints without inlined calls:
// that of the function in whose code it is, by the symbol table. Its place stays.
func (p *printer) nameAfter(f, outermost *frame) {
	if p.functions == linkageNames {
		f.Linkage, f.Symbol, f.Inlined = outermost.Linkage, outermost.Symbol, false
		f.start, f.hasStart = outermost.start, outermost.hasStart
	}
}

// name returns the name of a frame's function as it is printed.
func (p *printer) name(f *frame) string {
	if p.functions == linkageNames && f.Symbol != "" {
		return p.names.of(f.Symbol)
	}
	return p.names.of(f.Linkage)
}

// file returns the file of a frame as it is printed.
func (p *printer) file(f *frame) string {
	if p.paths == baseNames {
		return f.File[strings.LastIndexByte(f.File, '/')+1:]
	}
	return f.File
}

// header writes the address that was asked for.
func (p *printer) header(r *request) {
	if !p.addresses || !r.isParsed || r.symbol != "" {
		return
	}
	p.out.buf = appendHex(p.out.buf, r.number)
	p.between(": ")
}

// between ends a line, or writes what stands between two things on one line.
func (p *printer) between(pretty string) {
	if p.pretty {
		p.out.buf = append(p.out.buf, pretty...)
	} else {
		p.out.buf = append(p.out.buf, '\n')
	}
}

// footer ends an answer.
func (p *printer) footer() {
	if p.style == styleLLVM {
		p.out.buf = append(p.out.buf, '\n')
	}
}

// text writes s, or ?? if it is empty.
func (p *printer) text(s string) {
	if s == "" {
		s = "??"
	}
	p.out.buf = append(p.out.buf, p.out.name(s)...)
}

func (p *printer) frameAt(f *frame, isCaller bool) {
	if p.functions != noNames {
		if p.pretty && isCaller {
			p.out.buf = append(p.out.buf, " (inlined by) "...)
		}
		p.text(p.name(f))
		p.between(" at ")
	}
	if p.verbose {
		p.verbosePlace(f)
		return
	}
	p.text(p.file(f))
	p.out.buf = appendDecimal(append(p.out.buf, ':'), uint64(f.Line))
	switch {
	case p.style == styleLLVM:
		p.out.buf = appendDecimal(append(p.out.buf, ':'), uint64(f.Column))
	case f.discriminator != 0:
		p.out.buf = appendDecimal(append(p.out.buf, " (discriminator "...), f.discriminator)
		p.out.buf = append(p.out.buf, ')')
	}
	p.out.buf = append(p.out.buf, '\n')
	p.out.buf = p.sources.appendContext(p.out.buf, p.file(f), f.Line, p.contextLines)
}

func (p *printer) verbosePlace(f *frame) {
	p.out.buf = append(p.out.buf, "  Filename: "...)
	p.text(p.file(f))
	p.out.buf = append(p.out.buf, '\n')
	number := func(label string, n uint64) {
		p.out.buf = append(appendDecimal(append(p.out.buf, label...), n), '\n')
	}
	if f.Start != 0 {
		p.out.buf = append(p.out.buf, "  Function start filename: "...)
		p.out.buf = append(append(p.out.buf, p.out.name(f.startFile)...), '\n')
		number("  Function start line: ", uint64(f.Start))
	}
	if f.hasStart && p.style == styleLLVM {
		p.out.buf = append(appendHex(append(p.out.buf, "  Function start address: "...), uint64(f.start)), '\n')
	}
	number("  Line: ", uint64(f.Line))
	number("  Column: ", uint64(f.Column))
	if f.discriminator != 0 {
		number("  Discriminator: ", f.discriminator)
	}
}

// symbol answers with where a function is.
func (p *printer) symbol(r *request, found []frame) {
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Loc = &[]jsonFrame{}
		for i := range found {
			*answer.Loc = append(*answer.Loc, p.jsonFrame(&found[i]))
		}
		p.json(answer)
		return
	}
	if len(found) == 0 {
		found = nothing
	}
	for i := range found {
		p.frameAt(&found[i], false)
		p.footer()
	}
}

// data answers with a symbol, and the line of its file where it is declared; the zero
// one is none.
func (p *printer) data(r *request, s symbol.ELFSymbol, line uint64) {
	name := p.names.of(s.Name)
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Data = &jsonData{Name: name, Size: jsonHex(s.Size), Start: jsonHex(uint64(s.Virt))}
		p.json(answer)
		return
	}
	p.header(r)
	p.text(name)
	p.out.buf = appendDecimal(append(p.out.buf, '\n'), uint64(s.Virt))
	p.out.buf = appendDecimal(append(p.out.buf, ' '), s.Size)
	p.out.buf = append(p.out.buf, '\n')
	if s.File == "" {
		p.out.buf = append(p.out.buf, "??:?\n"...)
	} else {
		p.out.buf = appendDecimal(append(append(p.out.buf, p.out.name(s.File)...), ':'), line)
		p.out.buf = append(p.out.buf, '\n')
	}
	p.footer()
}

// frame answers with the variables of a function.
func (p *printer) frame(r *request, locals []dwarfentry.Local) {
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Frame = &[]jsonLocal{}
		for i := range locals {
			*answer.Frame = append(*answer.Frame, jsonLocalOf(&locals[i]))
		}
		p.json(answer)
		return
	}
	p.header(r)
	if len(locals) == 0 {
		p.out.buf = append(p.out.buf, "??\n"...)
	}
	for i := range locals {
		p.local(&locals[i])
	}
	p.footer()
}

// local writes a variable of a function.
func (p *printer) local(l *dwarfentry.Local) {
	p.text(l.Function)
	p.out.buf = append(p.out.buf, '\n')
	p.text(l.Name)
	p.out.buf = append(p.out.buf, '\n')
	p.text(l.Path.Absolute())
	p.out.buf = append(appendDecimal(append(p.out.buf, ':'), l.Line), '\n')
	known := func(is bool, text string, end byte) {
		if !is {
			text = "??"
		}
		p.out.buf = append(append(p.out.buf, text...), end)
	}
	known(l.HasOffset, strconv.FormatInt(l.FrameOffset, 10), ' ')
	known(l.HasSize, strconv.FormatUint(l.Size, 10), ' ')
	known(l.HasTag, strconv.FormatUint(l.TagOffset, 10), '\n')
}

// failure answers with an error, which only JSON can.
func (p *printer) failure(r *request, msg string) {
	answer := jsonAnswer(r)
	answer.Error = &jsonError{msg}
	p.json(answer)
}

// answerJSON is an answer in JSON. Members are in the order of the alphabet, as LLVM
// writes them.
type answerJSON struct {
	Address    string       `json:",omitempty"`
	Data       *jsonData    `json:",omitempty"`
	Error      *jsonError   `json:",omitempty"`
	Frame      *[]jsonLocal `json:",omitempty"`
	Loc        *[]jsonFrame `json:",omitempty"`
	ModuleName string
	SymName    string       `json:",omitempty"`
	Symbol     *[]jsonFrame `json:",omitempty"`
}

type jsonData struct{ Name, Size, Start string }

type jsonError struct{ Message string }

type jsonFrame struct {
	Column        int
	Discriminator uint64
	FileName      string
	FunctionName  string
	Line          int
	Source        string `json:",omitempty"`
	StartAddress  string
	StartFileName string
	StartLine     int
}

func jsonAnswer(r *request) answerJSON {
	answer := answerJSON{ModuleName: r.moduleName(), SymName: r.symbol}
	if r.isParsed && r.symbol == "" {
		answer.Address = jsonHex(r.number)
	}
	return answer
}

func jsonHex(n uint64) string { return string(appendHex(nil, n)) }

func (p *printer) jsonFrame(f *frame) jsonFrame {
	shown := jsonFrame{
		Column: f.Column, Discriminator: f.discriminator, FileName: p.file(f), Line: f.Line,
		StartFileName: f.startFile, StartLine: f.Start,
		Source: string(p.sources.appendContext(nil, p.file(f), f.Line, p.contextLines)),
	}
	if p.functions != noNames {
		shown.FunctionName = p.name(f)
	}
	if f.hasStart {
		shown.StartAddress = jsonHex(uint64(f.start))
	}
	return shown
}

// jsonLocal is a variable of a function.
type jsonLocal struct {
	DeclFile     string
	DeclLine     uint64
	FrameOffset  *int64 `json:",omitempty"`
	FunctionName string
	Name         string
	Size         string
	TagOffset    string
}

func jsonLocalOf(l *dwarfentry.Local) jsonLocal {
	shown := jsonLocal{DeclFile: l.Path.Absolute(), DeclLine: l.Line, FunctionName: l.Function, Name: l.Name}
	if l.HasOffset {
		shown.FrameOffset = &l.FrameOffset
	}
	if l.HasSize {
		shown.Size = jsonHex(l.Size)
	}
	if l.HasTag {
		shown.TagOffset = jsonHex(l.TagOffset)
	}
	return shown
}

// plainRunes are what encoding/json writes as an escape, and LLVM as it is: what stands
// for a byte that is no UTF-8, and line ends of Unicode.
var plainRunes = map[string]string{`\ufffd`: "\ufffd", `\u2028`: "\u2028", `\u2029`: "\u2029", `\b`: `\u0008`, `\f`: `\u000c`}

// fewerEscapes returns JSON with the escapes that LLVM writes, and no others.
func fewerEscapes(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	var b []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b = append(b, text[i])
			continue
		}
		end := i + 2
		if text[i+1] == 'u' {
			end = min(i+6, len(text))
		}
		escape := string(text[i:end])
		if plain, ok := plainRunes[escape]; ok {
			escape = plain
		}
		b, i = append(b, escape...), end-1
	}
	return b
}

// json writes an answer: on a line of its own, or as the next element of the list.
func (p *printer) json(answer answerJSON) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return // a string is never refused
	}
	line := fewerEscapes(bytes.TrimSuffix(text.Bytes(), []byte{'\n'}))
	if p.out.isTerminal {
		var plain bytes.Buffer
		plaintext.JSON(&plain).Write(line) // into memory
		line = plain.Bytes()
	}
	indent := ""
	if p.list {
		indent = "  "
		if p.count++; p.count > 1 {
			p.out.buf = append(p.out.buf, ',')
		}
	}
	if p.pretty {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, line, indent, "  "); err != nil {
			return
		}
		line = pretty.Bytes()
		if p.list {
			p.out.buf = append(append(p.out.buf, '\n'), indent...)
		}
	}
	p.out.buf = append(p.out.buf, line...)
	if !p.list {
		p.out.buf = append(p.out.buf, '\n')
	}
}
