package inventory

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// TestLookAtDisk wants what became of the files of running programs: nothing, gone,
// another one in their place, the same one again, a directory.
func TestLookAtDisk(t *testing.T) {
	testenv.Root(t)
	one, other := proctest.BuildC(t), proctest.BuildC(t, "-O3", "-Wl,--build-id=0x00112233445566778899aabbccddeeff")
	want := map[int]Disk{}
	_, pid := proctest.RunCopy(t, one, "3600000")
	want[pid] = DiskSame

	path, pid := proctest.RunCopy(t, one, "3600000")
	want[pid] = DiskGone
	proctest.AwaitProgram(t, pid, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	path, pid = proctest.RunCopy(t, one, "3600000")
	want[pid] = DiskOther
	proctest.AwaitProgram(t, pid, path)
	proctest.CopyTo(t, other, path)

	path, pid = proctest.RunCopy(t, one, "3600000")
	want[pid] = DiskSame // another inode of the same build
	proctest.AwaitProgram(t, pid, path)
	proctest.CopyTo(t, one, path)

	path, pid = proctest.RunCopy(t, one, "3600000")
	want[pid] = DiskOther
	proctest.AwaitProgram(t, pid, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil { // nobody may wait for it
		t.Fatal(err)
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
			if !mine {
				continue
			}
			found++
			if p.Program < 0 {
				t.Errorf("process %d has no program", p.PID)
				continue
			}
			c := p.Code[p.Program]
			if c.Disk != disk {
				t.Errorf("process %d, %s: %v, want %v", p.PID, c.Path, c.Disk, disk)
			}
			if c.ID != proctest.FileID(t, one) {
				t.Errorf("process %d runs %v, want %v", p.PID, c.ID, proctest.FileID(t, one))
			}
		}
		if found != len(want) {
			t.Errorf("%d of %d processes found", found, len(want))
		}
	})
}

// TestLookAtDiskInNamespace wants the file that the process sees, and not the one that is
// at the same path here: another one, behind a link that leads out of its root directory.
func TestLookAtDiskInNamespace(t *testing.T) {
	testenv.Root(t)
	program := proctest.BuildC(t, "-static")
	root := t.TempDir()
	proctest.CopyTo(t, program, filepath.Join(root, "prog"))
	cmd := exec.Command("unshare", "--mount", "--root="+root, "/prog", "3600000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	look := func() (Disk, bool) {
		inv, err := Take(Options{PIDs: []int{cmd.Process.Pid}})
		if err != nil {
			t.Fatal(err)
		}
		inv.LookAtDisk()
		if len(inv.Processes) != 1 || inv.Processes[0].Program < 0 {
			return 0, false
		}
		p := inv.Processes[0]
		return p.Code[p.Program].Disk, p.Code[p.Program].ID == proctest.FileID(t, program)
	}
	var disk Disk
	testenv.Await(t, "the program", func() (runs bool) {
		disk, runs = look()
		return runs
	})
	if disk != DiskSame {
		t.Fatalf("%v, want the same", disk)
	}
	if err := os.Remove(filepath.Join(root, "prog")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(root, "prog")); err != nil {
		t.Fatal(err)
	}
	if disk, _ := look(); disk != DiskGone {
		t.Fatalf("%v behind a link that leads nowhere in there, want gone", disk)
	}
}
