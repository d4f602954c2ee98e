package inventory

import (
	"strings"
	"testing"

	"hallmark/buildid"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// TestFindContested wants the code marked that claims a build ID of another build, and
// nothing said of copies, whatever way the inventory is taken in.
func TestFindContested(t *testing.T) {
	testenv.Root(t)
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	plain := proctest.BuildC(t)
	want := map[int]bool{proctest.Start(t, one, "3600000"): true, proctest.Start(t, two, "3600000"): true}
	path, pid := proctest.RunCopy(t, one, "3600000")
	proctest.AwaitProgram(t, pid, path)
	want[pid] = true
	for range 2 {
		path, pid := proctest.RunCopy(t, plain, "3600000")
		proctest.AwaitProgram(t, pid, path)
		want[pid] = false
	}
	eachSource(t, func(t *testing.T, s Source) {
		inv, err := Take(Options{Source: s})
		if err != nil {
			t.Fatal(err)
		}
		inv.FindContested()
		contents := map[buildid.Content]bool{}
		found := 0
		for _, p := range inv.Processes {
			contested, mine := want[p.PID]
			if !mine {
				continue
			}
			found++
			for _, c := range p.Code {
				is := contested && strings.HasSuffix(c.Path, "busy-c")
				if c.Contested != is || is && c.Content.IsZero() {
					t.Errorf("process %d, %s: contested %v, content %v", p.PID, c.Path, c.Contested, c.Content)
				}
				if is {
					contents[c.Content] = true
				}
			}
		}
		if found != len(want) || len(contents) != 2 {
			t.Errorf("%d processes, %d contents", found, len(contents))
		}
	})
}

// TestLookAtDiskOfOneID wants a program replaced that another build of its build ID has taken
// the place of, and the same where a copy has.
func TestLookAtDiskOfOneID(t *testing.T) {
	testenv.Root(t)
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	want := map[int]Disk{}
	for file, disk := range map[string]Disk{one: DiskSame, two: DiskOther} {
		path, pid := proctest.RunCopy(t, one, "3600000")
		proctest.AwaitProgram(t, pid, path)
		proctest.CopyTo(t, file, path)
		want[pid] = disk
	}
	eachSource(t, func(t *testing.T, s Source) {
		inv, err := Take(Options{Source: s})
		if err != nil {
			t.Fatal(err)
		}
		inv.LookAtDisk()
		found := 0
		for _, p := range inv.Processes {
			disk, mine := want[p.PID]
			if !mine || p.Program < 0 {
				continue
			}
			found++
			if c := p.Code[p.Program]; c.Disk != disk {
				t.Errorf("process %d, %s: %v, want %v", p.PID, c.Path, c.Disk, disk)
			}
		}
		if found != len(want) {
			t.Errorf("%d of %d processes found", found, len(want))
		}
	})
}
