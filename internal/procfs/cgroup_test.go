package procfs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/testenv"
)

func TestContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for cgroup, want := range map[string]string{
		"/docker/" + id:                         id,
		"/system.slice/docker-" + id + ".scope": id,
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope": id,
		"/machine.slice/libpod-" + id + ".scope/container":                    id,
		"/user.slice/user-0.slice/session-1.scope":                            "",
		"/docker/" + id[:63]: "",
		"":                   "",
	} {
		if got := Container(cgroup); got != want {
			t.Errorf("container(%q) = %q, want %q", cgroup, got, want)
		}
	}
}

// TestCgroupPath asks for the cgroup of this process by its inode number, and
// compares with what /proc says of it.
func TestCgroupPath(t *testing.T) {
	c := NewCgroups(UnifiedRoots)
	testenv.Need(t, c.root != "", "a mounted cgroup v2")
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	own := ""
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = path
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(c.root+own, &st); err != nil {
		t.Skipf("own cgroup %s is not visible: %v", own, err)
	}
	if got := c.Path(st.Ino); got != own {
		t.Errorf("path(%d) = %q, want %q", st.Ino, got, own)
	}
	c.Learn(1<<60, "/gone")
	if got := c.Path(1 << 60); got != "/gone" {
		t.Errorf("a learned cgroup is %q", got)
	}
}

// TestCgroupOfLater asks for a cgroup that was made when others were known already,
// as root can.
func TestCgroupOfLater(t *testing.T) {
	testenv.Root(t)
	c := NewCgroups(UnifiedRoots)
	testenv.Need(t, c.root != "", "a mounted cgroup v2")
	for _, name := range []string{"hallmark-test-1", "hallmark-test-2"} {
		dir := filepath.Join(c.root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("cgroups cannot be made here: %v", err)
		}
		defer os.Remove(dir)
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		if got := c.Path(st.Ino); got != "/"+name {
			t.Errorf("path(%d) = %q, want %q", st.Ino, got, "/"+name)
		}
	}
	if got := c.Path(1 << 40); got != "" {
		t.Errorf("a cgroup that does not exist is %q", got)
	}
}
