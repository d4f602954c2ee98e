package inventory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// TestDirEntries has processes map files of one path, and wants to know which of them are
// the same entry: by their directory, whoever's mounts lead there.
func TestDirEntries(t *testing.T) {
	testenv.Root(t)
	one, other := proctest.BuildC(t), proctest.BuildC(t, "-O3", "-Wl,--build-id=0x00112233445566778899aabbccddeeff")
	dir, hidden := t.TempDir(), t.TempDir()
	prog := filepath.Join(dir, "prog")
	proctest.CopyTo(t, one, prog)
	proctest.CopyTo(t, other, filepath.Join(hidden, "prog"))
	// inside starts the program with mounts of its own.
	inside := func(mount string) int {
		return proctest.Start(t, "unshare", "--mount", "sh", "-c", mount+` && exec "$0" 3600000`, prog, hidden)
	}
	plain := proctest.Start(t, prog, "3600000")
	proctest.AwaitProgram(t, plain, prog)
	proctest.CopyTo(t, other, prog) // an upgrade
	same := inside("true")
	awaitExec(t, same, prog)
	otherDirectory := inside(`mount --bind "$1" "${0%/*}"`)
	otherFile := inside(`mount --bind "$1/prog" "$0"`)
	for _, pid := range []int{otherDirectory, otherFile} {
		awaitExec(t, pid, prog)
	}
	code := programsOf(t, plain, same, otherDirectory, otherFile)
	if code[0].ID == code[1].ID {
		t.Fatal("both are the same build")
	}
	here := DirEntryHere(prog)
	for i, want := range []struct {
		what      string
		elsewhere bool
		disk      Disk
	}{
		{"this file", false, DiskOther},
		{"this file, with mounts of its own", false, DiskSame},
		{"another directory", true, DiskSame},
		{"another file in this directory", true, DiskSame},
	} {
		c := code[i]
		if c.Path != prog || c.Elsewhere != want.elsewhere || (c.DirEntry == here) == want.elsewhere || c.DirEntry == (DirEntry{}) || c.Disk != want.disk {
			t.Errorf("%s is %+v, want it elsewhere: %v, %v; here is %+v", want.what, c, want.elsewhere, want.disk, here)
		}
	}
	if code[2].DirEntry == code[3].DirEntry {
		t.Error("another directory and another file are one entry")
	}
}

// TestDirEntryGone wants the entry of a file whose directory was removed to be that path.
func TestDirEntryGone(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	prog := filepath.Join(dir, "prog")
	proctest.CopyTo(t, proctest.BuildC(t), prog)
	pid := proctest.Start(t, prog, "3600000")
	proctest.AwaitProgram(t, pid, prog)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c := programsOf(t, pid)[0]
	if c.Disk != DiskGone || c.Elsewhere || c.DirEntry != DirEntryHere(prog) || c.DirEntry == DirEntryHere(prog+"2") {
		t.Errorf("got %+v, want it to be deleted, and where %+v is", c, DirEntryHere(prog))
	}
}

// awaitExec waits until a process that starts as another one runs its program.
func awaitExec(t *testing.T, pid int, path string) {
	t.Helper()
	testenv.Await(t, "the execution of "+path, func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && exe == path
	})
	proctest.AwaitProgram(t, pid, path)
}

// programsOf returns what processes have executed.
func programsOf(t *testing.T, pids ...int) []Code {
	t.Helper()
	inv, err := Take(Options{PIDs: pids})
	if err != nil {
		t.Fatal(err)
	}
	inv.LookAtDisk()
	byPID := map[int]Code{}
	for _, p := range inv.Processes {
		if p.Program < 0 {
			t.Fatalf("process %d has no program", p.PID)
		}
		byPID[p.PID] = p.Code[p.Program]
	}
	var list []Code
	for _, pid := range pids {
		list = append(list, byPID[pid])
	}
	return list
}

// TestExecutedSince has a process execute another program after its code was looked at.
func TestExecutedSince(t *testing.T) {
	file, fifo := proctest.BuildC(t), filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pid := proctest.Start(t, "sh", "-c", `read line <"$1"; exec "$0" 3600000`, file, fifo)
	proctest.AwaitMappings(t, []int{pid})
	inv, err := Take(Options{PIDs: []int{pid}})
	if err != nil || len(inv.Processes) != 1 {
		t.Fatalf("got %+v, %v", inv, err)
	}
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	awaitExec(t, pid, file)
	inv.LookAtDisk()
	if p := inv.Processes[0]; p.Ended || p.Program < 0 || p.Code[p.Program].ID != proctest.FileID(t, file) || p.Code[p.Program].Disk != DiskSame {
		t.Errorf("got %+v, want it to run %s", p, file)
	}
}

// TestEnded looks at the files of a process that has ended after its code was looked at.
func TestEnded(t *testing.T) {
	cmd := exec.Command("sleep", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := cmd.Process.Pid
	proctest.AwaitMappings(t, []int{pid})
	inv, err := Take(Options{PIDs: []int{pid}})
	if err != nil || len(inv.Processes) != 1 {
		t.Fatalf("got %+v, %v", inv, err)
	}
	inv.LookAtDisk()
	if p := inv.Processes[0]; p.Ended || p.Program < 0 {
		t.Errorf("%+v has ended, or has no program", p)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "its end", func() bool { return proctest.FirstEnded(pid) }) // nobody waits for it
	inv.LookAtDisk()
	if p := inv.Processes[0]; !p.Ended || p.Program >= 0 {
		t.Errorf("%+v has not ended", p)
	}
}
