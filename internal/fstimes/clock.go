package fstimes

import (
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	// maxSteps is how many of its steps the clock for the times of files may be behind. It is
	// set in each tick of the kernel, to the last whole step: so it is up to two behind. The CPU
	// that sets it may be late, because the host of a virtual machine lets it wait; another one
	// takes over after five ticks (MAX_STALLED_JIFFIES of kernel/time/tick-sched.c), and finds
	// that in a tick of its own.
	maxSteps = 8
	// longStep is the longest step that there is: CONFIG_HZ is 100 at least.
	longStep = 10 * time.Millisecond
	// minDelay counts where steps are short, because a late CPU does not depend on them.
	minDelay = 20 * time.Millisecond
)

// Delay returns how long, at most, the times that files get are behind the clock (of
// CLOCK_REALTIME): a file that changes now may have a time from so long ago. So a change that
// is no older than that may hide a second one, which has the same time; and a file may have
// changed after a moment, and have a time from before it.
var Delay = sync.OnceValue(func() time.Duration {
	const realtimeCoarse = 5 // CLOCK_REALTIME_COARSE of include/uapi/linux/time.h
	var step syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETRES, realtimeCoarse, uintptr(unsafe.Pointer(&step)), 0); errno != 0 {
		return delayOf(longStep)
	}
	return delayOf(time.Duration(step.Nano()))
})

func delayOf(step time.Duration) time.Duration { return max(minDelay, maxSteps*step) }
