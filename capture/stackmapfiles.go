package capture

import (
	"os"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/procmap"
	"hallmark/reason"
)

// paddedID is a build ID as the kernel's stackmap tells it: one shorter than 20
// bytes has zeros behind it.
type paddedID [20]byte

func pad(id buildid.ID) (padded paddedID, ok bool) {
	b := id.Bytes()
	copy(padded[:], b)
	return padded, id.Kind() == buildid.GNU && len(b) <= len(padded)
}

// stackmapFiles knows the files of which only the build ID is told. They are looked
// for in the mappings of the processes that were sampled in them.
type stackmapFiles struct {
	objects *objects
	byID    map[paddedID]*stackmapFile
	pids    []uint32 // in which to look for files that are not found yet
}

type stackmapFile struct {
	object *object
	found  bool
	tries  int // in processes that were there to look into
}

// object returns the object of a build ID that was seen in a process.
func (s *stackmapFiles) object(id paddedID, pid uint32) *object {
	f := s.byID[id]
	if f == nil {
		f = &stackmapFile{object: s.newObject(id)}
		s.byID[id] = f
	}
	if !f.found && f.tries < maxAttempts && !slices.Contains(s.pids, pid) {
		s.pids = append(s.pids, pid)
	}
	return f.object
}

func (s *stackmapFiles) newObject(padded paddedID) *object {
	id, err := buildid.New(buildid.GNU, padded[:])
	if err != nil {
		return s.objects.missing(reason.IDLength)
	}
	o := s.objects.file(fileKey{id: id}, procmap.VMA{})
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	o.doubted = true
	if padded[len(padded)-1] == 0 {
		o.id, o.why = buildid.ID{}, reason.IDLength
	}
	return o
}

// find looks for files in the processes that were sampled in them since it last did.
func (s *stackmapFiles) find() {
	for _, pid := range s.pids {
		s.findIn(int(pid))
	}
	s.pids = s.pids[:0]
}

// findAnywhere looks for the files that were not found in processes that are gone:
// where the command was, and in all processes.
func (s *stackmapFiles) findAnywhere(c *Command) {
	s.find()
	if !s.missing() {
		return
	}
	if c != nil {
		if f, err := os.Open(c.path); err == nil {
			s.offer(f, c.path)
		}
	}
	pids, _ := processes() // or they stay without name
	for _, pid := range pids {
		if s.missing() {
			s.findIn(pid)
		}
	}
}

// missing reports whether there is a file that was not found.
func (s *stackmapFiles) missing() bool {
	for _, f := range s.byID {
		if !f.found {
			return true
		}
	}
	return false
}

// findIn looks at the files that a process has mapped to execute.
func (s *stackmapFiles) findIn(pid int) {
	p, err := procmap.Open(pid)
	if err != nil {
		return
	}
	defer p.Close()
	vmas, err := p.Executable()
	if err != nil {
		return
	}
	for _, v := range vmas {
		if f, _, err := p.OpenFile(v); err == nil && f != nil {
			s.offer(f.File, strings.TrimSuffix(v.Name, deleted))
		}
	}
	for _, f := range s.byID {
		if !f.found {
			f.tries++
		}
	}
}

// offer takes a file, if it is one that is looked for, and else closes it.
func (s *stackmapFiles) offer(file *os.File, path string) {
	seen := stampOf(file)
	info, err := buildid.Read(file)
	padded, ok := pad(info.ID)
	wanted := s.byID[padded]
	if err != nil || !ok || wanted == nil || wanted.found {
		file.Close()
		return
	}
	wanted.found = true
	s.objects.mu.Lock()
	defer s.objects.mu.Unlock()
	wanted.object.path = path
	wanted.object.proven = true // the kernel has read the build ID from what was mapped
	s.objects.settle(job{object: wanted.object, want: info.ID, mapped: time.Now()}, reached{file: file, id: info.ID, seen: seen})
}
