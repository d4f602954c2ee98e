package inventory

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/reason"
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

// awaitStatic waits until a process has executed a program that is linked statically.
func awaitStatic(t *testing.T, pid int, program string) {
	t.Helper()
	testenv.Await(t, "the execution of "+program, func() bool {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		return err == nil && slices.ContainsFunc(strings.Split(string(maps), "\n"), func(line string) bool {
			words := strings.Fields(line)
			return len(words) > 5 && words[1] == "r-xp" && words[5] == program
		})
	})
}

// TestOtherRootNow wants nothing to be read through a process whose root directory is another one than
// it was when its paths were noted, and this process's own paths to be read through no other one.
func TestOtherRootNow(t *testing.T) {
	testenv.Root(t)
	program, root := proctest.BuildC(t, "-static"), t.TempDir()
	proctest.CopyTo(t, program, filepath.Join(root, "prog"))
	pid := proctest.Start(t, "chroot", root, "/prog", "3600000")
	awaitStatic(t, pid, filepath.Join(root, "prog"))
	here, err := reach.TreeOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	there, err := reach.TreeOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		tree  reach.Tree
		disk  Disk
		isOne bool // an entry
	}{{"its root directory", there, DiskSame, true}, {"another one", here, DiskUnknown, false}} {
		f := &onDisk{tree: c.tree, path: "/prog", pids: []int{pid}}
		if now := f.read(t.Context()); now.disk != c.disk || (now.entry != DirEntry{}) != c.isOne {
			t.Errorf("%s: %v, %+v, want %v", c.what, now.disk, now.entry, c.disk)
		}
		far, err := readFar.Ask("a test", farPath{c.tree, pid, "/prog"})
		if isRead := err == nil && far.Disk != DiskUnknown; isRead != c.isOne {
			t.Errorf("%s, by a helper: %+v, %v", c.what, far, err)
		}
	}
}

// TestUsersAnswerForThemselves has a process of another user with the same program, whose file system is
// said not to answer: nothing of it is to be reported of root's process, here and in another tree.
func TestUsersAnswerForThemselves(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "setpriv")
	program := proctest.BuildC(t, "-static")
	for dir := filepath.Dir(program); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for what, in := range map[string][]string{"here": {"env"}, "in another tree": {"unshare", "--mount"}} {
		start := func(args ...string) int {
			args = append(args, program, "3600000")
			pid := proctest.Start(t, args...)
			awaitStatic(t, pid, program)
			return pid
		}
		root := start(in...)
		other := start("nsenter", "--target", strconv.Itoa(root), "--mount", "setpriv", "--reuid", "65534", "--clear-groups")
		inv, err := Take(Options{PIDs: []int{root, other}})
		if err != nil {
			t.Fatal(err)
		}
		if len(inv.Processes) != 2 {
			t.Fatalf("%s: got %+v", what, inv)
		}
		for i := range inv.Processes {
			for j := range inv.Processes[i].Code {
				if inv.Processes[i].PID == other {
					inv.Processes[i].Code[j].Reason = reason.FileUnresponsive
				}
			}
		}
		inv.LookAtDisk()
		for _, p := range inv.Processes {
			want := DiskSame
			if p.PID == other {
				want = DiskUnknown
			}
			if p.Program < 0 || p.Code[p.Program].Disk != want {
				t.Errorf("%s: process %d: %+v, want %v", what, p.PID, p, want)
			}
		}
	}
}

// TestNamesLikeDeletedOnes runs programs of which one was deleted, and one has a name like a deleted one.
func TestNamesLikeDeletedOnes(t *testing.T) {
	program, err := os.ReadFile(proctest.BuildC(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, pids := t.TempDir(), map[string]int{}
	for _, name := range []string{"gone", "named (deleted)"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, program, 0o700); err != nil {
			t.Fatal(err)
		}
		pids[name] = proctest.Start(t, path, "3600000")
		awaitExec(t, pids[name], path)
	}
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	eachSource(t, func(t *testing.T, source Source) {
		inv, err := Take(Options{PIDs: slices.Collect(maps.Values(pids)), Source: source})
		if err != nil {
			t.Fatal(err)
		}
		inv.LookAtDisk()
		for name, want := range map[string]Disk{"gone": DiskGone, "named (deleted)": DiskSame} {
			i := slices.IndexFunc(inv.Processes, func(p Process) bool { return p.PID == pids[name] })
			if i < 0 || inv.Processes[i].Program < 0 {
				t.Errorf("the program of %s is not known: %+v", name, inv.Processes)
				continue
			}
			if c := inv.Processes[i].Code[inv.Processes[i].Program]; c.Disk != want || c.Path != filepath.Join(dir, name) {
				t.Errorf("%s is %s, %v, want %v", name, c.Path, c.Disk, want)
			}
		}
	})
}
