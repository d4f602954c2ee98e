package capture

import (
	"os"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/reason"
	"hallmark/unwind"
)

// unreadCase is a sampler that was sent one stack, whose frame is in a mapping that is being read.
func unreadCase(t *testing.T) (s *bpfSampler, id buildid.ID, counted bpfCount) {
	t.Helper()
	s = newReplay(t)
	s.files, s.unread = map[uint32]*objects.Object{}, map[uint32]*unreadFile{}
	id, err := buildid.New(buildid.GNU, make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	s.File(bpf.File{
		Serial: 7, PID: uint32(os.Getpid()), Start: 0x400000, End: 0x500000, Offset: 0x1000, Path: "/none",
		Validity: bpf.Validity{Pinned: 4},
	})
	stack := bpf.StackID{A: 1}
	s.Stack(stack, []bpf.Frame{{Kind: bpf.InFile, Serial: 7, At: 0x1234}}, unwind.Complete)
	return s, id, bpfCount{stack, bpf.Task{PID: 1, Process: "process", Thread: "thread"}, 3}
}

// lastCounted returns where the sample that was counted last is, and how many were.
func lastCounted(s *bpfSampler) (at place, n int64) {
	for _, c := range s.stacks.totals {
		n += c.samples
	}
	if all := s.stacks.places.All(); len(all) > 0 {
		at = all[len(all)-1]
	}
	return at, n
}

// TestSamplesWaitForIdentity counts samples when the identity comes that their process reads.
func TestSamplesWaitForIdentity(t *testing.T) {
	s, id, c := unreadCase(t)
	s.waiting = []bpfCount{c}
	s.countWaiting(identityPatience)
	if _, n := lastCounted(s); n != 0 || len(s.waiting) != 1 {
		t.Fatalf("%d samples were counted, %d wait", n, len(s.waiting))
	}
	s.Identity(7, id)
	s.countWaiting(identityPatience)
	at, n := lastCounted(s)
	if n != 3 || at.object == nil || at.object.Facts().ID != id || at.at != 0x1234 || len(s.waiting) != 0 {
		t.Errorf("%d samples are at %#x of %+v, %d wait", n, at.at, at.object, len(s.waiting))
	}
}

// TestSamplesWaitInVain counts samples at their address when no identity comes in time. Those after an
// identity that comes nevertheless have it.
func TestSamplesWaitInVain(t *testing.T) {
	s, id, c := unreadCase(t)
	s.waiting = []bpfCount{c}
	s.countWaiting(0)
	at, n := lastCounted(s)
	if n != 3 || at.object.Facts().Why != reason.FileTimes || at.at != 0x400000+0x234 || s.reading != 0 {
		t.Errorf("%d samples are at %#x of %+v, %d files are waited for", n, at.at, at.object, s.reading)
	}
	s.Identity(7, id)
	s.waiting = append(s.waiting, c)
	s.countWaiting(identityPatience)
	if at, n := lastCounted(s); n != 6 || at.object.Facts().ID != id || s.reading != 0 {
		t.Errorf("%d samples are in %+v, %d files are waited for", n, at.object, s.reading)
	}
}

// TestFewSamplesWait bounds how many counts wait for identities.
func TestFewSamplesWait(t *testing.T) {
	s, _, c := unreadCase(t)
	const more = 5
	for range maxUnread + more {
		s.waiting = append(s.waiting, c)
	}
	s.countWaiting(identityPatience)
	if _, n := lastCounted(s); n != more*3 || len(s.waiting) != maxUnread {
		t.Errorf("%d samples were counted, %d counts wait", n, len(s.waiting))
	}
}
