package perfmap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// ours is the place of a process of this user.
func ours(name string, started time.Time) *MapFile {
	return &MapFile{outside: name, started: started, owner: os.Geteuid()}
}

// TestWhoseMap refuses a map that was there before the process, and one that is a
// link: /tmp is anybody's.
func TestWhoseMap(t *testing.T) {
	started := time.Now().Add(-time.Second)
	name := filepath.Join(t.TempDir(), "perf-1.map")
	if err := os.WriteFile(name, []byte("1000 10 f\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := ours(name, started).Open(); err != nil {
		t.Errorf("a map that is younger than the process: %v", err)
	} else {
		f.Close()
	}
	link := filepath.Join(t.TempDir(), "perf-2.map")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if f, err := ours(link, started).Open(); err == nil {
		f.Close()
		t.Error("a link was followed")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if f, err := ours(name, started).Open(); err == nil {
		f.Close()
		t.Error("a map that is older than the process was taken")
	}
}

// TestForeignMap has what another user, or no process at all, left there.
func TestForeignMap(t *testing.T) {
	name := filepath.Join(t.TempDir(), "perf-1.map")
	for what, write := range map[string]func() error{
		"a pipe": func() error { testenv.Trap(t, name); return nil },
		"the file of another user": func() error {
			testenv.Root(t)
			return errors.Join(os.WriteFile(name, nil, 0o644), os.Chown(name, 65534, 65534))
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if f, err := ours(name, time.Time{}).Open(); err == nil {
			f.Close()
			t.Errorf("%s was taken", what)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartTime compares with the time at which a process was really started.
func TestStartTime(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	const tolerance = 30 * time.Millisecond // the kernel counts in 10 ms
	got, err := StartTime(cmd.Process.Pid)
	if err != nil || got.Before(before.Add(-tolerance)) || got.After(after.Add(tolerance)) {
		t.Errorf("started between %v and %v, /proc gives %v, %v", before, after, got, err)
	}
}

// TestKeptPlace lets processes write maps and end. Each has a /tmp that only it
// can see and counts itself as the first process: a map is still there when it was
// written before its place was kept, and afterwards, and when it has no name any
// more; and it may belong to another user.
func TestKeptPlace(t *testing.T) {
	testenv.Root(t)
	unshare := testenv.Tool(t, "unshare")
	for _, test := range []struct{ name, before, after string }{
		{"before", "echo map > /tmp/perf-1.map", ":"},
		{"afterwards", ":", "echo map > /tmp/perf-1.map"},
		{"grown", "echo -n m > /tmp/perf-1.map", "echo ap >> /tmp/perf-1.map"},
		{"without a name", "echo map > /tmp/perf-1.map", "rm /tmp/perf-1.map"},
	} {
		t.Run(test.name, func(t *testing.T) {
			script := "mount -t tmpfs none /tmp; chmod 1777 /tmp; exec setpriv --reuid=65534 --clear-groups sh -c '" +
				test.before + "; echo ready; read go; " + test.after + "'"
			p := newSpeaker(t, unshare, "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script)
			p.expect(t, "ready")
			place, err := Keep(p.child(t), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer place.Close()
			p.finish(t)
			f, err := place.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if text, err := io.ReadAll(f); err != nil || string(text) != "map\n" {
				t.Errorf("the map says %q, %v", text, err)
			}
		})
	}
}

// TestMountedMap has processes with a /tmp of their own, in which something lies where the map
// would be that they cannot have written: a file of the kernel that counts as root's, and a file of
// root's, mounted or in a directory that is mounted.
func TestMountedMap(t *testing.T) {
	testenv.Root(t)
	unshare := testenv.Tool(t, "unshare")
	for name, prepare := range map[string]string{
		"kernel messages":   "mount -t tmpfs none /tmp; touch /tmp/perf-1.map; mount --bind /proc/kmsg /tmp/perf-1.map",
		"file of root":      "mount -t tmpfs none /tmp; touch /tmp/perf-1.map /tmp/of-root; mount --bind /tmp/of-root /tmp/perf-1.map",
		"directory of root": "mount -t tmpfs none /tmp; chmod 755 /tmp; touch /tmp/perf-1.map",
		"file of its own": "mount -t tmpfs none /tmp; touch /tmp/perf-1.map /tmp/own; chown 65534 /tmp/own /tmp/perf-1.map; " +
			"mount --bind /tmp/own /tmp/perf-1.map",
	} {
		t.Run(name, func(t *testing.T) {
			p := newSpeaker(t, unshare, "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
				"sleep 0.1; "+prepare+"; exec setpriv --reuid=65534 --clear-groups sh -c 'echo ready; read go; :'")
			defer p.finish(t)
			p.expect(t, "ready")
			place, err := Keep(p.child(t), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer place.Close()
			if place.dir == nil {
				t.Fatal("its /tmp was not kept")
			}
			if f, err := place.openInside(); err == nil {
				f.Close()
				t.Error("it was taken")
			}
		})
	}
}

// TestAnotherProcess has a process number that was given again.
func TestAnotherProcess(t *testing.T) {
	place, err := Keep(os.Getpid(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	if place.owner != -1 || place.dir != nil {
		t.Errorf("a process that started later is taken for it: %+v", place)
	}
}

// speaker is a program that waits for a line between two steps.
type speaker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newSpeaker(t *testing.T, args ...string) *speaker {
	t.Helper()
	p := &speaker{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *speaker) expect(t *testing.T, want string) {
	t.Helper()
	if line, err := p.out.ReadString('\n'); line != want+"\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

// child returns the number of the one child of the program.
func (p *speaker) child(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func (p *speaker) finish(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.in.Close(), p.cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}
