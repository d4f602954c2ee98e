package capture

import (
	"hallmark/internal/bpf"
	"hallmark/internal/plaintext"
)

// Stats count what a recording saw and what it could not see.
type Stats struct {
	Backend       Backend // that takes the samples
	Samples       uint64
	Lost          uint64   // records that found no room in a ring buffer
	Throttled     uint64   // times the kernel held an event back because it fired too often
	Malformed     uint64   // records that could not be read or decoded
	Coarse        uint64   // samples counted with less detail, to bound the memory
	Untimed       uint64   // samples of a timeline whose time was not kept, to bound the memory
	Collided      uint64   // samples for which the kernel's stackmap had no place
	Unfollowed    uint64   // processes that were not recorded, because too many ran at once
	Disagreed     uint64   // files that have another identity than the kernel read from memory
	Existing      int      // processes that ran when the recording started
	KernelThreads []int    // of Options.PIDs: only the code of the kernel runs in them
	Copied        uint64   // bytes of stacks that samples have copied
	Cut           uint64   // stacks of which more would have had to be copied
	Continued     uint64   // stacks whose copy ended, and that frame pointers continue
	Reduced       []string // what this kernel or this user's rights did not allow

	Table  TableStats  // of the backend BPF
	Unwind UnwindStats // of the backend BPF
}

// TableStats count what the kernel's table of files could not do at once. None of it
// makes an identity wrong.
type TableStats struct {
	Full    uint64 // frames in files that there was no room for
	Refused uint64 // frames in files that could not be entered, because the lock was held for instance
	Evicted uint64 // files that made room for others
	Stale   uint64 // files that had changed since they were entered
	Torn    uint64 // entries that were read while they were written
	Busy    uint64 // identities whose reading was put off
}

func tableStats(n bpf.Stats) TableStats {
	return TableStats{Full: n.TableFull, Refused: n.Refused, Evicted: n.Evicted, Stale: n.Stale, Torn: n.Torn, Busy: n.Busy}
}

// Notes say what there is to say, for people who look into a profile.
func (t *TableStats) Notes() []string {
	return plaintext.Sentences(
		plaintext.Sentence(t.Full, "frame", "frames", "found no room in the kernel's table of files"),
		plaintext.Sentence(t.Refused, "frame", "frames", "found the kernel's table of files locked: what that cost, if anything, is among the reasons of the coverage"),
		plaintext.Sentence(t.Evicted, "file", "files", "made room in the kernel's table for others, to be looked up again on coming back"),
		plaintext.Sentence(t.Stale, "file", "files", "changed during the recording: what ran before and after counts as different files"),
		plaintext.Sentence(t.Torn, "entry", "entries", "of the kernel's table of files had to be read again after a write beside the first reading"),
		plaintext.Sentence(t.Busy, "identity was", "identities were", "read later, because too many were asked for at once"),
	)
}

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
	return plaintext.Sentences(
		plaintext.Sentence(u.NoRoom, "unwind table", "unwind tables", "found no room: record with more --unwind-memory"),
		plaintext.Sentence(u.Evicted, "unwind table", "unwind tables", "made room for others"),
		plaintext.Sentence(u.GivenUp, "stack ends", "stacks end", "early, because an unwind table did not come"),
	)
}
