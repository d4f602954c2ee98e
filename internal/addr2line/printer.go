package addr2line

import (
	"encoding/json"
	"strings"

	"hallmark/addr"
	"hallmark/symbol"
)

// A printer writes answers as llvm's programs do.
type printer struct {
	*llvmOptions
	out   *output
	names *nameCache
	list  bool // answers are elements of one JSON array
	count int  // of its elements
}

// location is where a function is that was asked for by its name.
type location struct {
	frame symbol.Frame
	start addr.Virt
}

func newPrinter(opt *llvmOptions, out *output) *printer {
	var readable demangler
	switch {
	case opt.functions == shortNames:
		readable = shortName
	case opt.demangle:
		readable = demangleLLVM
	}
	return &printer{llvmOptions: opt, out: out, names: newNameCache(readable)}
}

// begin and end enclose the answers to a command line.
func (p *printer) begin() {
	if p.list = p.style == styleJSON; p.list {
		p.out.buf = append(p.out.buf, '[')
	}
}

func (p *printer) end() {
	if p.list {
		p.out.buf = append(p.out.buf, "]\n"...)
	}
}

// code answers with the functions at an address, innermost first. start is where the
// last of them starts, 0 if that is not known.
func (p *printer) code(r *request, frames []symbol.Frame, start addr.Virt) {
	shown := frames
	switch {
	case len(frames) == 0 && (p.style != styleJSON || !p.inlines):
		shown = nothing
	case !p.inlines:
		shown = frames[:1]
		p.nameAfter(&shown[0], &frames[len(frames)-1])
	}
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Symbol = &[]jsonFrame{}
		for i := range shown {
			*answer.Symbol = append(*answer.Symbol, p.jsonFrame(&shown[i], start))
		}
		p.json(answer)
		return
	}
	p.header(r)
	for i := range shown {
		p.frameAt(&shown[i], i > 0, start)
	}
	p.footer()
}

// nameAfter gives a frame the name that llvm-symbolizer prints without inlined calls:
// that of the function in whose code it is, by the symbol table. Its place stays.
func (p *printer) nameAfter(f, outermost *symbol.Frame) {
	if p.style != styleGNU && p.functions == linkageNames {
		f.Linkage, f.Symbol, f.Inlined = outermost.Linkage, outermost.Symbol, false
	}
}

// name returns the name of a frame's function as it is printed.
func (p *printer) name(f *symbol.Frame) string {
	if p.functions == linkageNames && f.Symbol != "" {
		return p.names.of(f.Symbol)
	}
	return p.names.of(f.Linkage)
}

// file returns the file of a frame as it is printed.
func (p *printer) file(f *symbol.Frame) string {
	if p.basenames {
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
	p.out.buf = append(p.out.buf, s...)
}

func (p *printer) frameAt(f *symbol.Frame, isCaller bool, start addr.Virt) {
	if p.functions != noNames {
		if p.pretty && isCaller {
			p.out.buf = append(p.out.buf, " (inlined by) "...)
		}
		p.text(p.name(f))
		p.between(" at ")
	}
	if p.verbose {
		p.verbosePlace(f, start)
		return
	}
	p.text(p.file(f))
	p.out.buf = appendDecimal(append(p.out.buf, ':'), uint64(f.Line))
	if p.style == styleLLVM {
		p.out.buf = appendDecimal(append(p.out.buf, ':'), uint64(f.Column))
	}
	p.out.buf = append(p.out.buf, '\n')
}

func (p *printer) verbosePlace(f *symbol.Frame, start addr.Virt) {
	p.out.buf = append(p.out.buf, "  Filename: "...)
	p.text(p.file(f))
	p.out.buf = append(p.out.buf, '\n')
	number := func(label string, n int) {
		p.out.buf = append(appendDecimal(append(p.out.buf, label...), uint64(n)), '\n')
	}
	if f.Start != 0 {
		number("  Function start line: ", f.Start)
	}
	if start != 0 && !f.Inlined && p.style == styleLLVM {
		p.out.buf = append(appendHex(append(p.out.buf, "  Function start address: "...), uint64(start)), '\n')
	}
	number("  Line: ", f.Line)
	number("  Column: ", f.Column)
}

// symbol answers with where a function is.
func (p *printer) symbol(r *request, found []location) {
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.SymName, answer.Loc = r.symbol, &[]jsonFrame{}
		for i := range found {
			*answer.Loc = append(*answer.Loc, p.jsonFrame(&found[i].frame, found[i].start))
		}
		p.json(answer)
		return
	}
	if len(found) == 0 {
		found = []location{{}}
	}
	for i := range found {
		p.frameAt(&found[i].frame, false, found[i].start)
		p.footer()
	}
}

// data answers with a symbol; the zero one is none.
func (p *printer) data(r *request, s symbol.ELFSymbol) {
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
		p.out.buf = append(append(p.out.buf, s.File...), ":0\n"...)
	}
	p.footer()
}

// frame answers that the variables of a function are not known.
func (p *printer) frame(r *request) {
	if p.style == styleJSON {
		answer := jsonAnswer(r)
		answer.Frame = &[]struct{}{}
		p.json(answer)
		return
	}
	p.header(r)
	p.out.buf = append(p.out.buf, "??\n"...)
	p.footer()
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
	Frame      *[]struct{}  `json:",omitempty"`
	Loc        *[]jsonFrame `json:",omitempty"`
	ModuleName string
	SymName    string       `json:",omitempty"`
	Symbol     *[]jsonFrame `json:",omitempty"`
}

type jsonData struct{ Name, Size, Start string }

type jsonError struct{ Message string }

type jsonFrame struct {
	Column        int
	Discriminator int
	FileName      string
	FunctionName  string
	Line          int
	StartAddress  string
	StartFileName string
	StartLine     int
}

func jsonAnswer(r *request) answerJSON {
	answer := answerJSON{ModuleName: r.moduleName()}
	if r.isParsed && r.symbol == "" {
		answer.Address = jsonHex(r.number)
	}
	return answer
}

func jsonHex(n uint64) string { return string(appendHex(nil, n)) }

func (p *printer) jsonFrame(f *symbol.Frame, start addr.Virt) jsonFrame {
	shown := jsonFrame{
		Column: f.Column, FileName: p.file(f), Line: f.Line, StartLine: f.Start,
	}
	if p.functions != noNames {
		shown.FunctionName = p.name(f)
	}
	if start != 0 && !f.Inlined {
		shown.StartAddress = jsonHex(uint64(start))
	}
	return shown
}

// json writes an answer: on a line of its own, or as the next element of the list.
func (p *printer) json(answer answerJSON) {
	if p.list && p.count > 0 {
		p.out.buf = append(p.out.buf, ',')
	}
	p.count++
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return // a string is never refused
	}
	line := text.String()
	if p.list {
		line = strings.TrimSuffix(line, "\n")
	}
	p.out.buf = append(p.out.buf, line...)
}
