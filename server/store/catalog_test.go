package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"hallmark/buildid"
	"hallmark/internal/seekable"
	"hallmark/internal/testenv"
	"hallmark/server/blob"
)

// entriesIn returns what a catalogue has, as text.
func entriesIn(c *Catalog) map[string]string {
	all := map[string]string{}
	for e := range c.All("") {
		all[e.ID.String()] = fmt.Sprint(e.Files, e.Symbols, e.Names, e.Index(Entry{}))
	}
	return all
}

// truth returns what the manifests of a store say, in the same form.
func (m *memory) truth(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range m.keys("id/") {
		of := new(Manifest)
		if err := decodeSealed(m.objects[key].b, of); err != nil {
			t.Fatal(err)
		}
		if e := entryOf(of); e.Files > 0 {
			all[e.ID.String()] = fmt.Sprint(e.Files, e.Symbols, e.Names, e.Index(Entry{}))
		}
	}
	return all
}

// wantTruth wants a catalogue to have what manifests say.
func wantTruth(t *testing.T, m *memory, c *Catalog, when string) {
	t.Helper()
	got, want := entriesIn(c), m.truth(t)
	for id := range maps.Keys(want) {
		if got[id] != want[id] {
			t.Errorf("%s: %s is %q, want %q", when, id, got[id], want[id])
		}
		delete(got, id)
	}
	for id, e := range got {
		t.Errorf("%s: %s, which is not there, is %q", when, id, e)
	}
	if n := c.Len(); n != int64(len(want)) {
		t.Errorf("%s: it says that it has %d, want %d", when, n, len(want))
	}
}

func refresh(t *testing.T, s *Store) *Catalog {
	t.Helper()
	c := s.Catalog()
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// passes has a catalogue look at all manifests until it is not its turn any more.
func passes(t *testing.T, s *Store) *Catalog {
	t.Helper()
	c := refresh(t, s)
	for c.PassDue() {
		if err := c.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// compact has a server merge what is old enough.
func compact(t *testing.T, m *memory, s *Store) {
	t.Helper()
	refresh(t, s)
	m.pass(2 * mergeTime)
	if err := refresh(t, s).Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// oldServer writes manifests as a server without a catalogue does.
func (m *memory) oldServer(t testing.TB, change func(*Manifest), of ...*Manifest) {
	t.Helper()
	for _, was := range of {
		b, err := json.Marshal(was) // a copy
		var now Manifest
		if err == nil {
			err = json.Unmarshal(b, &now)
		}
		change(&now)
		if err == nil {
			b, err = encodeSealed(&now)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.set(manifestKey(now.ID), b)
		m.mu.Unlock()
	}
}

func named(path string) func(*Manifest) {
	return func(m *Manifest) {
		if len(m.Files) > 0 {
			m.Files[0].Origins = []Origin{{Trust: CI, Via: "push", Path: path}}
		}
	}
}

// manifestOf returns the manifest of identity i, whose file is that of one object.
func manifestOf(t testing.TB, i int, object string) *Manifest {
	t.Helper()
	id, err := buildid.New(buildid.GNU, fmt.Appendf(nil, "%08x of the old ones", i*2654435761))
	if err != nil {
		t.Fatal(err)
	}
	return &Manifest{Version: manifestVersion, ID: id, Files: []File{{Object: object, Facts: Facts{ID: id, Executable: true, Symbols: Exported}, Origins: []Origin{{Trust: CI, Via: "push", Path: fmt.Sprint("/usr/bin/", i)}}}}}
}

// TestCatalog has two servers over one store: each finds what the other one does, before and after it is merged, and a third
// one that comes later reads no manifest.
func TestCatalog(t *testing.T) {
	m := newMemory(t)
	one, two := m.server(t), m.server(t)
	passes(t, one)
	passes(t, two)
	var last buildid.ID
	for i := range 30 {
		last = mustAdd(t, one, numbered(i), CI).ID
		if i%3 == 0 {
			compact(t, m, []*Store{one, two}[i%2])
		}
		wantTruth(t, m, refresh(t, two), "the other server")
		wantTruth(t, m, one.Catalog(), "the server that took it")
	}
	m.pass(day)
	if c, err := one.Collect(t.Context(), Collection{Retention: Retention{Age: time.Hour}}); err != nil || c.Removed == 0 {
		t.Fatalf("%+v %v", c, err)
	}
	mustAdd(t, two, numbered(3), CI)
	wantTruth(t, m, refresh(t, two), "after a collection")
	if _, ok := two.Catalog().Entry(last); ok {
		t.Error("what is gone is found")
	}
	for range 4 {
		compact(t, m, two)
	}
	compact(t, m, one)
	reads := 0
	m.hook = func(op, key string) {
		if op == "get" && strings.HasPrefix(key, "id/") {
			reads++
		}
	}
	third := m.server(t)
	wantTruth(t, m, refresh(t, third), "a server that comes later")
	wantTruth(t, m, refresh(t, one), "the server that took all")
	m.hook = nil
	if left := m.keys(intentPrefix); len(left) > 0 || reads > 0 {
		t.Errorf("%d intents are left, and %d manifests were read", len(left), reads)
	}
	if c := passes(t, third); !c.Complete() || c.root.Pass.Strays > 0 {
		t.Errorf("it is not complete: %+v", c.root.Pass)
	}
}

// TestRuns wants few runs, however often something is merged, and nothing lost in these.
func TestRuns(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	passes(t, s)
	object := mustAdd(t, s, numbered(0), CI).Object
	for i := range 200 {
		_, err := s.change(t.Context(), manifestOf(t, i%150, object).ID, func(now *Manifest) (bool, error) {
			*now = *manifestOf(t, i%150, object)
			named(fmt.Sprint("/changed/", i))(now)
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		compact(t, m, s)
		if n := len(s.Catalog().runs); n > 6 {
			t.Errorf("%d runs after %d merges", n, i)
		}
	}
	wantTruth(t, m, refresh(t, m.server(t)), "a server that comes later")
}

// TestOlderServer has a server without a catalogue beside this one. What it does is found by a pass, and the catalogue is not
// complete as long as it does something. It ignores what it does not know, and this one what it did meanwhile is not lost.
func TestOlderServer(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	object := mustAdd(t, s, numbered(0), CI).Object
	var old []*Manifest
	for i := range 100 {
		old = append(old, manifestOf(t, i, object))
	}
	m.oldServer(t, func(*Manifest) {}, old...)
	c := passes(t, s)
	wantTruth(t, m, c, "first start over an old store")
	if !c.Complete() {
		t.Errorf("it is not complete: %+v", c.root.Pass)
	}
	other := m.server(t)
	if !refresh(t, other).Complete() {
		t.Error("another server does not know that it is complete")
	}
	for i := range 5 {
		m.pass(passTime * 2)
		m.oldServer(t, named(fmt.Sprint("/other/name/", i)), old[i*10:i*10+3]...)
		m.oldServer(t, func(m *Manifest) { m.Files = nil }, old[50+i])
		c = passes(t, s)
		wantTruth(t, m, c, "beside an older server")
		wantTruth(t, m, refresh(t, other), "another server beside an older one")
		if c.Complete() || other.Catalog().Complete() {
			t.Error("it is complete while an older server writes")
		}
	}
	m.pass(passTime * 2)
	if c = passes(t, s); !c.Complete() {
		t.Errorf("it is not complete when the older server has ended: %+v", c.root.Pass)
	}
	m.oldServer(t, func(m *Manifest) { m.use(m.Files[0].Origins[0].Time.AddDate(1, 0, 0)) }, old[90])
	m.pass(passTime * 2)
	if c = passes(t, s); !c.Complete() || c.root.Pass.Strays != 0 {
		t.Errorf("a last use counts as a change: %+v", c.root.Pass)
	}
	m.pass(7 * day)
	m.oldServer(t, named("/after/a/week"), old[91])
	if again := m.server(t); refresh(t, again).Complete() {
		t.Error("a server that comes after a week believes the last pass")
	}
}

// TestCatalogKilled ends a server before each of its writes, in all that it does. The next one finds all that was
// acknowledged, and is complete.
func TestCatalogKilled(t *testing.T) {
	for writes := 0; ; writes++ {
		m := newMemory(t)
		first := m.server(t)
		object := mustAdd(t, first, numbered(99), CI).Object
		m.oldServer(t, func(*Manifest) {}, manifestOf(t, 1, object), manifestOf(t, 2, object))
		m.fail = m.changes + writes
		s := m.server(t)
		added, killed := []buildid.ID{}, false
		try := func(do func() error) {
			if err := do(); err != nil {
				if killed = true; !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
			}
		}
		c := s.Catalog()
		try(func() error { return c.Refresh(t.Context()) })
		for range 2 {
			try(func() error { return c.Pass(t.Context()) })
		}
		for i := range 4 {
			try(func() error {
				a, err := add(t, s, numbered(i), Claim{Origin: Origin{Trust: CI, Via: "push"}})
				if err == nil {
					added = append(added, a.ID)
				}
				return err
			})
			try(func() error { return c.Refresh(t.Context()) })
			m.pass(2 * mergeTime)
			try(func() error { return c.Compact(t.Context()) })
		}
		try(func() error { _, err := s.Collect(t.Context(), Collection{}); return err })
		m.fail = -1
		next := m.server(t)
		nc := refresh(t, next)
		for _, id := range added {
			if _, ok := nc.Entry(id); !ok {
				t.Errorf("killed after %d writes: %v was acknowledged, and is not found", writes, id)
			}
		}
		for range 3 {
			passes(t, next)
			m.pass(passTime * 2)
			compact(t, m, next)
		}
		wantTruth(t, m, passes(t, next), fmt.Sprintf("killed after %d writes", writes))
		if m.pass(passTime); !passes(t, next).Complete() {
			t.Errorf("killed after %d writes: it is not complete", writes)
		}
		if !killed {
			if t.Logf("%d writes", writes); writes < 20 {
				t.Errorf("only %d writes", writes)
			}
			return
		}
	}
}

// TestCatalogTwice has a root that names one segment a thousand times: it is read once, and reported, and the root is mended.
func TestCatalogTwice(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	object := mustAdd(t, s, numbered(0), CI).Object
	for i := range 40 {
		m.oldServer(t, func(*Manifest) {}, manifestOf(t, i, object))
	}
	c := passes(t, s)
	forged := c.root
	for range 1000 {
		forged.Runs = append(slices.Clone(forged.Runs), c.root.Runs[0])
	}
	b, err := encodeSealed(forged)
	if err != nil {
		t.Fatal(err)
	}
	m.set(rootKey, b)
	next := m.server(t)
	reported, reads := 0, 0
	next.OnDamage = func(string, error) { reported++ }
	m.hook = func(op, key string) {
		if strings.HasPrefix(key, segmentPrefix) {
			reads++
		}
	}
	c = refresh(t, next)
	if reads > 10 || reported != 1 || c.Complete() {
		t.Errorf("%d reads, reported %d times, complete %t", reads, reported, c.Complete())
	}
	m.hook = nil
	m.pass(2 * passTime)
	wantTruth(t, m, passes(t, next), "a segment twice")
	after := m.server(t)
	after.OnDamage = func(key string, why error) { t.Errorf("%s is damaged still: %v", key, why) }
	wantTruth(t, m, refresh(t, after), "the next server")
}

// TestCatalogClocks has two servers whose clocks differ: they make no more passes than with the same clock, and know whether the
// catalogue is complete.
func TestCatalogClocks(t *testing.T) {
	for _, skew := range []time.Duration{0, 3 * time.Minute, time.Hour, -time.Hour} {
		m := newMemory(t)
		one, two := m.server(t), m.server(t)
		two.Now = func() time.Time { return m.Now().Add(skew) }
		mustAdd(t, one, numbered(0), CI)
		n := 0
		const turns = 150
		for turn := range turns {
			for _, s := range []*Store{one, two} {
				c := refresh(t, s)
				if c.PassDue() {
					n++
					if err := c.Pass(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if turn > 0 && !c.Complete() {
					t.Fatalf("%v: it is not complete: %+v", skew, c.root.Pass)
				}
			}
			m.pass(passTime / 15)
		}
		if n > 3+turns/15 {
			t.Errorf("%v: %d passes in %v", skew, n, turns/15*passTime)
		}
		m.pass(2 * passesFresh * passTime)
		if refresh(t, one).Complete() || refresh(t, two).Complete() {
			t.Errorf("%v: it is complete long after the last pass", skew)
		}
	}
}

// TestCatalogDamage damages each part of a catalogue in several ways. It is reported, and made again from manifests.
func TestCatalogDamage(t *testing.T) {
	for _, prefix := range []string{rootKey, segmentPrefix, intentPrefix} {
		for name, damage := range map[string]func([]byte) []byte{
			"flipped": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
			"zeroed":  func(b []byte) []byte { clear(b[len(b)/3 : 2*len(b)/3]); return b },
			"cut":     func(b []byte) []byte { return b[:len(b)/2] },
			"empty":   func(b []byte) []byte { return nil },
			"gone":    nil,
		} {
			m := newMemory(t)
			s := m.server(t)
			object := mustAdd(t, s, numbered(0), CI).Object
			for i := range 40 {
				m.oldServer(t, func(*Manifest) {}, manifestOf(t, i, object))
			}
			passes(t, s)
			mustAdd(t, s, numbered(1), CI)
			mustAdd(t, s, numbered(2), CI)
			for _, key := range m.keys(prefix) {
				k := m.objects[key]
				if damage == nil {
					delete(m.objects, key)
					continue
				}
				k.b = damage(bytes.Clone(k.b))
				m.objects[key] = k
			}
			var reported []string
			next := m.server(t)
			next.OnDamage = func(key string, why error) { reported = append(reported, key) }
			c := refresh(t, next)
			if silent := damage == nil && prefix != segmentPrefix; silent != (len(reported) == 0) {
				t.Errorf("%s: %s: reported: %v", prefix, name, reported)
			}
			if damage != nil && c.Complete() {
				t.Errorf("%s: %s: it is complete", prefix, name)
			}
			m.pass(2 * passTime) // an intent that is gone is found by a pass alone
			passes(t, next)
			m.pass(2 * passTime)
			wantTruth(t, m, passes(t, next), prefix+" "+name)
			m.pass(2 * passTime)
			if c = passes(t, next); !c.Complete() {
				t.Errorf("%s: %s: it is not complete: %+v", prefix, name, c.root.Pass)
			}
			after := m.server(t)
			after.OnDamage = func(key string, why error) {
				if prefix != intentPrefix {
					t.Errorf("%s: %s: %s is damaged still: %v", prefix, name, key, why)
				}
			}
			wantTruth(t, m, refresh(t, after), prefix+" "+name+", the next server")
		}
	}
}

// TestCatalogModel has servers with and without a catalogue do what they do in any order, and some end. When all have ended,
// the next one has what the manifests say.
func TestCatalogModel(t *testing.T) {
	rounds := 40
	if testenv.Thorough() {
		rounds = 2000
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 36))
		m := newMemory(t)
		m.step = func() time.Duration { return time.Duration(r.IntN(300)) * time.Millisecond }
		servers := []*Store{m.server(t), m.server(t), m.server(t)}
		servers[2].ReadOnly = true
		object := mustAdd(t, servers[0], numbered(0), CI).Object
		var old []*Manifest
		for i := range 20 {
			old = append(old, manifestOf(t, i, object))
		}
		for step := range 150 {
			i := r.IntN(3)
			s := servers[i]
			switch r.IntN(9) {
			case 0, 1:
				if !s.ReadOnly {
					mustAdd(t, s, numbered(r.IntN(8)), []Trust{Agent, CI}[r.IntN(2)])
				}
			case 2:
				m.oldServer(t, named(fmt.Sprint("/step/", step)), old[r.IntN(len(old))])
			case 3, 4:
				refresh(t, s)
			case 5:
				m.pass(time.Duration(r.IntN(90)) * time.Second)
				if err := s.Catalog().Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			case 6:
				passes(t, s)
			case 7:
				if m.pass(time.Duration(r.IntN(600)) * time.Second); !s.ReadOnly {
					collect(t, s, Collection{Retention: Retention{Age: time.Duration(r.IntN(3)) * time.Hour}})
				}
			case 8:
				servers[i] = m.server(t)
				servers[i].ReadOnly = s.ReadOnly
			}
		}
		for i, s := range append(servers, m.server(t)) {
			m.pass(2 * time.Hour)
			passes(t, s)
			m.pass(time.Hour)
			wantTruth(t, m, passes(t, s), fmt.Sprintf("seed %d, server %d", seed, i))
			if !s.Catalog().Complete() {
				t.Errorf("seed %d, server %d: it is not complete: %+v", seed, i, s.Catalog().root.Pass)
			}
		}
	}
}

// TestIntentsTogether has many files come at once: their intents share objects.
func TestIntentsTogether(t *testing.T) {
	s := newStore(t, t.TempDir())
	c := s.Catalog()
	slow := &slowPuts{Store: s.Blobs}
	s.Blobs = slow
	const files = 200
	err := each(t.Context(), files, func(i int) error {
		id, err := buildid.New(buildid.GNU, fmt.Appendf(nil, "identity %d", i))
		if err != nil {
			return err
		}
		return c.intend(t.Context(), intent{ID: id, Content: sumOf(nil)})
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for info := range slow.List(t.Context(), intentPrefix) {
		if n++; info.Size == 0 {
			t.Error("an empty object")
		}
	}
	if n > files/2 {
		t.Errorf("%d objects for %d intents", n, files)
	}
}

type slowPuts struct{ blob.Store }

func (s *slowPuts) PutIfAbsent(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	time.Sleep(5 * time.Millisecond)
	return s.Store.PutIfAbsent(ctx, key, r, size)
}

// randomRecords returns records in order.
func randomRecords(r *rand.Rand, n int) []record {
	byKey := map[string]record{}
	for range n {
		kind := []buildid.Kind{buildid.GNU, buildid.Go}[r.IntN(2)]
		id, err := buildid.New(kind, fmt.Appendf(nil, "%0*d", 1+r.IntN(30), r.IntN(1<<30)))
		if err != nil {
			panic(err)
		}
		m := &Manifest{ID: id}
		for f := range r.IntN(3) {
			file := File{Object: hashOf(fmt.Sprint(r.IntN(100))), Facts: Facts{ID: id, Executable: f == 0, Debug: f == 1, Symbols: ranks[r.IntN(len(ranks))]}}
			for range r.IntN(4) {
				file.Origins = append(file.Origins, Origin{Trust: trusts[r.IntN(len(trusts))], Path: strings.Repeat("/p", r.IntN(500)), Archive: fmt.Sprint(r.IntN(3))})
			}
			if r.IntN(4) == 0 {
				file.DwzID = "0123456789"
			}
			m.Files = append(m.Files, file)
		}
		rec := recordOf(m, r.Uint64())
		byKey[string(rec.key)] = rec
	}
	return slices.SortedFunc(maps.Values(byKey), func(a, b record) int { return bytes.Compare(a.key, b.key) })
}

func runOf(t testing.TB, records []record) (r run) {
	t.Helper()
	err := writeSegments(&list{rest: records}, func(b []byte) error {
		g, err := openSegment(newLife(), b, nil)
		r = append(r, g)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sameRecord(a, b record) bool {
	return bytes.Equal(a.key, b.key) && a.stamp == b.stamp && bytes.Equal(a.content, b.content)
}

// TestSegments writes runs, and finds each record again, alone and in a merge in which newer ones win.
func TestSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 300, 20000} {
		older, newer := randomRecords(r, n), randomRecords(r, n/2+1)
		newer = append(newer, older[:len(older)/3]...) // with another stamp
		for i := range newer {
			newer[i].stamp++
		}
		slices.SortFunc(newer, func(a, b record) int { return bytes.Compare(a.key, b.key) })
		newer = slices.CompactFunc(newer, func(a, b record) bool { return bytes.Equal(a.key, b.key) })
		runs := []run{runOf(t, newer), runOf(t, older)}
		for i, records := range [][]record{newer, older} {
			for _, want := range records {
				if got, ok := runs[i].find(want.key); !ok || !sameRecord(got, want) {
					t.Fatalf("%x is not found", want.key)
				}
				if got, ok := runs[i].find(append(slices.Clone(want.key), 0)); ok && len(got.key) != len(want.key)+1 {
					t.Fatalf("%x is found, which is not there", got.key)
				}
			}
		}
		want := map[string]record{}
		for _, records := range [][]record{older, newer} {
			for _, rec := range records {
				want[string(rec.key)] = rec
			}
		}
		var last []byte
		for m := newMerge(nil, runs); m.next(); {
			if !sameRecord(m.record, want[string(m.key)]) || bytes.Compare(m.key, last) <= 0 {
				t.Fatalf("%x behind %x: %+v", m.key, last, m.record)
			}
			last = m.key
			delete(want, string(m.key))
		}
		if len(want) > 0 {
			t.Errorf("%d records are not in the merge", len(want))
		}
	}
}

// TestLargeFrame refuses a segment with a frame that is larger than those that are written: each lookup would unpack it.
func TestLargeFrame(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for size, sound := range map[int]bool{seekable.FrameSize: true, seekable.FrameSize + 1: false} {
		content := record{keyFor(manifestOf(t, 1, "").ID), 1, nil}.append(nil)
		content = append(content, make([]byte, size-len(content))...) // the rest has no record
		frame := e.EncodeAll(content, nil)
		table := binary.LittleEndian.AppendUint32(bytes.Clone(frame), 0x184D2A5E) // see package seekable
		for _, n := range []int{8 + 9, len(frame), size, 1} {
			table = binary.LittleEndian.AppendUint32(table, uint32(n))
		}
		table = binary.LittleEndian.AppendUint32(append(table, 0), 0x8F92EAB1)
		if _, err := openSegment("large", table, nil); (err == nil) != sound {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestEntry decodes what was encoded.
func TestEntry(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{ID: id, Files: []File{
		{Object: hashOf("1"), Facts: Facts{Executable: true, Debug: true, Symbols: Functions}, Origins: []Origin{{Trust: CI, Path: "/b"}, {Trust: CI, Path: "/a", Archive: "x.deb"}, {Trust: CI}}},
		{Object: hashOf("2"), Facts: Facts{Debug: true, Symbols: Lines, DwzID: "abcd"}, Origins: []Origin{{Trust: Operator, Path: "/d"}}},
	}}
	e, err := recordOf(m, 7).entry()
	if err != nil || e.Files != 2 || e.Symbols != Lines || fmt.Sprint(e.Names) != "[{false /a x.deb} {false /b } {true /d } {true /a x.deb} {true /b }]" {
		t.Errorf("%+v, %v", e, err)
	}
	if m.IndexName() != e.index || m.DwzFile().mark() != e.dwz || e.Dwz() != m.IndexName().Dwz {
		t.Errorf("%+v, want %+v and %+v", e, m.IndexName(), m.DwzFile())
	}
	dwz := &Manifest{ID: id, Files: []File{{Object: hashOf("3"), Facts: Facts{Debug: true}, Origins: []Origin{{Trust: CI}}}}}
	if got, want := e.Index(entryOf(dwz)), m.IndexName().With(dwz.DwzFile()); got != want || got == e.Index(Entry{}) {
		t.Errorf("the index is %s, want %s", got, want)
	}
}

// FuzzSegment reads damaged segments, and segments of whoever can write the store.
func FuzzSegment(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 50} {
		var content []byte
		for _, rec := range randomRecords(r, n) {
			content = rec.append(content)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var b bytes.Buffer
		if _, err := seekable.Compress(&b, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		for _, bytes := range [][]byte{b.Bytes(), content} {
			g, err := openSegment("fuzz", bytes, nil)
			if err != nil {
				continue
			}
			n := 0
			for w := (&walk{run: run{g}}); w.next(); n++ {
				if _, ok := (run{g}).find(w.key); !ok {
					t.Errorf("%x is not found", w.key)
				}
				_, _ = w.entry() // damage is an error
			}
			if n == 0 {
				t.Error("no records")
			}
		}
	})
}
