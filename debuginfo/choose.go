package debuginfo

import (
	"slices"

	"hallmark/buildid"
	"hallmark/reason"
	"hallmark/symbol"
)

// A claim is a file, or an index that is kept of one, that has the identity.
type claim struct {
	content buildid.Content
	path    string // to show
	rank    rank
	asked   bool         // the query says that the file is there, or the user has named it
	file    *symbol.File // nil for an index
}

// agrees reports whether two claims are known to be of one content.
func (c *claim) agrees(o *claim) bool { return c.content == o.content && !c.content.IsZero() }

// findProgram finds the file itself. kept are the indexes of files with the identity. It
// returns why there is no answer at all: several contents are believed equally.
func (s *search) findProgram(kept []keptIndex) reason.Reason {
	switch {
	case s.File != nil:
		s.file = s.File
		if len(kept) > 0 && s.Content.IsZero() && hasCode(s.file) {
			s.Content = contentOf(s.ctx, s.file)
		}
		s.compare(kept)
	case s.ofKernel():
		content, why := s.decide(claimsOf(kept))
		if why != reason.None {
			return why
		}
		s.Content, s.file = content, s.find(wantFile)
	case !s.Content.IsZero():
		s.file = s.find(wantFile)
		s.compare(kept)
	default:
		return s.choose(kept)
	}
	return reason.None
}

// compare reports an index of another content than the one that is looked for.
func (s *search) compare(kept []keptIndex) {
	path := s.wanted()
	if s.file != nil {
		path = s.file.Name()
	}
	for _, k := range kept {
		if k.isOfAnother(s.Content) {
			s.tellDifferent(path, k.shownPath())
			s.others = s.others || k.rank() > rankOthers
		}
	}
}

// choose finds the file where its content is not known: it is that of the claim that is
// believed most. The file at the path that the query says, or that was named, is never outvoted
// in silence: that would name its code by another file.
func (s *search) choose(kept []keptIndex) reason.Reason {
	claims := s.claims()
	if len(claims)+len(kept) > 1 {
		for i := range claims {
			claims[i].content = contentOf(s.ctx, claims[i].file)
		}
	}
	content, why := s.decide(slices.Concat(claims, claimsOf(kept)))
	s.Content = content
	for _, c := range claims {
		if s.file == nil && why == reason.None && c.content == content {
			s.file = c.file
			continue
		}
		c.file.Close()
	}
	if s.file == nil && why == reason.None && len(claims) == 0 {
		s.file = s.debugFileAtPath()
	}
	return why
}

// claimsOf returns the claims of indexes that may answer for a file that is not there.
func claimsOf(kept []keptIndex) []claim {
	var claims []claim
	for _, k := range kept {
		if k.rank() > rankOthers && !k.Content.IsZero() {
			claims = append(claims, claim{content: k.Content, path: k.shownPath(), rank: k.rank()})
		}
	}
	return claims
}

// decide returns the content that is believed most.
func (s *search) decide(claims []claim) (buildid.Content, reason.Reason) {
	if len(claims) == 0 {
		return buildid.Content{}, reason.None
	}
	best := rankOthers
	for _, c := range claims {
		best = max(best, c.rank)
	}
	var first *claim
	why := reason.None
	for i := range claims {
		c := &claims[i]
		if c.rank < best && !c.asked {
			continue
		}
		if first != nil && !first.agrees(c) {
			why = reason.DifferentContent
		}
		if first == nil {
			first = c
		}
	}
	for i := range claims {
		if &claims[i] != first && !first.agrees(&claims[i]) {
			s.differ(first.path, claims[i].path)
		}
	}
	return first.content, why
}

// claims returns the files with code that have the identity and may be the one, each once.
func (s *search) claims() []claim {
	var all []claim
	for _, place := range s.places() {
		for _, path := range s.paths(place, wantFile) {
			file := s.try(place, wantFile, path)
			if file == nil {
				continue
			}
			if !hasCode(file) || isAmong(file, all) {
				file.Close()
				continue
			}
			b := s.beliefIn(place, file)
			all = append(all, claim{path: path, rank: b.rank(), asked: place == AtPath || b.named, file: file})
		}
	}
	return all
}

func isAmong(file *symbol.File, claims []claim) bool {
	for _, c := range claims {
		if sameFile(c.file, file) {
			return true
		}
	}
	return false
}

// debugFileAtPath returns the debug file that is where the file should be.
func (s *search) debugFileAtPath() *symbol.File {
	for _, path := range s.paths(AtPath, wantFile) {
		if file := s.try(AtPath, wantFile, path); file != nil {
			return file
		}
	}
	return nil
}
