package store

import (
	"context"
	"errors"
	"fmt"

	"hallmark/buildid"
	"hallmark/server/blob"
)

// A DamagedError says that a list of the store is not what was written: a manifest, an entry of a source file, a record
// of a profile. It counts as none, until somebody brings again what it listed.
type DamagedError struct {
	Key string
	Err error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Key, e.Err) }
func (e *DamagedError) Unwrap() error { return e.Err }

func isDamaged(err error) bool {
	var damaged *DamagedError
	return errors.As(err, &damaged)
}

// damagedList notes that a list is damaged, and returns that as an error. It is reported once.
func (s *Store) damagedList(key string, why error) error {
	s.mu.Lock()
	known := s.damaged[key] || len(s.damaged) >= maxBroken
	if !known {
		s.damaged[key] = true
	}
	s.mu.Unlock()
	if !known && s.OnDamage != nil {
		s.OnDamage(key, why)
	}
	return &DamagedError{key, why}
}

// soundList notes that a list is there again.
func (s *Store) soundList(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.damaged, key)
}

// DamagedLists returns how many lists were found damaged, and are so still as far as is known.
func (s *Store) DamagedLists() int64 {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.damaged))
}

// rewrite puts a manifest that was read before in the place of a damaged one, and returns what is there then.
func (s *Store) rewrite(ctx context.Context, id buildid.ID, tag string, m *Manifest) (*Manifest, blob.Info, error) {
	b, err := encodeSealed(m)
	if err != nil {
		return nil, blob.Info{}, err
	}
	if _, err := s.Blobs.PutIfMatch(ctx, manifestKey(id), tag, b); err != nil && !errors.Is(err, blob.ErrChanged) {
		return nil, blob.Info{}, err
	}
	return s.read(ctx, id)
}
