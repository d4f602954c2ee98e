package scan

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"hallmark/buildid"
	"hallmark/internal/regular"
	"hallmark/server/packages"
	"hallmark/server/store"
)

// taking takes the files of an identity from one file of this machine into the store.
type taking struct {
	*Scanner
	id     buildid.ID
	path   string
	places []place               // of the identity in that file
	all    []place               // of the identity in all files
	early  func(*store.Arriving) // nil for no call
	found  bool                  // the file had some
	added  bool                  // that the store did not have
}

// take takes what there is.
func (t *taking) take(ctx context.Context) error {
	f, err := regular.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	origin := store.Origin{Trust: store.Operator, Via: "scan", Path: t.path}
	if !t.places[0].in.Pack {
		origin.Modified = info.ModTime()
		return t.add(ctx, f, info.Size(), origin)
	}
	origin.Archive = t.path
	found, err := t.takeFrom(ctx, f, origin, func(m packages.Member) bool {
		return slices.ContainsFunc(t.places, func(p place) bool { return p.Path == m.Path })
	})
	if err != nil || found || !t.places[0].in.Lazy {
		return err
	}
	// The package has it elsewhere.
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = t.takeFrom(ctx, f, origin, func(packages.Member) bool { return true })
	return err
}

// takeFrom takes those members of a package that are wanted and have the identity, and reports whether there was one.
func (t *taking) takeFrom(ctx context.Context, f *os.File, origin store.Origin, wants func(packages.Member) bool) (found bool, err error) {
	left := len(t.places)
	err = packages.Walk(ctx, bufio.NewReaderSize(f, 1<<20), t.path, t.Limits, nil, func(m packages.Member) error {
		start := make([]byte, 4)
		if !wants(m) {
			return nil
		}
		if n, _ := io.ReadFull(m, start); n < 4 || !isELF(start) {
			return nil
		}
		o := origin
		o.Path, o.Package, o.Build, o.Modified = m.Path, m.Meta.Package(), t.places[0].in.Build, m.Modified
		err := t.add(ctx, io.MultiReader(bytes.NewReader(start), m), m.Size, o)
		var mismatch *store.MismatchError
		var format *store.FormatError
		if errors.As(err, &mismatch) || errors.As(err, &format) {
			return nil // another member
		}
		found = found || err == nil
		if left--; err == nil && left == 0 {
			return packages.ErrSkip
		}
		return err
	})
	return found, err
}

// add takes a file of some size, if it has the identity.
func (t *taking) add(ctx context.Context, r io.Reader, size int64, o store.Origin) error {
	head := make([]byte, min(headSize, size))
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return err
	}
	head = head[:n]
	claim := store.Claim{ID: t.id, Origin: o}
	info, err := buildid.ReadClaim(bytes.NewReader(head))
	isKnown := err == nil && info.ID.Kind() == buildid.GNU // else it may be further behind
	if isKnown && info.ID != t.id {
		return &store.MismatchError{Claimed: t.id.String(), Found: info.ID.String()}
	}
	var early *store.Arriving
	if isKnown && t.early != nil {
		if early = t.arriving(head, size, o); early != nil {
			claim.Verified = early.Verified
		}
	}
	isNew, err := t.keep(ctx, io.MultiReader(bytes.NewReader(head), r), claim, early)
	if early != nil {
		early.Close(err)
	}
	t.found, t.added = t.found || err == nil, t.added || isNew
	return err
}

func (t *taking) keep(ctx context.Context, r io.Reader, claim store.Claim, early *store.Arriving) (isNew bool, err error) {
	spool, err := t.Store.SpoolFor(ctx, r, early)
	if err != nil {
		return false, err
	}
	defer spool.Close()
	if info, _ := buildid.ReadClaim(spool); info.ID != t.id { // most members of a package are others
		return false, &store.MismatchError{Claimed: t.id.String(), Found: info.ID.String()}
	}
	a, err := t.Store.Add(ctx, spool, claim)
	if err == nil && early != nil {
		early.Kept(t.Store, a)
	}
	return a.New, err
}

// arriving returns a file that can be read while it comes: one that is served, whatever else there is. nil is for another.
func (t *taking) arriving(head []byte, size int64, o store.Origin) *store.Arriving {
	i := slices.IndexFunc(t.places, func(p place) bool { return p.Path == "" || p.Path == o.Path })
	if i < 0 || size <= 0 {
		return nil
	}
	own := t.places[i]
	facts := own.facts()
	if own.in.Lazy { // nobody has looked at it
		if facts.Machine, facts.Segments = store.SegmentsOf(bytes.NewReader(head)); facts.Segments == "" {
			return nil
		}
	}
	alone := func(is func(*member) bool, fits func(*store.Facts) bool) bool {
		return !slices.ContainsFunc(t.all, func(p place) bool {
			other := p.facts()
			return p.member != own.member && (is(p.member) || !fits(&other))
		})
	}
	isExecutable, isDebug := func(m *member) bool { return m.Executable }, func(m *member) bool { return m.Debug }
	fits := func(exe *store.Facts) bool { return !exe.Executable || !facts.Executable && store.Fits(exe, &facts) }
	early := &store.Arriving{Facts: facts, Size: size, Origin: o, Ready: t.early}
	early.Executable = facts.Executable && alone(isExecutable, func(*store.Facts) bool { return true })
	early.Debug = facts.Debug && alone(isDebug, fits)
	if !early.Executable && !early.Debug {
		return nil
	}
	return early
}
