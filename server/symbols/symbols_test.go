package symbols

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/server/blob"
	"hallmark/server/indexer"
	"hallmark/server/store"
	"hallmark/symbol"
)

func TestMain(m *testing.M) {
	indexer.RunIfChild()
	os.Exit(testenv.Isolated(m).Run())
}

// counted is a store that is read by requests, as a bucket is, and counts those of indexes.
type counted struct {
	blob.Store
	requests, bytes atomic.Int64
	broken          atomic.Bool
}

func (c *counted) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	r, info, err := c.Store.Get(ctx, key, off, n)
	if err != nil || !strings.HasPrefix(key, "index/") {
		return r, info, err
	}
	if c.broken.Load() {
		r.Close()
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, blob.ErrUnavailable)
	}
	c.requests.Add(1)
	if n < 0 {
		n = info.Size
	}
	c.bytes.Add(n)
	return r, info, nil
}

// large returns a store with the program of this test in it, which has many functions, a function
// that returns the indexes of a new server over it, and its text's virtual addresses.
func large(t *testing.T) (c *counted, m *store.Manifest, open func(whole int64) *Indexes, code []addr.Virt) {
	t.Helper()
	dir, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c = &counted{Store: dir}
	// Each server has its own store, which would have what another one brought in its memory.
	newStore := func() *store.Store {
		s := &store.Store{Blobs: c}
		t.Cleanup(func() { s.Close() })
		return s
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := newStore()
	spool, err := s.Spool(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	added, err := s.Add(t.Context(), spool, store.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	open = func(whole int64) *Indexes {
		return &Indexes{Store: newStore(), Dir: t.TempDir(), Whole: whole, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	}
	x, pieces := get(t, open(0), added.Manifest), 0
	for piece := range x.index.Pieces() {
		if pieces++; pieces%13 == 0 {
			code = append(code, piece.Virt, piece.Virt+addr.Virt(piece.Size))
		}
	}
	if x.part != nil || len(code) < 10000 {
		t.Fatalf("%d addresses in an index that is small", len(code))
	}
	c.requests.Store(0)
	c.bytes.Store(0)
	return c, added.Manifest, open, code
}

func get(t *testing.T, indexes *Indexes, m *store.Manifest) *Index {
	t.Helper()
	x, err := indexes.Get(t.Context(), t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// answer is a copy of what an index answers for an address.
func answer(t *testing.T, x *Index, cursor *Cursor, v addr.Virt) (frames []symbol.Frame, source symbol.Source, why string) {
	t.Helper()
	frames, source, err := cursor.Frames(v)
	if err == nil && len(frames) == 0 {
		why = x.WhyNot(true, uint64(v)).String()
	}
	if err != nil {
		t.Error(err)
	}
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i].Linkage, frames[i].File = strings.Clone(frames[i].Linkage), strings.Clone(frames[i].File)
	}
	return frames, source, why
}

// TestPartial compares the answers from an index that is brought in parts with those from one that is
// whole: while there are few parts, and when the whole takes their place, of which others make use at
// the same time.
func TestPartial(t *testing.T) {
	c, m, open, code := large(t)
	whole, parts := get(t, open(0), m), get(t, open(1), m)
	if whole.part != nil || parts.part == nil {
		t.Fatal("what is large is not what the limit says")
	}
	size := c.bytes.Load()
	c.requests.Store(0)
	c.bytes.Store(0)
	ask := func(addresses []addr.Virt) {
		a, b := whole.Cursor(), parts.Cursor()
		for _, v := range addresses {
			frames, source, why := answer(t, whole, a, v)
			frames2, source2, why2 := answer(t, parts, b, v)
			if source != source2 || why != why2 || !reflect.DeepEqual(frames, frames2) {
				t.Errorf("%#x: %v %v %q, want %v %v %q", uint64(v), frames2, source2, why2, frames, source, why)
				return
			}
		}
	}
	ask(code[len(code)/2:][:3])
	if n, b := c.requests.Load(), c.bytes.Load(); n == 0 || n > 10 || b > size/2 {
		t.Errorf("3 addresses take %d requests and %d bytes of %d", n, b, size)
	}
	parts = get(t, open(1), m) // of which three addresses may have brought all chunks
	parts.part.left = 0
	c.requests.Store(0)
	var running sync.WaitGroup
	rng := testenv.Rand(t)
	for range 4 {
		addresses := slices.Clone(code)
		rng.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
		running.Go(func() { ask(addresses) })
	}
	running.Wait()
	ask(code)
	if !parts.isWhole() {
		t.Error("all addresses have left the index in parts")
	}
	if n := c.requests.Load(); n > 30 {
		t.Errorf("all addresses take %d requests", n)
	}
}

// TestPartialBroken has the store fail: that is an error, and whoever opens the index once the store is there again
// gets all answers.
func TestPartialBroken(t *testing.T) {
	c, m, open, code := large(t)
	indexes := open(1)
	x := get(t, indexes, m)
	c.broken.Store(true)
	if _, _, ok := indexes.Here(m.ID, m.IndexName().With(store.DwzFile{})); ok {
		t.Error("an index in parts is used where nothing may be brought")
	}
	cursor := x.Cursor()
	var err error
	for _, v := range code {
		if _, _, err = cursor.Frames(v); err != nil {
			break
		}
	}
	if !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("of a store that is not there: %v", err)
	}
	c.broken.Store(false)
	y := get(t, indexes, m)
	for _, v := range code {
		if _, _, err := y.Cursor().Frames(v); err != nil {
			t.Fatalf("once the store is there again: %v", err)
		}
	}
}

// TestManyPartial wants few indexes in parts to be open that nobody asks, and those to stay that somebody asks.
func TestManyPartial(t *testing.T) {
	c, m, open, code := large(t)
	indexes := open(1)
	asked := get(t, indexes, m)
	for i := range 2 * maxPartial {
		o, err := indexes.stored(t.Context(), m, "", store.IndexKey(m.ID, IndexVersion, localName(m.IndexName().With(store.DwzFile{}))))
		if err != nil {
			t.Fatal(err)
		}
		if err := indexes.openPartial(m, fmt.Sprint(i), "key", o, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(indexes.open); n != maxPartial {
		t.Errorf("%d are open", n)
	}
	if indexes.open[localName(m.IndexName().With(store.DwzFile{}))] != asked {
		t.Error("an index was closed that somebody asks")
	}
	if frames, _, _ := answer(t, asked, asked.Cursor(), code[0]); len(frames) == 0 {
		t.Error("no name")
	}
	if c.requests.Load() == 0 {
		t.Error("nothing was brought")
	}
}

// TestPartialDamaged wants what is no index to be refused in parts as well.
func TestPartialDamaged(t *testing.T) {
	c, m, open, _ := large(t)
	indexes := open(1)
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(3*chunkSize + 1); err != nil {
		t.Fatal(err)
	}
	const key = "index/damaged"
	if err := indexes.Store.PutDerived(t.Context(), key, f); err != nil {
		t.Fatal(err)
	}
	o, err := indexes.Store.OpenDerived(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := indexes.openPartial(m, "damaged", "key", o, nil); !errors.Is(err, symbol.ErrNotIndex) {
		t.Errorf("error %v", err)
	}
	if len(indexes.open) != 0 || c.requests.Load() == 0 {
		t.Errorf("%d are open, %d requests", len(indexes.open), c.requests.Load())
	}
}

// TestPartialWhyNot asks why nothing is known before anything was brought.
func TestPartialWhyNot(t *testing.T) {
	_, m, open, code := large(t)
	whole, parts := get(t, open(0), m), get(t, open(1), m)
	asked := 0
	for _, v := range append(code, 1, code[len(code)-1]+1<<40) {
		if frames, _, err := whole.Cursor().Frames(v); len(frames) > 0 || err != nil {
			continue
		}
		asked++
		if got, want := parts.WhyNot(true, uint64(v)), whole.WhyNot(true, uint64(v)); got != want {
			t.Fatalf("%#x: %v, want %v", uint64(v), got, want)
		}
	}
	if asked < 10 {
		t.Errorf("%d addresses without a name", asked)
	}
}

// TestPartialAgain asks a cursor again that could not answer: it does not answer for the address before.
func TestPartialAgain(t *testing.T) {
	c, m, open, code := large(t)
	x := get(t, open(1), m)
	cursor := x.Cursor()
	if frames, _, err := cursor.Frames(code[0]); len(frames) == 0 || err != nil {
		t.Fatal(frames, err)
	}
	c.broken.Store(true)
	failed := 0
	for _, v := range code {
		if _, _, err := cursor.Frames(v); err == nil {
			continue
		}
		if failed++; failed > 100 {
			break
		}
		if frames, _, err := cursor.Frames(v); err == nil || len(frames) > 0 {
			t.Fatalf("%#x: %v, %v", uint64(v), frames, err)
		}
	}
	if failed == 0 {
		t.Error("everything is there")
	}
}

// TestOpenedTwice has an index opened by two who did not see each other: the first one is not left open for ever.
func TestOpenedTwice(t *testing.T) {
	_, m, open, code := large(t)
	for _, whole := range []int64{0, 1} {
		indexes := open(whole)
		first := get(t, indexes, m)
		name := localName(m.IndexName().With(store.DwzFile{}))
		if err := indexes.prepare(t.Context(), m, "", name); err != nil {
			t.Fatal(err)
		}
		if second := get(t, indexes, m); second == first || !first.gone {
			t.Errorf("whole %d: the first one is not closed with its last user", whole)
		}
		if frames, _, _ := answer(t, first, first.Cursor(), code[0]); len(frames) == 0 {
			t.Error("its user has no names any more")
		}
	}
}
