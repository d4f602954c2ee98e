package inventory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// TestFindContestedInSnapshots has files in subvolumes of btrfs, which have one inode number and in /proc
// one device: another build of the same ID is marked, and copies are not.
func TestFindContestedInSnapshots(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "mkfs.btrfs")
	dir := t.TempDir()
	disk, at := filepath.Join(dir, "disk"), filepath.Join(dir, "btrfs")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(testenv.Tool(t, args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run("truncate", "-s", "200M", disk)
	run("mkfs.btrfs", "-q", disk)
	run("mkdir", at)
	out, err := exec.Command("mount", "-o", "loop", disk, at).CombinedOutput()
	testenv.Need(t, err == nil, fmt.Sprintf("btrfs on a loop device: %s", out))
	t.Cleanup(func() { run("umount", "-l", at) })
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	in := func(subvolume, name string) string { return filepath.Join(at, subvolume, name) }
	run("btrfs", "subvolume", "create", in("a", ""))
	run("cp", one, in("a", "forged"))
	run("cp", proctest.BuildC(t), in("a", "copied"))
	run("btrfs", "subvolume", "snapshot", in("a", ""), in("b", ""))
	run("cp", two, in("b", "forged")) // into the same inode
	want := map[int]bool{}
	for _, subvolume := range []string{"a", "b"} {
		for name, contested := range map[string]bool{"forged": true, "copied": false} {
			pid := proctest.Start(t, in(subvolume, name), "3600000")
			proctest.AwaitProgram(t, pid, in(subvolume, name))
			want[pid] = contested
		}
	}
	eachSource(t, func(t *testing.T, s Source) {
		inv, err := Take(Options{Source: s})
		if err != nil {
			t.Fatal(err)
		}
		inv.FindContested()
		files, found := map[codeFile]bool{}, 0
		for _, p := range inv.Processes {
			contested, mine := want[p.PID]
			if !mine {
				continue
			}
			found++
			for _, c := range p.Code {
				if !strings.HasPrefix(c.Path, at) {
					continue
				}
				if contested {
					file := c.file.value()
					files[codeFile{major: file.major, minor: file.minor, inode: file.inode}] = true
				}
				if c.Contested != contested || c.Content.IsZero() {
					t.Errorf("process %d, %s: contested %v, content %v", p.PID, c.Path, c.Contested, c.Content)
				}
			}
		}
		// Where the kernel's types say how, the iterator reports the devices of subvolumes.
		if found != len(want) || len(files) != 1 && (s == Query || s == Text) {
			t.Errorf("%d processes, %v: nothing is tested", found, files)
		}
	})
}

// TestPlaceIsLost wants a file that nobody could look at to be no other one of its numbers.
func TestPlaceIsLost(t *testing.T) {
	testenv.Root(t)
	pid := proctest.Start(t, "sleep", "3600")
	proctest.AwaitMappings(t, []int{pid})
	inv, err := Take(Options{PIDs: []int{pid, os.Getpid()}})
	if err != nil || len(inv.Processes) != 2 {
		t.Fatalf("got %+v, %v", inv, err)
	}
	var proc unix.Stat_t
	if err := unix.Stat("/proc", &proc); err != nil {
		t.Fatal(err)
	}
	noDisk := codeFile{major: unix.Major(proc.Dev), minor: unix.Minor(proc.Dev), inode: 7}
	claimed := map[buildid.ID]bool{}
	for i := range inv.Processes {
		for j := range inv.Processes[i].Code {
			c := &inv.Processes[i].Code[j]
			claimed[c.ID] = true
			c.file = noDisk.key()
			if j > 0 {
				c.End++ // and mapped no more
			}
		}
	}
	for i, keys := range inv.claimKeys(claimed) {
		for j, key := range keys {
			if key.file != inv.Processes[i].Code[j].file || key.isLost == (key.at != inode{}) || key.isLost != (j > 0) {
				t.Errorf("%s: %+v", inv.Processes[i].Code[j].Path, key)
			}
		}
	}
}
