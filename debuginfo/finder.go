// Package debuginfo finds the files that tell more about an identity: the file
// itself, and the debug file that was split from it.
//
// Names prove nothing. Whatever is found has its own build ID read, from the
// opened file, before it is used.
package debuginfo

import (
	"errors"
	"io/fs"
	"path/filepath"

	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// DefaultDirs are the directories under which distributions install debug files.
var DefaultDirs = []string{"/usr/lib/debug"}

// A Finder finds files by identity. The zero value looks in DefaultDirs. Its
// methods may be called by several goroutines at once.
type Finder struct {
	// Dirs are searched in this order for .build-id/xx/yyyy.debug. Nil means
	// DefaultDirs; an empty list means nowhere.
	Dirs []string
}

// Find returns the path of the debug file with this identity, or why there is
// none. Only GNU build IDs have debug files.
func (f *Finder) Find(id buildid.ID) (path string, why reason.Reason) {
	file, why := f.openDebug(id)
	if file == nil {
		return "", why
	}
	defer file.Close()
	return file.Name(), reason.None
}

// Open returns the symbols of the file with this identity, for the caller to
// close: from the first of the candidate paths that is this file, joined with its
// debug file where there is one, else from the debug file alone. With neither it
// returns why the first candidate that exists is not the file.
func (f *Finder) Open(id buildid.ID, candidates ...string) (*symbol.File, reason.Reason) {
	why := reason.NoFile
	for _, path := range candidates {
		file, r := open(id, path)
		if file != nil {
			return f.Complete(id, file), reason.None
		}
		if why == reason.NoFile {
			why = r
		}
	}
	debug, r := f.openDebug(id)
	if debug != nil {
		return debug, reason.None
	}
	if why == reason.NoFile {
		why = r
	}
	return nil, why
}

// Complete returns file, whose identity is id, joined with its debug file; or file
// itself if there is none. Closing what it returns closes both.
func (f *Finder) Complete(id buildid.ID, file *symbol.File) *symbol.File {
	if debug, _ := f.openDebug(id); debug != nil {
		return symbol.Join(file, debug)
	}
	return file
}

// Companion opens a file that the debug information of another one refers to, or
// returns nil: as symbol.IndexOptions.Open. The supplementary file that dwz made must
// have the build ID that is said, and is looked for by it too.
func (f *Finder) Companion(c symbol.Companion) *symbol.File {
	if c.BuildID == nil {
		file, err := symbol.OpenFile(c.Path)
		if err != nil {
			return nil
		}
		return file
	}
	id, err := buildid.New(buildid.GNU, c.BuildID)
	if err != nil {
		return nil
	}
	if file, _ := open(id, c.Path); file != nil {
		return file
	}
	file, _ := f.openDebug(id)
	return file
}

// openDebug opens the debug file with this identity.
func (f *Finder) openDebug(id buildid.ID) (*symbol.File, reason.Reason) {
	why := reason.NoFile
	if id.Kind() != buildid.GNU || len(id.Bytes()) < 2 {
		return nil, why
	}
	name := id.String()
	name = filepath.Join(".build-id", name[:2], name[2:]+".debug")
	for _, dir := range f.dirs() {
		file, r := open(id, filepath.Join(dir, name))
		if file != nil {
			return file, reason.None
		}
		if why == reason.NoFile {
			why = r
		}
	}
	return nil, why
}

func (f *Finder) dirs() []string {
	if f.Dirs == nil {
		return DefaultDirs
	}
	return f.Dirs
}

// open opens the file at path if its identity is id, and else says why not.
func open(id buildid.ID, path string) (*symbol.File, reason.Reason) {
	file, err := symbol.OpenFile(path)
	if err != nil {
		return nil, whyNot(err)
	}
	info, err := buildid.Read(file.Reader())
	if err == nil && info.ID == id {
		return file, reason.None
	}
	file.Close()
	if err != nil {
		return nil, whyNot(err)
	}
	return nil, reason.FileChanged
}

// whyNot says why a file could not be used.
func whyNot(err error) reason.Reason {
	var damaged *symbol.FormatError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reason.NoFile
	case errors.Is(err, fs.ErrPermission):
		return reason.NotPermitted
	case errors.Is(err, symbol.ErrNotELF):
		return reason.FileChanged
	case errors.As(err, &damaged), errors.Is(err, buildid.ErrFormat):
		return reason.FileDamaged
	default:
		return reason.FileGone
	}
}
