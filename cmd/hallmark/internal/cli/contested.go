package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/ordered"
	"hallmark/internal/plaintext"
)

// contestedRecord is part of what is printed of a file whose identity another one claims.
type contestedRecord struct {
	// Contested says that the content is another one than that of a file with the same
	// identity; or, where Content is not there, that nobody knows.
	Contested bool            `json:"contested,omitempty"`
	Content   buildid.Content `json:"content,omitzero"`
}

// contestedOf returns what is said of a file: nothing of one whose identity is its own.
func contestedOf(isContested bool, content buildid.Content) contestedRecord {
	if !isContested {
		return contestedRecord{}
	}
	return contestedRecord{true, content}
}

// text returns what stands behind the path of the file, with a blank before it.
func (r contestedRecord) text() string {
	switch {
	case !r.Contested:
		return ""
	case r.Content.IsZero():
		return " [same build ID, content unknown]"
	}
	return " [same build ID, different content]"
}

// claimants are the files that claim an identity, by that.
type claimants map[buildid.ID]*claimed

type claimed struct {
	paths ordered.Set[string]
	known bool // that contents are different
}

func (c claimants) add(id buildid.ID, r contestedRecord, path string) {
	if !r.Contested {
		return
	}
	if c[id] == nil {
		c[id] = new(claimed)
	}
	path = quoted(path)
	if r.Content.IsZero() {
		path += " (content unknown)"
	} else {
		c[id].known = true
	}
	c[id].paths.Add(path)
}

// contestedIn returns the files of a list of processes whose identity others claim.
func contestedIn(list []psRecord) claimants {
	all := claimants{}
	for _, r := range list {
		if r.Program != nil {
			all.add(r.Program.ID, r.Program.contestedRecord, r.Program.Path)
		}
		for _, lib := range r.Libs {
			all.add(lib.ID, lib.contestedRecord, lib.Path)
		}
	}
	return all
}

// writeContested notes which files claim one identity and are different builds.
func writeContested(w io.Writer, all claimants) {
	ids := slices.SortedFunc(maps.Keys(all), func(a, b buildid.ID) int { return cmp.Compare(a.String(), b.String()) })
	for _, id := range ids {
		paths := all[id].paths.Values()
		if more := len(paths) - mostNames; more > 0 {
			paths = append(slices.Clone(paths[:mostNames]), fmt.Sprintf("%d more", more))
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
