package debuginfo

import (
	"cmp"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"hallmark/buildid"
	"hallmark/internal/trust"
	"hallmark/reason"
	"hallmark/symbol"
)

// Companion opens a file that the debug information of another one refers to, or
// returns nil: as symbol.IndexOptions.Open. The supplementary file that dwz made must
// have the build ID that is said, and is looked for by it too. A file that a less privileged user
// can have written is not used for a file that is not his.
func (f *Finder) Companion(c symbol.Companion) *symbol.File {
	o := &opener{Finder: f, program: sync.OnceValue(func() belief { return f.beliefAt(cmp.Or(c.Package, c.From)) })}
	return o.open(c)
}

// beliefAt returns whose word the file at a path is.
func (f *Finder) beliefAt(path string) belief {
	file, err := f.openNamed(path, false)
	if err != nil {
		return belief{}
	}
	defer file.Close()
	return beliefOf(file, false)
}

// An opener opens the files that the debug information of a program refers to.
type opener struct {
	*Finder
	program func() belief
	lent    atomic.Bool // one counts only because the user has named it
}

// open is Finder.Companion. That there is no package is no lack yet: units can be in files of their own.
func (o *opener) open(c symbol.Companion) *symbol.File {
	if c.Package != "" {
		return o.splitUnits(c)
	}
	file := o.named(c)
	if file == nil && o.Lacks != nil {
		o.Lacks(c.From, c.Name)
	}
	return file
}

// named opens a file that debug information names.
func (o *opener) named(c symbol.Companion) *symbol.File {
	if c.BuildID != nil {
		return o.supplementary(c)
	}
	file, err := o.openNamed(c.Path, o.isNamed(c.Path))
	if err != nil {
		return nil
	}
	if !o.mayUse(file) {
		file.Close()
		return nil
	}
	return file
}

// mayUse reports whether a file may be a part of the debug information of the program.
func (o *opener) mayUse(file *symbol.File) bool {
	b := beliefOf(file, o.isNamed(file.Name()))
	if b.level != trust.Others {
		return true
	}
	program := o.program()
	if !b.mayName(program) {
		return false
	}
	if b.isLent(program) {
		o.lent.Store(true)
	}
	return true
}

// supplementary opens the file that dwz made.
func (o *opener) supplementary(c symbol.Companion) *symbol.File {
	id, err := buildid.New(buildid.GNU, c.BuildID)
	if err != nil {
		return nil
	}
	for _, path := range o.supplementaryPaths(c) {
		opened, err := o.openNamed(path, o.isNamed(path))
		file, _ := ifIs(id, opened, err)
		if file != nil && o.mayUse(file) {
			return file
		}
		if file != nil {
			file.Close()
		}
	}
	s := o.localSearch(id)
	s.common = o.mayUse
	return s.find(wantDebug)
}

// supplementaryPaths returns where a file of dwz is looked for by its name: where the
// debug file says, beside it, and under the directories of Extra by path and by base name.
func (f *Finder) supplementaryPaths(c symbol.Companion) []string {
	paths := []string{c.Path}
	if c.Name != "" && !filepath.IsAbs(c.Name) {
		for _, dir := range f.dirsOf(c.From) {
			paths = append(paths, filepath.Join(dir, c.Name))
		}
	}
	for _, dir := range f.Extra {
		paths = append(paths, filepath.Join(dir, c.Path), filepath.Join(dir, filepath.Base(c.Path)))
	}
	return unique(paths)
}

// splitUnits opens a package of split units. The IDs of its units prove that it belongs to
// the file. A package that was refused by them is passed over, and the next one is tried.
func (o *opener) splitUnits(c symbol.Companion) *symbol.File {
	if n := len(c.Refused); n > 0 {
		o.trace(Step{Place: ForSplitUnits, Path: c.Refused[n-1], Why: reason.FileChanged})
	}
	for _, path := range o.packagePaths(c) {
		if slices.Contains(c.Refused, path) {
			continue
		}
		file, err := o.openNamed(path, o.isNamed(path))
		if err != nil {
			o.trace(Step{Place: ForSplitUnits, Path: path, Why: whyNot(err)})
			continue
		}
		if !o.mayUse(file) {
			file.Close()
			o.trace(Step{Place: ForSplitUnits, Path: path, Why: reason.NotBelieved})
			continue
		}
		o.trace(Step{Place: ForSplitUnits, Path: path, Why: reason.None})
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
	names := slices.Concat(f.namesOf(c.Package), f.namesOf(c.From))
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
func (f *Finder) namesOf(name string) []string {
	if name == "" {
		return nil
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return nil
	}
	if real, err := f.view().RealPath(name); err == nil {
		return unique([]string{name, real})
	}
	return []string{name}
}

// dirsOf returns the directories that namesOf are in.
func (f *Finder) dirsOf(name string) []string {
	var dirs []string
	for _, n := range f.namesOf(name) {
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
