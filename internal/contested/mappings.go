package contested

import (
	"context"
	"os"

	"hallmark/buildid"
	"hallmark/procmap"
)

// A Mapping is a mapping of a process, and the identity of what it shows.
type Mapping struct {
	VMA procmap.VMA
	ID  buildid.ID
}

// inode distinguishes the files of a process, as it has them mapped.
type inode struct {
	dev   procmap.Dev
	inode uint64
}

// FindMapped is Find for files that one process has mapped. Memory without a file claims nothing.
func FindMapped(p *procmap.Process, mappings []Mapping, limits Limits) []Finding {
	claims := make([]Claim[inode], len(mappings))
	for i, m := range mappings {
		if !m.VMA.FileBacked() {
			continue
		}
		ask := func(context.Context) buildid.Content { return p.ContentAside(m.VMA, m.ID) }
		claims[i] = Claim[inode]{m.ID, inode{m.VMA.Dev, m.VMA.Inode}, func() (*os.File, func()) {
			f, err := p.OpenFile(m.VMA)
			if err != nil {
				return nil, nil
			}
			if info, err := buildid.ReadClaim(f); err != nil || info.ID != m.ID {
				f.Close()
				return nil, nil
			}
			return f.File, func() { f.Close() }
		}, ask}
	}
	return Find(claims, limits)
}
