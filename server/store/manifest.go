package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"hallmark/buildid"
)

// Trust says how far the word of whoever brought a file is believed, the least first. A file of
// less trust never takes the place of one of more.
type Trust string

// The levels of trust.
const (
	Agent    Trust = "agent"    // an agent on a machine sent it: believed where nobody else sent anything
	Upstream Trust = "upstream" // another server sent it
	CI       Trust = "ci"       // whoever builds the programs sent it
	Operator Trust = "operator" // it is in a directory that the server was started with, or an administrator sent it
)

var trusts = []Trust{Agent, Upstream, CI, Operator}

func (t Trust) rank() int { return slices.Index(trusts, t) }

// ParseTrust returns the level with this name.
func ParseTrust(s string) (Trust, error) {
	if t := Trust(s); slices.Contains(trusts, t) {
		return t, nil
	}
	return "", fmt.Errorf("%q is no level of trust: agent, upstream, ci, operator", s)
}

// An Origin says where a file came from.
type Origin struct {
	Trust   Trust     `json:"trust"`
	Via     string    `json:"via"`               // "push", "scan" or "upstream"
	Who     string    `json:"who,omitempty"`     // name of the token, URL of the server
	Path    string    `json:"path,omitempty"`    // name of the file, in the archive if there is one
	Archive string    `json:"archive,omitempty"` // name of the package
	Package string    `json:"package,omitempty"` // NAME VERSION ARCHITECTURE, as the package says
	Build   string    `json:"build,omitempty"`   // NAME VERSION of the source package
	Time    time.Time `json:"time"`              // when the store got it
	// Modified is when the file was changed last, as its file system, its package or whoever sent it says; zero where
	// that is not known.
	Modified time.Time `json:"modified,omitzero"`
}

// same reports whether two origins differ in nothing but times.
func (o Origin) same(p Origin) bool {
	o.Time, p.Time, o.Modified, p.Modified = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return o == p
}

// LastModified returns when the file of an origin was changed last, or when the store got it where that is not known.
func (o Origin) LastModified() time.Time {
	if o.Modified.IsZero() {
		return o.Time
	}
	return o.Modified
}

// A File is one of the files of an identity.
type File struct {
	Object string `json:"object"`        // SHA-256 of its bytes
	Key    string `json:"key,omitempty"` // name of the object that holds them; "" where it is Object
	Size   int64  `json:"size"`          // in bytes
	Facts
	Origins []Origin `json:"origins"` // the most trusted first
	// MoreNames says that the file came under other names, too, for which there was no room in Origins.
	MoreNames bool `json:"more_names,omitempty"`
}

// sameName reports whether a file came under one name by two origins.
func (o Origin) sameName(p Origin) bool { return o.Path == p.Path && o.Archive == p.Archive }

// HasName reports whether the identity has a file that came under the name of an origin, or came under more names than
// are kept.
func (m *Manifest) HasName(object string, o Origin) bool {
	o = o.clean()
	return o.Path == "" || slices.ContainsFunc(m.Files, func(f File) bool {
		return f.Object == object && (f.MoreNames || slices.ContainsFunc(f.Origins, o.sameName))
	})
}

// Stored returns the name of the object that holds the bytes: see Store.Object.
func (f *File) Stored() string { return cmp.Or(f.Key, f.Object) }

// Trust returns the level of the best of its origins.
func (f *File) Trust() Trust {
	best := Agent
	for _, o := range f.Origins {
		if o.Trust.rank() > best.rank() {
			best = o.Trust
		}
	}
	return best
}

// LastModified returns when the file was changed last, as its best origin says.
func (f *File) LastModified() time.Time {
	if len(f.Origins) == 0 {
		return time.Time{}
	}
	return f.Origins[0].LastModified()
}

// First returns when the file came first from an origin of its Trust. What less trusted ones sent before does not count.
func (f *File) First() time.Time {
	var first time.Time
	trust := f.Trust()
	for _, o := range f.Origins {
		if o.Trust != trust {
			continue
		}
		if first.IsZero() || o.Time.Before(first) {
			first = o.Time
		}
	}
	return first
}

// A Manifest says which files an identity has.
type Manifest struct {
	Version int        `json:"version"` // 1
	ID      buildid.ID `json:"id"`
	Files   []File     `json:"files"`            // none where it was removed
	Pinned  bool       `json:"pinned,omitempty"` // it is never removed
	Used    string     `json:"used,omitempty"`   // day on which it was asked for last, 2006-01-02
	Life    string     `json:"life,omitempty"`   // another one each time that the identity comes again after it was removed
}

// life returns the part of keys that is the manifest's until the identity is removed.
func (m *Manifest) life() string { return cmp.Or(m.Life, "none") } // versions that removed nothing wrote none

// UsedOn reports whether the manifest has the day of a time, or a later one, as that of its last use.
func (m *Manifest) UsedOn(t time.Time) bool { return m.Used >= t.UTC().Format(time.DateOnly) }

// use notes a use and reports whether that is a change.
func (m *Manifest) use(now time.Time) bool {
	if m.UsedOn(now) {
		return false
	}
	m.Used = now.UTC().Format(time.DateOnly)
	return true
}

// LastUse returns until when the identity may have been used: the end of the day on which it was
// asked for last, or when its newest file came.
func (m *Manifest) LastUse() time.Time {
	var last time.Time
	if day, err := time.Parse(time.DateOnly, m.Used); err == nil {
		last = day.AddDate(0, 0, 1)
	}
	for i := range m.Files {
		for _, o := range m.Files[i].Origins {
			if o.Time.After(last) {
				last = o.Time
			}
		}
	}
	return last
}

const manifestVersion = 1

// Limits on what is kept for one identity. They are per level of trust, so that what an agent
// sends leaves room for the rest.
const (
	maxFiles   = 16
	maxOrigins = 8 // of a file
	maxText    = 1024
)

// TooManyError says that an identity has as many different files of one level of trust as are
// kept.
type TooManyError struct{ ID buildid.ID }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("%v: %d different files have this build ID already", e.ID, maxFiles)
}

// add merges a file into the manifest and reports whether anything changed.
func (m *Manifest) add(f File) (changed bool, err error) {
	i := slices.IndexFunc(m.Files, func(g File) bool { return g.Object == f.Object })
	if i < 0 {
		same := 0
		for j := range m.Files {
			if m.Files[j].Trust() == f.Trust() {
				same++
			}
		}
		if same >= maxFiles {
			return false, &TooManyError{m.ID}
		}
		m.Files = append(m.Files, f)
		return true, nil
	}
	known := &m.Files[i]
	for _, o := range f.Origins {
		if i := slices.IndexFunc(known.Origins, o.same); i >= 0 {
			if !o.Modified.IsZero() && !o.Modified.Equal(known.Origins[i].Modified) {
				known.Origins[i].Modified, changed = o.Modified, true
			}
			continue
		}
		level := 0
		for _, p := range known.Origins {
			if p.Trust == o.Trust {
				level++
			}
		}
		if level < maxOrigins {
			known.Origins = append(known.Origins, o)
			changed = true
		} else if !known.MoreNames && o.Path != "" && !slices.ContainsFunc(known.Origins, o.sameName) {
			known.MoreNames, changed = true, true
		}
	}
	slices.SortStableFunc(known.Origins, func(a, b Origin) int { return cmp.Compare(b.Trust.rank(), a.Trust.rank()) })
	return changed, nil
}

// Executable returns the file that is served as the executable, nil if there is none: that of
// the highest trust, then that which knows most (of lines, that with more of .debug_info), then the
// first that came. See served.
func (m *Manifest) Executable() *File {
	exe, _ := m.served()
	return exe
}

// DebugInfo returns the file that is served as the debug file, nil if there is none. It has
// debug information, and fits the executable if there is one. See served.
func (m *Manifest) DebugInfo() *File {
	_, debug := m.served()
	return debug
}

// served returns the files that are served. The more trusted one is there first, and the other
// one has to fit it. Headers are easily copied, so a file that an agent sent stands for no
// identity of which there is a file of more trust.
func (m *Manifest) served() (exe, debug *File) {
	isExe, isDebug := func(f *File) bool { return f.Executable }, func(f *File) bool { return f.Debug }
	exe, debug = m.best(isExe), m.best(isDebug)
	switch {
	case exe == nil || debug == nil:
	case debug.Trust().rank() > exe.Trust().rank():
		exe = m.best(func(f *File) bool { return isExe(f) && f.goesWith(debug) })
	default:
		debug = m.best(func(f *File) bool { return isDebug(f) && f.goesWith(exe) })
	}
	return exe, debug
}

// DebugFileNames reports whether the debug file may name the code of its program, which is not here: nobody
// can compare that. One that an agent sent may not, nor one beside a file of other code.
func (m *Manifest) DebugFileNames() bool {
	exe, debug := m.served()
	return exe == nil && debug != nil && debug.Trust() != Agent && len(m.Disputed()) == 0
}

// believes reports whether a file of some trust may stand for the identity.
func (m *Manifest) believes(t Trust) bool {
	return t != Agent || !slices.ContainsFunc(m.Files, func(f File) bool { return f.Trust() != Agent })
}

// goesWith reports whether two files can be of the same program.
func (f *File) goesWith(g *File) bool { return Fits(&g.Facts, &f.Facts) && f.sameCode(g) }

// sameCode reports whether a file can have the code of another one.
func (f *File) sameCode(g *File) bool {
	return f.Code.IsZero() || g.Code.IsZero() || f.Code == g.Code
}

func (m *Manifest) best(is func(*File) bool) *File {
	var best *File
	for i := range m.Files {
		if f := &m.Files[i]; is(f) && m.believes(f.Trust()) && (best == nil || better(f, best)) {
			best = f
		}
	}
	return best
}

// better reports whether f is to be served rather than g. Times are in seconds: of two files that came in
// one second neither is better, and the manifest has the first one first.
func better(f, g *File) bool {
	return cmp.Or(
		cmp.Compare(f.Trust().rank(), g.Trust().rank()),
		cmp.Compare(f.Symbols.rank(), g.Symbols.rank()),
		cmp.Compare(f.DebugSize, g.DebugSize),
		g.First().Compare(f.First()),
	) > 0
}

// Disputed returns the files that cannot be of the same program as the executable, or, without
// one, as the debug file: they have other code under the same identity.
func (m *Manifest) Disputed() []*File {
	exe, debug := m.served()
	served := cmp.Or(exe, debug)
	var others []*File
	for i := range m.Files {
		if f := &m.Files[i]; served != nil && !f.goesWith(served) {
			others = append(others, f)
		}
	}
	return others
}

// Symbols returns the best that is known of the code of the identity.
func (m *Manifest) Symbols() Symbols {
	best := NoSymbols
	for _, f := range []*File{m.Executable(), m.DebugInfo()} {
		if f != nil && f.Symbols.rank() > best.rank() {
			best = f.Symbols
		}
	}
	return best
}

// An IndexName is what the index of an identity is named after: the files that are served, and the file that dwz
// put a part of their debug information into. Other files have another index.
type IndexName struct {
	Dwz buildid.ID // identity of that file; zero where there is none

	files string // "" where none are served
	trust Trust  // of the file that refers to it
}

// A DwzFile is the debug file of an identity, to which files of others may refer.
type DwzFile struct {
	Object, Stored string // as of a File; "" where there is none
	Trust          Trust
}

// DwzFile returns the debug file that is served.
func (m *Manifest) DwzFile() DwzFile {
	if f := m.DebugInfo(); f != nil {
		return DwzFile{f.Object, f.Stored(), f.Trust()}
	}
	return DwzFile{}
}

// A dwzMark is what the name of an index needs of a DwzFile.
type dwzMark struct {
	sum   string // of the name of its object, 16 bytes; "" where there is none
	trust Trust
}

func (f DwzFile) mark() dwzMark {
	if f.Object == "" {
		return dwzMark{}
	}
	sum := sha256.Sum256([]byte(f.Object))
	return dwzMark{string(sum[:16]), f.Trust}
}

// Takes reports whether the index has names from a file that dwz made. One that an agent sent could put any
// names into what others sent.
func (n IndexName) Takes(f DwzFile) bool { return n.takes(f.mark()) }

func (n IndexName) takes(f dwzMark) bool {
	return !n.Dwz.IsZero() && f.sum != "" && (f.trust != Agent || n.trust == Agent)
}

// With returns the name of the index, with the file of the identity Dwz. It is empty where no files are served.
func (n IndexName) With(f DwzFile) string { return n.with(f.mark()) }

func (n IndexName) with(f dwzMark) string {
	switch {
	case n.Dwz.IsZero() || n.files == "":
		return n.files
	case !n.takes(f):
		return n.files + "-without"
	}
	return n.files + "-" + hex.EncodeToString([]byte(f.sum))
}

// IndexName returns what the index of the files that are served is named after.
func (m *Manifest) IndexName() (n IndexName) {
	exe, debug := m.served()
	if exe == nil && debug == nil {
		return n
	}
	refers := exe
	if debug != nil && (exe == nil || debug.Object != exe.Object) {
		refers = debug
	}
	if id, err := buildid.Parse(refers.DwzID); err == nil {
		n.Dwz, n.trust = id, refers.Trust()
	}
	h := sha256.New()
	for _, f := range []*File{exe, debug} {
		if f != nil {
			h.Write([]byte(f.Object))
		}
		h.Write([]byte{'\n'})
	}
	n.files = hex.EncodeToString(h.Sum(nil)[:16])
	return n
}

// keyOf returns where the store has what is of an identity: PREFIX/KIND/ab/cdef….
func keyOf(prefix string, id buildid.ID) string {
	text := hex.EncodeToString(id.Bytes())
	if id.Kind() == buildid.Go { // it is text, and long
		sum := sha256.Sum256(id.Bytes())
		text = hex.EncodeToString(sum[:])
	}
	if text == "" { // of the zero ID, which a damaged list may have
		return prefix + "/none"
	}
	rest := text[2:]
	if rest == "" {
		rest = "_"
	}
	// A name in a path has 255 bytes at most.
	key := prefix + "/" + id.Kind().String() + "/" + text[:2]
	for ; len(rest) > 200; rest = rest[200:] {
		key += "/" + rest[:200]
	}
	return key + "/" + rest
}

// manifestName is the last part of the keys of manifests.
const manifestName = "/manifest.json"

func manifestKey(id buildid.ID) string { return keyOf("id", id) + manifestName }

// decodeManifest decodes what the store has under a key.
func (s *Store) decodeManifest(key string, b []byte) (*Manifest, error) {
	m := new(Manifest)
	err := decodeSealed(b, m)
	switch {
	case err == nil && m.Version > manifestVersion: // a newer server wrote it
		return nil, fmt.Errorf("%s: version %d of a manifest, where %d is known", key, m.Version, manifestVersion)
	case err == nil && m.Version != manifestVersion:
		err = fmt.Errorf("version %d of a manifest", m.Version)
	case err == nil && manifestKey(m.ID) != key:
		err = fmt.Errorf("it is of %v", m.ID)
	}
	if err != nil {
		return nil, s.damagedList(key, err)
	}
	s.soundList(key)
	return m, nil
}

// clean takes out of an origin what is too long to be kept, and a time that is none.
func (o Origin) clean() Origin {
	if o.Modified = o.Modified.UTC().Truncate(time.Second); o.Modified.Unix() <= 0 || o.Modified.Year() > 9999 {
		o.Modified = time.Time{}
	}
	for _, s := range []*string{&o.Who, &o.Path, &o.Archive, &o.Package, &o.Build} {
		*s = strings.ToValidUTF8(*s, "\uFFFD")
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "") + "…"
		}
	}
	return o
}

// Has reports whether the identity has a file from an origin of at least this trust.
func (m *Manifest) Has(object string, trust Trust) bool {
	return slices.ContainsFunc(m.Files, func(f File) bool { return f.Object == object && f.Trust().rank() >= trust.rank() })
}
