package fromperf

import (
	"fmt"
	"strings"
	"testing"

	"hallmark/internal/perftest"
)

// oneName gives frames in one file one name, whatever it is called: what else runs on the
// machine may have links to a file, or copies, and perf and we need not show the same one.
func oneName(t *testing.T, file string, all ...map[string]int64) {
	t.Helper()
	names := firstNames(t, file)
	for _, stacks := range all {
		for stack, n := range stacks {
			if named := rename(stack, names); named != stack {
				delete(stacks, stack)
				stacks[named] += n
			}
		}
	}
}

func rename(stack string, names map[string]string) string {
	lines := strings.Split(stack, "\n")
	for i, line := range lines {
		if at, name, ok := strings.Cut(line, " "); i > 0 && ok && names[name] != "" {
			lines[i] = at + " " + names[name]
		}
	}
	return strings.Join(lines, "\n")
}

// firstNames returns, for each name in a recording, the first one of the same file, by its
// inode, and the first one of those with the same build ID.
func firstNames(t *testing.T, file string) map[string]string {
	t.Helper()
	names, first := map[string]string{}, map[string]string{}
	same := func(key, name string) {
		if names[name] == "" {
			names[name] = name
		}
		if first[key] == "" {
			first[key] = name
		}
		old := names[name]
		for other, of := range names {
			if of == old {
				names[other] = names[first[key]]
			}
		}
	}
	for line := range strings.Lines(string(perftest.Run(t, "buildid-list", "-i", file))) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "/") {
			same(id, name)
		}
	}
	for _, m := range mappings(t, file) {
		switch {
		case !strings.HasPrefix(m.Name, "/"):
		case len(m.BuildID) > 0:
			same(fmt.Sprintf("%x", m.BuildID), m.Name)
		case m.Inode != 0:
			same(fmt.Sprint(m.Major, ":", m.Minor, ":", m.Inode, ":", m.Generation), m.Name)
		}
	}
	return names
}
