package profile_test

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

var claimedID, _ = buildid.Parse("0123456789abcdef0123456789abcdef01234567")

// claimedBinaries are a file of known content, and claims of its identity: at its path and at another one, by two
// users, in two mount namespaces, and by nobody knows whom.
func claimedBinaries(t *testing.T) []*profile.Binary {
	t.Helper()
	claim := func(path string, c profile.Claimant) *profile.Binary {
		return &profile.Binary{ID: claimedID, Path: path, Claimant: &c, Segments: []profile.Segment{{Offset: 0x1000, Virt: 0x401000, Size: 0x2000}}}
	}
	const boot = "5a5b1b9c-9f0e-4f3c-a1a6-0d3b1d2f3a4b"
	return []*profile.Binary{
		{ID: claimedID, Path: "/lib/libc.so.6", Content: contentOf(t, "a"), Segments: []profile.Segment{{Offset: 0x1000, Virt: 0x1000, Size: 0x2000}}},
		claim("/lib/libc.so.6", profile.Claimant{UID: 0, Mount: 4026531841, Boot: boot}),
		claim("/lib/libc.so.6", profile.Claimant{UID: 0, Mount: 4026532999, Boot: boot}),
		claim("/tmp/a file \"x\"", profile.Claimant{UID: 1000, Mount: 4026531841, Boot: boot}),
		claim("/tmp/a file \"x\"", profile.Claimant{UID: 1001, Mount: 4026531841, Boot: boot}),
		claim("/tmp/a file \"x\"", profile.Claimant{UID: profile.UnknownOwner}),
	}
}

func claimedProfile(binaries []*profile.Binary, names bool) *pprof.Profile {
	b := profile.NewBuilder(1)
	for i, binary := range binaries {
		f := profile.Frame{Binary: binary, Offset: 0x1100}
		if names {
			f.Symbols = []symbol.Frame{{Func: "malloc", Linkage: "malloc"}}
		}
		b.Add([]profile.Frame{f}, &profile.Labels{PID: 100 + i}, 1, 1)
	}
	return b.Profile()
}

// rows returns what a profile says of the identities of its samples, by process.
func rows(p *pprof.Profile) map[int64]string {
	all := map[int64]string{}
	binaries, proofs := profile.Binaries(p), profile.Proofs(p)
	for _, s := range p.Sample {
		m := s.Location[0].Mapping
		b, text := binaries[m], proofs[m].String()
		if b.Claimant != nil {
			text += " by " + b.Claimant.String() + " " + b.Claimant.Boot
		}
		all[s.NumLabel["pid"][0]] = b.ID.String() + " " + b.Path + " " + b.Content.String() + " " + text
		if profile.FileOffset(s.Location[0]) != 0x1100 {
			all[s.NumLabel["pid"][0]] += " at another offset"
		}
	}
	return all
}

// TestClaimantsStay writes claims, reads them, and merges them as go tool pprof does, with themselves and with the
// proven file alone: each stays what it is.
func TestClaimantsStay(t *testing.T) {
	binaries := claimedBinaries(t)
	p := claimedProfile(binaries, false)
	want := rows(p)
	if len(want) != len(binaries) || !strings.HasSuffix(want[100], " proven") {
		t.Fatalf("rows %v", want)
	}
	seen := map[string]bool{}
	for pid := int64(101); pid < 100+int64(len(binaries)); pid++ {
		if seen[want[pid]] || !strings.Contains(want[pid], "claimed by") {
			t.Errorf("row %q", want[pid])
		}
		seen[want[pid]] = true
	}
	var file bytes.Buffer
	if err := profile.Write(&file, p); err != nil {
		t.Fatal(err)
	}
	read, err := profile.Read(&file, profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := pprof.Merge([]*pprof.Profile{claimedProfile(binaries[:1], false), read, claimedProfile(binaries, false)})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]map[int64]string{"read": rows(read), "merged": rows(merged)} {
		for pid := range want {
			if got[pid] != want[pid] {
				t.Errorf("%s: %q, want %q", name, got[pid], want[pid])
			}
		}
	}
}

// TestMergedContents has pprof merge two profiles, whose files have one build ID, one layout and two contents. Their
// frames are then in one mapping, and nobody knows which is of which: it is contested, with no name of either file. So
// it is where another mapping of one file stays apart.
func TestMergedContents(t *testing.T) {
	code := profile.Segment{Offset: 0x1000, Virt: 0x1000, Size: 0x2000}
	file := func(path, content string, segments ...profile.Segment) *pprof.Profile {
		b := &profile.Binary{ID: claimedID, Path: path, Content: contentOf(t, content), Segments: segments}
		builder := profile.NewBuilder(1)
		for _, s := range segments {
			builder.Add([]profile.Frame{{Binary: b, Offset: s.Offset + 0x100}}, &profile.Labels{PID: 1}, 1, 1)
		}
		return builder.Profile()
	}
	for name, test := range map[string]struct {
		other *pprof.Profile
		want  profile.Proof
	}{
		"the same content":       {file("/opt/copy", "a", code), profile.Proven},
		"another content":        {file("/tmp/forged", "b", code), profile.Contested},
		"another, with more":     {file("/tmp/forged", "b", code, profile.Segment{Offset: 0x9000, Virt: 0x9000, Size: 0x5000}), profile.Contested},
		"another path and build": {file("/opt/none", "c"), profile.Proven},
	} {
		for i := range 2 {
			both := []*pprof.Profile{file("/lib/libc.so.6", "a", code), test.other}
			if i == 1 {
				slices.Reverse(both)
			}
			p, err := pprof.Merge(both)
			if err != nil {
				t.Fatal(err)
			}
			misses, _ := profile.Symbolize(t.Context(), p, believer{})
			m := p.Mapping[slices.IndexFunc(p.Mapping, func(m *pprof.Mapping) bool { return m.Offset == 0x1000 })]
			if got := profile.Proofs(p)[m]; got != test.want {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
			for _, l := range p.Location {
				if isNamed := len(l.Line) > 0; isNamed != (test.want == profile.Proven) {
					t.Errorf("%s: named %v, %v", name, isNamed, misses[l])
				}
			}
		}
	}
}

// TestClaimantsAreDoubted has comments that contradict each other, are missing, or are of a file with another path
// whose row an attacker has found: nobody knows the owner, and the identity stays a claim.
func TestClaimantsAreDoubted(t *testing.T) {
	comment := func(p *pprof.Profile) int {
		return slices.IndexFunc(p.Comments, func(c string) bool { return strings.HasPrefix(c, "claimed=") })
	}
	for name, change := range map[string]func(p *pprof.Profile){
		"none": func(p *pprof.Profile) { p.Comments = nil },
		"two owners": func(p *pprof.Profile) {
			p.Comments = append(p.Comments, strings.Replace(p.Comments[comment(p)], "owner=1000", "owner=0", 1))
		},
		"the row of another path": func(p *pprof.Profile) {
			c := strings.Replace(p.Comments[comment(p)], "owner=1000", "owner=0", 1)
			p.Comments = append(p.Comments, strings.Replace(c, "/tmp/a file", "/usr/bin/b", 1))
		},
		"no number": func(p *pprof.Profile) {
			p.Comments[comment(p)] = strings.Replace(p.Comments[comment(p)], "owner=1000", "owner=-1000", 1)
		},
	} {
		p := claimedProfile(claimedBinaries(t)[3:4], false)
		change(p)
		b := profile.Binaries(p)[p.Mapping[0]]
		if b.Claimant == nil || b.Claimant.UID != profile.UnknownOwner || !b.Rival || !profile.IsClaimed(p.Mapping[0]) {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// believer has a name for whatever it is asked.
type believer struct{}

func (believer) Lookup(_ context.Context, b *profile.Binary, offsets []addr.Offset) []symbol.Result {
	return slices.Repeat([]symbol.Result{{Frames: []symbol.Frame{{Func: "malloc", Linkage: "malloc"}}}}, len(offsets))
}

// TestClaimsGetNoNames asks symbols that know nothing of owners: the proven file has a name, and no claim.
func TestClaimsGetNoNames(t *testing.T) {
	p := claimedProfile(claimedBinaries(t), false)
	misses, _ := profile.Symbolize(t.Context(), p, believer{})
	for _, l := range p.Location {
		switch isClaimed := profile.IsClaimed(l.Mapping); {
		case isClaimed && (len(l.Line) > 0 || misses[l] != reason.Unproven):
			t.Errorf("%s has %d names, %v", l.Mapping.File, len(l.Line), misses[l])
		case !isClaimed && len(l.Line) == 0:
			t.Errorf("%s has no name", l.Mapping.File)
		}
	}
	c := profile.MeasureCoverage(p, misses)
	if c.Identified != 6 || c.Proven != 1 || c.Claimed != 5 || c.Symbolized != 1 {
		t.Errorf("coverage %+v", c)
	}
}

// TestDropClaimedNames wants the names of claims dropped, and no others.
func TestDropClaimedNames(t *testing.T) {
	p := claimedProfile(claimedBinaries(t), true)
	if n := profile.DropClaimedNames(p); n != 5 {
		t.Errorf("%d locations lost their names, want 5", n)
	}
	for _, l := range p.Location {
		if (len(l.Line) > 0) != (l.Mapping.File == "/lib/libc.so.6" && !profile.IsClaimed(l.Mapping)) {
			t.Errorf("%s (claimed: %v) has %d names", l.Mapping.File, profile.IsClaimed(l.Mapping), len(l.Line))
		}
	}
}

// TestClaimedContent has a file without a build ID, whose identity is its content: as a claim that is no proof.
func TestClaimedContent(t *testing.T) {
	b := claimedBinaries(t)[3]
	b.ID = contentOf(t, "of a file without a build ID").ID()
	p := claimedProfile([]*profile.Binary{b}, false)
	m := p.Mapping[0]
	if proof, known := profile.Proofs(p)[m], profile.Binaries(p)[m]; proof != profile.Claimed || !known.Content.IsZero() || known.Claimant == nil {
		t.Errorf("the claim is %v, %+v", proof, known)
	}
}

// TestClaimedRanges has mappings of other programs near the ranges of claims.
func TestClaimedRanges(t *testing.T) {
	for _, test := range []struct {
		start, limit uint64
		want         bool
	}{
		{0, 0, false}, {0, 1 << 40, false}, {0, 1<<62 - 1, false}, {0, 1 << 62, true}, {0, 1<<62 + 4095, true}, {0, 1<<62 + 1<<12, true}, {0, math.MaxInt64 - 1, true},
		{0, math.MaxInt64, false}, {0, math.MaxUint64, false}, {0x1000, 1<<62 + 1<<13, false},
	} {
		if got := profile.IsClaimedRange(test.start, test.limit); got != test.want {
			t.Errorf("%#x to %#x: %v", test.start, test.limit, got)
		}
	}
}
