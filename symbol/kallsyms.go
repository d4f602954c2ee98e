package symbol

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"slices"

	"hallmark/addr"
	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
	"hallmark/internal/symtab"
	"hallmark/reason"
)

// maxKernelGap is how far a kernel symbol may reach, since the kernel reports no
// sizes. The largest functions have a third of it; wider gaps are the ends of
// sections and of modules.
const maxKernelGap = 64 << 10

// Kallsyms answers for the kernel, its modules and its BPF programs.
//
// An address belongs to the nearest symbol of code at or below it. Which of several
// at one place is decided as in an ELF symbol table.
type Kallsyms struct {
	ranges  ranges.List // values are indices of symbols
	symbols []kernelSymbol
	names   string
	modules []string // modules[0] is "", the kernel itself

	text, stext, etext addr.Abs
	hidden             bool
	damaged            int
}

// kernelSymbol is a symbol of kernel code.
type kernelSymbol struct {
	name   uint32 // in the names
	module uint32 // in the modules
}

// ReadKallsyms reads the format of /proc/kallsyms (the kernel's
// kernel/kallsyms.c): lines of ADDRESS TYPE NAME and, for what is not in the kernel
// image, a tab and [MODULE]. Damaged lines are counted and skipped.
func ReadKallsyms(r io.Reader) (k *Kallsyms, err error) {
	defer containPanic("kallsyms", &err)
	b := newKallsymsBuilder()
	var spans []ranges.Span
	err = b.read(r, func(s kallsymsLine) {
		spans = append(twice(spans), b.span(s))
	})
	if err != nil {
		return nil, err
	}
	return b.finish(spans), nil
}

// ReadKallsymsAt reads the same, but only what answers for these addresses, in
// memory for as many symbols. For any other address what is returned may know no
// symbol.
func ReadKallsymsAt(r io.Reader, addresses []addr.Abs) (k *Kallsyms, err error) {
	defer containPanic("kallsyms", &err)
	b := newKallsymsBuilder()
	n := newNearest(addresses)
	if err := b.read(r, n.offer); err != nil {
		return nil, err
	}
	return b.finish(n.spans(b)), nil
}

// Lookup answers for the instruction at an absolute address of the kernel.
func (k *Kallsyms) Lookup(a addr.Abs) (r Result) {
	defer containMiss(&r)
	s, ok := k.find(a)
	if !ok {
		return Miss(k.missReason())
	}
	linkage := elffile.StringAt(k.names, s.name)
	return Result{Frames: []Frame{{Func: Demangle(linkage), Linkage: linkage}}, Source: SourceKallsyms}
}

// Module returns which part of the kernel the code at an address belongs to: ""
// for the kernel image, the name of a module, "bpf" for a BPF program. It is
// false where Lookup knows no symbol.
func (k *Kallsyms) Module(a addr.Abs) (string, bool) {
	s, ok := k.find(a)
	return k.modules[s.module], ok
}

func (k *Kallsyms) find(a addr.Abs) (kernelSymbol, bool) {
	i, ok := k.ranges.Find(uint64(a))
	if !ok {
		return kernelSymbol{}, false
	}
	return k.symbols[k.ranges.Values[i]], true
}

func (k *Kallsyms) missReason() reason.Reason {
	switch {
	case k.hidden:
		return reason.KernelHidden
	case k.Len() == 0:
		return reason.NoSymbolTable
	default:
		return reason.NoSymbol
	}
}

// Text returns the address of _text, the start of the kernel image; 0 when it is
// not known. The distance of the kernel's code from it is the same on every boot,
// with KASLR too.
func (k *Kallsyms) Text() addr.Abs { return k.text }

// Stext returns the address of _stext, the start of the kernel image's code; 0
// when it is not known.
func (k *Kallsyms) Stext() addr.Abs { return k.stext }

// Etext returns the address of _etext, the end of the kernel image's code that
// stays after boot; 0 when it is not known.
func (k *Kallsyms) Etext() addr.Abs { return k.etext }

// Len returns the number of code ranges.
func (k *Kallsyms) Len() int { return len(k.ranges.Starts) }

// Hidden reports whether the kernel hides its addresses: all are zero.
func (k *Kallsyms) Hidden() bool { return k.hidden }

// Damaged returns the number of lines that were skipped.
func (k *Kallsyms) Damaged() int { return k.damaged }

// kallsymsBuilder is a Kallsyms that is being read.
type kallsymsBuilder struct {
	*Kallsyms
	table symtab.Names
	index map[string]uint32 // of a module
}

// kallsymsLine is a line of the file. Name and module are only valid until the
// next one.
type kallsymsLine struct {
	start        uint64
	rank         uint8
	name, module []byte
}

func newKallsymsBuilder() *kallsymsBuilder {
	return &kallsymsBuilder{
		Kallsyms: &Kallsyms{modules: []string{""}},
		index:    map[string]uint32{"": 0},
	}
}

// read calls f with each line that has an address.
func (b *kallsymsBuilder) read(r io.Reader, f func(kallsymsLine)) error {
	lines, told := 0, 0
	err := eachLine(r, func(line []byte) {
		a, typ, name, module, ok := parseKallsymsLine(line)
		if !ok {
			b.damaged++
			return
		}
		lines++
		if a == 0 {
			return
		}
		told++
		b.noteBound(name, addr.Abs(a))
		f(kallsymsLine{a, kernelRank(typ), name, module})
	})
	b.hidden = lines > 0 && told == 0
	return err
}

// span keeps the symbol of a line, if it is one of code.
func (b *kallsymsBuilder) span(l kallsymsLine) ranges.Span {
	s := ranges.Span{Start: l.start, Rank: l.rank, Unsized: true}
	if s.Rank != ranges.Hidden {
		s.Value = uint32(len(b.symbols))
		b.symbols = append(twice(b.symbols), kernelSymbol{b.table.Add(l.name), b.moduleIndex(l.module)})
	}
	return s
}

// twice makes a full slice twice as long. How many symbols there are is only known at their end,
// and append, which adds a quarter to what is long, would copy them five times.
func twice[T any](s []T) []T {
	if len(s) == cap(s) {
		return slices.Grow(s, max(len(s), 1<<10))
	}
	return s
}

func parseKallsymsLine(line []byte) (a uint64, typ byte, name, module []byte, ok bool) {
	a, rest, ok := cutHex(line)
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return 0, 0, nil, nil, false
	}
	name, module, _ = bytes.Cut(rest[2:], []byte("\t"))
	if len(module) > 0 {
		module = bytes.Trim(module, "[]")
	}
	return a, rest[0], name, module, isName(name)
}

// noteBound keeps the addresses of the symbols that bound the kernel's code.
func (b *kallsymsBuilder) noteBound(name []byte, a addr.Abs) {
	switch string(name) {
	case "_text":
		b.text = a
	case "_stext":
		b.stext = a
	case "_etext":
		b.etext = a
	}
}

// moduleIndex returns where a module is in the list, at its end if it is new.
func (b *kallsymsBuilder) moduleIndex(name []byte) uint32 {
	i, ok := b.index[string(name)]
	if !ok {
		i = uint32(len(b.modules))
		b.modules = append(b.modules, string(name))
		b.index[string(name)] = i
	}
	return i
}

// finish sorts what was read.
func (b *kallsymsBuilder) finish(spans []ranges.Span) *Kallsyms {
	k := b.Kallsyms
	k.names = b.table.String()
	slices.SortFunc(spans, ranges.ByStart)
	for i := range spans {
		s := &spans[i]
		s.End = s.Start + min(maxKernelGap, math.MaxUint64-s.Start)
	}
	k.ranges = ranges.Flatten(ranges.SettleUnsized(spans), k.prefer)
	k.symbols = slices.Clip(k.symbols)
	return k
}

// prefer orders symbols with the same address.
func (k *Kallsyms) prefer(a, b *ranges.Span) int {
	if a.Rank != b.Rank || a.Rank == ranges.Hidden {
		return cmp.Compare(a.Rank, b.Rank)
	}
	return symtab.CompareNames(elffile.StringAt(k.names, k.symbols[a.Value].name), elffile.StringAt(k.names, k.symbols[b.Value].name))
}

// kernelRank orders symbols by binding from their type, as nm writes it; data is
// hidden.
func kernelRank(typ byte) uint8 {
	switch typ {
	case 'T', 'W', 'w':
		return 0
	case 't':
		return 1
	default:
		return ranges.Hidden
	}
}

// nearest finds the symbols of the kernel that some addresses belong to, in one
// pass over all symbols in any order. Between two of the addresses only the last
// symbol counts: it is the nearest one for the upper address, and for all above
// it as long as no other is nearer.
type nearest struct {
	addresses []uint64 // sorted, each once
	found     []candidate
	at        int // where the last symbol was, since most come sorted
}

// candidate is the last symbol up to an address and above the one before, as far
// as they were seen. Its start is 0 where there was none.
type candidate struct {
	start        uint64
	rank         uint8
	name, module []byte // its own copies
}

func newNearest(addresses []addr.Abs) *nearest {
	distinct := ranges.Distinct(addresses)
	return &nearest{addresses: distinct, found: make([]candidate, len(distinct))}
}

// offer takes the next symbol.
func (n *nearest) offer(l kallsymsLine) {
	if !n.isAt(n.at, l.start) {
		n.at, _ = slices.BinarySearch(n.addresses, l.start)
	}
	if n.at == len(n.addresses) {
		return // above all addresses
	}
	c := &n.found[n.at]
	if l.start < c.start || l.start == c.start && !l.betterThan(c) {
		return
	}
	c.start, c.rank = l.start, l.rank
	c.name, c.module = append(c.name[:0], l.name...), append(c.module[:0], l.module...)
}

// isAt reports whether address i is the first one from v on.
func (n *nearest) isAt(i int, v uint64) bool {
	return (i == 0 || n.addresses[i-1] < v) && (i == len(n.addresses) || v <= n.addresses[i])
}

// betterThan is the order of Kallsyms.prefer.
func (l *kallsymsLine) betterThan(c *candidate) bool {
	if l.rank != c.rank || l.rank == ranges.Hidden {
		return l.rank < c.rank
	}
	return symtab.CompareNames(string(l.name), string(c.name)) < 0
}

// spans returns what was found, and has b keep the names.
func (n *nearest) spans(b *kallsymsBuilder) []ranges.Span {
	var spans []ranges.Span
	for _, c := range n.found {
		if c.start != 0 {
			spans = append(spans, b.span(kallsymsLine(c)))
		}
	}
	return spans
}

// errNoKernelText says that an index of the kernel cannot be made.
var errNoKernelText = errors.New("the kernel does not say where its code is")

// Index makes an index of the kernel image, for whoever has offsets in it later or
// elsewhere. They count from _text, as they do in profiles, and so do virtual
// addresses: where the kernel lay is another place on each boot.
//
// It says less than an index of the kernel's debug file, which has the same identity
// and knows lines: Sources distinguishes them, and what is kept under an identity should
// have the better ones.
func (k *Kallsyms) Index(opt IndexOptions) (*Index, error) {
	if k.text == 0 || k.etext <= k.text {
		return nil, &FormatError{Name: kernelName, Err: errNoKernelText}
	}
	return k.index(kernelName, "", k.text, k.etext, opt)
}

const kernelName = "[kernel]"

// IndexModule makes an index of a module that lies from start to end, which
// /proc/modules reports. Offsets and virtual addresses count from start.
func (k *Kallsyms) IndexModule(module string, start, end addr.Abs, opt IndexOptions) (*Index, error) {
	if module == "" || end <= start {
		return nil, &FormatError{Name: "[" + module + "]", Err: errNoKernelText}
	}
	return k.index("["+module+"]", module, start, end, opt)
}

func (k *Kallsyms) index(name, module string, start, end addr.Abs, opt IndexOptions) (*Index, error) {
	size := uint64(end - start)
	t := &symtab.Table{Names: k.names, Ranges: ranges.WithRoom(k.Len())}
	for i, v := range k.ranges.Starts {
		s := k.symbols[k.ranges.Values[i]]
		if k.modules[s.module] == module && v-uint64(start) < size {
			low := v - uint64(start)
			t.Ranges.Add(low, min(low+uint64(k.ranges.Sizes[i]), size), s.name)
		}
	}
	code := elffile.Section{Type: elffile.SHT_PROGBITS, Flags: elffile.SHF_ALLOC | elffile.SHF_EXECINSTR, Size: size}
	file := &File{image: &elffile.Image{Name: name, Sections: []elffile.Section{code}, Segments: []Segment{code.Segment()}}}
	file.add(SourceKallsyms, func([]addr.Virt) (finder, error) { return t, nil })
	opt.NoColumns = true
	return file.Index(opt)
}
