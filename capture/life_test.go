package capture

import (
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/perfring"
)

// TestSinceBoot compares two clocks that stand apart by what the machine slept.
func TestSinceBoot(t *testing.T) {
	before := perfring.Monotonic()
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		t.Fatal(err)
	}
	const second = 1_000_000_000 // a busy machine may stop us between two clocks
	if got := sinceBoot(uint64(boot.Nano())); got+second < before || got > perfring.Monotonic()+second {
		t.Errorf("it is %d, or %d", before, got)
	}
}
