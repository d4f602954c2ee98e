package symbol

import (
	"bytes"
	"encoding/binary"
	"path/filepath"

	"hallmark/internal/elffile"
)

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
