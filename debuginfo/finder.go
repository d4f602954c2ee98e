package debuginfo

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"hallmark/buildid"
	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/mounts"
	"hallmark/internal/trust"
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

	// Careful says that nothing may wait: what a process, a recording or a file calls by a path
	// is left alone if the path leads through a file system that a program or another machine
	// serves. Without Careful only the servers of other users are left alone.
	Careful bool

	// Trace is called with each step of each search, in its order; nil for no call. It is
	// called by the goroutines of several searches. The identity is zero where a package
	// of split units is looked for.
	Trace func(buildid.ID, Step)

	// Differ is called with files that have one build ID and different contents, of two of them
	// for each identity; nil for no call. A debug file that has not the program headers of the
	// program counts. It is called by the goroutines of several searches.
	Differ func(buildid.ID, [2]string)

	// Lacks is called with the file whose debug information is in part in another one that is not found, and with that
	// one's name. It may be called for each part of a file, by several goroutines; nil for no call.
	Lacks func(from, name string)

	// Uncompared is called with the path of each debug file that a Library answers from without its
	// program, whose code was compared with nothing; nil for no call. It is called by the goroutines
	// of several searches.
	Uncompared func(id buildid.ID, path string)

	told sync.Map // of the identities that Differ knows

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
	ID buildid.ID
	// Content is that of the file, zero if it is not known.
	Content buildid.Content
	// Rival says that files of other content claim the identity, and that this one is not known
	// to be the one that may: a debug file counts only if it is the program's owner's, or named.
	Rival bool
	Paths []string // where the file itself may be

	// Named are files that the user has named, one of which may be the file. They are looked
	// at before Paths.
	Named []string

	// Kernel says that the file is a kernel, and Module that it is a kernel module with
	// this name, which distributions do not find by a build ID.
	Kernel bool
	Module string

	// Mapped are mappings of the file's code. A Library finds offsets by them where it has a debug file
	// alone, which does not know where in memory the bytes of its program are.
	Mapped []symbol.Mapping

	// File is the file itself, if somebody has opened it. The search takes it over.
	File *symbol.File

	// Local asks no server.
	Local bool
}

// ofKernel reports whether the kernel itself has named the file. Of its code nobody has the
// content.
func (q *Query) ofKernel() bool { return q.Kernel || q.Module != "" }

// Search returns the file with an identity, joined with its debug file, or one of them
// if the other is not found, for the caller to close. With neither the error is the reason.Reason why the
// first file that was there is not the one. Servers are asked until ctx is done.
//
// A build ID is a claim. A file whose content is not that of the Query is not the file;
// where the content is not known, files that others can have written count only in the
// Paths, and nothing is returned if there are several contents that are believed equally.
// A debug file must have the program headers of the file, and be as trustworthy. Where files of
// other content have the build ID, it must be of the owner of the file, or named.
func (f *Finder) Search(ctx context.Context, q Query) (*symbol.File, error) {
	s := f.newSearch(ctx, q)
	if why := s.findProgram(nil); why != reason.None {
		return nil, why
	}
	found, why := s.complete()
	if found.file == nil {
		return nil, why
	}
	return found.file, nil
}

// Open returns what Search finds on this machine. The candidates are paths where the
// file itself may be.
func (f *Finder) Open(id buildid.ID, candidates ...string) (*symbol.File, error) {
	return f.Search(context.Background(), Query{ID: id, Paths: candidates, Local: true})
}

// Complete returns file, whose identity is id, joined with its debug file if that is on
// this machine and has more to say; or file itself. Closing what it returns closes both.
func (f *Finder) Complete(id buildid.ID, file *symbol.File) *symbol.File {
	file, _ = f.Search(context.Background(), Query{ID: id, File: file, Local: true})
	return file
}

// Find returns the path on this machine of the debug file with this identity. The error is
// the reason.Reason why there is none.
func (f *Finder) Find(id buildid.ID) (path string, err error) {
	s := f.localSearch(id)
	file := s.find(wantDebug)
	if file == nil {
		return "", s.why
	}
	defer file.Close()
	return file.Name(), nil
}

func (f *Finder) localSearch(id buildid.ID) *search {
	return f.newSearch(context.Background(), Query{ID: id, Local: true})
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

// view returns which file systems are believed to answer, on the ways of paths that somebody
// else chose.
func (f *Finder) view() *mounts.View {
	if f.Careful {
		return new(mounts.View)
	}
	return mounts.Ours()
}

// openNamed opens a file by a path that somebody else chose, or that the user did if named.
func (f *Finder) openNamed(path string, named bool) (*symbol.File, error) {
	if named {
		return symbol.OpenFile(path)
	}
	r, err := f.view().OpenFile(path)
	return symbol.Take(r, path, err)
}

// OpenOwned opens the file with this identity at a path of this process's mount namespace, for the caller to close,
// if this user owns it on a file system that shows true owners. The error is the reason.Reason why there is none.
func (f *Finder) OpenOwned(id buildid.ID, path string, uid int64) (*symbol.File, error) {
	r, err := f.view().OpenFile(path)
	if err != nil {
		return nil, whyNot(err)
	}
	if owner, ok := trust.Owner(r); !ok || int64(owner) != uid {
		r.Close()
		return nil, reason.NotBelieved
	}
	file, err := symbol.Take(r, path, nil)
	file, why := ifIs(id, file, err)
	return file, why.Err()
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
func hasCode(file *symbol.File) bool { return file.HasCode() }

// open opens the file at path if its identity is id, or is what perf calls id, and else
// says why not.
func open(id buildid.ID, path string) (*symbol.File, reason.Reason) {
	file, err := symbol.OpenFile(path)
	return ifIs(id, file, err)
}

// ifIs returns the file that was opened if its identity is id, and else says why not.
func ifIs(id buildid.ID, file *symbol.File, err error) (*symbol.File, reason.Reason) {
	if err != nil {
		return nil, whyNot(err)
	}
	if id.Kind() == buildid.ByContent && contentOf(context.Background(), file) == id.Content() {
		return file, reason.None
	}
	got, err := Identify(file)
	if err == nil && !id.IsZero() && (got == id || got.GNUForm() == id || isHash(file, id)) {
		return file, reason.None
	}
	file.Close()
	if err != nil {
		return nil, whyNot(err)
	}
	return nil, reason.FileChanged
}

// isHash reports whether an identity of kind HTL is the hash of a file. It is all that
// OpenTelemetry's profiles and Hallmark's older ones know of files without a build ID.
func isHash(file *symbol.File, id buildid.ID) bool {
	if id.Kind() != buildid.HTL {
		return false
	}
	r, ok := file.Reader().(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := r.Stat()
	if err != nil {
		return false
	}
	got, err := buildid.Hash(file.Reader(), info.Size())
	return err == nil && got == id
}

// whyNot says why a file could not be used.
func whyNot(err error) reason.Reason {
	var damaged *symbol.FormatError
	switch {
	case errors.Is(err, mounts.ErrForeign), errors.Is(err, syscall.EAGAIN): // somebody has a lease on it
		return reason.FileUnresponsive
	case errors.Is(err, fs.ErrNotExist):
		return reason.NoFile
	case errors.Is(err, fs.ErrPermission):
		return reason.NotPermitted
	case errors.Is(err, symbol.ErrNotELF):
		return reason.FileChanged
	case errors.Is(err, buildid.ErrChanging):
		return reason.FileWritten
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
