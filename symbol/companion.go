package symbol

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"sync"

	"hallmark/internal/cursor"
	"hallmark/internal/dwarf"
	"hallmark/internal/elffile"
)

// A Companion is another file that holds a part of a file's debug information.
type Companion struct {
	From    string // name of the file that refers to it
	Path    string // where it is said to be
	Name    string // as From has it: Path, or what Path has behind a directory; "" for a package
	BuildID []byte // of the supplementary file that dwz made; nil where none is said

	// Package says that a package of split units (.dwp) is wanted, which no file names:
	// it lies beside From or the file with this name, whose debug file From may be.
	Package string

	// Refused are the names of the packages that were opened before, and that do not
	// have a unit with the ID that is wanted.
	Refused []string
}

// companions are the files that the debug information of a file refers to, once they
// are needed: units split off into .dwo files or a .dwp file, and the supplementary
// file of dwz.
type companions struct {
	image   *elffile.Image
	program string // name of the file whose code it is
	open    func(Companion) *File
	threads int // see IndexOptions

	mu       sync.Mutex
	packs    []*splitPackage // in the order in which they were found
	opened   []string        // their names, and those of other files in their places
	looked   bool            // there are no more
	acquired []func() error  // what gives everything back
}

// close gives back what was opened.
func (c *companions) close() {
	for _, f := range c.acquired {
		f()
	}
}

// find opens a file, for as long as c.
func (c *companions) find(wanted Companion) *elffile.Image {
	if c.open == nil {
		return nil
	}
	wanted.From = c.image.Name
	f := c.open(wanted)
	if f == nil {
		return nil
	}
	c.acquired = append(c.acquired, f.Close)
	return f.image
}

// debug opens the debug sections of a file, those with a suffix, for as long as c.
func (c *companions) debug(m *elffile.Image, suffix string) (*debugData, error) {
	d, err := openDebug(m, suffix, c.threads)
	if err == nil {
		c.acquired = append(c.acquired, d.Close)
	}
	return d, err
}

// supplementary returns what .gnu_debugaltlink leads to: a name, and the build ID of
// the file.
func (c *companions) supplementary() (*dwarf.Data, error) {
	s := c.image.Section(".gnu_debugaltlink")
	if s == nil {
		return nil, nil
	}
	link, err := c.image.Read(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	at := cursor.New(link, int64(s.Offset), false)
	name := at.String()
	id := at.Bytes(uint64(at.Len()))
	if at.Err() != nil {
		return nil, c.image.Damage(at.Err())
	}
	m := c.find(Companion{Path: within(filepath.Dir(c.image.Name), name), Name: name, BuildID: id})
	if m == nil {
		return nil, nil
	}
	d, err := c.debug(m, "")
	if err != nil {
		return nil, err
	}
	return d.Data, nil
}

// within returns the path of a file that is named in a directory.
func within(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// split returns the unit that was split off under an ID and a name, nil if it is not
// found or damaged: what stayed is of use without it. It may be called by several
// goroutines.
func (c *companions) split(id uint64, dir, name string) *dwarf.Data {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.packaged(id); d != nil {
		return d
	}
	m := c.find(Companion{Path: within(dir, name), Name: name})
	if m == nil {
		return nil
	}
	d, err := c.debug(m, ".dwo")
	if err != nil {
		return nil
	}
	return d.Data
}

// maxPackages is how many packages are looked at for the units of a file.
const maxPackages = 16

// packaged returns the unit from the first package that has it, and proves by its ID to
// be of this file.
func (c *companions) packaged(id uint64) *dwarf.Data {
	for i := 0; i < len(c.packs) || c.openPackage(); i++ {
		if d := c.packs[i].unit(id); d != nil {
			return d
		}
	}
	return nil
}

// openPackage opens another package, and reports whether there was one.
func (c *companions) openPackage() bool {
	for !c.looked && len(c.opened) < maxPackages {
		m := c.find(Companion{Path: c.image.Name + ".dwp", Package: c.program, Refused: c.opened})
		if m == nil || slices.Contains(c.opened, m.Name) {
			break
		}
		c.opened = append(c.opened, m.Name)
		if p := c.readPackage(m); p != nil {
			c.packs = append(c.packs, p)
			return true
		}
	}
	c.looked = true
	return false
}

// readPackage returns nil for a file that is no package, or a damaged one.
func (c *companions) readPackage(m *elffile.Image) *splitPackage {
	s := m.Section(packageIndex)
	if s == nil {
		return nil
	}
	index, err := m.Read(s.Offset, s.Size)
	if err != nil {
		return nil
	}
	d, err := c.debug(m, ".dwo")
	if err != nil {
		return nil
	}
	return &splitPackage{data: d.Data, index: index}
}

// packageIndex is the section that a package has and no other file.
const packageIndex = ".debug_cu_index"

// IsPackage reports whether the file is a package of split units (.dwp).
func (f *File) IsPackage() bool { return f.image.Section(packageIndex) != nil }

// splitPackage is a .dwp file: the sections of many .dwo files, one after another, and
// an index of where those of each unit are (DWARF 5, section 7.3.5, and its predecessor
// at https://gcc.gnu.org/wiki/DebugFissionDWP).
type splitPackage struct {
	data  *dwarf.Data
	index []byte
}

// Numbers of sections in the index, the same in both versions for those of interest
// but that range lists came with DWARF 5.
const (
	dwSectInfo       = 1
	dwSectAbbrev     = 3
	dwSectStrOffsets = 6
	dwSectRnglists   = 8
)

// unit returns the sections of a unit, or nil if it is not there.
func (p *splitPackage) unit(id uint64) *dwarf.Data {
	c := cursor.New(p.index, 0, p.data.Big)
	version := c.U16() // 5, or the lower half of 2
	if c.U16(); p.data.Big && version == 0 {
		version = 2
	}
	columns, units, slots := uint64(c.U32()), uint64(c.U32()), uint64(c.U32())
	tables := uint64(c.Pos())
	row, ok := p.row(id, tables, slots)
	if !ok || row == 0 || row > units || columns > 16 {
		return nil
	}
	d := &dwarf.Data{Big: p.data.Big, AddrSize: p.data.AddrSize, Str: p.data.Str, LineStr: p.data.LineStr}
	names := tables + 12*slots
	for i := range columns {
		number := func(row uint64) uint64 {
			c.SeekTo(names + 4*(row*columns+i))
			return uint64(c.U32())
		}
		section, off, size := number(0), number(row), number(units+row)
		switch {
		case section == dwSectInfo:
			d.Info = slice(p.data.Info, off, size)
		case section == dwSectAbbrev:
			d.Abbrev = slice(p.data.Abbrev, off, size)
		case section == dwSectStrOffsets:
			d.StrOffsets = slice(p.data.StrOffsets, off, size)
		case section == dwSectRnglists && version == 5:
			d.Rnglists = slice(p.data.Rnglists, off, size)
		}
	}
	if c.Err() != nil {
		return nil
	}
	return d
}

// row returns the row of a unit by the hash table of IDs at an offset of the index.
func (p *splitPackage) row(id, tables, slots uint64) (uint64, bool) {
	if slots == 0 || slots&(slots-1) != 0 || slots > uint64(len(p.index)) {
		return 0, false
	}
	c := cursor.New(p.index, 0, p.data.Big)
	slot, step := id&(slots-1), id>>32&(slots-1)|1
	for range slots {
		c.SeekTo(tables + 8*slot)
		found := c.U64()
		c.SeekTo(tables + 8*slots + 4*slot)
		row := uint64(c.U32())
		if c.Err() != nil || row == 0 {
			return 0, false
		}
		if found == id {
			return row, true
		}
		slot = (slot + step) & (slots - 1)
	}
	return 0, false
}

// slice returns size bytes of a section at off, or nil where it has not so many.
func slice(section []byte, off, size uint64) []byte {
	if off > uint64(len(section)) || size > uint64(len(section))-off {
		return nil
	}
	return section[off : off+size : off+size]
}

// A DebugLink is what .gnu_debuglink of a file says: which file holds what was
// stripped from it (GDB manual, "Separate Debug Files").
type DebugLink struct {
	Name string // without a directory
	CRC  uint32 // of the whole debug file, as hash/crc32.IEEE computes it
}

// maxDebugLink bounds a .gnu_debuglink: a file name and a few bytes.
const maxDebugLink = 8 << 10

// DebugLink returns the file's debug link, and whether it has one that can be used.
func (f *File) DebugLink() (DebugLink, bool) {
	s := f.image.Section(".gnu_debuglink")
	if s == nil || s.Size > maxDebugLink {
		return DebugLink{}, false
	}
	data, err := f.image.Read(s.Offset, s.Size)
	if err != nil {
		return DebugLink{}, false
	}
	end := bytes.IndexByte(data, 0)
	at := (end + 4) &^ 3 // the sum is aligned to 4 bytes
	if end <= 0 || at+4 > len(data) {
		return DebugLink{}, false
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if f.image.Big {
		order = binary.BigEndian
	}
	name := string(data[:end])
	return DebugLink{name, order.Uint32(data[at:])}, name == filepath.Base(name) && name != "." && name != ".."
}

// DebugSize returns how many bytes of .debug_info the file and its debug file have, as
// they are stored: 0 says that there is no debug information.
func (f *File) DebugSize() int64 {
	var n uint64
	for _, m := range f.images {
		for _, name := range []string{".debug_info", ".zdebug_info"} {
			if s := m.Section(name); s != nil {
				n += min(s.Size, elffile.MaxInflated)
			}
		}
	}
	return int64(n)
}
