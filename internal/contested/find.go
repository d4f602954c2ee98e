package contested

import (
	"context"
	"os"
	"slices"

	"hallmark/buildid"
)

// A Claim says that a file has an identity. Files with equal keys are one file.
type Claim[K comparable] struct {
	ID   buildid.ID
	Key  K
	Open func() (f *os.File, done func())              // see File
	Ask  func(ctx context.Context) (c buildid.Content) // see File
}

// A Finding is what came of a Claim.
type Finding struct {
	Verdict Verdict // on all files that claim the identity
	Content buildid.Content
}

// IsContested reports whether a file of another content claims the identity, or the content
// of this one is unknown and another file claims it.
func (f Finding) IsContested() bool {
	return f.Verdict == Different || f.Verdict == Unknown && f.Content.IsZero()
}

// Find returns what came of each claim, in their order. Only files are read whose identity
// another file claims as well. Identities that are contents are no claims.
func Find[K comparable](claims []Claim[K], limits Limits) []Finding {
	type file struct {
		id  buildid.ID
		key K
	}
	byID := map[buildid.ID]map[K][]int{}
	for i := range claims {
		c := &claims[i]
		if c.ID.IsZero() || c.ID.Kind() == buildid.ByContent {
			continue
		}
		if byID[c.ID] == nil {
			byID[c.ID] = map[K][]int{}
		}
		byID[c.ID][c.Key] = append(byID[c.ID][c.Key], i)
	}
	var files []file
	var todo []File
	for id, keys := range byID {
		if len(keys) < 2 {
			continue
		}
		for key := range keys {
			files = append(files, file{id, key})
		}
	}
	// Those come first that are in most places: few of them, or nobody, want to deceive.
	slices.SortFunc(files, func(a, b file) int { return len(byID[b.id][b.key]) - len(byID[a.id][a.key]) })
	for _, f := range files {
		at := byID[f.id][f.key]
		todo = append(todo, File{Open: firstOf(claims, at), Ask: firstAnswer(claims, at)})
	}
	contents := Read(todo, limits)
	all := map[buildid.ID][]buildid.Content{}
	for i, f := range files {
		all[f.id] = append(all[f.id], contents[i])
	}
	verdicts := map[buildid.ID]Verdict{}
	for id, contents := range all {
		verdicts[id] = Judge(contents)
	}
	found := make([]Finding, len(claims))
	for i, f := range files {
		for _, n := range byID[f.id][f.key] {
			found[n] = Finding{verdicts[f.id], contents[i]}
		}
	}
	return found
}

// maxTries is in how many ways a file is looked for: each process that has it is one.
const maxTries = 4

// firstOf opens a file in the first way that works.
func firstOf[K comparable](claims []Claim[K], at []int) func() (*os.File, func()) {
	return func() (*os.File, func()) {
		for _, i := range at[:min(maxTries, len(at))] {
			if f, done := claims[i].Open(); f != nil {
				return f, done
			}
		}
		return nil, nil
	}
}

// firstAnswer returns a function that asks for the content of the first of several claims to
// the same file that can be read.
func firstAnswer[K comparable](claims []Claim[K], at []int) func(context.Context) buildid.Content {
	return func(ctx context.Context) buildid.Content {
		for _, i := range at[:min(maxTries, len(at))] {
			if claims[i].Ask == nil {
				continue
			}
			if c := claims[i].Ask(ctx); !c.IsZero() {
				return c
			}
		}
		return buildid.Content{}
	}
}
