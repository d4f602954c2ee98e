package profile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
)

// A Claimant is who says that a file has an identity which nobody has proven: the kernel or Hallmark read it from the
// pages of one mapping, and knows no other content of it. Frames of two claimants are never put together. They have
// names from files of their own claimant alone.
type Claimant struct {
	// UID is the owner of the file as the recording machine numbers users, UnknownOwner where nobody asked.
	UID int64
	// Mount is the inode number of the mount namespace of the process which had the file mapped, 0 where nobody asked.
	// Root of a container has root's number, in another namespace.
	Mount uint64
	// Boot is the kernel's boot ID, as long as which numbers of namespaces mean something; "" where nobody asked.
	Boot string
}

// UnknownOwner is the owner of a file that nobody has seen.
const UnknownOwner = -1

// String returns the claimant for people: "user 1000 in mount namespace 4026532840".
func (c Claimant) String() string {
	text := "an unknown user"
	if c.UID != UnknownOwner {
		text = fmt.Sprintf("user %d", c.UID)
	}
	if c.Mount != 0 {
		text += fmt.Sprintf(" in mount namespace %d", c.Mount)
	}
	return text
}

// claimantComment says who claims the identity of a mapping. The row is in the mapping's Limit as well:
// pprof merges mappings of one build ID and size, and no two claimants have mappings of one size.
const claimantComment = claimantPrefix + `%s owner=%s mount=%d boot=%s row=%x file=%s`

const claimantPrefix = "claimed="

// Rows are in bits 12 to 61 of the Limit of a mapping that starts at 0. No file is so large.
const (
	firstRowLimit = 1 << 62
	rowShift      = 12
	maxRow        = 1<<50 - 1
)

// rowKey is a claimed mapping. In what others have merged two files may have one row.
type rowKey struct {
	file fileKey
	row  uint64
}

// rowOf returns the row of a mapping whose identity is a claim, and whether it is one. No claimant has row 0.
func rowOf(m *pprof.Mapping) (row uint64, isClaimed bool) {
	if m == nil || m.BuildID == "" || !IsClaimedRange(m.Start, m.Limit) {
		return 0, false
	}
	return (m.Limit - firstRowLimit) >> rowShift, true
}

// IsClaimedRange reports whether a mapping from start to limit is one whose identity, if it has one, is such a claim.
func IsClaimedRange(start, limit uint64) bool {
	return start == 0 && limit >= firstRowLimit && limit < noLimit
}

// IsClaimed reports whether the identity of m is a claim of others than root and the user who recorded,
// which nobody has proven.
func IsClaimed(m *pprof.Mapping) bool {
	_, isClaimed := rowOf(m)
	return isClaimed
}

// row returns a number that is hard to find for another claimant, path and identity.
func (c Claimant) row(k fileKey) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %q %q %q", c.UID, c.Mount, c.Boot, k.buildID, k.file)
	return max(1, binary.BigEndian.Uint64(h.Sum(nil))&maxRow-1)
}

func (c Claimant) comment(k fileKey, row uint64) string {
	owner := "unknown"
	if c.UID != UnknownOwner {
		owner = strconv.FormatInt(c.UID, 10)
	}
	return fmt.Sprintf(claimantComment, k.buildID, owner, c.Mount, c.Boot, row, strconv.Quote(k.file))
}

// claimed returns the mapping of a file whose identity is a claim. Addresses in it are file offsets.
func (b *Builder) claimed(file *Binary) *pprof.Mapping {
	k := fileKey{file.ID.String(), file.Path}
	row := file.Claimant.row(k)
	b.contents.claimants[rowKey{k, row}] = *file.Claimant
	m := pprof.Mapping{File: k.file, BuildID: k.buildID, Limit: firstRowLimit | row<<rowShift}
	return b.mapping(mappingKey{binary: file.ID, start: m.Limit, path: file.Path}, m)
}

// parseClaimant takes a comment apart that says who claims the identity of a mapping.
func parseClaimant(comment string) (k rowKey, c Claimant, ok bool) {
	rest, isClaim := strings.CutPrefix(comment, claimantPrefix)
	var owner, mount, row string
	for _, part := range []struct {
		to  *string
		end string
	}{{&k.file.buildID, " owner="}, {&owner, " mount="}, {&mount, " boot="}, {&c.Boot, " row="}, {&row, " file="}} {
		if *part.to, rest, ok = strings.Cut(rest, part.end); !ok || !isClaim {
			return rowKey{}, Claimant{}, false
		}
	}
	var errs [4]error
	if strings.ContainsFunc(c.Boot, unicode.IsSpace) {
		return rowKey{}, Claimant{}, false
	}
	if c.UID = UnknownOwner; owner != "unknown" {
		var uid uint64
		uid, errs[0] = strconv.ParseUint(owner, 10, 32)
		c.UID = int64(uid)
	}
	c.Mount, errs[1] = strconv.ParseUint(mount, 10, 64)
	k.row, errs[2] = strconv.ParseUint(row, 16, 64)
	k.file.file, errs[3] = strconv.Unquote(rest)
	return k, c, errs == [4]error{}
}

// Claimants returns whose claims the identities of mappings are which nobody has proven. Where p names none, or
// two, the owner is unknown.
func Claimants(p *pprof.Profile) map[*pprof.Mapping]Claimant {
	unknown := Claimant{UID: UnknownOwner}
	said, files := map[rowKey]Claimant{}, map[rowKey]fileKey{} // files by identity and row alone
	isShared := map[rowKey]bool{}
	for _, comment := range p.Comments {
		k, c, ok := parseClaimant(comment)
		if !ok {
			continue
		}
		if known, again := said[k]; again && known != c {
			c = unknown
		}
		said[k] = c
		id := rowKey{fileKey{buildID: k.file.buildID}, k.row}
		if other, again := files[id]; again && other != k.file {
			isShared[id] = true // merged mappings have one of the paths
		}
		files[id] = k.file
	}
	claimants := map[*pprof.Mapping]Claimant{}
	for _, m := range p.Mapping {
		row, isClaimed := rowOf(m)
		if !isClaimed {
			continue
		}
		c, ok := said[rowKey{fileKeyOf(m), row}]
		if !ok || isShared[rowKey{fileKey{buildID: m.BuildID}, row}] {
			c = unknown
		}
		claimants[m] = c
	}
	return claimants
}

// A Proof is how far the identity of a mapping is known to be that of the code which ran there.
type Proof uint8

const (
	// Proven is an identity whose content was compared, and what the kernel says of itself.
	Proven Proof = iota
	// Claimed is an identity that the file says of itself. Nobody has compared the content, and none is known that
	// differs.
	Claimed
	// Contested is an identity that files of two contents claim, of which nobody knows which one ran.
	Contested
)

// String returns the proof as one word: "proven", "claimed", "contested".
func (p Proof) String() string {
	return [...]string{"proven", "claimed", "contested"}[min(p, Contested)]
}

// MarshalText returns the word.
func (p Proof) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// proofOf returns the proof for a mapping with an identity, of the binary b.
func proofOf(m *pprof.Mapping, b *Binary, contested map[buildid.ID]bool) Proof {
	switch {
	case !b.Content.IsZero(), isOfKernel(m):
		return Proven
	case contested[b.ID] && !IsClaimed(m):
		return Contested
	}
	return Claimed
}

// isOfKernel reports whether the kernel itself said what m is: its own code, that of a module, the vdso.
func isOfKernel(m *pprof.Mapping) bool {
	return strings.HasPrefix(m.File, "[") && strings.HasSuffix(m.File, "]")
}

// Proofs returns the proof for the identity of each mapping of p that has one.
func Proofs(p *pprof.Profile) map[*pprof.Mapping]Proof {
	contested, proofs := ContestedIDs(p), map[*pprof.Mapping]Proof{}
	for m, b := range Binaries(p) {
		proofs[m] = proofOf(m, &b, contested)
	}
	return proofs
}

// DropClaimedNames takes the names from the frames of p whose identity is a claim of others, for formats that have no
// room to say so. It returns how many locations had some.
func DropClaimedNames(p *pprof.Profile) (bare int) {
	for _, l := range p.Location {
		if IsClaimed(l.Mapping) && len(l.Line) > 0 {
			l.Line = nil
			bare++
		}
	}
	return bare
}
