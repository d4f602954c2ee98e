package proof

import (
	"fmt"
	"os"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/internal/contested"
	"hallmark/internal/mounts"
	"hallmark/internal/ordered"
	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// PathsDisagree returns notes on the files of a profile that claim one identity under several
// paths, where the files that are at these paths now have different content. A recording by
// perf knows no contents.
func PathsDisagree(p *pprof.Profile) []string {
	var claims []contested.Claim[string]
	for _, b := range profile.Binaries(p) {
		if b.Content.IsZero() && strings.HasPrefix(b.Path, "/") {
			claims = append(claims, contested.Claim[string]{ID: b.ID, Key: b.Path, Open: func() (*os.File, func()) { return openClaimed(b.Path, b.ID) }})
		}
	}
	var paths ordered.Multimap[buildid.ID, string]
	var notes []string
	for i, found := range contested.Find(claims, contested.Limits{}) {
		c := &claims[i]
		if found.Verdict == contested.Different && !found.Content.IsZero() {
			paths.Add(c.ID, terminal.Quoted(c.Key))
		}
	}
	for _, id := range paths.Keys() {
		list := slices.Sorted(slices.Values(paths.Values(id)))
		if more := len(list) - terminal.MostNames; more > 0 {
			list = append(list[:terminal.MostNames], fmt.Sprintf("%d more", more))
		}
		notes = append(notes, fmt.Sprintf("same build ID, different content: %s claim %v, as they are now", plaintext.Line(strings.Join(list, ", ")), id))
	}
	slices.Sort(notes)
	return notes
}

// openClaimed opens the file at a path, if it has an identity.
func openClaimed(path string, id buildid.ID) (f *os.File, done func()) {
	f, err := mounts.Ours().OpenFile(path)
	if err != nil {
		return nil, nil
	}
	if info, err := buildid.ReadClaim(f); err != nil || info.ID != id && info.ID.GNUForm() != id {
		f.Close()
		return nil, nil
	}
	return f, func() { f.Close() }
}
