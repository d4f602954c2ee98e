package profile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hallmark/internal/proftest"
)

// maker makes profiles in pprof's format of any bytes: fields have the wire type and lengths that
// they must have, and numbers of others mostly exist.
type maker struct{ data []byte }

func (m *maker) byte() byte {
	if len(m.data) == 0 {
		return 0
	}
	b := m.data[0]
	m.data = m.data[1:]
	return b
}

func (m *maker) below(n int) int { return int(m.byte()) % n }

// number returns a small number, seldom any.
func (m *maker) number() uint64 {
	switch n := m.byte(); {
	case n < 200:
		return uint64(n % 16)
	case n < 240:
		return uint64(m.byte()) << (n % 8 * 8)
	default:
		return ^uint64(m.byte())
	}
}

// Wire types.
const (
	wireVarint = 0
	wireBytes  = 2
)

func varintField(to []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(to, uint64(field)<<3|wireVarint), v)
}

func bytesField(to []byte, field int, b []byte) []byte {
	to = binary.AppendUvarint(binary.AppendUvarint(to, uint64(field)<<3|wireBytes), uint64(len(b)))
	return append(to, b...)
}

// reference returns one of the numbers 1 to n, seldom another one.
func (m *maker) reference(n int) uint64 {
	if b := m.byte(); b < 250 && n > 0 {
		return uint64(b)%uint64(n) + 1
	}
	return m.number()
}

// numbers appends a repeated field of n numbers, packed or one by one.
func (m *maker) numbers(to []byte, field, n int, next func() uint64) []byte {
	packed := m.below(2) == 1
	var all []byte
	for range n {
		v := next()
		if !packed {
			to = varintField(to, field, v)
		}
		all = binary.AppendUvarint(all, v)
	}
	if packed {
		to = bytesField(to, field, all)
	}
	return to
}

// word returns the number of a string of the profile, seldom another one.
func (m *maker) word() uint64 {
	if b := m.byte(); b != 255 {
		return uint64(b) % uint64(len(words)+1)
	}
	return m.number()
}

// words are the strings of profiles.
var words = []string{"", "samples", "count", "cpu", "nanoseconds", "process", "pid", "thread", "tid", "timestamp", "/bin/app", "[kernel]", "main.main",
	"[not-recorded] /lib/a.so", "bytes", "inuse_space", proftest.AppID, proftest.LibID, "go:abc/def", "_Z3foov", "a b;c", "\xff", "[not-mapped]", "stack", "cgroup",
	"complete", "no-table", "methods", "GNU", "[vdso]", "//anon"}

// numbered makes messages with the numbers 1 to n, and what more of each.
func (m *maker) numbered(to []byte, field, n int, more func(b []byte) []byte) []byte {
	for id := range n {
		b := varintField(nil, 1, uint64(id+1))
		if m.below(64) == 1 {
			b = varintField(nil, 1, m.number())
		}
		to = bytesField(to, field, more(b))
	}
	return to
}

// fields appends some of the numbered fields from first to last, of which some are words.
func (m *maker) fields(b []byte, first, last int, asWords ...int) []byte {
	for field := first; field <= last; field++ {
		switch {
		case m.below(4) == 0:
		case slices.Contains(asWords, field):
			b = varintField(b, field, m.word())
		default:
			b = varintField(b, field, m.number())
		}
	}
	return b
}

// profile makes a profile.
func (m *maker) profile() (b []byte) {
	types, mappings, locations, functions := m.below(4), m.below(5), m.below(6), m.below(6)
	for range types {
		b = bytesField(b, 1, m.fields(nil, 1, 2, 1, 2))
	}
	for range m.below(8) {
		b = bytesField(b, 2, m.sample(types, locations))
	}
	b = m.numbered(b, 3, mappings, func(b []byte) []byte { return m.fields(b, 2, 10, 5, 6) })
	b = m.numbered(b, 4, locations, func(b []byte) []byte {
		if m.below(4) > 0 {
			b = varintField(b, 2, m.reference(mappings))
		}
		b = varintField(b, 3, m.number())
		for range m.below(4) {
			b = bytesField(b, 4, m.fields(varintField(nil, 1, m.reference(functions)), 2, 3))
		}
		return varintField(b, 5, uint64(m.below(2)))
	})
	b = m.numbered(b, 5, functions, func(b []byte) []byte { return m.fields(b, 2, 5, 2, 3, 4) })
	first := 1 + m.below(len(words)-1) // where the words begin
	b = bytesField(b, 6, nil)
	for i := range words {
		b = bytesField(b, 6, []byte(words[(first+i)%len(words)]))
	}
	for _, field := range []int{7, 8, 9, 10, 12, 14, 15} {
		if m.below(3) == 1 {
			b = m.fields(b, field, field, 7, 8, 14, 15)
		}
	}
	if m.below(2) == 1 {
		b = bytesField(b, 11, m.fields(nil, 1, 2, 1, 2))
	}
	return m.numbers(b, 13, m.below(3), m.word)
}

// sample makes a sample with a value of each type and with labels.
func (m *maker) sample(types, locations int) []byte {
	s := m.numbers(nil, 1, m.below(5), func() uint64 { return m.reference(locations) })
	if m.below(16) == 1 {
		types = m.below(6)
	}
	s = m.numbers(s, 2, types, m.number)
	for range m.below(4) {
		label := varintField(nil, 1, m.word())
		if m.below(2) == 1 {
			label = varintField(label, 2, m.word())
		} else {
			label = m.fields(label, 3, 4, 4)
		}
		s = bytesField(s, 3, label)
	}
	return s
}

// legacy makes a profile in one of the formats from before pprof's, which it reads as well.
func (m *maker) legacy() []byte {
	var b strings.Builder
	switch m.below(6) {
	case 0:
		fmt.Fprintf(&b, "heap profile: %d: %d [%d: %d] @ %s\n", m.byte(), m.number(), m.byte(), m.number(),
			[]string{"heap_v2/524288", "heapprofile", "heap/1", "growthz", "fragmentationz", "heapz_v2/2"}[m.below(6)])
		for range m.below(5) {
			fmt.Fprintf(&b, "%d: %d [%d: %d] @ %#x %#x\n", m.byte(), m.number(), m.byte(), m.number(), m.number(), 0x400000+m.number())
		}
	case 1:
		fmt.Fprintf(&b, "--- contentionz %d ---\ncycles/second = %d\nsampling period = %d\n", m.byte(), m.number(), m.byte())
		for range m.below(5) {
			fmt.Fprintf(&b, "%d %d @ %#x %#x\n", m.number(), m.byte(), m.number(), 0x400000+m.number())
		}
	case 2:
		b.WriteString("--- threadz 1 ---\n\n")
		for i := range m.below(4) {
			fmt.Fprintf(&b, "--- Thread %x (name: t%d/%d) stack: ---\n  PC: %#x %#x\n  [same as previous thread]\n", 0x7f00+i, i, i, m.number(), 0x400000+m.number())
		}
	case 3:
		fmt.Fprintf(&b, "goroutine profile: total %d\n", m.byte())
		for range m.below(4) {
			fmt.Fprintf(&b, "%d @ %#x %#x\n#\t%#x\tmain.f+0x1\t/x.go:%d\n\n", m.byte(), m.number(), 0x400000+m.number(), m.number(), m.byte())
		}
	case 4:
		return m.cpu()
	default:
		fmt.Fprintf(&b, "--- Java heap\nFormat = java\nResolution=bytes\n")
		for range m.below(4) {
			fmt.Fprintf(&b, "%d %d @ %#x\n", m.byte(), m.byte(), m.number())
		}
	}
	b.WriteString("\nMAPPED_LIBRARIES:\n")
	for range m.below(3) {
		fmt.Fprintf(&b, "%08x-%08x r-xp %08x fe:00 %d %s\n", 0x400000, 0x500000+m.number(), m.number(), m.byte(), words[m.below(len(words))])
	}
	return []byte(b.String())
}

// cpu makes a profile as gperftools writes it, in words of 32 or 64 bits.
func (m *maker) cpu() (b []byte) {
	wide := m.below(2) == 1
	word := func(v uint64) {
		if wide {
			b = binary.LittleEndian.AppendUint64(b, v)
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	for _, v := range []uint64{0, 3, uint64(m.below(2)), 10000, 0} {
		word(v)
	}
	for range m.below(5) {
		n := 1 + m.below(3)
		word(uint64(m.byte()))
		word(uint64(n))
		for range n {
			word(0x400000 + m.number())
		}
	}
	for _, v := range []uint64{0, 1, 0} {
		word(v)
	}
	return append(b, "00400000-00500000 r-xp 00000000 fe:00 1 /bin/app\n"...)
}

// FuzzReadMade is FuzzRead with profiles that are made of the input, in all of pprof's formats,
// and damaged a little. What was read is written and read again, and is the same.
func FuzzReadMade(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 64 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &maker{data}
		form := m.byte()
		var made []byte
		if form%4 == 0 {
			made = m.legacy()
		} else {
			made = m.profile()
		}
		for n := m.below(3); n > 0 && len(made) > 0; n-- {
			made[(int(m.byte())<<8|int(m.byte()))%len(made)] ^= m.byte()
		}
		if form%8 == 1 {
			made = compress(t, made)
		}
		p, err := Read(bytes.NewReader(made), ReadOptions{MaxSize: 1 << 20})
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if err := p.Copy().WriteUncompressed(&once); err != nil {
			t.Fatal(err)
		}
		misses, _ := Symbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.AppID: "app"}})
		if err := p.CheckValid(); err != nil {
			t.Fatalf("symbolized profile: %v", err)
		}
		_, _ = Resymbolize(t.Context(), p, &fakeSymbols{names: map[string]string{proftest.LibID: "lib"}})
		c := MeasureCoverage(p, misses)
		if overflow := c.Frames < 0 || c.Frames > 1<<32; !overflow && (c.Identified > c.Frames || c.Symbolized > c.Frames) {
			t.Errorf("impossible coverage %+v", c)
		}
		for _, s := range p.Sample {
			StackEnd(s)
			Process(s)
			for call := range Calls(s) {
				if call.Name() == "" {
					t.Errorf("a call without a name at %#x", call.Location.Address)
				}
			}
		}
		again, err := Read(bytes.NewReader(once.Bytes()), ReadOptions{})
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if err := again.WriteUncompressed(&twice); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Errorf("written again it is another profile: %v", err)
		}
		_ = Write(&twice, p)
	})
}
