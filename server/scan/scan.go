// Package scan knows which files by identity are in directories and packages of this machine,
// without copying them: a file is taken into the store when it is asked for.
//
// A package that says itself which build IDs are in it (debug packages of Debian, Ubuntu and
// Fedora) is not unpacked before. Of the others each is unpacked once, and what was found is
// kept for the next start.
package scan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/plaintext"
	"hallmark/internal/regular"
	"hallmark/server/blob"
	"hallmark/server/packages"
	"hallmark/server/store"
)

// Scanner looks at directories. Its fields must not change after its first use; its methods may
// be called by several goroutines at once.
type Scanner struct {
	Dirs  []string
	Store *store.Store
	// Cache is a file in which what was found is kept; "" for none.
	Cache string
	// Limits are how much of a package is read.
	Limits packages.Limits
	Log    *slog.Logger

	mu      sync.Mutex
	files   map[string]*scanned
	places  map[buildid.ID][]string // paths of scanned files
	sources map[string][]string     // the same, by build and path of the source file
	done    map[string]bool         // by path, stamp and identity: true where the store has it, false where it was passed over
}

// scanned is what is in a file: the file itself if it is ELF, or the members of a package.
type scanned struct {
	Stamp   string       `json:"stamp"` // of the file when it was looked at
	IDs     []buildid.ID `json:"ids,omitempty"`
	Sources []string     `json:"sources,omitempty"`
	Build   string       `json:"build,omitempty"` // of the package, "" where it is none
	Pack    bool         `json:"package,omitempty"`
	Lazy    bool         `json:"lazy,omitempty"` // it says what is in it, and was not unpacked
}

// stampOf returns what changes with a file.
func stampOf(info fs.FileInfo) string {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d.%d", st.Ino, st.Size, info.ModTime().UnixNano(), st.Ctim.Nano())
}

// Scan looks at all files that are new or changed since the last call, several at a time. The scanner answers for each
// file soon after it was looked at, and keeps it also where ctx ends the scan.
func (s *Scanner) Scan(ctx context.Context) error {
	s.mu.Lock()
	if s.files == nil {
		s.load()
	}
	r := &round{scanner: s, old: s.files, found: map[string]*scanned{}, kept: time.Now()}
	s.mu.Unlock()
	files := make(chan job)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for f := range files {
				r.look(ctx, f)
			}
		})
	}
	var err error
	for _, dir := range s.Dirs {
		if err = r.walk(ctx, dir, files); err != nil {
			break
		}
	}
	close(files)
	workers.Wait()
	if err != nil {
		r.keep(false)
		return err
	}
	return r.keep(true)
}

// round is one scan.
type round struct {
	scanner *Scanner
	old     map[string]*scanned

	mu      sync.Mutex
	found   map[string]*scanned
	changed int
	kept    time.Time
	keeping bool
}

// job is a file that has to be looked at.
type job struct{ path, stamp string }

// keepTime is after how long a scan keeps what it has found so far. Tests change it.
var keepTime = 10 * time.Second

// walk finds the files of a directory, and has those looked at that are new or changed.
func (r *round) walk(ctx context.Context, dir string, files chan<- job) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.scanner.Log.Warn("a directory cannot be read", "path", path, "error", err)
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil // it is gone
		}
		if known := r.old[path]; known != nil && known.Stamp == stampOf(info) {
			r.mu.Lock()
			r.found[path] = known
			r.mu.Unlock()
			return nil
		}
		select {
		case files <- job{path, stampOf(info)}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (r *round) look(ctx context.Context, f job) {
	what, err := r.scanner.look(ctx, f.path, f.stamp)
	if ctx.Err() != nil {
		return // it was not looked at to its end
	}
	if err != nil {
		r.scanner.Log.Warn("a file was passed over", "path", f.path, "error", err)
	}
	r.mu.Lock()
	r.changed++
	r.found[f.path] = what
	isTime := !r.keeping && time.Since(r.kept) >= keepTime
	r.keeping = r.keeping || isTime
	r.mu.Unlock()
	if !isTime {
		return
	}
	if err := r.keep(false); err != nil {
		r.scanner.Log.Warn("what was scanned so far is not kept", "error", err)
	}
	r.mu.Lock()
	r.kept, r.keeping = time.Now(), false
	r.mu.Unlock()
}

// keep has the scanner know what was found. Before the end of a round it goes on knowing the other files too.
func (r *round) keep(isAll bool) error {
	r.mu.Lock()
	files, changed := maps.Clone(r.found), r.changed
	r.mu.Unlock()
	if !isAll {
		for path, f := range r.old {
			if files[path] == nil {
				files[path] = f
			}
		}
	}
	if changed == 0 && len(files) == len(r.old) {
		return nil
	}
	s := r.scanner
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = files
	s.arrange()
	s.Log.Info("scanned", "files", len(files), "changed", changed, "identities", len(s.places), "all", isAll)
	return s.save()
}

// Watch scans until ctx is done, again and again with a pause in between.
func (s *Scanner) Watch(ctx context.Context, pause time.Duration) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		if err := s.Scan(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("the scan failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// arrange makes the tables that are asked. It is called under the lock.
func (s *Scanner) arrange() {
	s.places, s.sources, s.done = map[buildid.ID][]string{}, map[string][]string{}, map[string]bool{}
	for path, f := range s.files {
		for _, id := range f.IDs {
			s.places[id] = append(s.places[id], path)
		}
		for _, name := range f.Sources {
			s.sources[f.Build+"\x00"+name] = append(s.sources[f.Build+"\x00"+name], path)
		}
	}
}

// Counts returns how many packages and identities are known.
func (s *Scanner) Counts() (packs, identities int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.Pack {
			packs++
		}
	}
	return packs, int64(len(s.places))
}

// load reads what was found before. A cache that cannot be read is as none.
func (s *Scanner) load() {
	s.files = map[string]*scanned{}
	if s.Cache != "" {
		files, err := readCache(s.Cache)
		if err == nil {
			s.files = files
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("what was scanned before cannot be read: all is scanned again", "path", s.Cache, "error", err)
		}
	}
	for path, f := range s.files {
		if f == nil {
			delete(s.files, path)
		}
	}
	s.arrange()
}

const maxCache = 1 << 30 // bytes, uncompressed

// readCache reads what save wrote.
func readCache(name string) (map[string]*scanned, error) {
	b, err := regular.ReadFile(name, maxCache)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxCache))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if b, err = z.DecodeAll(b, nil); err != nil {
		return nil, err
	}
	files := map[string]*scanned{}
	return files, json.Unmarshal(b, &files)
}

// save keeps what was found: JSON, compressed by zstd, as it is identities in hexadecimal and names that are alike.
func (s *Scanner) save() error {
	if s.Cache == "" {
		return nil
	}
	return atomicfile.Write(s.Cache, 0o600, func(w io.Writer) error {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		return errors.Join(json.NewEncoder(plaintext.JSON(z)).Encode(s.files), z.Close())
	})
}

// look finds out what is in a file. With an error the file counts as empty until it changes.
func (s *Scanner) look(ctx context.Context, path, stamp string) (*scanned, error) {
	f, err := regular.Open(path)
	if err != nil {
		return &scanned{}, err // it is looked at again
	}
	defer f.Close()
	out := &scanned{Stamp: stamp}
	if packages.IsPackage(path) {
		out.Pack = true
		return out, s.lookIn(ctx, f, path, out)
	}
	var magic [4]byte
	if n, _ := f.ReadAt(magic[:], 0); n < 4 || !isELF(magic[:]) {
		return out, nil
	}
	info, err := buildid.ReadClaim(f)
	if !info.ID.IsZero() {
		out.IDs = []buildid.ID{info.ID}
	}
	return out, err
}

func isELF(b []byte) bool { return bytes.HasPrefix(b, []byte("\x7fELF")) }

// sourceDir is where distributions have the sources of what they build.
const sourceDir = "/usr/src/"

// lookIn finds out what is in a package.
func (s *Scanner) lookIn(ctx context.Context, f *os.File, path string, out *scanned) error {
	seen := map[buildid.ID]bool{}
	note := func(id buildid.ID) {
		if !id.IsZero() && !seen[id] {
			seen[id] = true
			out.IDs = append(out.IDs, id)
		}
	}
	describe := func(m *packages.Meta) error {
		out.Build = m.Build()
		for _, text := range m.BuildIDs {
			if id, err := buildid.Parse(text); err == nil {
				note(id)
			}
		}
		if out.Lazy = len(out.IDs) > 0; out.Lazy {
			return packages.ErrSkip
		}
		return nil
	}
	return packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), path, s.Limits, describe, func(m packages.Member) error {
		if out.Build != "" && strings.HasPrefix(m.Path, sourceDir) {
			out.Sources = append(out.Sources, m.Path)
			return nil
		}
		id, err := claimOf(m)
		if err != nil {
			return err
		}
		note(id)
		return nil
	})
}

// claimHead is how much of a member is read first: notes are in its first pages, most often.
const claimHead = 64 << 10

// maxClaim is how much of a member is read into memory for a note that is elsewhere.
const maxClaim = 1 << 30

// claimOf reads the identity that a member claims, zero for what is not ELF or has none.
func claimOf(m packages.Member) (buildid.ID, error) {
	head := make([]byte, min(claimHead, m.Size))
	n, err := io.ReadFull(m, head)
	head = head[:n]
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return buildid.ID{}, err
	}
	if !isELF(head) {
		return buildid.ID{}, nil
	}
	// Where the head has a GNU note, the whole file has it, too: it is looked for there first.
	if info, err := buildid.ReadClaim(bytes.NewReader(head)); err == nil && info.ID.Kind() == buildid.GNU || m.Size <= claimHead {
		return info.ID, nil
	}
	if m.Size > maxClaim {
		return buildid.ID{}, nil
	}
	whole, err := atomicfile.Scratch()
	if err != nil {
		return buildid.ID{}, err
	}
	defer whole.Close()
	if _, err := io.Copy(whole, io.MultiReader(bytes.NewReader(head), m)); err != nil {
		return buildid.ID{}, err
	}
	info, err := buildid.ReadClaim(whole)
	if errors.Is(err, buildid.ErrFormat) {
		err = nil
	}
	return info.ID, err
}

// Publish takes what there is of an identity into the store, and reports whether that was
// something that the store did not have. Files that cannot be read are passed over.
func (s *Scanner) Publish(ctx context.Context, id buildid.ID) (added bool, err error) {
	m, err := s.Store.Manifest(ctx, id)
	isThere := err == nil && !s.Store.IsBroken(m) // an identity that nobody asked for may have been removed
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return false, err
	}
	s.mu.Lock()
	paths := s.places[id]
	var todo []string
	files := map[string]*scanned{}
	for _, path := range paths {
		f := s.files[path]
		if f == nil {
			continue
		}
		taken, done := s.done[path+"\x00"+f.Stamp+id.String()]
		if !done || taken && !isThere {
			todo = append(todo, path)
			files[path] = f
		}
	}
	s.mu.Unlock()
	for _, path := range todo {
		isNew, err := s.take(ctx, id, path, files[path])
		switch {
		case ctx.Err() != nil:
			return added, ctx.Err()
		case isOwn(err):
			s.Log.Warn("a file was passed over", "path", path, "id", id.String(), "error", err)
		case err != nil:
			return added, err // the store failed: it is tried again
		}
		added = added || isNew
		s.mu.Lock()
		s.done[path+"\x00"+files[path].Stamp+id.String()] = err == nil
		s.mu.Unlock()
	}
	return added, nil
}

// isOwn reports whether an error is one of the file and not of the store.
func isOwn(err error) bool {
	var mismatch *store.MismatchError
	var format *store.FormatError
	var tooMany *store.TooManyError
	return errors.As(err, &mismatch) || errors.As(err, &format) || errors.As(err, &tooMany) || errors.Is(err, packages.ErrFormat) ||
		errors.Is(err, packages.ErrLimit) || errors.Is(err, store.ErrTooLarge) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, regular.ErrOther)
}

// take takes the files of an identity from one place into the store.
func (s *Scanner) take(ctx context.Context, id buildid.ID, path string, from *scanned) (added bool, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	origin := store.Origin{Trust: store.Operator, Via: "scan", Path: path}
	if !from.Pack {
		return s.add(ctx, id, f, origin)
	}
	origin.Archive = path
	err = packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), path, s.Limits, nil, func(m packages.Member) error {
		start := make([]byte, 4)
		if n, _ := io.ReadFull(m, start); n < 4 || !isELF(start) || from.Lazy && m.Path != packages.DebugFile(id.String()) && len(from.IDs) > 1 {
			return nil
		}
		o := origin
		o.Path, o.Package, o.Build = m.Path, m.Meta.Package(), m.Meta.Build()
		isNew, err := s.add(ctx, id, io.MultiReader(bytes.NewReader(start), m), o)
		var mismatch *store.MismatchError
		var format *store.FormatError
		if errors.As(err, &mismatch) || errors.As(err, &format) {
			return nil // another member
		}
		added = added || isNew
		return err
	})
	return added, err
}

func (s *Scanner) add(ctx context.Context, id buildid.ID, r io.Reader, o store.Origin) (bool, error) {
	spool, err := s.Store.Spool(ctx, r)
	if err != nil {
		return false, err
	}
	defer spool.Close()
	if info, _ := buildid.ReadClaim(spool); info.ID != id { // most members of a package are others
		return false, &store.MismatchError{Claimed: id.String(), Found: info.ID.String()}
	}
	a, err := s.Store.Add(ctx, spool, store.Claim{ID: id, Origin: o})
	return a.New, err
}

// Source opens the source file of a path from a package of the same build as the files of an
// identity, for the caller to close.
func (s *Scanner) Source(ctx context.Context, _ buildid.ID, m *store.Manifest, name string) (io.ReadCloser, store.Origin, bool, error) {
	for i := range m.Files {
		for _, o := range m.Files[i].Origins {
			if o.Build == "" {
				continue
			}
			s.mu.Lock()
			paths := s.sources[o.Build+"\x00"+filepath.Clean(name)]
			s.mu.Unlock()
			for _, path := range paths {
				r, err := s.sourceIn(ctx, path, filepath.Clean(name))
				if err != nil || r != nil {
					return r, store.Origin{Trust: store.Operator, Via: "scan", Path: name, Archive: path, Build: o.Build, Time: time.Now().UTC()}, r != nil, err
				}
			}
		}
	}
	return nil, store.Origin{}, false, nil
}

// sourceIn returns a member of a package, nil where it has none with the name.
func (s *Scanner) sourceIn(ctx context.Context, path, name string) (out io.ReadCloser, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), path, s.Limits, nil, func(m packages.Member) error {
		if m.Path != name {
			return nil
		}
		copied, err := atomicfile.Scratch()
		if err != nil {
			return err
		}
		if _, err = io.Copy(copied, m); err == nil {
			_, err = copied.Seek(0, io.SeekStart)
		}
		if err != nil {
			copied.Close()
			return err
		}
		out = copied
		return packages.ErrSkip
	})
	return out, err
}
