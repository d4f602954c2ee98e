// Package local answers for symbols from what this machine has, and what debuginfod
// servers have for it: prepared indexes, the files that the profile names and their
// debug files, vmlinux, the running kernel, the vdso. Each answers only if its identity
// is the one asked for.
package local

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/mounts"
	"hallmark/internal/procfs"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Symbols implements profile.Symbols. The zero value is ready.
type Symbols struct {
	// Library has the symbols; nil means one of what is on this machine.
	Library *debuginfo.Library

	// MaxFiles is how many different files are looked for, 0 for DefaultMaxFiles. Those beyond
	// it have the reason TooManyFiles: a profile can name any number, and to look for one takes
	// as long as a hundred of its bytes.
	MaxFiles int

	mu    sync.Mutex
	files map[fileKey]bool // that were looked for

	once  sync.Once
	slots chan struct{} // one for each file that is read at a time
}

// DefaultMaxFiles are several times as many as a large machine runs.
const DefaultMaxFiles = 1 << 12

var _ profile.Symbols = (*Symbols)(nil)

// admit reports whether a file may be looked for.
func (s *Symbols) admit(b *profile.Binary) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fileKey{b.ID, b.Content, b.Path}
	if s.files[key] {
		return true
	}
	if len(s.files) >= cmp.Or(s.MaxFiles, DefaultMaxFiles) {
		return false
	}
	s.files[key] = true
	return true
}

// fileKey distinguishes files.
type fileKey struct {
	id      buildid.ID
	content buildid.Content
	path    string
}

func (s *Symbols) init() {
	if s.Library == nil {
		s.Library = new(debuginfo.Library)
	}
	s.files = map[fileKey]bool{}
	s.slots = make(chan struct{}, runtime.GOMAXPROCS(0))
}

var _ profile.Liner = (*Symbols)(nil)

// Lines answers as Lookup does, but for what the running kernel says of itself, which
// is names.
func (s *Symbols) Lines(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	return s.lookup(ctx, b, offsets)
}

// Lookup returns one Result for each of the offsets in a file. Its path is tried first,
// and used only if the file there has the identity, and the content if that is known.
func (s *Symbols) Lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	results := s.lookup(ctx, b, offsets)
	if b.Path == "[kernel]" {
		s.addRunning(b.ID, offsets, results)
	}
	return results
}

func (s *Symbols) lookup(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	s.once.Do(s.init)
	if !s.admit(b) {
		return miss(reason.TooManyFiles, len(offsets))
	}
	table, err := s.open(ctx, b, len(offsets))
	if err != nil {
		return miss(reason.Of(err), len(offsets))
	}
	defer table.Close()
	if file, ok := table.(interface{ EndWith(context.Context) }); ok {
		file.EndWith(ctx)
	}
	return s.read(table, offsets)
}

var _ profile.Witness = (*Symbols)(nil)

// Claimed answers from the file at the path of a Binary whose identity is a claim, where that means the same file as
// for the process which had it mapped, and its claimant owns it. No other file has names for its code.
func (s *Symbols) Claimed(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	s.once.Do(s.init)
	if !s.admit(b) {
		return miss(reason.TooManyFiles, len(offsets))
	}
	file, err := s.openClaimed(ctx, b)
	if err != nil {
		return miss(reason.Of(err), len(offsets))
	}
	defer file.Close()
	file.EndWith(ctx)
	return s.read(file, offsets)
}

func (s *Symbols) openClaimed(ctx context.Context, b *profile.Binary) (*symbol.File, error) {
	c := b.Claimant
	isHere := c.Mount != 0 && c.Mount == procfs.OwnMountNamespace() && c.Boot != "" && c.Boot == procfs.BootID()
	if c.UID == profile.UnknownOwner || !isHere || !isRegular(b.Path) {
		return nil, reason.Unproven
	}
	return s.Library.Finder.OpenOwned(b.ID, b.Path, c.UID)
}

var _ profile.Starts = (*Symbols)(nil)

// Starts returns where functions start in a file, by its call frame information. Where the
// file itself is not on this machine, its index knows it.
func (s *Symbols) Starts(ctx context.Context, b *profile.Binary, offsets []addr.Offset) []addr.Offset {
	s.once.Do(s.init)
	if !s.admit(b) {
		return slices.Repeat([]addr.Offset{symbol.NoStart}, len(offsets))
	}
	var candidates []string
	if isRegular(b.Path) {
		candidates = []string{b.Path}
	}
	file, _ := s.Library.Finder.Search(ctx, debuginfo.Query{ID: b.ID, Content: b.Content, Rival: b.Rival, Paths: candidates, Local: true})
	if file != nil {
		defer file.Close()
		file.EndWith(ctx)
		if holdsCode(file) {
			if starts, err := file.Starts(offsets); err == nil {
				return starts
			}
		}
	}
	if x, err := s.Library.Indexes.Open(b.ID, b.Content); err == nil {
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
func (s *Symbols) open(ctx context.Context, b *profile.Binary, addresses int) (debuginfo.Symbols, error) {
	id, path := b.ID, b.Path
	switch {
	case path == "[kernel]":
		return s.Library.OpenKernel(ctx, id, addresses)
	case path == "[vdso]":
		if table, ok := vdso(id); ok {
			return table, nil
		}
	case strings.HasPrefix(path, "[") && strings.HasSuffix(path, "]"):
		return s.Library.OpenModule(ctx, id, path[1:len(path)-1])
	}
	r := debuginfo.Request{Query: debuginfo.Query{ID: id, Content: b.Content, Rival: b.Rival}, Addresses: addresses}
	if isRegular(path) {
		r.Paths = []string{path}
	}
	r.Mapped = profile.Mapped(b)
	return s.Library.Get(ctx, r)
}

// isRegular reports whether path names a regular file. A profile may name a pipe,
// which nobody would ever write to. Where nobody looks, whoever searches says so.
func isRegular(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	st, err := mounts.Ours().Stat(path)
	return errors.Is(err, mounts.ErrForeign) || err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG
}

func miss(why reason.Reason, n int) []symbol.Result {
	results := make([]symbol.Result, n)
	for i := range results {
		results[i] = symbol.Miss(why)
	}
	return results
}
