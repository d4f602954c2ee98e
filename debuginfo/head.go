package debuginfo

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hallmark/buildid"
	"hallmark/internal/cachedir"
	"hallmark/symbol"
)

// HasHead reports whether an identity begins with head. Contents do so with and without
// their prefix: perf.data has their digits alone.
func HasHead(id buildid.ID, head string) bool {
	text := id.String()
	if id.Kind() == buildid.Go {
		return strings.HasPrefix(text, head)
	}
	head = strings.ToLower(head)
	return strings.HasPrefix(text, head) || strings.HasPrefix(id.Content().String(), head)
}

// WithHead returns the identities on this machine that begin with head: of the indexes that
// are kept, and of the files that directories name by build ID. No file of these is opened.
func (l *Library) WithHead(head string) []buildid.ID {
	found := map[buildid.ID]bool{}
	add := func(id buildid.ID) {
		if HasHead(id, head) {
			found[id] = true
		}
	}
	kept, _ := l.Indexes.List() // without a cache there are none
	for _, k := range kept {
		if x, err := symbol.OpenIndex(k.Path); err == nil {
			add(OriginOf(x).ID)
			x.Close()
		}
	}
	for _, name := range l.Finder.namesWithHead(strings.ToLower(head)) {
		if id, err := buildid.Parse(name); err == nil {
			add(id)
		}
	}
	l.Finder.scan.Do(l.Finder.scanExtra)
	for id := range l.Finder.scanned {
		add(id)
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b buildid.ID) int { return cmp.Compare(a.String(), b.String()) })
}

// namesWithHead returns the digits of the build IDs that directories have files of, in
// DIR/.build-id/xx/yyyy, where xx is how head begins.
func (f *Finder) namesWithHead(head string) []string {
	if len(head) < 2 || strings.Trim(head[:2], "0123456789abcdef") != "" {
		return nil
	}
	dirs := slices.Concat(f.dirs(), f.Extra)
	if dir, err := cachedir.PerfDir(); err == nil {
		dirs = append(dirs, dir)
	}
	var names []string
	for _, dir := range dirs {
		rest, _ := os.ReadDir(filepath.Join(dir, ".build-id", head[:2])) // it may not be there
		for _, entry := range rest {
			names = append(names, head[:2]+strings.TrimSuffix(entry.Name(), ".debug"))
		}
	}
	return names
}
