package unwind

import (
	"encoding/binary"
	"slices"
	"testing"

	"hallmark/addr"
)

// ruleAt is a rule and the offset from which on it holds.
type ruleAt struct {
	at   addr.Offset
	rule Rule
}

// handmade encodes rules, which are in the order of their offsets, as the package's comment
// says, with no sharing. It is not what builds tables: tests of walks need any rule.
func handmade(t testing.TB, flags Flags, rules []ruleAt) *Table {
	t.Helper()
	table, err := Parse(encodeRules(flags, rules))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func encodeRules(flags Flags, rules []ruleAt) []byte {
	order := binary.LittleEndian
	base, granules := addr.Offset(0), uint32(0)
	if len(rules) > 0 {
		base = rules[0].at &^ (granule - 1)
		granules = uint32((rules[len(rules)-1].at-base)/granule + 1)
	}
	b := make([]byte, headerSize)
	part := func(field int, data []byte) {
		order.PutUint32(b[field:], uint32(len(b)))
		b = append(b, data...)
		b = append(b, make([]byte, -len(b)&7)...)
	}
	var directory, rows []byte
	for g := range granules + 1 {
		first, _ := slices.BinarySearchFunc(rules, base+addr.Offset(g)*granule, func(r ruleAt, at addr.Offset) int { return int(r.at) - int(at) })
		directory = order.AppendUint32(directory, uint32(first))
		next, _ := slices.BinarySearchFunc(rules, base+addr.Offset(g+1)*granule, func(r ruleAt, at addr.Offset) int { return int(r.at) - int(at) })
		for i := first; i < next; i++ {
			rows = append(rows, byte(rules[i].at))
		}
		for i := first; i < next; i++ {
			rows = order.AppendUint16(rows, uint16(i+1))
		}
	}
	coded := make([]byte, ruleSize)
	for _, r := range rules {
		coded = append(coded, r.rule.encode()...)
	}
	part(28, append(directory, 0, 0))
	part(32, rows)
	part(36, coded)
	order.PutUint32(b, magic)
	b[4], b[5] = byte(X86_64), byte(flags)
	order.PutUint64(b[8:], uint64(base))
	order.PutUint32(b[16:], granules)
	order.PutUint32(b[20:], uint32(len(rules)))
	order.PutUint32(b[24:], uint32(len(rules)+1))
	order.PutUint32(b[40:], uint32(len(b)))
	return b
}

func (r *Rule) encode() []byte {
	b := []byte{byte(r.Kind), byte(r.Register), r.Flags, byte(r.RA)}
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Offset))
	for _, s := range r.Saved {
		b = append(b, byte(s))
	}
	return append(b, byte(r.Addend), byte(r.Link))
}

// allSame is for functions that touch no register.
var allSame = [6]int8{Same, Same, Same, Same, Same, Same}

// oneFile is a space with a file at 0x400000, generated code at 0x500000, a file without
// identity at 0x600000, one whose table is not there at 0x700000, and data at 0x800000.
type oneFile struct{ table *Table }

func (s oneFile) At(a addr.Abs) (Mapping, bool) {
	m := Mapping{Start: a &^ 0xfffff, End: a&^0xfffff + 0x100000, Offset: 0x1000}
	switch m.Start {
	case 0x400000:
		m.Table = s.table
	case 0x500000:
		m.Content = Generated
	case 0x600000:
		m.Content = Unidentified
	case 0x700000:
	case 0x800000:
		m.Content = Data
	default:
		return Mapping{}, false
	}
	return m, true
}

// stackOf returns a stack at 0x10000.
func stackOf(values ...uint64) *Stack {
	s := &Stack{Base: 0x10000}
	for _, v := range values {
		s.Bytes = binary.LittleEndian.AppendUint64(s.Bytes, v)
	}
	return s
}

var rulesOfTest = []ruleAt{
	{0x1000, Rule{Kind: Reg, Register: RSP, Offset: 8, RA: -1, Saved: allSame}},                                  // nothing pushed
	{0x1010, Rule{Kind: Reg, Register: RBP, Offset: 16, RA: -1, Saved: [6]int8{Same, -2, Same, -3, Same, Same}}}, // rbp, r13 pushed
	{0x1020, Rule{Kind: Outermost}},
	{0x1030, Rule{Kind: Deref, Register: RBP, Offset: -8, RA: -1, Flags: SavedAtRegister, Saved: [6]int8{-2, 0, Same, Same, Same, Unknown}}}, // aligned stack
	{0x1040, Rule{Kind: PLT, Offset: 11, RA: -1, Saved: allSame}},
	{0x104f, Rule{Kind: Signal}}, // and the byte before its first instruction
	{0x1060, Rule{}},
	{0x1070, Rule{Register: Register(Expression)}},
	{0x1080, Rule{Kind: FP}},
	{0x1090, Rule{Kind: Reg, Register: RBX, Offset: 8, RA: -1, Saved: allSame}},
	{0x10a0, Rule{Kind: Reg, Register: RSP, Offset: -64, RA: -1, Saved: allSame}},
	{0x10b0, Rule{Kind: Reg, Register: RSP, RA: Same, Link: 30, Saved: allSame}},
	{0x10c0, Rule{Kind: Reg, Register: RSP, Offset: 8, RA: Unknown, Saved: allSame}},
	{0x10d0, Rule{Kind: Reg, Register: 200, Offset: 8, RA: -1, Saved: allSame}},
	{0x10e0, Rule{Kind: Deref, Register: RSP, Flags: OtherStack, RA: -1, Saved: allSame}},
	{0x10f0, Rule{Kind: Reg, Register: RSP, Flags: Interrupted, Offset: 16, RA: -1, Saved: allSame}},
	{0x1100, Rule{Kind: Reg, Register: RBP, Flags: ReturnAtRegister, Offset: 64, RA: 1, Saved: allSame}},
	{0x1110, Rule{Kind: Reg, Register: RBX, Flags: SavedAtFramePointer, Offset: 0x10040, RA: -1, Saved: [6]int8{Same, 0, Same, Same, Same, Same}}}, // an aligned stack's beginning and end
}

// signalWords is what a kernel leaves for a handler, from its stack pointer on.
func signalWords(ip, sp, bp uint64) []uint64 {
	w := make([]uint64, 22)
	for i := range w {
		w[i] = 0x1000 + uint64(i)
	}
	w[15], w[20], w[21] = bp, sp, ip
	return w
}

func TestWalk(t *testing.T) {
	const code, stack = 0x400000, 0x10000
	tests := []struct {
		name   string
		ip     addr.Abs
		sp, bp uint64
		memory []uint64
		frames []addr.Abs
		end    End
	}{
		{"two calls to the entry", code + 0x1, stack, 0, []uint64{code + 0x8, code + 0x21}, []addr.Abs{code + 1, code + 7, code + 0x20}, Complete},
		{"a call that is the last instruction belongs to its function", code, stack, 0, []uint64{code + 0x30}, []addr.Abs{code, code + 0x2f}, Complete},
		{"by the frame pointer", code + 0x11, stack, stack + 16, []uint64{1, 2, 3, code + 0x22}, []addr.Abs{code + 0x11, code + 0x21}, Complete},
		{"an aligned stack", code + 0x31, stack, stack + 32, []uint64{0, 0, 0, stack + 64, stack + 80, 0, 0, code + 0x15, 0, 0, 0, code + 0x22}, []addr.Abs{code + 0x31, code + 0x14, code + 0x21}, Complete},
		{"a linker's stub before it pushes", code + 0x4a, stack, 0, []uint64{code + 0x21, 0}, []addr.Abs{code + 0x4a, code + 0x20}, Complete},
		{"a linker's stub that has pushed", code + 0x4b, stack, 0, []uint64{1, code + 0x21}, []addr.Abs{code + 0x4b, code + 0x20}, Complete},
		{"what a signal interrupted is exact", code + 0x51, stack, 0, append(signalWords(code+0x10, stack+176, stack+192), 0, 0, 0, code+0x22), []addr.Abs{code + 0x51, code + 0x10, code + 0x21}, Complete},
		{"a handler that returns is exact where it returns to", code + 0x1, stack, 0, append([]uint64{code + 0x50}, signalWords(code+0x20, stack, 0)...), []addr.Abs{code + 0x1, code + 0x50, code + 0x20}, Complete},
		{"a signal on another stack", code + 0x51, stack + 64, 0, append([]uint64{code + 0x21, 0, 0, 0, 0, 0, 0, 0}, signalWords(code+2, stack, 0)...), []addr.Abs{code + 0x51, code + 2, code + 0x20}, Complete},
		{"a signal from a jump to nothing", code + 0x51, stack, 0, signalWords(0, stack+176, 0), []addr.Abs{code + 0x51}, NotMapped},
		{"no rule", code + 0x61, stack, 0, []uint64{code}, []addr.Abs{code + 0x61}, NoRule},
		{"an expression", code + 0x71, stack, 0, []uint64{code}, []addr.Abs{code + 0x71}, Unsupported},
		{"code that keeps frame pointers", code + 0x81, stack, stack, []uint64{stack + 16, code + 0x81, 0, code + 0x85}, []addr.Abs{code + 0x81, code + 0x80, code + 0x84}, Complete},
		{"a lost register", code + 0x1, stack, 0, []uint64{code + 0x95}, []addr.Abs{code + 1, code + 0x94}, BadFrame},
		{"a register that calls do not preserve", code + 0x81, stack, stack, []uint64{0, code + 0x95}, []addr.Abs{code + 0x81, code + 0x94}, RegisterLost},
		{"a stack that goes down", code + 0xa1, stack + 64, 0, make([]uint64, 9), []addr.Abs{code + 0xa1}, BadFrame},
		{"a return address in no register", code + 0xb1, stack, 0, nil, []addr.Abs{code + 0xb1}, RegisterLost},
		{"a return address that is lost", code + 0xc1, stack, 0, []uint64{1}, []addr.Abs{code + 0xc1}, RegisterLost},
		{"a register that no machine has", code + 0xd1, stack, 0, []uint64{1}, []addr.Abs{code + 0xd1}, RegisterLost},
		{"a caller on another stack, below", code + 0xe1, stack + 32, 0, []uint64{code + 0x21, 0, 0, 0, stack + 8}, []addr.Abs{code + 0xe1, code + 0x20}, Complete},
		{"what was interrupted is exact", code + 0xf1, stack, 0, []uint64{0, code + 0x20}, []addr.Abs{code + 0xf1, code + 0x20}, Complete},
		{"a return address beside a register", code + 0x101, stack, stack + 16, []uint64{0, 0, 0, code + 0x21}, []addr.Abs{code + 0x101, code + 0x20}, Complete},
		{"an aligned stack's beginning", code + 0x111, stack, stack + 16, []uint64{0, 0, stack + 80, 0, 0, 0, 0, code + 0x12, 0, 0, 0, code + 0x22}, []addr.Abs{code + 0x111, code + 0x11, code + 0x21}, Complete},
		{"an aligned stack's end", code + 0x111, stack + 24, stack + 80, []uint64{0, 0, 1, 0, 0, 0, 0, code + 0x12, 0, 0, 0, code + 0x22}, []addr.Abs{code + 0x111, code + 0x11, code + 0x21}, Complete},
		{"a return address of zero", code + 1, stack, 0, []uint64{0}, []addr.Abs{code + 1}, Complete},
		{"a cut stack", code + 1, stack + 8, 0, []uint64{0}, []addr.Abs{code + 1}, Unreadable},
		{"a return address of zero and a frame pointer", code + 1, stack, stack + 64, []uint64{0}, []addr.Abs{code + 1}, BadFrame},
		{"a return address of zero, the frame pointer restored", code + 0x11, stack, stack + 16, []uint64{1, 2, 0, 0}, []addr.Abs{code + 0x11}, Complete},
		{"a return address of zero, another frame pointer restored", code + 0x11, stack, stack + 16, []uint64{1, 2, 3, 0}, []addr.Abs{code + 0x11}, BadFrame},
		{"a return address of zero, the frame pointer lost", code + 0x11, stack, stack - 8, []uint64{0}, []addr.Abs{code + 0x11}, BadFrame},
		{"a frame pointer of zero", code + 0x81, stack, 0, nil, []addr.Abs{code + 0x81}, Complete},
		{"a frame pointer to zeros", code + 0x81, stack, stack, []uint64{0, 0}, []addr.Abs{code + 0x81}, Complete},
		{"a frame pointer to a return address of zero", code + 0x81, stack, stack, []uint64{stack + 16, 0}, []addr.Abs{code + 0x81}, BadFrame},
		{"generated code", 0x500010, stack, stack, []uint64{stack + 16, 0x500020, 0, code + 0x21}, []addr.Abs{0x500010, 0x50001f, code + 0x20}, Complete},
		{"generated code with a frame pointer of zero", 0x500010, stack, stack, []uint64{0, 0x500020}, []addr.Abs{0x500010, 0x50001f}, BadFrame},
		{"generated code with a frame pointer to zeros", 0x500010, stack, stack, []uint64{0, 0}, []addr.Abs{0x500010}, BadFrame},
		{"generated code without frame pointers", 0x500010, stack, stack - 16, []uint64{0, 0x500020}, []addr.Abs{0x500010}, BadFrame},
		{"a crooked frame pointer", 0x500010, stack, stack + 4, []uint64{0, 0x500020}, []addr.Abs{0x500010}, BadFrame},
		{"a file without identity", 0x600010, stack, stack, nil, []addr.Abs{0x600010}, NotIdentified},
		{"a table that is not there", code + 1, stack, 0, []uint64{0x700001}, []addr.Abs{code + 1, 0x700000}, NoTable},
		{"data", code + 1, stack, 0, []uint64{0x800001}, []addr.Abs{code + 1}, NotCode},
		{"nothing", code + 1, stack, 0, []uint64{0x900001}, []addr.Abs{code + 1}, NotMapped},
		{"the first byte of a mapping returned to", code + 1, stack, 0, []uint64{code}, []addr.Abs{code + 1}, NotMapped},
		{"the stack's beginning", code + 0x61, 0x20000 - 32, 0, nil, []addr.Abs{code + 0x61}, Complete},
		{"below the stack's beginning", code + 0x61, 0x20000 - 40, 0, nil, []addr.Abs{code + 0x61}, NoRule},
		{"more frames than wanted", code + 1, stack, 0, slices.Repeat([]uint64{code + 1}, 30), append([]addr.Abs{code + 1}, slices.Repeat([]addr.Abs{code}, 15)...), TooDeep},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := Walker{Machine: X86_64, Memory: stackOf(test.memory...), Space: oneFile{handmade(t, 0, rulesOfTest)}, Entry: 0x20000, Max: 16}
			s := State{IP: test.ip, Exact: true, Method: ByRegs}
			s.Set(RSP, test.sp)
			s.Set(RBP, test.bp)
			s.Set(RBX, 0)
			var frames []addr.Abs
			end := w.Walk(&s, func(f Frame) bool {
				frames = append(frames, f.At)
				return true
			})
			if !slices.Equal(frames, test.frames) || end != test.end {
				t.Errorf("%v, end %d; want %v, end %d", frames, end, test.frames, test.end)
			}
		})
	}
}

// TestWalkGaps walks through code without a rule, in files that keep frame pointers there.
func TestWalkGaps(t *testing.T) {
	for name, table := range map[string]*Table{
		"a file without any":      handmade(t, 0, nil),
		"a file with the flag":    handmade(t, GapsKeepFP, rulesOfTest),
		"a file without the flag": handmade(t, 0, rulesOfTest),
	} {
		w := Walker{Machine: X86_64, Memory: stackOf(0x10010, 0x500020, 0, 0x400021), Space: oneFile{table}, Max: 16}
		s := State{IP: 0x400060, Exact: true, Method: ByRegs}
		s.Set(RSP, 0x10000)
		s.Set(RBP, 0x10000)
		var methods []Method
		end := w.Walk(&s, func(f Frame) bool {
			methods = append(methods, f.Method)
			return true
		})
		want, wantEnd := []Method{ByRegs, ByFP, ByFP}, Complete
		if name == "a file without the flag" {
			want, wantEnd = []Method{ByRegs}, NoRule
		}
		if !slices.Equal(methods, want) || end != wantEnd {
			t.Errorf("%s: %v, end %d", name, methods, end)
		}
	}
}

// TestWalkGoesOn cuts every walk at every frame and goes on with a copy of the state.
func TestWalkGoesOn(t *testing.T) {
	memory := stackOf(append(signalWords(0x400010, 0x10000+176, 0x10000+192), 0, 0, 0, 0x400022)...)
	walk := func(s State, stop int) (frames []Frame, at State) {
		w := Walker{Machine: X86_64, Memory: memory, Space: oneFile{handmade(t, 0, rulesOfTest)}, Max: 16}
		w.Walk(&s, func(f Frame) bool {
			frames = append(frames, f)
			return len(frames) != stop
		})
		return frames, s
	}
	start := State{IP: 0x400051, Exact: true, Method: ByRegs}
	start.Set(RSP, 0x10000)
	whole, _ := walk(start, 0)
	if len(whole) != 3 {
		t.Fatalf("%d frames", len(whole))
	}
	for n := 1; n < len(whole); n++ {
		first, at := walk(start, n)
		rest, _ := walk(at, 0)
		if got := append(first[:n-1], rest...); !slices.Equal(got, whole) {
			t.Errorf("cut after %d: %v, want %v", n, got, whole)
		}
	}
}

func TestSignedReturnAddress(t *testing.T) {
	for ra, want := range map[uint64]addr.Abs{
		0x0000ffff12345678: 0x0000ffff12345678,
		0x002bffff12345678: 0x0000ffff12345678,
		0xab2bffff12345678: 0x0000ffff12345678,
		0xffff800012345678: 0xffff800012345678, // the kernel's
	} {
		if got := ARM64.code(ra, 0); got != want {
			t.Errorf("%#x: %v, want %v", ra, got, want)
		}
	}
}

// TestAddressBits walks by a signed return address on kernels of other sizes.
func TestAddressBits(t *testing.T) {
	for bits, signed := range map[uint8]uint64{0: 0x2b << 48, 39: 0x2bfff << 39 &^ (1 << 55), 47: 1 << 47, 52: 5 << 52} {
		w := Walker{Machine: ARM64, AddressBits: bits, Memory: stackOf(0, signed|0x500020), Space: oneFile{}, Max: 3}
		s := State{IP: 0x500010, Exact: true, Method: ByRegs}
		s.Set(SP, 0x10000)
		s.Set(X29, 0x10000)
		var frames []addr.Abs
		w.Walk(&s, func(f Frame) bool {
			frames = append(frames, f.At)
			return true
		})
		if !slices.Equal(frames, []addr.Abs{0x500010, 0x50001f}) {
			t.Errorf("%d bits: %v", bits, frames)
		}
	}
}

// counted is memory that refuses what it does not have, and counts.
type counted struct {
	Stack
	reads int
}

func (c *counted) ReadWord(a addr.Abs) (uint64, bool) {
	c.reads++
	return c.Stack.ReadWord(a)
}

// FuzzWalk walks by any rules over any memory: each walk ends, within the frames that
// are wanted, and does not read more for a frame than the most that a rule can say.
func FuzzWalk(f *testing.F) {
	var seed []byte
	for _, r := range rulesOfTest {
		seed = append(seed, r.rule.encode()...)
	}
	f.Add(seed, stackOf(0x400001, 0x400011, 0x10020, 0x400031, 0x400041).Bytes, uint8(0), uint16(3), uint64(0x10000), uint64(0x10010))
	f.Add(seed, stackOf(signalWords(0x400051, 0x10000, 0)...).Bytes, uint8(1), uint16(0x51), uint64(0x10000), uint64(0))
	f.Fuzz(func(t *testing.T, coded, stack []byte, flags uint8, at uint16, sp, bp uint64) {
		if len(coded) > 16*200 {
			return
		}
		var rules []ruleAt
		for i := 0; i+16 <= len(coded); i += 16 {
			rules = append(rules, ruleAt{addr.Offset(0x1000 + i), Rule{}})
		}
		raw := encodeRules(Flags(flags), rules)
		copy(raw[len(raw)-len(rules)*16:], coded) // whatever a rule says
		table, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, machine := range []Machine{X86_64, ARM64} {
			memory := &counted{Stack: Stack{Base: 0x10000, Bytes: stack}}
			w := Walker{Machine: machine, Memory: memory, Space: oneFile{table}, Max: 64}
			s := State{IP: 0x400000 + addr.Abs(at), Exact: true, Method: ByRegs}
			s.Set(machine.StackPointer(), sp)
			s.Set(machine.FramePointer(), bp)
			frames, last, down := 0, s, false
			leaves := func(s *State) bool { // its caller may be on another stack
				r := table.Lookup(addr.Offset(s.Lookup()-0x400000) + 0x1000)
				return r.Flags&OtherStack != 0
			}
			end := w.Walk(&s, func(f Frame) bool {
				frames++
				was, _ := last.Get(machine.StackPointer())
				is, known := s.Get(machine.StackPointer())
				down = down || frames > 1 && f.Method != BySignal && !leaves(&last) && (!known || is < was || is == was && !last.Exact)
				last = s
				if _, mapped := w.Space.At(f.At); !mapped {
					t.Errorf("a frame at %v, where nothing is", f.At)
				}
				return true
			})
			if frames > w.Max || end == EndUnknown || end >= ends || down {
				t.Errorf("%d frames, end %d, to a lower stack: %v", frames, end, down)
			}
			if memory.reads > (frames+1)*33 {
				t.Errorf("%d words read for %d frames", memory.reads, frames)
			}
		}
	})
}

func TestWalkAllocatesNothing(t *testing.T) {
	w := Walker{Machine: X86_64, Memory: stackOf(slices.Repeat([]uint64{0x400001}, 30)...), Space: oneFile{handmade(t, 0, rulesOfTest)}, Max: 16}
	s, n := State{}, 0
	count := func(Frame) bool { n++; return true }
	if allocated := testing.AllocsPerRun(100, func() {
		s = State{IP: 0x400001, Exact: true, Method: ByRegs}
		s.Set(RSP, 0x10000)
		w.Walk(&s, count)
	}); allocated != 0 || n < 1600 {
		t.Errorf("%v allocations, %d frames", allocated, n)
	}
}

func BenchmarkWalk(b *testing.B) {
	w := Walker{Machine: X86_64, Memory: stackOf(slices.Repeat([]uint64{0x400001}, 200)...), Space: oneFile{handmade(b, 0, rulesOfTest)}, Max: 128}
	s, n := State{}, 0
	count := func(Frame) bool { n++; return true }
	b.ReportAllocs()
	for b.Loop() {
		s = State{IP: 0x400001, Exact: true, Method: ByRegs}
		s.Set(RSP, 0x10000)
		w.Walk(&s, count)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
}

// TestMissingPages reads a copy that begins in the middle of a page and lacks two others.
func TestMissingPages(t *testing.T) {
	s := Stack{Base: 0x10800, Bytes: make([]byte, 4*4096), Missing: 1<<1 | 1<<3}
	for at, want := range map[addr.Abs]bool{
		0x107ff: false, 0x10800: true, 0x10ff8: true, 0x10ff9: false, 0x11000: false, 0x11ff8: false, 0x11fff: false,
		0x12000: true, 0x12ff8: true, 0x12ffc: false, 0x13800: false, 0x14000: true, 0x147f8: true, 0x147f9: false,
	} {
		if _, ok := s.ReadWord(at); ok != want {
			t.Errorf("%v: %v, want %v", at, ok, want)
		}
	}
}
