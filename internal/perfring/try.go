package perfring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Try opens a clock event of user code with a change, for this thread or for all threads of CPU 0,
// and closes it.
func Try(everybody bool, change func(*unix.PerfEventAttr)) error {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: tryFrequency,
		Bits: unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitMmap | unix.PerfBitMmap2 |
			unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	change(&attr)
	pid, cpu := 0, -1
	if everybody {
		pid, cpu = -1, 0
	}
	fd, err := OpenEvent(&attr, pid, cpu)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// tryFrequency is how many samples a second are asked for, which every kernel allows.
const tryFrequency = 99
