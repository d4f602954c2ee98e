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
	"cmp"
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
	"slices"
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
	places  map[buildid.ID][]place
	ordered []place             // by path, and by that in the package
	whole   bool                // all directories have been looked at, and could be read
	unread  map[string]string   // directories that could not be read in the last round, and why
	sources map[string][]string // paths of packages, by build and path of the source file
	done    map[string]bool     // by path, stamp and identity: true where the store has it, false where it was passed over
}

// scanned is what is in a file: the file itself if it is ELF, or the members of a package.
type scanned struct {
	Stamp   string   `json:"stamp"` // of the file when it was looked at
	ELF     []member `json:"elf,omitempty"`
	Sources []string `json:"sources,omitempty"`
	Build   string   `json:"build,omitempty"` // of the package, "" where it is none
	Pack    bool     `json:"package,omitempty"`
	Lazy    bool     `json:"lazy,omitempty"` // it says what is in it, and was not unpacked
}

// member is an ELF file, as its headers or its package describe it.
type member struct {
	ID         buildid.ID `json:"id"`
	Path       string     `json:"path,omitempty"` // in the package, "" for the file itself
	Executable bool       `json:"executable,omitempty"`
	Debug      bool       `json:"debug,omitempty"`
	Segments   string     `json:"segments,omitempty"` // with Machine, as in store.Facts
	Machine    uint16     `json:"machine,omitempty"`
}

// facts returns what is known of a member.
func (m *member) facts() store.Facts {
	return store.Facts{ID: m.ID, Executable: m.Executable, Debug: m.Debug, Segments: m.Segments, Machine: m.Machine}
}

// place is where an ELF file is.
type place struct {
	path string
	in   *scanned
	*member
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
	r := &round{scanner: s, old: s.files, found: map[string]*scanned{}, unread: map[string]string{}, kept: time.Now()}
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

	unread map[string]string // of the goroutine that walks

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
			r.cannotRead(path, err)
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

// cannotRead notes a directory that cannot be read. It logs that once for each reason, not in each round.
func (r *round) cannotRead(path string, err error) {
	r.unread[path] = err.Error()
	if r.scanner.unread[path] != err.Error() {
		r.scanner.Log.Warn("a directory cannot be read", "path", path, "error", err)
	}
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
	s := r.scanner
	s.mu.Lock()
	defer s.mu.Unlock()
	if isAll {
		s.whole, s.unread = len(r.unread) == 0, r.unread
	}
	if changed == 0 && len(files) == len(r.old) {
		return nil
	}
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
	s.places, s.sources, s.done = map[buildid.ID][]place{}, map[string][]string{}, map[string]bool{}
	s.ordered = nil // who has it goes on with it
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[path]
		for i := range f.ELF {
			p := place{path, f, &f.ELF[i]}
			s.places[p.ID] = append(s.places[p.ID], p)
			s.ordered = append(s.ordered, p)
		}
		for _, name := range f.Sources {
			s.sources[f.Build+"\x00"+name] = append(s.sources[f.Build+"\x00"+name], path)
		}
	}
}

// Names calls yield with the names of files, those of an identity or, where that is zero, all, until yield returns false.
// It returns whether all directories have been looked at, and could be read.
func (s *Scanner) Names(id buildid.ID, yield func(kind string, id buildid.ID, file, archive string) bool) (complete bool) {
	s.mu.Lock()
	list, complete := s.ordered, s.whole
	if !id.IsZero() {
		list = s.places[id]
	}
	s.mu.Unlock()
	for _, p := range list {
		file, archive := p.Path, p.path
		if !p.in.Pack {
			file, archive = p.path, ""
		}
		if p.Executable && !yield("executable", p.ID, file, archive) || p.Debug && !yield("debuginfo", p.ID, file, archive) {
			break
		}
	}
	return complete
}

// Counts returns how many packages and archives there are, also those that cannot be read, and how many identities.
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
	m, err := memberOf(f)
	if !m.ID.IsZero() {
		out.ELF = []member{m}
	}
	return out, err
}

func isELF(b []byte) bool { return bytes.HasPrefix(b, []byte("\x7fELF")) }

// sourceDir is where distributions have the sources of what they build.
const sourceDir = "/usr/src/"

// lookIn finds out what is in a package.
func (s *Scanner) lookIn(ctx context.Context, f *os.File, path string, out *scanned) error {
	describe := func(m *packages.Meta) error {
		out.Build = m.Build()
		for _, text := range m.BuildIDs {
			if id, err := buildid.Parse(text); err == nil && !slices.ContainsFunc(out.ELF, func(m member) bool { return m.ID == id }) {
				for _, name := range m.DebugFiles(text) {
					out.ELF = append(out.ELF, member{ID: id, Path: name, Debug: true})
				}
			}
		}
		if out.Lazy = len(out.ELF) > 0; out.Lazy {
			return packages.ErrSkip
		}
		return nil
	}
	var l looking
	err := packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), path, s.Limits, describe, func(m packages.Member) error {
		if out.Build != "" && strings.HasPrefix(m.Path, sourceDir) {
			out.Sources = append(out.Sources, m.Path)
			return nil
		}
		if out.Build == "" && isSource(m.Path) {
			out.Sources = append(out.Sources, m.Path)
			return nil
		}
		one, err := l.look(m)
		if err != nil {
			return err
		}
		if one.Path = m.Path; !one.ID.IsZero() {
			out.ELF = append(out.ELF, one)
		}
		return nil
	})
	switch { // an archive that says of no build has the sources of its own files
	case out.Build != "" || len(out.Sources) == 0:
	case len(out.ELF) == 0:
		out.Sources = nil
	default:
		out.Build = "archive " + path
	}
	return err
}

// isSource reports whether a name is that of a source file, by its ending.
func isSource(name string) bool { return slices.Contains(sourceEnds, filepath.Ext(name)) }

var sourceEnds = []string{".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx", ".hxx", ".c++", ".h++", ".C", ".H", ".inc", ".inl", ".ipp", ".tcc", ".s", ".S", ".asm",
	".go", ".rs", ".d", ".m", ".mm", ".f", ".F", ".f90", ".F90", ".f95", ".adb", ".ads", ".zig", ".nim", ".swift", ".y", ".l", ".cu", ".vala", ".ml", ".pas"}

// Pending reports whether Publish has to read files for an identity.
func (s *Scanner) Pending(ctx context.Context, id buildid.ID) (bool, error) {
	s.mu.Lock()
	none := len(s.places[id]) == 0
	s.mu.Unlock()
	if none {
		return false, nil
	}
	w, err := s.waiting(ctx, id)
	return len(w.order) > 0, err
}

// waiting is what the store does not have of an identity.
type waiting struct {
	all   []place // of the identity
	todo  map[string][]place
	order []string // the paths of todo
	isNew bool     // the store knows nothing of the identity
}

func (s *Scanner) waiting(ctx context.Context, id buildid.ID) (w waiting, err error) {
	m, err := s.Store.Manifest(ctx, id)
	isThere := err == nil && !s.Store.IsBroken(m) // an identity that nobody asked for may have been removed
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		return w, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w = waiting{all: s.places[id], todo: map[string][]place{}, isNew: err != nil}
	for _, p := range w.all {
		if taken, done := s.done[p.key()]; done && (!taken || isThere) {
			continue
		}
		if w.todo[p.path] == nil {
			w.order = append(w.order, p.path)
		}
		w.todo[p.path] = append(w.todo[p.path], p)
	}
	return w, nil
}

// Publish takes what there is of an identity into the store, and reports whether that was
// something that the store did not have. Files that cannot be read are passed over. Debug files go first where
// debugFirst, else executables. early is called with a file that is served as what it is, whatever else there is, while it
// comes; nil for no call.
func (s *Scanner) Publish(ctx context.Context, id buildid.ID, debugFirst bool, early func(*store.Arriving)) (added bool, err error) {
	w, err := s.waiting(ctx, id)
	if err != nil {
		return false, err
	}
	if !w.isNew {
		early = nil // the store has others, which may be served
	}
	todo, order := w.todo, w.order
	isFirst := func(p place) bool { return debugFirst && p.Debug || !debugFirst && p.Executable }
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(min(0, slices.IndexFunc(todo[b], isFirst)), min(0, slices.IndexFunc(todo[a], isFirst)))
	})
	for _, path := range order {
		t := &taking{Scanner: s, id: id, path: path, places: todo[path], all: w.all, early: early}
		err := t.take(ctx)
		switch {
		case ctx.Err() != nil:
			return added, ctx.Err()
		case isOwn(err):
			s.Log.Warn("a file was passed over", "path", path, "id", id.String(), "error", err)
		case err != nil:
			return added, err // the store failed: it is tried again
		}
		added = added || t.added
		s.mu.Lock()
		s.done[todo[path][0].key()] = err == nil && t.found
		s.mu.Unlock()
	}
	return added, nil
}

// key names an identity in a file as it was looked at.
func (p place) key() string { return p.path + "\x00" + p.in.Stamp + p.ID.String() }

// isOwn reports whether an error is one of the file and not of the store.
func isOwn(err error) bool {
	var mismatch *store.MismatchError
	var format *store.FormatError
	var tooMany *store.TooManyError
	return errors.As(err, &mismatch) || errors.As(err, &format) || errors.As(err, &tooMany) || errors.Is(err, packages.ErrFormat) ||
		errors.Is(err, packages.ErrLimit) || errors.Is(err, store.ErrTooLarge) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, regular.ErrOther)
}

// Source opens the source file of a path from a package of the same build as the files of an
// identity, for the caller to close. It calls begin before it reads a package, and what that returns afterwards.
func (s *Scanner) Source(ctx context.Context, m *store.Manifest, name string, begin func() (end func(), err error)) (io.ReadCloser, store.Origin, bool, error) {
	for i := range m.Files {
		for _, o := range m.Files[i].Origins {
			if o.Build == "" {
				continue
			}
			s.mu.Lock()
			paths := s.sources[o.Build+"\x00"+filepath.Clean(name)]
			s.mu.Unlock()
			if len(paths) == 0 {
				continue
			}
			end, err := begin()
			if err != nil {
				return nil, store.Origin{}, false, err
			}
			defer end()
			for _, path := range paths {
				r, modified, err := s.sourceIn(ctx, path, filepath.Clean(name))
				if err != nil || r != nil {
					return r, store.Origin{Trust: store.Operator, Via: "scan", Path: name, Archive: path, Build: o.Build, Time: time.Now().UTC(), Modified: modified}, r != nil, err
				}
			}
		}
	}
	return nil, store.Origin{}, false, nil
}

// sourceIn returns a member of a package and when it was changed last, nil where it has none with the name.
func (s *Scanner) sourceIn(ctx context.Context, path, name string) (out io.ReadCloser, modified time.Time, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, modified, err
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
		out, modified = copied, m.Modified
		return packages.ErrSkip
	})
	return out, modified, err
}
