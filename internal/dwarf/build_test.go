package dwarf

import (
	"encoding/binary"
	"testing"
)

// bytesOf builds sections: integers by their size, strings with a NUL, and leb for
// LEB128 numbers.
type bytesOf []byte

type leb uint64

func (b *bytesOf) put(values ...any) *bytesOf {
	for _, v := range values {
		switch v := v.(type) {
		case uint8:
			*b = append(*b, v)
		case uint16:
			*b = binary.LittleEndian.AppendUint16(*b, v)
		case uint32:
			*b = binary.LittleEndian.AppendUint32(*b, v)
		case uint64:
			*b = binary.LittleEndian.AppendUint64(*b, v)
		case leb:
			*b = binary.AppendUvarint(*b, uint64(v))
		case string:
			*b = append(append(*b, v...), 0)
		case bytesOf:
			*b = append(*b, v...)
		default:
			panic(v)
		}
	}
	return b
}

// Codes of the abbreviations that all built units use.
const (
	codeUnit uint8 = iota + 1
	codeFunction
	codeInlined
	codeAbstract
	codeRanges
	codeEnum
	codeOrigin
)

// abbreviations is a .debug_abbrev with the codes above.
func abbreviations() []byte {
	var b bytesOf
	declare := func(code uint8, tag leb, children uint8, attrs ...leb) {
		b.put(code, tag, children)
		for _, a := range attrs {
			b.put(a)
		}
		b.put(uint16(0))
	}
	declare(codeUnit, tagCompileUnit, 1, atName, FormString, atLowPC, FormAddr, atLanguage, FormData1)
	declare(codeFunction, tagSubprogram, 1, atName, FormString, atDeclLine, FormData1, atLowPC, FormAddr, atHighPC, FormData4)
	declare(codeInlined, tagInlinedSubroutine, 1, atAbstractOrigin, FormRef4, atCallFile, FormData1, atCallLine, FormData1, atLowPC, FormAddr, atHighPC, FormData4)
	declare(codeAbstract, tagSubprogram, 0, atName, FormString, atDeclLine, FormData1)
	declare(codeRanges, tagSubprogram, 1, atName, FormString, atRanges, FormSecOffset)
	declare(codeEnum, tagEnumerationType, 1, atSibling, FormRef4)
	declare(codeOrigin, tagSubprogram, 0, atAbstractOrigin, FormRef4)
	b.put(uint8(0))
	return b
}

// headerSize is the size of the header of a built unit.
const headerSize = 11

// unit returns a unit of DWARF 4 with these children, whose own entry it adds. It
// ends with what children end with.
func unit(children *bytesOf) []byte {
	var entry, b bytesOf
	entry.put(codeUnit, "unit.c", uint64(0), uint8(languageC99))
	b.put(uint32(headerSize-4+len(entry)+len(*children)), uint16(4), uint32(0), uint8(8), entry, *children)
	return b
}

// firstChild is the offset of the first child of a built unit.
const firstChild = headerSize + 1 + 7 + 8 + 1

// data returns a Data of one unit, whose code is from 0x1000 up to 0x2000.
func data(children *bytesOf) *Data {
	return &Data{
		AddrSize: 8, Abbrev: abbreviations(), Info: unit(children),
		Text: []Range{{0x1000, 0x2000}},
	}
}

// read reads all units of d, and returns the Reader with what the last one says.
func read(t testing.TB, d *Data) (*Reader, error) {
	t.Helper()
	units, err := d.Units()
	if err != nil {
		return nil, err
	}
	r := d.NewReader()
	for _, u := range units {
		if err := r.Read(u); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// chain returns the names of the functions at an address, innermost first.
func (r *Reader) chain(addr uint64) string {
	scope := int32(-1)
	for _, p := range r.Pieces {
		if p.Start <= addr {
			scope = p.Scope
		}
	}
	names := ""
	for ; scope >= 0; scope = r.Scopes[scope].Parent {
		names += string(r.Funcs[r.Scopes[scope].Func].Name.Bytes()) + " "
	}
	return names
}
