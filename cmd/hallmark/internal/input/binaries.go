package input

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/internal/plaintext"
	"hallmark/profile"
	"hallmark/profile/compact"
)

// Believe adds the files of --binary to those that symbols are taken from. It comes before anything is read.
func (in *Reader) Believe() error {
	for _, path := range in.binaries {
		id, err := identityOf(path)
		if err != nil {
			return fmt.Errorf("--binary: %w", err)
		}
		if in.named == nil {
			in.named = map[string]namedFile{}
		}
		name := filepath.Base(path)
		if other, ok := in.named[name]; ok && other.id != id {
			return verb.Usagef("--binary: %s and %s have one name", plaintext.Name(other.path), plaintext.Name(path))
		}
		in.named[name] = namedFile{path: path, id: id}
		*in.DebugPaths = append(*in.DebugPaths, path)
	}
	return nil
}

// namedFile is a file of --binary.
type namedFile struct {
	path string
	id   buildid.ID
}

// identityOf returns the identity of a file, which must have one.
func identityOf(path string) (buildid.ID, error) {
	info, err := buildid.ReadFile(path)
	if err != nil {
		return buildid.ID{}, err
	}
	if info.ID.IsZero() {
		return buildid.ID{}, fmt.Errorf("%s: it has no identity: %v", plaintext.Name(path), info.Where)
	}
	return info.ID, nil
}

// identify gives files of a profile that has no identity of them those of the files that --binary names, by
// their names; and with --trust-paths those of the files at their paths. Nothing proves that these are the ones
// that ran, which a comment says.
func (in *Reader) identify(name string, p *pprof.Profile) error {
	if len(in.named) == 0 && !in.trust {
		return nil
	}
	used, taken, known := map[string]bool{}, map[string]bool{}, map[string]bool{}
	atPaths := map[string]namedFile{} // with --trust-paths; a profile names a path any number of times
	for _, m := range p.Mapping {
		switch {
		case m.File == "" || strings.HasPrefix(m.File, "["):
			continue
		case m.BuildID != "":
			known[filepath.Base(m.File)] = true
			continue
		}
		f, isNamed := in.named[filepath.Base(m.File)]
		if isNamed {
			used[f.path] = true
		} else if in.trust {
			if f, isNamed = atPaths[m.File]; !isNamed {
				f = atPath(m.File)
				atPaths[m.File] = f
			}
		}
		if f.id.IsZero() {
			continue
		}
		m.BuildID = f.id.String()
		if !taken[m.File] {
			taken[m.File] = true
			p.Comments = append(p.Comments, "without proof, "+plaintext.Name(f.path)+" is taken for the "+plaintext.Name(m.File)+" that ran")
		}
	}
	for _, path := range in.binaries {
		switch base := filepath.Base(path); {
		case used[in.named[base].path]:
		case known[base]:
			return verb.Usagef("--binary: %s has an identity of %s: --debug-path lets the file answer if it has that, too", name, plaintext.Name(base))
		default:
			return verb.Usagef("--binary: %s has no file that is called %s", name, plaintext.Name(base))
		}
	}
	return nil
}

// atPath returns the file at a path of the profile, the zero one where none has an identity.
func atPath(path string) (f namedFile) {
	if !filepath.IsAbs(path) {
		return f
	}
	id, err := identityOf(path)
	if err != nil {
		return f
	}
	return namedFile{path, id}
}

// identifyAll is identify for several profiles, and for what they are compared with.
func (in *Reader) identifyAll(name string, all []*pprof.Profile) ([]*pprof.Profile, error) {
	each := all
	if in.Base != nil {
		each = append(slices.Clip(all), in.Base)
	}
	for _, p := range each {
		if err := in.identify(name, p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// identifyCompact is identify for a profile of which nothing has changed yet.
func (in *Reader) identifyCompact(name string, p *compact.Profile) (*compact.Profile, error) {
	if len(in.named) == 0 && !in.trust {
		return p, nil
	}
	places := p.Places()
	if err := in.identify(name, places); err != nil {
		return nil, err
	}
	return p.WithSymbols(places, profile.Misses{}), nil
}
