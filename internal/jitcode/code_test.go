package jitcode

import (
	"fmt"
	"os"
	"testing"
	"time"

	"hallmark/reason"
)

// TestNames has this process write a map. Its code has names as long as the process is there, and
// afterwards if they were read before.
func TestNames(t *testing.T) {
	name := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	if err := os.WriteFile(name, []byte("1000 10 made\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	// The clock of files ticks: this one could be older than the process.
	later := time.Now().Add(time.Second)
	if err := os.Chtimes(name, later, later); err != nil {
		t.Fatal(err)
	}
	started := func() (time.Time, error) { return time.Time{}, nil }
	maps := NewMaps(1)
	for test, c := range map[string]struct {
		do    func(*Code)
		named bool
	}{
		"runs":                   {func(*Code) {}, true},
		"runs, in kept room":     {(*Code).See, true},
		"ended and was read":     {func(c *Code) { c.See(); c.Read(); c.Release() }, true},
		"ended and was not read": {func(c *Code) { c.Release(); c.See() }, false},
	} {
		code := maps.Of(os.Getpid(), started)
		c.do(code)
		frame := code.Frame(0x1008)
		if frame.Reason != reason.Anonymous || (len(frame.Symbols) == 1 && frame.Symbols[0].Func == "made") != c.named {
			t.Errorf("%s: %+v", test, frame)
		}
		if code.Release(); maps.places != 0 {
			t.Errorf("%s: %d places are kept", test, maps.places)
		}
	}
}
