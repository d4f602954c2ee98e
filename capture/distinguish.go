package capture

import (
	"slices"
	"time"

	"hallmark/buildid"
	"hallmark/internal/contested"
	"hallmark/internal/objects"
	"hallmark/internal/procfs"
	"hallmark/internal/trust"
	"hallmark/profile"
)

// A build ID is a claim. The facts of one file and of another are put together
// only if their contents are the same. They are read when the samples have ended, and only
// of files that samples are in.

// distinct distinguishes files. One of unknown content is the same as another only if it has
// its path and its claimant, too.
type distinct struct {
	id       buildid.ID // that it claims
	content  buildid.Content
	path     string // of a file of unknown content
	claimant profile.Claimant
	claim    claim
}

// claim is what becomes of the claim of a file.
type claim uint8

const (
	believed     claim = iota // its content is known, or those who can have written it would not deceive
	unconfirmed               // nothing known contradicts it
	contradicted              // a file that is trusted more has another content
)

func distinctOf(id buildid.ID, content buildid.Content, path string) distinct {
	if !content.IsZero() {
		path = ""
	}
	return distinct{id: id, content: content, path: path}
}

// read is a file that frames are in.
type read struct {
	objects.Reading
	claim claim
}

// distinct returns what distinguishes the file.
func (r *read) distinct() distinct {
	d := distinctOf(r.Object.ID, r.Content, r.Object.Path)
	if d.claim = r.claim; r.claim != believed {
		d.claimant = claimantOf(r.Object)
	}
	return d
}

// claimantOf returns whose word the identity of a file is.
func claimantOf(o *objects.Object) profile.Claimant {
	c := o.Claimant()
	claimant := profile.Claimant{UID: c.UID, Mount: c.Mount}
	if c.Mount != 0 {
		claimant.Boot = procfs.BootID()
	}
	return claimant
}

// contentLimits bound what is read of files at the end of a recording.
var contentLimits = contested.Limits{Time: 3 * time.Second, Bytes: 8 << 30}

// read reads the contents of files within limits.
func (f *finisher) read(files []*objects.Object, limits contested.Limits) []read {
	var all []read
	for _, r := range objects.ReadContents(files, limits) {
		all = append(all, read{Reading: r})
	}
	return all
}

// distinguish gives each file its identity, content and path. Where files of different
// content claim one identity, it stays with the one that is trusted most, and the others
// have their content for an identity. The identity of a file of unknown content that others can have written
// is a claim: it takes nothing from anybody else, and gets nothing of theirs.
func (f *finisher) distinguish(all []read) {
	claims, copies := map[buildid.ID][]*read{}, map[distinct][]*read{}
	var order []distinct
	for i := range all {
		r := &all[i]
		claims[r.Object.ID] = append(claims[r.Object.ID], r)
	}
	for _, claimants := range claims {
		judgeClaims(claimants)
	}
	for i := range all {
		r := &all[i]
		key := r.distinct()
		if copies[key] == nil {
			order = append(order, key)
		}
		copies[key] = append(copies[key], r)
	}
	for _, key := range order {
		shown := profile.Binary{ID: key.id, Content: key.content, Unkept: key.claim == contradicted}
		if key.claim == unconfirmed {
			shown.Claimant, shown.Rival = &key.claimant, true
		}
		if keeper, is := keeperOf(claims[key.id]); !key.content.IsZero() && (is && key.content != keeper || isDubious(copies[key], claims[key.id])) {
			shown.ID, shown.Claim = key.content.ID(), key.id
		}
		groups := byAuthor(copies[key])
		for _, group := range groups {
			b := f.identify(shown, group, len(groups) > 1)
			f.noteGuests(group)
			if key.content.IsZero() && len(claims[key.id]) > len(group) && !group[0].Object.Doubted {
				b.Segments = nil // or pprof takes it for another one of the same layout
			}
		}
	}
}

// identify makes one file of objects. The first one gives it its path and, if it could be
// reached, its symbols.
func (f *finisher) identify(shown profile.Binary, group []*read, apart bool) *identified {
	shown.Path, shown.Apart = group[0].Object.Path, apart
	b := &identified{Binary: shown}
	key := group[0].distinct()
	if apart {
		key.path = shown.Path
	}
	if known := f.files[key]; known != nil {
		b = known
	}
	f.files[key] = b
	for _, r := range group {
		if key.content.IsZero() && r.IsOtherState(&group[0].Reading) {
			r.Several = append(r.Several, buildid.Content{})
		}
		f.ofObject[r.Object] = b
		b.add(r.Object, len(r.Several) > 0)
	}
	return b
}

// noteGuests notes the copies of a trusted file that others can have written. A content is of the
// code: what is executed beyond it may be other bytes than those of the trusted file.
func (f *finisher) noteGuests(group []*read) {
	if len(group) < 2 || group[0].Content.IsZero() || !group[0].IsVouched() {
		return
	}
	for _, r := range group[1:] {
		if r.IsVouched() {
			continue
		}
		if f.guests == nil {
			f.guests = map[*objects.Object]*profile.Binary{}
		}
		claimant := claimantOf(r.Object)
		f.guests[r.Object] = &profile.Binary{ID: r.Object.ID, Path: r.Object.Path, Claimant: &claimant, Rival: true}
	}
}

// byAuthor groups copies, of which each says itself what its functions are called. A file
// that root or this user wrote is believed for all of them, and comes first. Without one, a
// user's file is believed for that user's copies alone.
func byAuthor(copies []*read) [][]*read {
	if len(copies) == 1 || copies[0].Content.IsZero() {
		return [][]*read{copies}
	}
	best, top := trust.Others, 0
	owners := map[int64][]*read{}
	var order []int64
	for i, r := range copies {
		level, owner := r.Object.Level()
		if level > best {
			best = level
			top = i
		}
		if owners[owner] == nil {
			order = append(order, owner)
		}
		owners[owner] = append(owners[owner], r)
	}
	if best > trust.Others {
		copies[0], copies[top] = copies[top], copies[0]
		return [][]*read{copies}
	}
	groups := make([][]*read, len(order))
	for i, owner := range order {
		groups[i] = owners[owner]
	}
	return groups
}

// judgeClaims notes what becomes of the claims of files of unknown content that others can have written. A file that is
// trusted more contradicts one that was seen to differ from it. Nobody else's file does, or any user could take the
// identity of somebody else's files by forging them.
func judgeClaims(claimants []*read) {
	for _, r := range claimants {
		if !r.Content.IsZero() || r.IsVouched() || len(r.Several) > 0 {
			continue
		}
		r.claim = unconfirmed
		seen := r.Object.Glimpse()
		differs := func(o *read) bool { return !o.Content.IsZero() && o.Content != seen && o.IsVouched() }
		if !seen.IsZero() && slices.ContainsFunc(claimants, differs) {
			r.claim = contradicted
		}
	}
}

// isDubious reports whether copies of known content may not have the identity that they claim: another file claims it
// whose content is unknown, and that is trusted more.
func isDubious(copies, claimants []*read) bool {
	best := trust.Others
	for _, c := range copies {
		level, _ := c.Object.Level()
		best = max(best, level)
	}
	isTrustedMore := func(r *read) bool {
		level, _ := r.Object.Level()
		return r.Content.IsZero() && level > best
	}
	return slices.ContainsFunc(claimants, isTrustedMore)
}

// keeperOf returns the content that keeps an identity, zero for none, and whether files of
// different content claim it.
func keeperOf(claimants []*read) (keeper buildid.Content, isContested bool) {
	var contents []buildid.Content
	for _, r := range claimants {
		if !r.Content.IsZero() {
			contents = append(contents, r.Content)
		}
	}
	if contested.Judge(contents) != contested.Different {
		return buildid.Content{}, false
	}
	best, alone := trust.Others, false
	for _, r := range claimants {
		if r.Content.IsZero() {
			continue
		}
		switch level, _ := r.Object.Level(); {
		case level > best:
			best, keeper, alone = level, r.Content, true
		case level == best && r.Content != keeper:
			alone = false
		}
	}
	if !alone {
		keeper = buildid.Content{}
	}
	return keeper, true
}

// add takes what is known of one of the objects that show the file. The first one whose file
// could be reached gives it its content. Of two files of unknown content, nobody knows which
// is the right one.
func (b *identified) add(o *objects.Object, isSeveral bool) {
	switch {
	case b.Content.IsZero() && (isSeveral || b.content != nil && o.Content != nil):
		b.content, b.file, b.Segments, b.doubtful = nil, nil, nil, true
	case b.content == nil && o.Content != nil && !b.doubtful:
		b.content = o.Content
		b.readSegments()
	}
}

// doubt has the profile say of which files one object shows several.
func (f *finisher) doubt(b *profile.Builder, all []read) {
	for _, r := range all {
		if len(r.Several) > 0 {
			b.Doubt(&f.ofObject[r.Object].Binary, r.Several)
		}
	}
}
