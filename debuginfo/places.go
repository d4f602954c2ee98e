package debuginfo

import (
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/cachedir"
	"hallmark/symbol"
)

// paths returns where a place has what is looked for, if it has it.
func (s *search) paths(place Place, w want) []string {
	switch {
	case place == AtPath && w == wantFile:
		return slices.Concat(s.Named, s.Paths)
	case place == KernelTrees && w == wantFile:
		return s.inKernelTrees()
	case place == InDirs && w == wantDebug:
		return s.inDirs()
	case place == ByDebugLink && w == wantDebug:
		return s.linked()
	case place == PerfCache:
		return s.inPerfCache(w)
	case place == DebuginfodCache:
		return s.inDebuginfodCache(w)
	case place == InExtra:
		return s.inExtra(w)
	}
	return nil
}

func (s *search) inDirs() []string {
	var paths []string
	for _, dir := range s.dirs() {
		if path, ok := byBuildID(dir, s.ID); ok {
			paths = append(paths, path+".debug")
		}
	}
	return paths
}

// linked returns where the file of a debug link is looked for: where LLVM does, beside
// the name of the file, and where GDB does, beside the file that links lead to (GDB manual,
// "Separate Debug Files").
func (s *search) linked() []string {
	if s.file == nil {
		return nil
	}
	link, ok := s.file.DebugLink()
	if !ok {
		return nil
	}
	var paths []string
	for _, dir := range s.dirsOf(s.file.Name()) {
		paths = append(paths, filepath.Join(dir, link.Name), filepath.Join(dir, ".debug", link.Name))
	}
	for _, root := range s.dirs() {
		for _, dir := range s.dirsOf(s.file.Name()) {
			paths = append(paths, filepath.Join(root, dir, link.Name))
		}
	}
	names := s.namesOf(s.file.Name())
	return slices.DeleteFunc(unique(paths), func(p string) bool { return slices.Contains(names, p) })
}

// openLinked opens the debug file, which has no build ID, of a file without a GNU build
// ID, if the checksum of the debug link proves it; else it returns nil.
func (s *search) openLinked(path string) *symbol.File {
	if s.ID.Kind() == buildid.GNU {
		return nil
	}
	file, err := s.openNamed(path, s.isChosen(ByDebugLink, path))
	if err != nil {
		return nil
	}
	if !s.agreesWithLink(file) {
		file.Close()
		return nil
	}
	return file
}

// agreesWithLink reports whether a file has no build ID, or one that damage hides, and the
// checksum of the debug link.
func (s *search) agreesWithLink(file *symbol.File) bool {
	link, _ := s.file.DebugLink()
	id, err := identifyIfKnown(file)
	if err != nil || !id.IsZero() && id.Kind() != buildid.ByContent {
		return false
	}
	return hasSum(file, link)
}

func hasSum(file *symbol.File, link symbol.DebugLink) bool {
	sum := crc32.NewIEEE()
	_, err := io.Copy(sum, io.NewSectionReader(file.Reader(), 0, math.MaxInt64))
	return err == nil && sum.Sum32() == link.CRC
}

// isLinked reports whether a debug file with the build ID has the checksum of the debug link as well, and code at
// the same addresses. Programs that write into others, as prelink does, change the sizes of segments.
func (s *search) isLinked(file *symbol.File) bool {
	link, ok := s.file.DebugLink()
	atSame := slices.EqualFunc(codeSegments(s.file), codeSegments(file), func(a, b codeSegment) bool { return a.virt == b.virt })
	return ok && atSame && hasSum(file, link)
}

// inPerfCache returns the files of perf's cache (build_id_cache__cachedir,
// tools/perf/util/build-id.c). Older perfs put a file there in place of the
// directory.
func (s *search) inPerfCache(w want) []string {
	dir, err := cachedir.PerfDir()
	if err != nil {
		return nil
	}
	path, ok := byBuildID(dir, s.ID)
	switch {
	case !ok:
		return nil
	case w == wantDebug:
		return perfCached(path, w)
	}
	return append(perfCached(path, w), filled(path)...)
}

// perfCached returns the files in a directory of perf's cache.
func perfCached(dir string, w want) []string {
	names := []string{"elf", "vmlinux", "vdso"}
	if w == wantDebug {
		names = []string{"debug", "vmlinux", "elf"}
	}
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

func (s *search) inDebuginfodCache(w want) []string {
	dir := debuginfod.CacheDir()
	if s.Servers != nil {
		dir = s.Servers.Dir
	}
	if dir == "" || s.ID.Kind() != buildid.GNU || cachedir.Check(dir) != nil {
		return nil
	}
	return filled(debuginfod.CachePath(dir, s.ID, w))
}

// filled returns path if a regular file is there that is not empty, as the notes of a
// debuginfod client are that no server has a file.
func filled(path string) []string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	return []string{path}
}

func (s *search) inExtra(w want) []string {
	s.scan.Do(s.scanExtra)
	var paths []string
	for _, name := range s.Extra {
		info, err := os.Stat(name)
		switch {
		case err != nil:
		case info.Mode().IsRegular():
			paths = append(paths, name)
		default:
			if path, ok := byBuildID(name, s.ID); ok {
				paths = append(append(paths, path+".debug"), filled(path)...)
				if info, err := os.Stat(path); err == nil && info.IsDir() { // it is a cache of perf's
					paths = append(paths, perfCached(path, w)...)
				}
			}
		}
	}
	return append(paths, s.scanned[s.ID]...)
}

// maxScanned bounds how many files of a directory are looked at.
const maxScanned = 200_000

// scanExtra reads the identities of all files in plain directories of Extra. A
// directory with a .build-id in it shows by its names what it has.
func (f *Finder) scanExtra() {
	f.scanned = map[buildid.ID][]string{}
	seen := 0
	for _, dir := range f.Extra {
		if info, err := os.Stat(filepath.Join(dir, ".build-id")); err == nil && info.IsDir() {
			continue
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		_ = filepath.WalkDir(dir+"/", func(path string, d fs.DirEntry, err error) error {
			if seen++; seen > maxScanned {
				return fs.SkipAll
			}
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if info, err := buildid.ReadELFContext(hashing(), path); err == nil && !info.ID.IsZero() {
				f.scanned[info.ID] = append(f.scanned[info.ID], path)
			}
			return nil
		})
	}
}
