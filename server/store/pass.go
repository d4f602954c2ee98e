package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/server/blob"
)

// PassDue reports whether it is time to look for what writers without a catalogue did. Of several servers one is first.
func (c *Catalog) PassDue() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := c.root.Pass
	since, pause := c.s.Now().Sub(c.passed), p.pause()
	return p.Begun.IsZero() || p.First || since > time.Duration(c.patience*float64(pause)) || -since > pause
}

// A listing is which manifests the catalogue knows.
type listing struct {
	seed maphash.Seed
	all  []listed // by their keys
}

type listed struct {
	key   uint64 // a hash of it: should two manifests have one, they are read in each pass
	stamp uint64 // 0 once it was seen
}

// listing returns the manifests that the catalogue has.
func (c *Catalog) listing() *listing {
	l := &listing{seed: maphash.MakeSeed()}
	for m := c.merged(); m.next(); {
		if id, err := idOf(m.key); err == nil && m.stamp != 0 {
			l.all = append(l.all, listed{maphash.String(l.seed, manifestKey(id)), m.stamp})
		}
	}
	slices.SortFunc(l.all, func(a, b listed) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	return l
}

// at returns where a manifest is in the listing, nil where it is not.
func (l *listing) at(key string) *listed {
	i, ok := slices.BinarySearchFunc(l.all, maphash.String(l.seed, key), func(a listed, h uint64) int {
		switch {
		case a.key < h:
			return -1
		case a.key > h:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &l.all[i]
}

// A suspect is a manifest that may be another one than the catalogue has.
type suspect struct {
	key string
	id  buildid.ID // zero where only the manifest knows it
}

// Pass goes through all manifests, and reads those that are not as the catalogue has them.
func (c *Catalog) Pass(ctx context.Context) error {
	if err := c.Refresh(ctx); err != nil {
		return err
	}
	c.mu.RLock()
	now := pass{Begun: c.s.Now().UTC(), First: c.root.Pass.Begun.IsZero()}
	c.mu.RUnlock()
	known := c.listing()
	var suspects []suspect
	add := func(s suspect) error {
		if suspects = append(suspects, s); len(suspects) < passBatch {
			return nil
		}
		err := c.settle(ctx, suspects, &now)
		suspects = suspects[:0]
		return err
	}
	began, settling := time.Now(), time.Duration(0)
	for info, err := range c.s.list(ctx, "id/") {
		if err != nil {
			return err
		}
		if !strings.HasSuffix(info.Key, manifestName) {
			continue
		}
		if l := known.at(info.Key); l != nil {
			same := l.stamp == stampOf(info)
			if l.stamp = 0; same {
				continue
			}
		}
		at := time.Now()
		if err := add(suspect{key: info.Key}); err != nil {
			return err
		}
		settling += time.Since(at)
	}
	now.Listed = (time.Since(began) - settling).Round(time.Millisecond)
	for m := c.merged(); m.next(); {
		id, _ := idOf(m.key) // a segment has no other keys
		if l := known.at(manifestKey(id)); l != nil && l.stamp != 0 && m.stamp != 0 {
			if err := add(suspect{manifestKey(id), id}); err != nil {
				return err
			}
		}
	}
	if err := c.settle(ctx, suspects, &now); err != nil {
		return err
	}
	return c.rewrite(ctx, func(b *base) ([]record, error) {
		now.Took = time.Since(began).Round(time.Millisecond)
		b.root.Pass = now
		return nil, nil
	})
}

// rewrite writes a root that change makes of the one that is there, again where another server is faster.
func (c *Catalog) rewrite(ctx context.Context, change func(*base) ([]record, error)) error {
	for range swaps {
		c.writing.Lock()
		c.mu.RLock()
		b := c.base()
		c.mu.RUnlock()
		records, err := change(&b)
		if err == nil {
			err = c.write(ctx, b, records)
		}
		c.writing.Unlock()
		if !errors.Is(err, errRaced) {
			return err
		}
		if err := c.Refresh(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w: it changes all the time", rootKey, blob.ErrUnavailable)
}

// settle reads suspects, and writes what they say into the catalogue. It counts those that an intent should have named.
// Intents are read again before that: they were written before the manifests that the list has.
func (c *Catalog) settle(ctx context.Context, suspects []suspect, p *pass) error {
	if len(suspects) == 0 {
		return nil
	}
	if err := c.Refresh(ctx); err != nil {
		return err
	}
	var strays int64
	err := c.rewrite(ctx, func(*base) ([]record, error) {
		records, n, err := c.compare(ctx, suspects)
		strays = n
		return records, err
	})
	p.Strays += strays
	return err
}

// compare reads suspects, and returns the records of those that are not as the catalogue has them, and how many of these no
// intent names. Those that one names are merged with it.
func (c *Catalog) compare(ctx context.Context, suspects []suspect) (records []record, strays int64, err error) {
	c.mu.RLock()
	named := c.named()
	c.mu.RUnlock()
	var mu sync.Mutex
	err = each(ctx, len(suspects), func(i int) error {
		m, stamp, err := c.readSuspect(ctx, suspects[i])
		if err != nil || m == nil {
			return err
		}
		rec := recordOf(m, stamp)
		c.mu.RLock()
		old, _ := c.find(rec.key)
		c.mu.RUnlock()
		same := bytes.Equal(old.content, rec.content)
		if same && old.stamp == rec.stamp {
			return nil
		}
		if !same && named[m.ID] {
			c.note(rec)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		records = append(records, rec)
		if !same {
			strays++
			c.generation.Add(1)
			c.s.changed(m)
		}
		return nil
	})
	return records, strays, err
}

// readSuspect reads a manifest, and returns its stamp: one without files where there is none, nil where nothing is known.
func (c *Catalog) readSuspect(ctx context.Context, s suspect) (*Manifest, uint64, error) {
	b, info, err := blob.Read(ctx, c.s.Blobs, s.key, blob.MaxSwap)
	switch {
	case errors.Is(err, blob.ErrNotExist) && s.id.IsZero():
		return nil, 0, nil
	case errors.Is(err, blob.ErrNotExist):
		return &Manifest{ID: s.id}, 0, nil
	case mayPass(ctx, err):
		return nil, 0, err
	}
	var m *Manifest
	if err == nil {
		m, err = c.s.decodeManifest(s.key, b)
	}
	if err != nil {
		c.reportManifest(s.key, err)
		return nil, 0, nil
	}
	return m, stampOf(info), nil
}
