// Package identity has what several verbs print and accept of identities: marks of files whose identity
// another file claims, and the first digits of an identity.
package identity

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/internal/ordered"
	"hallmark/internal/plaintext"
	"hallmark/profile"
)

// A Mark is part of what is printed of a file whose identity another one claims.
type Mark struct {
	// Contested says that the content is another one than that of a file with the same
	// identity; or, where Content is not there, that nobody knows.
	Contested bool            `json:"contested,omitempty"`
	Content   buildid.Content `json:"content,omitzero"`
	// Proof is what the identity is because of that: "contested", or "claimed" where nobody knows.
	Proof string `json:"proof,omitempty"`
}

// MarkOf returns what is said of a file: nothing of one whose identity is its own.
func MarkOf(isContested bool, content buildid.Content) Mark {
	if !isContested {
		return Mark{}
	}
	if content.IsZero() {
		return Mark{true, content, profile.Claimed.String()}
	}
	return Mark{true, content, profile.Contested.String()}
}

// Text returns what stands behind the path of the file, with a blank before it.
func (r Mark) Text() string {
	switch {
	case !r.Contested:
		return ""
	case r.Content.IsZero():
		return " [claimed: same build ID, content unknown]"
	}
	return " [same build ID, different content]"
}

// Claimants are the files that claim an identity, by that.
type Claimants map[buildid.ID]*claimed

type claimed struct {
	paths ordered.Set[string]
	known bool // that contents are different
}

// Add adds a file, if its mark says that its identity is contested.
func (c Claimants) Add(id buildid.ID, r Mark, path string) {
	if !r.Contested {
		return
	}
	if c[id] == nil {
		c[id] = new(claimed)
	}
	path = terminal.Quoted(path)
	if r.Content.IsZero() {
		path += " (content unknown)"
	} else {
		c[id].known = true
	}
	c[id].paths.Add(path)
}

// WriteContested notes which files claim one identity and are different builds.
func WriteContested(w io.Writer, all Claimants) {
	ids := slices.SortedFunc(maps.Keys(all), func(a, b buildid.ID) int { return cmp.Compare(a.String(), b.String()) })
	for _, id := range ids {
		paths := all[id].paths.Values()
		if more := len(paths) - terminal.MostNames; more > 0 {
			paths = append(slices.Clone(paths[:terminal.MostNames]), fmt.Sprintf("%d more", more))
		}
		claim := "claim"
		if len(paths) == 1 {
			claim = "claims"
		}
		what := "different content"
		if !all[id].known {
			what = "content unknown"
		}
		fmt.Fprintf(w, "hallmark: same build ID, %s: %s %s %v\n", what, plaintext.Line(strings.Join(paths, ", ")), claim, id)
	}
}
