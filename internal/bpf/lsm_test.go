package bpf

import (
	"debug/elf"
	"os"
	"os/exec"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// newHookedSampler loads a Sampler with the hook where files are mapped.
func newHookedSampler(t *testing.T) *Sampler {
	t.Helper()
	s := newTestSampler(t, Options{NoTaskWork: true})
	if _, err := s.HookStats(); err != nil {
		t.Skip(err)
	}
	return s
}

// entries returns the identities in the table of files, and how many files have each.
func entries(t *testing.T, s *Sampler) map[buildid.ID]int {
	t.Helper()
	ids := map[buildid.ID]int{}
	var key uint64
	var e samplerFileEntry
	all := s.objects.Files.Iterate()
	for all.Next(&key, &e) {
		if id, err := identityOf(&e.Id); err == nil {
			ids[id]++
		}
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestHookKnowsWhatEndedLongAgo runs a program that ends at once, and is never sampled.
// Its first bytes are mapped together with its code.
func TestHookKnowsWhatEndedLongAgo(t *testing.T) {
	s := newHookedSampler(t)
	var want buildid.ID
	file := copyOfSelf(t, func(b []byte) { want = otherID(t, b, ownIdentity(t)) })
	for range 3 {
		cmd := exec.Command(file.Name())
		cmd.Env = append(os.Environ(), role+"=exit")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := s.HookStats()
	if n := entries(t, s)[want]; n != 1 || err != nil {
		t.Errorf("%d entries have the identity %v: %+v, %v", n, want, stats, err)
	}
}

// TestHookKnowsLibraries runs a program with an interpreter and libraries, where there
// is one.
func TestHookKnowsLibraries(t *testing.T) {
	s := newHookedSampler(t)
	program := testenv.Tool(t, "date")
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	testenv.Need(t, err == nil && len(libs) > 0, program+" with shared libraries")
	if err := exec.Command(program).Run(); err != nil {
		t.Fatal(err)
	}
	known := entries(t, s)
	stats, err := s.HookStats()
	for _, name := range []string{program, "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"} {
		if info, idErr := buildid.ReadFile(name); idErr != nil || known[info.ID] == 0 {
			t.Errorf("%s, %v, is not known: %+v, %v, %v", name, info.ID, stats, err, idErr)
		}
	}
}
