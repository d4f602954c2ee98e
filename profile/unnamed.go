package profile

import (
	"context"
	"fmt"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/symbol"
)

// Starts know where functions start that have no symbols.
type Starts interface {
	// Starts returns where the function starts at each of the offsets in a file, as file
	// offsets, and symbol.NoStart where it does not know.
	Starts(ctx context.Context, b *Binary, offsets []addr.Offset) []addr.Offset
}

// UnnamedCode is the SystemName of functions that stand for code without a symbol, those
// of NameStarts and of NameUnknown, and those that text of other programs has.
const UnnamedCode = "[unnamed code]"

// IsUnnamed reports whether a function is one of those that NameStarts and NameUnknown
// add, which have no symbol.
func IsUnnamed(f *pprof.Function) bool { return f != nil && f.SystemName == UnnamedCode }

// NameStarts gives the locations without symbols a function that has the name of their
// binary and the file offset where the function starts: "libfoo.so+0x1f3a40". It is for
// showing a profile: one to be kept is better without. Nothing takes such a function for
// a symbol (IsUnnamed): Symbolize replaces it once the name is known.
func NameStarts(ctx context.Context, p *pprof.Profile, s Starts) {
	functions := functionsOf(p)
	for _, f := range unsymbolized(p, Misses{}) {
		if f.binary.Claimant != nil || f.binary.Path == "" || strings.HasPrefix(f.binary.Path, "[") {
			continue
		}
		var unnamed []*pprof.Location
		var offsets []addr.Offset
		for _, l := range f.locations {
			if !symbolized(l) {
				unnamed, offsets = append(unnamed, l), append(offsets, FileOffset(l))
			}
		}
		if len(unnamed) == 0 {
			continue
		}
		for i, start := range s.Starts(ctx, &f.binary, offsets) {
			if start != symbol.NoStart {
				name := fmt.Sprintf("%s+%v", ShortName(f.binary.Path), start)
				unnamed[i].Line = functions.lines([]symbol.Frame{{Func: name, Linkage: UnnamedCode}})
			}
		}
	}
}
