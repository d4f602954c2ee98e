package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/server/blob"
)

// TestStrays has files of somebody else in all directories of a store. They stop nothing, count as nothing, stay, and are
// reported once.
func TestStrays(t *testing.T) {
	dir := t.TempDir()
	blobs, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	var reported []string
	day := time.Now()
	s := &Store{Blobs: blobs, Scratch: t.TempDir(), Now: func() time.Time { return day }, OnStray: func(key string) { reported = append(reported, key) }}
	s.OnDamage = func(key string, why error) { t.Errorf("damaged: %s: %v", key, why) }
	var want []string
	for _, at := range []string{"id", "id/gnu", "id/gnu/ab", "src", "src/gnu/ab", "build", "build/y", "cas", "cas/ab", "dead", "dead/ab", "broken", "broken/ab", "index", "profiles", "profiles/id", "profiles/id/ab", "profiles/2026-01-02"} {
		for _, name := range []string{"README", "x"} {
			want = append(want, at+"/"+name)
		}
	}
	want = append(want, "id/manifest.json")
	for _, key := range want {
		name := filepath.Join(dir, key)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if done, err := s.Collect(t.Context(), Collection{IndexVersion: "v9"}); err != nil || done != (Collected{}) {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err := s.Check(t.Context(), Checking{OnDamage: func(l Lost) { t.Errorf("%+v", l) }}); err != nil || done != (Checked{}) {
			t.Errorf("%+v, %v", done, err)
		}
		day = day.AddDate(0, 0, 2)
	}
	for _, key := range want {
		if _, err := os.Stat(filepath.Join(dir, key)); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(reported)
	slices.Sort(want)
	if !slices.Equal(reported, want) || s.Strays() != int64(len(want)) {
		t.Errorf("reported %q,\nwant %q", reported, want)
	}
}

// TestRecognize knows a store that a server opened, with or without files, and a copy of one. It makes nothing.
func TestRecognize(t *testing.T) {
	is := func(dir string, want bool) {
		t.Helper()
		before, _ := os.ReadDir(dir)
		if got, err := Recognize(dir); err != nil || got != want {
			t.Errorf("%s: %v, %v", dir, got, err)
		}
		if after, _ := os.ReadDir(dir); len(after) != len(before) {
			t.Errorf("%s: it has %d entries now", dir, len(after))
		}
	}
	dir := t.TempDir()
	is(dir, false)
	for _, sub := range []string{"src/main", "build/x", "tmp", "cas/ab", "id/1/2/3", "profiles/id"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	is(dir, false)
	opened := t.TempDir()
	blobs, err := blob.OpenDir(opened)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	is(opened, true)
	for _, key := range []string{"cas/aa/" + strings.Repeat("a", 64), "id/gnu/ab/cdef/manifest.json", "profiles/id/aa/" + strings.Repeat("a", 64)} {
		backup := filepath.Join(t.TempDir(), "[1]*")
		if err := os.MkdirAll(filepath.Join(backup, filepath.Dir(key)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(backup, key), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		is(backup, true)
	}
}

// TestFirstOfItsTrust has an agent send a file before CI sends another one, and CI send that of the agent then: the first one
// of CI is served.
func TestFirstOfItsTrust(t *testing.T) {
	at := func(trust Trust, hour int) []Origin {
		return []Origin{{Trust: trust, Via: "push", Path: "/c", Time: time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)}}
	}
	m := &Manifest{Version: manifestVersion}
	for _, f := range []File{{Object: "forged", Origins: at(Agent, 1)}, {Object: "genuine", Origins: at(CI, 2)}, {Object: "forged", Origins: at(CI, 3)}} {
		f.Facts = Facts{Executable: true, Symbols: Functions}
		if _, err := m.add(f); err != nil {
			t.Fatal(err)
		}
	}
	if exe := m.Executable(); exe.Object != "genuine" {
		t.Errorf("%s is served", exe.Object)
	}
}

// TestMessagesHaveNoKeys asks for what is not there: errors say what it is, and not where the store would have it.
func TestMessagesHaveNoKeys(t *testing.T) {
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s := &Store{Blobs: blobs, Scratch: t.TempDir()}
	sum := strings.Repeat("4c", 32)
	_, err = s.Profile(t.Context(), sum)
	if !errors.Is(err, blob.ErrNotExist) || err.Error() != "the store has no profile "+sum {
		t.Errorf("%v", err)
	}
	id, err := buildid.Parse("1234567890")
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Pin(t.Context(), id, true); !errors.Is(err, blob.ErrNotExist) || err.Error() != "the store has no build ID 1234567890" {
		t.Errorf("%v", err)
	}
}

// TestOldCatalogGoes has the catalogue of a version before removed when no server of that version has written it for a day.
func TestOldCatalogGoes(t *testing.T) {
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	for _, key := range []string{"root", "segments/a", "intents/b"} {
		if _, err := blobs.PutIfAbsent(t.Context(), oldCatalog+key, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	day := time.Now().Add(time.Hour)
	s := &Store{Blobs: blobs, Scratch: t.TempDir(), Now: func() time.Time { return day }}
	for _, want := range []int64{0, 3, 0} {
		if done, err := s.Collect(t.Context(), Collection{}); err != nil || done.Leftover != want {
			t.Errorf("%+v, %v, want %d", done, err, want)
		}
		day = day.AddDate(0, 0, 2)
	}
}
