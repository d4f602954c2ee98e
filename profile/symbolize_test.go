package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/internal/proftest"
	"hallmark/reason"
	"hallmark/symbol"
)

// fakeSymbols names everything in the files it has "NAME+OFFSET", inlined into
// "NAME", and counts how often each is asked for.
type fakeSymbols struct {
	names map[string]string // by identity
	mu    sync.Mutex
	asked map[string]int // by identity and path
}

func (f *fakeSymbols) Lookup(_ context.Context, b *Binary, offsets []addr.Offset) []symbol.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[b.ID.String()+" "+b.Path]++
	results := make([]symbol.Result, len(offsets))
	for i, o := range offsets {
		results[i] = symbol.Miss(reason.NoFile)
		if name := f.names[b.ID.String()]; name != "" {
			inner := fmt.Sprintf("%s+%v", name, o)
			results[i] = symbol.Result{Frames: []symbol.Frame{
				{Func: inner, Linkage: inner, File: "in.c", Line: 7, Start: 5, Inlined: true},
				{Func: name, Linkage: "_" + name, File: "out.c", Line: 3, Start: 1},
			}}
		}
	}
	return results
}

func lines(l *pprof.Location) string {
	var all []string
	for _, line := range l.Line {
		f := line.Function
		all = append(all, fmt.Sprintf("%s(%s) %s:%d from %d", f.Name, f.SystemName, f.Filename, line.Line, f.StartLine))
	}
	return strings.Join(all, ", ")
}

func TestSymbolizeFillsWhatIsMissing(t *testing.T) {
	p := proftest.Mixed()
	symbols := &fakeSymbols{names: map[string]string{proftest.LibID: "lib"}}
	before := map[*pprof.Location]string{}
	for _, l := range p.Location {
		if len(l.Line) > 0 {
			before[l] = lines(l)
		}
	}
	misses, _ := Symbolize(t.Context(), p, symbols)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	for l, want := range before {
		if got := lines(l); got != want {
			t.Errorf("%#x had %q and has %q", l.Address, want, got)
		}
	}
	want := map[uint64]string{
		0x7f0000002abc: "lib+0x3abc(lib+0x3abc) in.c:7 from 5, lib(_lib) out.c:3 from 1",
	}
	wantMisses := map[uint64]reason.Reason{
		0xffffffff81002000: reason.NoFile,
		0xdead0000:         reason.NoIdentity,
		0x123:              reason.NoIdentity,
	}
	for _, l := range p.Location {
		if w := want[l.Address]; w != "" && lines(l) != w {
			t.Errorf("%#x is %q, want %q", l.Address, lines(l), w)
		}
		if misses[l] != wantMisses[l.Address] {
			t.Errorf("%#x is missing because of %v, want %v", l.Address, misses[l], wantMisses[l.Address])
		}
	}
	if lib := p.Mapping[1]; !lib.HasFunctions || !lib.HasFilenames || !lib.HasLineNumbers || !lib.HasInlineFrames {
		t.Errorf("the library's mapping does not say what it has: %+v", lib)
	}
	if kernel := p.Mapping[2]; kernel.HasLineNumbers {
		t.Errorf("the kernel's mapping says that it has lines: %+v", kernel)
	}
	if !slices.Equal(sortedKeys(symbols.asked), []string{
		proftest.LibID + " /usr/lib/libz.so.1 (deleted)", proftest.KernelID + " [kernel]",
	}) {
		t.Errorf("asked for %v", symbols.asked)
	}
}

// slowSymbols answers for no file before it is asked for the last one.
type slowSymbols struct {
	last  string
	asked chan struct{}
}

func (s slowSymbols) Lookup(_ context.Context, b *Binary, offsets []addr.Offset) []symbol.Result {
	if b.ID.String() == s.last {
		close(s.asked)
	}
	<-s.asked
	return slices.Repeat([]symbol.Result{symbol.Miss(reason.NoFile)}, len(offsets))
}

// TestSlowFilesKeepNobodyWaiting has as many files that come from elsewhere as are asked
// for at once, less one.
func TestSlowFilesKeepNobodyWaiting(t *testing.T) {
	m := proftest.New()
	last := ""
	for i := range atOnce {
		last = fmt.Sprintf("%040x", i+1)
		m.Sample("p", 1, 1, m.Location(m.Mapping("/bin/"+last, last, 0x400000), 0x400000))
	}
	if misses, _ := Symbolize(t.Context(), m.Profile, slowSymbols{last, make(chan struct{})}); len(misses) != atOnce {
		t.Errorf("%d misses", len(misses))
	}
}

// TestSymbolizeAddsLines has locations with the names that the symbol table of a
// stripped file has. They get lines where they are known, and are no misses elsewhere.
func TestSymbolizeAddsLines(t *testing.T) {
	const known, unknown = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	m := proftest.New()
	symbols := &fakeSymbols{names: map[string]string{known: "better"}}
	at := map[string]*pprof.Location{}
	for _, id := range []string{known, unknown, ""} {
		l := m.Location(m.Mapping("/bin/"+id, id, 0x400000), 0x400000, "named")
		l.Line[0].Line, l.Line[0].Function.Filename = 0, ""
		m.Sample("p", 1, 1, l)
		at[id] = l
	}
	if misses, _ := Symbolize(t.Context(), m.Profile, symbols); len(misses) != 0 {
		t.Errorf("misses %v", misses)
	}
	if got := at[known].Line; len(got) != 2 || got[0].Line != 7 || got[1].Function.Name != "better" || !at[known].Mapping.HasLineNumbers {
		t.Errorf("%+v", got)
	}
	for _, id := range []string{unknown, ""} {
		if got := at[id].Line; len(got) != 1 || got[0].Function.Name != "named" {
			t.Errorf("%q: %+v", id, got)
		}
	}
	if err := m.Profile.CheckValid(); err != nil {
		t.Error(err)
	}
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestSymbolizeAsksOnceAndSharesFunctions has many locations in many files, for
// the race detector as well.
func TestSymbolizeAsksOnceAndSharesFunctions(t *testing.T) {
	const files, locations = 40, 50
	m := proftest.New()
	symbols := &fakeSymbols{names: map[string]string{}}
	for i := range files {
		id := fmt.Sprintf("%040x", i+1)
		symbols.names[id] = "same" // in every file, so the outer functions are one
		mapping := m.Mapping(fmt.Sprintf("/bin/%d", i), id, 0x400000)
		for j := range locations {
			m.Sample("p", 1, 1, m.Location(mapping, uint64(0x400000+j)))
		}
	}
	if misses, _ := Symbolize(t.Context(), m.Profile, symbols); len(misses) != 0 {
		t.Errorf("%d misses", len(misses))
	}
	if err := m.Profile.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if got := len(m.Profile.Function); got != locations+1 {
		t.Errorf("%d functions, want %d inlined ones and one outer", got, locations)
	}
	for file, times := range symbols.asked {
		if times != 1 {
			t.Errorf("asked %d times for %s", times, file)
		}
	}
}

func TestSymbolizeIsDeterministic(t *testing.T) {
	text := func() string {
		p := proftest.Mixed()
		proftest.Strip(p)
		_, _ = Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.LibID: "lib", proftest.AppID: "app", proftest.KernelID: "k"}})
		return p.String()
	}
	want := text()
	for range 20 {
		if got := text(); got != want {
			t.Fatalf("got\n%s\nand before\n%s", got, want)
		}
	}
}

func TestSymbolizeTwiceChangesNothing(t *testing.T) {
	p := proftest.Mixed()
	_, _ = Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.LibID: "lib"}})
	want := p.String()
	_, _ = Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.LibID: "another"}})
	if got := p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
