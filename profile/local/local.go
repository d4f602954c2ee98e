// Package local answers for symbols from what this machine has: the files that
// the profile names and their debug files, the running kernel, the vdso. Each
// answers only if its identity is the one asked for.
package local

import (
	"os"
	"path/filepath"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols implements profile.Symbols. The zero value is ready.
type Symbols struct {
	Finder debuginfo.Finder // finds debug files
}

var _ profile.Symbols = (*Symbols)(nil)

// Lookup returns one Result for each of the offsets in the file whose identity
// is id. path is tried first, and used only if the file there has that identity.
func (s *Symbols) Lookup(id buildid.ID, path string, offsets []addr.Offset) []symbol.Result {
	find, done := s.source(id, path)
	defer done()
	results := make([]symbol.Result, len(offsets))
	for i, o := range offsets {
		results[i] = find(o)
	}
	return results
}

// source returns what answers for a file, and a function that closes it.
func (s *Symbols) source(id buildid.ID, path string) (find func(addr.Offset) symbol.Result, done func()) {
	switch path {
	case "[kernel]":
		return kernel(id), func() {}
	case "[vdso]":
		return vdso(id)
	}
	var candidates []string
	if isRegular(path) {
		candidates = append(candidates, path)
	}
	file, why := s.Finder.Open(id, candidates...)
	if file == nil {
		return miss(why), func() {}
	}
	return file.LookupOffset, func() { file.Close() }
}

// isRegular reports whether path names a regular file. A profile may name a pipe,
// which nobody would ever write to.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && filepath.IsAbs(path) && info.Mode().IsRegular()
}

func miss(why reason.Reason) func(addr.Offset) symbol.Result {
	return func(addr.Offset) symbol.Result { return symbol.Miss(why) }
}
