package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/buildid"
	"hallmark/internal/ordered"
	"hallmark/internal/plaintext"
	"hallmark/reason"
)

// A mapping of pprof has no room for the content of its file, so comments say it, one for
// each file:
//
//	content=8bb18077fa415b4d1306d85709708bc9622c9d24 build_id=93ac54… file="/bin/gzip"
//	content=4417d32e8e1f02f2b7bd3b9a4e6f6bdc03a1a5a2 claims=93ac54… file="/tmp/forged"
//	content=unknown claims=93ac54… file="/tmp/hidden"
//	content=unknown build_id=93ac54… file="/bin/gzip"
//
// The second form is of a file that has its content for a build ID, because another file
// claims the same one. Its claim leads to its debug file all the same. claim.go has a third form.
//
// Other readers show comments or ignore them.
const (
	contentComment = `content=%s build_id=%s file=%s`
	claimComment   = `content=%s claims=%s file=%s`
)

// fileKey is how a comment refers to mappings: their numbers change when profiles are
// merged.
type fileKey struct{ buildID, file string }

func fileKeyOf(m *pprof.Mapping) fileKey { return fileKey{m.BuildID, m.File} }

// comment returns the comment that says the content of a file; the zero one says that nobody
// knows it.
func (k fileKey) comment(c buildid.Content) string {
	said := unknownContent
	if !c.IsZero() {
		said = c.String()
	}
	return fmt.Sprintf(contentComment, said, k.buildID, strconv.Quote(k.file))
}

// claimKey is a file of which the content may be known.
type claimKey struct {
	content buildid.Content
	file    string
	unkept  bool // of unknown content, and another file keeps the identity
}

// comment returns the comment that says what a file claims.
func (k claimKey) comment(id buildid.ID) string {
	return fmt.Sprintf(claimComment, k.content, id, strconv.Quote(k.file))
}

// IsContentComment reports whether a comment of a profile is for machines: it says the
// content of a file, or whose claim its identity is.
func IsContentComment(comment string) bool {
	_, _, isContent := parseContentComment(comment, " build_id=")
	_, _, isClaim := parseContentComment(comment, " claims=")
	return isContent || isClaim || strings.HasPrefix(comment, claimantPrefix)
}

// Notes returns the comments of p that are for people.
func Notes(p *pprof.Profile) []string {
	return slices.DeleteFunc(slices.Clone(p.Comments), IsContentComment)
}

// Disagreements returns the comments of p, for people, about files of different or unknown
// content that claim one identity.
func Disagreements(p *pprof.Profile) []string {
	return slices.DeleteFunc(slices.Clone(p.Comments), func(c string) bool { return !strings.HasPrefix(c, disagreementPrefix) })
}

// RewrittenNote returns the comment, for people, that a process has rewritten pages of a file
// in its memory.
func RewrittenNote(process string, pid, pages int, path string) string {
	return fmt.Sprintf("%s%s of %s by process %s (%d)", rewrittenPrefix, plaintext.Plural(int64(pages), "page"), printable(path), printable(process), pid)
}

// AllRewrittenNote is RewrittenNote for a process that has rewritten so many pages that all of its
// files count as rewritten.
func AllRewrittenNote(process string, pid int) string {
	return fmt.Sprintf("%smore pages than are distinguished by process %s (%d): none of its files is believed", rewrittenPrefix, printable(process), pid)
}

// NotLookedNote returns the comment, for people, that nobody knows whether these processes have
// rewritten pages, and why. It names some of them, in the order of their numbers.
func NotLookedNote(processes []Labels, why string) string {
	slices.SortFunc(processes, func(a, b Labels) int { return cmp.Compare(a.PID, b.PID) })
	var named []string
	for _, p := range processes[:min(len(processes), mostNamed)] {
		named = append(named, fmt.Sprintf("%s (%d)", printable(p.Process), p.PID))
	}
	if more := len(processes) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%snot known of %s: %s", rewrittenPrefix, strings.Join(named, ", "), why)
}

// mostNamed is how many processes or files a comment names.
const mostNamed = 5

// Rewritten returns the comments of p, for people, about pages of files that processes have
// rewritten in their memory.
func Rewritten(p *pprof.Profile) []string {
	return slices.DeleteFunc(slices.Clone(p.Comments), func(c string) bool { return !strings.HasPrefix(c, rewrittenPrefix) })
}

const rewrittenPrefix = "rewritten in memory: "

const disagreementPrefix = "same build ID, "

// unknownContent stands for a content in a comment.
const unknownContent = "unknown"

// claimComment returns the comment that says what a file claims whose content is unknown.
func (k fileKey) claimComment() string {
	return fmt.Sprintf(claimComment, unknownContent, k.buildID, strconv.Quote(k.file))
}

// parseContentComment takes a comment apart in which this word is before the build ID. The zero
// content is unknown.
func parseContentComment(comment, word string) (k fileKey, c buildid.Content, ok bool) {
	rest, ok := strings.CutPrefix(comment, "content=")
	if !ok {
		return k, c, false
	}
	digits, rest, ok := strings.Cut(rest, word)
	if !ok {
		return k, c, false
	}
	var err error
	if digits != unknownContent {
		c, err = buildid.ParseContent(digits)
	}
	if err != nil {
		return k, c, false
	}
	k.buildID, rest, ok = strings.Cut(rest, " file=")
	if !ok {
		return k, c, false
	}
	k.file, err = strconv.Unquote(rest)
	return k, c, err == nil
}

// noLimit is the Limit of mappings of files whose segments are not known. No comment is
// about them: another file of their name and build ID may have been read.
const noLimit = math.MaxInt64

// Contents returns the contents of the files that the mappings of p show, as far as p says
// them. A file of which p says two is left out: its content is unknown.
func Contents(p *pprof.Profile) map[*pprof.Mapping]buildid.Content {
	said, _ := saidContents(p)
	contents := map[*pprof.Mapping]buildid.Content{}
	for _, m := range p.Mapping {
		c := said[fileKeyOf(m)]
		if m.Limit == noLimit || IsClaimed(m) {
			c = buildid.Content{}
		}
		if id, ok := Identity(m); ok && c.IsZero() && !IsClaimed(m) {
			c = id.Content()
		}
		if !c.IsZero() {
			contents[m] = c
		}
	}
	return contents
}

// saidContents returns the contents that comments say, and the files of which they say
// several, or that one of several is unknown.
func saidContents(p *pprof.Profile) (said map[fileKey]buildid.Content, several map[fileKey]bool) {
	said, several = map[fileKey]buildid.Content{}, map[fileKey]bool{}
	for _, comment := range p.Comments {
		k, c, ok := parseContentComment(comment, " build_id=")
		if !ok {
			continue
		}
		if known, again := said[k]; again && known != c || c.IsZero() {
			several[k] = true
		}
		said[k] = c
	}
	for _, k := range mergedFiles(p, said) {
		several[k] = true
	}
	for k := range several {
		delete(said, k)
	}
	return said, several
}

// shape is what pprof distinguishes mappings of one build ID by: mapMapping of its profile/merge.go.
type shape struct {
	buildID      string
	size, offset uint64
}

func shapeOf(m *pprof.Mapping) shape {
	return shape{m.BuildID, (m.Limit - m.Start + 0xfff) &^ 0xfff, m.Offset}
}

// mergedFiles returns the files whose mappings may show frames of another content: a merge by pprof has put mappings of
// one shape together, and has kept one path. Two mappings of one shape are proof that it has not.
func mergedFiles(p *pprof.Profile, said map[fileKey]buildid.Content) []fileKey {
	type ofContent[T comparable] struct {
		of      T
		content buildid.Content
	}
	type mapped struct {
		file  fileKey
		shape shape
	}
	files, filesOf := map[string]int{}, map[ofContent[string]]int{}
	for k, c := range said {
		files[k.buildID]++
		filesOf[ofContent[string]{k.buildID, c}]++
	}
	shapes, shapesOf, seen := map[shape]int{}, map[ofContent[shape]]int{}, map[mapped]bool{}
	for _, m := range p.Mapping {
		k, s := fileKeyOf(m), shapeOf(m)
		if c, ok := said[k]; ok && m.Limit != noLimit && !IsClaimed(m) && !seen[mapped{k, s}] {
			seen[mapped{k, s}] = true
			shapes[s]++
			shapesOf[ofContent[shape]{s, c}]++
		}
	}
	var merged []fileKey
	for at := range seen {
		c := said[at.file]
		others := files[at.file.buildID] - filesOf[ofContent[string]{at.file.buildID, c}]
		if shapes[at.shape]-shapesOf[ofContent[shape]{at.shape, c}] < others {
			merged = append(merged, at.file)
		}
	}
	return merged
}

// Unkept returns the build IDs that files of unknown content claim, whose mappings in p have no
// identity because another file keeps it. A file of which p says two claims is left out.
func Unkept(p *pprof.Profile) map[*pprof.Mapping]buildid.ID {
	said := map[string]buildid.ID{}
	for _, comment := range p.Comments {
		k, c, ok := parseContentComment(comment, " claims=")
		if !ok || !c.IsZero() {
			continue
		}
		id, err := buildid.Parse(k.buildID)
		if known, again := said[k.file]; err != nil || again && known != id {
			id = buildid.ID{}
		}
		said[k.file] = id
	}
	claims := map[*pprof.Mapping]buildid.ID{}
	for _, m := range p.Mapping {
		why, path, _ := pseudo(m.File)
		if id := said[path]; m.BuildID == "" && why == reason.ContentUnknown && !id.IsZero() {
			claims[m] = id
		}
	}
	return claims
}

// Claims returns the build IDs that files claim whose mappings in p show their content
// instead. A file of which p says two claims is left out.
func Claims(p *pprof.Profile) map[*pprof.Mapping]buildid.ID {
	said := map[claimKey]buildid.ID{}
	for _, comment := range p.Comments {
		k, c, ok := parseContentComment(comment, " claims=")
		if !ok {
			continue
		}
		id, err := buildid.Parse(k.buildID)
		if err != nil {
			continue
		}
		at := claimKey{content: c, file: k.file}
		if known, again := said[at]; again && known != id {
			id = buildid.ID{}
		}
		said[at] = id
	}
	claims := map[*pprof.Mapping]buildid.ID{}
	for _, m := range p.Mapping {
		own, _ := Identity(m)
		if id := said[claimKey{content: own.Content(), file: m.File}]; own.Kind() == buildid.ByContent && !id.IsZero() {
			claims[m] = id
		}
	}
	return claims
}

// Binaries returns the file that each mapping of p with an identity shows: what it claims to
// be, and its content as far as p says it. Segments has the mapping.
func Binaries(p *pprof.Profile) map[*pprof.Mapping]Binary {
	contents, claims, claimants := Contents(p), Claims(p), Claimants(p)
	all := map[*pprof.Mapping]Binary{}
	for _, m := range p.Mapping {
		id, ok := Identity(m)
		if !ok {
			continue
		}
		b := Binary{ID: id, Content: contents[m], Path: m.File, Segments: []Segment{segmentOf(m)}}
		if claimed, ok := claims[m]; ok {
			b.ID, b.Rival = claimed, true
		}
		if claimant, ok := claimants[m]; ok {
			b.Claimant, b.Rival = &claimant, true
		}
		all[m] = b
	}
	return all
}

// ContestedIDs returns the identities that files claim of which p says different contents.
func ContestedIDs(p *pprof.Profile) map[buildid.ID]bool {
	files := map[buildid.ID][]claimKey{}
	for _, b := range Binaries(p) {
		if !b.Content.IsZero() {
			files[b.ID] = append(files[b.ID], claimKey{content: b.Content})
		}
	}
	contested := map[buildid.ID]bool{}
	for id, contents := range files {
		if differ(contents) {
			contested[id] = true
		}
	}
	_, several := saidContents(p)
	for k := range several {
		if id, err := buildid.Parse(k.buildID); err == nil {
			contested[id] = true
		}
	}
	return contested
}

// contents are those of the files of a profile that is being built.
type contents struct {
	doubts []string // comments
	shown  map[fileKey]buildid.Content
	claims map[claimKey]buildid.ID
	// files are those that claim each identity.
	files ordered.Multimap[buildid.ID, claimKey]
	// claimants are those of rows: see claim.go.
	claimants map[rowKey]Claimant
}

func newContents() contents {
	return contents{shown: map[fileKey]buildid.Content{}, claims: map[claimKey]buildid.ID{}, claimants: map[rowKey]Claimant{}}
}

// settle returns the identity under which a mapping shows a binary: its own, or its content
// if the profile has another one under its build ID and path.
func (s *contents) settle(b *Binary) buildid.ID {
	claimed := b.Claimed()
	s.note(claimed, claimKey{content: b.Content, file: b.Path})
	if b.Content.IsZero() || b.ID.Kind() == buildid.ByContent {
		s.claim(b, claimed)
		return b.ID
	}
	k := fileKey{b.ID.String(), b.Path}
	if known, ok := s.shown[k]; ok && known != b.Content {
		s.claim(b, claimed)
		return b.Content.ID()
	}
	s.shown[k] = b.Content
	return b.ID
}

// noteUnkept remembers what a file claims that has no identity.
func (s *contents) noteUnkept(b *Binary) {
	k := claimKey{file: b.Path, unkept: true}
	if s.files.Has(b.ID, k) {
		return
	}
	s.note(b.ID, k)
	s.doubts = append(s.doubts, fileKey{b.ID.String(), b.Path}.claimComment())
}

// Doubt says that a binary of unknown content is several files, of these contents, and that
// nobody knows which frame is of which. The zero content is unknown.
func (b *Builder) Doubt(binary *Binary, contents []buildid.Content) {
	s := &b.contents
	for _, c := range contents {
		s.note(binary.Claimed(), claimKey{content: c, file: binary.Path, unkept: c.IsZero()})
		if !binary.Unkept {
			s.doubts = append(s.doubts, fileKey{binary.ID.String(), binary.Path}.comment(c))
		}
	}
}

// note remembers that a file claims an identity.
func (s *contents) note(id buildid.ID, k claimKey) {
	if id.Kind() != buildid.ByContent {
		s.files.Add(id, k)
	}
}

// claim remembers what a file claims that is shown by its content.
func (s *contents) claim(b *Binary, claimed buildid.ID) {
	if !b.Content.IsZero() && claimed.Kind() != buildid.ByContent {
		s.claims[claimKey{content: b.Content, file: b.Path}] = claimed
	}
}

// comments returns what says the contents, and in words where they differ.
func (s *contents) comments(mappings []*pprof.Mapping) []string {
	var all []string
	for _, id := range s.files.Keys() {
		if text := disagreement(id, s.files.Values(id)); text != "" {
			all = append(all, text)
		}
	}
	all = append(all, s.doubts...)
	seen := map[fileKey]bool{}
	for _, m := range mappings {
		k := fileKeyOf(m)
		if row, isClaimed := rowOf(m); isClaimed {
			all = append(all, s.claimants[rowKey{k, row}].comment(k, row))
			continue
		}
		if seen[k] || m.Limit == noLimit && s.claimOf(m).IsZero() {
			continue
		}
		seen[k] = true
		if id := s.claimOf(m); !id.IsZero() {
			own, _ := Identity(m)
			all = append(all, claimKey{content: own.Content(), file: m.File}.comment(id))
		} else if c := s.shown[k]; !c.IsZero() {
			all = append(all, k.comment(c))
		}
	}
	return all
}

func (s *contents) claimOf(m *pprof.Mapping) buildid.ID {
	id, _ := Identity(m)
	if id.Kind() != buildid.ByContent {
		return buildid.ID{}
	}
	return s.claims[claimKey{content: id.Content(), file: m.File}]
}

// disagreement says that files which claim one identity have different contents, or that nobody
// knows; "" where no two are known to, and none lost the identity for that.
func disagreement(id buildid.ID, claimants []claimKey) string {
	what := "different content"
	if !differ(claimants) {
		if !slices.ContainsFunc(claimants, func(k claimKey) bool { return k.unkept }) {
			return ""
		}
		what = "content unknown"
	}
	var named ordered.Set[string]
	for _, k := range claimants {
		path := printable(k.file)
		if k.unkept {
			path += " (content unknown)"
		}
		named.Add(path)
	}
	paths := slices.Clone(named.Values())
	if more := len(paths) - mostClaimants; more > 0 {
		paths = append(paths[:mostClaimants], fmt.Sprintf("%d more", more))
	}
	claim := "claim"
	if len(paths) == 1 {
		claim = "claims"
	}
	return fmt.Sprintf(disagreementPrefix+"%s: %s %s %v", what, strings.Join(paths, ", "), claim, id)
}

// mostClaimants is how many files are named that claim one identity.
const mostClaimants = 4

// differ reports whether two files are known to have different contents.
func differ(files []claimKey) bool {
	var first buildid.Content
	for _, f := range files {
		if !f.content.IsZero() && !first.IsZero() && f.content != first {
			return true
		}
		if first.IsZero() {
			first = f.content
		}
	}
	return false
}

// printable returns a path without what a terminal would obey, and quoted if it could be taken
// for more than a path.
func printable(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' || r == ',' || r == '"' }) {
		return strconv.Quote(path)
	}
	return path
}
