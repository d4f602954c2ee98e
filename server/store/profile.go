package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/server/blob"
)

// A Profile is what is known of a profile that is kept as it came. Its ID is the SHA-256 of its bytes.
//
// Its record is at profiles/id/ab/ID and its bytes are at profiles/DAY/ID-LIFE, which the record names. A
// profile that comes again after it was removed has other bytes' key, so that whoever removes the old ones
// removes nothing else.
type Profile struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"` // when it came first
	// Again is when the same bytes came last, to the day; zero where they came once.
	Again    time.Time `json:"again,omitzero"`
	Role     Trust     `json:"role"` // of the token by which it came first
	Kind     string    `json:"kind"`
	Title    string    `json:"title,omitempty"`
	Size     int64     `json:"size"`   // bytes, as it came
	Stored   int64     `json:"stored"` // bytes in the store
	Samples  int64     `json:"samples"`
	Binaries int64     `json:"binaries"`
	Object   string    `json:"object"` // key of the bytes; "" where the profile was removed

	modified time.Time // the record
	length   int64     // of the record
}

// ProfileRetention says which profiles a store keeps. The zero value keeps all.
type ProfileRetention struct {
	Age   time.Duration // since a profile came last; 0 for ever
	Size  int64         // bytes of all in the store, 0 for any number; the oldest go first
	Count int64         // of all, 0 for any number
}

// last is when the bytes came last.
func (p *Profile) last() time.Time {
	if p.Again.After(p.Time) {
		return p.Again
	}
	return p.Time
}

const (
	profileRecords = "profiles/id/"
	profilePrefix  = "profiles/"
)

func profileKey(id string) string { return profileRecords + id[:2] + "/" + id }

// maxProfileRecord is how many bytes a record has at most.
const maxProfileRecord = 16 << 10

// readProfile reads a record, with a tag by which it can be changed. One of a profile that was removed has
// no Object.
func (s *Store) readProfile(ctx context.Context, key string) (*Profile, string, error) {
	b, info, err := blob.Read(ctx, s.Blobs, key, maxProfileRecord)
	if err != nil {
		return nil, "", err
	}
	p := new(Profile)
	if err := decodeSealed(b, p); err != nil {
		return nil, info.Tag, s.damagedList(key, err)
	}
	if !IsObject(p.ID) || profileKey(p.ID) != key || p.Object != "" && !strings.HasPrefix(p.Object, profilePrefix) || p.Size < 0 || p.Stored < 0 {
		return nil, info.Tag, s.damagedList(key, errors.New("it is of another profile"))
	}
	s.soundList(key)
	p.modified, p.length = info.Modified, info.Size
	return p, info.Tag, nil
}

// Profile returns the record of a profile. Without one the error is blob.ErrNotExist.
func (s *Store) Profile(ctx context.Context, id string) (*Profile, error) {
	s.init()
	if !IsObject(id) {
		return nil, &notHereError{fmt.Sprintf("profile %.80q", id)}
	}
	p, _, err := s.readProfile(ctx, profileKey(id))
	if errors.Is(err, blob.ErrNotExist) || err == nil && p.Object == "" {
		return nil, &notHereError{"profile " + id}
	}
	return p, err
}

// OpenProfile opens the bytes of a profile, for the caller to close.
func (s *Store) OpenProfile(ctx context.Context, p *Profile) (*Object, error) {
	s.init()
	return s.openCompressed(ctx, p.Object)
}

// AddProfile keeps a profile, of which p says what its bytes do not: Role, Kind, Title, Samples, Binaries. It
// reports whether the store did not have it. If it did, that the bytes came again counts for the retention, and the
// record stays as it is otherwise.
func (s *Store) AddProfile(ctx context.Context, spool *Spool, p Profile) (*Profile, bool, error) {
	s.init()
	now := s.Now().UTC()
	p.ID, p.Size, p.Time, p.Object = spool.Object, spool.Size, now.Truncate(time.Second), ""
	key := profileKey(p.ID)
	for range swaps {
		old, tag, err := s.readProfile(ctx, key)
		if err != nil && !errors.Is(err, blob.ErrNotExist) && !isDamaged(err) {
			return nil, false, err
		}
		isBroken := false
		if old != nil && old.Object != "" {
			err := s.verifyAt(ctx, old.Object, p.ID)
			if isBroken = isLost(err); err != nil && !isBroken {
				return nil, false, err
			}
		}
		if old != nil && old.Object != "" && !isBroken {
			if p.Object != "" { // another upload of the same bytes was faster
				if err := s.Blobs.Delete(ctx, p.Object); err != nil {
					return nil, false, err
				}
			}
			if old.last().Format(time.DateOnly) == now.Format(time.DateOnly) {
				return old, false, nil
			}
			old.Again = now.Truncate(time.Second)
			if err := s.writeProfile(ctx, key, tag, old); !isRace(err) {
				return old, false, err
			}
			p.Object = ""
			continue
		}
		if p.Object == "" {
			p.Object = profilePrefix + now.Format(time.DateOnly) + "/" + p.ID + "-" + newLife()
			if p.Stored, err = s.putSized(ctx, p.Object, io.NewSectionReader(spool.File, 0, spool.Size)); err != nil {
				return nil, false, err
			}
		}
		if s.Now().Sub(now) > listTime { // Collect may take the bytes for those of nobody
			return nil, false, fmt.Errorf("profile %s: %w: it took too long", p.ID, blob.ErrUnavailable)
		}
		if err := s.writeProfile(ctx, key, tag, &p); !isRace(err) {
			return &p, err == nil, err
		}
	}
	return nil, false, fmt.Errorf("profile %s: %w: its record changes all the time", p.ID, blob.ErrUnavailable)
}

func isRace(err error) bool {
	return errors.Is(err, blob.ErrExist) || errors.Is(err, blob.ErrChanged)
}

// writeProfile writes a record in place of the one with a tag, "" for none.
func (s *Store) writeProfile(ctx context.Context, key, tag string, p *Profile) error {
	b, err := encodeSealed(p)
	if err != nil {
		return err
	}
	var info blob.Info
	if tag == "" {
		info, err = s.Blobs.PutIfAbsent(ctx, key, bytes.NewReader(b), int64(len(b)))
	} else {
		info, err = s.Blobs.PutIfMatch(ctx, key, tag, b)
	}
	p.modified, p.length = info.Modified, int64(len(b))
	return err
}

// putSized is putCompressed for a key that nobody else has. It returns how many bytes are stored.
func (s *Store) putSized(ctx context.Context, key string, r io.Reader) (int64, error) {
	var stored int64
	err := s.compressed(ctx, r, func(r io.Reader, size int64) error {
		stored = size
		_, err := s.Blobs.PutIfAbsent(ctx, key, r, size)
		return err
	})
	return stored, err
}

// RemoveProfile removes a profile, and reports whether it did: one that came again since its record was read stays.
// Nobody is given the bytes any more before they go.
func (s *Store) RemoveProfile(ctx context.Context, p *Profile) (bool, error) {
	s.init()
	key := profileKey(p.ID)
	now, tag, err := s.readProfile(ctx, key)
	switch {
	case errors.Is(err, blob.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case now.Object != p.Object || now.last().After(p.last()):
		return false, nil
	}
	if err := s.writeProfile(ctx, key, tag, &Profile{ID: p.ID}); err != nil {
		if isRace(err) {
			err = nil
		}
		return false, err
	}
	if err := s.Blobs.Delete(ctx, p.Object); err != nil {
		return true, err
	}
	return true, s.forgetProfile(ctx, key)
}

// forgetProfile removes the record of a profile that was removed. Where the store knows no such condition the record
// stays: it has two hundred bytes.
func (s *Store) forgetProfile(ctx context.Context, key string) error {
	d, ok := s.Blobs.(blob.ConditionalDeleter)
	if !ok {
		return nil
	}
	p, tag, err := s.readProfile(ctx, key)
	if err == nil && p.Object == "" {
		err = d.DeleteIfMatch(ctx, key, tag)
	}
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrChanged) {
		return nil
	}
	return err
}

// Profiles returns the records of all profiles, by ID. Those of known are not read again that have not changed. A
// record that is damaged is left out, and the error says so; with any other error there are none.
func (s *Store) Profiles(ctx context.Context, known map[string]*Profile) (map[string]*Profile, error) {
	s.init()
	all := map[string]*Profile{}
	var mu sync.Mutex
	var damaged error
	err := s.eachObject(ctx, profileRecords, func(ctx context.Context, info blob.Info) error {
		id := info.Key[strings.LastIndexByte(info.Key, '/')+1:]
		p := known[id] // which nobody changes meanwhile
		if p == nil || !p.modified.Equal(info.Modified) || p.length != info.Size {
			var err error
			p, _, err = s.readProfile(ctx, info.Key)
			var bad *DamagedError
			switch {
			case errors.As(err, &bad):
				mu.Lock()
				defer mu.Unlock()
				damaged = cmp.Or(damaged, err)
				return nil
			case errors.Is(err, blob.ErrNotExist):
				return nil
			case err != nil:
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all[id] = p
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, damaged
}

// eachObject calls do for all objects with a prefix, some at a time, until one call fails.
func (s *Store) eachObject(ctx context.Context, prefix string, do func(context.Context, blob.Info) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	objects := make(chan blob.Info)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for info := range objects {
				if ctx.Err() != nil {
					continue
				}
				if err := do(ctx, info); err != nil {
					cancel(err)
				}
			}
		})
	}
	var failed error
	for info, err := range s.list(ctx, prefix) {
		if failed = err; err != nil {
			break
		}
		objects <- info
	}
	close(objects)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return failed
}

// Excess returns the profiles that need not be kept at a time, the oldest first.
func (r ProfileRetention) Excess(all []*Profile, now time.Time) (out []*Profile) {
	kept := slices.SortedFunc(slices.Values(all), func(a, b *Profile) int {
		return cmp.Or(a.last().Compare(b.last()), strings.Compare(a.ID, b.ID))
	})
	kept = slices.DeleteFunc(kept, func(p *Profile) bool { return p.Object == "" })
	count, size := int64(len(kept)), int64(0)
	for _, p := range kept {
		size += p.Stored
	}
	for _, p := range kept {
		if !(r.Age > 0 && now.Sub(p.last()) > r.Age || r.Count > 0 && count > r.Count || r.Size > 0 && size > r.Size) {
			break
		}
		out = append(out, p)
		count--
		size -= p.Stored
	}
	return out
}

// profiles removes profiles that need not be kept, and bytes that no record names: of uploads that were cut
// short, and of removals.
func (c *collector) profiles(ctx context.Context) error {
	all, err := c.s.Profiles(ctx, nil)
	var damaged *DamagedError
	if err != nil && !errors.As(err, &damaged) {
		return err
	}
	named := map[string]bool{}
	var live []*Profile
	for _, p := range all {
		if p.Object != "" {
			live = append(live, p)
			named[p.Object] = true
		} else if !c.o.DryRun {
			if err := c.s.forgetProfile(ctx, profileKey(p.ID)); err != nil {
				return err
			}
		}
	}
	for _, p := range c.o.Profiles.Excess(live, c.started) {
		removed := c.o.DryRun
		if !removed {
			if removed, err = c.s.RemoveProfile(ctx, p); err != nil {
				return err
			}
		}
		if removed {
			c.done.Profiles++
			c.done.Freed += p.Stored
		}
	}
	if damaged != nil { // whose bytes nothing seems to name
		return nil
	}
	for info, err := range c.s.list(ctx, profilePrefix) {
		if err != nil {
			return err
		}
		if strings.HasPrefix(info.Key, profileRecords) || named[info.Key] || c.started.Sub(info.Modified) < grace {
			continue
		}
		if err := c.remove(ctx, info.Key); err != nil {
			return err
		}
		c.done.Leftover++
	}
	return nil
}
