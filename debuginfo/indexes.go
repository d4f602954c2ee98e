package debuginfo

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
	"hallmark/reason"
	"hallmark/symbol"
)

// Indexes are the indexes that were made on this machine, one for each identity and
// content: a build ID is a claim, and two files may have the same one. The zero value keeps
// them where the user's caches are. Several processes may use the same directory at once. It
// is used only if nobody but this user and root can change what is in it, or where its path
// leads: see Check.
type Indexes struct {
	// Dir is the directory they are in; "" means hallmark/index in the user's cache
	// directory ($XDG_CACHE_HOME, ~/.cache). That is root's own for root in the environment
	// of another user.
	Dir string

	// MaxSize is how many bytes all of them may have: when more are stored, those that
	// nobody used for longest go. 0 means DefaultMaxSize, or a tenth of the disk if
	// that is less.
	MaxSize int64
}

// DefaultMaxSize of all indexes together, in bytes.
const DefaultMaxSize = 5 << 30

// suffix of the names of indexes. That of every version of the format ends with anySuffix: indexes of several versions
// of this program lie beside each other, and those that nobody uses any more are the first to go.
const (
	anySuffix = ".index"
	suffix    = "." + symbol.IndexVersion + anySuffix
)

// Path returns where the index of a file is or would be.
func (c *Indexes) Path(o Origin) (string, error) {
	files, err := c.files()
	if err != nil {
		return "", err
	}
	return files.Name(o.ID, o.names()...), nil
}

func (c *Indexes) files() (*cachedir.Dir, error) {
	return c.filesOf(suffix)
}

// filesOf returns the directory with the files of a suffix.
func (c *Indexes) filesOf(suffix string) (*cachedir.Dir, error) {
	files := &cachedir.Dir{Suffix: suffix, LockSuffix: lockSuffix}
	var err error
	if c.Dir == "" {
		files.Path, err = cachedir.InUserCache("index")
	} else {
		files.Path, err = filepath.Abs(c.Dir)
	}
	return files, err
}

// ErrShared says that a directory is not used for indexes, nor for debug files from servers,
// because of those who could change what is in it. It arrives wrapped in a *fs.PathError.
var ErrShared = cachedir.ErrShared

// Check returns why no index is kept or looked for, nil if indexes are.
func (c *Indexes) Check() error {
	files, err := c.files()
	if err != nil {
		return err
	}
	return files.Check()
}

// ErrDifferentContent says that the files of an identity have different contents, and that
// none of them is believed more than the others.
var ErrDifferentContent = errors.New(reason.DifferentContent.String())

// Open returns the index of the file with an identity and a content, for the caller to
// close. It is one of a file that only root or this user can have written. Of unknown
// content, which is the zero one, it is the index of the file that is believed most, also
// one of others that the user asked for, or the error is ErrDifferentContent. If there is
// none the error wraps fs.ErrNotExist; one that is damaged, of another version or of another
// identity counts as none.
func (c *Indexes) Open(id buildid.ID, content buildid.Content) (*symbol.Index, error) {
	s := new(Finder).localSearch(id)
	if s.Content.IsZero() {
		s.Content = content
	}
	if !s.Content.IsZero() {
		return c.open(Origin{ID: id, Content: s.Content, Author: AuthorRoot})
	}
	kept, err := c.kept(id)
	if err != nil {
		return nil, err
	}
	var why reason.Reason
	if s.Content, why = s.decide(claimsOf(kept)); why != reason.None {
		closeKept(kept, nil)
		return nil, ErrDifferentContent
	}
	x := s.choice(kept)
	closeKept(kept, x)
	if x == nil {
		return nil, &fs.PathError{Op: "open", Path: id.String(), Err: fs.ErrNotExist}
	}
	return x, nil
}

// open opens the index that is kept under the name for an origin.
func (c *Indexes) open(o Origin) (*symbol.Index, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	name := files.Name(o.ID, o.names()...)
	k, err := c.openKept(files, name, o.ID)
	return k.Index, err
}

// openKept opens the index that is kept under a name. If it is not of the identity, or others
// can have written it, the error wraps fs.ErrNotExist.
func (c *Indexes) openKept(files *cachedir.Dir, name string, id buildid.ID) (keptIndex, error) {
	none := &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	f, err := files.Open(name)
	if errors.Is(err, cachedir.ErrNotOwn) {
		return keptIndex{}, none
	}
	if err != nil {
		return keptIndex{}, err
	}
	defer f.Close()
	x, err := symbol.MapIndex(f)
	var damaged *symbol.FormatError
	if errors.As(err, &damaged) {
		files.Discard(name, err)
		return keptIndex{}, none
	}
	if err != nil {
		return keptIndex{}, err
	}
	k := keptIndex{x, OriginOf(x)}
	if !c.isNamedFor(name, k.Origin, id) {
		x.Close()
		return keptIndex{}, none
	}
	cachedir.Used(f)
	return k, nil
}

// isNamedFor reports whether an index of this origin has this name, and is of an identity.
func (c *Indexes) isNamedFor(name string, o Origin, id buildid.ID) bool {
	own, err := c.Path(o)
	return err == nil && own == name && o.ID == id && o.Author != ""
}

// A keptIndex is an open index, and the file that it was made of.
type keptIndex struct {
	*symbol.Index
	Origin
}

// shownPath returns the path of the file that the index was made of, which may be another
// one by now.
func (k *keptIndex) shownPath() string { return k.Origin.Path + " (its index)" }

// isOfAnother reports whether the index is known to be of another content.
func (k *keptIndex) isOfAnother(content buildid.Content) bool {
	return !k.Content.IsZero() && !content.IsZero() && k.Content != content
}

// maxKept is how many indexes of an identity are looked at. Others may write many files that
// claim it.
const maxKept = 256

// kept opens all indexes of files that have an identity.
func (c *Indexes) kept(id buildid.ID) ([]keptIndex, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	names, err := files.Names(id)
	if err != nil {
		return nil, err
	}
	// Names of files that are believed are shorter than those of others.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	names = names[:min(len(names), maxKept)]
	var all []keptIndex
	for _, name := range names {
		if k, err := c.openKept(files, name, id); err == nil {
			all = append(all, k)
		}
	}
	return all, nil
}

// closeKept closes all indexes but one.
func closeKept(kept []keptIndex, but *symbol.Index) {
	for _, k := range kept {
		if k.Index != but {
			k.Index.Close()
		}
	}
}

// Store keeps an index, in place of an earlier one of the same origin, and returns its
// path. It is there as a whole or not at all.
func (c *Indexes) Store(x *symbol.Index) (string, error) {
	files, err := c.files()
	if err != nil {
		return "", err
	}
	o := OriginOf(x)
	if o.Author == "" {
		return "", errNoOrigin
	}
	name := files.Name(o.ID, o.names()...)
	err = files.Write(name, func(w io.Writer) error {
		_, err := w.Write(x.Bytes())
		return err
	})
	if err != nil {
		return "", err
	}
	most := c.MaxSize
	if most <= 0 {
		most = files.Limit(DefaultMaxSize)
	}
	if files, err = c.filesOf(anySuffix); err == nil {
		_ = files.Prune(name, most) // what was stored is there
	}
	return name, nil
}

var errNoOrigin = errors.New("index that does not say of which file it was made")

// discard removes an index that is damaged.
func (c *Indexes) discard(x *symbol.Index, damage error) {
	if files, err := c.files(); err == nil {
		files.Discard(x.Name(), damage)
	}
}

// A Kept is an index that is kept.
type Kept = cachedir.File

// List returns all indexes, those of other versions too, those first that nobody used for longest.
func (c *Indexes) List() ([]Kept, error) {
	files, err := c.filesOf(anySuffix)
	if err != nil {
		return nil, err
	}
	return files.List()
}

// Prune removes the indexes that nobody used for longest, until those that stay have at
// most max bytes. A process that has one of them open keeps it until it closes it.
func (c *Indexes) Prune(max int64) error {
	files, err := c.filesOf(anySuffix)
	if err != nil {
		return err
	}
	return files.Prune("", max)
}

// choice returns the index that may answer for what is looked for, nil if there is none.
func (s *search) choice(kept []keptIndex) *symbol.Index {
	var best *symbol.Index
	found := rankOthers
	for _, k := range kept {
		r := k.rank()
		switch {
		case k.isOf(s.file):
			r = rankRoot
		case r == rankOthers, r == rankNamed && s.file != nil:
			continue
		}
		if k.Content != s.Content && !s.takesUnknown(k) {
			continue
		}
		if best == nil || r > found || r == found && IsComplete(k.Index) && !IsComplete(best) {
			best, found = k.Index, r
		}
	}
	return best
}

// takesUnknown reports whether an index may answer though its content is not known: one of
// what the kernel reports, or of a debug file alone where nothing else is known.
func (s *search) takesUnknown(k keptIndex) bool {
	return k.Content.IsZero() && (s.ofKernel() || !s.others && (s.file == nil || k.isOf(s.file)))
}
