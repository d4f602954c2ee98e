package symbolize

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// markup knows LLVM's symbolizer markup (llvm.org/docs/SymbolizerMarkupFormat.html),
// which Fuchsia and the sanitizers print:
//
//	{{{module:0:libc.so:elf:93ac61ec5a8eb1396f9fbd350e3169a558528a40}}}
//	{{{mmap:0x7f20c9d91000:0x1550fc:load:0:rx:0x26000}}}
//	{{{bt:1:0x7f20c9d92249:ra}}}
//	{{{pc:0x7f20c9d92249}}}
//
// Addresses are those of the process; of module and mmap, which stay in the text,
// follows where in a file they are. Backtraces are written as llvm-symbolizer
// --filter-markup does.
type markup struct {
	*resolver
	modules map[string]markupModule
	mmaps   []markupMmap // in the order of addresses, none over another
}

type markupModule struct {
	name string
	id   buildid.ID
}

// markupMmap is a segment of a module in memory.
type markupMmap struct {
	start, end uint64
	module     string
	virt       uint64 // address of its start in the module
}

// maxMarkup bounds how many modules and segments are remembered.
const maxMarkup = 1 << 16

func (m *markup) rewrite(line string) ([]string, bool) {
	before, element, after, ok := cutElement(line)
	if !ok {
		return nil, false
	}
	fields := strings.Split(element, ":")
	switch fields[0] {
	case "reset":
		m.modules, m.mmaps = nil, nil
	case "module":
		m.readModule(fields[1:])
	case "mmap":
		m.readMmap(fields[1:])
	case "bt":
		return m.backtrace(line, before, fields[1:], after), true
	case "pc":
		return []string{m.inline(line)}, true
	}
	return []string{line}, true
}

// cutElement finds the first element in a line.
func cutElement(line string) (before, element, after string, ok bool) {
	before, rest, _ := strings.Cut(line, "{{{")
	element, after, ok = strings.Cut(rest, "}}}")
	if !ok {
		return line, "", "", false
	}
	return before, element, after, true
}

// readModule reads "0:libc.so:elf:93ac…".
func (m *markup) readModule(fields []string) {
	if len(fields) < 4 || fields[2] != "elf" || len(m.modules) >= maxMarkup || len(fields[0])+len(fields[1]) > maxPath {
		return
	}
	id, err := buildid.Parse(fields[3])
	if err != nil {
		return
	}
	if m.modules == nil {
		m.modules = map[string]markupModule{}
	}
	m.modules[strings.Clone(fields[0])] = markupModule{strings.Clone(fields[1]), id}
}

// readMmap reads "0x7f20c9d91000:0x1550fc:load:0:rx:0x26000".
func (m *markup) readMmap(fields []string) {
	if len(fields) < 6 || fields[2] != "load" || len(m.mmaps) >= maxMarkup || len(fields[3]) > maxPath {
		return
	}
	start, err1 := strconv.ParseUint(fields[0], 0, 64)
	size, err2 := strconv.ParseUint(fields[1], 0, 64)
	virt, err3 := strconv.ParseUint(fields[5], 0, 64)
	if err1 != nil || err2 != nil || err3 != nil || size == 0 || start+size < start {
		return
	}
	s := markupMmap{start: start, end: start + size, module: strings.Clone(fields[3]), virt: virt}
	at, _ := m.search(s.start)
	if at < len(m.mmaps) && m.mmaps[at].start < s.end {
		return // the format forbids it
	}
	m.mmaps = slices.Insert(m.mmaps, at, s)
}

// search returns the first segment that ends behind an address.
func (m *markup) search(a uint64) (int, bool) {
	return slices.BinarySearchFunc(m.mmaps, a, func(s markupMmap, a uint64) int {
		if s.end <= a {
			return -1
		}
		return 1
	})
}

// place returns where in its file an address is.
func (m *markup) place(a uint64) (place, bool) {
	at, _ := m.search(a)
	if at == len(m.mmaps) || a < m.mmaps[at].start {
		return place{}, false
	}
	s := m.mmaps[at]
	module, ok := m.modules[s.module]
	return place{module: module.name, id: module.id, at: a - s.start + s.virt}, ok
}

// backtrace writes a frame: "1:0x7f20c9d92249:ra". The frame's number, its address, and
// whether that is a return address, as all are taken to be that are not the first.
func (m *markup) backtrace(line, before string, fields []string, after string) []string {
	if len(fields) < 2 {
		return []string{line}
	}
	a, err := strconv.ParseUint(fields[1], 0, 64)
	if err != nil {
		return []string{line}
	}
	caller := len(fields) > 2 && fields[2] == "ra" || len(fields) == 2 && fields[0] != "0"
	p, r := m.answer(a, caller)
	if caller {
		a, p.at = a-1, p.at-1
	}
	var lines []string
	for i := range r.Frames {
		number := fields[0]
		if inner := len(r.Frames) - 1 - i; inner > 0 {
			number += "." + strconv.Itoa(inner)
		}
		fn := &r.Frames[i]
		where := cmp.Or(sourceLine(fn), "??")
		lines = append(lines, fmt.Sprintf("%s    #%-4s 0x%016x %s %s (%s+%#x)%s",
			before, number, a, clean(fn.Func), where, p.module, p.at, after))
	}
	if lines == nil {
		return []string{line}
	}
	return lines
}

// answer answers for an address and counts it.
func (m *markup) answer(a uint64, caller bool) (place, symbol.Result) {
	p, ok := m.place(a)
	if !ok {
		m.tally.add("", reason.NotMapped)
		return p, symbol.Miss(reason.NotMapped)
	}
	p.caller = caller
	return p, m.lookup(p)
}

// inline replaces the addresses in a line by what is there.
func (m *markup) inline(line string) string {
	var out strings.Builder
	for {
		before, element, after, ok := cutElement(line)
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		out.WriteString(m.pc(element))
		line = after
	}
}

// pc returns what stands for an element: "pc:0x7f20c9d92249:ra".
func (m *markup) pc(element string) string {
	fields := strings.Split(element, ":")
	as := "{{{" + element + "}}}"
	if len(fields) < 2 || fields[0] != "pc" {
		return as
	}
	a, err := strconv.ParseUint(fields[1], 0, 64)
	if err != nil {
		return as
	}
	_, r := m.answer(a, len(fields) > 2 && fields[2] == "ra")
	if len(r.Frames) == 0 {
		return as
	}
	fn := r.Frames[0]
	fn.Column = 0 // as llvm-symbolizer has it
	return clean(fn.Func) + "[" + cmp.Or(sourceLine(&fn), "??") + "]"
}
