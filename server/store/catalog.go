package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/buildid"
	"hallmark/internal/seekable"
	"hallmark/server/blob"
)

// A Catalog is what the store has by identity and name, in memory. Manifests are the truth, and this is a copy of what
// searches need of them. It comes from objects of the store:
//
//	catalog/v2/root              which segments there are, changed by compare-and-swap
//	catalog/v2/segments/NAME     records of many identities: see segment; never changed
//	catalog/v2/intents/NAME      manifests that are about to be changed; never changed
//
// Before a server changes the record of a manifest, it writes an intent. All servers look for intents
// every few seconds, and read the manifests that these name: an intent whose manifest was not written does no harm. One of
// the servers merges intents that are a minute old into a segment, and removes them a minute after the root says so.
// The newest segments are merged with older ones of about their size, so that there are few.
//
// A server that lists intents first and reads the root then misses nothing: an intent that was removed is in that root.
//
// Writers that know no catalogue write no intents. A pass lists all manifests, compares them with the catalogue by what
// the list has of each, and reads those that differ. The catalogue is complete after a pass that follows another one and
// finds no change without an intent.
type Catalog struct {
	s      *Store
	frames *seekable.Cache

	refreshing sync.Mutex // while intents and the root are read
	writing    sync.Mutex // while a root is written

	mu       sync.RWMutex
	loaded   time.Time // when intents and the root were read last, zero for never
	root     root
	rootTag  string    // "" where the store has none
	rootSeen time.Time // when that root was read
	passOf   time.Time // Begun of the pass that passed is of
	passed   time.Time // when that pass began by the clock of this server: see begunHere
	runs     []run     // of the root, the newest first
	tail     map[string]record
	sorted   []record // of tail; nil where it has changed
	intents  map[string]*intents
	doubts   map[buildid.ID]bool // identities whose manifests have to be read again
	reported map[string]bool     // keys of what is damaged
	version  int64               // another one for another content of tail and runs
	counted  int64               // the version that has length identities
	length   int64

	patience   float64 // how many pauses between passes go by before this server makes one
	generation atomic.Int64

	batching  sync.Mutex
	batch     *batch
	announced map[buildid.ID]announced
	sending   sync.Mutex // while intents are written
}

const (
	catalogPrefix = "catalog/v2/" // the records of v1 have the names of the files that are served alone
	oldCatalog    = "catalog/v1/"
	rootKey       = catalogPrefix + "root"
	segmentPrefix = catalogPrefix + "segments/"
	intentPrefix  = catalogPrefix + "intents/"
)

// Times of the catalogue.
const (
	// announceTime is how long after an intent the writing of its manifest begins, and intentTime how long that takes.
	announceTime = 10 * time.Second
	intentTime   = 30 * time.Second
	// mergeTime is how long intents are known before they are merged, and roots before what they have merged is removed. It
	// is longer than both together.
	mergeTime = time.Minute
	// passTime is the shortest pause between passes, and passShare how many times as long as its list the pause is: to list
	// many manifests takes time, and requests to a bucket cost money. Whoever has no pass as fresh as passesFresh pauses
	// does not know what writers without a catalogue did.
	passTime    = time.Minute
	passShare   = 20
	passesFresh = 4
	// gatherTime is how long intents are gathered for one object, for each that there is, and maxGather at most.
	gatherTime = 100 * time.Microsecond
	maxGather  = 200 * time.Millisecond
)

// Bounds of the catalogue.
const (
	passBatch  = 4096 // manifests that differ from it, and are read together
	maxIntents = 4096 // in an object
	// smallRun is up to how many bytes a run is merged whenever one is written, and larger ones with what has as many. What
	// is written counts as it is, and runs compressed, which is a third.
	smallRun = 64 << 10
)

// A root says what the catalogue has. It has no segment twice.
type root struct {
	Version int        `json:"version"` // 1
	Runs    [][]string `json:"runs"`    // names of segments, the newest run first
	Merged  []string   `json:"merged"`  // names of intents that are in these
	Pass    pass       `json:"pass"`    // the last one
}

const rootVersion = 1

// A pass went through all manifests.
type pass struct {
	Begun  time.Time     `json:"begun"` // zero for none
	Listed time.Duration `json:"listed"`
	Took   time.Duration `json:"took,omitempty"`   // all of it
	First  bool          `json:"first,omitempty"`  // none was before, so what differed says nothing of who wrote it
	Strays int64         `json:"strays,omitempty"` // manifests that had changed without an intent
}

// merged returns the names of intents that are in the segments.
func (r *root) merged() map[string]bool {
	names := map[string]bool{}
	for _, name := range r.Merged {
		names[name] = true
	}
	return names
}

// begunHere returns when a pass began by the clock of this server, which can differ by hours from that of the one that made it. A
// server that saw the root before at some time knows that the pass was not there then, and one that sees it now that it is
// over. loaded is zero for a server that saw none: it takes what is in the root, unless that is to come.
func (p pass) begunHere(loaded, now time.Time) time.Time {
	begun := p.Begun
	if least := loaded.Add(-max(p.Took, p.Listed)); !loaded.IsZero() && begun.Before(least) {
		begun = least
	}
	switch ahead := begun.Sub(now); {
	case ahead > p.pause() && loaded.IsZero():
		return time.Time{} // nobody knows
	case ahead > 0:
		return now
	}
	return begun
}

func (p pass) pause() time.Duration { return max(passTime, passShare*p.Listed) }

// intents are what an object has.
type intents struct {
	Version int      `json:"version"` // 1
	All     []intent `json:"intents"`

	seen time.Time // when this server saw it
	read bool      // else it is known that it is there, and that segments have it
}

// An intent says that the manifest of an identity is about to have a content: see record.
type intent struct {
	ID      buildid.ID `json:"id"`
	Content string     `json:"content"` // see sumOf

	met bool
}

// sumOf names the content of a record.
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%x", sum[:8])
}

// stampOf returns a number that another content of an object has another one of, as lists have it.
func stampOf(info blob.Info) uint64 {
	sum := sha256.Sum256([]byte(cmp.Or(info.Stamp, info.Tag)))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// Catalog returns the catalogue, which is empty until it is refreshed.
func (s *Store) Catalog() *Catalog {
	s.init()
	return s.catalog
}

func newCatalog(s *Store) *Catalog {
	return &Catalog{s: s, frames: seekable.NewCache(4 * seekable.FrameSize), tail: map[string]record{}, patience: 1 + rand.Float64()/2, intents: map[string]*intents{}, doubts: map[buildid.ID]bool{}, announced: map[buildid.ID]announced{}, reported: map[string]bool{}}
}

// Refresh reads what other servers have changed.
func (c *Catalog) Refresh(ctx context.Context) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	there := map[string]bool{}
	for info, err := range c.s.Blobs.List(ctx, intentPrefix) {
		if err != nil {
			return err
		}
		there[strings.TrimPrefix(info.Key, intentPrefix)] = true
	}
	if err := c.readRoot(ctx); err != nil {
		return err
	}
	if err := c.readIntents(ctx, there); err != nil {
		return err
	}
	if err := c.readDoubts(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = c.s.Now()
	return nil
}

// readRoot reads the root, and the segments that are new in it.
func (c *Catalog) readRoot(ctx context.Context) error {
	info, b, err := c.readPart(ctx, rootKey)
	if err != nil {
		return err
	}
	c.mu.RLock()
	same := info.Tag == c.rootTag && !c.rootSeen.IsZero()
	c.mu.RUnlock()
	if same {
		return nil
	}
	next := root{Version: rootVersion}
	if info.Key != "" && !c.decode(rootKey, b, &next, &next.Version) {
		next = root{Version: rootVersion}
	}
	runs, err := c.readRuns(ctx, &next)
	if err != nil {
		return err
	}
	c.install(next, info.Tag, runs)
	return nil
}

// readPart reads an object, and returns no key where there is none. One that is too large has no bytes.
func (c *Catalog) readPart(ctx context.Context, key string) (blob.Info, []byte, error) {
	b, info, err := blob.Read(ctx, c.s.Blobs, key, blob.MaxSwap)
	if mayPass(ctx, err) {
		return info, nil, err
	}
	if err != nil && !errors.Is(err, blob.ErrNotExist) {
		info, err = c.s.Blobs.Head(ctx, key)
	}
	if errors.Is(err, blob.ErrNotExist) {
		return blob.Info{}, nil, nil
	}
	return info, b, err
}

// decode decodes an object with a version, and reports whether it is sound.
func (c *Catalog) decode(key string, b []byte, v any, version *int) bool {
	err := decodeSealed(b, v)
	if err == nil && *version != rootVersion {
		err = fmt.Errorf("version %d, where %d is known", *version, rootVersion)
	}
	if err != nil {
		c.report(key, err)
	}
	return err == nil
}

// mayPass reports whether an error says nothing of what was read.
func mayPass(ctx context.Context, err error) bool {
	return errors.Is(err, blob.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || err != nil && ctx.Err() != nil
}

// readRuns reads the segments of a root that are not in memory. It takes those out of it that are damaged. Then it has
// seen no pass: the next one reads the manifests that were in them.
func (c *Catalog) readRuns(ctx context.Context, r *root) (runs []run, err error) {
	here := map[string]*segment{}
	c.mu.RLock()
	for _, run := range c.runs {
		for _, g := range run {
			here[g.name] = g
		}
	}
	c.mu.RUnlock()
	seen := map[string]bool{}
	for i, names := range r.Runs {
		var run run
		for _, name := range names {
			g := here[name]
			if again := seen[name]; again {
				err = errTwice
			} else if seen[name] = true; g == nil {
				g, err = c.readSegment(ctx, name)
			}
			switch {
			case err == nil && len(run) > 0 && bytes.Compare(run[len(run)-1].last, g.firsts[0]) >= 0:
				c.report(segmentPrefix+name, errors.New("its records do not come behind those of the segment before"))
				r.Pass = pass{}
			case mayPass(ctx, err):
				return nil, err
			case err != nil:
				c.report(segmentPrefix+name, err)
				r.Pass, err = pass{}, nil
			default:
				run = append(run, g)
			}
		}
		r.Runs[i] = run.names()
		runs = append(runs, run)
	}
	return runs, nil
}

// errTwice says that a root has a segment more than once: a small root could make a server read one for ever.
var errTwice = errors.New("the root has it twice")

func (r run) names() (names []string) {
	for _, g := range r {
		names = append(names, g.name)
	}
	return names
}

func (c *Catalog) readSegment(ctx context.Context, name string) (*segment, error) {
	b, _, err := blob.Read(ctx, c.s.Blobs, segmentPrefix+name, maxSegment)
	if err != nil {
		return nil, err
	}
	return openSegment(name, b, c.frames)
}

// report reports damage once.
func (c *Catalog) report(key string, err error) {
	c.mu.Lock()
	known := c.reported[key] || len(c.reported) >= maxBroken
	c.reported[key] = true
	c.mu.Unlock()
	if !known && c.s.OnDamage != nil {
		c.s.OnDamage(key, err)
	}
}

// reportManifest reports a manifest that cannot be read, unless that was done when it was.
func (c *Catalog) reportManifest(key string, err error) {
	if !isDamaged(err) {
		c.report(key, err)
	}
}

// install has the catalogue be what a root says. What the tail has otherwise is read again, unless an intent has it read
// anyway.
func (c *Catalog) install(r root, tag string, runs []run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.root, c.rootTag, c.rootSeen, c.runs = r, tag, c.s.Now(), runs
	if !r.Pass.Begun.Equal(c.passOf) {
		c.passOf, c.passed = r.Pass.Begun, r.Pass.begunHere(c.loaded, c.rootSeen)
	}
	wanted := c.named()
	for _, rec := range c.inTail() {
		id, _ := idOf(rec.key) // it was made of one
		if old, _ := c.findInRuns(rec.key); bytes.Equal(old.content, rec.content) {
			delete(c.tail, string(rec.key))
		} else if !wanted[id] {
			c.doubts[id] = true
		}
	}
	c.sorted = nil
	c.version++
}

// named returns the identities that intents name and that are not merged. It is called under the lock.
func (c *Catalog) named() map[buildid.ID]bool {
	all, merged := map[buildid.ID]bool{}, c.root.merged()
	for name, in := range c.intents {
		for _, one := range in.All {
			all[one.ID] = all[one.ID] || !merged[name]
		}
	}
	return all
}

// inTail returns the records of the tail in the order of their keys. It is called under the lock.
func (c *Catalog) inTail() []record {
	if c.sorted == nil {
		c.sorted = slices.SortedFunc(maps.Values(c.tail), func(a, b record) int { return bytes.Compare(a.key, b.key) })
	}
	return c.sorted
}

// findInRuns is called under the lock.
func (c *Catalog) findInRuns(key []byte) (record, bool) {
	for _, r := range c.runs {
		if rec, ok := r.find(key); ok {
			return rec, true
		}
	}
	return record{}, false
}

// find is called under the lock.
func (c *Catalog) find(key []byte) (record, bool) {
	if rec, ok := c.tail[string(key)]; ok {
		return rec, true
	}
	return c.findInRuns(key)
}

// note notes what a manifest says, unless nobody reads the catalogue here.
func (c *Catalog) note(rec record) {
	c.mu.RLock()
	old, _ := c.find(rec.key)
	c.mu.RUnlock()
	if bytes.Equal(old.content, rec.content) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rootSeen.IsZero() {
		return
	}
	c.generation.Add(1)
	c.version++
	c.sorted = nil
	if old, _ = c.findInRuns(rec.key); bytes.Equal(old.content, rec.content) {
		delete(c.tail, string(rec.key))
	} else {
		c.tail[string(rec.key)] = rec
	}
}

// doubt has the manifest of an identity read again.
func (c *Catalog) doubt(id buildid.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rootSeen.IsZero() {
		c.doubts[id] = true
	}
}

// readIntents reads the intents that are new among those that are there, and forgets those that are not.
func (c *Catalog) readIntents(ctx context.Context, there map[string]bool) error {
	c.mu.Lock()
	merged := c.root.merged()
	var fresh []string
	for name := range there {
		if in := c.intents[name]; in == nil || !in.read && !merged[name] {
			fresh = append(fresh, name)
		}
	}
	maps.DeleteFunc(c.intents, func(name string, in *intents) bool { return !there[name] && c.s.Now().Sub(in.seen) > mergeTime })
	c.mu.Unlock()
	return each(ctx, len(fresh), func(i int) error {
		in := &intents{seen: c.s.Now(), read: !merged[fresh[i]]}
		if in.read {
			info, b, err := c.readPart(ctx, intentPrefix+fresh[i])
			if err != nil || info.Key == "" {
				return err
			}
			if !c.decode(info.Key, b, in, &in.Version) {
				c.lose()
				in.All = nil
			}
			in.All = slices.DeleteFunc(in.All, func(one intent) bool { return one.ID.IsZero() })
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.intents[fresh[i]] = in
		return nil
	})
}

// lose notes that something is damaged that said what was about to change: only a pass finds that.
func (c *Catalog) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.root.Pass = pass{}
}

// readDoubts reads the manifests that are to be read again: what somebody doubts, and those of intents that are not as
// these say.
func (c *Catalog) readDoubts(ctx context.Context) error {
	c.mu.Lock()
	ids := c.doubts
	c.doubts = map[buildid.ID]bool{}
	now := c.s.Now()
	for _, in := range c.intents {
		for i := range in.All {
			one := &in.All[i]
			if one.met || now.Sub(in.seen) > intentTime {
				continue
			}
			rec, _ := c.find(keyFor(one.ID))
			if one.met = sumOf(rec.content) == one.Content; !one.met {
				ids[one.ID] = true
			}
		}
	}
	c.mu.Unlock()
	return c.reread(ctx, slices.Collect(maps.Keys(ids)))
}

// reread reads manifests. Those that cannot be read now are read the next time.
func (c *Catalog) reread(ctx context.Context, ids []buildid.ID) error {
	return each(ctx, len(ids), func(i int) error {
		_, err := c.s.reread(ctx, ids[i])
		if mayPass(ctx, err) {
			c.doubt(ids[i])
			return err
		}
		if err != nil {
			c.reportManifest(manifestKey(ids[i]), err)
		}
		return nil
	})
}

// Unsettled reports whether some intent is young and not met: its manifest may be there in a moment.
func (c *Catalog) Unsettled() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, in := range c.intents {
		if c.s.Now().Sub(in.seen) < intentTime && slices.ContainsFunc(in.All, func(one intent) bool { return !one.met }) {
			return true
		}
	}
	return false
}

// A batch is intents that become one object.
type batch struct {
	all  []intent
	done chan struct{}
	err  error
}

// intend writes intents, together with those of others that wait, unless it did so a moment ago. The changes have to be made
// within intentTime.
func (c *Catalog) intend(ctx context.Context, all ...intent) error {
	c.batching.Lock()
	now := c.s.Now()
	all = slices.DeleteFunc(all, func(one intent) bool {
		a, ok := c.announced[one.ID]
		return ok && a.content == one.Content && now.Sub(a.at) < announceTime
	})
	if len(all) == 0 {
		c.batching.Unlock()
		return nil
	}
	b := c.batch
	if b == nil {
		b = &batch{done: make(chan struct{})}
		c.batch = b
		go c.send(context.WithoutCancel(ctx), b)
	}
	if b.all = append(b.all, all...); len(b.all) >= maxIntents {
		c.batch = nil
	}
	c.batching.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce notes what was intended. It is called under the lock of batches.
func (c *Catalog) announce(all []intent, now time.Time) {
	if len(c.announced) > maxIntents {
		maps.DeleteFunc(c.announced, func(_ buildid.ID, a announced) bool { return now.Sub(a.at) >= announceTime })
	}
	for _, one := range all {
		c.announced[one.ID] = announced{one.Content, now}
	}
}

// announced is what was intended last for an identity.
type announced struct {
	content string
	at      time.Time
}

// send writes a batch when its turn comes. The more intents there are, the longer it gathers.
func (c *Catalog) send(ctx context.Context, b *batch) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.RLock()
	pause := min(time.Duration(len(c.intents))*gatherTime, maxGather)
	c.mu.RUnlock()
	time.Sleep(pause)
	c.batching.Lock()
	if c.batch == b {
		c.batch = nil
	}
	c.batching.Unlock()
	defer close(b.done)
	in := &intents{Version: rootVersion, All: b.all, read: true}
	begun := c.s.Now()
	text, err := encodeSealed(in)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, intentTime)
		defer cancel()
		name := newLife()
		if _, err = c.s.Blobs.PutIfAbsent(ctx, intentPrefix+name, bytes.NewReader(text), int64(len(text))); err == nil {
			c.sent(name, in, begun)
		}
	}
	b.err = inTime(err)
}

// sent notes intents that are in the store.
func (c *Catalog) sent(name string, in *intents, begun time.Time) {
	c.batching.Lock()
	c.announce(in.All, begun)
	c.batching.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.seen = c.s.Now(); !c.rootSeen.IsZero() {
		c.intents[name] = in
	}
}

// inTime returns the error of a store that did not answer in time as one of the store.
func inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", blob.ErrUnavailable, err)
	}
	return err
}

// errRaced says that somebody else writes a root, or has done so meanwhile.
var errRaced = errors.New("somebody else changes the catalogue")

// Compact merges intents into segments, and removes those that were merged, where it is time to.
func (c *Catalog) Compact(ctx context.Context) error {
	if c.s.ReadOnly {
		return nil
	}
	var due, gone []string
	var oldest time.Duration
	c.mu.RLock()
	merged := c.root.merged()
	for name, in := range c.intents {
		switch age := c.s.Now().Sub(in.seen); {
		case merged[name] && c.s.Now().Sub(c.rootSeen) > mergeTime:
			gone = append(gone, name)
		case !merged[name] && age > mergeTime:
			due = append(due, name)
			oldest = max(oldest, age)
		}
	}
	c.mu.RUnlock()
	err := each(ctx, len(gone), func(i int) error {
		err := c.s.Blobs.Delete(ctx, intentPrefix+gone[i])
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.intents, gone[i])
		}
		return err
	})
	if err != nil || float64(oldest) < c.patience*float64(mergeTime) { // of several servers one is first
		return err
	}
	if err = c.merge(ctx, due); errors.Is(err, errRaced) {
		return nil // what the other one has not merged is there the next time
	}
	return err
}

// merge merges intents. It reads the manifests again: nobody changes these by such old intents.
func (c *Catalog) merge(ctx context.Context, names []string) error {
	if !c.writing.TryLock() { // a pass writes what it has found
		return errRaced
	}
	defer c.writing.Unlock()
	ids := map[buildid.ID]bool{}
	c.mu.RLock()
	b := c.base()
	for _, name := range names {
		for _, one := range c.intents[name].All {
			ids[one.ID] = true
		}
	}
	// Those that were merged before may be there still.
	b.root.Merged = append(slices.DeleteFunc(b.root.Merged, func(name string) bool { return c.intents[name] == nil }), names...)
	c.mu.RUnlock()
	if err := c.reread(ctx, slices.Collect(maps.Keys(ids))); err != nil {
		return err
	}
	var records []record
	c.mu.RLock()
	for id := range ids {
		if rec, ok := c.tail[string(keyFor(id))]; ok {
			records = append(records, rec)
		}
	}
	c.mu.RUnlock()
	return c.write(ctx, b, records)
}

// A base is a root on which another one is made.
type base struct {
	root root
	tag  string
	runs []run
}

// base is called under the lock.
func (c *Catalog) base() base {
	b := base{c.root, c.rootTag, c.runs}
	b.root.Merged = slices.Clone(b.root.Merged)
	return b
}

// write writes a root that has records as the newest run. It is called under the lock of those who write. A server that
// must not write has these in memory.
func (c *Catalog) write(ctx context.Context, b base, records []record) error {
	if len(records) > 0 {
		slices.SortFunc(records, func(a, b record) int { return bytes.Compare(a.key, b.key) })
		var size int64
		for _, r := range records {
			size += int64(len(r.key) + len(r.content))
		}
		n := 0
		for ; n < len(b.runs) && b.runs[n].size() <= max(size, smallRun); n++ {
			size += b.runs[n].size()
		}
		fresh, err := c.writeRun(ctx, newMerge(records, b.runs[:n]), n == len(b.runs))
		if err != nil {
			return err
		}
		b.runs = slices.Clone(b.runs[n:])
		if len(fresh) > 0 {
			b.runs = append([]run{fresh}, b.runs...)
		}
	}
	b.root.Runs = nil
	for _, r := range b.runs {
		b.root.Runs = append(b.root.Runs, r.names())
	}
	if !c.s.ReadOnly {
		text, err := encodeSealed(b.root)
		if err != nil {
			return err
		}
		var info blob.Info
		if b.tag == "" {
			info, err = c.s.Blobs.PutIfAbsent(ctx, rootKey, bytes.NewReader(text), int64(len(text)))
		} else {
			info, err = c.s.Blobs.PutIfMatch(ctx, rootKey, b.tag, text)
		}
		switch {
		case errors.Is(err, blob.ErrExist), errors.Is(err, blob.ErrChanged):
			return errRaced
		case err != nil:
			return err
		}
		b.tag = info.Tag
	}
	c.install(b.root, b.tag, b.runs)
	return nil
}

// present leaves out what is gone.
type present struct{ *merge }

func (p present) next() bool {
	for p.merge.next() {
		if !p.merge.gone() {
			return true
		}
	}
	return false
}

// writeRun writes the segments of a run. In the oldest one nothing needs to say that something is gone.
func (c *Catalog) writeRun(ctx context.Context, m *merge, oldest bool) (fresh run, err error) {
	var records walker = m
	if oldest {
		records = present{m}
	}
	err = writeSegments(records, func(b []byte) error {
		name := newLife()
		if !c.s.ReadOnly {
			if _, err := c.s.Blobs.PutIfAbsent(ctx, segmentPrefix+name, bytes.NewReader(b), int64(len(b))); err != nil {
				return err
			}
		}
		g, err := openSegment(name, b, c.frames)
		fresh = append(fresh, g)
		return err
	})
	return fresh, err
}

// sweep removes segments that are in no root any more: one that was written so long ago is in the root, or in none to come.
// It removes a catalogue of the version before that nobody has written for so long.
func (c *Catalog) sweep(ctx context.Context, age time.Duration, dry bool) (int64, error) {
	if err := c.readRoot(ctx); err != nil {
		return 0, err
	}
	used := map[string]bool{}
	c.mu.RLock()
	for _, names := range c.root.Runs {
		for _, name := range names {
			used[segmentPrefix+name] = true
		}
	}
	c.mu.RUnlock()
	n, err := c.s.sweepBut(ctx, segmentPrefix, used, age, dry)
	if err != nil {
		return n, err
	}
	// A server of before writes its root with each pass.
	old, err := c.s.Blobs.Head(ctx, oldCatalog+"root")
	switch {
	case err != nil && !errors.Is(err, blob.ErrNotExist):
		return n, err
	case err == nil && c.s.Now().Sub(old.Modified) < age:
		return n, nil
	}
	more, err := c.s.sweep(ctx, oldCatalog, age, dry)
	return n + more, err
}

// Complete reports whether the catalogue has all that the store has, as far as writers without a catalogue are known.
func (c *Catalog) Complete() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, now := c.root.Pass, c.s.Now()
	return !p.Begun.IsZero() && !p.First && p.Strays == 0 && now.Sub(c.passed) < passesFresh*p.pause() && now.Sub(c.loaded) < mergeTime
}

// Changes counts changes, so that whoever has kept something of the catalogue knows whether it may be another one now.
func (c *Catalog) Changes() int64 { return c.generation.Load() }

// merged returns all that the catalogue has now.
func (c *Catalog) merged() *merge {
	c.mu.Lock()
	defer c.mu.Unlock()
	return newMerge(c.inTail(), c.runs)
}

// entries returns the entries of live records that pass a test.
func (c *Catalog) entries(is func(*merge) bool) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for m := c.merged(); m.next(); {
			if !m.live() || !is(m) {
				continue
			}
			if e, err := m.entry(); err == nil && !yield(e) {
				return
			}
		}
	}
}

// All returns the entries that may have a text in a name, those with Cut among them. Entries are in the order of the kinds and bytes of their identities.
func (c *Catalog) All(text string) iter.Seq[Entry] {
	return c.entries(func(m *merge) bool { return m.cut() || bytes.Contains(m.content, []byte(text)) })
}

// Matching returns the entries that have a text in a name, or at the beginning of their identity in any case. It calls cut
// for an entry that may have the text in a name that is not kept.
func (c *Catalog) Matching(text string, cut func()) iter.Seq[Entry] {
	begins, with := beginning(text), []byte(text)
	return c.entries(func(m *merge) bool {
		if begins(m.key) {
			return true
		}
		if bytes.Contains(m.content, with) {
			e, _ := m.entry()
			if slices.ContainsFunc(e.Names, func(n Name) bool { return strings.Contains(n.File, text) || strings.Contains(n.Archive, text) }) {
				return true
			}
		}
		if m.cut() {
			cut()
		}
		return false
	})
}

// beginning returns whether a text, in any case, is the beginning of that of the identity with a key.
func beginning(text string) func(key []byte) bool {
	prefix, buf := []byte(strings.ToLower(text)), []byte(nil)
	return func(key []byte) bool {
		if key[0] == byte(buildid.GNU) { // most are, and their text is the digits of the bytes
			buf = hex.AppendEncode(buf[:0], key[1:1+min(len(key)-1, (len(prefix)+1)/2)])
			return bytes.HasPrefix(buf, prefix)
		}
		id, _ := idOf(key) // it is one
		return strings.HasPrefix(strings.ToLower(id.String()), string(prefix))
	}
}

// After returns the entries behind an identity, or all where there is none with this text.
func (c *Catalog) After(text string) iter.Seq[Entry] {
	var after []byte
	if id, err := buildid.Parse(text); err == nil {
		after = keyFor(id)
	}
	return c.entries(func(m *merge) bool { return bytes.Compare(m.key, after) > 0 })
}

// Entry returns what the catalogue has of an identity, and whether that has files.
func (c *Catalog) Entry(id buildid.ID) (Entry, bool) {
	c.mu.RLock()
	r, _ := c.find(keyFor(id))
	c.mu.RUnlock()
	e, err := r.entry()
	return e, err == nil && r.live()
}

// Len returns how many identities the catalogue has.
func (c *Catalog) Len() int64 {
	c.mu.Lock()
	n, version := c.length, c.version
	known := c.counted == version
	m := newMerge(nil, nil)
	if !known {
		m = newMerge(c.inTail(), c.runs)
	}
	c.mu.Unlock()
	if known {
		return n
	}
	for n = 0; m.next(); {
		if m.live() {
			n++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted, c.length = version, n
	return n
}

// each calls do for the numbers below n, some at a time, and returns the first error. After that it begins no more.
func each(ctx context.Context, n int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range min(n, atOnce) {
		all.Go(func() {
			for failed.Load() == nil && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}
