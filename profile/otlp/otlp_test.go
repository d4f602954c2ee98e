package otlp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// The messages of these tests are written field by field after profiles.proto, so that they depend on
// no generated code.

// num is a field that is a number, sub one that has a length, packed one of several numbers, fixed one of
// numbers of eight bytes.
func num(field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field)<<3), v)
}

func sub(field int, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(field)<<3|2), uint64(len(body))), body...)
}

func text(field int, s string) []byte { return sub(field, []byte(s)) }

func packed(field int, all ...uint64) []byte {
	var body []byte
	for _, v := range all {
		body = binary.AppendUvarint(body, v)
	}
	return sub(field, body)
}

func fixed(field int, all ...uint64) []byte {
	var body []byte
	for _, v := range all {
		body = binary.LittleEndian.AppendUint64(body, v)
	}
	return sub(field, body)
}

const (
	libraryID = "93ac54aabbccddee00112233445566778899aabb"
	goID      = "foh3mEXu7BLZjsN9pOwG/kATcXlYVCDEFouRMQed_/WwRFB1hPo9LBkekthSPG/x8hMC8emW2cCjXD0_1aY"
	htlHash   = "600dcafe4a110000f2bf38c493f5fb92"
	noon      = 1764158400000000000
)

// Strings of the message, by index.
var messageStrings = []string{
	"", "samples", "count", "cpu", "nanoseconds", "libfoo.so", // 5
	"process.executable.build_id.gnu", "process.executable.build_id.htlhash", "process.executable.build_id.go", "profile.frame.type", "native", // 10
	"kernel", "cpython", "thread.name", "thread.id", "worker", // 15
	"vmlinux", "do_syscall_64", "main.py", "handle", "goprog", // 20
	"process.pid", "cpu.logical_number", "off_cpu", htlHash, "app", // 25
}

// dictionaryFields are the tables of a message as a profiler of a whole machine sends it, with elements 0.
func dictionaryFields() [][]byte {
	attribute := func(key uint64, value []byte) []byte { return sub(6, num(1, key), sub(2, value)) }
	all := [][]byte{
		sub(1),
		sub(1, num(1, 0x1000), num(2, 0x9000), num(3, 0x400), num(4, 5), packed(5, 1, 2)), // libfoo.so
		sub(1, num(4, 16)),   // vmlinux
		sub(1, packed(5, 2)), // of interpreted frames
		sub(1, num(1, 0x401000), num(2, 0x500000), num(3, 0x1000), num(4, 20), packed(5, 3)), // goprog
		sub(2),
		sub(2, num(1, 1), num(2, 0x1234), packed(4, 4)), // 1: libfoo.so, native
		sub(2, num(1, 1), num(2, 0x2345), packed(4, 4)),
		sub(2, num(1, 2), num(2, 0xffffffff81000010), sub(3, num(1, 1)), packed(4, 5)),        // 3: kernel
		sub(2, num(1, 3), num(2, 17), sub(3, num(1, 2), num(2, 17), num(3, 4)), packed(4, 6)), // 4: cpython
		sub(2, num(1, 4), num(2, 0x401234), packed(4, 4)),                                     // 5: goprog
		sub(2, num(1, 1), num(2, 0x99999), packed(4, 4)),                                      // 6: outside of its mapping
		sub(3),
		sub(3, num(1, 17)),
		sub(3, num(1, 19), num(3, 18), num(4, 12)),
		sub(4, sub(1, make([]byte, 16)), sub(2, make([]byte, 8))),
		sub(4, sub(1, []byte("0123456789abcdef")), sub(2, []byte("01234567"))),
	}
	for _, s := range messageStrings {
		all = append(all, text(5, s))
	}
	return append(all,
		sub(6),
		attribute(6, text(1, strings.ToUpper(libraryID))),
		attribute(7, num(8, 24)), // an index of a string
		attribute(8, text(1, goID)),
		attribute(9, num(8, 10)), // 4: native
		attribute(9, text(1, "kernel")),
		attribute(9, num(8, 12)), // 6: cpython
		attribute(13, num(8, 15)),
		attribute(14, num(3, 4711)), // 8: thread.id
		attribute(22, num(3, 1)),
		sub(7),
		sub(7, packed(1, 1, 2)),
		sub(7, packed(1, 3, 1, 4)),
		sub(7, packed(1, 5, 6)),
	)
}

// message is a whole message with the samples of two profiles.
func message(first, second [][]byte) []byte {
	resource := sub(1,
		sub(1, text(1, "process.executable.name"), sub(2, num(8, 25))),
		sub(1, num(3, 21), sub(2, num(3, 4700))), // the key as an index, too
		sub(1, text(1, "container.id"), sub(2, text(1, "c0ffee"))),
	)
	profileOf := func(kind uint64, samples [][]byte) []byte {
		return sub(2, sub(1, num(1, kind), num(2, 2+kind%3/2*2)), bytes.Join(samples, nil), append([]byte{3<<3 | 1}, binary.LittleEndian.AppendUint64(nil, noon)...),
			num(4, 5e9), sub(5, num(1, 3), num(2, 4)), num(6, 50e6), sub(7, []byte("0123456789abcdef")))
	}
	return bytes.Join([][]byte{
		sub(1, resource, sub(2, sub(1, text(1, "profiler")), profileOf(1, first), profileOf(23, second))),
		sub(2, dictionaryFields()...),
	}, nil)
}

// newMessage is as a sender of protocol 1.10 or later writes it.
func newMessage() []byte {
	return message([][]byte{
		sub(2, num(1, 1), packed(2, 7, 8), num(3, 1), fixed(5, noon+1, noon+2, noon+3)),
		sub(2, num(1, 2), packed(2, 7), fixed(5, noon+4)),
	}, [][]byte{
		sub(2, num(1, 1), packed(2, 7, 8), num(3, 1), packed(4, 100, 200), fixed(5, noon+5, noon+6)),
		sub(2, num(1, 3), packed(4, 900)),
	})
}

func parse(t *testing.T, b []byte) *Message {
	t.Helper()
	m, err := Parse(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var unlimited = profile.Limits{Memory: math.MaxInt64, Text: math.MaxInt64, Calls: math.MaxInt64, Shown: math.MaxInt64}

func toProfile(t *testing.T, m *Message) *pprof.Profile {
	t.Helper()
	p, err := m.Profile(unlimited)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMessageOfAProfiler reads what a profiler of a whole machine sends: keys and texts in both forms, several
// identities, timestamps without values, frames of an interpreter and of the kernel.
func TestMessageOfAProfiler(t *testing.T) {
	p := toProfile(t, parse(t, newMessage()))
	if got := fmt.Sprint(*p.SampleType[0], *p.SampleType[1]); got != "{samples count 0 0} {off_cpu nanoseconds 0 0}" {
		t.Errorf("types %s", got)
	}
	if p.TimeNanos != noon || p.DurationNanos != 5e9 || p.Period != 50e6 || p.PeriodType.Type != "cpu" {
		t.Errorf("time %d, duration %d, period %d %v", p.TimeNanos, p.DurationNanos, p.Period, p.PeriodType)
	}
	if len(p.Sample) != 3 {
		t.Fatalf("%d samples, want 3: two profiles have one stack with the same attributes", len(p.Sample))
	}
	s := p.Sample[0]
	if !slices.Equal(s.Value, []int64{3, 300}) || !slices.Equal(profile.Times(s), []int64{noon + 1, noon + 2, noon + 3}) {
		t.Errorf("values %v, times %v", s.Value, profile.Times(s))
	}
	name, pid := profile.Process(s)
	thread, tid := profile.Thread(s)
	if name != "app" || pid != 4700 || thread != "worker" || tid != 4711 || s.Label["container"][0] != "c0ffee" || s.Label["span_id"][0] != hex.EncodeToString([]byte("01234567")) {
		t.Errorf("labels %v %v", s.Label, s.NumLabel)
	}
	lib := s.Location[0].Mapping
	if lib.BuildID != libraryID || lib.File != "libfoo.so" || s.Location[0].Address != 0x1234 || profile.FileOffset(s.Location[0]) != 0x634 {
		t.Errorf("mapping %+v, offset %v", lib, profile.FileOffset(s.Location[0]))
	}
	mixed := p.Sample[1].Location
	if c := (profile.Call{Location: mixed[0]}); !c.Kernel() || mixed[0].Mapping.File != "[kernel]" || mixed[0].Line[0].Function.Name != "do_syscall_64" {
		t.Errorf("a frame of the kernel: %+v %+v", mixed[0], mixed[0].Mapping)
	}
	if py := mixed[2]; py.Line[0].Function.Name != "handle" || py.Line[0].Function.Filename != "main.py" || py.Line[0].Line != 17 || py.Line[0].Column != 4 || profile.ReasonOf(py.Mapping) != reason.Anonymous {
		t.Errorf("a frame of an interpreter: %+v %+v", py, py.Mapping)
	}
	last := p.Sample[2].Location
	if last[0].Mapping.BuildID != "go:"+goID {
		t.Errorf("a program by Go: %+v", last[0].Mapping)
	}
	if m := last[1].Mapping; m.BuildID != "" || profile.ReasonOf(m) != reason.NotMapped {
		t.Errorf("an address outside of its mapping: %+v", m)
	}
}

// TestOldProtocol refuses what senders of protocol 1.9 and earlier send, also where it could be read.
func TestOldProtocol(t *testing.T) {
	plain := [][]byte{sub(2, num(1, 3), packed(4, 900))}
	for name, first := range map[string][]byte{
		"1.9 with attributes":       sub(2, num(1, 1), packed(2, 3), packed(3, 7, 8), num(4, 1), fixed(5, noon+1)),
		"1.9 with values alone":     sub(2, num(1, 1), packed(2, 3)),
		"1.9 with a link":           sub(2, num(1, 1), packed(2, 3), num(4, 1)),
		"1.9 with many values":      sub(2, num(1, 1), packed(2, 1, 1), fixed(5, noon+1, noon+2)),
		"1.9 with large values":     sub(2, num(1, 1), packed(2, 20e6), fixed(5, noon+1)),
		"1.9, an attribute of file": sub(2, num(1, 1), packed(2, 1), fixed(5, noon+1)),
		"1.7":                       sub(2, num(1, 1), num(2, 2), packed(3, 1), packed(4, 7)),
	} {
		_, err := Parse(message([][]byte{first}, plain), Options{})
		if !errors.Is(err, ErrOldProtocol) || !strings.Contains(err.Error(), "1.9") || !strings.Contains(err.Error(), "1.10") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostile refuses messages whose indices are outside of their tables, and such as would take far more
// memory than they have bytes.
func TestHostile(t *testing.T) {
	dictionary := func(more ...[]byte) []byte { return sub(2, append(dictionaryFields(), more...)...) }
	inSample := func(fields ...[]byte) []byte {
		return append(sub(1, sub(2, sub(2, sub(2, fields...)))), dictionary()...)
	}
	nested := num(3, 1)
	for range 200 {
		nested = sub(5, sub(1, nested))
	}
	for name, b := range map[string][]byte{
		"a stack":                       inSample(num(1, 4), packed(4, 1)),
		"a stack below 0":               inSample(num(1, math.MaxUint64), packed(4, 1)),
		"an attribute":                  inSample(packed(2, 10), packed(4, 1)),
		"a link":                        inSample(num(3, 2), packed(4, 1)),
		"a type":                        append(sub(1, sub(2, sub(2, sub(1, num(1, 99))))), dictionary()...),
		"no values":                     inSample(num(1, 1)),
		"values and times":              inSample(packed(4, 1, 2), fixed(5, 1)),
		"a mapping":                     dictionary(sub(2, num(1, 5))),
		"a function":                    dictionary(sub(2, sub(3, num(1, 3)))),
		"a location":                    dictionary(sub(7, packed(1, 7))),
		"a string":                      dictionary(sub(3, num(1, 99))),
		"a key":                         dictionary(sub(6, num(1, 99))),
		"a value":                       dictionary(sub(6, num(1, 1), sub(2, num(8, 99)))),
		"a value in a list":             dictionary(sub(6, num(1, 1), sub(2, sub(5, sub(1, num(8, 99)))))),
		"a value with a key":            dictionary(sub(6, num(1, 1), sub(2, sub(6, sub(1, num(3, 99)))))),
		"an attribute of a resource":    append(sub(1, sub(1, sub(1, num(3, 99)))), dictionary()...),
		"values in values":              dictionary(sub(6, num(1, 1), sub(2, nested))),
		"strings without the empty one": sub(2, text(5, "x")),
		"mappings without the zero one": sub(2, sub(1, num(1, 1))),
		"links without the zero one":    sub(2, sub(4, sub(1, []byte("0123456789abcdef")))),
		"a group":                       {1<<3 | 3, 1<<3 | 4},
		"cut":                           newMessage()[:200],
		"text":                          []byte("profile"),
		"no UTF-8":                      sub(2, text(5, ""), text(5, "\xff")),
		"pprof":                         pprofBytes(t),
	} {
		if _, err := Parse(b, Options{}); !errors.Is(err, profile.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"locations":       sub(2, bytes.Repeat(sub(2), 1<<20)),
		"samples":         sub(1, sub(2, sub(2, bytes.Repeat(sub(2), 1<<20)))),
		"values":          sub(2, sub(6, num(1, 0), sub(2, sub(5, bytes.Repeat(sub(1), 1<<20))))),
		"many values":     sub(1, sub(2, sub(2, sub(2, packed(4, make([]uint64, 2<<20)...))))),
		"strings":         sub(2, bytes.Repeat(text(5, ""), 1<<20)),
		"unknown fields":  bytes.Repeat(num(99, 1), 8<<20),
		"JSON":            []byte(`{"dictionary":{"locationTable":[` + strings.Repeat("{},", 1<<19) + `{}]}}`),
		"numbers as JSON": []byte(`{"dictionary":{"stackTable":[{"locationIndices":[` + strings.Repeat("0,", 1<<20) + `0]}]}}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseAny(b, Options{MaxMemory: 32 << 20})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, profile.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<20 {
			t.Errorf("%s: %d bytes were taken to refuse it", name, spent)
		}
	}
	if _, err := Parse(newMessage(), Options{MaxSize: 100}); !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("more bytes than may be: %v", err)
	}
}

func parseAny(b []byte, o Options) (*Message, error) {
	if IsJSON(b) {
		return ParseJSON(b, o)
	}
	return Parse(b, o)
}

func pprofBytes(t testing.TB) []byte {
	var b bytes.Buffer
	if err := profile.WriteUncompressed(&b, builtProfile()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCost compares what a message takes when it is decoded with what it was thought to take.
func TestCost(t *testing.T) {
	var locations, samples []byte
	for range 20000 {
		locations = append(locations, sub(2, num(1, 1), num(2, 0x1234), sub(3, num(1, 1), num(2, 3)), packed(4, 4))...)
		samples = append(samples, sub(2, num(1, 1), packed(2, 7, 8), packed(4, 1, 2), fixed(5, noon, noon))...)
	}
	b := message([][]byte{samples}, nil)
	b = append(b, sub(2, locations)...)
	for _, json := range []bool{false, true} {
		said, err := Cost(b, Options{})
		if json {
			if b, err = parse(t, b).AppendJSON(nil); err == nil {
				said, err = CostJSON(b, Options{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers kept
		runtime.ReadMemStats(&before)
		m, err := parseAny(b, Options{})
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if spent := int64(after.HeapAlloc) - int64(before.HeapAlloc); spent > said || spent < said/8 {
			t.Errorf("JSON %v: it takes %d bytes, and %d were foretold", json, spent, said)
		} else {
			t.Logf("JSON %v: %d bytes of message take %d, %d were foretold", json, len(b), spent, said)
		}
		runtime.KeepAlive(m)
	}
}

// TestSums refuses profiles that a message stands for and that are far larger than itself.
func TestSums(t *testing.T) {
	list := sub(6, num(1, 1), sub(2, sub(5, bytes.Repeat(sub(1, num(8, 15)), 1<<12))))
	var types []byte
	for i := range uint64(1 << 12) {
		types = append(types, sub(2, sub(1, num(1, i%20), num(2, i/20%20)), sub(2, num(1, i%4), packed(2, i/4%10), packed(4, 1)))...)
	}
	wide := sub(1, sub(1, bytes.Repeat(sub(1, text(1, "k"), sub(2, text(1, "v"))), 1<<12)), sub(2, types))
	dictionary := sub(2, append(dictionaryFields(), list)...)
	var lists []byte
	for range 1 << 10 {
		lists = append(lists, sub(1, sub(2, sub(2, sub(2, num(1, 1), packed(2, 10), packed(4, 1)))))...)
	}
	for name, b := range map[string][]byte{"types of values": append(wide, dictionary...), "a list in many samples": append(lists, dictionary...)} {
		m := parse(t, b)
		l := unlimited
		l.Memory = 4 << 20
		if name == "types of values" {
			l.Memory = 100 << 10
		}
		if _, err := m.Profile(l); !errors.Is(err, profile.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var deep []uint64
	for range 1000 {
		deep = append(deep, 1)
	}
	b := append(sub(1, sub(2, sub(2, bytes.Repeat(sub(2, num(1, 4), packed(4, 1)), 1)))), sub(2, append(dictionaryFields(), sub(7, packed(1, deep...)))...)...)
	l := unlimited
	l.Calls = 999
	if _, err := parse(t, b).Profile(l); !errors.Is(err, profile.ErrTooLarge) {
		t.Errorf("a deep stack: %v", err)
	}
}

func contentOf(digit int) buildid.Content {
	c, err := buildid.ParseContent(fmt.Sprintf("%0*d", 2*buildid.ContentSize, digit))
	if err != nil {
		panic(err)
	}
	return c
}

// builtProfile has all that a profile of ours can have.
func builtProfile() *pprof.Profile {
	gnu, err := buildid.Parse(libraryID)
	if err != nil {
		panic(err)
	}
	code := contentOf(1)
	lib := &profile.Binary{ID: gnu, Path: "/lib/libfoo.so", Content: code, Segments: []profile.Segment{{Offset: 0x1000, Virt: 0x2000, Size: 0x5000}}}
	other := &profile.Binary{ID: gnu, Path: "/lib/libfoo.so", Content: contentOf(9), Segments: lib.Segments}
	unknown := &profile.Binary{ID: gnu, Path: "/tmp/unsegmented"}
	b := profile.NewBuilder(1e7)
	labels := &profile.Labels{PID: 7, TID: 8, Process: "p", Thread: "t", Cgroup: "/c", Container: "c0ffee"}
	frame := func(b *profile.Binary, o addr.Offset, f ...symbol.Frame) profile.Frame {
		return profile.Frame{Binary: b, Offset: o, Symbols: f}
	}
	s := b.Add([]profile.Frame{
		frame(lib, 0x1100, symbol.Frame{Func: "inner", Linkage: "_inner", File: "a.c", Line: 3, Start: 1}, symbol.Frame{Func: "outer", Linkage: "outer", File: "b.c", Line: 9}),
		frame(other, 0x1200), frame(unknown, 0x77),
		{Reason: reason.FileGone, Path: "/gone", Addr: 0x42}, {Reason: reason.NotMapped, Addr: 0x4711},
	}, labels, 3, 3e7)
	b.AddTimes(s, []int64{noon + 7, noon + 8})
	b.Add([]profile.Frame{frame(lib, 0x1300)}, &profile.Labels{PID: 9, Process: "q"}, 1, 1e7)
	b.Add(nil, &profile.Labels{}, 1, 1e7)
	p := b.Profile()
	p.TimeNanos, p.DurationNanos = noon, 5e9
	p.Comments = append(p.Comments, "a note\nof two lines")
	p.DropFrames, p.KeepFrames, p.DocURL = "drop", "keep", "https://pprof.example"
	p.Location[0].IsFolded = true
	return p
}

// TestRoundTrip wants a profile to be the same after it was a message, in both encodings, and again.
func TestRoundTrip(t *testing.T) {
	stripped := proftest.CPU(t)
	proftest.Strip(stripped)
	for name, p := range map[string]*pprof.Profile{"built": builtProfile(), "cpu": proftest.CPU(t), "heap": proftest.Heap(t), "stripped": stripped, "empty": {SampleType: []*pprof.ValueType{{Type: "a", Unit: "b"}}}} {
		want := canonical(p)
		m, err := FromProfile(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		j, err := m.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !Detect(b[:min(len(b), 64)]) || !Detect(j[:64]) {
			t.Errorf("%s: not detected: %x", name, b[:16])
		}
		for form, in := range map[string][]byte{"binary": b, "JSON": j} {
			m, err := parseAny(in, Options{})
			if err != nil {
				t.Fatalf("%s, %s: %v", name, form, err)
			}
			if got := canonical(toProfile(t, m)); got != want {
				t.Errorf("%s, %s: %s", name, form, firstDifference(got, want))
			}
		}
	}
}

// TestClaims has a claim that comes back as one. Others find no build ID in it, and nobody makes a claim of an attribute
// alone.
func TestClaims(t *testing.T) {
	id, err := buildid.Parse(libraryID)
	if err != nil {
		t.Fatal(err)
	}
	claimant := profile.Claimant{UID: 1000, Mount: 4026531841}
	b := profile.NewBuilder(1)
	file := &profile.Binary{ID: id, Path: "/dev/shm/program", Claimant: &claimant, Segments: []profile.Segment{{Offset: 0x1000, Virt: 0x1000, Size: 0x2000}}}
	b.Add([]profile.Frame{{Binary: file, Offset: 0x1100}}, &profile.Labels{PID: 1}, 1, 1)
	m, err := FromProfile(b.Profile())
	if err != nil {
		t.Fatal(err)
	}
	message, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(message, []byte(gnuKey)) {
		t.Error("others find a build ID")
	}
	read, err := Parse(message, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := toProfile(t, read)
	got := profile.Binaries(p)[p.Mapping[0]]
	if got.ID != id || got.Claimant == nil || *got.Claimant != claimant || profile.Proofs(p)[p.Mapping[0]] != profile.Claimed {
		t.Errorf("%+v, want a claim of %v", got, claimant)
	}
	in := m.in.GetDictionary().GetMappingTable()
	in[len(in)-1].MemoryLimit = 0x3000
	if p := toProfile(t, m); p.Mapping[0].BuildID != "" {
		t.Errorf("%v, which no claim has", p.Mapping[0].BuildID)
	}
}

// TestLabelsOfFiles has samples with times and labels whose keys are of files in OTLP. Such attributes, without
// values, are the mark of an earlier protocol.
func TestLabelsOfFiles(t *testing.T) {
	p := builtProfile()
	p.Sample[0].Label = map[string][]string{gnuKey: {"x"}, frameTypeKey: {"native"}, "sample." + gnuKey: {"y"}, "thread": {"t"}, threadKey: {"u"}}
	p.Sample[0].NumLabel = map[string][]int64{"thread": {5}, "timestamp": p.Sample[0].NumLabel["timestamp"]}
	m, err := FromProfile(p)
	if err != nil {
		t.Fatal(err)
	}
	if s := toProfile(t, m).Sample[0]; s.Label["sample."+gnuKey][0] != "x" || len(profile.Times(s)) != 2 {
		t.Errorf("%v %v", s.Label, s.NumLabel)
	}
}

// firstDifference returns the first lines that are not the same.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n%s\nwant\n%s", i+1, strings.Join(g[i:min(i+5, len(g))], "\n"), strings.Join(w[i:min(i+5, len(w))], "\n"))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// canonical returns a profile as text, without its numbers and its order. Samples of one stack and labels
// are one.
func canonical(p *pprof.Profile) string {
	sums := map[string][]int64{}
	for _, s := range p.Sample {
		var b strings.Builder
		for _, l := range s.Location {
			if m := l.Mapping; m != nil {
				fmt.Fprintf(&b, "%#x %v %s %s |", l.Address, profile.FileOffset(l), m.File, m.BuildID)
			}
			for _, line := range l.Line {
				fmt.Fprintf(&b, " %s/%s/%s:%d:%d (%d)", line.Function.Name, line.Function.SystemName, line.Function.Filename, line.Line, line.Column, line.Function.StartLine)
			}
			fmt.Fprintf(&b, " folded %v\n", l.IsFolded)
		}
		fmt.Fprintf(&b, "labels %v %v %v", s.Label, s.NumLabel, len(s.NumUnit))
		sum := sums[b.String()]
		if sum == nil {
			sum = make([]int64, len(s.Value))
			sums[b.String()] = sum
		}
		for i, v := range s.Value {
			sum[i] += v
		}
	}
	var all []string
	for sample, sum := range sums {
		all = append(all, fmt.Sprintf("%s values %v", sample, sum))
	}
	slices.Sort(all)
	types := ""
	for _, t := range p.SampleType {
		types += t.Type + "/" + t.Unit + " "
	}
	period := ""
	if p.PeriodType != nil {
		period = p.PeriodType.Type + p.PeriodType.Unit
	}
	return fmt.Sprintf("%s\n%s default %q at %d for %d period %s %d comments %q %q %q %q", strings.Join(all, "\n"), types, p.DefaultSampleType, p.TimeNanos, p.DurationNanos,
		period, p.Period, p.Comments, p.DocURL, p.DropFrames, p.KeepFrames)
}

// TestSymbolize names what has no names, and nothing else.
func TestSymbolize(t *testing.T) {
	m := parse(t, newMessage())
	before, _ := m.AppendJSON(nil)
	asked := map[string][]Address{}
	lookup := func(f File) []symbol.Result {
		asked[f.ID.String()] = f.Addresses
		out := make([]symbol.Result, len(f.Addresses))
		for i, a := range f.Addresses {
			if f.ID.String() == libraryID && a.At != 0x1745 {
				out[i].Frames = []symbol.Frame{{Func: "samples", File: "x.c", Line: 5, Column: 2}, {Func: fmt.Sprintf("f%x", a.At), Linkage: "_f", File: "x.c", Line: 9, Start: 4}}
			}
		}
		return out
	}
	n := m.Symbolize(1<<20, lookup)
	if n.Locations != 2 || n.Bare != 2 || n.Cut {
		t.Errorf("%+v", n)
	}
	if got := fmt.Sprint(asked[libraryID]); got != "[{1588 false} {5957 false} {629145 true}]" {
		t.Errorf("asked for %s", got)
	}
	if got := fmt.Sprint(asked["go:"+goID]); len(asked) != 2 || got != "[{4660 false}]" {
		t.Errorf("asked for %v", asked)
	}
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := toProfile(t, parse(t, b))
	l := p.Sample[0].Location[0]
	if len(l.Line) != 2 || l.Line[0].Function.Name != "samples" || l.Line[1].Function.Name != "f634" || l.Line[1].Line != 9 || l.Line[0].Column != 2 || l.Line[1].Function.StartLine != 4 {
		t.Errorf("%+v", l.Line)
	}
	if got := len(m.in.Dictionary.StringTable) - len(messageStrings); got != 4 { // x.c, f634, _f, f99999; "samples" is there
		t.Errorf("%d strings more", got)
	}

	// Nothing is known: nothing changes.
	m = parse(t, newMessage())
	if n := m.Symbolize(1<<20, func(File) []symbol.Result { return nil }); n.Locations != 0 || n.Bare != 4 {
		t.Errorf("%+v", n)
	}
	if after, _ := m.AppendJSON(nil); !sameJSON(before, after) {
		t.Errorf("it changed:\n%s\n%s", before, after)
	}
	// No room.
	m = parse(t, newMessage())
	size, _ := m.Append(nil)
	n = m.Symbolize(200, lookup)
	if grown, _ := m.Append(nil); !n.Cut || len(grown) > len(size)+200 {
		t.Errorf("%+v, %d bytes more", n, len(grown)-len(size))
	}
}

// sameJSON compares without the blanks that the encoder puts in as it likes.
func sameJSON(a, b []byte) bool {
	plain := func(b []byte) string { return strings.ReplaceAll(string(b), " ", "") }
	return plain(a) == plain(b)
}

// TestContent has a message say the content of a file, and the identity of one that is not believed.
func TestContent(t *testing.T) {
	m, err := FromProfile(builtProfile())
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	m.Symbolize(0, func(f File) []symbol.Result {
		files = append(files, fmt.Sprint(f.ID, " ", f.Content))
		return nil
	})
	want := []string{
		"content:" + contentOf(9).String() + " " + buildid.Content{}.String(),
		libraryID + " " + buildid.Content{}.String(),
		libraryID + " " + contentOf(1).String(),
	}
	slices.SortFunc(files, cmp.Compare[string])
	slices.SortFunc(want, cmp.Compare[string])
	if !slices.Equal(files, want) {
		t.Errorf("%q, want %q", files, want)
	}
}

// TestJSON reads JSON as the specification has it: identifiers in hexadecimal, long numbers as text or numbers,
// fields that nobody knows.
func TestJSON(t *testing.T) {
	in := `{"resourceProfiles":[{"resource":{"attributes":[{"key":"process.pid","value":{"intValue":"12"}}]},"unknown":[{}],
	"scopeProfiles":[{"profiles":[{"sampleType":{"typeStrindex":1,"unitStrindex":2},"profileId":"000102030405060708090A0B0C0D0E0F","timeUnixNano":"1764158400000000000",
	"samples":[{"stackIndex":1,"linkIndex":1,"values":[5,"6"]}]}]}]}],
	"dictionary":{"stringTable":["","samples","count"],"mappingTable":[{}],"locationTable":[{},{"address":"4660"}],"functionTable":[{}],"attributeTable":[{}],
	"linkTable":[{"traceId":"","spanId":""},{"traceId":"0123456789abcdef0123456789ABCDEF","spanId":"00f067aa0ba902b7"}],"stackTable":[{},{"locationIndices":[1]}]}}`
	m, err := ParseJSON([]byte(in), Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := toProfile(t, m)
	s := p.Sample[0]
	if s.Value[0] != 11 || s.Label["trace_id"][0] != "0123456789abcdef0123456789abcdef" || s.Label["span_id"][0] != "00f067aa0ba902b7" || s.Location[0].Address != 4660 {
		t.Errorf("%+v %v", s, s.Label)
	}
	out, err := m.AppendJSON(nil)
	if err != nil || !bytes.Contains(out, []byte(`0123456789abcdef0123456789abcdef`)) || !bytes.Contains(out, []byte(`000102030405060708090a0b0c0d0e0f`)) {
		t.Errorf("%v: %s", err, out)
	}
	for _, bad := range []string{`{"dictionary":{"linkTable":[{"traceId":"xyzw"}]}}`, `{"dictionary":{"stackTable":[{},{"locationIndices":[1]}]}}`, `{"dictionary":5}`, `{`} {
		if _, err := ParseJSON([]byte(bad), Options{}); !errors.Is(err, profile.ErrFormat) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestDetect(t *testing.T) {
	for name, b := range map[string][]byte{"pprof": pprofBytes(t), "text": []byte("main;f 3\n"), "perf.data": []byte("PERFILE2"), "nothing": nil, "JSON": []byte(`{"samples":[]}`)} {
		if Detect(b) {
			t.Errorf("%s passes for OTLP", name)
		}
	}
	// The Collector begins with the dictionary, and there with the stacks.
	fields := dictionaryFields()
	slices.Reverse(fields)
	if !Detect(sub(2, fields...)) || !Detect(sub(2, append([][]byte{sub(7)}, fields...)...)) {
		t.Error("not detected where the last table comes first")
	}
	samples := builtProfile()
	samples.SampleType = nil
	for _, s := range samples.Sample {
		s.Value = nil
	}
	var b bytes.Buffer
	if err := profile.WriteUncompressed(&b, samples); err != nil || Detect(b.Bytes()) {
		t.Errorf("a profile by pprof that begins with samples passes for OTLP: %v, %x", err, b.Bytes()[:8])
	}
	if b := sub(2, dictionaryFields()...); !Detect(b) || !Detect(newMessage()) {
		t.Error("not detected")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(newMessage())
	m, err := FromProfile(builtProfile())
	if err != nil {
		f.Fatal(err)
	}
	b, _ := m.Append(nil)
	j, _ := m.AppendJSON(nil)
	f.Add(b)
	f.Add(j)
	f.Add(message([][]byte{sub(2, num(1, 1), packed(2, 3), packed(3, 7, 8))}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseAny(data, Options{MaxSize: 1 << 20, MaxMemory: 64 << 20})
		if err != nil {
			return
		}
		m.Symbolize(1<<16, func(f File) []symbol.Result {
			out := make([]symbol.Result, len(f.Addresses))
			for i := range out {
				out[i].Frames = []symbol.Frame{{Func: "f", File: "g", Line: int(f.Addresses[i].At % 100)}}
			}
			return out
		})
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(b, Options{})
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if _, err := again.AppendJSON(nil); err != nil {
			t.Fatal(err)
		}
		l := unlimited
		l.Memory, l.Calls = 64<<20, 1<<20
		p, err := again.Profile(l)
		if err != nil {
			return
		}
		m, err = FromProfile(p)
		if err != nil {
			t.Fatalf("no message can be made of it: %v", err)
		}
		if _, err := m.Profile(unlimited); err != nil {
			t.Fatal(err)
		}
	})
}
