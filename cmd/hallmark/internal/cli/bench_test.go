package cli

import "testing"

func TestShare(t *testing.T) {
	for _, test := range []struct {
		part, whole uint64
		want        string
	}{
		{0, 0, "–"},
		{0, 7, "0.00 %"},
		{1, 3, "33.33 %"},
		{199999, 200000, "99.99 %"},
		{7, 7, "100.00 %"},
	} {
		if got := share(test.part, test.whole); got != test.want {
			t.Errorf("%d of %d is %s, want %s", test.part, test.whole, got, test.want)
		}
	}
}
