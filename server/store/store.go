// Package store keeps files by identity over a blob store, as a symbol server needs them.
//
// The layout is
//
//	cas/ab/SHA256                    the bytes of a file, in seekable zstd; never changed
//	dead/ab/SHA256                   nobody may list this object any more: see Collect
//	id/KIND/ab/cdef…/manifest.json   which files an identity has, changed by compare-and-swap
//	index/vN/KIND/ab/cdef…/NAME      a prepared index of the files that are served
//	src/KIND/ab/cdef…/LIFE/SHA256    where the source file of this path is, for an identity
//	build/SHA256/SHA256              the same for a build of a source package
//	leases/…                         who makes something now, until when
//	staging/…                        uploads that are not whole
//	catalog/v2/…                     what there is by identity and name: see Catalog
//	broken/ab/SHA256                 the bytes of this object are lost, until somebody brings them again
//	profiles/id/ab/SHA256            what is known of a profile, changed by compare-and-swap
//	profiles/DAY/SHA256-LIFE         the bytes of a profile as they came, in seekable zstd
//
// A file is published in this order: its bytes are read and verified, its object is stored, and
// its manifest says so. An acknowledged file can be read after a crash. A crash in between
// leaves an object that nothing refers to, and never a manifest that is not true.
//
// The store reads the identity from the file's bytes: another one than was claimed is an error. Two
// files of different code that have one identity are both kept and shown, and that of the more
// trusted origin is served.
package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/seekable"
	"hallmark/server/blob"
)

// Store keeps files by identity. Its fields must not change after its first use; its methods
// may be called by several goroutines at once.
type Store struct {
	Blobs blob.Store
	// Scratch is a directory on a local disk for files in the making, which have no name
	// there. "" means that of the system.
	Scratch string
	// MaxFile is how many bytes a file may have, 4 GiB when 0.
	MaxFile int64
	// CacheSize is how many bytes of decompressed content are kept in memory, 32 MiB when 0.
	CacheSize int64
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// OnChange is called after a manifest was read anew or written, with one without files where it
	// is gone; nil for no call.
	OnChange func(*Manifest)
	// OnDamage is called with each list and part of the catalogue that is found damaged, once; nil for no call.
	OnDamage func(key string, why error)
	// OnBroken is called with each object that is found broken, once; nil for no call.
	OnBroken func(Broken)
	// OnStray is called with the key of each object that is found where the store has its own and is none of these, once;
	// nil for no call. It stays, and counts as none.
	OnStray func(key string)
	// ReadOnly writes no marks of broken objects.
	ReadOnly bool

	once    sync.Once
	catalog *Catalog
	cache   *seekable.Cache
	objects objects

	mu      sync.Mutex
	broken  map[string]Broken
	damaged map[string]bool // lists, by key
	told    map[string]bool // broken objects that a ReadOnly store has reported
	strays  map[string]bool // keys of objects that are not the store's
	known   map[buildid.ID]knownManifest
	seen    uint64 // manifests that came into known
}

// A knownManifest is one that was read not long ago, nil where there was none.
type knownManifest struct {
	m    *Manifest
	read time.Time // zero for one that is not believed
	seq  uint64    // one of its own: see remember
}

// How long a manifest is believed without a look at the store, which another server may have
// changed, and how many are remembered.
const (
	believed = 2 * time.Second
	maxKnown = 4096
)

// DefaultMaxFile is the size of the largest file that is kept unless a Store says otherwise.
const DefaultMaxFile = 4 << 30

func (s *Store) init() {
	s.once.Do(func() {
		if s.MaxFile == 0 {
			s.MaxFile = DefaultMaxFile
		}
		if s.CacheSize == 0 {
			s.CacheSize = 32 << 20
		}
		if s.Now == nil {
			s.Now = time.Now
		}
		s.cache = seekable.NewCache(s.CacheSize)
		s.catalog = newCatalog(s)
		s.known, s.broken, s.damaged = map[buildid.ID]knownManifest{}, map[string]Broken{}, map[string]bool{}
		s.told, s.strays = map[string]bool{}, map[string]bool{}
	})
}

// Errors of claims.
var (
	// ErrTooLarge says that a file has more bytes than are taken.
	ErrTooLarge = errors.New("file is too large")
	// ErrScratchFull says that the directory for files in the making has no room. The store may have some.
	ErrScratchFull = errors.New("no space is left for files in the making")
)

// A notHereError says what the store does not have.
type notHereError struct{ what string }

func (e *notHereError) Error() string { return "the store has no " + e.what }
func (e *notHereError) Unwrap() error { return blob.ErrNotExist }

// A MismatchError says that a file is another one than was claimed.
type MismatchError struct{ Claimed, Found string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("claimed to be %s, but its bytes say %s", e.Claimed, e.Found)
}

// A Spool is a file in the making: all of its bytes are on a local disk, and it has no name.
type Spool struct {
	*os.File
	Size   int64
	Object string // SHA-256 of the bytes
}

// Spool reads a file to the local disk. The caller closes the Spool.
func (s *Store) Spool(ctx context.Context, r io.Reader) (*Spool, error) {
	return s.SpoolFor(ctx, r, nil)
}

// SpoolFor is Spool for a file that others can read meanwhile; nil for one that nobody does.
func (s *Store) SpoolFor(ctx context.Context, r io.Reader, early *Arriving) (*Spool, error) {
	s.init()
	f, err := s.scratch()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	var out io.Writer = f
	if early != nil {
		early.begin(f)
		out = &growing{f, early, 0}
	}
	n, err := io.Copy(io.MultiWriter(out, h), io.LimitReader(&untilDone{ctx, r}, s.MaxFile+1))
	if err == nil && n > s.MaxFile {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.MaxFile)
	}
	if err != nil {
		f.Close()
		return nil, s.scratchError(err)
	}
	return &Spool{f, n, hex.EncodeToString(h.Sum(nil))}, nil
}

func (s *Store) scratch() (*os.File, error) {
	f, err := atomicfile.ScratchIn(cmp.Or(s.Scratch, os.TempDir()))
	return f, s.scratchError(err)
}

// untilDone reads until a context is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// A Claim is what whoever brings a file says of it.
type Claim struct {
	ID     buildid.ID // zero for no claim
	Object string     // SHA-256 of its bytes, "" for no claim
	Origin Origin
	// Verified is called when the file is what was claimed, before it is stored; nil for no call.
	Verified func(Facts)
}

// Added is what became of a file.
type Added struct {
	ID       buildid.ID
	Object   string
	New      bool // the identity did not have this file
	Manifest *Manifest
}

// Add verifies a file and publishes it. An error is a *MismatchError, a *FormatError, a
// *TooManyError, or one of the store.
func (s *Store) Add(ctx context.Context, spool *Spool, claim Claim) (Added, error) {
	s.init()
	if claim.Object != "" && claim.Object != spool.Object {
		return Added{}, &MismatchError{"sha256:" + claim.Object, "sha256:" + spool.Object}
	}
	facts, err := Inspect(ctx, spool.File, spool.Size, claim.Origin.name())
	if err != nil {
		return Added{}, err
	}
	if !claim.ID.IsZero() && claim.ID != facts.ID {
		return Added{}, &MismatchError{claim.ID.String(), facts.ID.String()}
	}
	if !facts.Executable && !facts.Debug {
		return Added{}, &FormatError{fmt.Errorf("%s: neither code nor debug information is in it", claim.Origin.name())}
	}
	if claim.Verified != nil {
		claim.Verified(facts)
	}
	object, err := s.putObject(ctx, spool)
	if err != nil {
		return Added{}, err
	}
	origin := claim.Origin.clean()
	if origin.Time.IsZero() {
		origin.Time = s.Now().UTC().Truncate(time.Second)
	}
	f := File{Object: spool.Object, Key: object.key(spool), Size: spool.Size, Facts: facts, Origins: []Origin{origin}}
	m, changed, err := s.merge(ctx, facts.ID, f, object.inTime)
	return Added{facts.ID, spool.Object, changed, m}, err
}

// Name returns what a file is called in messages.
func (o Origin) name() string {
	switch {
	case o.Archive != "":
		return o.Archive + ": " + o.Path
	case o.Path != "":
		return o.Path
	}
	return "the file"
}

func objectKey(object string) string { return "cas/" + object[:2] + "/" + object }

// IsObject reports whether a text can name an object.
func IsObject(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

// putObject stores the bytes of a spool, unless the store has them in an object that may be listed. That object is read:
// where it is damaged, these bytes take its place.
func (s *Store) putObject(ctx context.Context, spool *Spool) (placed, error) {
	p := placed{name: spool.Object, since: s.Now(), now: s.Now}
	_, err := s.Blobs.Head(ctx, deadKey(p.name))
	switch {
	case err == nil: // it is about to be removed, or was so not long ago
		p.name += "-" + newLife()
		return p, s.putCompressed(ctx, objectKey(p.name), io.NewSectionReader(spool.File, 0, spool.Size))
	case !errors.Is(err, blob.ErrNotExist):
		return p, err
	}
	return p, s.mend(ctx, p.name, spool)
}

// putCompressed stores what r has under a key. That it is there already is no error.
func (s *Store) putCompressed(ctx context.Context, key string, r io.Reader) error {
	return s.compressed(ctx, r, func(r io.Reader, size int64) error {
		_, err := s.Blobs.PutIfAbsent(ctx, key, r, size)
		if errors.Is(err, blob.ErrExist) {
			return nil
		}
		return err
	})
}

// compressed calls put with what r has, in the form in which objects have it.
func (s *Store) compressed(ctx context.Context, r io.Reader, put func(r io.Reader, size int64) error) error {
	out, err := s.scratch()
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := seekable.Compress(out, &untilDone{ctx, r}); err != nil {
		return s.scratchError(err)
	}
	size, err := out.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	return put(io.NewSectionReader(out, 0, size), size)
}

// swaps is how often a manifest is tried to be changed.
const swaps = 50

// merge has the manifest of an identity list a file, as long as may returns no error. That somebody
// sends a file again counts as a use.
func (s *Store) merge(ctx context.Context, id buildid.ID, f File, may func() error) (m *Manifest, changed bool, err error) {
	m, err = s.change(ctx, id, func(m *Manifest) (bool, error) {
		var err error
		if changed, err = m.add(f); err != nil {
			return false, err
		}
		used := !changed && m.use(s.Now())
		return changed || used, may()
	})
	return m, changed, err
}

// change applies a change to a manifest, which may be empty, by compare-and-swap. The change
// may be made several times, and reports whether it was one.
func (s *Store) change(ctx context.Context, id buildid.ID, apply func(*Manifest) (bool, error)) (*Manifest, error) {
	key := manifestKey(id)
	for try := range swaps {
		k, _ := s.lookUp(id)
		m, old, err := s.read(ctx, id)
		if isDamaged(err) && k.m != nil {
			m, old, err = s.rewrite(ctx, id, old.Tag, k.m)
		}
		if err != nil && !errors.Is(err, blob.ErrNotExist) && !isDamaged(err) {
			return nil, err
		}
		if m == nil {
			m = &Manifest{Version: manifestVersion, ID: id}
		}
		before := catalogued(m)
		changed, err := apply(m)
		if err != nil || !changed {
			if err == nil && old.Tag != "" {
				s.remember(id, k, m, old) // a change whose answer was lost, maybe
			}
			return m, err
		}
		if m.Life == "" && len(m.Files) > 0 {
			m.Life = newLife()
		}
		info, err := s.replace(ctx, key, old.Tag, before, m)
		switch {
		case err == nil:
			s.remember(id, k, m, info)
			return m, nil
		case !errors.Is(err, blob.ErrExist) && !errors.Is(err, blob.ErrChanged):
			return nil, err
		}
		// Another server was faster: it has changed something else, most likely.
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(rand.Int64N(int64(1+min(try, 20)) * int64(5*time.Millisecond)))):
		}
	}
	return nil, fmt.Errorf("%v: %w: its manifest changes all the time", id, blob.ErrUnavailable)
}

// replace writes a manifest in the place of the one with a tag, "" for none. Where the catalogue had something else of that
// one, an intent says so first.
func (s *Store) replace(ctx context.Context, key, tag string, before []byte, m *Manifest) (info blob.Info, err error) {
	b, err := encodeSealed(m)
	if err != nil {
		return info, err
	}
	if content := catalogued(m); !bytes.Equal(content, before) {
		if err := s.catalog.intend(ctx, intent{ID: m.ID, Content: sumOf(content)}); err != nil {
			return info, err
		}
		short, cancel := context.WithTimeout(ctx, intentTime)
		defer cancel()
		defer func() {
			if ctx.Err() == nil {
				err = inTime(err)
			}
		}()
		ctx = short
	}
	if tag == "" {
		return s.Blobs.PutIfAbsent(ctx, key, bytes.NewReader(b), int64(len(b)))
	}
	return s.Blobs.PutIfMatch(ctx, key, tag, b)
}

// read reads a manifest from the store, with what it takes to change it, also where it is damaged.
func (s *Store) read(ctx context.Context, id buildid.ID) (*Manifest, blob.Info, error) {
	b, info, err := blob.Read(ctx, s.Blobs, manifestKey(id), blob.MaxSwap)
	if err != nil {
		return nil, blob.Info{}, err
	}
	m, err := s.decodeManifest(info.Key, b)
	return m, info, err
}

// reread reads a manifest, nil where there is none, and remembers it. One that is damaged is written anew, if it was read
// before.
func (s *Store) reread(ctx context.Context, id buildid.ID) (*Manifest, error) {
	k, _ := s.lookUp(id)
	m, info, err := s.read(ctx, id)
	if isDamaged(err) && k.m != nil && !s.ReadOnly {
		m, info, err = s.rewrite(ctx, id, info.Tag, k.m)
	}
	if err != nil && !errors.Is(err, blob.ErrNotExist) && !isDamaged(err) {
		return nil, err
	}
	if m == nil {
		m, info = &Manifest{ID: id}, blob.Info{}
	}
	s.remember(id, k, m, info)
	if isDamaged(err) {
		return nil, err
	}
	return m, nil
}

// lookUp returns what is known of an identity.
func (s *Store) lookUp(id buildid.ID) (k knownManifest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok = s.known[id]
	return k, ok
}

// remember notes a manifest that was read or changed since k was known: one without files where there is none. Where
// another goroutine has noted one meanwhile, nobody knows which is newer, and neither is believed.
func (s *Store) remember(id buildid.ID, k knownManifest, m *Manifest, info blob.Info) {
	now := knownManifest{read: time.Now()}
	if len(m.Files) > 0 {
		now.m = m
	}
	s.mu.Lock()
	if len(s.known) >= maxKnown {
		for old := range s.known { // any of them: it is read again
			delete(s.known, old)
			break
		}
	}
	s.seen++
	now.seq = s.seen
	if s.known[id].seq != k.seq {
		now.read = time.Time{}
	}
	s.known[id] = now
	s.mu.Unlock()
	stamp := uint64(0)
	if info.Key != "" {
		stamp = stampOf(info)
	}
	s.catalog.note(recordOf(m, stamp))
	if latest, _ := s.lookUp(id); now.read.IsZero() || latest.seq != now.seq {
		s.catalog.doubt(id)
	}
	s.changed(m)
}

// changed reports what a manifest is now.
func (s *Store) changed(m *Manifest) {
	if s.OnChange != nil {
		s.OnChange(m)
	}
}

// Manifest returns the manifest of an identity, which must not be changed. Without one the
// error is blob.ErrNotExist. Changes by another server are seen after two seconds.
func (s *Store) Manifest(ctx context.Context, id buildid.ID) (*Manifest, error) {
	s.init()
	none := fmt.Errorf("%v: %w", id, blob.ErrNotExist)
	if id.IsZero() || id.Kind() == buildid.HTL {
		return nil, none
	}
	k, ok := s.lookUp(id)
	if ok && time.Since(k.read) < believed {
		if k.m == nil {
			return nil, none
		}
		return k.m, nil
	}
	m, err := s.reread(ctx, id)
	switch {
	case isDamaged(err):
		return nil, fmt.Errorf("%w: %w", none, err)
	case err == nil && len(m.Files) == 0:
		return nil, none
	case err != nil:
		if ok && k.m != nil && errors.Is(err, blob.ErrUnavailable) {
			return k.m, nil // the store is down: what was true is good enough
		}
		return nil, err
	}
	return m, nil
}

// Use notes that an identity is asked for today. One that has been removed is blob.ErrNotExist.
func (s *Store) Use(ctx context.Context, m *Manifest) error {
	s.init()
	if m.UsedOn(s.Now()) {
		return nil
	}
	_, err := s.change(ctx, m.ID, func(m *Manifest) (bool, error) {
		if len(m.Files) == 0 {
			return false, fmt.Errorf("%v: %w", m.ID, blob.ErrNotExist)
		}
		return m.use(s.Now()), nil
	})
	return err
}

// AddOrigin notes that a file which an identity has came again, under another name. It counts as a use. An identity that
// has been removed is blob.ErrNotExist.
func (s *Store) AddOrigin(ctx context.Context, id buildid.ID, object string, o Origin) error {
	s.init()
	if o = o.clean(); o.Time.IsZero() {
		o.Time = s.Now().UTC().Truncate(time.Second)
	}
	_, err := s.change(ctx, id, func(m *Manifest) (bool, error) {
		i := slices.IndexFunc(m.Files, func(f File) bool { return f.Object == object })
		if i < 0 {
			return false, fmt.Errorf("%v: %w", id, blob.ErrNotExist)
		}
		again := m.Files[i]
		again.Origins = []Origin{o}
		changed, err := m.add(again)
		return m.use(s.Now()) || changed, err
	})
	return err
}

// Pin has an identity kept for ever, or no longer.
func (s *Store) Pin(ctx context.Context, id buildid.ID, pinned bool) error {
	s.init()
	_, err := s.change(ctx, id, func(m *Manifest) (bool, error) {
		if len(m.Files) == 0 {
			return false, &notHereError{"build ID " + id.String()}
		}
		was := m.Pinned
		m.Pinned = pinned
		return was != pinned, nil
	})
	return err
}

// scratchError returns an error of a file in the making, with the directory where it has no room.
func (s *Store) scratchError(err error) error {
	if errors.Is(err, errNoSpace) || errors.Is(err, errQuota) {
		return fmt.Errorf("%w: %s: %w", ErrScratchFull, cmp.Or(s.Scratch, os.TempDir()), err)
	}
	return err
}
