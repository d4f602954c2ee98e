package profile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/reason"
	"hallmark/symbol"
)

// TestNameGenerated has two processes with other code at the same address, and one that
// says nothing.
func TestNameGenerated(t *testing.T) {
	b := NewBuilder(1)
	code := Frame{Reason: reason.Anonymous, Addr: 0x7f0000001010}
	other := Frame{Reason: reason.Anonymous, Addr: 0x7f0000009000}
	shared := b.Stack([]*pprof.Location{b.Location(&code), b.Location(&other)}, Walk{})
	for pid := 1; pid <= 3; pid++ {
		b.Count(shared, b.Owner(&Labels{Process: "p", PID: pid, TID: pid}), int64(pid), int64(pid))
	}
	p := b.Profile()
	maps := map[int64]string{
		1: "7f0000001000 100 one\n7f0000009000 1 far\n", 2: "7f0000001010 1 two\n",
	}
	asked := 0
	NameGenerated(p, func(pid int64) *symbol.PerfMap {
		asked++
		text, ok := maps[pid]
		if !ok {
			return nil
		}
		m, err := symbol.ReadPerfMap(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	want := map[int64]string{1: "one far", 2: "two ?", 3: "? ?"}
	for _, s := range p.Sample {
		_, pid := Process(s)
		var names []string
		for _, l := range s.Location {
			name := "?"
			if len(l.Line) > 0 {
				name = l.Line[0].Function.Name
			}
			if l.Address != uint64(code.Addr) && l.Address != uint64(other.Addr) {
				t.Errorf("an address is %#x", l.Address)
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != want[pid] {
			t.Errorf("process %d has %q, want %q", pid, got, want[pid])
		}
	}
	if asked != 3 || len(p.Location) != 5 {
		t.Errorf("%d maps, %d locations", asked, len(p.Location))
	}
}

// TestNameGeneratedOneByOne wants no more than one map in memory at a time, whatever the order
// of the samples: whoever has many processes may have written a large one for each.
func TestNameGeneratedOneByOne(t *testing.T) {
	const processes = 50
	b := NewBuilder(1)
	for i := range 4 * processes {
		code := Frame{Reason: reason.Anonymous, Addr: addr.Abs(0x7f0000001000 + i)}
		pid := i%processes + 1
		b.Count(b.Stack([]*pprof.Location{b.Location(&code)}, Walk{}), b.Owner(&Labels{Process: "p", PID: pid, TID: pid}), 1, 1)
	}
	var text strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&text, "%x 1 function_with_a_long_name_of_its_own_%d\n", 0x7f0000001000+i, i)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p := b.Profile()
	asked, before, most := 0, heap(), uint64(0)
	NameGenerated(p, func(int64) *symbol.PerfMap {
		most = max(most, heap())
		asked++
		m, err := symbol.ReadPerfMap(strings.NewReader(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
	most = max(most, heap())
	runtime.KeepAlive(p)
	if asked != processes || most > before+uint64(10*text.Len()) {
		t.Errorf("%d maps of %d bytes take %d", asked, text.Len(), most-before)
	}
	for _, s := range p.Sample {
		if len(s.Location[0].Line) != 1 {
			t.Fatalf("no name at %#x", s.Location[0].Address)
		}
	}
}
