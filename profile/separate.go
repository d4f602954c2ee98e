package profile

import (
	"strings"

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
	if text := strangers(profiles); text != "" {
		notes = append(notes, text)
	}
	return notes
}

// knowledge is what a profile knows of the files that its frames are in.
type knowledge int

const (
	noFiles knowledge = iota
	noIdentities
	someIdentities
)

func knowledgeOf(p *pprof.Profile) knowledge {
	known := noFiles
	for _, m := range p.Mapping {
		switch _, ok := Identity(m); {
		case ok:
			return someIdentities
		case m.File != "" && !strings.HasPrefix(m.File, "["):
			known = noIdentities
		}
	}
	return known
}

// strangers returns the comment on profiles that know different things of their files, "" if they
// do not: a function with a file is none without.
func strangers(profiles []*pprof.Profile) string {
	least, most, first := noFiles, noFiles, true
	for _, p := range profiles {
		if len(p.Location) == 0 {
			continue
		}
		known := knowledgeOf(p)
		if first {
			least, most, first = known, known, false
		}
		least, most = min(least, known), max(most, known)
	}
	switch {
	case least == most:
		return ""
	case least == noFiles:
		return "one of the profiles does not know the files that its functions are in, so no function is the same in both"
	}
	return "one of the profiles does not know the identity of any file, so no function is the same in both"
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
