package dwarftest

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"hallmark/internal/elftest"
)

// object is a file in the making: the program, one that units were split off to, or the
// supplementary file.
type object struct {
	g   *generator
	dwo bool

	units         []*unit
	abbreviations []*abbreviations
	strTables     []*indexTable
	addrTables    []*indexTable
	lists         []*listTable

	info, types, abbrev, line, strOffsets, addr, ranges, rnglists, aranges buffer
	str, lineStr                                                           *stringSection
}

func (g *generator) newObject() *object {
	o := &object{g: g, str: &stringSection{}, lineStr: &stringSection{}}
	for _, b := range []*buffer{&o.info, &o.types, &o.abbrev, &o.line, &o.strOffsets, &o.addr, &o.ranges, &o.rnglists, &o.aranges, &o.str.buffer, &o.lineStr.buffer} {
		b.big = g.big
		if g.oneIn(6) && b != &o.info && b != &o.types && b != &o.strOffsets && b != &o.rnglists && b != &o.addr && b != &o.aranges {
			b.bytes(make([]byte, 8*g.IntN(pick(g, 3, 300)))) // nobody refers to it
		}
	}
	o.str.str("beginning")
	o.lineStr.str("beginning")
	return o
}

// layout is the files of the program.
type layout struct {
	main, sup *object
	shared    []*unit // that entries of other units can be in
	split     []*unit
	dwoNames  []string
	pack      bool // units that were split off are in a package
	packed    int  // of which version
	lines     []func()
}

// encode makes the files of the model.
func (g *generator) encode() {
	l := &g.layout
	l.main = g.newObject()
	l.pack, l.packed = g.oneIn(2), pick(g, 4, 5)
	if g.oneIn(5) {
		l.sup = g.newObject()
		for range 1 + g.IntN(2) {
			l.sup.newUnit(unitPartial, pick(g, 3, 4, 5), g.offset(), tagPartialUnit)
		}
	}
	for range pick(g, 0, 0, 0, 1, 2) {
		u := l.main.newUnit(unitPartial, pick(g, 3, 4, 5), g.offset(), tagPartialUnit)
		u.useTables()
		u.setBases()
		l.shared = append(l.shared, u)
		g.trait("partial unit")
	}
	var filled []*unit
	for _, c := range g.units {
		filled = append(filled, g.planUnit(c))
	}
	for _, u := range filled {
		u.fill()
		if len(l.shared) > 0 && !u.split && g.oneIn(2) {
			to := pick(g, l.shared...).root
			u.root.add(&entry{tag: tagImportedUnit}).setReference(atImport, to)
		}
	}
	g.typeUnits()
	for g.oneIn(6) {
		g.trait("empty unit")
		version := pick(g, 2, 3, 4, 5)
		l.main.newUnit(unitCompile, version, pick(g, 4, map[int]int{2: 4, 3: 8, 4: 8, 5: 8}[version]), tagCompileUnit)
	}
	g.writeAll()
	g.build()
}

// offset returns the bytes of an offset: 8 in 64-bit DWARF.
func (g *generator) offset() int { return pick(g, 4, 4, 8) }

// planUnit makes the unit of a compilation, which has no entries yet. If it is split
// off, that is the part in the other file.
func (g *generator) planUnit(c *compilation) *unit {
	l := &g.layout
	version, offset := pick(g, 2, 3, 4, 4, 5, 5, 5), g.offset()
	if version == 2 {
		offset = 4
	}
	split := version >= 4 && g.oneIn(4) && (!l.pack || version == l.packed)
	if split && !l.pack {
		if c.dir = pick(g, c.dir, ".", "."); c.dir != "." {
			g.trait("split units elsewhere")
		}
	}
	lines := g.planLines(c, l.main, pick(g, map[int][]int{2: {2, 2, 3}, 3: {3, 3, 2, 4}, 4: {4, 4, 2, 3, 5}, 5: {5, 5, 5, 5, 3, 4}}[version]...))
	kind, tag := unitCompile, uint64(tagCompileUnit)
	if split && version >= 5 {
		kind, tag = unitSkeleton, tagSkeletonUnit
	}
	u := l.main.newUnit(kind, version, offset, tag)
	u.compilation = c
	var at int
	l.lines = append(l.lines, func() { at = lines.write() })
	u.root.set(atStmtList, func(u *unit) *value { return u.place(func() uint64 { return uint64(at) }) })
	u.useTables()
	if c.dir != "" {
		u.root.setString(atCompDir, c.dir)
	}
	if split {
		return g.planSplit(u)
	}
	u.setBases()
	u.claim()
	u.describeOwn()
	l.shared = append(l.shared, u)
	return u
}

// planSplit makes the unit that is split off from a skeleton.
func (g *generator) planSplit(skeleton *unit) *unit {
	l := &g.layout
	o := g.newObject()
	o.dwo = true
	if l.pack {
		g.trait("package")
		if o.abbrev.len() > 0 && !g.oneIn(4) {
			o.abbrev.b = nil
		}
		if o.abbrev.len() > 0 {
			g.trait("package with an offset of abbreviations")
		}
		if len(l.split) > 0 {
			o.str = l.split[0].str // the strings of all are in one section
		}
	}
	u := o.newUnit(unitSplitCompile, skeleton.version, skeleton.offset, tagCompileUnit)
	u.compilation, u.skeleton, u.id = skeleton.compilation, skeleton, g.Uint64()
	skeleton.id = u.id
	u.useTables()
	if skeleton.addrx == nil && skeleton.version >= 5 || skeleton.version < 5 {
		skeleton.addrx = u.addrx
	}
	u.addrx = skeleton.addrx
	g.trait(fmt.Sprintf("split %d", u.version))
	if u.offset == 8 {
		g.trait("split 64-bit DWARF")
	}
	name := fmt.Sprintf("%s-%d.dwo", g.Main, len(l.split))
	l.split, l.dwoNames = append(l.split, u), append(l.dwoNames, name)
	e := skeleton.root
	if skeleton.version >= 5 {
		e.setString(atDwoName, name)
	} else {
		id := func(u *unit) *value { return u.value(formData8).with(u.id, 8) }
		e.setString(atGNUDwoName, name).set(atGNUDwoID, id)
		u.root.set(atGNUDwoID, id)
		e.set(atGNUAddrBase, func(u *unit) *value { return u.place(u.addrx.label.offset) })
		if g.oneIn(2) {
			l.main.ranges.bytes(make([]byte, 8*g.IntN(5)))
			u.rangesBase = 8 * g.IntN(1+l.main.ranges.len()/8)
			e.set(atGNURangesBase, func(s *unit) *value { return s.place(func() uint64 { return uint64(u.rangesBase) }) })
		}
	}
	skeleton.setBases()
	skeleton.claim()
	u.base, u.hasBase = skeleton.base, skeleton.hasBase
	u.describeOwn()
	return u
}

// typeUnits adds units of types.
func (g *generator) typeUnits() {
	objects := []*object{g.layout.main}
	if !g.layout.pack {
		for _, u := range g.layout.split {
			objects = append(objects, u.object)
		}
	}
	for _, o := range objects {
		if !g.oneIn(4) {
			continue
		}
		version := pick(g, 4, 5)
		kind := unitType
		if o.dwo {
			version, kind = o.units[0].version, unitSplitType
		}
		for range 1 + g.IntN(2) {
			u := o.newUnit(kind, version, g.offset(), tagTypeUnit)
			if o.dwo {
				u.offset = o.units[0].offset
				u.strx, u.addrx, u.lists = o.units[0].strx, o.units[0].addrx, o.units[0].lists
			}
			u.id = g.Uint64()
			u.root.setNumber(atLanguage, langCxx)
			u.lang = langCxx
			t := u.root.add(&entry{tag: tagClassType}).setString(atName, g.name("T"))
			t.add(&entry{tag: tagSubprogram}).setString(atName, g.name("member")).set(atDeclaration, (*unit).flag)
			if g.trait(fmt.Sprintf("type unit %d", version)); version < 5 {
				u.section = &o.types
			}
		}
	}
}

// writeAll writes all sections.
func (g *generator) writeAll() {
	l := &g.layout
	shuffle(g, l.lines)
	for _, write := range l.lines {
		write()
	}
	objects := []*object{l.main}
	if l.sup != nil {
		objects = append(objects, l.sup)
	}
	for _, u := range l.split {
		objects = append(objects, u.object)
	}
	for _, o := range objects {
		if !o.dwo {
			shuffle(g, o.units)
		}
		for _, u := range o.units {
			u.writeUnit()
		}
		for _, t := range o.abbreviations {
			t.write()
		}
	}
	for _, o := range objects {
		shuffle(g, o.strTables)
		for _, t := range o.strTables {
			t.writeStrings()
		}
		shuffle(g, o.addrTables)
		for _, t := range o.addrTables {
			t.writeAddresses(g.word)
		}
		shuffle(g, o.lists)
		for _, t := range o.lists {
			t.write(g.word)
		}
	}
	g.writeAranges()
	for i := range g.fixups {
		g.fixups[i].apply()
	}
}

// writeAranges writes .debug_aranges, for all units or some.
func (g *generator) writeAranges() {
	most := pick(g, 0, 1, 100, 100)
	if most < 100 {
		g.trait("not all aranges")
	}
	for i, u := range g.layout.main.units {
		if u.compilation == nil || i >= most || len(u.spans) == 0 {
			continue
		}
		g.trait("aranges")
		b := &g.layout.main.aranges
		start := b.len()
		done := b.length(u.offset)
		b.num(2, 2)
		b.num(uint64(u.start.at), u.offset)
		b.u8(g.word)
		b.u8(0)
		for (b.len()-start)%(2*g.word) != 0 {
			b.u8(0)
		}
		for _, s := range u.spans {
			b.num(s.low, g.word)
			b.num(s.high-s.low, g.word)
		}
		b.num(0, g.word)
		b.num(0, g.word)
		done()
	}
}

// build makes the ELF files.
func (g *generator) build() {
	l := &g.layout
	sections := l.main.sections("")
	if l.sup != nil {
		name := g.Main + ".sup"
		id := make([]byte, 20)
		copy(id, name)
		g.Files[name] = g.elf(append(l.sup.sections(""), elftest.NoteSection(".note.gnu.build-id", 0, 4, elftest.Notes(g.order(), 4, elftest.GNU(id)))), false)
		sections = append(sections, elftest.Section{Name: ".gnu_debugaltlink", Type: elf.SHT_PROGBITS, Data: append(append([]byte(name), 0), id...)})
	}
	for i, u := range l.split {
		if !l.pack {
			g.Files[l.dwoNames[i]] = g.elf(u.object.sections(".dwo"), false)
		}
	}
	if l.pack && len(l.split) > 0 {
		g.Files[g.Main+".dwp"] = g.elf(l.packageSections(g), false)
	}
	g.Files[g.Main] = g.elf(sections, true)
}

func (g *generator) order() binary.ByteOrder {
	if g.big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// sections returns the debug sections of an object.
func (o *object) sections(suffix string) []elftest.Section {
	g := o.g
	var sections []elftest.Section
	style := pick(g, "", "", "", "zlib", "zstd", "zdebug", "mixed")
	for _, s := range []struct {
		name string
		data []byte
	}{
		{"info", o.info.b}, {"types", o.types.b}, {"abbrev", o.abbrev.b}, {"line", o.line.b}, {"str", o.str.b}, {"line_str", o.lineStr.b},
		{"str_offsets", o.strOffsets.b}, {"addr", o.addr.b}, {"ranges", o.ranges.b}, {"rnglists", o.rnglists.b}, {"aranges", o.aranges.b},
	} {
		if len(s.data) == 0 || o.dwo && (s.name == "line" || s.name == "line_str") {
			continue
		}
		how := style
		if how == "mixed" {
			how = pick(g, "", "zlib", "zstd")
		}
		sections = append(sections, g.section(s.name+suffix, s.data, how))
	}
	return sections
}

// Writers that compress sections are used again: a new one takes longer than a program.
var (
	zlibWriters = sync.Pool{New: func() any {
		w, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
		if err != nil {
			panic(err) // the level is constant
		}
		return w
	}}
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(64<<10), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err) // its options are constant
		}
		return w
	})
)

// section returns a section of debug information, compressed or not.
func (g *generator) section(name string, data []byte, how string) elftest.Section {
	s := elftest.Section{Name: ".debug_" + name, Type: elf.SHT_PROGBITS, Data: data}
	var packed bytes.Buffer
	if how == "zlib" || how == "zdebug" {
		w := zlibWriters.Get().(*zlib.Writer)
		w.Reset(&packed)
		w.Write(data)
		w.Close()
		zlibWriters.Put(w)
	}
	head := buffer{big: g.big}
	switch how {
	case "":
		return s
	case "zdebug":
		s.Name = ".zdebug_" + name
		head.bytes([]byte("ZLIB"))
		head.big = true
		head.num(uint64(len(data)), 8)
	default:
		kind := uint64(1)
		if how == "zstd" {
			kind = 2
			packed.Write(zstdEncoder().EncodeAll(data, nil))
		}
		s.Flags = elf.SHF_COMPRESSED
		head.num(kind, 4)
		if g.is64 {
			head.num(0, 4)
		}
		head.num(uint64(len(data)), g.word)
		head.num(1, g.word)
		s.Align = uint64(g.word)
	}
	g.trait(how)
	s.Data = append(head.b, packed.Bytes()...)
	return s
}

// elf returns an ELF file with these sections, in any order; with code, if it has it.
func (g *generator) elf(sections []elftest.Section, code bool) []byte {
	f := elftest.File{Class: elf.ELFCLASS32, Order: g.order(), Type: pick(g, elf.ET_EXEC, elf.ET_EXEC, elf.ET_DYN)}
	if f.Machine = elf.EM_386; g.big {
		f.Machine = elf.EM_PPC
	}
	if g.is64 {
		f.Class = elf.ELFCLASS64
		if f.Machine = elf.EM_X86_64; g.big {
			f.Machine = elf.EM_S390
		}
	}
	if code {
		for i, t := range g.text {
			name := fmt.Sprintf(".text%d", i)
			at := g.IntN(len(sections) + 1)
			sections = slices.Insert(sections, at, elftest.Section{
				Name: name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: t.low, Data: make([]byte, t.high-t.low),
			})
			f.Segments = append(f.Segments, elftest.Segment{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: name, Align: 1})
		}
	}
	if g.oneIn(2) {
		shuffle(g, sections)
	}
	f.Sections = sections
	if code {
		f.Symbols = g.symbols(sections)
	}
	return f.Build()
}

// symbols returns the symbols of the code.
func (g *generator) symbols(sections []elftest.Section) (symbols []elf.Symbol) {
	for _, u := range g.units {
		for _, s := range u.scopes {
			for i, name := range s.symbols {
				if name == "" {
					continue
				}
				p := s.spans[i]
				in := slices.IndexFunc(sections, func(s elftest.Section) bool {
					return s.Flags&elf.SHF_EXECINSTR != 0 && s.Addr <= p.low && p.low < s.Addr+uint64(len(s.Data))
				})
				symbols = append(symbols, elf.Symbol{
					Name: name, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Section: elf.SectionIndex(in + 1), Value: p.low, Size: p.high - p.low,
				})
			}
		}
	}
	shuffle(g, symbols)
	return symbols
}
