package capture

import (
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/internal/objects"
	"hallmark/internal/procfs"
	"hallmark/internal/reach"
	"hallmark/launch"
	"hallmark/procmap"
	"hallmark/reason"
)

// paddedID is a build ID as the kernel's stackmap has it: one shorter than 20
// bytes has zeros behind it.
type paddedID [20]byte

func pad(id buildid.ID) (padded paddedID, ok bool) {
	b := id.Bytes()
	copy(padded[:], b)
	return padded, id.Kind() == buildid.GNU && len(b) <= len(padded)
}

// stackmapFiles knows the files of which only the build ID is known, process by process: two
// processes may run two builds of one ID. Each file is looked for in the mappings of the
// process that was sampled in it. One whose process is gone is taken for what others of its
// identity are, as long as these have one content.
type stackmapFiles struct {
	objects *objects.Set
	byID    map[paddedID]*stackmapClaim
	pids    []uint32 // in which to look for files that are not found yet
	count   int      // of the files
	reading reach.Allowances
}

// stackmapClaim is a build ID, with the file of each process that was sampled in it.
type stackmapClaim struct {
	files map[uint32]*stackmapFile
	// known are different files that claim the ID, up to maxKnown, in any process; more
	// are crowded.
	known   []stackmapKnown
	crowded bool
}

type stackmapFile struct {
	object *objects.Object
	found  bool
	tries  int // in the process, while it was there
}

// stackmapKnown is how a file can be reached again, and what it was.
type stackmapKnown struct {
	way  reach.Request
	path string
	seen reach.Stamp
}

// maxKnown is how many different files of one ID are remembered.
const maxKnown = 4

// maxStackmapFiles bounds how many files are distinguished by their process. Beyond it those of
// one build ID are taken together, as if their processes were gone.
const maxStackmapFiles = 1 << 16

// object returns the object of a build ID that was seen in a process.
func (s *stackmapFiles) object(id paddedID, pid uint32) *objects.Object {
	claim := s.byID[id]
	if claim == nil {
		claim = &stackmapClaim{files: map[uint32]*stackmapFile{}}
		s.byID[id] = claim
	}
	if s.count >= maxStackmapFiles && claim.files[pid] == nil {
		pid = 0 // no process has this number
	}
	f := claim.files[pid]
	if f == nil {
		f = &stackmapFile{object: s.newObject(id, pid)}
		claim.files[pid] = f
		s.count++
	}
	if pid != 0 && !f.found && f.tries < reach.MaxAttempts && !slices.Contains(s.pids, pid) {
		s.pids = append(s.pids, pid)
	}
	return f.object
}

func (s *stackmapFiles) newObject(padded paddedID, pid uint32) *objects.Object {
	id, err := buildid.New(buildid.GNU, padded[:])
	if err != nil {
		return s.objects.Missing(reason.IDLength)
	}
	return s.objects.OfClaim(id, pid, padded[len(padded)-1] != 0)
}

// find looks for files in the processes that were sampled in them since it last did.
func (s *stackmapFiles) find() {
	for _, pid := range s.pids {
		s.findIn(int(pid))
	}
	s.pids = s.pids[:0]
}

// findAnywhere looks for the files that were not found in processes that are gone: where the
// command was, and in all processes.
func (s *stackmapFiles) findAnywhere(c *launch.Command) {
	s.find()
	if c != nil && s.missing() {
		j := reach.Request{VMA: procmap.VMA{Name: c.Path()}} // no process has number 0
		s.offer(j, s.reach(j), c.Path())
	}
	pids, _ := procfs.Processes() // or they stay without name
	for _, pid := range pids {
		if s.missing() {
			s.findIn(pid)
		}
	}
	for _, claim := range s.byID {
		s.assume(claim)
	}
}

// missing reports whether there is a build ID of which no file was found.
func (s *stackmapFiles) missing() bool {
	for _, claim := range s.byID {
		if len(claim.known) == 0 {
			return true
		}
	}
	return false
}

// findIn looks at the files that a process has mapped to execute.
func (s *stackmapFiles) findIn(pid int) {
	vmas, err := reach.Mappings(pid)
	if err != nil {
		return
	}
	for _, v := range vmas {
		if v.Perm&procmap.Exec == 0 || !v.FileBacked() {
			continue
		}
		j := reach.Request{VMA: v, PID: uint32(pid), Mapped: time.Now()}
		s.offer(j, s.reach(j), strings.TrimSuffix(v.Name, procfs.Deleted))
	}
	for _, claim := range s.byID {
		if f := claim.files[uint32(pid)]; f != nil && !f.found {
			f.tries++
		}
	}
}

// reach reaches for a file and reads what it claims to be.
func (s *stackmapFiles) reach(j reach.Request) reach.Found {
	j.Claim = true
	return reach.File(s.objects.Context(), j, 0)
}

// offer takes a file of a process, if it is one that is looked for, and else closes it.
func (s *stackmapFiles) offer(j reach.Request, found reach.Found, path string) {
	padded, ok := pad(found.ID)
	claim := s.byID[padded]
	if found.Why != reason.None || !ok || claim == nil {
		found.Close()
		return
	}
	claim.add(stackmapKnown{j, path, found.Seen})
	f := claim.files[j.PID]
	if f == nil || f.found {
		found.Close()
		return
	}
	s.settle(f, j, found, path)
}

// add remembers a file that claims the ID.
func (c *stackmapClaim) add(k stackmapKnown) {
	if slices.ContainsFunc(c.known, func(other stackmapKnown) bool { return other.seen == k.seen && other.way.VMA.Dev == k.way.VMA.Dev }) {
		return
	}
	if len(c.known) == maxKnown {
		c.crowded = true
		return
	}
	c.known = append(c.known, k)
}

// settle gives the object of a process the file.
func (s *stackmapFiles) settle(f *stackmapFile, j reach.Request, found reach.Found, path string) {
	f.found = true
	s.objects.SettleClaim(f.object, j, found, path)
}

// assume takes the files of processes that are gone for what the others of their identity
// are, if these have one content.
func (s *stackmapFiles) assume(claim *stackmapClaim) {
	isMissing := false
	for _, f := range claim.files {
		isMissing = isMissing || !f.found
	}
	if !isMissing || len(claim.known) == 0 || !s.isOne(claim) {
		return
	}
	k := claim.known[0]
	for _, f := range claim.files {
		if f.found {
			continue
		}
		found := s.reach(k.way)
		if found.Why != reason.None || found.Seen != k.seen {
			found.Close()
			return
		}
		s.settle(f, k.way, found, k.path)
	}
}

// isOne reports whether the files that claim an ID have one content.
func (s *stackmapFiles) isOne(claim *stackmapClaim) bool {
	if len(claim.known) == 1 {
		return !claim.crowded
	}
	var first buildid.Content
	for i, k := range claim.known {
		found := s.reach(k.way)
		found.ReadContent(s.objects.Context(), contentLimits.Bytes, &s.reading)
		found.Close()
		if found.Content.IsZero() || found.Seen != k.seen || i > 0 && found.Content != first {
			return false
		}
		first = found.Content
	}
	return !claim.crowded
}
