package bpf

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// kernelAddress looks a function of the kernel up.
func kernelAddress(t *testing.T, name string) uint64 {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var address uint64
		if strings.HasSuffix(lines.Text(), " "+name) {
			if _, err := fmt.Sscanf(lines.Text(), "%x", &address); err != nil {
				t.Fatal(err)
			}
			return address
		}
	}
	return 0
}

// openBreakpoint opens an event that samples this thread whenever it executes the
// instruction at an address of the kernel. Programs on it run as in an NMI
// (exc_debug_kernel, arch/x86/kernel/traps.c), which clock events do not.
func openBreakpoint(t *testing.T, address uint64) int {
	t.Helper()
	const execute = 4 // HW_BREAKPOINT_X of include/uapi/linux/hw_breakpoint.h
	attr := unix.PerfEventAttr{
		Type:    unix.PERF_TYPE_BREAKPOINT,
		Size:    uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample:  1,
		Bp_type: execute,
		Ext1:    address,
		Ext2:    uint64(unsafe.Sizeof(uintptr(0))),
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skip("NOT CHECKED: this machine has no breakpoints in the kernel; the kernels in QEMU have")
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestInNMI takes samples as in an NMI while this thread holds the lock of its
// mappings, and another one changes the maps all the time: nothing may wait for
// anything, and all frames are found as ever.
func TestInNMI(t *testing.T) {
	testenv.Root(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	event := openBreakpoint(t, kernelAddress(t, "do_mmap"))
	s := newTestSampler(t, Options{Entries: 8})
	if err := s.Attach(event); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	result := make(chan *seen)
	go func() { result <- hammer(t, s, &over) }()
	const rounds = 3000
	for range rounds {
		b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Error(err)
			break
		}
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}
	over.Store(true)
	got := <-result
	var samples, files uint64
	for stack, n := range got.counts {
		samples += n
		for _, f := range got.stacks[stack] {
			if f.Kind == InFile {
				checkFile(t, got.files[f.Serial])
				files += n
				break
			}
		}
	}
	stats := statsOf(t, s)
	// A processor runs no programs of events where it was taken from a thread that changes
	// a map (bpf_disable_instrumentation of include/linux/bpf.h), as the other one does here.
	if files == 0 || samples != stats.Samples-stats.LostCounts {
		t.Errorf("%d samples, %d in files: %+v", samples, files, stats)
	}
	if samples+stats.LostCounts < rounds/2 {
		testenv.Lack(t, "%d samples of %d: %+v", samples, rounds, stats)
	}
}

// hammer takes entries out of the table and counts out of the kernel until it is over,
// and once more.
func hammer(t *testing.T, s *Sampler, over *atomic.Bool) *seen {
	got := newSeen()
	for last := false; !last; {
		last = over.Load()
		if err := s.Counts(got.count); err != nil {
			t.Error(err)
		}
		if err := s.Read(got); err != nil {
			t.Error(err)
		}
		for _, f := range got.files {
			if err := s.Forget(f); err != nil {
				t.Error(err)
			}
		}
	}
	return got
}
