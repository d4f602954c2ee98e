// Package blobtest tests implementations of blob.Store: one suite for all.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"hallmark/server/blob"
)

// Run tests the store that open returns, which is empty.
func Run(t *testing.T, open func(*testing.T) blob.Store) {
	for name, test := range map[string]func(*testing.T, blob.Store){
		"absent": absent, "ranges": ranges, "put once": putOnce, "sizes": sizes, "swap": swap,
		"swap races": swapRaces, "put races": putRaces, "list": list, "delete": remove, "keys": keys,
		"large": large, "readers": readers, "delete if match": removeIfMatch,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func put(t *testing.T, s blob.Store, key, content string) blob.Info {
	t.Helper()
	info, err := s.PutIfAbsent(t.Context(), key, strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func get(t *testing.T, s blob.Store, key string, off, n int64) (string, error) {
	t.Helper()
	r, _, err := s.Get(t.Context(), key, off, n)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func absent(t *testing.T, s blob.Store) {
	ctx := t.Context()
	if _, _, err := s.Get(ctx, "a/b", 0, -1); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Head(ctx, "a/b"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("Head: %v", err)
	}
	if _, err := s.PutIfMatch(ctx, "a/b", "tag", nil); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("PutIfMatch: %v", err)
	}
	if err := s.Delete(ctx, "a/b"); err != nil {
		t.Errorf("Delete: %v", err)
	}
	put(t, s, "a/b/c", "x")
	if _, err := s.Head(ctx, "a/b"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("Head of a part of a key: %v", err)
	}
}

func ranges(t *testing.T, s blob.Store) {
	put(t, s, "k", "0123456789")
	put(t, s, "empty", "")
	for _, tt := range []struct {
		key    string
		off, n int64
		want   string
	}{
		{"k", 0, -1, "0123456789"}, {"k", 0, 4, "0123"}, {"k", 3, 4, "3456"}, {"k", 3, -1, "3456789"},
		{"k", 9, 1, "9"}, {"k", 9, 100, "9"}, {"k", 0, 0, ""}, {"empty", 0, -1, ""}, {"empty", 0, 0, ""},
	} {
		if got, err := get(t, s, tt.key, tt.off, tt.n); err != nil || got != tt.want {
			t.Errorf("%s from %d, %d bytes: %q, %v", tt.key, tt.off, tt.n, got, err)
		}
	}
	for _, off := range []int64{-1, 10, 11} {
		if got, err := get(t, s, "k", off, 1); err == nil {
			t.Errorf("byte %d: %q", off, got)
		}
	}
	_, info, err := s.Get(t.Context(), "k", 3, 2)
	if err != nil || info.Size != 10 {
		t.Errorf("a part of 10 bytes: %+v, %v", info, err)
	}
}

func putOnce(t *testing.T, s blob.Store) {
	first := put(t, s, "k", "first")
	if _, err := s.PutIfAbsent(t.Context(), "k", strings.NewReader("second"), 6); !errors.Is(err, blob.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	if got, err := get(t, s, "k", 0, -1); err != nil || got != "first" {
		t.Errorf("%q, %v", got, err)
	}
	if head, err := s.Head(t.Context(), "k"); err != nil || head.Tag != first.Tag || head.Size != 5 || head.Tag == "" {
		t.Errorf("%+v after %+v: %v", head, first, err)
	}
}

func sizes(t *testing.T, s blob.Store) {
	for _, n := range []int64{3, 7} { // the reader has 5 bytes
		if _, err := s.PutIfAbsent(t.Context(), "k", strings.NewReader("12345"), n); err == nil {
			t.Errorf("5 bytes were taken for %d", n)
		}
	}
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader("123"), &failing{broken})
	if _, err := s.PutIfAbsent(t.Context(), "k", r, 5); err == nil {
		t.Error("a reader that fails was taken")
	}
	if _, err := s.Head(t.Context(), "k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("something was stored: %v", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func swap(t *testing.T, s blob.Store) {
	ctx := t.Context()
	one := put(t, s, "k", "one")
	two, err := s.PutIfMatch(ctx, "k", one.Tag, []byte("two"))
	if err != nil || two.Tag == one.Tag {
		t.Fatalf("%+v, %v", two, err)
	}
	if _, err := s.PutIfMatch(ctx, "k", one.Tag, []byte("lost")); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("with the tag of what was before: %v", err)
	}
	if head, err := s.Head(ctx, "k"); err != nil || head.Tag != two.Tag {
		t.Errorf("%+v, want %+v: %v", head, two, err)
	}
	b, info, err := blob.Read(ctx, s, "k", 10)
	if err != nil || string(b) != "two" || info.Tag != two.Tag {
		t.Errorf("%q %+v, %v", b, info, err)
	}
	replaceLarge(t, s)
	if _, _, err := blob.Read(ctx, s, "k", 2); err == nil {
		t.Error("3 bytes were read where 2 are allowed")
	}
}

// replaceLarge replaces an object of more bytes than PutIfMatch takes.
func replaceLarge(t *testing.T, s blob.Store) {
	large := func(c string) string { return strings.Repeat(c, blob.MaxSwap+1000) }
	one := put(t, s, "large", large("1"))
	two, err := blob.Replace(t.Context(), s, "large", one.Tag, strings.NewReader(large("2")), int64(blob.MaxSwap)+1000)
	if err != nil || two.Tag == one.Tag {
		t.Fatalf("%+v, %v", two, err)
	}
	if _, err := blob.Replace(t.Context(), s, "large", one.Tag, strings.NewReader("lost"), 4); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("with the tag of what was before: %v", err)
	}
	if got, err := get(t, s, "large", 0, -1); err != nil || got != large("2") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := blob.Replace(t.Context(), s, "none", one.Tag, strings.NewReader("x"), 1); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("an object that is not there: %v", err)
	}
}

// swapRaces has several goroutines count in one object.
func swapRaces(t *testing.T, s blob.Store) {
	put(t, s, "k", "0")
	const workers, each = 4, 8
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if err := increment(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got, err := get(t, s, "k", 0, -1); err != nil || got != fmt.Sprint(workers*each) {
		t.Errorf("%q, %v", got, err)
	}
}

func increment(ctx context.Context, s blob.Store) error {
	for {
		b, info, err := blob.Read(ctx, s, "k", 100)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscan(string(b), &n); err != nil {
			return err
		}
		_, err = s.PutIfMatch(ctx, "k", info.Tag, fmt.Append(nil, n+1))
		if err == nil || !errors.Is(err, blob.ErrChanged) {
			return err
		}
	}
}

// putRaces has one of several goroutines win.
func putRaces(t *testing.T, s blob.Store) {
	var wg sync.WaitGroup
	won := make(chan string, 8)
	for i := range 8 {
		wg.Go(func() {
			content := fmt.Sprint("content of ", i)
			_, err := s.PutIfAbsent(t.Context(), "k", strings.NewReader(content), int64(len(content)))
			switch {
			case err == nil:
				won <- content
			case !errors.Is(err, blob.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d won", len(won))
	}
	if got, err := get(t, s, "k", 0, -1); err != nil || got != <-won {
		t.Errorf("%q, %v", got, err)
	}
}

func list(t *testing.T, s blob.Store) {
	for _, key := range []string{"b/2", "a/b-c", "ab", "a-b/c", "b/1"} {
		put(t, s, key, key)
	}
	want := map[string]string{"": "a-b/c a/b-c ab b/1 b/2", "b/": "b/1 b/2", "a/": "a/b-c", "a/b": "a/b-c", "b/1": "b/1", "a": "a-b/c a/b-c ab", "none": ""}
	for prefix, keys := range want {
		var got []string
		for info, err := range s.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if info.Size != int64(len(info.Key)) || info.Modified.IsZero() {
				t.Errorf("%+v", info)
			}
			got = append(got, info.Key)
		}
		if strings.Join(got, " ") != keys {
			t.Errorf("%q: %q, want %q", prefix, got, keys)
		}
	}
	for range s.List(t.Context(), "") {
		break // an early end leaves nothing behind
	}
}

func remove(t *testing.T, s blob.Store) {
	put(t, s, "d/k", "x")
	if err := s.Delete(t.Context(), "d/k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "d/k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%v", err)
	}
	put(t, s, "d/k", "again")
}

// removeIfMatch is for stores that can do that.
func removeIfMatch(t *testing.T, s blob.Store) {
	d, ok := s.(blob.ConditionalDeleter)
	if !ok {
		t.Skip("the store has no such condition")
	}
	one := put(t, s, "k", "one")
	two, err := s.PutIfMatch(t.Context(), "k", one.Tag, []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.DeleteIfMatch(t.Context(), "k", one.Tag); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("with the tag of what was before: %v", err)
	}
	if got, err := get(t, s, "k", 0, -1); err != nil || got != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if err := d.DeleteIfMatch(t.Context(), "k", two.Tag); err != nil {
		t.Error(err)
	}
	if err := d.DeleteIfMatch(t.Context(), "k", two.Tag); !errors.Is(err, blob.ErrChanged) {
		t.Errorf("an object that is gone: %v", err)
	}
	if _, err := s.Head(t.Context(), "k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func keys(t *testing.T, s blob.Store) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.hidden", "a b", "a\x00", "a\nb", "ä", strings.Repeat("a/", 600) + "a"} {
		if _, err := s.PutIfAbsent(t.Context(), key, strings.NewReader(""), 0); !errors.Is(err, blob.ErrKey) {
			t.Errorf("PutIfAbsent of %.20q: %v", key, err)
		}
		if _, _, err := s.Get(t.Context(), key, 0, -1); !errors.Is(err, blob.ErrKey) {
			t.Errorf("Get of %.20q: %v", key, err)
		}
		if err := s.Delete(t.Context(), key); !errors.Is(err, blob.ErrKey) {
			t.Errorf("Delete of %.20q: %v", key, err)
		}
	}
}

// large stores more than services take in one piece, and wants conditions to hold for it too.
func large(t *testing.T, s blob.Store) {
	content := make([]byte, 20<<20+12345)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(content)
	for i := range 2 {
		_, err := s.PutIfAbsent(t.Context(), "big", bytes.NewReader(content), int64(len(content)))
		if i == 0 && err != nil || i == 1 && !errors.Is(err, blob.ErrExist) {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	r, _, err := blob.Open(t.Context(), s, "big")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, off := range []int64{0, 5 << 20, int64(len(content)) - 100} {
		buf := make([]byte, 100)
		if _, err := r.ReadAt(buf, off); err != nil && err != io.EOF || !bytes.Equal(buf, content[off:off+100]) {
			t.Errorf("at %d: %v", off, err)
		}
	}
}

// readers wants one that is open to see one content.
func readers(t *testing.T, s blob.Store) {
	info := put(t, s, "k", "before")
	r, _, err := blob.Open(t.Context(), s, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.PutIfMatch(t.Context(), "k", info.Tag, []byte("behind")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 6)
	if _, err := r.ReadAt(buf, 0); (err == nil || err == io.EOF) && string(buf) != "before" {
		t.Errorf("%q after %q was replaced", buf, "before")
	}
	if n, err := r.ReadAt(buf, 6); n != 0 || err == nil {
		t.Errorf("behind the end: %d, %v", n, err)
	}
}
