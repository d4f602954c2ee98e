package fusetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("%s: %q, %v, want %q", path, b, err, text)
	}
}

// TestPassesThrough changes files through the mount, in each way that the server knows, and
// looks at them on its side.
func TestPassesThrough(t *testing.T) {
	s := Mount(t, Options{})
	write(t, s.Path("a"), "first")
	want(t, s.Behind("a"), "first")
	write(t, s.Path("a"), "2nd") // truncates
	want(t, s.Behind("a"), "2nd")
	write(t, s.Path("b"), "other")
	then := time.Unix(1e9, 123456789)
	if err := errors.Join(os.Rename(s.Path("b"), s.Path("a")), os.Chtimes(s.Path("a"), then, then), os.Chmod(s.Path("a"), 0o751)); err != nil {
		t.Fatal(err)
	}
	want(t, s.Path("a"), "other")
	if info, err := os.Stat(s.Behind("a")); err != nil || !info.ModTime().Equal(then) || info.Mode().Perm() != 0o751 {
		t.Errorf("%v, %v", info, err)
	}
	if names, err := os.ReadDir(s.Dir); err != nil || len(names) != 1 || names[0].Name() != "a" {
		t.Errorf("%v, %v", names, err)
	}
	if err := os.Remove(s.Path("a")); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(s.Backing); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := os.Stat(s.Path("a")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestTransfers wants the bytes of a file that takes many requests, a mapping that is written
// to, and a hole.
func TestTransfers(t *testing.T) {
	s := Mount(t, Options{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	write(t, s.Path("a"), string(content))
	want(t, s.Path("a"), string(content))
	f, err := os.OpenFile(s.Path("a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, len(content), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m, content) {
		t.Error("the mapping has other content")
	}
	copy(m[5000:], "written")
	copy(content[5000:], "written")
	if err := errors.Join(syscall.Munmap(m), f.Sync()); err != nil {
		t.Fatal(err)
	}
	want(t, s.Behind("a"), string(content))
	const keep, hole = 1, 2 // FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
	if err := syscall.Fallocate(int(f.Fd()), keep|hole, 8192, 4096); err != nil {
		t.Fatal(err)
	}
	clear(content[8192:12288])
	want(t, s.Path("a"), string(content))
}

// TestCaches changes a file on the server's side, and looks at it through the mount.
func TestCaches(t *testing.T) {
	for _, c := range []struct {
		name          string
		options       Options
		size, content string // what is seen then: the old or the new
	}{
		{"none", Options{}, "new", "new"},
		{"attributes", Options{Attributes: time.Hour, Entries: time.Hour}, "old", "new"},
		{"all", Options{Attributes: time.Hour, Entries: time.Hour, KeepContent: true}, "old", "old"},
		{"content", Options{KeepContent: true, FollowTimes: true}, "new", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Mount(t, c.options)
			texts, sizes := map[string]string{"old": "some old text", "new": "new text"}, map[string]int64{"old": 13, "new": 8}
			write(t, s.Behind("a"), texts["old"])
			want(t, s.Path("a"), texts["old"])
			if _, err := os.Stat(s.Path("a")); err != nil { // after a read, of which the kernel does not know the time
				t.Fatal(err)
			}
			write(t, s.Behind("a"), texts["new"])
			info, err := os.Stat(s.Path("a"))
			if err != nil || info.Size() != sizes[c.size] {
				t.Errorf("%v, %v, want the %s size", info.Size(), err, c.size)
			}
			b, err := os.ReadFile(s.Path("a"))
			if text := texts[c.content]; err != nil || !strings.HasPrefix(string(b), text) { // of the old size
				t.Errorf("%q, %v, want %q", b, err, text)
			}
			s.Forget("a")
			want(t, s.Path("a"), texts["new"])
		})
	}
}

// TestNode wants a file that takes the place of another one on the server's side to be the same
// for the kernel, as with sshfs.
func TestNode(t *testing.T) {
	s := Mount(t, Options{})
	inode := func() uint64 {
		var st syscall.Stat_t
		if err := syscall.Stat(s.Path("a"), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	write(t, s.Behind("a"), "one")
	first := inode()
	write(t, s.Behind("b"), "two")
	if err := os.Rename(s.Behind("b"), s.Behind("a")); err != nil {
		t.Fatal(err)
	}
	want(t, s.Path("a"), "two")
	if second := inode(); second != first {
		t.Errorf("inode %d, before %d", second, first)
	}
}

// TestSilence has a process wait for a server that does not answer, until the mount is taken
// away.
func TestSilence(t *testing.T) {
	for _, silence := range []func(*Server){(*Server).SilenceReads, (*Server).Silence} {
		s := Mount(t, SSHFS)
		write(t, s.Behind("a"), "text")
		silence(s)
		cmd := exec.Command("sh", "-c", `exec cat "$1"`, "sh", s.Path("a"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, "the wait for the server", func() bool { return sleeps(cmd.Process.Pid, "cat") })
		_ = cmd.Process.Kill()
		s.Close()
		if err := cmd.Wait(); err == nil {
			t.Error("cat has read what nobody said")
		}
	}
}

// sleeps reports whether a process has this name and waits: proc_pid_stat(5).
func sleeps(pid int, name string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, named := strings.Cut(string(b), " ("+name+") ")
	return named && strings.ContainsAny(state[:1], "SD")
}

// TestDie wants errors from a mount whose server died, and the mount gone when it is closed.
func TestDie(t *testing.T) {
	s := Mount(t, SSHFS)
	write(t, s.Behind("a"), "text")
	s.Die()
	if _, err := os.ReadFile(s.Path("a")); !errors.Is(err, syscall.ENOTCONN) {
		t.Error(err)
	}
	s.Close()
	if mounted(t, s.Dir) {
		t.Error("it is still mounted")
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(" "+dir+" "))
}

// victimVar makes a process of TestKilled, which mounts and waits.
const victimVar = "HALLMARK_FUSE_VICTIM"

// TestKilled kills a process that has mounted a file system, which does not answer and which
// children wait for, and wants nothing to be left.
func TestKilled(t *testing.T) {
	if os.Getenv(victimVar) != "" {
		s := Mount(t, SSHFS)
		write(t, s.Behind("a"), "#!/bin/sh\n")
		if err := os.Chmod(s.Behind("a"), 0o755); err != nil {
			t.Fatal(err)
		}
		s.Silence()
		go exec.Command(s.Path("a")).Run() // this process waits for its execve, and its child has the pipe
		fmt.Printf("mounted %s\n", s.Dir)
		select {}
	}
	testenv.Root(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), victimVar+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), "mounted ")
		if !filepath.IsAbs(dir) {
			dir = ""
		}
	}
	if dir == "" || !mounted(t, dir) {
		t.Errorf("%q is not mounted", dir)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	testenv.Await(t, "the end of the mount", func() bool { return !mounted(t, dir) })
}
