package symtab

import (
	"bytes"
	"io"
	"slices"

	"github.com/xi2/xz"

	"hallmark/internal/elffile"
	"hallmark/internal/ranges"
)

// Limits on .gnu_debugdata. What find-debuginfo puts there shrinks to an eighth; a
// few bytes could stand for gigabytes.
const (
	miniDebugRoom      = 1 << 20  // bytes that any may have inflated
	maxMiniInflation   = 32       // and this many for each byte of it
	maxMiniDictionary  = 64 << 20 // that of xz -9, which touches no more of it than it has data
	maxMiniCompression = elffile.MaxTable / maxMiniInflation
)

// LoadMiniDebug reads the symbols that distributions leave in a stripped file for the
// sake of backtraces: .gnu_debugdata in section s is an ELF file, compressed by xz,
// that has a .symtab of the functions that .dynsym does not have
// (https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html).
//
// Together the two are what .symtab was, so they are settled together: an address
// whose best symbol is in .dynsym is left to that.
func LoadMiniDebug(m *elffile.Image, s *elffile.Section) (*Table, error) {
	inner, err := inflateMiniDebug(m, s)
	if err != nil {
		return nil, err
	}
	inner.Program = m
	spans, names, err := allSymbols(inner, inner.SectionOfType(elffile.SHT_SYMTAB))
	if err != nil {
		return nil, err
	}
	others, otherNames, err := allSymbols(m, m.SectionOfType(elffile.SHT_DYNSYM))
	if err != nil {
		return nil, err
	}
	spans = slices.DeleteFunc(spans, func(s ranges.Span) bool { return !m.IsText(s.Start, s.End) })
	own := uint32(len(names))
	for _, o := range others {
		o.Value += own
		spans = append(spans, o)
	}
	t := newSymtab(spans, names+otherNames)
	t.Names = names
	t.Ranges.Keep(func(value uint32) bool { return value < own })
	return t, nil
}

// inflateMiniDebug returns the file in .gnu_debugdata.
func inflateMiniDebug(m *elffile.Image, s *elffile.Section) (*elffile.Image, error) {
	if s.Size > maxMiniCompression {
		return nil, m.Fail(s.Offset, "debug data are too large")
	}
	packed, err := m.Read(s.Offset, s.Size)
	if err != nil {
		return nil, err
	}
	limit := miniDebugRoom + maxMiniInflation*len(packed)
	r, err := xz.NewReader(bytes.NewReader(packed), maxMiniDictionary)
	if err != nil {
		return nil, m.Fail(s.Offset, err.Error())
	}
	var data bytes.Buffer
	_, err = data.ReadFrom(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, m.Fail(s.Offset, err.Error())
	case data.Len() > limit:
		return nil, m.Fail(s.Offset, "debug data shrank more than any known")
	}
	return elffile.Read(bytes.NewReader(data.Bytes()), m.Name+"(.gnu_debugdata)")
}
