package profile_test

import (
	"bytes"
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

func gnuID(t testing.TB, b ...byte) buildid.ID {
	t.Helper()
	id, err := buildid.New(buildid.GNU, b)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// build adds each stack once, checks the profile and sends it through its own
// file format.
func build(t *testing.T, stacks ...[]profile.Frame) *pprof.Profile {
	t.Helper()
	b := profile.NewBuilder(10_000_000)
	for _, stack := range stacks {
		b.Add(stack, &profile.Labels{PID: 1}, 1, 10_000_000)
	}
	var file bytes.Buffer
	if err := b.Profile().Write(&file); err != nil {
		t.Fatal(err)
	}
	p, err := pprof.Parse(&file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBuilderKeepsOffsets wants every file offset back from the profile, and the
// virtual address in Location.Address where the segment is known.
func TestBuilderKeepsOffsets(t *testing.T) {
	id := gnuID(t, 1, 2, 3, 4, 5, 6, 7, 8)
	known := &profile.Binary{ID: id, Path: "/bin/x", Segments: []profile.Segment{
		{Offset: 0x1040, Virt: 0x401040, Size: 0x500},
		{Offset: 0x3000, Virt: 0x7000, Size: 0x1000},
	}}
	unknown := &profile.Binary{ID: gnuID(t, 9), Path: "/bin/y"}
	for _, test := range []struct {
		binary  *profile.Binary
		offset  addr.Offset
		address uint64
		start   uint64
	}{
		{known, 0x1040, 0x401040, 0x401000},
		{known, 0x153f, 0x40153f, 0x401000},
		{known, 0x3004, 0x7004, 0x7000},
		{known, 0x9000, 0x9000, 0}, // in no segment
		{unknown, 0x1234, 0x1234, 0},
	} {
		p := build(t, []profile.Frame{{Binary: test.binary, Offset: test.offset}})
		l := p.Location[0]
		if got := profile.FileOffset(l); got != test.offset {
			t.Errorf("offset %v of %s came back as %v", test.offset, test.binary.Path, got)
		}
		if l.Address != test.address || l.Mapping.Start != test.start {
			t.Errorf("offset %v of %s is at %#x of a mapping from %#x, want %#x and %#x",
				test.offset, test.binary.Path, l.Address, l.Mapping.Start, test.address, test.start)
		}
		if got, ok := profile.Identity(l.Mapping); !ok || got != test.binary.ID {
			t.Errorf("identity %v came back as %v", test.binary.ID, got)
		}
		if l.Address < l.Mapping.Start || l.Address >= l.Mapping.Limit {
			t.Errorf("address %#x is outside its mapping %#x-%#x", l.Address, l.Mapping.Start, l.Mapping.Limit)
		}
	}
}

// contentOf returns the content of a file that has this text.
func contentOf(t *testing.T, text string) buildid.Content {
	t.Helper()
	c, err := buildid.ReadContent(t.Context(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBuilderMerges wants one mapping for each segment of an identity and content, one
// location for an address, and one sample for a stack with its labels.
func TestBuilderMerges(t *testing.T) {
	id, content := gnuID(t, 1), contentOf(t, "x")
	segments := []profile.Segment{{Offset: 0x1000, Virt: 0x1000, Size: 0x1000}}
	a := &profile.Binary{ID: id, Path: "/bin/x", Content: content, Segments: segments}
	b := &profile.Binary{ID: id, Path: "/bin/x (deleted)", Content: content, Segments: segments}
	p := build(t,
		[]profile.Frame{{Binary: a, Offset: 0x1010}, {Binary: a, Offset: 0x1020}},
		[]profile.Frame{{Binary: b, Offset: 0x1010}, {Binary: b, Offset: 0x1020}},
		[]profile.Frame{{Binary: b, Offset: 0x1020}},
	)
	if len(p.Mapping) != 1 || len(p.Location) != 2 || len(p.Sample) != 2 {
		t.Fatalf("%d mappings, %d locations, %d samples", len(p.Mapping), len(p.Location), len(p.Sample))
	}
	if v := p.Sample[0].Value; v[0] != 2 || v[1] != 20_000_000 {
		t.Errorf("the stack that came twice has the values %v", v)
	}
}

// TestBuilderTellsContentsApart has files that claim one build ID. Nothing merges with
// another content or with an unknown one, and the profile says which content each has.
func TestBuilderTellsContentsApart(t *testing.T) {
	id := gnuID(t, 1)
	segments := []profile.Segment{{Virt: 0x1000, Size: 0x1000}}
	binaries := []*profile.Binary{
		{ID: id, Path: "/bin/x", Content: contentOf(t, "one"), Segments: segments},
		{ID: id, Path: "/bin/x", Content: contentOf(t, "two"), Segments: segments},
		{ID: id, Path: "/tmp/\"y\" file=", Content: contentOf(t, "three"), Segments: segments},
		{ID: id, Path: "/bin/unknown"},
		{ID: id, Path: "/bin/another"},
		{ID: id, Path: "/bin/x"},
	}
	var stacks [][]profile.Frame
	for _, b := range binaries {
		stacks = append(stacks, []profile.Frame{{Binary: b, Offset: 0x10}})
	}
	p := build(t, stacks...)
	if len(p.Mapping) != len(binaries) || len(p.Sample) != len(binaries) {
		t.Fatalf("%d mappings, %d samples", len(p.Mapping), len(p.Sample))
	}
	contents := profile.Contents(p)
	for i, b := range binaries {
		m := p.Sample[i].Location[0].Mapping
		if got := contents[m]; got != b.Content {
			t.Errorf("%s: content %v, want %v", b.Path, got, b.Content)
		}
		want := b.ID
		if i == 1 { // the path is that of the first one, too
			want = b.Content.ID()
		}
		if m.BuildID != want.String() {
			t.Errorf("%s: build ID %s, want %v", b.Path, m.BuildID, want)
		}
	}
	if claims := profile.Claims(p); len(claims) != 1 || claims[p.Sample[1].Location[0].Mapping] != id {
		t.Errorf("claims %v", claims)
	}
	if want := []string{"same build ID, different content: /bin/x, \"/tmp/\\\"y\\\" file=\", /bin/unknown, /bin/another claim " + id.String()}; !slices.Equal(profile.Notes(p), want) {
		t.Errorf("notes %q, want %q", profile.Notes(p), want)
	}
	if len(p.Comments) != 4 {
		t.Errorf("comments %q", p.Comments)
	}
	if !profile.ContestedIDs(p)[id] {
		t.Error("the identity is not contested")
	}
}

// TestContentsInDoubt has a profile that says two contents of one file, as a merge of two
// may, and one that says nonsense.
func TestContentsInDoubt(t *testing.T) {
	profileOf := func(text string) *pprof.Profile {
		b := &profile.Binary{ID: gnuID(t, 1), Path: "/bin/x", Content: contentOf(t, text), Segments: []profile.Segment{{Size: 1}}}
		return build(t, []profile.Frame{{Binary: b}})
	}
	one, two := profileOf("one"), profileOf("two")
	both, err := pprof.Merge([]*pprof.Profile{one, two})
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Comments) != 2 || len(profile.Contents(both)) != 0 || len(profile.ContestedIDs(both)) != 1 {
		t.Errorf("%q mean %v", both.Comments, profile.Contents(both))
	}
	for _, bad := range []string{"content=", "content=00 build_id=01 file=\"/bin/x\"", one.Comments[0] + "x", "a note"} {
		one.Comments = []string{bad}
		if got := profile.Contents(one); len(got) != 0 || profile.IsContentComment(bad) {
			t.Errorf("%q means %v", bad, got)
		}
	}
}

// TestBuilderTellsStacksApart wants stacks that differ in one frame, at any depth, to be two.
func TestBuilderTellsStacksApart(t *testing.T) {
	const depth = 40
	x := &profile.Binary{ID: gnuID(t, 1), Path: "/bin/x"}
	stack := func(other int) []profile.Frame {
		frames := make([]profile.Frame, depth)
		for i := range frames {
			frames[i] = profile.Frame{Binary: x, Offset: addr.Offset(0x1000 + 16*i)}
		}
		if other < depth {
			frames[other].Offset += 8
		}
		return frames
	}
	var stacks [][]profile.Frame
	for other := range depth + 1 {
		stacks = append(stacks, stack(other), stack(other)[1:], stack(other)[:depth-1])
	}
	// Two of those are cut where they differ, and each is as one that does not differ.
	if p := build(t, stacks...); len(p.Sample) != 3*(depth+1)-2 {
		t.Errorf("%d samples of %d stacks", len(p.Sample), 3*(depth+1)-2)
	}
}

// TestBuilderTellsReasons wants each reason in a pseudo-mapping of its own, with
// the file where one is known.
func TestBuilderTellsReasons(t *testing.T) {
	p := build(t, []profile.Frame{
		{Reason: reason.NotMapped, Addr: 0xdeadbeef},
		{Reason: reason.FileGone, Path: "/tmp/gone", Addr: 0x1000},
		{Reason: reason.FileGone, Path: "/tmp/gone too", Addr: 0x1000},
	})
	want := []struct {
		file   string
		reason reason.Reason
	}{
		{"[not-mapped]", reason.NotMapped},
		{"[file-gone] /tmp/gone", reason.FileGone},
		{"[file-gone] /tmp/gone too", reason.FileGone},
	}
	if len(p.Mapping) != len(want) {
		t.Fatalf("%d mappings", len(p.Mapping))
	}
	for i, l := range p.Sample[0].Location {
		if l.Mapping.File != want[i].file || profile.ReasonOf(l.Mapping) != want[i].reason {
			t.Errorf("frame %d is in %q: %v", i, l.Mapping.File, profile.ReasonOf(l.Mapping))
		}
	}
	if got := p.Sample[0].Location[0].Address; got != 0xdeadbeef {
		t.Errorf("address %#x", got)
	}
}

// TestBuilderGeneratedCode wants two functions that two processes generated at
// the same address to stay two.
func TestBuilderGeneratedCode(t *testing.T) {
	frame := func(name string) []profile.Frame {
		return []profile.Frame{{Reason: reason.Anonymous, Addr: 0x7000, Symbols: []symbol.Frame{{Func: name, Linkage: name}}}}
	}
	p := build(t, frame("one"), frame("two"), frame("one"))
	if len(p.Location) != 2 || len(p.Function) != 2 || len(p.Sample) != 2 {
		t.Errorf("%d locations, %d functions, %d samples", len(p.Location), len(p.Function), len(p.Sample))
	}
}

func TestBuilderInlineChain(t *testing.T) {
	p := build(t, []profile.Frame{{Reason: reason.Anonymous, Symbols: []symbol.Frame{
		{Func: "inner", Linkage: "inner", File: "a.go", Line: 3, Inlined: true},
		{Func: "outer", Linkage: "outer", File: "a.go", Line: 9, Start: 7},
	}}})
	l := p.Location[0]
	if len(l.Line) != 2 || l.Line[0].Function.Name != "inner" || l.Line[1].Function.StartLine != 7 || l.Line[1].Line != 9 {
		t.Errorf("got %+v", l.Line)
	}
	if m := l.Mapping; !m.HasFunctions || !m.HasFilenames || !m.HasLineNumbers || !m.HasInlineFrames {
		t.Errorf("the mapping does not say what it has: %+v", m)
	}
}

func TestBuilderLabels(t *testing.T) {
	b := profile.NewBuilder(1)
	stack := []profile.Frame{{Reason: reason.NotMapped}}
	b.Add(stack, &profile.Labels{PID: 7, TID: 8, Process: "p", Thread: "t", Cgroup: "/c", Container: "d"}, 1, 1)
	b.Add(stack, &profile.Labels{PID: 7, TID: 9}, 1, 1)
	p := b.Profile()
	if len(p.Sample) != 2 {
		t.Fatalf("%d samples", len(p.Sample))
	}
	full, bare := p.Sample[0], p.Sample[1]
	for name, want := range map[string]string{"process": "p", "thread": "t", "cgroup": "/c", "container": "d"} {
		if got := full.Label[name]; len(got) != 1 || got[0] != want {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}
	if full.NumLabel["pid"][0] != 7 || full.NumLabel["tid"][0] != 8 {
		t.Errorf("numbers %v", full.NumLabel)
	}
	if len(bare.Label) != 0 {
		t.Errorf("labels of nothing: %v", bare.Label)
	}
}
