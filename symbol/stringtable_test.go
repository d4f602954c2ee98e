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
	ends, text := table.encode()
	if len(ends) != 4*len(want)+4 || len(text) != table.size {
		t.Errorf("%d strings have %d bytes of ends and %d of text", len(want), len(ends), len(text))
	}
}
