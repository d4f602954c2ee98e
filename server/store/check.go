package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"hallmark/server/blob"
)

// A Checking says how Store.Check works.
type Checking struct {
	// Quick looks for what is missing, and reads no object.
	Quick bool
	// Pause is called behind each object that was read, with the time that it took; nil for no call. An error ends the
	// check.
	Pause func(context.Context, time.Duration) error
	// OnDamage is called for what is broken; nil for no call.
	OnDamage func(Lost)
}

// Lost is something that is missing or damaged in a store.
type Lost struct {
	Key string // in the store
	Why string
	Named
}

// Checked is what Store.Check found.
type Checked struct {
	Quick    bool  `json:"quick,omitempty"` // no bytes were read
	Listed   int64 `json:"listed"`          // objects that something lists
	Objects  int64 `json:"objects"`         // that were read and are whole
	Bytes    int64 `json:"bytes"`           // that these have in the store
	Profiles int64 `json:"profiles"`        // that are whole, or, where Quick, that are there
	Broken   int64 `json:"broken"`          // objects and profiles whose bytes are missing or damaged, and damaged lists
	Mended   int64 `json:"mended"`          // objects that were broken, and are whole again
}

// Check looks for objects that something lists and that are not there, and reads the others, and the profiles. What is
// broken gets a mark, so that all servers ask for it. Others may use the store meanwhile.
func (s *Store) Check(ctx context.Context, o Checking) (Checked, error) {
	s.init()
	c := s.newCollector(Collection{DryRun: true})
	for _, step := range []func(context.Context) error{c.readObjects, c.readManifests, c.readBuilds, c.readSources, c.findMissing} {
		if err := step(ctx); err != nil {
			return Checked{}, err
		}
	}
	done := Checked{Quick: o.Quick, Listed: int64(len(c.users))}
	report := func(key string, of Named, why error) {
		done.Broken++
		if o.OnDamage != nil {
			o.OnDamage(Lost{key, reasonOf(key, why), of})
		}
	}
	var list *DamagedError
	if errors.As(c.damaged, &list) {
		report(list.Key, c.namedList(list.Key), list.Err)
	}
	if err := s.checkObjects(ctx, c, o, &done, report); err != nil {
		return done, err
	}
	return done, s.checkProfiles(ctx, o, &done, report)
}

// checkObjects reads the objects that something lists.
func (s *Store) checkObjects(ctx context.Context, c *collector, o Checking, done *Checked, report func(string, Named, error)) error {
	var names []string
	for _, b := range s.Broken() {
		names = append(names, b.Object)
	}
	owners := c.ownersOf(names)
	for _, b := range s.Broken() {
		if o.Quick || b.Missing {
			if b.Named == (Named{}) {
				b.Named = c.named(ctx, b.Object, owners[c.hash(b.Object)])
			}
			report(objectKey(b.Object), b.Named, errors.New(b.Why))
		}
	}
	if o.Quick {
		return nil
	}
	known := map[string]bool{}
	for _, b := range s.Broken() {
		known[b.Object] = true
	}
	for info, err := range s.list(ctx, "cas/") {
		if err != nil {
			return err
		}
		name := objectOf(info.Key)
		if c.users[c.hash(name)] == 0 || !isObjectName(name) {
			continue
		}
		begun := time.Now()
		err := s.verify(ctx, name)
		switch {
		case err == nil:
			done.Objects++
			done.Bytes += info.Size
			if known[name] {
				done.Mended++
			}
			if err := s.noteWhole(ctx, name); err != nil {
				return err
			}
		case errors.Is(err, blob.ErrNotExist): // it was removed meanwhile
		case isLost(err):
			of := c.named(ctx, name, c.ownersOf([]string{name})[c.hash(name)])
			s.noteBrokenAs(ctx, name, of, err)
			report(info.Key, of, err)
		default:
			return err
		}
		if err := o.pause(ctx, begun); err != nil {
			return err
		}
	}
	return nil
}

func (o *Checking) pause(ctx context.Context, begun time.Time) error {
	if o.Pause == nil {
		return ctx.Err()
	}
	return o.Pause(ctx, time.Since(begun))
}

// checkProfiles reads the bytes of profiles.
func (s *Store) checkProfiles(ctx context.Context, o Checking, done *Checked, report func(string, Named, error)) error {
	all, err := s.Profiles(ctx, nil)
	var damaged *DamagedError
	if errors.As(err, &damaged) {
		report(damaged.Key, Named{}, damaged.Err)
	} else if err != nil {
		return err
	}
	for id, p := range all {
		if p.Object == "" {
			continue
		}
		begun := time.Now()
		if o.Quick {
			_, err = s.Blobs.Head(ctx, p.Object)
		} else {
			err = s.verifyAt(ctx, p.Object, id)
		}
		switch {
		case err == nil:
			done.Profiles++
		case !isLost(err):
			return err
		default:
			if now, again := s.Profile(ctx, id); again == nil && now.Object == p.Object { // it was not removed meanwhile
				report(p.Object, Named{Profile: cmp.Or(p.Title, p.ID)}, err)
			}
		}
		if err := o.pause(ctx, begun); err != nil {
			return err
		}
	}
	return nil
}
