package execwatch

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/objects"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
)

// TestWatchOneID executes builds of one build ID in turn, and a copy of one: the event of
// each that comes after one of other content says so. Copies alone say nothing.
func TestWatchOneID(t *testing.T) {
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	copied := filepath.Join(t.TempDir(), "copied")
	proctest.CopyTo(t, one, copied)
	eachWatch(t, func(t *testing.T, o Options) {
		told := watchCommand(t, o, "sh", "-c", `"$1" 200; "$2" 200; "$1" 200; "$3" 200; "$1" 200`, "sh", one, copied, two)
		want := []string{one + " false", copied + " false", one + " false", two + " true", one + " true"}
		var got, late []string
		for _, ev := range told {
			if b := ev.Program; ev.Kind == Executed && b != nil && filepath.Base(b.Path) != "sh" && b.Path != "/usr/bin/dash" {
				got = append(got, fmt.Sprint(b.Path, " ", b.Contested))
				if b.Content.IsZero() {
					late = append(late, fmt.Sprintf("%s (%v, %v)", b.Path, b.ID, b.Reason))
				}
			}
		}
		switch {
		case slices.Equal(got, want):
		case len(late) > 0 && len(got) == len(want):
			testenv.Lack(t, "told %q, and of these the content was not read in time: %q", got, late)
		default:
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// TestExecClaimsAreBounded has many identities, and many contents of one.
func TestExecClaimsAreBounded(t *testing.T) {
	var c execClaims
	for i := range 3 * maxClaims {
		id, err := buildid.New(buildid.GNU, fmt.Appendf(nil, "%020d", i))
		if err != nil {
			t.Fatal(err)
		}
		for n := range 2 * maxClaimants {
			c.judge(&Event{Kind: Executed, Program: &Binary{ID: id, key: reach.Key{Inode: uint64(n)}}})
		}
	}
	if n := len(c.others.recent) + len(c.others.older); n > 2*maxClaims {
		t.Errorf("%d identities are remembered", n)
	}
}

// pendingFile is a file of which more may become known.
type pendingFile struct{ known objects.Facts }

func (f *pendingFile) Facts() objects.Facts { return f.known }

// come has the content be known, or that it will not be.
func (f *pendingFile) come(c buildid.Content) { f.known.AwaitsContent, f.known.Content = false, c }

// TestTrustedClaimsStay has a stranger's programs claim so many identities that what was seen
// before is forgotten. What a trusted file claimed is not, whether it was known to be one at once or
// later. How many others were forgotten is counted.
func TestTrustedClaimsStay(t *testing.T) {
	idOf := func(i int) buildid.ID {
		id, err := buildid.New(buildid.GNU, fmt.Appendf(nil, "%020d", i))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	content, err := buildid.NewContent(bytes.Repeat([]byte{1}, buildid.ContentSize))
	if err != nil {
		t.Fatal(err)
	}
	var c execClaims
	tell := func(i int, b Binary) bool {
		b.ID = idOf(i)
		c.judge(&Event{Kind: Executed, Program: &b})
		return b.Contested
	}
	later := new(pendingFile)
	tell(1, Binary{key: reach.Key{Inode: 1}, Content: content, trusted: true})
	tell(2, Binary{key: reach.Key{Inode: 2}, pending: later})
	tell(3, Binary{key: reach.Key{Inode: 3}, Content: content})
	later.known.Trusted = true
	const many = 3 * maxClaims
	for i := range many {
		tell(10+i, Binary{key: reach.Key{Inode: uint64(10 + i)}})
	}
	for i, want := range []bool{true, true, false} {
		if got := tell(i+1, Binary{key: reach.Key{Inode: 9}}); got != want {
			t.Errorf("a forged file of identity %d: contested %v, want %v", i+1, got, want)
		}
	}
	if n := len(c.others.recent) + len(c.others.older); n > 2*maxClaims || c.forgotten < many-uint64(n) {
		t.Errorf("%d identities are remembered, and %d forgotten", n, c.forgotten)
	}
}

// TestTrustedClaimTakesItsPlace has a stranger's files claim an identity before the file of root that has
// it: that one is remembered all the same, and kept where other identities do not drive it out.
func TestTrustedClaimTakesItsPlace(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	var c execClaims
	tell := func(n byte, trusted bool) bool {
		content, err := buildid.NewContent(bytes.Repeat([]byte{n}, buildid.ContentSize))
		if err != nil {
			t.Fatal(err)
		}
		b := Binary{ID: id, key: reach.Key{Inode: uint64(n)}, Content: content, trusted: trusted}
		c.judge(&Event{Kind: Executed, Program: &b})
		return b.Different
	}
	for n := range byte(2 * maxClaimants) {
		if got := tell(n+1, false); got != (n > 0) {
			t.Errorf("file %d: different: %v", n+1, got)
		}
	}
	tell(100, true)
	for i := range 3 * maxClaims {
		other, err := buildid.New(buildid.GNU, fmt.Appendf(nil, "%020d", i))
		if err != nil {
			t.Fatal(err)
		}
		c.judge(&Event{Kind: Executed, Program: &Binary{ID: other, key: reach.Key{Inode: uint64(1000 + i)}}})
	}
	if !tell(101, false) {
		t.Error("another file of other content is not told apart from root's")
	}
	if n := len(c.of(id).files); n > maxClaimants {
		t.Errorf("%d files are remembered", n)
	}
}

func factsNow(o evidence) *objects.Facts {
	f := o.Facts()
	return &f
}

// TestExecClaimsWaitForContents has a file reported before its content is known, because no other
// claimed its identity; one that does waits until both are known.
func TestExecClaimsWaitForContents(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	contents := make([]buildid.Content, 2)
	for i := range contents {
		if contents[i], err = buildid.NewContent(bytes.Repeat([]byte{byte(i + 1)}, 20)); err != nil {
			t.Fatal(err)
		}
	}
	build, other := contents[0], contents[1]
	for name, test := range map[string]struct {
		first, second buildid.Content
		contested     bool
	}{
		"two builds":             {build, other, true},
		"a copy":                 {build, build, false},
		"the first is not known": {buildid.Content{}, other, true},
		"the second is not":      {build, buildid.Content{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			q := newWatchQueue()
			tell := func(o evidence) *Binary {
				var b Binary
				b.identify(o, factsNow(o))
				q.claims.judge(&Event{Kind: Executed, Program: &b})
				return &b
			}
			one := &pendingFile{objects.Facts{IsFile: true, Settled: true, ID: id, Key: reach.Key{Inode: 1}, AwaitsContent: true}}
			two := &pendingFile{objects.Facts{IsFile: true, Settled: true, ID: id, Key: reach.Key{Inode: 2}, AwaitsContent: true}}
			if !q.claims.isComplete(factsNow(one)) || tell(one).Contested {
				t.Error("the first file waits, or is contested")
			}
			if q.claims.isComplete(factsNow(two)) {
				t.Error("the second file does not wait")
			}
			two.come(test.second)
			if q.claims.isComplete(factsNow(two)) {
				t.Error("the second file does not wait for the first")
			}
			one.come(test.first)
			if !q.claims.isComplete(factsNow(two)) {
				t.Error("the second file waits for what is known")
			}
			isDifferent := test.first != test.second && !test.first.IsZero() && !test.second.IsZero()
			if b := tell(two); b.Contested != test.contested || b.Different != isDifferent || b.Content != test.second {
				t.Errorf("contested %v, different %v, content %v", b.Contested, b.Different, b.Content)
			}
		})
	}
}

// TestExecClaimsOfOneState has a file run again whose content is not read this time, beside a copy: by the kernel's
// numbers and times it is the one of before.
func TestExecClaimsOfOneState(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	content, err := buildid.NewContent(bytes.Repeat([]byte{1}, 20))
	if err != nil {
		t.Fatal(err)
	}
	var claims execClaims
	judge := func(inode uint64, c buildid.Content) bool {
		b := Binary{ID: id, Content: c, key: reach.Key{Content: bpf.Validity{Inode: inode}}}
		claims.judge(&Event{Kind: Executed, Program: &b})
		return b.Contested
	}
	if judge(1, content) || judge(2, content) || judge(1, buildid.Content{}) {
		t.Error("a file of known content is contested")
	}
	if !judge(3, buildid.Content{}) {
		t.Error("a file of unknown content is not contested")
	}
}

// TestExecClaimsAtOnePath has perf's records name one path for files whose content nobody knows: the
// stamps of those that were reached say that they are two. Where none was, nothing is said.
func TestExecClaimsAtOnePath(t *testing.T) {
	id, err := buildid.Parse("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	first := reach.Sighting{Stamp: reach.Stamp{Size: 100, Inode: 7, Mtime: bpf.Time{Sec: 1}}, Dev: 8}
	written, lookalike := first, first
	written.Stamp.Mtime.Sec++
	lookalike.Dev++
	for name, c := range map[string]struct {
		key       reach.Key
		then      reach.Sighting
		contested bool
	}{
		"a lookalike":              {reach.Key{ID: id, Path: "/p"}, lookalike, true},
		"the same":                 {reach.Key{ID: id, Path: "/p"}, first, false},
		"written":                  {reach.Key{ID: id, Path: "/p"}, written, true},
		"not reached":              {reach.Key{ID: id, Path: "/p"}, reach.Sighting{}, false},
		"one state, as bpf has it": {reach.Key{Content: bpf.Validity{Size: 100}}, written, false},
	} {
		t.Run(name, func(t *testing.T) {
			var claims execClaims
			b := Binary{ID: id, key: c.key, seen: first}
			claims.judge(&Event{Kind: Executed, Program: &b})
			if b.Contested {
				t.Error("the first one is contested")
			}
			b.seen = c.then
			claims.judge(&Event{Kind: Executed, Program: &b})
			if b.Contested != c.contested || b.Different {
				t.Errorf("contested %v, different %v", b.Contested, b.Different)
			}
		})
	}
}
