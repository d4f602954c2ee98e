package bpf

import (
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"testing"

	"hallmark/internal/testenv"
)

// newTestStackmap loads the programs, where that is possible.
func newTestStackmap(t *testing.T, o StackmapOptions) *Stackmap {
	t.Helper()
	testenv.Root(t)
	s, err := NewStackmap(o)
	testenv.Need(t, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// taken samples this thread while it spins, and returns what was counted.
func taken(t *testing.T, s *Stackmap) []StackmapSample {
	t.Helper()
	spinSampled(t, s.Attach)
	var samples []StackmapSample
	if err := s.Take(func(sample StackmapSample) { samples = append(samples, sample) }); err != nil {
		t.Fatal(err)
	}
	return samples
}

// TestStackmapOfGo samples this program, whose build ID the kernel does not see:
// each frame must have the status IP, and some of them an address in spin. Everything
// that was sampled must be counted or lost.
func TestStackmapOfGo(t *testing.T) {
	if hasLibraries(t) {
		t.Skip("this test program is linked with C libraries, as with -race: it is run on other kernels without")
	}
	s := newTestStackmap(t, StackmapOptions{})
	var all, spinning uint64
	for range 3 { // both sides of the maps
		for _, sample := range taken(t, s) {
			all += sample.Samples
			if sample.Task.PID != uint32(os.Getpid()) {
				t.Errorf("samples are of %+v", sample.Task)
			}
			if inSpin(t, sample.User) {
				spinning += sample.Samples
			}
		}
	}
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if spinning == 0 || all+stats.Lost() != stats.Samples {
		t.Errorf("%d samples, %d of them in spin: %+v", all, spinning, stats)
	}
}

// hasLibraries reports whether this program was linked by the system's linker, with
// files whose build IDs the kernel sees.
func hasLibraries(t *testing.T) bool {
	t.Helper()
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	return len(libraries) > 0
}

// inSpin reports whether one of the frames of this program is in spin.
func inSpin(t *testing.T, frames []StackmapFrame) bool {
	t.Helper()
	in := false
	for _, f := range frames {
		if f.Status != StatusIP {
			t.Fatalf("the status of a frame of a Go program is %d", f.Status)
		}
		fn := runtime.FuncForPC(uintptr(f.At))
		in = in || fn != nil && fn.Entry() == reflect.ValueOf(spin).Pointer()
	}
	return in
}

// TestStackmapKernelFrames wants them when they are wanted, as addresses of the
// kernel.
func TestStackmapKernelFrames(t *testing.T) {
	for _, userOnly := range []bool{false, true} {
		s := newTestStackmap(t, StackmapOptions{UserOnly: userOnly})
		kernel := 0
		for _, sample := range taken(t, s) {
			kernel += len(sample.Kernel)
			for _, ip := range sample.Kernel {
				if ip>>63 == 0 {
					t.Errorf("a frame of the kernel is at %#x", ip)
				}
			}
		}
		if userOnly && kernel > 0 {
			t.Errorf("%d frames of the kernel", kernel)
		}
		if !userOnly {
			t.Log(kernel, "frames of the kernel")
		}
	}
}

// TestStackmapCollisions gives the map of stacks two places only, and wants what
// finds no place counted as lost, and everything else delivered.
func TestStackmapCollisions(t *testing.T) {
	s := newTestStackmap(t, StackmapOptions{Stacks: 2})
	var all uint64
	for _, sample := range taken(t, s) {
		all += sample.Samples
	}
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if stats.Collided+stats.NoRoom == 0 || all+stats.Lost() != stats.Samples || all == 0 {
		t.Errorf("%d samples delivered: %+v", all, stats)
	}
}
