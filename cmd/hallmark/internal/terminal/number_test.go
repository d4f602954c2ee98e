package terminal

import "testing"

func TestQuantity(t *testing.T) {
	for _, test := range []struct {
		value int64
		unit  string
		want  string
	}{
		{0, "nanoseconds", "0"},
		{999, "nanoseconds", "999ns"},
		{1500, "nanoseconds", "1.50µs"},
		{1_234_567_890, "nanoseconds", "1.23s"},
		{123_456, "milliseconds", "123.5s"},
		{12_345, "seconds", "12345s"},
		{-2_500_000, "nanoseconds", "-2.50ms"},
		{1023, "bytes", "1023B"},
		{96 << 20, "bytes", "96.00MiB"},
		{12345, "count", "12,345"},
		{-1234567, "apples", "-1,234,567"},
		{100, "", "100"},
	} {
		if got := Quantity(test.value, test.unit); got != test.want {
			t.Errorf("quantity(%d, %q) = %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

// TestPercent keeps 100% for all and 0% for nothing.
func TestPercent(t *testing.T) {
	for _, test := range []struct {
		part, whole int64
		want        string
	}{
		{0, 10, "0%"}, {10, 10, "100%"}, {1, 3, "33.3%"},
		{999_999, 1_000_000, "99.9%"}, {1, 1_000_000, "<0.1%"},
		{0, 0, "-"}, {-1, 4, "-25.0%"},
	} {
		if got := Percent(test.part, test.whole); got != test.want {
			t.Errorf("percent(%d, %d) = %q, want %q", test.part, test.whole, got, test.want)
		}
	}
}
