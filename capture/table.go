package capture

import (
	"fmt"

	"hallmark/internal/bpf"
)

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
	var notes []string
	for _, n := range []struct {
		count uint64
		text  string
	}{
		{t.Full, "frames found no room in the kernel's table of files"},
		{t.Refused, "of the frames found the kernel's table of files locked: what that cost, if anything, is among the reasons of the coverage"},
		{t.Evicted, "files made room in the kernel's table for others, and were looked up again if they came back"},
		{t.Stale, "files changed while they were recorded, and count as other files from then on"},
		{t.Torn, "entries of the kernel's table of files were read again, because they were just being written"},
		{t.Busy, "identities were read later, because too many were asked for at once"},
	} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.count, n.text))
		}
	}
	return notes
}
