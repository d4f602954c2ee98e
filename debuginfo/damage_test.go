package debuginfo

import (
	"bytes"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"hallmark/addr"
	"hallmark/internal/cachedir"
	"hallmark/symbol"
)

// TestDamagedKeptIndex flips bits and zeroes blocks of a kept index. All answers are those of a sound one: the file
// itself gives them. The index is reported once, goes, and is made anew.
func TestDamagedKeptIndex(t *testing.T) {
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	s, why := l.Open(t.Context(), p.id, p.name)
	if s == nil {
		t.Fatal(why)
	}
	x, ok := s.(*symbol.Index)
	if !ok {
		t.Fatal("no index was made")
	}
	var addresses []addr.Virt
	var want [][]symbol.Frame
	for piece := range x.Pieces() {
		frames, _ := x.AppendFrames(nil, piece.Virt)
		for i := range frames {
			frames[i].Linkage, frames[i].File = string([]byte(frames[i].Linkage)), string([]byte(frames[i].File))
		}
		addresses, want = append(addresses, piece.Virt), append(want, frames)
	}
	whole := bytes.Clone(x.Bytes())
	s.Close()
	reports := 0
	cachedir.OnDamage(func(string, error) { reports++ })
	defer cachedir.OnDamage(nil)
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 60 {
		path := pathOfIndex(t, l)
		damaged := bytes.Clone(whole)
		if r.IntN(2) == 0 {
			damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
		} else {
			from := r.IntN(len(damaged)) / 512 * 512
			clear(damaged[from:min(from+512, len(damaged))])
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		before := reports
		for range 2 {
			s, why := l.Open(t.Context(), p.id, p.name)
			if s == nil {
				t.Fatal(why)
			}
			for i, v := range addresses {
				if frames, _ := s.AppendFrames(nil, v); !reflect.DeepEqual(frames, want[i]) {
					t.Fatalf("%v is %+v, and not %+v", v, frames, want[i])
				}
			}
			s.Close()
		}
		if reports > before+1 {
			t.Errorf("%d reports", reports-before)
		}
		found += reports - before
		if now, err := os.ReadFile(pathOfIndex(t, l)); err != nil || reports > before && !bytes.Equal(now, whole) {
			t.Errorf("it was not made anew: %v", err)
		}
	}
	if found < 30 {
		t.Errorf("only %d of 60 damages were found", found)
	}
}

// TestDamagedIndexStays is for a directory that nothing can be removed from: the file answers, and nobody asks the index
// again and again.
func TestDamagedIndexStays(t *testing.T) {
	p := build(t)
	l, dir := library(t, always)
	p.install(t, inTree(dir, p.id)+".debug")
	prepare(t, l, p)
	path := pathOfIndex(t, l)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	clear(b[512:])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.Indexes.Dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(l.Indexes.Dir, 0o700)
	for range 2 {
		s, why := l.Open(t.Context(), p.id, p.name)
		if s == nil {
			t.Fatal(why)
		}
		results := s.LookupOffsets([]addr.Offset{0x1000, 0x1010})
		s.Close()
		if len(results) != 2 {
			t.Error(results)
		}
	}
}
