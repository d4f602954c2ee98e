package symbols

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"hallmark/addr"
	"hallmark/server/blob"
	"hallmark/server/store"
	"hallmark/symbol"
)

// damage returns content with a bit flipped, or a block of a disk zeroed.
func damage(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	if r.IntN(2) == 0 {
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	}
	from := r.IntN(len(b)) / 4096 * 4096
	clear(b[from:min(from+4096, len(b))])
	return b
}

// asked returns what a server answers for addresses, asking again where an index was found damaged, and how often it
// was.
func asked(t *testing.T, indexes *Indexes, m *store.Manifest, code []addr.Virt) (frames [][]symbol.Frame, found int) {
	t.Helper()
	for range 3 {
		x, err := indexes.Get(t.Context(), t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		frames = nil
		cursor := x.Cursor()
		for _, v := range code {
			var f []symbol.Frame
			if f, _, err = cursor.Frames(v); err != nil {
				break
			}
			f = append([]symbol.Frame{}, f...)
			for i := range f {
				f[i].Linkage, f[i].File, f[i].Symbol = string([]byte(f[i].Linkage)), string([]byte(f[i].File)), string([]byte(f[i].Symbol))
			}
			frames = append(frames, f)
		}
		x.Close()
		if err == nil {
			return frames, found
		}
		if found++; !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	}
	t.Fatal("the index is damaged again and again")
	return nil, 0
}

// TestDamagedIndexes flips bits and zeroes blocks of the local copies of indexes, and of those in the store, which are
// read as a whole and in parts. All answers are those of a sound index.
func TestDamagedIndexes(t *testing.T) {
	c, m, open, all := large(t)
	var code []addr.Virt
	for i := 0; i < len(all); i += len(all) / 500 {
		code = append(code, all[i])
	}
	sound := open(0)
	want, _ := asked(t, sound, m, code)
	local := sound.files().Name(m.ID, localName(m.IndexName().With(store.DwzFile{})))
	copied, err := os.ReadFile(local)
	if err != nil {
		t.Fatal(err)
	}
	key := store.IndexKey(m.ID, IndexVersion, filepath.Base(localName(m.IndexName().With(store.DwzFile{}))))
	stored, info, err := blob.Read(t.Context(), c.Store, key, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	check := func(what string, indexes *Indexes) {
		t.Helper()
		seen := 0
		indexes.OnDamage = func() { seen++ }
		got, found := asked(t, indexes, m, code)
		for i := range got {
			if !(len(got[i]) == 0 && len(want[i]) == 0) && !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("%s: %v is %+v, and not %+v", what, code[i], got[i], want[i])
			}
		}
		if seen < found || seen > 1 {
			t.Errorf("%s: damage was found %d times, and reported %d times", what, found, seen)
		}
	}
	for range 40 {
		indexes := open(0)
		indexes.Dir = sound.Dir
		if err := os.WriteFile(local, damage(r, copied), 0o600); err != nil {
			t.Fatal(err)
		}
		check("the local copy", indexes)
		if err := os.WriteFile(local, copied, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		if info, err = c.Head(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		broken := damage(r, stored)
		if _, err := blob.Replace(context.Background(), c.Store, key, info.Tag, bytes.NewReader(broken), int64(len(broken))); err != nil {
			t.Fatal(err)
		}
		check("the store", open(int64(i%2)))
	}
}

// TestDamageBeforeItIsStored is for an index that was damaged before the store compressed it: its blocks say so.
func TestDamageBeforeItIsStored(t *testing.T) {
	_, m, open, code := large(t)
	want, _ := asked(t, open(0), m, code[:50])
	indexes := open(0)
	key := store.IndexKey(m.ID, IndexVersion, localName(m.IndexName().With(store.DwzFile{})))
	o, err := indexes.Store.OpenDerived(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, o.Size())
	if _, err := o.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	clear(b[len(b)/4 : len(b)-len(b)/4])
	o.Close()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	for _, whole := range []int64{0, 1} {
		if err := errors.Join(indexes.Store.DropDerived(t.Context(), key), indexes.Store.PutDerived(t.Context(), key, f)); err != nil {
			t.Fatal(err)
		}
		got, _ := asked(t, open(whole), m, code[:50])
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with a limit of %d: other answers", whole)
		}
	}
}
