package execwatch

import (
	"slices"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/reach"
)

// execClaims remembers which files claimed which identity, to report those that have
// different contents. A claim that was not seen for long is forgotten. A claim of a file that only root
// or this user can have written is kept apart, where no file of others drives it out.
type execClaims struct {
	others, trusted claimTable
	forgotten       uint64 // identities
}

// claimTable has the claims that were asked for last, and those from before that: when recent
// is full it takes the place of older.
type claimTable struct {
	recent, older map[buildid.ID]*execClaim
}

// execClaim is an identity, and the files that claimed it: the first ones of each content.
type execClaim struct{ files []claimant }

type claimant struct {
	key     reach.Key
	seen    reach.Sighting  // of the file that was reached; zero if none was
	content buildid.Content // zero if it is unknown
	pending evidence        // of its content and owner, which may become known; nil otherwise
	trusted bool            // only root or this user can have written it
}

// evidence is what becomes known of a file.
type evidence interface {
	Facts() objects.Facts
}

const (
	// maxClaims bounds the identities that are remembered, to twice as many, and
	// maxTrustedClaims those that a trusted file claimed.
	maxClaims, maxTrustedClaims = 1 << 12, 1 << 15
	// maxClaimants is how many files of an identity are remembered.
	maxClaimants = 4
)

// judge marks the files of an event that have an identity that files of other
// content claimed.
func (c *execClaims) judge(ev *Event) {
	if ev.Kind != Executed && ev.Kind != Loaded {
		return // what was executed was reported before
	}
	for _, b := range []*Binary{ev.Program, ev.Interpreter, ev.Library} {
		if b == nil || ev.Kind == Loaded && b == ev.Program || b.ID.IsZero() || b.ID.Kind() == buildid.ByContent {
			continue
		}
		found := c.of(b.ID).add(claimant{b.key, b.seen, b.Content, b.pending, b.trusted})
		b.Contested = found != uncontested || b.Contested
		b.Different = found == different || b.Different
		b.pending = nil
	}
}

// of returns what is remembered of an identity.
func (c *execClaims) of(id buildid.ID) *execClaim {
	if known := c.trusted.find(id); known != nil {
		c.forgotten += uint64(len(c.trusted.put(id, known, maxTrustedClaims)))
		return known
	}
	known := c.others.find(id)
	if known == nil {
		known = new(execClaim)
	}
	if known.isTrusted() {
		c.trust(id, known)
		return known
	}
	for id, old := range c.others.put(id, known, maxClaims) {
		if old.isTrusted() {
			c.trust(id, old)
		} else {
			c.forgotten++
		}
	}
	return known
}

// trust keeps a claim where no file of others drives it out.
func (c *execClaims) trust(id buildid.ID, claim *execClaim) {
	delete(c.others.recent, id)
	delete(c.others.older, id)
	c.forgotten += uint64(len(c.trusted.put(id, claim, maxTrustedClaims)))
}

// find returns the claim of an identity, nil for none.
func (t *claimTable) find(id buildid.ID) *execClaim {
	if known := t.recent[id]; known != nil {
		return known
	}
	return t.older[id]
}

// put makes a claim the last one that was asked for, of at most twice so many. It returns those
// that are forgotten for it.
func (t *claimTable) put(id buildid.ID, claim *execClaim, most int) (forgotten map[buildid.ID]*execClaim) {
	if t.recent[id] != nil {
		return nil
	}
	delete(t.older, id)
	if len(t.recent) >= most {
		forgotten, t.older, t.recent = t.older, t.recent, nil
	}
	if t.recent == nil {
		t.recent = map[buildid.ID]*execClaim{}
	}
	t.recent[id] = claim
	return forgotten
}

// isTrusted reports whether one of the files is known to be one that only root or this user can
// have written.
func (c *execClaim) isTrusted() bool { return slices.ContainsFunc(c.files, claimant.isTrusted) }

func (f claimant) isTrusted() bool {
	return f.trusted || f.pending != nil && f.pending.Facts().Trusted
}

// contest is what the other files say of one that claims their identity.
type contest uint8

const (
	uncontested contest = iota
	undecided           // of one of them the content is unknown
	different           // one of them has other content
)

// add remembers a file, and returns what came of the comparison with those that are known.
func (c *execClaim) add(one claimant) (found contest) {
	if len(c.files) == 1 && c.files[0] == one {
		return uncontested // as nearly always
	}
	isKnown := false
	c.forgetYoung()
	c.recall(&one)
	for i := range c.files {
		other := &c.files[i]
		isState := other.isState(&one)
		switch {
		case isState && other.key == one.key && other.content == one.content && other.pending == one.pending:
			other.trusted = other.trusted || one.trusted
			isKnown = true
		case isState && (one.content.IsZero() || other.content.IsZero()):
			if other.key != one.key && other.content.IsZero() && !one.content.IsZero() {
				*other, isKnown = one, true // by now its times say what it is
			}
		case one.content.IsZero() || other.content.IsZero():
			found = max(found, undecided)
		case other.content != one.content:
			found = different
		default:
			isKnown = true // a copy
			other.trusted = other.trusted || one.trusted
		}
	}
	if !isKnown {
		c.keep(one)
	}
	return found
}

// recall has a file whose content was not read in time be what the kernel's numbers and times say: one that was met
// before. Another mount namespace may show it under another path.
func (c *execClaim) recall(one *claimant) {
	if !one.content.IsZero() || one.pending != nil || one.key.Content == (bpf.Validity{}) {
		return
	}
	for i := range c.files {
		if known := &c.files[i]; known.key == one.key && !known.content.IsZero() {
			one.content, one.trusted = known.content, one.trusted || known.trusted
			return
		}
	}
}

// keep remembers a file. One that only root or this user can have written takes the place of one that
// others can, where there is no room: nobody drives it out by claiming its identity before.
func (c *execClaim) keep(one claimant) {
	if len(c.files) < maxClaimants {
		c.files = append(c.files, one)
		return
	}
	if !one.isTrusted() {
		return
	}
	if i := slices.IndexFunc(c.files, func(f claimant) bool { return !f.isTrusted() }); i >= 0 {
		c.files[i] = one
	}
}

// isState reports whether two claims are of one state of a file, as far as anybody knows. Perf's
// records name a file by its path, where another one may be by now: it has another stamp, if both
// were reached.
func (c *claimant) isState(other *claimant) bool {
	none := reach.Sighting{}
	isOther := c.seen != none && other.seen != none && !c.seen.Is(other.seen)
	return c.key.IsState(other.key) && (c.key.Content != bpf.Validity{} || !isOther)
}

// forgetYoung forgets files that had just changed when they were executed, where the content of the
// same state is known by now.
func (c *execClaim) forgetYoung() {
	if !slices.ContainsFunc(c.files, func(f claimant) bool { return f.key.IsYoung() }) {
		return
	}
	c.files = slices.DeleteFunc(slices.Clone(c.files), func(young claimant) bool {
		return young.key.IsYoung() && young.content.IsZero() && slices.ContainsFunc(c.files, func(f claimant) bool {
			return !f.content.IsZero() && f.key.IsState(young.key)
		})
	})
}

// eachOther calls each with every file but this one that is known to claim an identity.
func (c *execClaims) eachOther(id buildid.ID, key reach.Key, each func(*claimant)) {
	for _, claim := range []*execClaim{c.trusted.find(id), c.others.find(id)} {
		if claim == nil {
			continue
		}
		for i := range claim.files {
			if f := &claim.files[i]; f.key != key {
				each(f)
			}
		}
	}
}

// isComplete reports whether all is known of an object that is to be reported: its identity, and where
// another file claims that, the contents of both. The first one did not wait for its content.
func (c *execClaims) isComplete(f *objects.Facts) bool {
	if !f.Settled || !f.IsFile {
		return f.Settled
	}
	isAlone, areKnown := true, true
	c.eachOther(f.ID, f.Key, func(other *claimant) {
		isAlone = false
		if other.pending != nil {
			if p := other.pending.Facts(); !p.AwaitsContent {
				other.content, other.pending, other.trusted = p.Content, nil, p.Trusted
			}
		}
		areKnown = areKnown && other.pending == nil
	})
	return isAlone || areKnown && !f.AwaitsContent
}
