package cli

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestGeneratedMap takes the map of a process that was recorded, and no other's that has
// its number.
func TestGeneratedMap(t *testing.T) {
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	for _, test := range []struct {
		what         string
		pid          int
		written      time.Time
		began, ended time.Time
		want         bool
	}{
		{"it runs", os.Getpid(), now, hours(-2), hours(1), true},
		{"it runs, and started later", os.Getpid(), now, hours(-2), hours(-1), false},
		{"its map is older", os.Getpid(), hours(-3), hours(-2), hours(1), false},
		{"it has ended", child.Process.Pid, hours(-1), hours(-2), now, true},
		{"it has ended, and its map is older", child.Process.Pid, hours(-3), hours(-2), now, false},
		{"it has ended, and its map is newer", child.Process.Pid, hours(1), hours(-2), now, false},
	} {
		name := fmt.Sprintf("/tmp/perf-%d.map", test.pid)
		if err := os.WriteFile(name, []byte("1000 100 name\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(name) })
		if err := os.Chtimes(name, test.written, test.written); err != nil {
			t.Fatal(err)
		}
		m := generatedMap(test.pid, test.began, test.ended)
		if (m != nil) != test.want {
			t.Errorf("%s: a map %v, want %v", test.what, m != nil, test.want)
		}
		if m != nil && len(m.Lookup(0x1010).Frames) != 1 {
			t.Errorf("%s: no name", test.what)
		}
	}
}
