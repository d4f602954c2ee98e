package store

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hallmark/buildid"
	"hallmark/internal/elftest"
	"hallmark/internal/testenv"
	"hallmark/server/blob"
)

func newStore(t *testing.T, dir string) *Store {
	t.Helper()
	blobs, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	s := &Store{Blobs: blobs, Scratch: t.TempDir()}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t *testing.T, s *Store, b []byte, c Claim) (Added, error) {
	t.Helper()
	spool, err := s.Spool(t.Context(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	return s.Add(t.Context(), spool, c)
}

func mustAdd(t *testing.T, s *Store, b []byte, trust Trust) Added {
	t.Helper()
	a, err := add(t, s, b, Claim{Origin: Origin{Trust: trust, Via: "push"}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var someID = []byte("0123456789abcdefghij")

// program returns an executable with a build ID and some code.
func program(id []byte, code string, more ...elftest.Section) []byte {
	note := elftest.Notes(nil, 4, elftest.GNU(id))
	return elftest.File{
		Segments: []elftest.Segment{{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, From: ".text", Vaddr: 0x1000}},
		Sections: append([]elftest.Section{
			{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Data: note},
			{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Data: []byte(code)},
		}, more...),
	}.Build()
}

func TestAdd(t *testing.T) {
	s := newStore(t, t.TempDir())
	want := program(someID, "some code")
	a := mustAdd(t, s, want, CI)
	if a.ID.String() != fmt.Sprintf("%x", someID) || !a.New {
		t.Errorf("%+v", a)
	}
	m, err := s.Manifest(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	exe := m.Executable()
	if exe == nil || exe.Object != a.Object || exe.Size != int64(len(want)) || m.DebugInfo() != nil {
		t.Fatalf("%+v", m)
	}
	o, err := s.Object(t.Context(), exe.Object)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if got, err := io.ReadAll(o.Stream()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	if again := mustAdd(t, s, want, CI); again.New {
		t.Error("the same file counts as another one")
	}
}

// TestClaims wants files refused that are not what is said of them.
func TestClaims(t *testing.T) {
	s := newStore(t, t.TempDir())
	other, err := buildid.New(buildid.GNU, []byte("another ID"))
	if err != nil {
		t.Fatal(err)
	}
	var mismatch *MismatchError
	if _, err := add(t, s, program(someID, "code"), Claim{ID: other}); !errors.As(err, &mismatch) || mismatch.Found != fmt.Sprintf("%x", someID) {
		t.Errorf("another ID: %v", err)
	}
	if _, err := add(t, s, program(someID, "code"), Claim{Object: strings.Repeat("0", 64)}); !errors.As(err, &mismatch) {
		t.Errorf("another hash: %v", err)
	}
	var format *FormatError
	for name, b := range map[string][]byte{
		"empty": {}, "text": []byte("#!/bin/sh\n"), "cut off": program(someID, "code")[:70],
		"nothing in it": elftest.File{Sections: []elftest.Section{{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Data: elftest.Notes(nil, 4, elftest.GNU(someID))}}}.Build(),
	} {
		if _, err := add(t, s, b, Claim{}); !errors.As(err, &format) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s2 := &Store{Blobs: s.Blobs, MaxFile: 10}
	if _, err := s2.Spool(t.Context(), strings.NewReader("12345678901")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	for info := range s.Blobs.List(t.Context(), "id/") {
		t.Error("something was published:", info.Key)
	}
}

// TestTwoContents wants both files of one ID to be known, and the trusted one served, in
// whatever order they come.
func TestTwoContents(t *testing.T) {
	good, bad := program(someID, "good code"), program(someID, "evil code, which is longer")
	for _, order := range [][]string{{"good", "bad"}, {"bad", "good"}} {
		s := newStore(t, t.TempDir())
		var a Added
		for _, which := range order {
			if which == "good" {
				a = mustAdd(t, s, good, CI)
			} else {
				a = mustAdd(t, s, bad, Agent)
			}
		}
		m, err := s.Manifest(t.Context(), a.ID)
		if err != nil || len(m.Files) != 2 {
			t.Fatalf("%+v, %v", m, err)
		}
		if exe := m.Executable(); exe.Size != int64(len(good)) {
			t.Errorf("%v: the agent's file is served", order)
		}
		if d := m.Disputed(); len(d) != 1 || d[0].Size != int64(len(bad)) {
			t.Errorf("%v: disputed: %v", order, d)
		}
	}
}

// TestFirstOfEquals has two files that know the same come within a second: the one that came first is served.
func TestFirstOfEquals(t *testing.T) {
	one, other := program(someID, "some code"), program(someID, "other code")
	for i, order := range [][2][]byte{{one, other}, {other, one}} {
		s := newStore(t, t.TempDir())
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s.Now = func() time.Time { return now }
		first := mustAdd(t, s, order[0], CI)
		m := mustAdd(t, s, order[1], CI).Manifest
		if exe := m.Executable(); exe.Object != first.Object {
			t.Errorf("order %d: the second file took the place of the first", i)
		}
		if d := m.Disputed(); len(d) != 1 || d[0].Object == first.Object {
			t.Errorf("order %d: disputed: %v", i, d)
		}
	}
}

// TestAgentsAreBounded wants what agents send to leave room for others.
func TestAgentsAreBounded(t *testing.T) {
	s := newStore(t, t.TempDir())
	var full *TooManyError
	for i := range maxFiles + 1 {
		_, err := add(t, s, program(someID, fmt.Sprint("code ", i)), Claim{Origin: Origin{Trust: Agent}})
		if (i == maxFiles) != errors.As(err, &full) {
			t.Fatalf("file %d: %v", i, err)
		}
	}
	mustAdd(t, s, program(someID, "the real one"), CI)
}

// TestAgentsStandForNothingOfOthers has agents send debug files, executables and sources of an identity
// of which CI sent a file: none is served, in whatever order they come.
func TestAgentsStandForNothingOfOthers(t *testing.T) {
	stripped, debug, _ := split(t)
	other := program(someID, "evil code", elftest.Section{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: []byte("x")})
	source := func(t *testing.T, s *Store, m *Manifest) error {
		_, err := s.Source(t.Context(), m, "/src/p.c")
		return err
	}
	for _, agentFirst := range []bool{false, true} {
		s := newStore(t, t.TempDir())
		var a Added
		for _, isAgent := range []bool{agentFirst, !agentFirst} {
			if !isAgent {
				a = mustAdd(t, s, stripped, CI)
				continue
			}
			a = mustAdd(t, s, debug, Agent)
			spool, err := s.Spool(t.Context(), strings.NewReader("evil"))
			if err != nil {
				t.Fatal(err)
			}
			defer spool.Close()
			if err := s.AddSource(t.Context(), a.Manifest, "/src/p.c", spool, Origin{Trust: Agent, Via: "push"}); err != nil {
				t.Fatal(err)
			}
			if err := source(t, s, a.Manifest); agentFirst && err != nil {
				t.Errorf("the source of an agent's own file: %v", err)
			}
		}
		if m := a.Manifest; m.Executable() == nil || m.DebugInfo() != nil {
			t.Errorf("an agent's debug file names the functions of CI's program (the agent came first: %v)", agentFirst)
		}
		if err := source(t, s, a.Manifest); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("an agent's source is one of CI's program (the agent came first: %v): %v", agentFirst, err)
		}
		a = mustAdd(t, s, debug, CI)
		if a.Manifest.DebugInfo() == nil {
			t.Error("CI's debug file is not served, because an agent sent the same one")
		}
	}
	// A program that does not fit hides no debug file of more trust.
	for _, trust := range []Trust{Agent, Upstream} {
		s := newStore(t, t.TempDir())
		theirs := mustAdd(t, s, other, trust)
		m, _, err := s.merge(t.Context(), theirs.ID, File{Object: strings.Repeat("0", 64), Facts: Facts{ID: theirs.ID, Debug: true, Segments: "of another program",
			Machine: theirs.Manifest.Files[0].Machine}, Origins: []Origin{{Trust: CI}}}, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if d := m.DebugInfo(); d == nil || d.Trust() != CI || m.Executable() != nil {
			t.Errorf("%s: a program hides CI's debug file: %+v", trust, m)
		}
		if d := m.Disputed(); len(d) != 1 || d[0].Object != theirs.Object {
			t.Errorf("%s: disputed: %v", trust, d)
		}
	}
}

// split builds a program, and returns it without symbols, its debug file, and the whole of it.
func split(t *testing.T) (stripped, debug, full []byte) {
	t.Helper()
	gcc, objcopy, strip := testenv.Tool(t, "gcc"), testenv.Tool(t, "objcopy"), testenv.Tool(t, "strip")
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "p.c"), []byte("int f(int x){return x+1;}\nint main(){return f(1);}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(gcc, "-g", "-Wl,--build-id", "-o", "full", "p.c")
	run(objcopy, "--only-keep-debug", "full", "debug")
	run(strip, "-o", "stripped", "full")
	var files [3][]byte
	for i, name := range []string{"stripped", "debug", "full"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = b
	}
	return files[0], files[1], files[2]
}

// TestStripped builds a program, splits it, and wants the parts to be one identity, of which
// the best is served.
func TestStripped(t *testing.T) {
	stripped, debug, full := split(t)
	s := newStore(t, t.TempDir())
	a := mustAdd(t, s, stripped, CI)
	if exe := a.Manifest.Executable(); exe == nil || a.Manifest.DebugInfo() != nil || a.Manifest.Symbols() != Exported {
		t.Errorf("stripped: %+v", a.Manifest)
	}
	first := a.Manifest.IndexName()
	a = mustAdd(t, s, debug, CI)
	if d := a.Manifest.DebugInfo(); d == nil || d.Symbols != Lines || a.Manifest.Executable().Symbols != Exported || len(a.Manifest.Disputed()) != 0 {
		t.Errorf("with its debug file: %+v", a.Manifest)
	}
	if a.Manifest.IndexName() == first {
		t.Error("the index of the stripped file is taken for one of both")
	}
	a = mustAdd(t, s, full, CI)
	if exe := a.Manifest.Executable(); exe.Symbols != Lines || len(a.Manifest.Disputed()) != 0 {
		t.Errorf("unstripped: %+v", a.Manifest)
	}
}

// TestTwoServers have two of them publish files of one ID at the same time.
func TestTwoServers(t *testing.T) {
	dir := t.TempDir()
	servers := []*Store{newStore(t, dir), newStore(t, dir)}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			b := program(someID, fmt.Sprint("code ", i))
			spool, err := servers[i%2].Spool(t.Context(), bytes.NewReader(b))
			if err != nil {
				t.Error(err)
				return
			}
			defer spool.Close()
			if _, err := servers[i%2].Add(t.Context(), spool, Claim{Origin: Origin{Trust: CI}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	id, err := buildid.New(buildid.GNU, someID)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := newStore(t, dir).Manifest(t.Context(), id); err != nil || len(m.Files) != 12 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestManifestIsCheckedInTime wants what another server published to be seen.
func TestManifestIsCheckedInTime(t *testing.T) {
	dir := t.TempDir()
	one, two := newStore(t, dir), newStore(t, dir)
	id, _ := buildid.New(buildid.GNU, someID)
	if _, err := two.Manifest(t.Context(), id); !errors.Is(err, blob.ErrNotExist) {
		t.Fatal(err)
	}
	mustAdd(t, one, program(someID, "x"), CI)
	two.mu.Lock() // as if time had passed
	k := two.known[id]
	k.read = k.read.Add(-time.Minute)
	two.known[id] = k
	two.mu.Unlock()
	if m, err := two.Manifest(t.Context(), id); err != nil || len(m.Files) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestDamagedManifest has manifests that are none: they are reported once and count as none, and whoever brings a file
// replaces them. One of a later version stays as it is.
func TestDamagedManifest(t *testing.T) {
	id, _ := buildid.New(buildid.GNU, someID)
	whole := `{"version":1,"id":"` + id.String() + `","files":[{"object":"x"}],"sum":"00000000"}`
	for _, text := range []string{"", "{", `{"version":0}`, `{"version":1,"id":"00"}`, whole, strings.Repeat("\x00", 300)} {
		s := newStore(t, t.TempDir())
		var reported []string
		s.OnDamage = func(key string, _ error) { reported = append(reported, key) }
		key := manifestKey(id)
		if _, err := s.Blobs.PutIfAbsent(t.Context(), key, strings.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if m, err := s.Manifest(t.Context(), id); !errors.Is(err, blob.ErrNotExist) {
				t.Errorf("%q: %+v, %v", text, m, err)
			}
			s.mu.Lock()
			clear(s.known) // as if time had passed
			s.mu.Unlock()
		}
		if len(reported) != 1 || reported[0] != key || s.DamagedLists() != 1 {
			t.Errorf("%q: reported are %q", text, reported)
		}
		if err := s.Pin(t.Context(), id, true); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("%q: %v", text, err)
		}
		mustAdd(t, s, program(someID, "x"), CI)
		s.mu.Lock()
		clear(s.known)
		s.mu.Unlock()
		if m, err := s.Manifest(t.Context(), id); err != nil || len(m.Files) != 1 || s.DamagedLists() != 0 {
			t.Errorf("%q: %+v, %v, %d", text, m, err, s.DamagedLists())
		}
	}
	s := newStore(t, t.TempDir())
	text := `{"version":9}`
	if _, err := s.Blobs.PutIfAbsent(t.Context(), manifestKey(id), strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manifest(t.Context(), id); err == nil || errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a later version: %v", err)
	}
	if b, _, err := blob.Read(t.Context(), s.Blobs, manifestKey(id), blob.MaxSwap); err != nil || string(b) != text || s.DamagedLists() != 0 {
		t.Errorf("a later version: %s, %v", b, err)
	}
}

// TestManifestFromMemory damages a manifest that a server has read before: it is as it was again.
func TestManifestFromMemory(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	a := mustAdd(t, s, program(someID, "x"), CI)
	name := filepath.Join(dir, filepath.FromSlash(manifestKey(a.ID)))
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock() // as if time had passed
	k := s.known[a.ID]
	k.read = time.Time{}
	s.known[a.ID] = k
	s.mu.Unlock()
	if m, err := s.Manifest(t.Context(), a.ID); err != nil || len(m.Files) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, whole) || s.DamagedLists() != 0 {
		t.Errorf("%s, %v", b, err)
	}
}

func TestPinAndUse(t *testing.T) {
	s := newStore(t, t.TempDir())
	s.Now = func() time.Time { return time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC) }
	a := mustAdd(t, s, program(someID, "x"), CI)
	if err := s.Use(t.Context(), a.Manifest); err != nil {
		t.Fatal(err)
	}
	if err := s.Pin(t.Context(), a.ID, true); err != nil {
		t.Fatal(err)
	}
	m, err := s.Manifest(t.Context(), a.ID)
	if err != nil || m.Used != "2026-11-26" || !m.Pinned {
		b, _ := json.Marshal(m)
		t.Errorf("%s, %v", b, err)
	}
	other, _ := buildid.New(buildid.GNU, []byte("none"))
	if err := s.Pin(t.Context(), other, true); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestKeys wants a key for each identity, and another one for each kind with the same bytes.
func TestKeys(t *testing.T) {
	seen := map[string]buildid.ID{}
	for _, text := range []string{"00", "0011", strings.Repeat("ab", 20), strings.Repeat("ab", 255), "go:a/b/c/d", "go:a", "content:" + strings.Repeat("ab", 20)} {
		id, err := buildid.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		key := manifestKey(id)
		if err := blob.CheckKey(key); err != nil || !seen[key].IsZero() {
			t.Errorf("%s: %q, %v", text, key, err)
		}
		seen[key] = id
	}
}

// TestSweep wants what is left of uploads gone after a day.
func TestSweep(t *testing.T) {
	s := newStore(t, t.TempDir())
	for hours, want := range map[int]int64{1: 5, 25: 0} {
		u, err := s.Staged(t.Context(), "who", strings.Repeat("0", 64))
		if err != nil {
			t.Fatal(err)
		}
		if u.Size() == 0 {
			if err := u.Append(t.Context(), 0, strings.NewReader("12345"), 5); err != nil {
				t.Fatal(err)
			}
		}
		s.Now = func() time.Time { return time.Now().Add(time.Duration(hours) * time.Hour) }
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if u, err = s.Staged(t.Context(), "who", strings.Repeat("0", 64)); err != nil || u.Size() != want {
			t.Errorf("after %d hours: %d bytes, %v", hours, u.Size(), err)
		}
	}
}

// late is a store in which something happens after a manifest was read, and before anybody has the answer.
type late struct {
	blob.Store
	after func()
}

func (l *late) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, blob.Info, error) {
	body, info, err := l.Store.Get(ctx, key, off, n)
	if after := l.after; after != nil && strings.HasPrefix(key, "id/") {
		l.after = nil
		after()
	}
	return body, info, err
}

// TestOwnChangesAreSeen looks for an identity while the same server adds it: what it says afterwards is not what was
// true before.
func TestOwnChangesAreSeen(t *testing.T) {
	m := newMemory(t)
	l := &late{Store: m}
	s := &Store{Blobs: l, Scratch: t.TempDir(), Now: m.Now}
	info, err := buildid.Read(bytes.NewReader(numbered(1)))
	if err != nil {
		t.Fatal(err)
	}
	l.after = func() { mustAdd(t, s, numbered(1), CI) }
	if _, err := s.Manifest(t.Context(), info.ID); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("before this server has added it: %v", err)
	}
	if _, err := s.Manifest(t.Context(), info.ID); err != nil {
		t.Errorf("after this server has added it: %v", err)
	}
}

// TestLostAnswer has a server look for an identity, and add it by a request whose answer is lost. The next try finds
// nothing to change, and then the identity is there.
func TestLostAnswer(t *testing.T) {
	m := newMemory(t)
	s, other := m.server(t), m.server(t)
	b := numbered(1)
	info, err := buildid.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manifest(t.Context(), info.ID); !errors.Is(err, blob.ErrNotExist) {
		t.Fatal(err)
	}
	mustAdd(t, other, b, CI) // the store has it, and this server was not told
	mustAdd(t, other, b, CI) // nor that it is used today
	if a := mustAdd(t, s, b, CI); a.New {
		t.Fatal("it is new")
	}
	if _, err := s.Manifest(t.Context(), info.ID); err != nil {
		t.Errorf("after a push that was acknowledged: %v", err)
	}
}
