package profile

import (
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
	"hallmark/symbol"
)

// TestNameGenerated has two processes with other code at the same address, and one that
// tells nothing.
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
