package capture

import (
	"fmt"

	"hallmark/internal/bpf"
)

// DefaultUnwindMemory is how many bytes of unwind tables the backend BPF has in the kernel
// unless Options say it.
const DefaultUnwindMemory = bpf.DefaultUnwindMemory

// UnwindStats count what finding callers by unwind tables took, with the backend BPF.
type UnwindStats struct {
	Built       uint64 // tables that were built
	Cached      uint64 // tables that were read from the cache
	Unavailable uint64 // files that there is no table for: out of reach, or damaged
	NoRoom      uint64 // tables that found no room in the kernel
	Evicted     uint64 // tables that made room for others
	Memory      int64  // bytes that tables take in the kernel
	Capacity    int64  // bytes that they may take

	Completed uint64 // samples that came before a table, and were finished when it was there
	GivenUp   uint64 // samples whose table did not come
}

// Notes say what there is to say, for people who look into a profile.
func (u *UnwindStats) Notes() []string {
	var notes []string
	for _, n := range []struct {
		count uint64
		text  string
	}{
		{u.NoRoom, "unwind tables found no room: record with more --unwind-memory"},
		{u.Evicted, "unwind tables made room for others"},
		{u.GivenUp, "stacks end early, because an unwind table did not come"},
	} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.count, n.text))
		}
	}
	return notes
}
