package profile

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/reason"
)

// TestCoverageCountsFrames adds up proftest.Mixed by hand, where n×f is a stack
// of f frames that was seen n times:
// 5×2 + 3×4 + 2×3 + 1×3 + 2×2 + 1×1 + 4×1 = 40 frames. Without identity: 2 in a
// file that is gone, 1 in no mapping. Identified without symbol: 2 in the
// library, 1 in the kernel. In files: 40 less 4 of the kernel and 1 of nowhere.
func TestCoverageCountsFrames(t *testing.T) {
	p := proftest.Mixed()
	misses := Misses{}
	for _, l := range p.Location {
		if !symbolized(l) {
			misses[l] = reason.NoSymbolTable
		}
	}
	c := MeasureCoverage(p, misses)
	if c.Proven != 4 || c.Claimed != 33 { // only what is the kernel's own is proven
		t.Errorf("proven %d, claimed %d; want 4, 33", c.Proven, c.Claimed)
	}
	if c.Frames != 40 || c.Identified != 37 || c.Symbolized != 34 {
		t.Errorf("frames %d, identified %d, symbolized %d; want 40, 37, 34", c.Frames, c.Identified, c.Symbolized)
	}
	if c.FileFrames != 35 || c.FileIdentified != 33 {
		t.Errorf("frames in files %d, identified %d; want 35, 33", c.FileFrames, c.FileIdentified)
	}
	want := []struct {
		lacks    Lack
		reason   reason.Reason
		frames   int64
		binaries string
	}{
		{LacksSymbol, reason.NoSymbolTable, 3, "/usr/lib/libz.so.1 (deleted) 2, [kernel] 1"},
		{LacksIdentity, reason.FileGone, 2, "[file-gone] /opt/old 2"},
		{LacksIdentity, reason.NotMapped, 1, "[not-mapped] 1"},
		{LacksProof, reason.Unproven, 33, "/usr/bin/app 29, /usr/lib/libz.so.1 (deleted) 4"},
	}
	if len(c.Gaps) != len(want) {
		t.Fatalf("gaps %v, want %v", c.Gaps, want)
	}
	for i, g := range c.Gaps {
		var binaries []string
		for _, b := range g.Binaries {
			binaries = append(binaries, b.File+" "+strconv.FormatInt(b.Frames, 10))
		}
		w := want[i]
		if g.Lacks != w.lacks || g.Reason != w.reason || g.Frames != w.frames || strings.Join(binaries, ", ") != w.binaries {
			t.Errorf("gap %+v, want %+v", g, w)
		}
	}
}

// TestCoverageOfGeneratedCode wants to hear of names only where there are none.
func TestCoverageOfGeneratedCode(t *testing.T) {
	m := &pprof.Mapping{ID: 1, File: "[anonymous]"}
	named := &pprof.Location{ID: 1, Mapping: m, Line: []pprof.Line{{Function: &pprof.Function{ID: 1, Name: "f"}}}}
	nameless := &pprof.Location{ID: 2, Mapping: m}
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		Mapping:    []*pprof.Mapping{m}, Location: []*pprof.Location{named, nameless},
		Function: []*pprof.Function{named.Line[0].Function},
		Sample:   []*pprof.Sample{{Value: []int64{2}, Location: []*pprof.Location{nameless, named, named}}},
	}
	got := map[Lack]int64{}
	for _, g := range MeasureCoverage(p, nil).Gaps {
		got[g.Lacks] += g.Frames
		if want := (map[Lack]reason.Reason{LacksIdentity: reason.Anonymous, LacksSymbol: reason.NoPerfMap})[g.Lacks]; g.Reason != want {
			t.Errorf("lacks %s: %v, want %v", g.Lacks, g.Reason, want)
		}
	}
	if got[LacksIdentity] != 6 || got[LacksSymbol] != 2 {
		t.Errorf("frames without: %v", got)
	}
}

// TestCoverageInFiles: what may have been in a file counts against the share, and what
// cannot have been in one does not.
func TestCoverageInFiles(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/bin/gzip":             true,
		"[file-gone]":               true,
		"[file-written]":            true,
		"[table-full]":              true,
		"[unstable]":                true,
		"[file-unresponsive]":       true,
		"[stackmap-ip]":             true,
		"[file-changed] /opt/a.out": true,
		"[kernel]":                  false,
		"[not-mapped]":              false,
		"[not-executable]":          false,
		"[anonymous]":               false,
		"[bad-offset]":              false,
	} {
		if have := inFile(&pprof.Mapping{File: file}); have != want {
			t.Errorf("%s is in a file: %v", file, have)
		}
	}
}

// TestCoverageAddsUp holds for any profile: every frame that lacks something is
// in one gap.
func TestCoverageAddsUp(t *testing.T) {
	stripped := proftest.CPU(t)
	proftest.Strip(stripped)
	for name, c := range map[string]Coverage{
		"mixed":    MeasureCoverage(proftest.Mixed(), nil),
		"real":     MeasureCoverage(proftest.CPU(t), nil),
		"stripped": MeasureCoverage(stripped, nil),
		"heap":     MeasureCoverage(proftest.Heap(t), nil),
	} {
		lack := map[Lack]int64{}
		for _, g := range c.Gaps {
			lack[g.Lacks] += g.Frames
			var inBinaries int64
			for _, b := range g.Binaries {
				inBinaries += b.Frames
			}
			if inBinaries != g.Frames {
				t.Errorf("%s: %d frames in the binaries of a gap of %d", name, inBinaries, g.Frames)
			}
		}
		if c.Frames == 0 || c.Identified+lack[LacksIdentity] != c.Frames {
			t.Errorf("%s: %d identified and %d not, of %d", name, c.Identified, lack[LacksIdentity], c.Frames)
		}
		if known := c.Frames - c.Symbolized; lack[LacksSymbol] > known {
			t.Errorf("%s: %d lack a symbol, but only %d have none", name, lack[LacksSymbol], known)
		}
	}
}

func TestCoverageBeforeSymbolization(t *testing.T) {
	p := proftest.CPU(t)
	proftest.Strip(p)
	c := MeasureCoverage(p, nil)
	if c.Symbolized != 0 || c.Identified != c.Frames || c.FileIdentified != c.Identified {
		t.Errorf("coverage of a Go program's stripped profile: %+v", c)
	}
	if len(c.Gaps) != 2 || c.Gaps[0].Reason != reason.NotLookedUp || c.Gaps[1].Reason != reason.Unproven {
		t.Errorf("gaps %+v, want one of %v and one of %v", c.Gaps, reason.NotLookedUp, reason.Unproven)
	}
}

func TestGapTellsMachinesEverything(t *testing.T) {
	b, err := json.Marshal(Gap{Lacks: LacksSymbol, Reason: reason.NoSymbolTable, Frames: 7,
		Binaries: []BinaryGap{{File: "/lib/x", BuildID: "ab", Frames: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got["lacks"] != "symbol" || got["reason"] != "no-symbol-table" || got["frame_count"] != 7.0 ||
		got["text"] != reason.NoSymbolTable.String() || got["advice"] != reason.NoSymbolTable.Advice() {
		t.Errorf("JSON %s", b)
	}
}

// TestAdviceOfNoFile wants no advice to install debug symbols of what the kernel maps.
func TestAdviceOfNoFile(t *testing.T) {
	for _, c := range []struct {
		binaries []BinaryGap
		want     string
	}{
		{[]BinaryGap{{File: "[vdso]"}}, ""},
		{[]BinaryGap{{File: "[vdso]"}, {File: "/usr/bin/gzip"}}, reason.NoSymbol.Advice()},
		{nil, reason.NoSymbol.Advice()},
	} {
		gap := Gap{Reason: reason.NoSymbol, Binaries: c.binaries}
		if got := gap.Advice(); got != c.want {
			t.Errorf("%v: %q, want %q", c.binaries, got, c.want)
		}
	}
}
