package bpf

import (
	"os"
	"os/exec"
	"testing"

	"hallmark/internal/testenv"
)

// TestFollow wants samples of a process that is followed and runs what it is followed
// for, and of no other.
func TestFollow(t *testing.T) {
	for _, test := range []struct {
		name   string
		follow func(s *Sampler) error
		want   bool
	}{
		{"nobody", func(*Sampler) error { return nil }, false},
		{"from exec on", func(s *Sampler) error { return s.Follow(uint32(os.Getpid()), true) }, false},
		{"from now on", func(s *Sampler) error { return s.Follow(uint32(os.Getpid()), false) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newTestSampler(t, Options{Follow: true})
			if err := test.follow(s); err != nil {
				t.Fatal(err)
			}
			got := sampleSelf(t, s)
			if stats := followStats(t, s); len(got.owners) > 0 != test.want || stats.Samples > 0 != test.want {
				t.Errorf("samples of %v, %+v", got.owners, stats)
			}
		})
	}
}

func followStats(t *testing.T, s *Sampler) Stats {
	t.Helper()
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// TestFollowChildren wants a child in the map from its start to its end.
func TestFollowChildren(t *testing.T) {
	s := newTestSampler(t, Options{Follow: true})
	if err := s.Follow(uint32(os.Getpid()), true); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil { // it returns after the exec
		t.Fatal(err)
	}
	pid := uint32(child.Process.Pid)
	waitFor(t, "the child's program", func() bool { state, ok := stateOf(s, pid); return ok && state == 1 })
	if state, ok := stateOf(s, uint32(os.Getpid())); !ok || state != 0 {
		t.Errorf("the parent, which executed nothing, is in state %d (%v)", state, ok)
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child's end", func() bool { _, ok := stateOf(s, pid); return !ok })
}

func stateOf(s *Sampler, pid uint32) (state uint32, ok bool) {
	err := s.objects.Followed.Lookup(pid, &state)
	return state, err == nil
}

// waitFor waits for what the kernel does in its own time.
func waitFor(t *testing.T, what string, seen func() bool) {
	t.Helper()
	testenv.Await(t, what, seen)
}

// TestFollowTooMany fills the map and wants a process more to be counted.
func TestFollowTooMany(t *testing.T) {
	s := newTestSampler(t, Options{Follow: true})
	if err := s.Follow(uint32(os.Getpid()), false); err != nil {
		t.Fatal(err)
	}
	const above = 1 << 22 // no process has a higher number
	for i := range uint32(maxFollowed - 1) {
		if err := s.Follow(above+i, false); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if stats := followStats(t, s); stats.Unfollowed != 1 {
		t.Errorf("%d processes found no room, want 1", stats.Unfollowed)
	}
}
