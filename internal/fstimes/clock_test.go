package fstimes

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDelay wants the delay to be more than the times of files are seen behind.
func TestDelay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	most := time.Duration(0)
	for range 100 {
		before := time.Now()
		if err := os.WriteFile(name, []byte("changed"), 0o644); err != nil {
			t.Fatal(err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		if st.Ctim.Nsec == 0 {
			t.Skip("a file system whose times are in seconds")
		}
		most = max(most, before.Sub(time.Unix(st.Ctim.Unix())))
		time.Sleep(time.Millisecond) // another place in the step
	}
	t.Logf("times are up to %v behind, of %v", most, Delay())
	if most >= Delay() {
		t.Errorf("times of files are %v behind, more than %v", most, Delay())
	}
}

// TestDelayOf wants two steps to be allowed at any rate, and a CPU that is late.
func TestDelayOf(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{
		time.Millisecond: minDelay, 4 * time.Millisecond: 32 * time.Millisecond, longStep: 80 * time.Millisecond,
	} {
		if got := delayOf(step); got != want || got < 2*step {
			t.Errorf("%v at steps of %v, want %v", got, step, want)
		}
	}
}
