package unwind

import (
	"encoding/binary"
	"strings"

	"hallmark/addr"
	"hallmark/internal/cursor"
	"hallmark/internal/pclntab"
)

type off = addr.Offset

const shfWRITE, shfALLOC = 1, 2

// pclntab returns the file's pclntab, nil if it has none. Not to understand it is an error.
func (f *elfFile) pclntab() (*pclntab.Table, error) {
	s, mixed := f.pclntabSection()
	if s == nil {
		return nil, nil
	}
	data, err := f.readString(s.off, s.bytes)
	if err != nil {
		return nil, err
	}
	places := []uint64{0}
	if mixed {
		places = pclntab.Headers(data, false)
	}
	for _, at := range places {
		t, ok := pclntab.Parse(data[at:], false)
		if !ok || t.Ptr != 8 {
			continue
		}
		if t.IsRelative() {
			md, err := t.Locate(s.virt+at, loadedFile{f})
			if err != nil {
				return nil, err
			}
			if md == nil {
				continue
			}
		}
		if t.IsSound(f.isCode) {
			return &t, nil
		}
	}
	return nil, &cursor.Error{Offset: int64(s.off), Msg: "no pclntab that describes the code of its file"}
}

// pclntabSection returns the section that holds a pclntab, and whether together with
// other data.
func (f *elfFile) pclntabSection() (s *section, mixed bool) {
	for _, name := range pclntab.Sections {
		if s := f.section(name); s != nil {
			return s, false
		}
	}
	if f.section(pclntab.BuildIDNote) != nil {
		return f.section(pclntab.MixedSection), true
	}
	return nil, false
}

// isCode reports whether all addresses from start up to end are in one executable
// segment.
func (f *elfFile) isCode(start, end uint64) bool {
	from, to, ok := f.code(start, end)
	return ok && uint64(to-from) == end-start
}

// readString returns n bytes at off as a string.
func (f *elfFile) readString(off, n uint64) (string, error) {
	if n > maxSection {
		return "", &cursor.Error{Offset: int64(off), Msg: "table of implausible size"}
	}
	var last [1]byte
	if err := f.readAt(last[:], off+n-1); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(int(n))
	chunk := make([]byte, min(n, 256<<10))
	for done := uint64(0); done < n; done += uint64(len(chunk)) {
		chunk = chunk[:min(n-done, uint64(len(chunk)))]
		if err := f.readAt(chunk, off+done); err != nil {
			return "", err
		}
		b.Write(chunk)
	}
	return b.String(), nil
}

// loadedFile is a file as the dynamic loader leaves it where it was linked to be.
type loadedFile struct{ *elfFile }

// PointersTo returns where writable data holds this address.
func (f loadedFile) PointersTo(target uint64) ([]uint64, error) {
	var found []uint64
	note := func(v uint64) {
		if len(found) < pclntab.MaxCandidates {
			found = append(found, v)
		}
	}
	end := uint64(0) // of what was looked at: sections may overlap
	for i := range f.sections {
		s := &f.sections[i]
		if s.flags&(shfWRITE|shfALLOC) != shfWRITE|shfALLOC || s.off < end {
			continue
		}
		end = s.off + s.bytes
		if err := f.eachWords(s, 1, func(at uint64, w []byte) {
			if binary.LittleEndian.Uint64(w) == target {
				note(s.virt + at - s.off)
			}
		}); err != nil {
			return nil, err
		}
	}
	err := f.eachRelative(func(v, value uint64) {
		if value == target {
			note(v)
		}
	})
	return found, err
}

// WordsAt returns n words at v.
func (f loadedFile) WordsAt(v uint64, n int) ([]uint64, error) {
	s := f.at(v)
	if s == nil || s.size-(v-s.virt) < 8*uint64(n) {
		return nil, nil
	}
	data, err := f.read(s.off+v-s.virt, 8*uint64(n))
	if err != nil {
		return nil, err
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	err = f.eachRelative(func(at, value uint64) {
		if i := (at - v) / 8; at >= v && i < uint64(n) {
			words[i] = value
		}
	})
	return words, err
}

// eachRelative calls each for every place that the dynamic loader fills with an address
// of this file, and with that address. Such a relocation has no symbol, whatever number
// the machine gives its type.
func (f loadedFile) eachRelative(each func(at, value uint64)) error {
	end := uint64(0)
	for i := range f.sections {
		s := &f.sections[i]
		if s.flags&shfALLOC == 0 || !strings.HasPrefix(s.name, ".rela") || s.off < end {
			continue
		}
		end = s.off + s.bytes
		if err := f.eachWords(s, 3, func(_ uint64, w []byte) {
			if info := binary.LittleEndian.Uint64(w[8:]); info>>32 == 0 {
				each(binary.LittleEndian.Uint64(w), binary.LittleEndian.Uint64(w[16:]))
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachWords calls each with n words at a time of a section, and their offset in the file.
func (f *elfFile) eachWords(s *section, n uint64, each func(at uint64, words []byte)) error {
	size := 8 * n
	total := s.bytes / size * size
	if total == 0 {
		return nil
	}
	var last [1]byte
	if err := f.readAt(last[:], s.off+s.bytes-1); err != nil {
		return nil // a section beyond the file's end holds nothing
	}
	chunk := make([]byte, min(total, size<<12))
	for done := uint64(0); done < total; done += uint64(len(chunk)) {
		chunk = chunk[:min(total-done, uint64(len(chunk)))]
		if err := f.readAt(chunk, s.off+done); err != nil {
			return err
		}
		for i := uint64(0); i < uint64(len(chunk)); i += size {
			each(s.off+done+i, chunk[i:i+size])
		}
	}
	return nil
}
