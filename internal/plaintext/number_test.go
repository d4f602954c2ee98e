package plaintext

import "testing"

func TestPlural(t *testing.T) {
	for _, test := range []struct {
		n    int64
		one  string
		many []string
		want string
	}{
		{0, "sample", nil, "0 samples"},
		{1, "sample", nil, "1 sample"},
		{2, "sample", nil, "2 samples"},
		{12345, "sample", nil, "12,345 samples"},
		{1, "identity", []string{"identities"}, "1 identity"},
		{1_234_567, "identity", []string{"identities"}, "1,234,567 identities"},
		{1, "record was lost", []string{"records were lost"}, "1 record was lost"},
		{999, "record was lost", []string{"records were lost"}, "999 records were lost"},
		{-1000, "byte", nil, "-1,000 bytes"},
	} {
		if got := Plural(test.n, test.one, test.many...); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
