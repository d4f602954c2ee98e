package addr2line

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
)

// Limits on markup: the longest line that is searched for elements, and how many
// modules and mappings a log may have.
const (
	longestMarkupLine = 1 << 20
	maxMarkupModules  = 1 << 16
)

// A markupFilter replaces elements of LLVM's symbolizer markup by text
// (https://llvm.org/docs/SymbolizerMarkupFormat.html).
type markupFilter struct {
	*llvm
	ctx      context.Context
	colored  bool
	line     string
	modules  map[uint64]*markupModule
	mappings []*markupMapping // by address
	listed   *markupModule    // of the line that mappings are collected for, nil for none
	adds     []*markupMapping
	color    byte // of the text, 0 for that of the terminal
	bold     bool
}

type markupModule struct {
	number uint64
	name   string
	id     []byte
}

type markupMapping struct {
	module            *markupModule
	start, size, from uint64 // from is the address in the file
	mode              string
}

func (m *markupMapping) holds(v uint64) bool { return v-m.start < m.size }

// A markupNode is an element, or text between elements.
type markupNode struct {
	text   string
	at     int // of text in the line
	tag    string
	fields []string
}

// fieldAt returns where a field is in the line.
func (n *markupNode) fieldAt(field int) int {
	at := n.tagEnd() + 1
	for _, f := range n.fields[:field] {
		at += len(f) + 1
	}
	return at
}

func (n *markupNode) tagEnd() int { return n.at + len("{{{") + len(n.tag) }

// filterMarkup copies standard input to the output, with its markup replaced.
func (l *llvm) filterMarkup(ctx context.Context) error {
	f := &markupFilter{llvm: l, ctx: ctx, modules: map[uint64]*markupModule{}, colored: l.isColored()}
	in := bufio.NewReaderSize(l.world.Stdin, longestMarkupLine)
	for {
		if in.Buffered() == 0 {
			l.out.flush()
		}
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			f.write(string(line))
		case len(line) > 0:
			f.filter(strings.TrimSuffix(string(line), "\n") + "\n")
		}
		if l.out.done() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			f.endList()
			f.resetColor()
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// isColored reports whether markup is printed in color.
func (l *llvm) isColored() bool {
	if l.color != colorAuto {
		return l.color == colorAlways
	}
	out, ok := l.world.Stdout.(*os.File)
	if !ok || l.world.Getenv("TERM") == "" || l.world.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := out.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (f *markupFilter) write(s string) { f.out.buf = append(f.out.buf, s...) }

// filter writes a line. One that describes modules and mappings is collected.
func (f *markupFilter) filter(line string) {
	f.line = line
	f.resetColor()
	var before []markupNode
	for _, n := range parseMarkup(line) {
		if f.describes(&n, before) {
			return
		}
		before = append(before, n)
	}
	f.endList()
	f.nodes(before)
}

// parseMarkup splits a line into elements and what is between them.
func parseMarkup(line string) []markupNode {
	var nodes []markupNode
	done, at := 0, 0
	for {
		start := strings.Index(line[at:], "{{{")
		if start < 0 {
			break
		}
		start += at
		end := strings.Index(line[start+3:], "}}}")
		if end < 0 {
			break
		}
		content := line[start+3 : start+3+end]
		at = start + 3 + end + 3
		tag, fields, hasFields := strings.Cut(content, ":")
		if tag == "" {
			continue
		}
		nodes = appendText(nodes, line[done:start], done)
		n := markupNode{text: line[start:at], at: start, tag: tag}
		if hasFields {
			n.fields = strings.Split(fields, ":")
		}
		nodes, done = append(nodes, n), at
	}
	return appendText(nodes, line[done:], done)
}

// appendText appends text without elements, with each sequence that changes the color
// as a node of its own.
func appendText(nodes []markupNode, text string, at int) []markupNode {
	for start := 0; start < len(text); {
		n := colorSequence(text[start:])
		if n == 0 {
			start++
			continue
		}
		if start > 0 {
			nodes = append(nodes, markupNode{text: text[:start], at: at})
		}
		nodes = append(nodes, markupNode{text: text[start : start+n], at: at + start})
		text, at, start = text[start+n:], at+start+n, 0
	}
	if text == "" {
		return nodes
	}
	return append(nodes, markupNode{text: text, at: at})
}

// colorSequence returns the length of the sequence that a text starts with: ESC [ N m,
// with N of 0, 1 and 30 to 37; or 0.
func colorSequence(s string) int {
	for _, digits := range []int{1, 2} {
		n := len("\x1b[") + digits + 1
		if len(s) < n || !strings.HasPrefix(s, "\x1b[") || s[n-1] != 'm' {
			continue
		}
		if c := s[2 : 2+digits]; c == "0" || c == "1" || digits == 2 && c[0] == '3' && c[1] >= '0' && c[1] <= '7' {
			return n
		}
	}
	return 0
}

// describes handles an element that describes the process. before are the nodes in front
// of it in its line, what is behind it is left out.
func (f *markupFilter) describes(n *markupNode, before []markupNode) bool {
	switch n.tag {
	case "mmap":
		f.mapping(n, before)
	case "reset":
		f.reset(n, before)
	case "module":
		f.describeModule(n, before)
	default:
		return false
	}
	return true
}

func (f *markupFilter) reset(n *markupNode, before []markupNode) {
	if !f.hasFields(n, 0) || len(f.modules) == 0 && len(f.mappings) == 0 {
		return
	}
	f.endList()
	f.nodes(before)
	f.raw(n)
	f.write(f.lineEnd())
	clear(f.modules)
	f.mappings = nil
}

func (f *markupFilter) describeModule(n *markupNode, before []markupNode) {
	m, ok := f.parseModule(n)
	if !ok {
		return
	}
	if _, ok := f.modules[m.number]; ok {
		f.report(n.fieldAt(0), "duplicate module ID")
		return
	}
	if len(f.modules) >= maxMarkupModules {
		f.report(n.fieldAt(0), "too many modules")
		return
	}
	f.modules[m.number] = m
	f.endList()
	f.nodes(before)
	f.beginList(m)
	f.write("; BuildID=")
	f.value(fmt.Sprintf("%x", m.id))
}

func (f *markupFilter) parseModule(n *markupNode) (*markupModule, bool) {
	if !f.hasAtLeast(n, 3) {
		return nil, false
	}
	number, ok := f.number(n, 0, "module ID", 0)
	if !ok {
		return nil, false
	}
	if n.fields[2] != "elf" {
		f.report(n.fieldAt(2), "unknown module type")
		return nil, false
	}
	if !f.hasFields(n, 4) {
		return nil, false
	}
	id, ok := parseIDBytes(n.fields[3])
	if !ok {
		f.wrongType(n, 3, "build ID")
		return nil, false
	}
	return &markupModule{number, n.fields[1], id}, true
}

func (f *markupFilter) mapping(n *markupNode, before []markupNode) {
	m, ok := f.parseMapping(n)
	if !ok {
		return
	}
	at, _ := slices.BinarySearchFunc(f.mappings, m.start, func(m *markupMapping, v uint64) int {
		if m.start <= v {
			return -1
		}
		return 1
	})
	for _, i := range []int{at, at - 1} {
		if i < 0 || i >= len(f.mappings) {
			continue
		}
		if o := f.mappings[i]; i == at && m.holds(o.start) || i < at && o.holds(m.start) {
			f.report(n.fieldAt(0), fmt.Sprintf("overlapping mmap: #%#x [%#x-%#x]", o.module.number, o.start, o.start+o.size-1))
			return
		}
	}
	if len(f.mappings) >= maxMarkupModules {
		f.report(n.fieldAt(0), "too many mmaps")
		return
	}
	f.mappings = slices.Insert(f.mappings, at, m)
	if f.listed != m.module {
		f.endList()
		f.nodes(before)
		f.beginList(m.module)
		f.write("; adds")
	}
	f.adds = append(f.adds, m)
}

func (f *markupFilter) parseMapping(n *markupNode) (*markupMapping, bool) {
	if !f.hasAtLeast(n, 3) {
		return nil, false
	}
	start, ok := f.address(n, 0)
	if !ok {
		return nil, false
	}
	size, ok := f.number(n, 1, "size", 0)
	if !ok {
		return nil, false
	}
	if n.fields[2] != "load" {
		f.report(n.fieldAt(2), "unknown mmap type")
		return nil, false
	}
	if !f.hasFields(n, 6) {
		return nil, false
	}
	number, ok := f.number(n, 3, "module ID", 0)
	if !ok {
		return nil, false
	}
	mode := strings.ToLower(n.fields[4])
	rest := mode
	for _, c := range "rwx" {
		rest = strings.TrimPrefix(rest, string(c))
	}
	if mode == "" || rest != "" {
		f.wrongType(n, 4, "mode")
		return nil, false
	}
	module := f.modules[number]
	if module == nil {
		f.report(n.fieldAt(3), "unknown module ID")
		return nil, false
	}
	from, ok := f.address(n, 5)
	return &markupMapping{module, start, size, from, mode}, ok
}

// beginList begins the line that describes a module.
func (f *markupFilter) beginList(m *markupModule) {
	f.highlight()
	f.write("[[[ELF module")
	f.value(fmt.Sprintf(" #%#x ", m.number))
	f.write(`"`)
	f.value(m.name)
	f.write(`"`)
	f.listed, f.adds = m, nil
}

// endList ends the line that describes a module, if one was begun.
func (f *markupFilter) endList() {
	if f.listed == nil {
		return
	}
	slices.SortStableFunc(f.adds, func(a, b *markupMapping) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	for i, m := range f.adds {
		separator := ","
		if i == 0 {
			separator = " "
		}
		f.write(separator + "[")
		f.value(fmt.Sprintf("%#x", m.start))
		f.write("-")
		f.value(fmt.Sprintf("%#x", m.start+m.size-1))
		f.write("](")
		f.value(m.mode)
		f.write(")")
	}
	f.write("]]]" + f.lineEnd())
	f.restoreColor()
	f.listed, f.adds = nil, nil
}

// nodes writes what describes nothing.
func (f *markupFilter) nodes(nodes []markupNode) {
	for i := range nodes {
		f.node(&nodes[i])
	}
}

func (f *markupFilter) node(n *markupNode) {
	if strings.ContainsFunc(n.tag, func(r rune) bool { return r < 'a' || r > 'z' }) {
		f.report(n.at+len("{{{"), "tags must be all lowercase characters")
		return
	}
	switch {
	case n.tag == "symbol":
		f.symbolElement(n)
	case n.tag == "pc":
		f.pc(n)
	case n.tag == "bt":
		f.backtrace(n)
	case n.tag == "data":
		f.dataElement(n)
	case n.tag == "" && colorSequence(n.text) == len(n.text):
		f.setColor(n.text)
	default:
		f.write(n.text)
	}
}

func (f *markupFilter) symbolElement(n *markupNode) {
	if f.hasFields(n, 1) {
		f.highlight()
		f.write(f.out.name(demangleLLVM(n.fields[0])))
		f.restoreColor()
	}
}

// invalid stands for a name or a file that is not known.
const invalid = "<invalid>"

func known(s string) string {
	if s == "" {
		return invalid
	}
	return s
}

// nameOf returns the name of a frame's function as it is printed.
func (f *markupFilter) nameOf(shown *frame) string {
	if f.functions == noNames {
		return invalid
	}
	return known(f.printer.name(shown))
}

func (f *markupFilter) pc(n *markupNode) {
	if !f.hasAtLeast(n, 1) {
		return
	}
	f.warnAtMost(n, 2)
	v, m, ok := f.codeAddress(n, 0, 1, "pc")
	if !ok {
		return
	}
	module := f.moduleOf(n, m)
	if module == nil {
		return
	}
	frames := f.find(module, addr.Virt(v-m.start+m.from))
	if len(frames) == 0 || frames[0] == nothing[0] {
		f.raw(n)
		return
	}
	shown := frames[0]
	if f.functions == linkageNames {
		outermost := &frames[len(frames)-1]
		shown.Linkage, shown.Symbol = outermost.Linkage, outermost.Symbol
	}
	f.highlight()
	f.value(f.nameOf(&shown))
	f.write("[")
	f.value(known(f.printer.file(&shown)))
	f.write(":")
	f.value(strconv.Itoa(shown.Line))
	f.write("]")
	f.restoreColor()
}

func (f *markupFilter) backtrace(n *markupNode) {
	if !f.hasAtLeast(n, 2) {
		return
	}
	f.warnAtMost(n, 3)
	number, ok := f.number(n, 0, "frame number", 10)
	if !ok {
		return
	}
	v, m, ok := f.codeAddress(n, 1, 2, "ra")
	if !ok {
		return
	}
	module := f.moduleOf(n, m)
	if module == nil {
		return
	}
	from := v - m.start + m.from
	frames := f.find(module, addr.Virt(from))
	f.highlight()
	for i := range frames {
		label := fmt.Sprintf("%6s", "#"+strconv.FormatUint(number, 10))
		sign := strings.IndexByte(label, '#') + 1
		f.write(label[:sign])
		f.value(label[sign:])
		if i == len(frames)-1 {
			f.write("   ")
		} else {
			f.write(".")
			f.value(fmt.Sprintf("%-2d", i+1))
		}
		f.value(fmt.Sprintf(" 0x%016x ", v))
		f.backtraceFrame(&frames[i])
		f.write("(")
		f.value(m.module.name)
		f.write("+")
		f.value(fmt.Sprintf("%#x", from))
		f.write(")")
		if i < len(frames)-1 {
			f.write(f.lineEnd())
		}
	}
	f.restoreColor()
}

func (f *markupFilter) backtraceFrame(shown *frame) {
	if *shown == nothing[0] {
		return
	}
	f.value(f.out.name(f.nameOf(shown)))
	f.write(" ")
	f.value(known(f.out.name(f.printer.file(shown))))
	f.write(":")
	f.value(strconv.Itoa(shown.Line))
	f.write(":")
	f.value(strconv.Itoa(shown.Column))
	f.write(" ")
}

func (f *markupFilter) dataElement(n *markupNode) {
	if !f.hasFields(n, 1) {
		return
	}
	v, ok := f.address(n, 0)
	if !ok {
		return
	}
	m := f.mappingOf(n, v)
	if m == nil {
		return
	}
	module := f.moduleOf(n, m)
	if module == nil {
		return
	}
	at, _ := f.placeOfData(module, addr.Virt(v-m.start+m.from))
	s, _ := f.tableOf(module).at(at)
	f.highlight()
	f.write(known(f.out.name(f.printer.names.of(s.Name))))
	f.restoreColor()
}

// codeAddress reads an address of code, and what kind it is: "ra" is one behind a call.
// It returns the mapping that the address is in.
func (f *markupFilter) codeAddress(n *markupNode, field, kind int, usual string) (uint64, *markupMapping, bool) {
	v, ok := f.address(n, field)
	if !ok {
		return 0, nil, false
	}
	if len(n.fields) == kind+1 {
		usual = n.fields[kind]
	}
	switch usual {
	case "ra":
		v--
	case "pc":
	default:
		f.wrongType(n, kind, "PC type")
		return 0, nil, false
	}
	m := f.mappingOf(n, v)
	return v, m, m != nil
}

// mappingOf returns the mapping that an address is in. Without one the message points to
// the first field of the element, as that of the original does.
func (f *markupFilter) mappingOf(n *markupNode, v uint64) *markupMapping {
	at, _ := slices.BinarySearchFunc(f.mappings, v, func(m *markupMapping, v uint64) int {
		if m.start <= v {
			return -1
		}
		return 1
	})
	if at > 0 && f.mappings[at-1].holds(v) {
		return f.mappings[at-1]
	}
	f.report(n.fieldAt(0), "no mmap covers address")
	f.raw(n)
	return nil
}

// moduleOf returns the module that a mapping is of, or reports that it is not found.
func (f *markupFilter) moduleOf(n *markupNode, m *markupMapping) *module {
	id, err := buildid.New(buildid.GNU, m.module.id)
	if err == nil {
		r := request{identity: id}
		var found *module
		if found, err = f.module(f.ctx, &r); found != nil {
			return found
		}
	}
	if err == nil {
		err = errNoBuildID // that was reported before
	}
	f.out.flush()
	f.world.complain(fmt.Sprintf("error: %v", err))
	f.raw(n)
	return nil
}

// Colors of elements, and of the values in them.
const (
	colorBlue  = '4'
	colorCyan  = '6'
	colorGreen = '2'
)

func (f *markupFilter) setColor(sequence string) {
	switch {
	case sequence == "\x1b[0m":
		f.resetColor()
	case sequence == "\x1b[1m":
		f.bold = true
		f.escape("1m")
	default:
		f.color = sequence[3]
		f.changeColor(f.color, false)
	}
}

func (f *markupFilter) escape(s string) {
	if f.colored {
		f.write("\x1b[" + s)
	}
}

func (f *markupFilter) changeColor(color byte, bold bool) {
	if bold {
		f.escape("0;1;3" + string(color) + "m")
	} else {
		f.escape("0;3" + string(color) + "m")
	}
}

// highlight begins the color of an element.
func (f *markupFilter) highlight() {
	if f.color == colorBlue {
		f.changeColor(colorCyan, f.bold)
	} else {
		f.changeColor(colorBlue, f.bold)
	}
}

// value writes a value in its color.
func (f *markupFilter) value(s string) {
	f.changeColor(colorGreen, f.bold)
	f.write(s)
	f.highlight()
}

// restoreColor ends the color of an element.
func (f *markupFilter) restoreColor() {
	if f.color != 0 {
		f.changeColor(f.color, f.bold)
		return
	}
	f.escape("0m")
	if f.bold {
		f.escape("1m")
	}
}

// resetColor ends what the text says of its color.
func (f *markupFilter) resetColor() {
	if f.color == 0 && !f.bold {
		return
	}
	f.color, f.bold = 0, false
	f.escape("0m")
}

// raw writes an element as it is, in brackets of another kind.
func (f *markupFilter) raw(n *markupNode) {
	f.highlight()
	f.write("[[[")
	f.value(n.tag)
	for _, field := range n.fields {
		f.write(":")
		f.value(field)
	}
	f.write("]]]")
	f.restoreColor()
}

func (f *markupFilter) lineEnd() string {
	if strings.HasSuffix(f.line, "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// address reads a field that is an address.
func (f *markupFilter) address(n *markupNode, field int) (uint64, bool) {
	s := n.fields[field]
	if s != "" && strings.Trim(s, "0") == "" {
		return 0, true
	}
	digits, ok := strings.CutPrefix(s, "0x")
	var v uint64
	if ok {
		v, ok = parseNumber(digits, 16)
	}
	if !ok {
		f.wrongType(n, field, "address")
	}
	return v, ok
}

// number reads a field that is a number.
func (f *markupFilter) number(n *markupNode, field int, kind string, base int) (uint64, bool) {
	v, ok := parseNumber(n.fields[field], base)
	if !ok {
		f.wrongType(n, field, kind)
	}
	return v, ok
}

func (f *markupFilter) wrongType(n *markupNode, field int, kind string) {
	f.report(n.fieldAt(field), fmt.Sprintf("expected %s; found '%s'", kind, n.fields[field]))
}

// hasFields reports whether an element has so many fields. To have more is worth a
// warning.
func (f *markupFilter) hasFields(n *markupNode, want int) bool {
	if len(n.fields) == want {
		return true
	}
	level := "error"
	if len(n.fields) > want {
		level = "warning"
	}
	f.complainAt(n.tagEnd(), level, fmt.Sprintf("expected %d field(s); found %d", want, len(n.fields)))
	return len(n.fields) > want
}

func (f *markupFilter) hasAtLeast(n *markupNode, want int) bool {
	if len(n.fields) < want {
		f.report(n.tagEnd(), fmt.Sprintf("expected at least %d field(s); found %d", want, len(n.fields)))
		return false
	}
	return true
}

func (f *markupFilter) warnAtMost(n *markupNode, want int) {
	if len(n.fields) > want {
		f.complainAt(n.tagEnd(), "warning", fmt.Sprintf("expected at most %d field(s); found %d", want, len(n.fields)))
	}
}

func (f *markupFilter) report(at int, msg string) { f.complainAt(at, "error", msg) }

// complainAt writes a message and points to a place of the line.
func (f *markupFilter) complainAt(at int, level, msg string) {
	f.out.flush()
	fmt.Fprintf(f.world.Stderr, "%s: %s\n%s%s^\n", level, msg, f.line, strings.Repeat(" ", at))
}
