package unwind

import (
	"testing"

	"hallmark/addr"
)

// wordMemory is memory of a process, by address.
type wordMemory map[addr.Abs]uint64

func (w wordMemory) ReadWord(at addr.Abs) (uint64, bool) {
	v, ok := w[at]
	return v, ok
}

// TestStepGoroutine goes from a scheduler's stack to a goroutine, and nowhere when what
// lies in memory does not belong together.
func TestStepGoroutine(t *testing.T) {
	const g0, m, g, sp = 0x1000, 0x2000, 0x3000, 0x7000
	rule := goroutineRule{gM: 6, sp: 7, pc: 8, bp: 12, curg: 184}.rule(R14)
	memory := func() wordMemory {
		return wordMemory{
			g0 + 48: m, g0 + 56: sp,
			m: g0, m + 184: g,
			g + 48: m, g + 56: 0xc000, g + 64: 0x401000, g + 96: 0xc100,
		}
	}
	for _, c := range []struct {
		name   string
		change func(wordMemory)
		want   End
	}{
		{"goroutine", func(wordMemory) {}, EndUnknown},
		{"put aside", func(w wordMemory) { w[m+184] = 0 }, Complete},
		{"other stack", func(w wordMemory) { w[g0+56]++ }, Unsupported},
		{"not the scheduler's", func(w wordMemory) { w[m] = g }, Unsupported},
		{"of another thread", func(w wordMemory) { w[g+48]++ }, Unsupported},
		{"unreadable g0", func(w wordMemory) { delete(w, g0+48) }, Unreadable},
		{"unreadable m", func(w wordMemory) { delete(w, m+184) }, Unreadable},
		{"unreadable g", func(w wordMemory) { delete(w, g+96) }, Unreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := memory()
			c.change(mem)
			var s State
			s.Set(RSP, sp)
			s.Set(R14, g0)
			end, ended := s.Step(X86_64, &rule, mem)
			if end != c.want || ended != (c.want != EndUnknown) {
				t.Fatalf("ends with %d, want %d", end, c.want)
			}
			if ended {
				return
			}
			want := State{IP: 0x401000, Method: ByCFI}
			want.Set(RSP, 0xc000)
			want.Set(RBP, 0xc100)
			got := s
			for i := range got.Values {
				if got.Known&(1<<i) == 0 {
					got.Values[i] = 0
				}
			}
			if got != want {
				t.Errorf("it is at %+v, want %+v", got, want)
			}
		})
	}
	s := State{}
	s.Set(RSP, sp)
	if end, _ := s.Step(X86_64, &rule, memory()); end != RegisterLost {
		t.Errorf("without g it ends with %d", end)
	}
}

// TestGoroutineCode reads the places from code as Go 1.26 has it, and from none that is cut
// off or says two things.
func TestGoroutineCode(t *testing.T) {
	morestack := decode(t, "64488b3c25f8ffffff 488b5f30 488b0424 48894740 488d442408 48894738 48896f60 48895750 488b33")
	systemstack := decode(t, "64488b0425f8ffffff 488b5830 483b4348 488b13 4839d0 483b83b8000000 7560 488b5830 488b83b8000000 c3")
	want := goroutineRule{gM: 6, sp: 7, pc: 8, bp: 12, curg: 184}
	if got, ok := goroutineX86(morestack, systemstack); !ok || got != want {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	for n := range len(morestack) - 7 {
		if got, ok := goroutineX86(morestack[:n], systemstack); ok {
			t.Errorf("the first %d bytes of morestack give %+v", n, got)
		}
	}
	for n := range len(systemstack) - 1 {
		if got, ok := goroutineX86(morestack, systemstack[:n]); ok {
			t.Errorf("the first %d bytes of systemstack give %+v", n, got)
		}
	}
	other := append([]byte(nil), systemstack...)
	other[len(other)-5]++ // m.curg on the way back
	if got, ok := goroutineX86(morestack, other); ok {
		t.Errorf("places that differ give %+v", got)
	}
}
