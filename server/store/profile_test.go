package store

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/server/blob"
)

// addProfile keeps a profile with these bytes.
func addProfile(t *testing.T, s *Store, text string) (*Profile, bool) {
	t.Helper()
	spool, err := s.Spool(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	p, isNew, err := s.AddProfile(t.Context(), spool, Profile{Role: Agent, Kind: "test", Title: text})
	if err != nil {
		t.Fatal(err)
	}
	return p, isNew
}

// contentOf returns the bytes of a profile, "" where there is none.
func contentOf(t *testing.T, s *Store, id string) string {
	t.Helper()
	p, err := s.Profile(t.Context(), id)
	if errors.Is(err, blob.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.OpenProfile(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b, err := io.ReadAll(o.Stream())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestProfileRetention keeps profiles by age, size and number, and removes the bytes of all others.
func TestProfileRetention(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	var ids []string
	for _, text := range []string{"one", "two", "three", "four"} {
		p, isNew := addProfile(t, s, text)
		if !isNew || contentOf(t, s, p.ID) != text {
			t.Fatalf("%+v", p)
		}
		ids = append(ids, p.ID)
		m.pass(24 * time.Hour)
	}
	if p, isNew := addProfile(t, s, "one"); isNew || p.ID != ids[0] || p.Again.IsZero() { // which is a use
		t.Errorf("again: %+v", p)
	}
	collect := func(r ProfileRetention, dry bool) Collected {
		t.Helper()
		done, err := s.Collect(t.Context(), Collection{Retention: Retention{Profiles: r}, DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	left := func() (out []string) {
		for _, id := range ids {
			out = append(out, contentOf(t, s, id))
		}
		return out
	}
	if done := collect(ProfileRetention{}, false); done.Profiles != 0 || strings.Join(left(), " ") != "one two three four" {
		t.Errorf("without bounds %d go: %v", done.Profiles, left())
	}
	if done := collect(ProfileRetention{Age: 60 * time.Hour}, true); done.Profiles != 1 || strings.Join(left(), " ") != "one two three four" {
		t.Errorf("a dry run: %d, %v", done.Profiles, left())
	}
	if done := collect(ProfileRetention{Age: 60 * time.Hour}, false); done.Profiles != 1 || strings.Join(left(), " ") != "one  three four" {
		t.Errorf("by age: %d, %v", done.Profiles, left())
	}
	if done := collect(ProfileRetention{Count: 2}, false); done.Profiles != 1 || strings.Join(left(), " ") != "one   four" {
		t.Errorf("by number: %d, %v", done.Profiles, left())
	}
	p, _ := s.Profile(t.Context(), ids[0])
	if done := collect(ProfileRetention{Size: p.Stored}, false); done.Profiles != 1 || strings.Join(left(), " ") != "one   " {
		t.Errorf("by size: %d, %v", done.Profiles, left())
	}
	if keys := m.keys("profiles/"); len(keys) != 2 {
		t.Errorf("of one profile the store has %q", keys)
	}
	if all, err := s.Profiles(t.Context(), nil); err != nil || len(all) != 1 {
		t.Error(all, err)
	}
}

// TestProfileIsNotLost has a profile come again at each step of its removal.
func TestProfileIsNotLost(t *testing.T) {
	for _, step := range []string{"swap profiles/id/", "delete profiles/"} {
		m := newMemory(t)
		s := m.server(t)
		p, _ := addProfile(t, s, "one")
		m.pass(25 * time.Hour)
		op, prefix, _ := strings.Cut(step, " ")
		came := false
		m.on(op, prefix, func() {
			came = true
			addProfile(t, s, "one")
		})
		if _, err := s.RemoveProfile(t.Context(), p); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		if !came {
			t.Errorf("%s: there is no such step", step)
		}
		if got := contentOf(t, s, p.ID); got != "one" {
			t.Errorf("%s: the profile that came has %q", step, got)
		}
	}
}

// TestProfileComesTwiceAtOnce wants one of two uploads to win, and nothing to be left of the other.
func TestProfileComesTwiceAtOnce(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	var all sync.WaitGroup
	results := make(chan bool, 20)
	for range cap(results) {
		all.Go(func() {
			_, isNew := addProfile(t, s, "one")
			results <- isNew
		})
	}
	all.Wait()
	close(results)
	news := 0
	for isNew := range results {
		if isNew {
			news++
		}
	}
	if keys := m.keys("profiles/"); news != 1 || len(keys) != 2 {
		t.Errorf("%d uploads are new, the store has %q", news, keys)
	}
}

// TestProfileLeftovers removes bytes that no record names, after a day.
func TestProfileLeftovers(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	m.fail = 1 // the bytes are written, and the record is not
	spool, err := s.Spool(t.Context(), strings.NewReader("one"))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if _, _, err := s.AddProfile(t.Context(), spool, Profile{}); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	m.fail = -1
	p, _ := addProfile(t, s, "two")
	for _, want := range []int{3, 2} {
		if _, err := s.Collect(t.Context(), Collection{}); err != nil {
			t.Fatal(err)
		}
		if keys := m.keys("profiles/"); len(keys) != want {
			t.Errorf("%q, want %d", keys, want)
		}
		m.pass(25 * time.Hour)
	}
	if contentOf(t, s, p.ID) != "two" {
		t.Error("a profile is lost")
	}
	// Where a record is damaged nothing is removed by what it seems not to name.
	m.mu.Lock()
	m.set(profileKey(p.ID), []byte("{"))
	m.mu.Unlock()
	m.pass(25 * time.Hour)
	if _, err := s.Collect(t.Context(), Collection{}); err != nil {
		t.Fatal(err)
	}
	if keys := m.keys("profiles/"); len(keys) != 2 {
		t.Errorf("beside a damaged record: %q", keys)
	}
}

// TestProfileInABucket removes a profile from a store that cannot remove on condition, as S3 cannot: its record stays,
// and the profile can come again.
func TestProfileInABucket(t *testing.T) {
	m := newMemory(t)
	s := m.server(t)
	s.Blobs = struct{ blob.Store }{m}
	p, _ := addProfile(t, s, "one")
	m.pass(time.Hour)
	if ok, err := s.RemoveProfile(t.Context(), p); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.RemoveProfile(t.Context(), p); ok || err != nil {
		t.Errorf("one that is gone is removed: %v", err)
	}
	if keys := m.keys("profiles/"); len(keys) != 1 || contentOf(t, s, p.ID) != "" {
		t.Errorf("%q", keys)
	}
	if done, err := s.Collect(t.Context(), Collection{Retention: Retention{Profiles: ProfileRetention{Count: 1}}}); err != nil || done.Profiles != 0 {
		t.Errorf("%+v %v", done, err)
	}
	again, isNew := addProfile(t, s, "one")
	if !isNew || again.Object == p.Object || contentOf(t, s, p.ID) != "one" {
		t.Errorf("%+v", again)
	}
	if all, err := s.Profiles(t.Context(), nil); err != nil || all[p.ID].Object == "" {
		t.Errorf("%v %v", all, err)
	}
}
