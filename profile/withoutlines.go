package profile

import (
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
)

const withoutLinesPrefix = "functions only, no source lines, of files with much debug information: "

// WithoutLinesNote returns the comment, for people, that nobody has read the debug information of
// these files, because there is too much of it. It names some of them.
func WithoutLinesNote(paths []string) string {
	sorted := slices.Sorted(slices.Values(paths))
	var named []string
	for _, path := range sorted[:min(len(sorted), mostNamed)] {
		named = append(named, printable(path))
	}
	if more := len(sorted) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return withoutLinesPrefix + strings.Join(named, ", ")
}

// WithoutLines returns the comments of a profile on files whose debug information nobody has read.
func WithoutLines(p *pprof.Profile) []string {
	return slices.DeleteFunc(slices.Clone(p.Comments), func(c string) bool { return !strings.HasPrefix(c, withoutLinesPrefix) })
}
