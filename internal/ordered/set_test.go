package ordered

import (
	"slices"
	"testing"
)

func TestMultimap(t *testing.T) {
	var m Multimap[string, int]
	for _, c := range []struct {
		key   string
		value int
		isNew bool
	}{{"b", 3, true}, {"a", 1, true}, {"b", 2, true}, {"b", 3, false}, {"a", 3, true}, {"a", 1, false}} {
		if isNew := m.Add(c.key, c.value); isNew != c.isNew || !m.Has(c.key, c.value) {
			t.Errorf("%s %d: new %v, want %v", c.key, c.value, isNew, c.isNew)
		}
	}
	if m.Has("c", 1) || m.Has("a", 2) || m.Values("c") != nil {
		t.Error("it has what was never added")
	}
	if !slices.Equal(m.Keys(), []string{"b", "a"}) || !slices.Equal(m.Values("b"), []int{3, 2}) || !slices.Equal(m.Values("a"), []int{1, 3}) {
		t.Errorf("%v: %v, %v", m.Keys(), m.Values("a"), m.Values("b"))
	}
}
