package symbol

import (
	"fmt"
	"strings"
	"testing"
)

// TestStringTable numbers strings that come again, some of which lie in the same
// memory.
func TestStringTable(t *testing.T) {
	var table stringTable
	var arena stringArena
	want := map[string]uint32{}
	for i := range 20_000 {
		s := arena.copy([]byte(strings.Repeat("x", i%7*i%90) + fmt.Sprint(i*i%5000)))
		n := table.number(s, hashString(s))
		if known, ok := want[s]; ok && known != n || !ok && int(n) != len(want) {
			t.Fatalf("%q has the number %d, and had %d", s, n, known)
		}
		want[s] = n
		if got := table.strings[n]; got != s {
			t.Fatalf("the number of %q is that of %q", s, got)
		}
	}
	text := table.encode()
	if len(text) != table.size {
		t.Errorf("the strings have %d bytes, and %d of text", table.size, len(text))
	}
	for n, s := range table.strings {
		if start := table.starts[n]; string(text[start:][:len(s)]) != s {
			t.Fatalf("string %d does not start at %d", n, start)
		}
	}
}
