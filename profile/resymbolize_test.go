package profile

import (
	"context"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/proftest"
	"hallmark/reason"
	"hallmark/symbol"
)

// oneFile answers for the offsets of one file.
type oneFile struct {
	id      string
	offsets map[addr.Offset]string
}

func (f oneFile) Lookup(_ context.Context, b *Binary, offsets []addr.Offset) []symbol.Result {
	results := make([]symbol.Result, len(offsets))
	for i, o := range offsets {
		name := f.offsets[o]
		if b.ID.String() != f.id || name == "" {
			results[i] = symbol.Miss(reason.NoSymbol)
			continue
		}
		results[i] = symbol.Result{Frames: []symbol.Frame{{Func: name, Linkage: name}}}
	}
	return results
}

func TestResymbolize(t *testing.T) {
	m := proftest.New()
	app := m.Mapping("/bin/app", proftest.AppID, 0x400000)
	nowhere := m.Mapping("[not-mapped]", "", 0)
	stale := m.Location(app, 0x401000, "inlined", "stale")
	kept := m.Location(app, 0x402000, "kept")
	bare := m.Location(app, 0x403000)
	dark := m.Location(app, 0x404000)
	foreign := m.Location(nowhere, 0x1000, "foreign")
	m.Sample("app", 1, 1, stale, kept, bare, dark, foreign)
	misses, _ := Resymbolize(t.Context(), m.Profile, oneFile{proftest.AppID, map[addr.Offset]string{0x2000: "right", 0x4000: "new"}})
	for l, want := range map[*pprof.Location]string{stale: "right", kept: "kept", bare: "new", foreign: "foreign", dark: ""} {
		got := ""
		for _, line := range l.Line {
			got += line.Function.Name
		}
		if got != want {
			t.Errorf("%#x is %q, want %q", l.Address, got, want)
		}
	}
	if len(misses) != 1 || misses[dark] != reason.NoSymbol {
		t.Errorf("misses are %v", misses)
	}
	if err := m.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
	if len(m.Profile.Function) != 4 {
		t.Errorf("%d functions are left", len(m.Profile.Function))
	}
}
