// Package local answers for symbols from what this machine has, and what debuginfod
// servers have for it: prepared indexes, the files that the profile names and their
// debug files, vmlinux, the running kernel, the vdso. Each answers only if its identity
// is the one asked for.
package local

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols implements profile.Symbols. The zero value is ready.
type Symbols struct {
	// Library has the symbols; nil means one of what is on this machine.
	Library *debuginfo.Library

	// Context ends the wait for servers, and all that follows; nil means that nothing
	// does.
	Context context.Context

	once  sync.Once
	slots chan struct{} // one for each file that is read at a time
}

var _ profile.Symbols = (*Symbols)(nil)

func (s *Symbols) init() {
	if s.Library == nil {
		s.Library = new(debuginfo.Library)
	}
	if s.Context == nil {
		s.Context = context.Background()
	}
	s.slots = make(chan struct{}, runtime.GOMAXPROCS(0))
}

var _ profile.Liner = (*Symbols)(nil)

// Lines answers as Lookup does, but for what the running kernel tells of itself, which
// is names.
func (s *Symbols) Lines(id buildid.ID, path string, offsets []addr.Offset) []symbol.Result {
	return s.lookup(id, path, offsets)
}

// Lookup returns one Result for each of the offsets in the file whose identity
// is id. path is tried first, and used only if the file there has that identity.
func (s *Symbols) Lookup(id buildid.ID, path string, offsets []addr.Offset) []symbol.Result {
	results := s.lookup(id, path, offsets)
	if path == "[kernel]" {
		s.addRunning(id, offsets, results)
	}
	return results
}

func (s *Symbols) lookup(id buildid.ID, path string, offsets []addr.Offset) []symbol.Result {
	s.once.Do(s.init)
	if s.Context.Err() != nil {
		return miss(reason.NotLookedUp, len(offsets))
	}
	table, why := s.open(id, path, len(offsets))
	if table == nil {
		return miss(why, len(offsets))
	}
	defer table.Close()
	return s.read(table, offsets)
}

var _ profile.Starts = (*Symbols)(nil)

// Starts returns where functions start in the file whose identity is id, by its call frame
// information. Where the file itself is not on this machine, its index knows it.
func (s *Symbols) Starts(id buildid.ID, path string, offsets []addr.Offset) []addr.Offset {
	s.once.Do(s.init)
	var candidates []string
	if isRegular(path) {
		candidates = []string{path}
	}
	file, _ := s.Library.Finder.Open(id, candidates...)
	if file != nil {
		defer file.Close()
		if holdsCode(file) {
			if starts, err := file.Starts(offsets); err == nil {
				return starts
			}
		}
	}
	if x, err := s.Library.Indexes.Open(id); err == nil {
		defer x.Close()
		return x.Starts(offsets)
	}
	return slices.Repeat([]addr.Offset{symbol.NoStart}, len(offsets))
}

// read answers, for as many files at a time as there are processors: their tables are
// in memory.
func (s *Symbols) read(table debuginfo.Symbols, offsets []addr.Offset) []symbol.Result {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	results := table.LookupOffsets(offsets)
	debuginfo.Detach(results)
	return results
}

// open returns what answers for a file.
func (s *Symbols) open(id buildid.ID, path string, addresses int) (debuginfo.Symbols, reason.Reason) {
	switch {
	case path == "[kernel]":
		return s.Library.OpenKernel(s.Context, id, addresses)
	case path == "[vdso]":
		if table, ok := vdso(id); ok {
			return table, reason.None
		}
	case strings.HasPrefix(path, "[") && strings.HasSuffix(path, "]"):
		return s.Library.OpenModule(s.Context, id, path[1:len(path)-1])
	}
	r := debuginfo.Request{Query: debuginfo.Query{ID: id}, Addresses: addresses}
	if isRegular(path) {
		r.Paths = []string{path}
	}
	return s.Library.Get(s.Context, r)
}

// isRegular reports whether path names a regular file. A profile may name a pipe,
// which nobody would ever write to.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && filepath.IsAbs(path) && info.Mode().IsRegular()
}

func miss(why reason.Reason, n int) []symbol.Result {
	results := make([]symbol.Result, n)
	for i := range results {
		results[i] = symbol.Miss(why)
	}
	return results
}
