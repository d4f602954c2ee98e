package debuginfo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/trust"
	"hallmark/reason"
	"hallmark/symbol"
)

// search is one search.
type search struct {
	*Finder
	Query
	ctx  context.Context
	file *symbol.File  // the file itself, once it is found
	why  reason.Reason // why nothing is found
	// program is whose word the file is.
	program func() belief
	lent    bool // the debug file counts only because the user has named it
	others  bool // files of another content have the identity
	// unbelieved says that there are indexes of the identity, whether they may answer or not.
	unbelieved bool

	// common judges files that hold what several debug files have in common, which is what
	// is looked for; nil if it is not.
	common func(*symbol.File) bool
}

func (f *Finder) newSearch(ctx context.Context, q Query) *search {
	if q.Content.IsZero() {
		q.Content = q.ID.Content()
	}
	s := &search{Finder: f, ctx: ctx, Query: q, why: reason.NoFile, others: q.Rival}
	s.program = sync.OnceValue(func() belief { return beliefOf(s.file, s.isNamed(AtPath, s.file.Name())) })
	return s
}

// found is what a search has found.
type found struct {
	file    *symbol.File    // the program, its debug file, or both joined; nil for nothing
	content buildid.Content // of the program, as far as it is known
	program func() belief   // whose word the program is, or the debug file alone
	opener  *opener         // of the files that the debug information refers to
	lent    bool            // a debug file counts only because the user has named it
}

// isLent reports whether the file answers from one that counts only because the user has
// named it.
func (f *found) isLent() bool { return f.lent || f.opener != nil && f.opener.lent.Load() }

// complete looks for the debug file of the file that was found.
func (s *search) complete() (found, reason.Reason) {
	file := s.file
	if file != nil && file.DebugSize() > 0 {
		return s.result(file), reason.None
	}
	if file != nil && s.ID.Kind() == buildid.ByContent {
		if claimed, err := Identify(file); err == nil {
			s.ID = claimed // debug files know no other
		}
	}
	debug := s.find(wantDebug)
	if file == nil && (debug == nil || !hasCode(debug)) {
		if file = s.fetch(wantFile); file != nil && debug != nil && !fits(file, debug) {
			s.differ(file.Name(), debug.Name())
			debug.Close()
			debug = nil
		}
	}
	switch {
	case file != nil && debug != nil:
		s.file = file
		return s.result(symbol.Join(file, debug)), reason.None
	case file != nil:
		s.file = file
		return s.result(file), reason.None
	case debug != nil && s.others && !hasCode(debug):
		debug.Close() // it may belong to any of them
		return found{}, reason.DifferentContent
	case debug != nil:
		s.file = debug
		return s.result(debug), reason.None
	}
	if s.others && s.why == reason.NoFile {
		s.why = reason.DifferentContent
	}
	return found{}, s.why
}

// result returns what was found, whose program is s.file.
func (s *search) result(file *symbol.File) found {
	o := &opener{Finder: s.Finder, program: s.program}
	if file.Companion == nil {
		file.Companion = o.open
	}
	return found{file: file, content: s.Content, program: s.program, opener: o, lent: s.lent}
}

// close closes the file that the search took over, or has found.
func (s *search) close() {
	if s.file != nil {
		s.file.Close()
	}
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
	opened, err := s.openNamed(path, s.isChosen(place, path))
	file, why := ifIs(s.ID, opened, err)
	if file == nil && place == ByDebugLink {
		if file = s.openLinked(path); file != nil {
			why = reason.None
		}
	}
	if file != nil {
		if why = s.judge(place, w, file); why != reason.None {
			file.Close()
			file = nil
		}
	}
	s.note(Step{Place: place, Path: path, Why: why})
	return file
}

// isChosen reports whether the user or the system chose a path of a place, and nobody else.
func (s *search) isChosen(place Place, path string) bool {
	return place != AtPath && place != ByDebugLink || s.isNamed(place, path)
}

// judge returns why a file with the identity is not the one that is wanted.
func (s *search) judge(place Place, w want, file *symbol.File) reason.Reason {
	if place != AtPath && place != KernelTrees && s.common == nil && !suits(file, w) {
		return reason.NoSymbolTable
	}
	if w == wantFile {
		return s.judgeProgram(place, file)
	}
	return s.judgeDebug(place, file)
}

// judgeProgram returns why a file is not the program.
func (s *search) judgeProgram(place Place, file *symbol.File) reason.Reason {
	code := hasCode(file)
	mayBeOthers := place == AtPath && code && !s.isShared(file.Name())
	if !mayBeOthers && !s.beliefIn(place, file).isBelieved() {
		return reason.NotBelieved
	}
	if !code || s.ofKernel() || s.Content.IsZero() {
		return reason.None
	}
	read := readContent
	if place == AtPath {
		read = readMapped // what its sections say of code is no reason
	}
	content, err := read(s.ctx, file)
	switch {
	case err != nil:
		return whyNot(err)
	case content != s.Content:
		s.differ(file.Name(), s.wanted())
		return reason.DifferentContent
	}
	return reason.None
}

// wanted says which file is looked for, to show.
func (s *search) wanted() string {
	if len(s.Paths) > 0 {
		return s.Paths[0] + " (as it was recorded)"
	}
	return "the file that was recorded"
}

// judgeDebug returns why a file is not the debug file.
func (s *search) judgeDebug(place Place, file *symbol.File) reason.Reason {
	switch {
	case s.common != nil && s.common(file):
		return reason.None
	case s.common != nil:
		return reason.NotBelieved
	case s.file == nil && !s.beliefIn(place, file).isBelieved():
		return reason.NotBelieved
	case s.file == nil && hasCode(file):
		return s.judgeProgram(place, file)
	case s.file == nil:
		return reason.None
	case !fits(s.file, file) && !(place == ByDebugLink && s.isLinked(file)):
		s.differ(s.file.Name(), file.Name())
		return reason.DifferentContent
	}
	b := s.beliefIn(place, file)
	if !b.mayName(s.program()) {
		return reason.NotBelieved
	}
	if s.others && !b.isOfOwner(s.program()) && (!b.named || place == OnServers) {
		return reason.DifferentContent // it may belong to any of them
	}
	s.lent = b.isLent(s.program())
	return reason.None
}

// beliefIn returns whose word a file is that lies in a place.
func (s *search) beliefIn(place Place, file *symbol.File) belief {
	b := beliefOf(file, s.isNamed(place, file.Name()))
	switch {
	case place == PerfCache && os.Geteuid() == 0:
		b.level = trust.Others // perf, run by root, copies the files of all users to it
	case (place == PerfCache || place == DebuginfodCache) && b.isOwn && trust.PrivateDir(filepath.Dir(file.Name())):
		b.level = max(b.level, trust.Own)
	}
	return b
}

// isNamed reports whether the user has named a file, or the directory that it is in.
func (s *search) isNamed(place Place, path string) bool {
	return place == OnServers || slices.Contains(s.Named, path) || s.Finder.isNamed(path)
}

// isNamed reports whether a path is one of Extra or Package, or below a directory of Extra
// or Dirs that is not one of the system's.
func (f *Finder) isNamed(path string) bool {
	if path == "" {
		return false
	}
	if path == f.Package {
		return true
	}
	path = absolute(path)
	for _, dir := range slices.Concat(f.Extra, f.Dirs) {
		isDefault := slices.Contains(DefaultDirs, dir) && !slices.Contains(f.Extra, dir)
		if dir = absolute(dir); !isDefault && (path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")) {
			return true
		}
	}
	return false
}

func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

// fetch asks the servers for a file.
func (s *search) fetch(w want) *symbol.File {
	if s.Local || s.Servers == nil || len(s.Servers.URLs) == 0 || s.ID.Kind() != buildid.GNU || !slices.Contains(s.places(), OnServers) {
		return nil
	}
	if s.file != nil && slices.Contains(s.file.Sources(), symbol.SourcePclntab) {
		return nil // Go's own tables have lines and inlined calls
	}
	step := Step{Place: OnServers, Path: s.Servers.String() + "/buildid/" + s.ID.String() + "/" + string(w)}
	path, err := s.Servers.Fetch(s.ctx, s.ID, w)
	var file *symbol.File
	switch {
	case err == nil:
		if file, step.Why = open(s.ID, path); file == nil {
			break
		}
		if step.Why = s.judge(OnServers, w, file); step.Why != reason.None {
			file.Close()
			file = nil
		}
	case errors.Is(err, debuginfod.ErrNotFound):
		step.Why = reason.NoFile
	default:
		step.Why, step.Err = reason.ServerFailed, err
	}
	s.note(step)
	return file
}

// note keeps why nothing is found, and reports the step. Where all sorts of files are,
// others are no reason; a file of another content is the best one.
func (s *search) note(step Step) {
	others := step.Why == reason.FileChanged && (step.Place == KernelTrees || step.Place == InExtra)
	if s.why == reason.NoFile && step.Why != reason.None && !others || step.Why == reason.DifferentContent {
		s.why = step.Why
	}
	if s.Trace != nil {
		s.Trace(s.ID, step)
	}
}

// differ notes that two files have the identity and different contents.
func (s *search) differ(one, other string) {
	s.others = true
	s.tellDifferent(one, other)
}

// tellDifferent reports it, once for an identity.
func (s *search) tellDifferent(one, other string) {
	if s.Differ == nil {
		return
	}
	if _, again := s.told.LoadOrStore(s.ID, true); !again {
		s.Differ(s.ID, [2]string{one, other})
	}
}

// sameFile reports whether two files are one, by two names.
func sameFile(a, b *symbol.File) bool {
	one, other := a.Stored(), b.Stored()
	if one == nil || other == nil {
		return false
	}
	first, err := one.Stat()
	second, again := other.Stat()
	return err == nil && again == nil && os.SameFile(first, second)
}
