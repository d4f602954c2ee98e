package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hallmark/buildid"
	"hallmark/server/blob"
)

// Retention says which identities a store keeps besides those that are pinned. The zero value keeps
// all.
type Retention struct {
	// Age is for how long an identity is kept that nobody asks for or sends; 0 for ever. Last uses
	// are known to the day.
	Age time.Duration
	// Size is how many bytes the objects and indexes of all identities have in the store; 0 for any
	// number. Identities that were not used for longest are removed first.
	Size int64
	// Profiles says which profiles are kept.
	Profiles ProfileRetention
}

// A Collection says what Store.Collect removes.
type Collection struct {
	Retention
	// DryRun has everything counted and nothing changed.
	DryRun bool
	// IndexVersion is the version of the format of indexes; those of lower ones are removed. "" is
	// for none.
	IndexVersion string
	// OnRemove is called for each identity that is removed; nil for no call.
	OnRemove func(Removed)
}

// Removed is an identity that Store.Collect removes.
type Removed struct {
	ID      buildid.ID
	LastUse time.Time // see Manifest.LastUse
	Size    int64     // bytes in the store that are of this identity alone
	// Reason is "age" or "size".
	Reason string
}

// LastDay returns the day of the last use, 2006-01-02. A day that was noted ends with the midnight that LastUse has.
func (r *Removed) LastDay() string {
	return r.LastUse.UTC().Add(-1).Format(time.DateOnly)
}

// Collected is what Store.Collect removed, or would remove, and what it left.
type Collected struct {
	Removed  int64 // identities
	Objects  int64 // that nothing listed for two days
	Marked   int64 // objects that nothing lists, and that a later run removes
	Indexes  int64 // of other files than are served, of other versions, or of removed identities
	Sources  int64 // entries of source files of removed identities and builds
	Profiles int64
	Leftover int64 // parts of uploads, leases and marks that are of no use any more
	Broken   int64 // objects that something lists, and whose bytes are lost
	Freed    int64 // bytes of the objects, indexes and profiles

	Kept   int64 // identities
	Pinned int64 // of these
	Size   int64 // bytes of the objects and indexes of these
}

// Collect removes identities that need not be kept, and then what nothing needs. It may be ended at
// any time, and run on several machines at once, while others use the store.
//
// An identity is removed by a compare-and-swap that takes the files out of its manifest. A use, a pin
// or an upload in the meantime makes that fail. If the identity comes again, its manifest has another
// Life, so that sources that were listed for the last one do not come back, and can be removed.
//
// An object is shared: an upload lists one that is there already. So nobody knows from the lists alone
// that nobody is about to list it. Collect marks an object dead that nothing lists and that is a day
// old. From then on uploads do not list it, and store their bytes under a name of their own. An upload
// looks for the mark first, and lists the object within listTime of that, or fails. A run that
// starts a day after the mark so sees all that will ever list the object. If nothing does, that run
// removes it, before it is a day old itself. The mark stays for two more days, in which no such run is left.
func (s *Store) Collect(ctx context.Context, o Collection) (Collected, error) {
	s.init()
	c := s.newCollector(o)
	for _, step := range []func(context.Context) error{
		c.leftovers, c.profiles, c.readObjects, c.readManifests, c.readBuilds, c.readSources, c.readIndexes, c.findMissing, c.retire, c.objects,
	} {
		if err := step(ctx); err != nil {
			return c.done, err
		}
	}
	if c.damaged != nil {
		return c.done, fmt.Errorf("no object is removed: %w", c.damaged)
	}
	return c.done, nil
}

func (s *Store) newCollector(o Collection) *collector {
	return &collector{
		s: s, o: o, started: s.Now(), seed: maphash.MakeSeed(), owners: map[string]*owner{}, builds: map[string]*build{},
		sizes: map[uint64]int64{}, users: map[uint64]int32{},
	}
}

// findMissing notes the objects that something lists and that are not there, and forgets marks of objects that nothing
// lists any more.
func (c *collector) findMissing(ctx context.Context) error {
	if err := c.s.LoadBroken(ctx); err != nil {
		return err
	}
	owners := c.ownersOf(c.missing)
	for _, name := range c.missing {
		_, err := c.s.Blobs.Head(ctx, objectKey(name)) // it may have come after the objects were listed
		switch {
		case errors.Is(err, blob.ErrNotExist):
			c.s.noteBrokenAs(ctx, name, c.named(ctx, name, owners[c.hash(name)]), err)
		case err != nil:
			return err
		}
	}
	for _, b := range c.s.Broken() {
		if c.damaged != nil || c.users[c.hash(b.Object)] > 0 {
			c.done.Broken++
		} else if err := c.s.noteWhole(ctx, b.Object); err != nil {
			return err
		}
	}
	return nil
}

// ownersOf returns an owner of each of the objects that has one, in one pass over all owners.
func (c *collector) ownersOf(names []string) map[uint64]*owner {
	found := make(map[uint64]*owner, len(names))
	for _, name := range names {
		found[c.hash(name)] = nil
	}
	for _, o := range c.owners {
		for _, h := range o.objects {
			if _, ok := found[h]; ok {
				found[h] = o
			}
		}
	}
	return found
}

// named returns what an object is to people. Its owner may be nil.
func (c *collector) named(ctx context.Context, name string, o *owner) Named {
	if o == nil {
		return c.s.namedBy(name)
	}
	if m, err := c.s.Manifest(ctx, o.id); err == nil {
		for i := range m.Files {
			if f := &m.Files[i]; f.Stored() == name {
				return f.naming(o.id)
			}
		}
	}
	return Named{ID: o.id.String()}
}

// namedList returns which identity a list is of, by its key.
func (c *collector) namedList(key string) Named {
	dir := path.Dir(key)
	if strings.HasPrefix(key, "src/") {
		dir = path.Dir(dir)
	}
	_, dir, _ = strings.Cut(dir, "/")
	if kind, digits, _ := strings.Cut(dir, "/"); kind == buildid.GNU.String() {
		if id, err := buildid.Parse(strings.ReplaceAll(strings.TrimSuffix(digits, "/_"), "/", "")); err == nil {
			return Named{ID: id.String()}
		}
	}
	return Named{}
}

// atOnce is how many objects are read at a time.
const atOnce = 16

// collector is one run of Collect. Objects are known by a hash of their names: should two have one, the
// worst is that one of them is kept.
type collector struct {
	s       *Store
	o       Collection
	started time.Time
	seed    maphash.Seed

	mu      sync.Mutex // while objects are read
	owners  map[string]*owner
	builds  map[string]*build // by the hash in the key
	sizes   map[uint64]int64
	users   map[uint64]int32 // how many lists have an object
	total   int64            // bytes of objects that have users, and of their indexes
	damaged error            // the first list that cannot be read: no object is removed then
	missing []string         // objects that something lists, and that were not there when they were listed

	announced map[*owner]bool // that they are removed
	done      Collected
}

// An owner is an identity.
type owner struct {
	id      buildid.ID
	path    string // of its keys: KIND/ab/cdef…
	life    string
	index   IndexName
	dwz     DwzFile // that it is for others
	used    time.Time
	pinned  bool
	objects []uint64
	builds  []string
	indexes []string // keys of those that stay
	size    int64    // bytes of these
	sources int64    // entries
}

// A build is one of a source package.
type build struct {
	users   int
	objects []uint64
}

func (c *collector) hash(name string) uint64 { return maphash.String(c.seed, name) }

// list notes that something lists an object. It is called under the lock.
func (c *collector) list(name string) uint64 {
	h := c.hash(name)
	if c.users[h]++; c.users[h] == 1 {
		c.total += c.sizes[h]
		if _, ok := c.sizes[h]; !ok && len(c.missing) < maxBroken && isObjectName(name) {
			c.missing = append(c.missing, name)
		}
	}
	return h
}

// drop notes that objects are listed by one less.
func (c *collector) drop(objects []uint64) (freed int64) {
	for _, h := range objects {
		if c.users[h]--; c.users[h] == 0 {
			freed += c.sizes[h]
		}
	}
	c.total -= freed
	return freed
}

// each calls read for all objects with a prefix, some at a time. An object that is gone by then is
// none; one that is damaged is remembered.
func (c *collector) each(ctx context.Context, prefix string, read func(ctx context.Context, key string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keys := make(chan string)
	var readers sync.WaitGroup
	for range atOnce {
		readers.Go(func() {
			for key := range keys {
				err := read(ctx, key)
				switch {
				case err == nil, errors.Is(err, blob.ErrNotExist):
				case isDamaged(err):
					c.mu.Lock()
					c.damaged = cmp.Or(c.damaged, err)
					c.mu.Unlock()
				default:
					cancel(err)
				}
			}
		})
	}
	var failed error
	for info, err := range c.s.list(ctx, prefix) {
		if failed = err; err != nil {
			break
		}
		keys <- info.Key
	}
	close(keys)
	readers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return failed
}

// removeAll removes the objects with a prefix, and returns how many.
func (c *collector) removeAll(ctx context.Context, prefix string) (int64, error) {
	const any = -1 << 62
	return c.s.sweep(ctx, prefix, any, c.o.DryRun)
}

// remove removes an object.
func (c *collector) remove(ctx context.Context, key string) error {
	if c.o.DryRun {
		return nil
	}
	return c.s.Blobs.Delete(ctx, key)
}

// leaseAge is how old a lease is that nobody has any more.
const leaseAge = 24 * time.Hour

func (c *collector) leftovers(ctx context.Context) error {
	for prefix, age := range map[string]time.Duration{"staging/": stagingAge, "leases/index/": leaseAge} {
		n, err := c.s.sweep(ctx, prefix, age, c.o.DryRun)
		c.done.Leftover += n
		if err != nil {
			return err
		}
	}
	n, err := c.s.catalog.sweep(ctx, leaseAge, c.o.DryRun)
	c.done.Leftover += n
	return err
}

func (c *collector) readObjects(ctx context.Context) error {
	for info, err := range c.s.list(ctx, "cas/") {
		if err != nil {
			return err
		}
		c.sizes[c.hash(objectOf(info.Key))] = info.Size
	}
	return nil
}

// ownerPath returns the part of a key of an identity that is the same in all of them.
func ownerPath(id buildid.ID) string { return strings.TrimPrefix(keyOf("id", id), "id/") }

func (c *collector) readManifests(ctx context.Context) error {
	return c.each(ctx, "id/", func(ctx context.Context, key string) error {
		b, info, err := blob.Read(ctx, c.s.Blobs, key, blob.MaxSwap)
		if err != nil {
			return err
		}
		m, err := c.s.decodeManifest(key, b)
		if err != nil {
			return err
		}
		if len(m.Files) == 0 {
			return c.forget(ctx, key, info.Tag)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o := &owner{id: m.ID, path: ownerPath(m.ID), life: m.life(), index: m.IndexName(), dwz: m.DwzFile(), used: m.LastUse(), pinned: m.Pinned}
		for i := range m.Files {
			o.objects = append(o.objects, c.list(m.Files[i].Stored()))
			for _, origin := range m.Files[i].Origins {
				if h := hashOf(origin.Build); origin.Build != "" && !slices.Contains(o.builds, h) {
					o.builds = append(o.builds, h)
					if c.builds[h] == nil {
						c.builds[h] = &build{}
					}
					c.builds[h].users++
				}
			}
		}
		c.owners[o.path] = o
		return nil
	})
}

// forget removes a manifest without files, unless it has files by now. Where the store knows no such
// condition the manifest stays: it has a hundred bytes.
func (c *collector) forget(ctx context.Context, key, tag string) error {
	d, ok := c.s.Blobs.(blob.ConditionalDeleter)
	if !ok || c.o.DryRun {
		return nil
	}
	if err := d.DeleteIfMatch(ctx, key, tag); err != nil && !errors.Is(err, blob.ErrChanged) {
		return err
	}
	return nil
}

// source reads which object an entry of a source file lists.
func (c *collector) source(ctx context.Context, key string) (string, error) {
	b, _, err := blob.Read(ctx, c.s.Blobs, key, blob.MaxSwap)
	if err != nil {
		return "", err
	}
	f, err := c.s.decodeSource(key, b)
	return f.Stored(), err
}

// readBuilds reads the sources of builds. Those of a build of which no identity is left go: they come
// again from the package when they are asked for.
func (c *collector) readBuilds(ctx context.Context) error {
	return c.each(ctx, "build/", func(ctx context.Context, key string) error {
		b := c.builds[path.Base(path.Dir(key))]
		if b == nil {
			return c.removeSource(ctx, key)
		}
		name, err := c.source(ctx, key)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		b.objects = append(b.objects, c.list(name))
		return nil
	})
}

func (c *collector) removeSource(ctx context.Context, key string) error {
	if err := c.remove(ctx, key); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.Sources++
	return nil
}

// readSources reads the sources of identities. Those of a life that is over go. A manifest that is newer
// than those that were read may have begun one meanwhile.
func (c *collector) readSources(ctx context.Context) error {
	return c.each(ctx, "src/", func(ctx context.Context, key string) error {
		of := path.Dir(key)
		life := path.Base(of)
		of = strings.TrimPrefix(path.Dir(of), "src/")
		c.mu.Lock()
		o := c.owners[of]
		c.mu.Unlock()
		if o == nil || o.life != life {
			b, _, err := blob.Read(ctx, c.s.Blobs, "id/"+of+manifestName, blob.MaxSwap)
			if err != nil && !errors.Is(err, blob.ErrNotExist) {
				return err
			}
			m := &Manifest{}
			if err == nil {
				if m, err = c.s.decodeManifest("id/"+of+manifestName, b); err != nil {
					return err
				}
			}
			if len(m.Files) == 0 || m.life() != life {
				return c.removeSource(ctx, key)
			}
			o = nil // it came after the others were read, and does not go in this run
		}
		name, err := c.source(ctx, key)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		h := c.list(name)
		if o != nil {
			o.objects = append(o.objects, h)
			o.sources++
		}
		return nil
	})
}

// indexOf returns the name of the index of what an identity serves.
func (c *collector) indexOf(o *owner) string {
	var dwz DwzFile
	if !o.index.Dwz.IsZero() {
		if other := c.owners[ownerPath(o.index.Dwz)]; other != nil {
			dwz = other.dwz
		}
	}
	return o.index.With(dwz)
}

// readIndexes removes indexes of lower versions, of identities that are gone and of other files than
// are served, and counts the others. An index that somebody wants all the same is made again.
func (c *collector) readIndexes(ctx context.Context) error {
	current := number(c.o.IndexVersion)
	for info, err := range c.s.list(ctx, "index/") {
		if err != nil {
			return err
		}
		version, of, _ := strings.Cut(strings.TrimPrefix(info.Key, "index/"), "/")
		o := c.owners[path.Dir(of)]
		if o != nil && number(version) >= current && path.Base(of) == "index-"+c.indexOf(o) || c.started.Sub(info.Modified) < grace {
			if o != nil {
				o.indexes = append(o.indexes, info.Key)
				o.size += info.Size
			}
			c.total += info.Size
			continue
		}
		if err := c.remove(ctx, info.Key); err != nil {
			return err
		}
		c.done.Indexes++
		c.done.Freed += info.Size
	}
	return nil
}

// number returns the number in the version of a format.
func number(version string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(version, "v"))
	return n
}

// retire removes the identities that need not be kept.
func (c *collector) retire(ctx context.Context) error {
	all := slices.SortedFunc(maps.Values(c.owners), func(a, b *owner) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path))
	})
	for i, o := range all {
		reason := c.reason(o)
		if reason != "" {
			if err := c.announce(ctx, all[i:]); err != nil {
				return err
			}
			ok, err := c.removeIdentity(ctx, o, reason)
			if err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		c.done.Kept++
	}
	for _, o := range all {
		if o.pinned {
			c.done.Pinned++
		}
	}
	c.done.Size = c.total
	return nil
}

// reason returns why an identity need not be kept, "" if it is kept.
func (c *collector) reason(o *owner) string {
	switch {
	case o.pinned:
	case c.o.Age > 0 && c.started.Sub(o.used) > c.o.Age:
		return "age"
	case c.o.Size > 0 && c.total > c.o.Size && c.damaged == nil:
		return "size"
	}
	return ""
}

// announce writes the intents of removing the first of some identities, and of others with it, as one object.
func (c *collector) announce(ctx context.Context, rest []*owner) error {
	if c.o.DryRun || c.announced[rest[0]] {
		return nil
	}
	c.announced = map[*owner]bool{}
	var all []intent
	for _, o := range rest {
		if len(all) == removedTogether {
			break
		}
		if c.reason(o) != "" {
			all = append(all, intent{ID: o.id, Content: sumOf(nil)})
			c.announced[o] = true
		}
	}
	return c.s.catalog.intend(ctx, all...)
}

// removedTogether is how many identities are removed whose intents were written as one object.
const removedTogether = 100

// removeIdentity removes an identity, unless somebody has used or pinned it meanwhile.
func (c *collector) removeIdentity(ctx context.Context, o *owner, reason string) (bool, error) {
	if !c.o.DryRun {
		removed := false
		_, err := c.s.change(ctx, o.id, func(m *Manifest) (bool, error) {
			removed = !m.Pinned && len(m.Files) > 0 && m.life() == o.life && !m.LastUse().After(o.used)
			if removed {
				m.Files, m.Used, m.Life = nil, "", ""
			}
			return removed, nil
		})
		if err != nil || !removed {
			return false, err
		}
	}
	size := c.drop(o.objects) + o.size
	c.total -= o.size
	prefixes := []string{}
	if o.sources > 0 {
		prefixes = append(prefixes, "src/"+o.path+"/"+o.life+"/")
	}
	for _, h := range o.builds {
		b := c.builds[h]
		if b.users--; b.users == 0 && len(b.objects) > 0 {
			size += c.drop(b.objects)
			prefixes = append(prefixes, "build/"+h+"/")
		}
	}
	for _, prefix := range prefixes {
		n, err := c.removeAll(ctx, prefix)
		c.done.Sources += n
		if err != nil {
			return true, err
		}
	}
	for _, key := range o.indexes {
		if err := c.remove(ctx, key); err != nil {
			return true, err
		}
	}
	c.done.Indexes += int64(len(o.indexes))
	c.done.Freed += o.size
	c.done.Removed++
	if c.o.OnRemove != nil {
		c.o.OnRemove(Removed{o.id, o.used, size, reason})
	}
	if c.o.DryRun {
		return true, nil
	}
	key := manifestKey(o.id)
	b, info, err := blob.Read(ctx, c.s.Blobs, key, blob.MaxSwap)
	if errors.Is(err, blob.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return true, err
	}
	if m, err := c.s.decodeManifest(key, b); err == nil && len(m.Files) == 0 {
		return true, c.forget(ctx, key, info.Tag)
	}
	return true, nil
}

// A mark is on an object that is dead.
type mark struct {
	at   time.Time
	gone bool // the object was removed
}

// slow returns an error if the run began so long ago that others may have removed what it saw.
func (c *collector) slow() error {
	if now := c.s.Now(); now.Sub(c.started) > grace || now.Round(0).Sub(c.started.Round(0)) > grace {
		return fmt.Errorf("the run took more than %v: the next one goes on", grace)
	}
	return nil
}

// objects removes dead objects, and marks those as dead that nothing lists.
func (c *collector) objects(ctx context.Context) error {
	if c.damaged != nil {
		return nil
	}
	marks := map[string]mark{}
	for info, err := range c.s.list(ctx, "dead/") {
		if err != nil {
			return err
		}
		marks[objectOf(info.Key)] = mark{info.Modified, info.Size > 0}
	}
	for info, err := range c.s.list(ctx, "cas/") {
		if err != nil {
			return err
		}
		name := objectOf(info.Key)
		m, marked := marks[name]
		delete(marks, name) // the rest is of objects that are gone
		switch {
		case c.users[c.hash(name)] > 0:
		case m.gone && info.Modified.After(m.at): // it came when the mark was gone, after the marks were read
		case !marked && c.started.Sub(info.Modified) > grace:
			c.done.Marked++
			if err := c.mark(ctx, name, ""); err != nil {
				return err
			}
		case marked && c.started.Sub(m.at) > grace:
			if err := c.slow(); err != nil {
				return err
			}
			if err := c.remove(ctx, info.Key); err != nil {
				return err
			}
			c.done.Objects++
			c.done.Freed += info.Size
			if err := c.mark(ctx, name, gone); err != nil {
				return err
			}
		}
	}
	for name, m := range marks {
		switch {
		case !m.gone: // a run was ended before it could write that
			if err := c.mark(ctx, name, gone); err != nil {
				return err
			}
		case c.started.Sub(m.at) > 2*grace:
			if err := c.slow(); err != nil {
				return err
			}
			if err := c.remove(ctx, deadKey(name)); err != nil {
				return err
			}
			c.done.Leftover++
		}
	}
	return nil
}

// mark writes the mark of an object, which says the time, too.
func (c *collector) mark(ctx context.Context, name, text string) error {
	if c.o.DryRun {
		return nil
	}
	key := deadKey(name)
	_, err := c.s.Blobs.PutIfAbsent(ctx, key, strings.NewReader(text), int64(len(text)))
	if !errors.Is(err, blob.ErrExist) || text == "" {
		if errors.Is(err, blob.ErrExist) {
			return nil // another run was faster
		}
		return err
	}
	info, err := c.s.Blobs.Head(ctx, key)
	if err == nil {
		_, err = c.s.Blobs.PutIfMatch(ctx, key, info.Tag, []byte(text))
	}
	if errors.Is(err, blob.ErrChanged) || errors.Is(err, blob.ErrNotExist) {
		return nil // another run was faster
	}
	return err
}

// A Turn is work that one of the servers of a store does for all.
type Turn string

// The turns.
const (
	CollectTurn Turn = "gc"
	CheckTurn   Turn = "check"
)

// TakeTurn reports whether it is this server's turn to call Collect or Check: of all servers of the store one has it,
// once in so long a time.
func (s *Store) TakeTurn(ctx context.Context, of Turn, every time.Duration) (bool, error) {
	turnKey := "leases/" + string(of) // the object that says when the next turn is
	s.init()
	type turn struct {
		Next time.Time `json:"next"`
	}
	next, err := json.Marshal(turn{s.Now().Add(every).UTC()})
	if err != nil {
		return false, err
	}
	old, info, err := blob.Read(ctx, s.Blobs, turnKey, 4096)
	switch {
	case errors.Is(err, blob.ErrNotExist):
		_, err = s.Blobs.PutIfAbsent(ctx, turnKey, strings.NewReader(string(next)), int64(len(next)))
	case err == nil:
		// A turn that is further away than ours is of a server with another clock, or other flags.
		var t turn
		if json.Unmarshal(old, &t) == nil && s.Now().Before(t.Next) && !t.Next.After(s.Now().Add(every)) {
			return false, nil
		}
		_, err = s.Blobs.PutIfMatch(ctx, turnKey, info.Tag, next)
	}
	if errors.Is(err, blob.ErrExist) || errors.Is(err, blob.ErrChanged) {
		return false, nil
	}
	return err == nil, err
}
