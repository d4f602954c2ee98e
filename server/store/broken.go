package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/internal/seekable"
	"hallmark/server/blob"
)

// A Broken object is one that something lists, and whose bytes are not in the store, or damaged there. It has a mark
// in the store, so that all servers know it, until somebody brings the bytes again: see Store.Add.
type Broken struct {
	Object  string    `json:"object"` // its name: see File.Stored
	Missing bool      `json:"missing,omitempty"`
	Found   time.Time `json:"found"`
	Why     string    `json:"why"`
	Named
	pending bool // its mark is about to be written
}

// Named says what an object is to people. Fields are empty where that is not known.
type Named struct {
	ID      string `json:"build_id,omitempty"` // identity of the file, or of that whose source it is
	Path    string `json:"path,omitempty"`     // of the file, as its most trusted origin says; "" for a source
	Package string `json:"package,omitempty"`  // the package or archive that it came in
	Profile string `json:"profile,omitempty"`  // title of the profile
}

// String returns what is known, "" where that is nothing.
func (n Named) String() string {
	var parts []string
	for _, p := range []struct{ of, text string }{{"build ID ", n.ID}, {"", n.Path}, {"of ", n.Package}, {"profile ", n.Profile}} {
		if p.text != "" {
			parts = append(parts, p.of+p.text)
		}
	}
	return strings.Join(parts, ", ")
}

// naming returns what a file of an identity is to people.
func (f *File) naming(id buildid.ID) Named {
	n := Named{ID: id.String()}
	for _, o := range f.Origins {
		n.Path, n.Package = cmp.Or(n.Path, o.Path), cmp.Or(n.Package, o.Package, o.Archive)
	}
	return n
}

// namedBy returns what an object is by the manifests that were read not long ago. Whoever finds that it is broken has read
// the one that lists it.
func (s *Store) namedBy(name string) Named {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.known {
		if k.m == nil {
			continue
		}
		for i := range k.m.Files {
			if f := &k.m.Files[i]; f.Stored() == name {
				return f.naming(id)
			}
		}
	}
	return Named{}
}

// A BrokenError says that the bytes of an object are lost.
type BrokenError struct {
	Object string
	Err    error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the store has lost the bytes of %s, until they are pushed again: %s", e.Object, reasonOf(objectKey(e.Object), e.Err))
}
func (e *BrokenError) Unwrap() error { return e.Err }

const brokenPrefix = "broken/"

func brokenKey(name string) string { return brokenPrefix + name[:2] + "/" + name }

// isLost reports whether an error says that bytes are not there, or not those that were stored.
func isLost(err error) bool {
	return errors.Is(err, blob.ErrNotExist) || errors.Is(err, seekable.ErrFormat) || errors.Is(err, errOtherBytes)
}

var errOtherBytes = errors.New("its bytes have another SHA-256")

// maxBroken is how many broken objects a server knows at most.
const maxBroken = 100000

// noteBroken notes that an object is broken, and reports whether that is new.
func (s *Store) noteBroken(ctx context.Context, name string, why error) bool {
	return s.noteBrokenAs(ctx, name, s.namedBy(name), why)
}

// noteBrokenAs is noteBroken for an object of which it is known what it is.
func (s *Store) noteBrokenAs(ctx context.Context, name string, of Named, why error) bool {
	b := Broken{Object: name, Missing: errors.Is(why, blob.ErrNotExist), Found: s.Now().UTC().Truncate(time.Second), Why: reasonOf(objectKey(name), why), Named: of, pending: !s.ReadOnly}
	s.mu.Lock()
	_, known := s.broken[name]
	known = known || s.ReadOnly && s.told[name]
	if known || len(s.broken) >= maxBroken {
		s.mu.Unlock()
		return false
	}
	s.broken[name] = b
	if s.ReadOnly { // it has no mark, so it is found again with each use
		s.told[name] = true
	}
	s.mu.Unlock()
	s.objects.forget(objectKey(name))
	if !s.ReadOnly {
		text, _ := json.Marshal(b) // of texts and a time
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTime)
		defer cancel()
		_, _ = s.Blobs.PutIfAbsent(ctx, brokenKey(name), strings.NewReader(string(text)), int64(len(text))) // this server knows it
		s.mu.Lock()
		if now, ok := s.broken[name]; ok {
			now.pending = false
			s.broken[name] = now
		}
		s.mu.Unlock()
	}
	if s.OnBroken != nil {
		s.OnBroken(b)
	}
	return true
}

// reasonOf returns why an object is broken, without its key and tag.
func reasonOf(key string, why error) string {
	if errors.Is(why, blob.ErrNotExist) {
		return "it is missing"
	}
	text := strings.TrimPrefix(why.Error(), key)
	if tag, rest, ok := strings.Cut(text, "): "); ok && strings.HasPrefix(tag, " (") {
		text = rest
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, ": "), ": ")
}

// markTime is how long a request may wait for the mark of a broken object.
const markTime = 5 * time.Second

// noteWhole notes that an object is not broken any more.
func (s *Store) noteWhole(ctx context.Context, name string) error {
	s.mu.Lock()
	_, known := s.broken[name]
	delete(s.broken, name)
	delete(s.told, name)
	s.mu.Unlock()
	if !known || s.ReadOnly {
		return nil
	}
	s.objects.forget(objectKey(name))
	return s.Blobs.Delete(ctx, brokenKey(name))
}

// stillBroken returns the error of an object that is known to be broken, and that no server has mended since.
func (s *Store) stillBroken(ctx context.Context, name string) error {
	s.mu.Lock()
	b, known := s.broken[name]
	s.mu.Unlock()
	switch {
	case !known:
		return nil
	case b.pending:
		return &BrokenError{name, errors.New(b.Why)}
	}
	_, err := s.Blobs.Head(ctx, brokenKey(name))
	if errors.Is(err, blob.ErrNotExist) {
		s.mu.Lock()
		delete(s.broken, name)
		s.mu.Unlock()
		s.objects.forget(objectKey(name))
		return nil
	}
	if err != nil {
		return err
	}
	return &BrokenError{name, errors.New(b.Why)}
}

// Broken returns the objects that are known to be broken, by name.
func (s *Store) Broken() []Broken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.broken), func(a, b Broken) int { return strings.Compare(a.Object, b.Object) })
}

// LoadBroken reads which objects other servers have found broken, and which are so no longer.
func (s *Store) LoadBroken(ctx context.Context) error {
	s.init()
	before := s.Broken()
	there := map[string]bool{}
	for info, err := range s.list(ctx, brokenPrefix) {
		if err != nil {
			return err
		}
		there[objectOf(info.Key)] = true
	}
	for _, b := range before {
		if !there[b.Object] && !s.ReadOnly && !b.pending {
			s.mu.Lock()
			delete(s.broken, b.Object)
			s.mu.Unlock()
			s.objects.forget(objectKey(b.Object))
		}
		delete(there, b.Object)
	}
	for name := range there {
		if _, err := s.readMark(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// readMark reads the mark of a broken object, and reports whether it has one.
func (s *Store) readMark(ctx context.Context, name string) (bool, error) {
	text, _, err := blob.Read(ctx, s.Blobs, brokenKey(name), 1<<16)
	var b Broken
	if errors.Is(err, blob.ErrNotExist) || err == nil && json.Unmarshal(text, &b) != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.Object = name
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.broken[name]; !known && len(s.broken) < maxBroken {
		s.broken[name] = b
	}
	return true, nil
}

// isObjectName reports whether a text can be the name of an object: a SHA-256, or one with what distinguishes a second.
func isObjectName(name string) bool {
	sum, _, _ := strings.Cut(name, "-")
	return IsObject(sum)
}

// IsBroken reports whether the bytes of a file of an identity are known to be lost.
func (s *Store) IsBroken(m *Manifest) bool {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(m.Files, func(f File) bool { _, ok := s.broken[f.Stored()]; return ok })
}

// HasBytes reports whether the store has the bytes of a file, as far as is known without reading them. It sees a mark that
// somebody else has just written.
func (s *Store) HasBytes(ctx context.Context, f *File) (bool, error) {
	s.init()
	name := f.Stored()
	s.mu.Lock()
	_, broken := s.broken[name]
	s.mu.Unlock()
	if broken {
		return false, nil
	}
	if marked, err := s.readMark(ctx, name); marked || err != nil {
		return false, err
	}
	_, err := s.Blobs.Head(ctx, objectKey(name))
	if errors.Is(err, blob.ErrNotExist) {
		s.noteBroken(ctx, name, err)
		return false, nil
	}
	return err == nil, err
}

// verify reads an object and returns whether its bytes are those of its name. An error of another kind than isLost says
// nothing of it.
func (s *Store) verify(ctx context.Context, name string) error {
	sum, _, _ := strings.Cut(name, "-")
	return s.verifyAt(ctx, objectKey(name), sum)
}

// verifyAt is verify for the object with a key, whose content has a SHA-256.
func (s *Store) verifyAt(ctx context.Context, key, sum string) error {
	r, info, err := blob.Open(ctx, s.Blobs, key)
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := seekable.NewReader(r, info.Size, "", nil) // not from the cache
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, &untilDone{ctx, content.Stream()}); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum {
		return fmt.Errorf("%s: %w", key, errOtherBytes)
	}
	return nil
}

// mend puts the bytes of a spool in the place of an object that is there, where that is damaged. Nobody sees a part of
// either, and an object that somebody else has mended meanwhile stays.
func (s *Store) mend(ctx context.Context, name string, spool *Spool) error {
	key := objectKey(name)
	for range swaps {
		info, err := s.Blobs.Head(ctx, key)
		if err == nil {
			err = s.verify(ctx, name)
		}
		switch {
		case err == nil:
			return s.noteWhole(ctx, name)
		case errors.Is(err, blob.ErrNotExist):
			if err = s.putCompressed(ctx, key, io.NewSectionReader(spool.File, 0, spool.Size)); err != nil {
				return err
			}
			return s.noteWhole(ctx, name)
		case !isLost(err):
			return err
		}
		s.noteBroken(ctx, name, err)
		err = s.compressed(ctx, io.NewSectionReader(spool.File, 0, spool.Size), func(r io.Reader, size int64) error {
			_, err := blob.Replace(ctx, s.Blobs, key, info.Tag, r, size)
			return err
		})
		if err == nil {
			return s.noteWhole(ctx, name)
		}
		if !isRace(err) {
			return err
		}
	}
	return fmt.Errorf("%s: %w: it changes all the time", key, blob.ErrUnavailable)
}
