package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
	"hallmark/internal/mounts"
	"hallmark/internal/ordered"
	"hallmark/perfdata"
)

// Recorded is what a recording reports of files.
type Recorded struct {
	Info        *perfdata.Info  // of the recording
	files       map[File]int    // mappings
	Identified  int             // mappings that have a build ID
	named       listing         // their names
	image       *perfdata.Mmap2 // the mapping of the kernel
	modules     map[string]perfdata.Mmap2
	first, last uint64 // times of records
	Damage      error  // why the recording could not be read to its end
	memory      int64  // bytes, about
}

// ReadMappings reads what the recording has mapped.
func ReadMappings(files perfdata.Files) (*Recorded, error) {
	r, err := perfdata.NewReader(files[0], perfdata.ReaderOptions{FileOrder: true, More: files.Records()})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rec := &Recorded{Info: r.Info(), files: map[File]int{}, named: listing{}, modules: map[string]perfdata.Mmap2{}}
	limit := mappedMemory(files)
	for {
		one, err := r.Next()
		if err != nil {
			if err != io.EOF {
				rec.Damage = err
			} else if problems := r.Problems(); len(problems) > 0 {
				rec.Damage = problems[0]
			}
			return rec, nil
		}
		switch one := one.(type) {
		case *perfdata.Mmap2:
			rec.mapping(one)
			if rec.memory > limit {
				return nil, fmt.Errorf("at offset %d: the files that are mapped take more than %d MiB of memory", r.Offset(), limit>>20)
			}
		case *perfdata.Sample:
			if one.Time != 0 && (rec.first == 0 || one.Time < rec.first) {
				rec.first = one.Time
			}
			rec.last = max(rec.last, one.Time)
		}
	}
}

// mappedMemory is how much the files may take that a recording maps, in bytes: compressed, a few
// bytes can stand for very many. They are on the lists of what was mapped and of verdicts.
func mappedMemory(files perfdata.Files) int64 {
	limit := int64(256 << 20)
	for _, f := range files {
		if info, err := f.Stat(); err == nil {
			limit += 8 * info.Size()
		}
	}
	return limit
}

// cost is about what a file takes.
func (f File) cost() int64 { return 800 + 2*int64(len(f.Name)) }

func (rec *Recorded) mapping(m *perfdata.Mmap2) {
	const protExec = 4
	kernel := m.Owner == kernelOwner
	if kernel && strings.HasPrefix(m.Name, kernelName) {
		image := *m
		image.BuildID = slices.Clone(m.BuildID)
		rec.image = &image
	}
	switch {
	case m.BuildID != nil:
		rec.Identified++
		if id, err := buildid.New(buildid.GNU, m.BuildID); err == nil {
			rec.memory += rec.named.add(listedName(m), id, kernel)
		}
	case kernel && !strings.HasPrefix(m.Name, kernelName):
		rec.modules[m.Name] = *m
		rec.memory += FileOf(m).cost()
	case m.Type == perfdata.TypeMmap2 && m.Prot&protExec != 0 && isFile(m):
		file := FileOf(m)
		if rec.files[file]++; rec.files[file] == 1 {
			rec.memory += file.cost()
		}
	}
}

// isFile reports whether a mapping has a file with an identity. A file on a disk is one, even if
// it has the name of memory or of a device.
func isFile(m *perfdata.Mmap2) bool {
	if m.Name == "[vdso]" {
		return true
	}
	if !strings.HasPrefix(m.Name, "/") || strings.HasPrefix(m.Name, "//") {
		return false
	}
	return m.Major != 0 ||
		!strings.HasPrefix(m.Name, "/SYSV") && !strings.HasPrefix(m.Name, "/dev/zero") && !strings.HasPrefix(m.Name, "/anon_hugepage")
}

// ListedNames returns the files that perf's list of build IDs has.
func ListedNames(info *perfdata.Info) map[string]bool {
	names := map[string]bool{}
	for _, b := range info.BuildIDs {
		names[b.Name] = true
	}
	return names
}

// Judge finds the identities that the recording lacks.
func (rec *Recorded) Judge(listed map[string]bool, written time.Time, o Judging) map[File]Verdict {
	p := &prover{info: rec.Info, image: rec.image, trust: o.Trust}
	p.began = p.beganBefore(rec.first, rec.last, written)
	verdicts := map[File]Verdict{}
	for file := range rec.files {
		if !listed[file.Name] {
			verdicts[file] = forPerf(p.file(file), o.Every)
		}
	}
	if rec.image != nil && rec.image.BuildID == nil && !listed[kernelName] {
		verdicts[File{Name: kernelName}] = p.mapped(rec.image)
	}
	for name, m := range rec.modules {
		if !listed[name] {
			verdicts[FileOf(&m)] = p.mapped(&m)
		}
	}
	return verdicts
}

// Judging says which identities are wanted.
type Judging struct {
	Trust bool // those of files at the recorded paths, without proof
	Every bool // those of files without a GNU build ID, too
}

// forPerf leaves a file without an identity that perf does not read from it: perf would look for
// a file that has it, and take no symbols from the one at the path.
func forPerf(v Verdict, every bool) Verdict {
	if every || v.ID.IsZero() || v.ID.Kind() == buildid.GNU {
		return v
	}
	return Verdict{NoGNU: true, Err: errors.New("it has no GNU build ID: perf takes its symbols from its path (--every-identity fills in " + v.ID.String() + ")")}
}

// listing has what goes into perf's list of build IDs, by name.
type listing map[string]*listedFile

type listedFile struct {
	ids    map[buildid.ID]bool // the zero ID of a file that has none
	kernel bool
}

// add adds an identity to what has a name, and returns about how many bytes of memory that took.
func (l listing) add(name string, id buildid.ID, kernel bool) (took int64) {
	f := l[name]
	if f == nil {
		took = 400 + int64(len(name))
		f = &listedFile{ids: map[buildid.ID]bool{}, kernel: kernel}
		l[name] = f
	}
	if !f.ids[id] {
		took += 100
		f.ids[id] = true
	}
	return took
}

// listedName is how perf's list calls what a mapping shows.
func listedName(m *perfdata.Mmap2) string {
	if m.Owner == kernelOwner && strings.HasPrefix(m.Name, kernelName) {
		return kernelName
	}
	return m.Name
}

// NewList returns what to add to the list of build IDs, which goes by names: only those
// that had one file throughout. perf looks at nothing but the list where there is one, so
// a first one has what mappings say as well.
func NewList(verdicts map[File]Verdict, rec *Recorded, has bool) []perfdata.HeaderBuildID {
	all, found := listing{}, false
	for file, v := range verdicts {
		_, module := rec.modules[file.Name]
		all.add(file.Name, v.ID, module || file.Name == kernelName)
		found = found || !v.ID.IsZero()
	}
	for name, f := range rec.named {
		for id := range f.ids {
			if all[name] != nil || found && !has {
				all.add(name, id, f.kernel)
			}
		}
	}
	var list []perfdata.HeaderBuildID
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mode := perfdata.ModeUser
		if all[name].kernel {
			mode = perfdata.ModeKernel
		}
		for id := range all[name].ids {
			if len(all[name].ids) == 1 && !id.IsZero() {
				list = append(list, perfdata.HeaderBuildID{Misc: uint16(mode), PID: -1, BuildID: id.GNUForm().Bytes(), Name: name})
			}
		}
	}
	return list
}

// DifferentFiles returns pairs of files that got one build ID and have different contents.
// A program that reads the recording by build IDs alone takes them for one.
func DifferentFiles(verdicts map[File]Verdict) [][2]string {
	var byID ordered.Multimap[buildid.ID, string]
	for file, v := range verdicts {
		if !v.ID.IsZero() && strings.HasPrefix(file.Name, "/") {
			byID.Add(v.ID, file.Name)
		}
	}
	var pairs [][2]string
	for _, id := range byID.Keys() {
		names := slices.Sorted(slices.Values(byID.Values(id)))
		if len(names) < 2 {
			continue
		}
		first := contentAt(names[0])
		for _, name := range names[1:] {
			if contentAt(name) != first {
				pairs = append(pairs, [2]string{names[0], name})
				break
			}
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return pairs
}

// contentAt returns the content of the file at a path, the zero one if it is not known.
func contentAt(name string) buildid.Content {
	f, err := mounts.Ours().OpenFile(name)
	if err != nil {
		return buildid.Content{}
	}
	defer f.Close()
	content, err := buildid.ReadMapped(context.Background(), f)
	if err != nil {
		return buildid.Content{}
	}
	return content
}
