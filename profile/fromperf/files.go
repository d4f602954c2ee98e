package fromperf

import (
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/addrspace"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/unwind"
)

// file is what a mapping shows. Its identity is settled when all is read: perf
// writes its list of build IDs last.
type file struct {
	name   string // to show
	code   string // the function, of generated code: offsets are addresses
	kernel bool
	id     buildid.ID // from the record, zero if it has none
	size   uint64     // of the kernel's image
	inode  inode
	// generation distinguishes the files that had the same inode number in turn: 0 where
	// perf read the mapping from /proc.
	generation uint64
	changed    bool // different files had the number

	record perfdata.Mmap2 // its first mapping
	asked  bool           // for the identity
	found  buildid.ID     // that the asker gave
	read   bool           // the content was asked for

	looked bool          // for the table
	table  *unwind.Table // nil when the file is not at hand
	by     buildid.ID    // that the table was looked for by

	binary *profile.Binary
	why    reason.Reason // binary is nil because of it
}

// inode is what identifies a file in a record without a build ID.
type inode struct {
	major, minor uint32
	number       uint64
}

// files knows every file that was mapped.
type files struct {
	byKey  map[fileKey]*file
	byName map[string]int // different files that were mapped by one name
	text   int            // bytes of all names

	identify func(file, kernel *perfdata.Mmap2) buildid.ID // nil for nobody to ask
	content  func(file *perfdata.Mmap2) buildid.Content    // nil for nobody to ask
	image    *file                                         // the kernel's
}

type fileKey struct {
	name   string
	id     buildid.ID
	inode  inode
	kernel bool
}

func newFiles() *files {
	return &files{byKey: map[fileKey]*file{}, byName: map[string]int{}}
}

func (s *files) get(key fileKey, r *perfdata.Mmap2) *file {
	f := s.byKey[key]
	if f == nil {
		f = &file{name: key.name, kernel: key.kernel, id: key.id, inode: key.inode, record: *r}
		f.code, _ = perfdata.GeneratedFunction(key.name)
		f.record.BuildID = nil // which is valid for a moment only
		s.byKey[key] = f
		s.text += len(key.name)
		s.byName[key.name]++
	}
	return f
}

func (s *files) mapped(r *perfdata.Mmap2) *file {
	key := fileKey{name: r.Name, inode: inode{r.Major, r.Minor, r.Inode}}
	if id, err := buildid.New(buildid.GNU, r.BuildID); err == nil {
		key.id, key.inode = id, inode{}
	}
	f := s.get(key, r)
	if r.Generation != 0 {
		f.changed = f.changed || f.generation != 0 && f.generation != r.Generation
		f.generation = r.Generation
	}
	return f
}

// kernelImage is how perf calls the kernel. Behind it stands the symbol whose address
// is in place of a file offset.
const kernelImage = "[kernel.kallsyms]"

// ofKernel returns the image of the kernel, or a module. Offsets in them count from
// where they begin.
func (s *files) ofKernel(r *perfdata.Mmap2) *file {
	key := fileKey{name: r.Name, kernel: true}
	if strings.HasPrefix(r.Name, kernelImage) {
		key.name = kernelImage
	}
	key.id, _ = buildid.New(buildid.GNU, r.BuildID) // without one the zero ID
	f := s.get(key, r)
	f.size = max(f.size, r.Size)
	if key.name == kernelImage {
		s.image = f
	}
	return f
}

// settle gives every file its identity.
func (s *files) settle(info *perfdata.Info) {
	listed := listedIDs(info)
	for _, f := range s.byKey {
		if f.code != "" {
			continue
		}
		id := f.id
		if id.IsZero() {
			id, f.why = s.unrecorded(f, listed)
		}
		image := f.name == kernelImage
		f.name = f.shown()
		if id.IsZero() {
			continue
		}
		f.binary = &profile.Binary{ID: id, Path: f.name}
		if text := addrspace.KernelText(info.Arch); image && text != 0 {
			f.binary.Segments = []profile.Segment{{Virt: text, Size: f.size}}
		}
	}
}

// learnContents asks for the contents of the files that frames are in, as far as nobody but the
// asker knows what they are. Files of different content that claim one identity have their
// contents for identities: nobody knows which of them to believe.
func (s *files) learnContents(places []place) {
	if s.content == nil {
		return
	}
	claimants := map[buildid.ID][]*file{}
	for i := range places {
		f := places[i].file
		if f == nil || f.binary == nil || f.found.IsZero() || f.read {
			continue
		}
		f.read = true
		if f.binary.Content = s.content(&f.record); !f.binary.Content.IsZero() {
			claimants[f.found] = append(claimants[f.found], f)
		}
	}
	for id, all := range claimants {
		first := all[0].binary.Content
		if !slices.ContainsFunc(all, func(f *file) bool { return f.binary.Content != first }) {
			continue
		}
		for _, f := range all {
			f.binary.ID, f.binary.Claim = f.binary.Content.ID(), id
		}
	}
}

// shown returns the name of the file in profiles.
func (f *file) shown() string {
	switch {
	case f.name == kernelImage:
		return "[kernel]"
	case f.kernel:
		return "[" + moduleName(f.name) + "]"
	}
	return strings.TrimSuffix(f.name, deleted)
}

// listedID is a line of perf's list of build IDs.
type listedID struct {
	id        buildid.ID
	ambiguous bool
}

func listedIDs(info *perfdata.Info) map[string]listedID {
	all := map[string]listedID{}
	for _, b := range info.BuildIDs {
		id, err := buildid.New(buildid.GNU, b.BuildID)
		if err != nil {
			continue
		}
		known, again := all[b.Name]
		all[b.Name] = listedID{id, again && (known.ambiguous || known.id != id)}
	}
	return all
}

// unrecorded returns the identity of a file whose mapping has none: by perf's list, and
// else as whoever is asked knows it.
func (s *files) unrecorded(f *file, list map[string]listedID) (buildid.ID, reason.Reason) {
	id, why := s.listed(f, list)
	if !id.IsZero() || s.identify == nil || f.changed {
		return id, why
	}
	if !f.asked {
		f.asked = true
		var kernel *perfdata.Mmap2
		if s.image != nil {
			kernel = &s.image.record
		}
		f.record.Generation = f.generation
		f.found = s.identify(&f.record, kernel)
	}
	if f.found.IsZero() {
		return f.found, why
	}
	return f.found, reason.None
}

func (s *files) listed(f *file, list map[string]listedID) (buildid.ID, reason.Reason) {
	l, ok := list[f.name]
	switch {
	case !ok:
		return buildid.ID{}, reason.NotRecorded
	case l.ambiguous || f.changed || s.byName[f.name] > 1 && f.name != "[vdso]":
		return buildid.ID{}, reason.FileChanged
	}
	return l.id, reason.None
}
