package profile

import (
	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/internal/ordered"
)

// Separate prepares profiles for being merged or compared. Programs that do so take files of
// one build ID for one file. Where the profiles say different contents of an identity, each
// file of known content gets that for its build ID, in all of them. It returns the comments,
// for people, about such files.
func Separate(profiles ...*pprof.Profile) (notes []string) {
	var files ordered.Multimap[buildid.ID, claimKey]
	for _, p := range profiles {
		binaries := Binaries(p)
		for _, m := range p.Mapping {
			b := binaries[m]
			if !b.ID.IsZero() && b.ID.Kind() != buildid.ByContent {
				files.Add(b.ID, claimKey{content: b.Content, file: b.Path})
			}
		}
	}
	contested := map[buildid.ID]bool{}
	for _, id := range files.Keys() {
		if text := disagreement(id, files.Values(id)); text != "" {
			contested[id] = true
			notes = append(notes, text)
		}
	}
	for _, p := range profiles {
		separate(p, contested)
	}
	return notes
}

// separate gives the files of p that claim an identity which is contested their content for
// a build ID.
func separate(p *pprof.Profile, contested map[buildid.ID]bool) {
	binaries := Binaries(p)
	var comments ordered.Set[string]
	for _, line := range p.Comments {
		comments.Add(line)
	}
	for _, m := range p.Mapping {
		b := binaries[m]
		shown, _ := Identity(m)
		if !contested[b.ID] || b.Content.IsZero() || shown != b.ID {
			continue
		}
		m.BuildID = b.Content.ID().String()
		if line := (claimKey{content: b.Content, file: b.Path}).comment(b.ID); comments.Add(line) {
			p.Comments = append(p.Comments, line)
		}
	}
}
