package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// summary prints what became of everything, and returns the exit status. Its last line is
// for machines.
func (r *runner) summary() int {
	s := r.results
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\nTook %v.\n", time.Since(r.begun).Truncate(time.Second))
	for _, n := range r.notes {
		fmt.Fprintf(&b, "%s\n", n)
	}
	if len(s.skips) > 0 {
		fmt.Fprintf(&b, "\nNOT CHECKED, %d tests:\n", s.skipped)
		reasons := slices.SortedFunc(maps.Keys(s.skips), func(a, b string) int {
			if d := len(s.skips[b]) - len(s.skips[a]); d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, reason := range reasons {
			fmt.Fprintf(&b, "  %s: %s\n", reason, some(s.skips[reason]))
		}
	}
	if len(s.alone) > 0 {
		fmt.Fprintf(&b, "\nRepeated, because the machine was too busy at first:\n")
		for _, t := range s.alone {
			fmt.Fprintf(&b, "  passed when run alone: %s\n", t)
		}
	}
	for _, l := range s.lacks {
		s.failed = append(s.failed, l.String()+": "+l.text+" (not repeated)")
	}
	slices.SortFunc(s.times, func(a, b timing) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range s.times[:min(r.slowest, len(s.times))] {
		if i == 0 {
			fmt.Fprintf(&b, "\nSlowest:\n")
		}
		fmt.Fprintf(&b, "  %6.1fs  %s\n", t.seconds, t.test)
	}
	if len(s.failed) > 0 {
		fmt.Fprintf(&b, "\nFAILED:\n")
		for _, t := range s.failed {
			fmt.Fprintf(&b, "  %s\n", t)
		}
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), s.skipped)
	fmt.Fprint(os.Stdout, b.String())
	if len(s.failed) > 0 || s.passed == 0 {
		return 1
	}
	return 0
}

// some joins names, of many the first ones.
func some(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
