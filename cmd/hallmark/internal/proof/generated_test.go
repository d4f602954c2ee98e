package proof

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
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
		m := (&perfMaps{began: test.began, ended: test.ended, left: maxPerfMaps}).of(test.pid)
		if (m != nil) != test.want {
			t.Errorf("%s: a map %v, want %v", test.what, m != nil, test.want)
		}
		if m != nil && len(m.Lookup(0x1010).Frames) != 1 {
			t.Errorf("%s: no name", test.what)
		}
	}
}

// TestNamesOfThisMachine names the code of this process where it was recorded here, and not
// where another machine was recorded, or one of the same name.
func TestNamesOfThisMachine(t *testing.T) {
	name := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	if err := os.WriteFile(name, []byte("7f0000001000 100 name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(name) })
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what   string
		change func(*perfdata.Info)
		want   bool
	}{
		{"nothing", func(*perfdata.Info) {}, true},
		{"host", func(i *perfdata.Info) { i.Hostname += "2" }, false},
		{"kernel", func(i *perfdata.Info) { i.OSRelease += "2" }, false},
		{"host without a name", func(i *perfdata.Info) { i.Hostname = "" }, false},
	} {
		b := profile.NewBuilder(1)
		code := profile.Frame{Reason: reason.Anonymous, Addr: 0x7f0000001010}
		b.Count(b.Stack([]*pprof.Location{b.Location(&code)}, profile.Walk{}), b.Owner(&profile.Labels{Process: "p", PID: os.Getpid(), TID: os.Getpid()}), 1, 1)
		p, info := b.Profile(), thisMachine(t)
		info.FirstSample = uint64(now.Nano())
		info.LastSample = info.FirstSample
		test.change(info)
		NameGenerated(p, info, time.Now())
		if named := len(p.Sample[0].Location[0].Line) > 0; named != test.want {
			t.Errorf("%s: named %v, want %v", test.what, named, test.want)
		}
	}
}
