package debuginfo

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/reason"
	"hallmark/symbol"
)

// DefaultDirs are the directories under which distributions install debug files.
var DefaultDirs = []string{"/usr/lib/debug"}

// A Place is a kind of place where files are looked for.
type Place string

// The places.
const (
	AtPath          Place = "path"             // where the file is said to be
	KernelTrees     Place = "kernel-trees"     // where distributions put kernels, modules and their debug files
	InDirs          Place = "build-id"         // DIR/.build-id/xx/yyyy.debug of Finder.Dirs
	ByDebugLink     Place = "debuglink"        // the name in the file's .gnu_debuglink: beside it, in .debug there, and under Finder.Dirs
	PerfCache       Place = "perf-cache"       // ~/.debug/.build-id/xx/yyyy, which perf fills
	DebuginfodCache Place = "debuginfod-cache" // what any debuginfod client has fetched
	InExtra         Place = "extra"            // Finder.Extra
	OnServers       Place = "debuginfod"       // Finder.Servers
	ForSplitUnits   Place = "dwp"              // Finder.Package, PROG.dwp: packages of split units, not in Order
)

// Order is the order in which the places are looked at: for a file, and then for its
// debug file if the file does not have the debug information itself.
var Order = []Place{AtPath, KernelTrees, InDirs, ByDebugLink, PerfCache, DebuginfodCache, InExtra, OnServers}

// A Finder finds files by identity. The zero value looks at all places of this machine
// and asks no server. Its fields must not change after its first use; its methods may
// be called by several goroutines at once.
type Finder struct {
	// Places are looked at in their order; nil means Order.
	Places []Place

	// Dirs are searched in this order for .build-id/xx/yyyy.debug. Nil means
	// DefaultDirs; an empty list means nowhere.
	Dirs []string

	// Extra are files, and directories of files: trees with a .build-id in them, and
	// others, whose ELF files are all looked at once.
	Extra []string

	// Package is a package of split units (.dwp) to look at before those that are beside a
	// program or its debug file; "" for none.
	Package string

	// Servers are asked for what is found nowhere else; nil for none.
	Servers *debuginfod.Client

	// Trace is told of each step of each search, in its order; nil for no call. It is
	// called by the goroutines of several searches. The identity is zero where a package
	// of split units is looked for.
	Trace func(buildid.ID, Step)

	scan    sync.Once
	scanned map[buildid.ID][]string // the files in plain directories of Extra

	walk    sync.Once
	modules map[string][]string // the files of kernel modules, by their names
}

// A Step is one file that a search looked for.
type Step struct {
	Place Place
	Path  string        // or the URLs of the servers
	Why   reason.Reason // why it was not used; None if it was
	Err   error         // what went wrong, where there is more to say
}

// A Query says what is looked for.
type Query struct {
	ID    buildid.ID
	Paths []string // where the file itself may be

	// Kernel says that the file is a kernel, and Module that it is a kernel module with
	// this name, which distributions do not find by a build ID.
	Kernel bool
	Module string

	// File is the file itself, if somebody has opened it. The search takes it over.
	File *symbol.File

	// Local asks no server.
	Local bool
}

// Search returns the file with an identity, joined with its debug file, or one of them
// if the other is not found, for the caller to close. With neither it returns why the
// first file that was there is not the one. Servers are asked until ctx is done.
func (f *Finder) Search(ctx context.Context, q Query) (*symbol.File, reason.Reason) {
	file, why := f.search(ctx, q)
	if file != nil && file.Companion == nil {
		file.Companion = f.Companion
	}
	return file, why
}

func (f *Finder) search(ctx context.Context, q Query) (*symbol.File, reason.Reason) {
	s := &search{Finder: f, ctx: ctx, Query: q, why: reason.NoFile}
	file := q.File
	if file == nil {
		file = s.find(wantFile)
	}
	if file != nil && file.DebugSize() > 0 {
		return file, reason.None
	}
	s.file = file
	debug := s.find(wantDebug)
	if file == nil && (debug == nil || !hasCode(debug)) {
		file = s.fetch(wantFile)
	}
	switch {
	case file != nil && debug != nil:
		return symbol.Join(file, debug), reason.None
	case file != nil:
		return file, reason.None
	case debug != nil:
		return debug, reason.None
	}
	return nil, s.why
}

// Open returns what Search finds on this machine. The candidates are paths where the
// file itself may be.
func (f *Finder) Open(id buildid.ID, candidates ...string) (*symbol.File, reason.Reason) {
	return f.Search(context.Background(), Query{ID: id, Paths: candidates, Local: true})
}

// Complete returns file, whose identity is id, joined with its debug file if that is on
// this machine and has more to say; or file itself. Closing what it returns closes both.
func (f *Finder) Complete(id buildid.ID, file *symbol.File) *symbol.File {
	file, _ = f.Search(context.Background(), Query{ID: id, File: file, Local: true})
	return file
}

// Find returns the path on this machine of the debug file with this identity, or why
// there is none.
func (f *Finder) Find(id buildid.ID) (path string, why reason.Reason) {
	s := f.localSearch(id)
	file := s.find(wantDebug)
	if file == nil {
		return "", s.why
	}
	defer file.Close()
	return file.Name(), reason.None
}

func (f *Finder) localSearch(id buildid.ID) *search {
	return &search{Finder: f, ctx: context.Background(), Query: Query{ID: id, Local: true}, why: reason.NoFile}
}

func (f *Finder) places() []Place {
	if f.Places == nil {
		return Order
	}
	return f.Places
}

func (f *Finder) dirs() []string {
	if f.Dirs == nil {
		return DefaultDirs
	}
	return f.Dirs
}

// want is which of the files of an identity is looked for.
type want = debuginfod.File

const (
	wantFile  = debuginfod.Executable
	wantDebug = debuginfod.DebugInfo
)

// search is one search.
type search struct {
	*Finder
	Query
	ctx  context.Context
	file *symbol.File  // the file itself, once it is found
	why  reason.Reason // why nothing is found

	supplementary bool // the debug file is one that holds what several have in common
}

// find looks at all places for a file.
func (s *search) find(w want) *symbol.File {
	for _, place := range s.places() {
		if place == OnServers {
			if w == wantDebug {
				if file := s.fetch(w); file != nil {
					return file
				}
			}
			continue
		}
		for _, path := range s.paths(place, w) {
			if file := s.try(place, w, path); file != nil {
				return file
			}
		}
	}
	return nil
}

// try opens the file at path if it is the one.
func (s *search) try(place Place, w want, path string) *symbol.File {
	file, why := open(s.ID, path)
	if file == nil && place == ByDebugLink {
		if file = s.openLinked(path); file != nil {
			why = reason.None
		}
	}
	if file != nil && place != AtPath && place != KernelTrees && !s.supplementary && !suits(file, w) {
		file.Close()
		file, why = nil, reason.NoSymbolTable
	}
	s.note(Step{Place: place, Path: path, Why: why})
	return file
}

// suits reports whether a file is of use as the file itself, or as a debug file.
func suits(file *symbol.File, w want) bool {
	if w == wantFile {
		return hasCode(file)
	}
	return file.DebugSize() > 0 || slices.Contains(file.Sources(), symbol.SourceSymtab)
}

// hasCode reports whether the file holds the code that its headers speak of: a debug
// file does not.
func hasCode(file *symbol.File) bool { return holdsCode(file.Segments()) }

func holdsCode(segments []symbol.Segment) bool {
	return slices.ContainsFunc(segments, func(s symbol.Segment) bool { return s.Executable() && s.FileSize > 0 })
}

// fetch asks the servers for a file.
func (s *search) fetch(w want) *symbol.File {
	if s.Local || s.Servers == nil || len(s.Servers.URLs) == 0 || s.ID.Kind() != buildid.GNU || !slices.Contains(s.places(), OnServers) {
		return nil
	}
	if s.file != nil && slices.Contains(s.file.Sources(), symbol.SourcePclntab) {
		return nil // Go's own tables tell lines and inlined calls
	}
	step := Step{Place: OnServers, Path: s.Servers.String() + "/buildid/" + s.ID.String() + "/" + string(w)}
	path, err := s.Servers.Fetch(s.ctx, s.ID, w)
	var file *symbol.File
	switch {
	case err == nil:
		file, step.Why = open(s.ID, path)
	case errors.Is(err, debuginfod.ErrNotFound):
		step.Why = reason.NoFile
	default:
		step.Why, step.Err = reason.ServerFailed, err
	}
	s.note(step)
	return file
}

// note keeps why nothing is found, and tells of the step. Where all sorts of files are,
// others are no reason.
func (s *search) note(step Step) {
	others := step.Why == reason.FileChanged && (step.Place == KernelTrees || step.Place == InExtra)
	if s.why == reason.NoFile && step.Why != reason.None && !others {
		s.why = step.Why
	}
	if s.Trace != nil {
		s.Trace(s.ID, step)
	}
}

// open opens the file at path if its identity is id, or is what perf calls id, and else
// says why not.
func open(id buildid.ID, path string) (*symbol.File, reason.Reason) {
	file, err := symbol.OpenFile(path)
	if err != nil {
		return nil, whyNot(err)
	}
	got, err := Identify(file)
	if err == nil && !id.IsZero() && (got == id || got.GNUForm() == id) {
		return file, reason.None
	}
	file.Close()
	if err != nil {
		return nil, whyNot(err)
	}
	return nil, reason.FileChanged
}

// whyNot says why a file could not be used.
func whyNot(err error) reason.Reason {
	var damaged *symbol.FormatError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reason.NoFile
	case errors.Is(err, fs.ErrPermission):
		return reason.NotPermitted
	case errors.Is(err, symbol.ErrNotELF):
		return reason.FileChanged
	case errors.As(err, &damaged), errors.Is(err, buildid.ErrFormat):
		return reason.FileDamaged
	default:
		return reason.FileGone
	}
}

// byBuildID returns where a directory has the file of a GNU build ID, without a suffix.
func byBuildID(dir string, id buildid.ID) (path string, ok bool) {
	if id.Kind() != buildid.GNU || len(id.Bytes()) < 2 {
		return "", false
	}
	name := id.String()
	return filepath.Join(dir, ".build-id", name[:2], name[2:]), true
}
