package store

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"hallmark/buildid"
	"hallmark/internal/cursor"
	"hallmark/internal/seekable"
)

// An Entry is what the catalogue has of an identity, as its manifest said when it was read last.
type Entry struct {
	ID      buildid.ID
	Files   int // that the identity has
	Symbols Symbols
	Names   []Name // those of the files that are served come first
	Cut     bool   // a file of the identity came under more names than are kept

	index IndexName
	dwz   dwzMark // of the debug file that is served
}

// A Name is one name under which a file of an identity came.
type Name struct {
	Debug         bool // of a debug file, else of an executable
	File, Archive string
}

// Dwz returns the identity of the file that dwz put a part of the debug information into, zero where there is none.
func (e *Entry) Dwz() buildid.ID { return e.index.Dwz }

// Index returns what the index of the files that are served is named after. dwz is the entry of Dwz, or the zero Entry.
func (e *Entry) Index(dwz Entry) string { return e.index.with(dwz.dwz) }

// entryOf returns the entry of a manifest.
func entryOf(m *Manifest) Entry {
	e := Entry{ID: m.ID, Files: len(m.Files), Symbols: m.Symbols(), index: m.IndexName(), dwz: m.DwzFile().mark()}
	exe, debug := m.served()
	seen := map[Name]bool{}
	add := func(f *File, isDebug bool) {
		var names []Name
		for _, o := range f.Origins {
			if n := (Name{isDebug, o.Path, o.Archive}); n.File != "" && !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
		slices.SortFunc(names, func(a, b Name) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Archive, b.Archive)) })
		e.Names = append(e.Names, names...)
	}
	if exe != nil {
		add(exe, false)
	}
	if debug != nil {
		add(debug, true)
	}
	disputed := m.Disputed()
	for i := range m.Files {
		f := &m.Files[i]
		if !m.believes(f.Trust()) && slices.Contains(disputed, f) { // an agent cannot put names to the code of others
			continue
		}
		e.Cut = e.Cut || f.MoreNames
		if f.Executable {
			add(f, false)
		}
		if f.Debug {
			add(f, true)
		}
	}
	return e
}

// A record is an entry as segments have it:
//
//	uvarint  bytes of the rest
//	string   key: the kind of the identity, and its bytes; records are in this order
//	uint64   stamp of the manifest, little-endian
//	content
//
// A string is a uvarint and so many bytes. The content is empty where the identity has no files. Then the stamp is that
// of the manifest which says so, 0 where there is none. Else it is
//
//	uint8    1 where the identity has more names than these, else 0
//	uvarint  number of files
//	uint8    rank of the symbols
//	string   hash of the files that are served
//	string   key of the identity of the file of dwz that these take
//	uint8    rank of the trust of the file that does, and 1; 0 for none
//	string   hash of the file that it is for others
//	uint8    rank of the trust of that file, and 1; 0 for none
//	         for each name: uint8, 1 for the debug file; string, file; string, archive
type record struct {
	key     []byte
	stamp   uint64
	content []byte
}

// maxContent is how many bytes the content of a record has: a frame has room for it.
const maxContent = seekable.FrameSize - 4096

// keyFor returns the key of an identity in segments.
func keyFor(id buildid.ID) []byte { return append([]byte{byte(id.Kind())}, id.Bytes()...) }

// idOf returns the identity with a key.
func idOf(key []byte) (buildid.ID, error) {
	if len(key) == 0 {
		return buildid.ID{}, errors.New("a record has no key")
	}
	return buildid.New(buildid.Kind(key[0]), key[1:])
}

// live reports whether the identity has files.
func (r record) live() bool { return len(r.content) > 0 }

// cut reports whether the identity has more names than the record.
func (r record) cut() bool { return r.live() && r.content[0] != 0 }

// gone reports whether the identity has not even a manifest.
func (r record) gone() bool { return len(r.content) == 0 && r.stamp == 0 }

func appendString[S []byte | string](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (r record) append(b []byte) []byte {
	rest := appendString(nil, r.key)
	rest = binary.LittleEndian.AppendUint64(rest, r.stamp)
	return appendString(b, append(rest, r.content...))
}

// recordOf returns the record of a manifest with a stamp.
func recordOf(m *Manifest, stamp uint64) record { return record{keyFor(m.ID), stamp, catalogued(m)} }

// catalogued returns the content of the record of a manifest.
func catalogued(m *Manifest) []byte {
	if len(m.Files) == 0 {
		return nil
	}
	e := entryOf(m)
	b := []byte{0}
	if e.Cut {
		b[0] = 1
	}
	b = binary.AppendUvarint(b, uint64(e.Files))
	b = append(b, byte(max(0, e.Symbols.rank())))
	files, _ := hex.DecodeString(e.index.files) // it is a hash
	b = appendString(b, files)
	var dwz []byte
	if !e.index.Dwz.IsZero() {
		dwz = keyFor(e.index.Dwz)
	}
	b = append(appendString(b, dwz), byte(e.index.trust.rank()+1))
	b = append(appendString(b, e.dwz.sum), byte(e.dwz.trust.rank()+1))
	for _, n := range e.Names {
		kind := byte(0)
		if n.Debug {
			kind = 1
		}
		if len(b)+len(n.File)+len(n.Archive) > maxContent {
			b[0] = 1
			break
		}
		b = appendString(appendString(append(b, kind), n.File), n.Archive)
	}
	return b
}

// readRecord reads the next record, whose bytes alias those of the cursor. Without a key it is none.
func readRecord(c *cursor.Cursor) record {
	n := c.Uvarint()
	if n == 0 { // no more is in this frame
		c.Skip(uint64(c.Len()))
		return record{}
	}
	rest := cursor.New(c.Bytes(n), 0, false)
	r := record{key: rest.Bytes(rest.Uvarint()), stamp: rest.U64()}
	if r.content = rest.Bytes(uint64(rest.Len())); rest.Err() != nil {
		c.Fail("a record: %v", rest.Err())
	}
	return r
}

// entry decodes a record.
func (r record) entry() (Entry, error) {
	id, err := idOf(r.key)
	if err != nil || !r.live() {
		return Entry{ID: id}, err
	}
	c := cursor.New(r.content, 0, false)
	text := func() string { return string(c.Bytes(c.Uvarint())) }
	e := Entry{ID: id, Cut: c.U8() != 0, Files: int(min(c.Uvarint(), 1<<20)), Symbols: NoSymbols}
	if rank := int(c.U8()); rank < len(ranks) {
		e.Symbols = ranks[rank]
	}
	e.index.files = hex.EncodeToString([]byte(text()))
	if key := text(); key != "" {
		if e.index.Dwz, err = idOf([]byte(key)); err != nil {
			c.Fail("the file of dwz: %v", err)
		}
	}
	e.index.trust = trustOf(c.U8())
	e.dwz = dwzMark{text(), trustOf(c.U8())}
	for c.Len() > 0 {
		e.Names = append(e.Names, Name{c.U8() == 1, text(), text()})
	}
	return e, c.Err()
}

func trustOf(rank uint8) Trust {
	if rank == 0 || int(rank) > len(trusts) {
		return ""
	}
	return trusts[rank-1]
}
