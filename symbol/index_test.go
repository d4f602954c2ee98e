package symbol

import (
	"bytes"
	hexadecimal "encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/symtab"
	"hallmark/reason"
)

// documented are the pieces of the example in the documentation of the format.
func documented() (*tables, []codePiece) {
	t := new(tables)
	t.file("")
	file := t.file("a.c")
	t.function(t.string("caller"), 10, LangC, file)
	t.function(t.string("callee"), 3, LangC, file)
	part := &indexPart{
		functions: t.functions,
		sites: []partSite{
			{parent: -1, function: 0, file: file, source: SourceDWARF},
			{parent: 0, function: 1, file: file, callLine: 13},
		},
	}
	piece := func(start uint32, site int32, line uint32) codePiece {
		return codePiece{start: start, part: part, site: site, line: line}
	}
	return t, []codePiece{
		piece(0, 0, 10), piece(6, 0, 12), piece(11, 1, 4), piece(20, 1, 5), piece(40, 0, 14),
	}
}

// TestDocumentedStream compares the example in doc.go with what is written.
func TestDocumentedStream(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(doc), "Without columns the stream is")
	if !ok {
		t.Fatal("no example in doc.go")
	}
	var want []byte
	for _, line := range strings.Split(example, "\n") {
		text, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		text, _, _ = strings.Cut(text, "  ")
		b, err := hexadecimal.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	tables, pieces := documented()
	w := newIndexWriter(tables, false, 0)
	for _, p := range pieces {
		w.add(p)
	}
	w.finish(47)
	if got := w.stream[:len(w.stream)-streamPadding]; !bytes.Equal(got, want) {
		t.Errorf("the stream is % x, and documented is % x", got, want)
	}
}

func TestIndexIsDeterministic(t *testing.T) {
	name := goTool(t)
	f := open(t, name)
	var first []byte
	for _, threads := range []int{1, 2, 7} {
		x, err := f.Index(IndexOptions{Threads: threads, Identity: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = x.Bytes()
		}
		if !bytes.Equal(first, x.Bytes()) {
			t.Errorf("%d threads make another index", threads)
		}
	}
}

// TestIndexOfTables compares indexes of files without debug information to the
// tables they were made from.
func TestIndexOfTables(t *testing.T) {
	for _, name := range realFiles(t) {
		f := open(t, name)
		if f.debugImage() != nil {
			continue // see TestIndexOfRealFiles
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			x := index(t, name)
			for _, v := range textAddresses(t, readelf(t, name), 5000) {
				got, want := x.LookupVirt(v), withSymbol(f, v)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: the index says %+v, the file %+v", v, got, want)
				}
				o, ok := f.Offset(v)
				if !ok {
					continue
				}
				if got := x.LookupOffset(o); !reflect.DeepEqual(got, want) {
					t.Fatalf("offset %s: the index says %+v, the file %+v", o, got, want)
				}
			}
		})
	}
}

// withSymbol returns the answer of a file together with the other name that its
// symbol table has for the same address.
func withSymbol(f *File, v addr.Virt) Result {
	r := f.LookupVirt(v)
	if r.Source != SourcePclntab {
		return r
	}
	for i := range r.Frames {
		r.Frames[i].Lang = LangGo
	}
	outer := &r.Frames[len(r.Frames)-1]
	for _, s := range f.sources {
		table, _ := s.load()
		symbols, ok := table.(*symtab.Table)
		if !ok {
			continue
		}
		if name := symbols.NameAt(v); name != "" {
			if name != outer.Linkage {
				outer.Symbol = name
			}
			break
		}
	}
	return r
}

// TestPieces compares what an index lists with what it answers.
func TestPieces(t *testing.T) {
	x := index(t, goTool(t))
	end := addr.Virt(x.base)
	n := 0
	for p := range x.Pieces() {
		if p.Virt < end || p.Size == 0 {
			t.Fatalf("%s+%#x after what ends at %s", p.Virt, p.Size, end)
		}
		if p.Virt > end {
			if frames, _ := x.AppendFrames(nil, end); len(frames) != 0 {
				t.Fatalf("%s is not listed, and has %+v", end, frames)
			}
		}
		end = p.Virt + addr.Virt(p.Size)
		for _, v := range []addr.Virt{p.Virt, end - 1} {
			if frames, source := x.AppendFrames(nil, v); source != p.Source || !reflect.DeepEqual(frames, p.Frames) {
				t.Fatalf("%s: listed as %+v, answered as %+v", v, p.Frames, frames)
			}
		}
		n++
	}
	if n < 1000 {
		t.Errorf("only %d pieces", n)
	}
}

func TestOpenIndex(t *testing.T) {
	x, err := open(t, goTool(t)).Index(IndexOptions{Identity: "some identity"})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "index")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(x.Bytes())
	opened, err := OpenIndex(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Check(); err != nil || opened.Identity() != "some identity" || opened.Name() != name {
		t.Errorf("%v, %q, %q", err, opened.Identity(), opened.Name())
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	for what, damage := range map[string]func([]byte) []byte{
		"empty":     func(b []byte) []byte { return nil },
		"an ELF":    func(b []byte) []byte { return append([]byte("\x7fELF"), b...) },
		"a version": func(b []byte) []byte { b[8]++; return b },
		"header":    func(b []byte) []byte { b[40]++; return b },
		"cut off":   func(b []byte) []byte { return b[:len(b)/2] },
	} {
		write(damage(bytes.Clone(x.Bytes())))
		_, err := OpenIndex(name)
		var format *FormatError
		if !errors.As(err, &format) || format.Name != name {
			t.Errorf("%s: %v", what, err)
		}
	}
	changed := bytes.Clone(x.Bytes())
	changed[len(changed)-1]++
	write(changed)
	if opened, err = OpenIndex(name); err != nil || opened.Check() == nil {
		t.Errorf("a changed byte was not found: %v", err)
	}
	opened.Close()
	if _, err := OpenIndex("/dev/zero"); !errors.Is(err, ErrNotIndex) {
		t.Errorf("/dev/zero: %v", err)
	}
}

func TestIndexMisses(t *testing.T) {
	x, err := NewIndex(mustIndex(t, program().Build()), "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []addr.Virt{0, addr.Virt(x.base) - 1, addr.Virt(x.base) + 1<<33, ^addr.Virt(0)} {
		if r := x.LookupVirt(v); len(r.Frames) != 0 || r.Reason != reason.NotCode {
			t.Errorf("%s: %+v", v, r)
		}
	}
}

// TestOutsideCode: no debug symbols help where the file has no code, beyond its end for
// instance.
func TestOutsideCode(t *testing.T) {
	elf := program().Build()
	x, err := NewIndex(mustIndex(t, elf), "x")
	if err != nil {
		t.Fatal(err)
	}
	f := build(t, program())
	code, ok := f.Virt(f.Segments()[0].Offset)
	if !ok {
		t.Fatal("no code")
	}
	for _, o := range []addr.Offset{addr.Offset(len(elf)), 1 << 40, ^addr.Offset(0)} {
		got := append(f.LookupOffsets([]addr.Offset{o}), f.LookupOffset(o), x.LookupOffset(o))
		for i, r := range got {
			if r.Reason != reason.NotCode {
				t.Errorf("%d: offset %v is %+v", i, o, r)
			}
		}
	}
	for i, r := range append(f.LookupVirts([]addr.Virt{code - 1}), f.LookupVirt(code-1), x.LookupVirt(code-1)) {
		if r.Reason != reason.NotCode {
			t.Errorf("%d: before the code is %+v", i, r)
		}
	}
	if r := f.LookupVirt(code); r.Reason == reason.NotCode {
		t.Errorf("the code is %+v", r)
	}
}

func mustIndex(t *testing.T, elf []byte) []byte {
	t.Helper()
	f, err := NewFile(bytes.NewReader(elf), "built")
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.Index(IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x.Bytes()
}

// TestCursor compares a Cursor to the Index, at random addresses and in order.
func TestCursor(t *testing.T) {
	x := index(t, goTool(t))
	addresses := textAddresses(t, readelf(t, goTool(t)), 20000)
	addresses = append(addresses, slices.Sorted(slices.Values(addresses))...)
	c := x.Cursor()
	for _, v := range addresses {
		frames, source := c.Frames(v)
		want, wantSource := x.AppendFrames(nil, v)
		if source != wantSource || !slices.Equal(frames, want) {
			t.Fatalf("%s: the cursor says %+v, the index %+v", v, frames, want)
		}
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	x := index(t, goTool(t))
	addresses := textAddresses(t, readelf(t, goTool(t)), 100)
	var buf [64]Frame
	c := x.Cursor()
	if n := testing.AllocsPerRun(10, func() {
		for _, v := range addresses {
			x.AppendFrames(buf[:0], v)
			c.Frames(v)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestIndexOffsets compares the answers for many offsets with those for one each.
func TestIndexOffsets(t *testing.T) {
	for _, name := range realFiles(t) {
		x := index(t, name)
		var offsets []addr.Offset
		f := open(t, name)
		for p := range x.Pieces() {
			if o, ok := f.Offset(p.Virt); ok {
				offsets = append(offsets, o, o)
			}
			if len(offsets) > 1000 {
				break
			}
		}
		for i, r := range x.LookupOffsets(offsets) {
			if want := x.LookupOffset(offsets[i]); !reflect.DeepEqual(r, want) {
				t.Errorf("%s, offset %s: %+v together, and %+v alone", name, offsets[i], r, want)
			}
		}
	}
}
