package buildid

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	kernelNotes = "/sys/kernel/notes"
	moduleDir   = "/sys/module"
	moduleNotes = "notes/.note.gnu.build-id"

	// maxNotes bounds what is read of notes in sysfs; the kernel's are below 1 KiB.
	maxNotes = 64 << 10
)

// ReadKernel returns the identity of the running kernel.
func ReadKernel() (Info, error) { return readNotes(kernelNotes) }

// ReadModule returns the identity of a loaded kernel module, by its name in
// /sys/module. Code that is built into the kernel has none of its own; that is an
// error that wraps fs.ErrNotExist.
func ReadModule(name string) (Info, error) { return readModule(moduleDir, name) }

// Modules returns the names of the loaded kernel modules that have an identity,
// in lexical order.
func Modules() ([]string, error) { return modules(moduleDir) }

func readModule(dir, name string) (Info, error) {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, '/') {
		return Info{}, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return readNotes(filepath.Join(dir, name, moduleNotes))
}

func modules(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), moduleNotes)); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func readNotes(name string) (Info, error) {
	f, err := os.Open(name)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxNotes))
	if err != nil {
		return Info{}, err
	}
	info, err := ReadNotes(b)
	if err != nil {
		return Info{}, named(err, name)
	}
	if info.ID.IsZero() {
		return Info{}, fmt.Errorf("%s: %w", name, errNoNote)
	}
	return info, nil
}

// ReadNotes returns the identity in notes that stand for themselves, in the byte
// order of this machine and padded to 4 bytes, as /sys/kernel/notes has them.
// Info.Offset counts from their start. Without a note that carries an identity the
// Info has no ID.
func ReadNotes(notes []byte) (Info, error) {
	s := getSearch()
	defer s.release()
	s.open(bytes.NewReader(notes), 0)
	s.layout = layout{big: nativeBig}
	s.notes = append(s.notes[:0], region{size: uint64(len(notes)), align: 4})
	s.scan(InNotes)
	info, err := s.result()
	info.ELF = false
	return info, err
}

// nativeBig says that this machine is big-endian.
var nativeBig = binary.NativeEndian.Uint16([]byte{0, 1}) == 1
