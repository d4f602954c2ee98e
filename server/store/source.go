package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"

	"hallmark/server/blob"
)

// A SourceFile says which object is the source file of a path.
type SourceFile struct {
	Path   string `json:"path"`          // as the compiler recorded it, cleaned
	Object string `json:"object"`        // SHA-256 of its bytes
	Key    string `json:"key,omitempty"` // name of the object that holds them; "" where it is Object
	Size   int64  `json:"size"`
	Origin Origin `json:"origin"`
}

// Stored returns the name of the object that holds the bytes: see Store.Object.
func (f *SourceFile) Stored() string { return cmp.Or(f.Key, f.Object) }

// sourceKey returns where a source file is listed for an identity, as long as it has not been removed.
func sourceKey(m *Manifest, name string) string {
	return keyOf("src", m.ID) + "/" + m.life() + "/" + hashOf(name)
}

// buildKey returns where a source file is listed for a build of a source package.
func buildKey(build, name string) string { return "build/" + hashOf(build) + "/" + hashOf(name) }

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// cleanSource returns the one form of a path of a source file.
func cleanSource(name string) string { return path.Clean(name) }

// AddSource publishes a source file of an identity. A file of less trust than the one that is
// there does not take its place.
func (s *Store) AddSource(ctx context.Context, m *Manifest, name string, spool *Spool, o Origin) error {
	s.init()
	if m.Life == "" { // a version that removed nothing wrote it
		var err error
		if m, err = s.change(ctx, m.ID, func(m *Manifest) (bool, error) { return len(m.Files) > 0, nil }); err != nil {
			return err
		}
	}
	return s.addSource(ctx, sourceKey(m, cleanSource(name)), name, spool, o)
}

// AddBuildSource publishes a source file of all that was built from a source package, which is
// named as in Origin.Build.
func (s *Store) AddBuildSource(ctx context.Context, build, name string, spool *Spool, o Origin) error {
	return s.addSource(ctx, buildKey(build, cleanSource(name)), name, spool, o)
}

func (s *Store) addSource(ctx context.Context, key, name string, spool *Spool, o Origin) error {
	s.init()
	object, err := s.putObject(ctx, spool)
	if err != nil {
		return err
	}
	o = o.clean()
	if o.Time.IsZero() {
		o.Time = s.Now().UTC()
	}
	b, err := encodeSealed(SourceFile{cleanSource(name), spool.Object, object.key(spool), spool.Size, o})
	if err != nil {
		return err
	}
	for range swaps {
		old, tag, err := s.readSource(ctx, key)
		if err := object.inTime(); err != nil {
			return err
		}
		switch {
		case errors.Is(err, blob.ErrNotExist):
			_, err = s.Blobs.PutIfAbsent(ctx, key, bytes.NewReader(b), int64(len(b)))
		case err == nil && (old.Object == spool.Object || old.Origin.Trust.rank() >= o.Trust.rank()):
			return nil
		case err == nil, isDamaged(err):
			_, err = s.Blobs.PutIfMatch(ctx, key, tag, b)
		}
		if !errors.Is(err, blob.ErrExist) && !errors.Is(err, blob.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("%s: %w", key, blob.ErrUnavailable)
}

func (s *Store) readSource(ctx context.Context, key string) (f SourceFile, tag string, err error) {
	b, info, err := blob.Read(ctx, s.Blobs, key, blob.MaxSwap)
	if err != nil {
		return f, "", err
	}
	f, err = s.decodeSource(key, b)
	return f, info.Tag, err
}

// decodeSource decodes what the store has under a key.
func (s *Store) decodeSource(key string, b []byte) (f SourceFile, err error) {
	if err := decodeSealed(b, &f); err != nil || !IsObject(f.Object) {
		return SourceFile{}, s.damagedList(key, cmp.Or(err, errors.New("it is no entry of a source file")))
	}
	s.soundList(key)
	return f, nil
}

// Source returns the source file of a path for an identity: one that was brought for it, or
// one from the source package that its files were built from. The word of an agent counts where
// nobody else brought a file of the identity. Without one the error is blob.ErrNotExist.
func (s *Store) Source(ctx context.Context, m *Manifest, name string) (SourceFile, error) {
	s.init()
	name = cleanSource(name)
	keys := []string{sourceKey(m, name)}
	seen := map[string]bool{"": true}
	for _, f := range []*File{m.DebugInfo(), m.Executable()} {
		if f == nil {
			continue
		}
		for _, o := range f.Origins {
			if !seen[o.Build] && m.believes(o.Trust) {
				seen[o.Build] = true
				keys = append(keys, buildKey(o.Build, name))
			}
		}
	}
	for _, key := range keys {
		f, _, err := s.readSource(ctx, key)
		switch {
		case err == nil && f.Path != string([]rune(name)): // JSON has no bytes that are not UTF-8
			err = fmt.Errorf("%s: it is of another path", key)
		case err == nil && !m.believes(f.Origin.Trust):
			continue
		}
		if err == nil || !errors.Is(err, blob.ErrNotExist) && !isDamaged(err) {
			return f, err
		}
	}
	return SourceFile{}, fmt.Errorf("%s: %w", name, blob.ErrNotExist)
}
