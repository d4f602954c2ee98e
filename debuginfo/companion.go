package debuginfo

import (
	"path/filepath"
	"slices"

	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// Companion opens a file that the debug information of another one refers to, or
// returns nil: as symbol.IndexOptions.Open. The supplementary file that dwz made must
// have the build ID that is said, and is looked for by it too.
func (f *Finder) Companion(c symbol.Companion) *symbol.File {
	switch {
	case c.Package != "":
		return f.splitUnits(c)
	case c.BuildID != nil:
		return f.supplementary(c)
	}
	file, err := symbol.OpenFile(c.Path)
	if err != nil {
		return nil
	}
	return file
}

// supplementary opens the file that dwz made.
func (f *Finder) supplementary(c symbol.Companion) *symbol.File {
	id, err := buildid.New(buildid.GNU, c.BuildID)
	if err != nil {
		return nil
	}
	for _, path := range f.supplementaryPaths(c) {
		if file, _ := open(id, path); file != nil {
			return file
		}
	}
	s := f.localSearch(id)
	s.supplementary = true
	return s.find(wantDebug)
}

// supplementaryPaths returns where a file of dwz is looked for by its name: where the
// debug file says, beside it, and under the directories of Extra by path and by base name.
func (f *Finder) supplementaryPaths(c symbol.Companion) []string {
	paths := []string{c.Path}
	if c.Name != "" && !filepath.IsAbs(c.Name) {
		for _, dir := range dirsOf(c.From) {
			paths = append(paths, filepath.Join(dir, c.Name))
		}
	}
	for _, dir := range f.Extra {
		paths = append(paths, filepath.Join(dir, c.Path), filepath.Join(dir, filepath.Base(c.Path)))
	}
	return unique(paths)
}

// splitUnits opens a package of split units. What it has is for its units' IDs to prove:
// one that was refused is not that of the file, and the next one is tried.
func (f *Finder) splitUnits(c symbol.Companion) *symbol.File {
	if n := len(c.Refused); n > 0 {
		f.trace(Step{Place: ForSplitUnits, Path: c.Refused[n-1], Why: reason.FileChanged})
	}
	for _, path := range f.packagePaths(c) {
		if slices.Contains(c.Refused, path) {
			continue
		}
		file, err := symbol.OpenFile(path)
		if err != nil {
			f.trace(Step{Place: ForSplitUnits, Path: path, Why: whyNot(err)})
			continue
		}
		f.trace(Step{Place: ForSplitUnits, Path: path, Why: reason.None})
		return file
	}
	return nil
}

func (f *Finder) trace(step Step) {
	if f.Trace != nil {
		f.Trace(buildid.ID{}, step)
	}
}

// packagePaths returns where a package is looked for: beside the program and beside its
// debug file, under the names that were opened and those that links lead to; and then by
// base name in all directories, as GDB does.
func (f *Finder) packagePaths(c symbol.Companion) []string {
	var paths []string
	if f.Package != "" {
		paths = append(paths, f.Package)
	}
	names := slices.Concat(namesOf(c.Package), namesOf(c.From))
	for _, name := range names {
		paths = append(paths, name+packageSuffix)
	}
	for _, dir := range slices.Concat(f.dirs(), f.Extra) {
		if filepath.Ext(dir) == packageSuffix {
			paths = append(paths, dir) // a file, most likely
		}
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, filepath.Base(name)+packageSuffix))
		}
	}
	return unique(paths)
}

// packageSuffix is what names of packages of split units have behind that of the program.
const packageSuffix = ".dwp"

// namesOf returns the absolute name of a file, and that which links lead to if it is
// another one; nothing for what has no name.
func namesOf(name string) []string {
	if name == "" {
		return nil
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return unique([]string{name, real})
	}
	return []string{name}
}

// dirsOf returns the directories that namesOf are in.
func dirsOf(name string) []string {
	var dirs []string
	for _, n := range namesOf(name) {
		dirs = append(dirs, filepath.Dir(n))
	}
	return unique(dirs)
}

// unique returns names without those that occur earlier.
func unique(names []string) []string {
	var kept []string
	for _, n := range names {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}
