package compact

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/klauspost/compress/zstd"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

func encode(t testing.TB, p *pprof.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteUncompressed(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// text returns a profile as text, without the numbers of its parts.
func text(p *pprof.Profile) string {
	var b strings.Builder
	for _, s := range p.Sample {
		b.WriteString(sampleText(s) + "\n")
	}
	return b.String()
}

func sampleText(s *pprof.Sample) string {
	var b strings.Builder
	for _, v := range s.Value {
		b.WriteString(" v" + decimal(v))
	}
	for _, l := range s.Location {
		b.WriteString(" @" + decimal(int64(l.Address)))
		if l.Mapping != nil {
			b.WriteString(l.Mapping.File + l.Mapping.BuildID)
		}
		for _, line := range l.Line {
			b.WriteString("/" + line.Function.Name + decimal(line.Line))
		}
	}
	for _, key := range []string{"process", "x"} {
		b.WriteString(" " + key + strings.Join(s.Label[key], ","))
	}
	for _, key := range []string{"pid", "timestamp"} {
		b.WriteString(" " + key)
		for i, n := range s.NumLabel[key] {
			b.WriteString(" " + decimal(n))
			if u := s.NumUnit[key]; i < len(u) {
				b.WriteString(u[i])
			}
		}
	}
	return b.String()
}

// decimal returns a number as text.
func decimal(n int64) string { l := Label{Number: n}; return l.Value() }

func TestSameAsPprof(t *testing.T) {
	for seed := range uint64(20) {
		p := proftest.Random(seed, int(seed*seed*4))
		data := encode(t, p)
		got, err := Read(bytes.NewReader(data), profile.ReadOptions{})
		if err != nil {
			t.Fatal(seed, err)
		}
		want, err := pprof.ParseData(data)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got.Pprof(), want)
		from, err := FromPprof(want)
		if err != nil {
			t.Fatal(err)
		}
		same(t, from.Pprof(), want)
		if from.Stacks().Len() != got.Stacks().Len() {
			t.Errorf("%d stacks, want %d", from.Stacks().Len(), got.Stacks().Len())
		}
	}
}

func same(t *testing.T, got, want *pprof.Profile) {
	t.Helper()
	if err := got.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if g, w := text(got), text(want); g != w {
		t.Fatalf("got\n%.3000s\nwant\n%.3000s", g, w)
	}
	if !reflect.DeepEqual(got.Comments, want.Comments) || got.TimeNanos != want.TimeNanos || got.DurationNanos != want.DurationNanos ||
		got.Period != want.Period || got.DefaultSampleType != want.DefaultSampleType || len(got.Mapping) != len(want.Mapping) {
		t.Errorf("head differs")
	}
	for i, m := range got.Mapping {
		if w := want.Mapping[i]; m.File != w.File || m.Start != w.Start || m.Limit != w.Limit || m.HasFunctions != w.HasFunctions {
			t.Errorf("mapping %d is %v, want %v", i, m, w)
		}
	}
}

// TestTree compares the tree with the set of all stacks.
func TestTree(t *testing.T) {
	for seed := range uint64(30) {
		p, err := FromPprof(proftest.Random(seed, int(seed*40)))
		if err != nil {
			t.Fatal(err)
		}
		tree := p.Stacks()
		distinct := map[string]uint32{}
		for row := range p.Samples() {
			key := ""
			for n := p.Node(row); n != 0; n = tree.Parent(n) {
				if tree.Parent(n) >= n || tree.End(n) <= n || tree.End(n) > tree.End(tree.Parent(n)) || len(tree.Frames(n)) == 0 {
					t.Fatalf("node %d: parent %d, end %d, %d frames", n, tree.Parent(n), tree.End(n), len(tree.Frames(n)))
				}
				for _, l := range slices.Backward(tree.Frames(n)) {
					key += string(rune(l + 1))
				}
			}
			if have, ok := distinct[key]; ok && have != p.Node(row) {
				t.Fatalf("one stack has nodes %d and %d", have, p.Node(row))
			}
			distinct[key] = p.Node(row)
		}
		if tree.Len() != len(distinct) {
			t.Errorf("%d stacks, want %d", tree.Len(), len(distinct))
		}
		// No two nodes below one begin with the same frame.
		begin := map[[2]uint32]bool{}
		for n := uint32(1); n < uint32(tree.Nodes()); n++ {
			k := [2]uint32{tree.Parent(n), tree.Frames(n)[0]}
			if begin[k] {
				t.Fatalf("node %d begins as another one below %d", n, k[0])
			}
			begin[k] = true
		}
	}
}

func TestCompressed(t *testing.T) {
	data := encode(t, proftest.Random(3, 500))
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(data)
	w.Close()
	z, _ := zstd.NewWriter(nil)
	want, err := Read(bytes.NewReader(data), profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, packed := range map[string][]byte{"gzip": gz.Bytes(), "zstd": z.EncodeAll(data, nil)} {
		got, err := Read(bytes.NewReader(packed), profile.ReadOptions{})
		if err != nil {
			t.Fatal(name, err)
		}
		if text(got.Pprof()) != text(want.Pprof()) {
			t.Errorf("%s gives another profile", name)
		}
		if _, err := Read(bytes.NewReader(packed[:len(packed)/2]), profile.ReadOptions{}); err == nil {
			t.Errorf("half of a profile in %s is read", name)
		}
	}
	var twice bytes.Buffer
	w = gzip.NewWriter(&twice)
	w.Write(gz.Bytes())
	w.Close()
	if _, err := Read(&twice, profile.ReadOptions{}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("compressed twice: %v", err)
	}
}

func TestBounds(t *testing.T) {
	data := encode(t, proftest.Random(3, 500))
	if _, err := Read(bytes.NewReader(data), profile.ReadOptions{MaxSize: 1000}); !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	// Two bytes a mapping, of two hundred in memory.
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 8 {
		w.Write(bytes.Repeat([]byte{0x1a, 0x02, 0x08, 0x01}, 1<<17))
	}
	w.Close()
	if _, err := Read(&bomb, profile.ReadOptions{}); !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("bomb: %v", err)
	}
	// A length that nothing is behind.
	if _, err := Read(strings.NewReader("\x12\xff\xff\xff\xff\x7fxxx"), profile.ReadOptions{}); !errors.Is(err, profile.ErrFormat) || !strings.Contains(err.Error(), "offset") {
		t.Errorf("length: %v", err)
	}
}

func TestOldFormats(t *testing.T) {
	const heap = "heap profile: 1: 2 [3: 4] @ heap/1\n1: 2 [3: 4] @ 0x10 0x20\n"
	p, err := Read(strings.NewReader(heap), profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Samples() != 1 || p.Stacks().Deepest() != 2 {
		t.Errorf("%d samples", p.Samples())
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, proftest.Random(3, 20)))
	f.Add(encode(f, proftest.Mixed()))
	f.Add([]byte("\x0a\x00\x32\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), profile.ReadOptions{})
		if bytes.HasPrefix(data, []byte("\x1f\x8b")) || bytes.HasPrefix(data, []byte("\x28\xb5\x2f\xfd")) || isOld(data[:min(len(data), headSize)]) {
			return
		}
		want, wantErr := pprof.ParseUncompressed(data)
		if err != nil || wantErr != nil || len(data) == 0 {
			return // pprof's parser forgives other damage
		}
		if want.CheckValid() != nil {
			t.Fatalf("a profile is read that is not sound: %v", want.CheckValid())
		}
		same(t, got.Pprof(), want)
	})
}

// TestOrder sorts keys in all ways: fewer than are sorted by bits, and more than one processor sorts.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{0, 1, 2, leastForBits, 1000, 5*runOfItsOwn + 1} {
		for _, distinct := range []uint64{1, 2, 1000, 1 << 63} {
			keys := make([]stackKey, count)
			for i := range keys {
				keys[i] = stackKey{rng.Uint64N(distinct) * ((1<<64 - 1) / distinct), uint32(i)}
			}
			want := slices.Clone(keys)
			slices.SortStableFunc(want, func(a, b stackKey) int { return cmp.Compare(a.frames, b.frames) })
			s := stackSorter{spare: make(chan struct{}, 3)}
			s.order(keys)
			if !slices.IsSortedFunc(keys, func(a, b stackKey) int { return cmp.Compare(a.frames, b.frames) }) {
				t.Errorf("%d keys of %d values are out of order", count, distinct)
			}
			slices.SortFunc(keys, func(a, b stackKey) int {
				return cmp.Or(cmp.Compare(a.frames, b.frames), cmp.Compare(a.stack, b.stack))
			})
			if !slices.Equal(keys, want) {
				t.Errorf("%d keys of %d values are not the same ones", count, distinct)
			}
		}
	}
}

// TestLongLists has lists of numbers in one message, which a few bytes in a file can stand for: they are refused before
// they are in memory.
func TestLongLists(t *testing.T) {
	const numbers = 100 << 20
	list := func(field int, body ...byte) (out []byte) {
		out = binary.AppendUvarint(out, uint64(field<<3|2))
		out = binary.AppendUvarint(out, uint64(numbers+len(body)))
		return append(out, body...)
	}
	inSample := func(field int) []byte {
		key := binary.AppendUvarint([]byte{byte(field<<3 | 2)}, numbers)
		return list(profileSample, key...)
	}
	for name, head := range map[string][]byte{
		"locations": inSample(sampleLocation), "values": inSample(sampleValue), "comments": list(profileComment),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		in := io.MultiReader(bytes.NewReader(head), io.LimitReader(ones{}, numbers))
		_, err := Read(in, profile.ReadOptions{InFile: func() int64 { return 1000 }})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, profile.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s: took %d MiB", name, n>>20)
		}
	}
}

// TestSmallFiles has files of a few kilobytes that stand for some megabytes, of which each byte makes a dozen in
// memory. They are refused after they have taken what such a file may, by this reader and by that of package profile.
func TestSmallFiles(t *testing.T) {
	const size = 5 << 20
	inSample := func(piece ...byte) []byte {
		body := bytes.Repeat(piece, size/len(piece))
		return append(binary.AppendUvarint([]byte{profileSample<<3 | 2}, uint64(len(body))), body...)
	}
	for name, data := range map[string][]byte{
		"types":    bytes.Repeat([]byte{profileSampleType<<3 | 2, 0}, size/2),
		"comments": bytes.Repeat([]byte{profileComment << 3, 1}, size/2),
		"strings":  bytes.Repeat([]byte{profileString<<3 | 2, 0}, size/2),
		"samples":  bytes.Repeat([]byte{profileSample<<3 | 2, 0}, size/2),
		"values":   inSample(sampleValue<<3, 1),
		"stack":    inSample(sampleLocation<<3, 1),
		"labels":   inSample(sampleLabel<<3|2, 0),
	} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(data)
		_ = w.Close()
		for reader, read := range map[string]func(io.Reader) error{
			"compact": func(r io.Reader) error { _, err := Read(r, profile.ReadOptions{}); return err },
			"profile": func(r io.Reader) error { _, err := profile.Read(r, profile.ReadOptions{}); return err },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := read(bytes.NewReader(packed.Bytes()))
			runtime.ReadMemStats(&after)
			limit := uint64(profile.ReadOptions{}.Limits(int64(packed.Len())).Memory)
			if n := after.TotalAlloc - before.TotalAlloc; n > 2*limit || limit > 64<<20 {
				t.Errorf("%s, %s: %d KiB make %d MiB, of which %d may be", name, reader, packed.Len()>>10, n>>20, limit>>20)
			}
			if !errors.Is(err, profile.ErrTooLarge) && !errors.Is(err, profile.ErrFormat) {
				t.Errorf("%s, %s: %v", name, reader, err)
			}
		}
	}
}

// ones reads the number 1 without end.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

// TestStandsForTooMuch has few bytes that stand for many: calls that are inlined, and names that are used often.
func TestStandsForTooMuch(t *testing.T) {
	made := func(name string, lines, locations, deep int) []byte {
		m := proftest.New()
		app := m.Mapping(name, proftest.AppID, 0x400000)
		names := make([]string, lines)
		for i := range names {
			names[i] = "f"
		}
		var stack []*pprof.Location
		for i := range locations {
			stack = append(stack, m.Location(app, 0x401000+uint64(i), names...))
		}
		for len(stack) < deep {
			stack = append(stack, stack[0])
		}
		m.Sample("", 0, 1, stack...)
		return encode(t, m.Profile)
	}
	size := func() int64 { return 1000 }
	for name, data := range map[string][]byte{"calls": made("/bin/app", 5000, 1, 5000), "names": made(strings.Repeat("x", 1<<20), 0, 2000, 0)} {
		if _, err := Read(bytes.NewReader(data), profile.ReadOptions{InFile: size}); !errors.Is(err, profile.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Read(bytes.NewReader(data), profile.ReadOptions{InFile: size, MaxSize: 1 << 30}); err != nil {
			t.Errorf("%s, as large as the user wants: %v", name, err)
		}
	}
	p, err := Read(bytes.NewReader(made("/bin/app", 1, 1, 20_000)), profile.ReadOptions{InFile: size})
	if err != nil {
		t.Fatal(err)
	}
	named := p.Places()
	for range 1000 {
		named.Location[0].Line = append(named.Location[0].Line, named.Location[0].Line[0])
	}
	if err := p.WithSymbols(named, nil).Check(); !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("with names: %v", err)
	}
}

// TestTextTwice has a table of strings with one text twice: the label of times has two numbers.
func TestTextTwice(t *testing.T) {
	m := proftest.New()
	m.Sample("app", 1, 1, m.Location(nil, 0x1000, "f"))
	m.Sample("app", 2, 1, m.Location(nil, 0x2000, "g"))
	for i, key := range []string{"timestamp", "timestamq"} {
		m.Profile.Sample[i].NumLabel = map[string][]int64{key: {int64(1000 + i)}}
		m.Profile.Sample[i].NumUnit = map[string][]string{key: {"nanoseconds"}}
	}
	data := bytes.Replace(encode(t, m.Profile), []byte("timestamq"), []byte("timestamp"), 1)
	p, err := Read(bytes.NewReader(data), profile.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for row := range p.Samples() {
		if got := p.Times(nil, row); !slices.Equal(got, []int64{int64(1000 + row)}) {
			t.Errorf("sample %d is of the times %d", row, got)
		}
	}
}
