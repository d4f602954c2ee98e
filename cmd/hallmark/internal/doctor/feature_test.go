package doctor

import (
	"strings"
	"testing"
)

func TestShowsAddresses(t *testing.T) {
	for kallsyms, want := range map[string]bool{
		"0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n": true,
		"ffffffff81000000 T _text\n":                                       true,
		"0000000000000000 T _text\n0000000000000000 t secondary\n":         false,
		"": false,
	} {
		if got, err := showsAddresses(strings.NewReader(kallsyms)); got != want || err != nil {
			t.Errorf("%q: %v, %v", kallsyms, got, err)
		}
	}
}
