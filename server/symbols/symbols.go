// Package symbols has the indexes of a store, open to be asked. An index is made once for all
// servers of the store, by a process that a hostile file cannot leave, and kept in the store. On
// the local disk is a bounded copy, which is mapped into memory.
package symbols

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/atomicfile"
	"hallmark/internal/cachedir"
	"hallmark/reason"
	"hallmark/server/blob"
	"hallmark/server/indexer"
	"hallmark/server/store"
	"hallmark/symbol"
)

// Miss is why there are no symbols of an identity.
type Miss string

// The reasons.
const (
	NoFile  Miss = "no file" // no file of the identity is known
	Pending Miss = "pending" // its index is being made
	Poor    Miss = "poor"    // its files have no symbols
	Damaged Miss = "damaged" // no index can be made of its files
)

// A MissError says that there are no symbols of an identity.
type MissError struct {
	Miss Miss
	Text string // more about it; "" for none
}

func (e *MissError) Error() string { return string(e.Miss) + ": " + e.Text }

// Indexes are the indexes of a store. Its fields must not change after its first use; its methods
// may be called by several goroutines at once.
type Indexes struct {
	Store *store.Store
	// Dir is the directory of the local copies, and MaxSize how many bytes they have, 5 GiB
	// when 0.
	Dir     string
	MaxSize int64
	// Whole is how many bytes an index has in the store at most that is brought to the local disk when it is
	// first asked, 16 MiB when 0. Of a larger one only those parts are brought that answers need.
	Whole  int64
	Limits indexer.Limits
	// AtOnce is how many are made at a time, 1 when 0.
	AtOnce int
	// ReadOnly makes none.
	ReadOnly bool
	Log      *slog.Logger
	// Lease is how long others wait for a server that makes an index and was killed; a minute when 0.
	Lease time.Duration
	// Made is called with "made", "refused" or "failed" for each index; nil for no call.
	Made func(result string)
	// OnDamage is called for each index that is found damaged; nil for no call.
	OnDamage func()

	once  sync.Once
	slots chan struct{}
	mu    sync.Mutex
	open  map[string]*Index
	clock uint64
	calls map[string]*call
	bad   map[string]failure
}

// An Index is open until it is closed.
type Index struct {
	// Code is the content of the code of the executable, zero where it is not known.
	Code  buildid.Content
	index *symbol.Index
	part  *partial // that index is in; nil for one that is whole
	owner *Indexes
	name  string
	drop  func(damage error) // removes what is damaged
	users int
	used  uint64
	gone  bool // it is closed with its last user
}

// Close gives the index back.
func (x *Index) Close() error {
	x.owner.mu.Lock()
	defer x.owner.mu.Unlock()
	if x.users--; x.gone && x.users == 0 {
		return x.end()
	}
	return nil
}

func (x *Index) end() error {
	if x.part != nil {
		return x.part.close()
	}
	return x.index.Close()
}

// isWhole reports whether looking at the index brings nothing from the store.
func (x *Index) isWhole() bool { return x.part == nil || x.part.isWhole.Load() }

// Virt is [symbol.Index.Virt].
func (x *Index) Virt(o addr.Offset) (addr.Virt, bool) { return x.index.Virt(o) }

// HasCode reports whether the index was made of the code itself, and not of a debug file alone.
func (x *Index) HasCode() bool { return x.index.HasCode() }

// CodeSegments returns the segments with code, of a debug file as of its program.
func (x *Index) CodeSegments() []symbol.Segment {
	return slices.DeleteFunc(x.index.Segments(), func(s symbol.Segment) bool { return !s.Executable() })
}

// WhyNot returns why the index knows nothing of an address that it has no frames of, a virtual one or a file offset.
func (x *Index) WhyNot(virtual bool, address uint64) reason.Reason {
	if virtual {
		return x.index.WhyNotVirt(addr.Virt(address))
	}
	return x.index.WhyNotOffset(addr.Offset(address))
}

// Starts is [symbol.Index.Starts]. An error is one of the store, or ErrDamaged.
func (x *Index) Starts(offsets []addr.Offset) (starts []addr.Offset, err error) {
	look := func() { starts = x.index.Starts(offsets) }
	if x.isWhole() {
		look()
	} else if err := x.part.look(look); err != nil {
		return nil, err
	}
	if damage := x.index.Damage(); damage != nil {
		return nil, x.damaged(damage)
	}
	return starts, nil
}

// A Cursor is a [symbol.Cursor] whose index may be brought while it is asked.
type Cursor struct {
	x       *Index
	here    *symbol.Cursor
	touched byte // has no meaning; without it the compiler leaves out what touch does
}

// Cursor returns a Cursor at no place. It must not be used once the Index is closed, nor must strings from it.
func (x *Index) Cursor() *Cursor { return &Cursor{x: x, here: x.index.Cursor()} }

// Frames is [symbol.Cursor.Frames]. An error is one of the store.
func (c *Cursor) Frames(v addr.Virt) (frames []symbol.Frame, source symbol.Source, err error) {
	if c.x.isWhole() {
		frames, source = c.here.Frames(v)
		if len(frames) == 0 && c.x.index.Damage() != nil {
			return nil, source, c.x.damaged(c.x.index.Damage())
		}
		return frames, source, nil
	}
	interrupted := false
	err = c.x.part.look(func() {
		if interrupted {
			c.here = c.x.index.Cursor()
		}
		interrupted = true
		frames, source = c.here.Frames(v)
		for i := range frames {
			c.touch(frames[i].Linkage)
			c.touch(frames[i].Symbol)
			c.touch(frames[i].File)
		}
	})
	if damage := c.x.index.Damage(); damage != nil || store.IsDamaged(err) {
		return nil, symbol.SourceUnknown, c.x.damaged(cmp.Or(damage, err))
	}
	if err != nil {
		c.here = c.x.index.Cursor() // it was interrupted between two places
		return nil, symbol.SourceUnknown, err
	}
	return frames, source, nil
}

// damaged has the index opened anew, from what is whole, and returns ErrDamaged.
func (x *Index) damaged(damage error) error {
	x.owner.mu.Lock()
	isFirst := x.owner.open[x.name] == x
	if isFirst {
		x.owner.forget(x.name, x)
	}
	x.owner.mu.Unlock()
	if isFirst {
		x.owner.noteDamage(x.name, damage)
		x.drop(damage)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, damage)
}

func (x *Indexes) noteDamage(name string, damage error) {
	x.Log.Warn("an index is damaged, and made anew", "index", name, "error", damage)
	if x.OnDamage != nil {
		x.OnDamage()
	}
}

// touch looks at a string wherever it may be in another chunk.
func (c *Cursor) touch(s string) {
	for i := 0; i < len(s); i += chunkSize {
		c.touched ^= s[i]
	}
	if len(s) > 0 {
		c.touched ^= s[len(s)-1]
	}
}

type call struct {
	done chan struct{}
	err  error
}

type failure struct {
	err   error
	until time.Time
}

// Times and numbers.
const (
	maxOpen      = 512              // indexes
	maxPartial   = 16               // of them in parts, with up to 8 MiB of memory each
	badTime      = 10 * time.Minute // in which no index is tried to be made again of a damaged file
	maxBad       = 10000
	leasePause   = time.Second
	returnTime   = 5 * time.Second // to give a lease back
	defaultSize  = 5 << 30
	defaultWhole = 16 << 20
)

// IndexVersion is in the keys of indexes: that of the format. A later one has a higher number.
const IndexVersion = symbol.IndexVersion

// Suffixes of local copies: of this version of the format, and of any.
const (
	anySuffix = ".index"
	suffix    = "." + IndexVersion + anySuffix
)

// ErrDamaged says that an index that was open is damaged. It is closed, and made or brought anew the next time.
var ErrDamaged = errors.New("the index was damaged, and is made anew")

func (x *Indexes) init() {
	x.once.Do(func() {
		x.MaxSize, x.Whole, x.Lease = cmp.Or(x.MaxSize, defaultSize), cmp.Or(x.Whole, defaultWhole), cmp.Or(x.Lease, time.Minute)
		x.slots = make(chan struct{}, max(1, x.AtOnce))
		x.open, x.calls, x.bad = map[string]*Index{}, map[string]*call{}, map[string]failure{}
		if x.Log == nil {
			x.Log = slog.New(slog.DiscardHandler)
		}
	})
}

// Get returns the index of an identity, for the caller to close. An error is a *MissError, or one
// of the store. If the index has to be made, Get waits until wait is done, and the making goes on.
func (x *Indexes) Get(ctx, wait context.Context, m *store.Manifest) (*Index, error) {
	x.init()
	dwz, name, err := x.nameOf(ctx, m)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, &MissError{NoFile, ""}
	case m.Symbols() == store.NoSymbols:
		return nil, &MissError{Poor, "its files have no symbols"}
	}
	name = localName(name)
	if i := x.opened(name); i != nil {
		return i, nil
	}
	x.mu.Lock()
	if f, ok := x.bad[name]; ok && time.Now().Before(f.until) {
		x.mu.Unlock()
		return nil, f.err
	}
	c := x.calls[name]
	if c == nil {
		c = &call{done: make(chan struct{})}
		x.calls[name] = c
		go func() {
			defer close(c.done)
			c.err = x.prepare(context.WithoutCancel(ctx), m, dwz, name)
			x.mu.Lock()
			defer x.mu.Unlock()
			delete(x.calls, name)
			var miss *MissError
			if errors.As(c.err, &miss) && len(x.bad) < maxBad {
				x.bad[name] = failure{c.err, time.Now().Add(badTime)}
			}
		}()
	}
	x.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wait.Done():
		return nil, &MissError{Pending, "its index is being made"}
	case <-c.done:
	}
	if c.err != nil {
		return nil, c.err
	}
	if i := x.opened(name); i != nil {
		return i, nil
	}
	return nil, &MissError{Pending, ""}
}

// nameOf returns the name of the index of an identity, and the object of the file that dwz put a part of the debug
// information into, "" where there is none that can be believed: then names that are in it are missing.
func (x *Indexes) nameOf(ctx context.Context, m *store.Manifest) (dwz, name string, err error) {
	n := m.IndexName()
	if n.Dwz.IsZero() {
		return "", n.With(store.DwzFile{}), nil
	}
	var f store.DwzFile
	other, err := x.Store.Manifest(ctx, n.Dwz)
	switch {
	case err == nil:
		f = other.DwzFile()
	case !errors.Is(err, blob.ErrNotExist):
		return "", "", err
	}
	if n.Takes(f) {
		dwz = f.Stored
	}
	return dwz, n.With(f), nil
}

// localName is what the local copy of an index is called, of which a manifest has a name.
func localName(index string) string { return "index-" + index }

// Here returns the index of an identity that has a name in its manifest, if there is a local copy of it, for the
// caller to close. It makes none, brings none, and keeps none open: that is for what goes through all of them.
func (x *Indexes) Here(id buildid.ID, index string) (*symbol.Index, func(), bool) {
	x.init()
	name := localName(index)
	if i := x.opened(name); i != nil {
		if i.isWhole() {
			return i.index, func() {
				if damage := i.index.Damage(); damage != nil {
					_ = i.damaged(damage) // the caller has seen it
				}
				i.Close()
			}, true
		}
		i.Close()
		return nil, nil, false
	}
	files := x.files()
	local := files.Name(id, name)
	f, err := files.Open(local)
	if err != nil {
		return nil, nil, false
	}
	defer f.Close()
	i, err := symbol.MapIndex(f)
	if err != nil {
		return nil, nil, false
	}
	return i, func() {
		if damage := i.Damage(); damage != nil {
			x.noteDamage(name, damage)
			files.Discard(local, damage)
		}
		i.Close()
	}, true
}

func (x *Indexes) files() *cachedir.Dir { return &cachedir.Dir{Path: x.Dir, Suffix: suffix} }

// opened returns an index that is open and can be asked.
func (x *Indexes) opened(name string) *Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := x.open[name]
	if i == nil {
		return nil
	}
	if i.part != nil && i.part.isBroken.Load() {
		x.forget(name, i)
		return nil
	}
	x.clock++
	i.users, i.used = i.users+1, x.clock
	return i
}

// prepare opens an index: the local copy, that of the store, or a new one. One that is damaged is dropped, and the next
// one of these takes its place.
func (x *Indexes) prepare(ctx context.Context, m *store.Manifest, dwz, name string) error {
	files := x.files()
	local := files.Name(m.ID, name)
	index := x.openLocal(files, local, name)
	for try := 0; index == nil; try++ {
		key := store.IndexKey(m.ID, IndexVersion, name)
		o, err := x.stored(ctx, m, dwz, key)
		if err == nil {
			if o.Stored > x.Whole {
				err = x.openPartial(m, name, key, o, func() (*os.File, error) {
					whole, err := x.bringChecked(o, files, local)
					if err != nil {
						return nil, err
					}
					whole.Close()
					return files.Open(local)
				})
			} else {
				index, err = x.bringChecked(o, files, local)
				o.Close()
			}
		}
		if try == 0 && isDamage(err) && !x.ReadOnly {
			x.noteDamage(key, err)
			err = x.Store.DropDerived(ctx, key)
			index = nil
			if err == nil {
				continue
			}
		}
		if isDamage(err) {
			return &MissError{Damaged, err.Error()}
		}
		if err != nil || index == nil {
			return err
		}
	}
	x.keep(name, m, &Index{index: index, drop: func(damage error) { files.Discard(local, damage) }})
	return nil
}

// isDamage reports whether an index of the store is not what was stored, or not what was made.
func isDamage(err error) bool {
	var format *symbol.FormatError
	return store.IsDamaged(err) || errors.As(err, &format)
}

// openLocal opens the local copy of an index, nil if there is none that can be used.
func (x *Indexes) openLocal(files *cachedir.Dir, local, name string) *symbol.Index {
	f, err := files.Open(local)
	if err != nil {
		return nil
	}
	defer f.Close()
	index, err := symbol.MapIndex(f)
	if err != nil {
		x.noteDamage(name, err)
		files.Discard(local, err)
		return nil
	}
	cachedir.Used(f)
	return index
}

// bringChecked brings an index of the store to the local disk, and reads all of it once: what the store has damaged is
// not to be brought again and again.
func (x *Indexes) bringChecked(o *store.Object, files *cachedir.Dir, local string) (*symbol.Index, error) {
	f, err := x.bring(o, files, local)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	index, err := symbol.MapIndex(f)
	if err != nil {
		files.Remove(local)
		return nil, err
	}
	if err := index.Check(); err != nil {
		index.Close()
		files.Remove(local)
		return nil, err
	}
	return index, nil
}

// openPartial opens an index that is brought in parts.
func (x *Indexes) openPartial(m *store.Manifest, name, key string, o *store.Object, bring func() (*os.File, error)) error {
	part, err := newPartial(o, o.Size(), name, bring)
	if err != nil {
		return err
	}
	i := &Index{part: part, drop: func(error) {
		if err := x.Store.DropDerived(context.Background(), key); err != nil {
			x.Log.Warn("a damaged index stays in the store", "key", key, "error", err)
		}
	}}
	var damage error
	err = part.look(func() { i.index, damage = symbol.NewIndex(part.content(), name) })
	if err = cmp.Or(err, damage); err != nil {
		part.close()
		return err
	}
	x.keep(name, m, i)
	return nil
}

// keep has an index open, and closes those that were not asked for longest.
func (x *Indexes) keep(name string, m *store.Manifest, i *Index) {
	if exe := m.Executable(); exe != nil {
		i.Code = exe.Code
	}
	i.owner, i.name = x, name
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clock++
	i.used = x.clock
	if old := x.open[name]; old != nil { // somebody looked for it before it was open, and asked after that
		x.forget(name, old)
	}
	x.open[name] = i
	partial := func(i *Index) bool { return i.part != nil }
	x.shrink(i, maxOpen, func(*Index) bool { return true })
	x.shrink(i, maxPartial, partial)
}

// shrink forgets indexes of a kind that nobody asks, but for one that is new, until there are no more than so many.
func (x *Indexes) shrink(fresh *Index, most int, is func(*Index) bool) {
	for {
		n, oldest := 0, ""
		for name, c := range x.open {
			if !is(c) {
				continue
			}
			n++
			if c.users == 0 && c != fresh && (oldest == "" || c.used < x.open[oldest].used) {
				oldest = name
			}
		}
		if n <= most || oldest == "" {
			return
		}
		x.forget(oldest, x.open[oldest])
	}
}

// forget closes an index once nobody asks it any more. It is called under the lock.
func (x *Indexes) forget(name string, i *Index) {
	delete(x.open, name)
	if i.gone = true; i.users == 0 {
		i.end()
	}
}

// stored opens an index of the store, where it is made if need be.
func (x *Indexes) stored(ctx context.Context, m *store.Manifest, dwz, key string) (*store.Object, error) {
	o, err := x.Store.OpenDerived(ctx, key)
	if !errors.Is(err, blob.ErrNotExist) {
		return o, err
	}
	if x.ReadOnly {
		return nil, &MissError{Pending, "this server makes no indexes"}
	}
	if err := x.makeOnce(ctx, m, dwz, key); err != nil {
		return nil, err
	}
	return x.Store.OpenDerived(ctx, key)
}

// bring copies an index of the store to the local disk, and opens the copy.
func (x *Indexes) bring(o *store.Object, files *cachedir.Dir, local string) (*os.File, error) {
	err := files.WriteFast(local, func(w io.Writer) error { _, err := io.Copy(w, o.Stream()); return err })
	if err != nil {
		return nil, err
	}
	any := cachedir.Dir{Path: files.Path, Suffix: anySuffix}
	_ = any.Prune(local, files.Limit(x.MaxSize)) // what stays is pruned the next time
	return files.Open(local)
}

// A lease says who makes an index, until when.
type lease struct {
	Expires time.Time `json:"expires"`
}

// makeOnce makes the index of an identity, unless another server does so: then it waits for that
// one, or for the end of its lease.
func (x *Indexes) makeOnce(ctx context.Context, m *store.Manifest, dwz, key string) error {
	held := "leases/" + key
	for {
		tag, err := x.acquire(ctx, held)
		if err != nil {
			return err
		}
		if tag != "" {
			defer x.hold(ctx, held, tag)()
			break
		}
		t := time.NewTimer(leasePause)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		if _, err := x.Store.Blobs.Head(ctx, key); err == nil || !errors.Is(err, blob.ErrNotExist) {
			return err
		}
	}
	if _, err := x.Store.Blobs.Head(ctx, key); err == nil { // the holder before made it
		return nil
	}
	x.slots <- struct{}{}
	defer func() { <-x.slots }()
	start := time.Now()
	err := x.makeIndex(ctx, m, dwz, key)
	result := "made"
	var miss *MissError
	switch {
	case errors.As(err, &miss):
		result = "refused"
	case err != nil:
		result = "failed"
	}
	x.Log.Info("index", "id", m.ID.String(), "result", result, "time", time.Since(start), "error", err)
	if x.Made != nil {
		x.Made(result)
	}
	return err
}

// acquire takes a lease that nobody has, or that has expired, and returns its tag, or else "".
func (x *Indexes) acquire(ctx context.Context, key string) (tag string, err error) {
	b, err := x.newLease()
	if err != nil {
		return "", err
	}
	info, err := x.Store.Blobs.PutIfAbsent(ctx, key, bytes.NewReader(b), int64(len(b)))
	if !errors.Is(err, blob.ErrExist) {
		return info.Tag, err
	}
	old, info, err := blob.Read(ctx, x.Store.Blobs, key, 4096)
	if errors.Is(err, blob.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var l lease
	if json.Unmarshal(old, &l) == nil && time.Now().Before(l.Expires) {
		return "", nil
	}
	return x.renew(ctx, key, info.Tag)
}

func (x *Indexes) newLease() ([]byte, error) {
	return json.Marshal(lease{time.Now().Add(x.Lease).UTC()})
}

// renew takes a lease that has a tag, and returns its next tag, or "" if somebody else has it.
func (x *Indexes) renew(ctx context.Context, key, tag string) (next string, err error) {
	b, err := x.newLease()
	if err != nil {
		return "", err
	}
	info, err := x.Store.Blobs.PutIfMatch(ctx, key, tag, b)
	if errors.Is(err, blob.ErrChanged) {
		return "", nil
	}
	return info.Tag, err
}

// hold renews a lease until the function that it returns is called, which gives the lease back. One that could not
// be renewed expires, and another server makes the same index.
func (x *Indexes) hold(ctx context.Context, key, tag string) (end func()) {
	keeping, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() {
		t := time.NewTicker(x.Lease / 4)
		defer t.Stop()
		for tag != "" {
			select {
			case <-keeping.Done():
				return
			case <-t.C:
			}
			next, err := x.renew(keeping, key, tag)
			switch {
			case err == nil:
				tag = next
			case keeping.Err() == nil:
				x.Log.Warn("a lease could not be renewed", "key", key, "error", err)
			}
		}
	})
	return func() {
		stop()
		kept.Wait()
		if tag == "" {
			return
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), returnTime) // also when the server ends
		defer cancel()
		if err := x.Store.Blobs.Delete(last, key); err != nil {
			x.Log.Warn("a lease stays until it expires", "key", key, "error", err)
		}
	}
}

// makeIndex makes the index of the files that are served, with a file of dwz, and stores it.
func (x *Indexes) makeIndex(ctx context.Context, m *store.Manifest, dwz, key string) error {
	var files indexer.Files
	files.Identity = m.ID.String()
	defer func() {
		for _, f := range []*os.File{files.Executable, files.Debug, files.Dwz} {
			if f != nil {
				f.Close()
			}
		}
	}()
	exe, dbg := m.Executable(), m.DebugInfo()
	var err error
	if exe != nil {
		if files.Executable, err = x.copyOf(ctx, exe.Stored()); err != nil {
			return err
		}
	}
	if dbg != nil && (exe == nil || dbg.Object != exe.Object) {
		if files.Debug, err = x.copyOf(ctx, dbg.Stored()); err != nil {
			return err
		}
	}
	if dwz != "" {
		if files.Dwz, err = x.copyOf(ctx, dwz); err != nil {
			return err
		}
	}
	out, err := x.scratch()
	if err != nil {
		return err
	}
	defer out.Close()
	if err := indexer.Make(ctx, out, files, x.Limits); err != nil {
		if errors.Is(err, indexer.ErrRefused) {
			return &MissError{Damaged, err.Error()}
		}
		return err
	}
	index, err := symbol.MapIndex(out)
	if err == nil {
		err = index.Check()
		index.Close()
	}
	if err != nil {
		return &MissError{Damaged, err.Error()}
	}
	return x.Store.PutDerived(ctx, key, out)
}

func (x *Indexes) scratch() (*os.File, error) {
	if x.Store.Scratch == "" {
		return atomicfile.Scratch()
	}
	return atomicfile.ScratchIn(x.Store.Scratch)
}

// copyOf returns the content of a file on the local disk.
func (x *Indexes) copyOf(ctx context.Context, object string) (*os.File, error) {
	o, err := x.Store.Object(ctx, object)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	f, err := x.scratch()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(f, o.Stream()); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	return f, nil
}
