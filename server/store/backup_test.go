package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// backup copies a store key by key, in the order of prefixes, and lets others change the store before each.
func backup(t *testing.T, from *memory, prefixes []string, change func()) *memory {
	t.Helper()
	to := newMemory(t)
	to.now = from.now
	for _, prefix := range prefixes {
		from.mu.Lock()
		var keys []string
		for key := range from.objects {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		from.mu.Unlock()
		slices.Sort(keys)
		for _, key := range keys {
			change()
			from.mu.Lock()
			if k, ok := from.objects[key]; ok {
				to.objects[key] = k
			}
			from.mu.Unlock()
		}
	}
	to.now = from.now
	return to
}

// restored checks a copy as a store, and returns how many of its files are lost.
func restored(t *testing.T, m *memory) int64 {
	t.Helper()
	s := m.server(t)
	lost := map[string]bool{}
	done, err := s.Check(t.Context(), Checking{OnDamage: func(l Lost) {
		if lost[l.Key] = true; !strings.Contains(l.Why, "it is missing") {
			t.Errorf("%+v", l)
		}
	}})
	if err != nil || done.Broken != int64(len(lost)) {
		t.Fatalf("%+v, %d reported, %v", done, len(lost), err)
	}
	return done.Broken
}

// TestBackupWhileServersRun copies a store in which files come and go, for almost a day. In the documented order, lists
// before bytes, no copy lacks the bytes of a file; in the other one copies do.
func TestBackupWhileServersRun(t *testing.T) {
	lists, bytes := []string{"id/", "src/", "build/", "profiles/id/"}, []string{"cas/", "profiles/2"}
	lost := map[string]int64{}
	for seed := range uint64(30) {
		for name, order := range map[string][]string{"lists first": slices.Concat(lists, bytes), "bytes first": slices.Concat(bytes, lists)} {
			r := rand.New(rand.NewPCG(seed, 1))
			m := newMemory(t)
			s := m.server(t)
			n := 0
			fresh := func() {
				n++
				id := append([]byte(fmt.Sprintf("%018d", r.IntN(8))), 1, 2)
				a := mustAdd(t, s, program(id, fmt.Sprint("code ", r.IntN(30))), CI)
				if r.IntN(2) == 0 {
					addSource(t, s, a.Manifest, fmt.Sprint("/src/", r.IntN(5)), fmt.Sprint("text ", r.IntN(20)))
				}
			}
			for range 10 {
				fresh()
			}
			begun := m.Now()
			copied := backup(t, m, order, func() {
				if m.Now().Sub(begun) > 20*time.Hour {
					return
				}
				switch r.IntN(4) {
				case 0:
					fresh()
				case 1:
					m.pass(time.Duration(r.IntN(90)) * time.Minute)
					collect(t, s, Collection{Retention: Retention{Size: 500}})
				}
			})
			lost[name] += restored(t, copied)
		}
	}
	if lost["lists first"] != 0 || lost["bytes first"] == 0 {
		t.Errorf("files lost: %v", lost)
	}
}
