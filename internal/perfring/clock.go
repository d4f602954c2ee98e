package perfring

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of CLOCK_MONOTONIC, in ns. The system call does not announce itself to the Go
// runtime, whose monitor would wake up: see [Waiter].
func Monotonic() uint64 {
	var now unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		panic(errno) // the clock and the pointer are valid
	}
	return uint64(now.Nano())
}

// WallClock turns times of the kernel's clocks into those of people. It is set once, so
// that the events of one process are as far apart as they were, and again when somebody
// has set the machine's clock.
type WallClock struct {
	Monotonic, Boot int64 // what CLOCK_REALTIME is ahead, ns
	checked         uint64
}

// NewWallClock returns a clock that is set now.
func NewWallClock() WallClock {
	c := WallClock{checked: Monotonic()}
	c.Monotonic, c.Boot = ahead(unix.CLOCK_MONOTONIC), ahead(unix.CLOCK_BOOTTIME)
	return c
}

// ahead returns what CLOCK_REALTIME is ahead of another clock, ns.
func ahead(clock int32) int64 {
	var real, other unix.Timespec
	if unix.ClockGettime(clock, &other) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &real) != nil {
		return 0 // never: both clocks are there
	}
	return real.Nano() - other.Nano()
}

// At returns the wall time of one of CLOCK_MONOTONIC.
func (c *WallClock) At(t uint64) time.Time {
	if t > c.checked+uint64(time.Second) {
		c.check(t)
	}
	return time.Unix(0, int64(t)+c.Monotonic)
}

func (c *WallClock) check(now uint64) {
	c.checked = now
	if d := ahead(unix.CLOCK_MONOTONIC) - c.Monotonic; d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.Monotonic += d
	}
	if d := ahead(unix.CLOCK_BOOTTIME) - c.Boot; d > int64(time.Millisecond) || d < -int64(time.Millisecond) {
		c.Boot += d
	}
}

// SinceBoot turns a time of CLOCK_BOOTTIME into one of CLOCK_MONOTONIC, which stands still
// while the machine sleeps: 0 for one from before the last sleep.
func (c *WallClock) SinceBoot(t uint64) uint64 {
	return uint64(max(0, int64(t)+c.Boot-c.Monotonic))
}

// AtBoot returns the wall time of one of CLOCK_BOOTTIME.
func (c *WallClock) AtBoot(t uint64) time.Time { return time.Unix(0, int64(t)+c.Boot) }

// WallTime turns the time of a record (ns, CLOCK_MONOTONIC) into one of the clock of files. It is never later than it
// was, and earlier by as little as a busy machine allows: two clocks are not read at one time.
func WallTime(t uint64) time.Time {
	var best time.Time
	least := ^uint64(0)
	before := Monotonic()
	for range clockReads {
		now := time.Now()
		after := Monotonic()
		if d := after - before; d < least {
			best, least = now.Add(-time.Duration(after-t)), d
		}
		if least < uint64(closeEnough) {
			break
		}
		before = after
	}
	return best
}

const (
	closeEnough = 20 * time.Microsecond
	clockReads  = 8
)
