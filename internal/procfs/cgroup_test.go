package procfs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hallmark/internal/testenv"
)

// withGroups returns the root of a hierarchy that has these cgroups.
func withGroups(t *testing.T, groups ...string) string {
	defer syscall.Umask(syscall.Umask(0o022))
	root := t.TempDir()
	for _, g := range groups {
		if err := os.MkdirAll(filepath.Join(root, g), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestContainer(t *testing.T) {
	id, inner := strings.Repeat("0123456789abcdef", 4), strings.Repeat("f", 64)
	for cgroup, want := range map[string]string{
		"/docker/" + id:                         id,
		"/system.slice/docker-" + id + ".scope": id,
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope":                   id,
		"/kubepods/burstable/pod0a1b/" + id:                                                     id,
		"/machine.slice/libpod-" + id + ".scope/container":                                      id,
		"/libpod_parent/libpod-" + id:                                                           id,
		"/libpod_parent/" + inner + "/libpod-" + id:                                             id,
		"/docker/" + id + "/docker/" + inner:                                                    id,
		"/docker/" + id + "/kubepods/pod1/" + inner:                                             id,
		"/user.slice/user-0.slice/user@0.service/user.slice/libpod-" + id + ".scope/container":  id,
		"/machine.slice/machine-debian.scope/payload/system.slice/docker-" + id + ".scope/x/y/": id,
		"/user.slice/user-0.slice/session-1.scope":                                              "",
		"/../docker/" + id:   "",
		"/docker/" + id[:63]: "",
		"":                   "",
	} {
		if got := container(withGroups(t, cgroup), cgroup); got != want {
			t.Errorf("container(%q) = %q, want %q", cgroup, got, want)
		}
	}
	group := "/system.slice/docker-" + id + ".scope"
	if got := container("", group); got != "" {
		t.Errorf("without a hierarchy: %q", got)
	}
	if got := container(withGroups(t), group); got != "" {
		t.Errorf("nobody knows who made the group, and it is in %q", got)
	}
	if got := container(withGroups(t, "/system.slice"), group); got != id {
		t.Errorf("the container has just ended, and the group is in %q", got)
	}
}

// TestForgedContainer has a directory that another user may change, and a container in it or
// below it, which that user may have named.
func TestForgedContainer(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct{ theirs, below string }{
		{"/user.slice/user-1001.slice/user@1001.service", "/docker-" + id + ".scope"},
		{"/user.slice/user-1001.slice/user@1001.service", "/user.slice/libpod-" + id + ".scope/container"},
		{"/system.slice/delegated.service", "/a/b/" + id},
		{"/lxc.payload.guest", "/system.slice/docker-" + id + ".scope"},
		{"/docker", "/" + id},
		{"", "/docker/" + id},
	} {
		root := withGroups(t, test.theirs+test.below)
		theirs := filepath.Join(root, test.theirs)
		if err := os.Chmod(theirs, 0o777); err != nil {
			t.Fatal(err)
		}
		if got := container(root, test.theirs+test.below); got != "" {
			t.Errorf("anybody may change %s, and below it %s is in %q", test.theirs, test.below, got)
		}
		if os.Geteuid() != 0 {
			continue
		}
		const nobody = 65534
		if err := os.Chmod(theirs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(theirs, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if got := container(root, test.theirs+test.below); got != "" {
			t.Errorf("%s is another user's, and below it %s is in %q", test.theirs, test.below, got)
		}
	}
	// The true container is outside of what its root may change.
	outer := "/docker/" + strings.Repeat("e", 64)
	root := withGroups(t, outer+"/docker/"+id)
	if err := os.Chmod(filepath.Join(root, outer), 0o777); err != nil {
		t.Fatal(err)
	}
	if got := container(root, outer+"/docker/"+id); got != outer[len("/docker/"):] {
		t.Errorf("a container in a container is in %q", got)
	}
}

// TestHome learns the path of a cgroup twice.
func TestHome(t *testing.T) {
	id, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	c := NewCgroups(nil)
	c.root = withGroups(t, "/docker")
	for _, container := range []string{id, other, other} {
		c.Learn(7, "/docker/"+container)
		if path, got := c.Home(7); path != "/docker/"+container || got != container {
			t.Errorf("%q in %q, want %q", path, got, container)
		}
	}
	if path, got := c.Home(8); path != "" || got != "" {
		t.Errorf("an unknown cgroup is %q in %q", path, got)
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
