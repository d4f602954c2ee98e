package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/server/blob"
)

// memory is a blob.Store whose clock moves with each operation. It has an eye on the rules: an object
// that is listed is there, and nobody removes it.
type memory struct {
	t       testing.TB
	mu      sync.Mutex
	objects map[string]kept
	now     time.Time
	step    func() time.Duration // by how much an operation moves the clock
	fail    int                  // after so many changes all fail, as those of a process that was killed; -1 for never
	changes int
	hook    func(op, key string) // is called before each operation
}

type kept struct {
	b   []byte
	at  time.Time
	tag string
}

var errKilled = errors.New("killed")

func newMemory(t testing.TB) *memory {
	return &memory{t: t, objects: map[string]kept{}, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), step: func() time.Duration { return 0 }, fail: -1}
}

func (m *memory) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *memory) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// on calls a function once, before the operation on a key with a prefix.
func (m *memory) on(op, prefix string, do func()) {
	m.hook = func(o, key string) {
		if o == op && strings.HasPrefix(key, prefix) {
			m.hook = nil
			do()
		}
	}
}

func (m *memory) before(op, key string) {
	if m.hook != nil {
		m.hook(op, key)
	}
}

// enter begins an operation.
func (m *memory) enter(change bool) error {
	m.mu.Lock()
	m.now = m.now.Add(m.step())
	if change {
		if m.changes++; m.fail >= 0 && m.changes > m.fail {
			return errKilled
		}
	}
	return nil
}

func (m *memory) Get(_ context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	m.before("get", key)
	defer m.mu.Unlock()
	_ = m.enter(false)
	k, ok := m.objects[key]
	if !ok {
		return nil, blob.Info{}, blob.ErrNotExist
	}
	b := k.b[off:]
	if n >= 0 && n < int64(len(b)) {
		b = b[:n]
	}
	return io.NopCloser(bytes.NewReader(b)), k.info(key), nil
}

func (k kept) info(key string) blob.Info {
	return blob.Info{Key: key, Size: int64(len(k.b)), Tag: k.tag, Modified: k.at}
}

func (m *memory) Head(_ context.Context, key string) (blob.Info, error) {
	defer m.mu.Unlock()
	_ = m.enter(false)
	k, ok := m.objects[key]
	if !ok {
		return blob.Info{}, blob.ErrNotExist
	}
	return k.info(key), nil
}

func (m *memory) PutIfAbsent(_ context.Context, key string, r io.Reader, _ int64) (blob.Info, error) {
	m.before("create", key)
	b, err := io.ReadAll(r)
	if err != nil {
		return blob.Info{}, err
	}
	defer m.mu.Unlock()
	if err := m.enter(true); err != nil {
		return blob.Info{}, err
	}
	if _, ok := m.objects[key]; ok {
		return blob.Info{}, blob.ErrExist
	}
	return m.set(key, b), nil
}

func (m *memory) set(key string, b []byte) blob.Info {
	k := kept{b, m.now, newLife()}
	m.objects[key] = k
	for _, name := range m.lists(key) {
		if _, ok := m.objects[objectKey(name)]; !ok {
			m.t.Errorf("%s lists %s, which is not there", key, name)
		}
	}
	return k.info(key)
}

// lists returns the names of objects that a list has.
func (m *memory) lists(key string) (names []string) {
	b := m.objects[key].b
	switch {
	case strings.HasPrefix(key, "id/"):
		var list Manifest
		if err := json.Unmarshal(b, &list); err != nil {
			m.t.Error(err)
		}
		for _, f := range list.Files {
			names = append(names, f.Stored())
		}
	case strings.HasPrefix(key, "src/"):
		var f SourceFile
		if err := json.Unmarshal(b, &f); err != nil {
			m.t.Error(err)
		}
		names = []string{f.Stored()}
	}
	return names
}

func (m *memory) PutIfMatch(_ context.Context, key, tag string, b []byte) (blob.Info, error) {
	m.before("swap", key)
	defer m.mu.Unlock()
	if err := m.enter(true); err != nil {
		return blob.Info{}, err
	}
	if m.objects[key].tag != tag {
		return blob.Info{}, blob.ErrChanged
	}
	return m.set(key, b), nil
}

func (m *memory) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		m.before("list", prefix)
		for after := ""; ; {
			m.mu.Lock()
			next := ""
			for key := range m.objects {
				if strings.HasPrefix(key, prefix) && key > after && (next == "" || key < next) {
					next = key
				}
			}
			info := m.objects[next].info(next)
			m.mu.Unlock()
			if next == "" || !yield(info, ctx.Err()) {
				return
			}
			after = next
		}
	}
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.before("delete", key)
	defer m.mu.Unlock()
	if err := m.enter(true); err != nil {
		return err
	}
	for list := range m.objects {
		if slices.Contains(m.lists(list), objectOf(key)) && strings.HasPrefix(key, "cas/") {
			m.t.Errorf("%s is removed, and %s lists it", key, list)
		}
	}
	delete(m.objects, key)
	return nil
}

func (m *memory) DeleteIfMatch(ctx context.Context, key, tag string) error {
	if info, err := m.Head(ctx, key); err != nil || info.Tag != tag { // no list of objects is removed so, but an empty one
		return blob.ErrChanged
	}
	return m.Delete(ctx, key)
}

func (m *memory) String() string { return "memory" }

// keys returns the keys that begin with one of some prefixes.
func (m *memory) keys(prefixes ...string) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.objects {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *memory) server(t testing.TB) *Store {
	return &Store{Blobs: m, Scratch: t.TempDir(), Now: m.Now}
}

const day = 24 * time.Hour

func collect(t *testing.T, s *Store, o Collection) Collected {
	t.Helper()
	c, err := s.Collect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func numbered(i int) []byte {
	return program(fmt.Appendf(nil, "build ID number %4d", i), fmt.Sprint("code ", i))
}

// filled returns a store in which identity i was sent on day i, each with a source and an index. All have
// one source file in common.
func filled(t *testing.T, n int) (*memory, *Store, []buildid.ID) {
	m := newMemory(t)
	s := m.server(t)
	var ids []buildid.ID
	for i := range n {
		a := mustAdd(t, s, numbered(i), CI)
		addSource(t, s, a.Manifest, "common.h", "common")
		addSource(t, s, a.Manifest, "own.c", fmt.Sprint("source ", i))
		for _, version := range []string{"v3", "v4"} {
			if _, err := m.PutIfAbsent(t.Context(), IndexKey(a.ID, version, "index-"+a.Manifest.IndexName().With(DwzFile{})), strings.NewReader("index"), 5); err != nil {
				t.Fatal(err)
			}
		}
		ids = append(ids, a.ID)
		m.pass(day)
	}
	return m, s, ids
}

func addSource(t *testing.T, s *Store, m *Manifest, name, text string) {
	t.Helper()
	spool, err := s.Spool(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if err := s.AddSource(t.Context(), m, name, spool, Origin{Trust: CI, Via: "push"}); err != nil {
		t.Fatal(err)
	}
}

// TestRetention removes by age and by size what is not pinned and was not used, with all that is of it
// alone, and nothing else.
func TestRetention(t *testing.T) {
	for reason, keep := range map[string]Retention{"age": {Age: 4 * day}, "size": {Size: 1}} {
		m, s, ids := filled(t, 5) // it is day 5
		if err := s.Pin(t.Context(), ids[0], true); err != nil {
			t.Fatal(err)
		}
		manifest, err := s.Manifest(t.Context(), ids[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Use(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
		if reason == "size" { // ids[2] goes first
			all := collect(t, s, Collection{DryRun: true, IndexVersion: "v4"})
			keep.Size = all.Size - 1
		} else {
			m.pass(2 * day)
		}
		var removed []buildid.ID
		o := Collection{Retention: keep, IndexVersion: "v4", DryRun: true, OnRemove: func(r Removed) {
			removed = append(removed, r.ID)
			if r.Reason != reason || r.Size == 0 {
				t.Errorf("%+v", r)
			}
		}}
		before := m.keys("")
		dry := collect(t, s, o)
		if !slices.Equal(before, m.keys("")) {
			t.Error("a dry run changes the store")
		}
		o.DryRun = false
		c := collect(t, s, o)
		if c != dry {
			t.Errorf("dry: %+v\nreally: %+v", dry, c)
		}
		if !slices.Equal(removed, []buildid.ID{ids[2], ids[2]}) || c.Removed != 1 || c.Kept != 4 || c.Pinned != 1 || c.Sources != 2 {
			t.Errorf("%s: %v: %+v", reason, removed, c)
		}
		if _, err := s.Manifest(t.Context(), ids[2]); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%v", err)
		}
		if left := m.keys("id/"+ownerPath(ids[2]), "src/"+ownerPath(ids[2]), "index/v4/"+ownerPath(ids[2]), "index/v3/"); len(left) > 0 || c.Indexes != 6 {
			t.Errorf("%q is left, %+v", left, c)
		}
		objects := len(m.keys("cas/"))
		m.pass(day + time.Hour)
		if c := collect(t, s, Collection{}); c.Objects != 2 || len(m.keys("cas/")) != objects-2 {
			t.Errorf("%s: a day later: %+v", reason, c)
		}
		for _, i := range []int{0, 1, 3, 4} {
			wantFile(t, s, ids[i], numbered(i))
		}
		m.pass(3 * day)
		collect(t, s, Collection{})
		if marks := m.keys("dead/"); len(marks) != 0 {
			t.Errorf("%q", marks)
		}
	}
}

func wantFile(t *testing.T, s *Store, id buildid.ID, want []byte) {
	t.Helper()
	manifest, err := s.Manifest(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Object(t.Context(), manifest.Executable().Stored())
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got, err := io.ReadAll(o.Stream()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	for _, name := range []string{"common.h", "own.c"} {
		if _, err := s.Source(t.Context(), manifest, name); err != nil {
			t.Error(err)
		}
	}
}

// TestReturn sends an identity again that was removed: its sources of before do not come back, and the
// object that is about to be removed is not listed again.
func TestReturn(t *testing.T) {
	m, s, ids := filled(t, 1)
	m.pass(10 * day)
	collect(t, s, Collection{Retention: Retention{Age: day}})
	a := mustAdd(t, s, numbered(0), CI)
	if f := a.Manifest.Executable(); f.Key == "" || !strings.HasPrefix(f.Key, f.Object) {
		t.Errorf("an object is listed that is marked as dead: %+v", f)
	}
	if _, err := s.Source(t.Context(), a.Manifest, "own.c"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%v", err)
	}
	m.pass(day + time.Hour)
	if c := collect(t, s, Collection{}); c.Objects != 3 {
		t.Errorf("%+v", c)
	}
	addSource(t, s, a.Manifest, "common.h", "common")
	addSource(t, s, a.Manifest, "own.c", "new")
	wantFile(t, s, ids[0], numbered(0))
}

// TestKilledCollection ends a run after each of its changes. All that is kept can be read then, and a later
// run does the rest.
func TestKilledCollection(t *testing.T) {
	for n := 0; ; n++ {
		m, s, ids := filled(t, 3)
		o := Collection{Retention: Retention{Age: 2 * day}, IndexVersion: "v4"}
		killed := false
		for range 4 { // in each, one is killed
			m.pass(25 * time.Hour)
			manifest, err := s.Manifest(t.Context(), ids[2])
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Use(t.Context(), manifest); err != nil {
				t.Fatal(err)
			}
			m.changes, m.fail = 0, n
			_, err = m.server(t).Collect(t.Context(), o)
			m.fail = -1
			if err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			killed = killed || err != nil
			wantFile(t, m.server(t), ids[2], numbered(2))
			m.pass(time.Hour)
			collect(t, m.server(t), o)
		}
		m.pass(3 * day)
		collect(t, s, Collection{})
		if left := m.keys("cas/", "dead/", "id/", "src/", "index/"); len(left) != 3+1+2+1 {
			t.Errorf("killed after %d changes: %d are left: %q", n, len(left), left)
		}
		if !killed {
			break
		}
	}
}

// TestSlowUpload wants an upload that took too long to fail, and to list nothing.
func TestSlowUpload(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	ops := 0
	m.step = func() time.Duration {
		if ops++; ops == 3 { // the object is being written
			return listTime + time.Minute
		}
		return 0
	}
	if _, err := add(t, s, numbered(0), Claim{}); !errors.Is(err, blob.ErrUnavailable) || len(m.keys("id/")) != 0 {
		t.Errorf("%v", err)
	}
	if a := mustAdd(t, s, numbered(0), CI); a.Manifest.Executable() == nil {
		t.Error("the second time fails, too")
	}
}

// TestCollectionsMeetUploads has others do something in the middle of an upload or of a run. The store
// refuses to lose what is listed.
func TestCollectionsMeetUploads(t *testing.T) {
	type scene struct {
		*testing.T
		m *memory
		s *Store
	}
	// unlisted has an object that nothing lists, and that is marked if it was looked at.
	unlisted := func(c scene, looked bool) {
		c.m.fail = 1
		if _, err := add(c.T, c.s, numbered(0), Claim{}); !errors.Is(err, errKilled) {
			c.Fatal(err)
		}
		c.m.fail = -1
		c.m.pass(2 * day)
		if looked {
			collect(c.T, c.s, Collection{})
			c.m.pass(day + time.Hour)
		}
	}
	collect := func(c scene) { c.Helper(); collect(c.T, c.m.server(c), Collection{}) }
	send := func(c scene) { c.Helper(); mustAdd(c.T, c.m.server(c), numbered(0), CI) }
	for name, play := range map[string]func(scene){
		"two runs before an upload lists": func(c scene) {
			unlisted(c, false)
			c.m.on("create", "id/", func() { collect(c); c.m.pass(time.Hour); collect(c) })
			send(c)
			c.m.pass(25 * time.Hour)
			collect(c)
		},
		"the object is removed before an upload lists": func(c scene) {
			unlisted(c, false)
			heads := 0
			c.m.step = func() time.Duration {
				if heads++; heads == 3 { // the manifest is read
					c.m.mu.Unlock()
					c.m.step = func() time.Duration { return 0 }
					collect(c)
					c.m.pass(25 * time.Hour)
					collect(c)
					c.m.mu.Lock()
				}
				return 0
			}
			if _, err := add(c.T, c.s, numbered(0), Claim{}); !errors.Is(err, blob.ErrUnavailable) {
				c.Errorf("%v", err)
			}
			send(c)
		},
		"an upload comes between two reads of a run": func(c scene) {
			unlisted(c, true)
			c.m.on("list", "dead/", func() { send(c) })
			collect(c)
		},
		"another run removes the object and an upload comes": func(c scene) {
			unlisted(c, true)
			c.m.on("list", "dead/", func() { c.m.on("list", "cas/", func() { collect(c); collect(c); send(c) }) })
			collect(c)
		},
		"a run sleeps for days": func(c scene) {
			unlisted(c, true)
			c.m.on("list", "dead/", func() {
				c.m.on("list", "cas/", func() { collect(c); c.m.pass(3 * day); collect(c); send(c) })
			})
			if _, err := c.s.Collect(c.Context(), Collection{}); err == nil {
				c.Error("it has no error")
			}
		},
		"the mark goes while a run looks": func(c scene) {
			unlisted(c, true)
			collect(c)
			c.m.pass(2*day + time.Hour)
			c.m.on("list", "dead/", func() { c.m.on("list", "cas/", func() { collect(c); send(c) }) })
			collect(c)
			if len(c.m.keys("dead/")) != 0 {
				c.Error("the mark did not go")
			}
		},
		"the identity comes again while its sources go": func(c scene) {
			a := mustAdd(c.T, c.s, numbered(0), CI)
			addSource(c.T, c.s, a.Manifest, "x.c", "text")
			c.m.pass(9 * day)
			var again Added
			c.m.on("delete", "src/", func() {
				again = mustAdd(c.T, c.m.server(c), numbered(0), CI)
				addSource(c.T, c.m.server(c), again.Manifest, "x.c", "text")
			})
			if _, err := c.s.Collect(c.Context(), Collection{Retention: Retention{Age: day}}); err != nil {
				c.Error(err)
			}
			collect(c)
			if _, err := c.m.server(c).Source(c.Context(), again.Manifest, "x.c"); err != nil {
				c.Error(err)
			}
		},
		"the identity is used while it goes": func(c scene) {
			a := mustAdd(c.T, c.s, numbered(0), CI)
			c.m.pass(9 * day)
			c.m.on("swap", "id/", func() {
				if err := c.m.server(c).Use(c.Context(), a.Manifest); err != nil {
					c.Error(err)
				}
			})
			if got, err := c.s.Collect(c.Context(), Collection{Retention: Retention{Age: day}}); err != nil || got.Removed != 0 || got.Kept != 1 {
				c.Errorf("%+v, %v", got, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t)
			s := m.server(t)
			play(scene{t, m, s})
			id, err := buildid.New(buildid.GNU, []byte("build ID number    0"))
			if err != nil {
				t.Fatal(err)
			}
			if manifest, err := m.server(t).Manifest(t.Context(), id); err != nil || manifest.Executable() == nil {
				t.Errorf("the identity is gone: %v", err)
			}
		})
	}
}

// TestUploadsAndCollections has servers take a few files again and again while others remove what was not
// used for some days, with a clock that moves on with each operation, by minutes and at times by many
// hours. The store refuses to lose what is listed.
func TestUploadsAndCollections(t *testing.T) {
	m, rng := newMemory(t), testenv.Rand(t)
	m.step = func() time.Duration {
		switch n := rng.IntN(1000); {
		case n < 3:
			return time.Duration(rng.Int64N(int64(10 * time.Hour)))
		default:
			return time.Duration(rng.Int64N(int64(4 * time.Minute)))
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	tries, uploads, runs := 0, 0, 0
	ran := sync.NewCond(&mu) // a run has ended
	var sum Collected
	isEnough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return uploads >= 100 && sum.Removed >= 10 && sum.Objects >= 10
	}
	for range 3 {
		s := m.server(t)
		all.Go(func() {
			for n := 0; n < 150 || n < 5000 && !isEnough(); n++ {
				i := rng.IntN(4)
				spool, err := s.Spool(t.Context(), bytes.NewReader(numbered(i)))
				if err != nil {
					t.Error(err)
					return
				}
				a, err := s.Add(t.Context(), spool, Claim{Origin: Origin{Trust: CI, Via: "push", Time: m.Now()}})
				if err == nil {
					mu.Lock()
					uploads++
					mu.Unlock()
					var source *Spool
					if source, err = s.Spool(t.Context(), strings.NewReader(fmt.Sprint("text ", rng.IntN(2)))); err == nil {
						err = s.AddSource(t.Context(), a.Manifest, "x.c", source, Origin{Trust: CI, Via: "push"})
						source.Close()
					}
				}
				spool.Close()
				if err != nil && !errors.Is(err, blob.ErrUnavailable) {
					t.Error(err)
				}
				m.pass(time.Duration(rng.Int64N(int64(day))))
				// A run during which days pass gives up. So no more than two uploads come to a run, however slow
				// it is beside them.
				mu.Lock()
				for tries++; tries > 2*runs+4; {
					ran.Wait()
				}
				mu.Unlock()
			}
		})
	}
	ended := make(chan struct{})
	var collectors sync.WaitGroup
	for range 2 {
		s := m.server(t)
		collectors.Go(func() {
			for {
				c, err := s.Collect(t.Context(), Collection{Retention: Retention{Age: 2 * day}})
				if err != nil && !strings.Contains(err.Error(), "the run took more than") {
					t.Error(err)
				}
				mu.Lock()
				sum.Removed, sum.Objects, sum.Marked = sum.Removed+c.Removed, sum.Objects+c.Objects, sum.Marked+c.Marked
				runs++
				ran.Broadcast()
				mu.Unlock()
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	all.Wait()
	close(ended)
	collectors.Wait()
	t.Logf("%d uploads, %d identities and %d objects removed, %d marked", uploads, sum.Removed, sum.Objects, sum.Marked)
	if !isEnough() {
		testenv.Lack(t, "%d uploads, %+v: this proves little", uploads, sum)
	}
}

// TestTurns wants one of several servers to have its turn.
func TestTurns(t *testing.T) {
	m := newMemory(t)
	var all sync.WaitGroup
	turns := make(chan bool, 8)
	for range cap(turns) {
		s := m.server(t)
		all.Go(func() {
			ok, err := s.TakeTurn(t.Context(), CollectTurn, day)
			if err != nil {
				t.Error(err)
			}
			turns <- ok
		})
	}
	all.Wait()
	close(turns)
	n := 0
	for ok := range turns {
		if ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d servers have the turn", n)
	}
	m.pass(day)
	if ok, err := m.server(t).TakeTurn(t.Context(), CollectTurn, day); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}
