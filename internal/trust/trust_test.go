package trust

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// nobody is a user who is not this one.
const nobody = 65534

// write makes a file with a mode, and an owner if that is not this user.
func write(t *testing.T, name string, mode os.FileMode, owner int) string {
	t.Helper()
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	give(t, name, mode, owner)
	return name
}

// mkdir is write for a directory.
func mkdir(t *testing.T, name string, mode os.FileMode, owner int) string {
	t.Helper()
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	give(t, name, mode, owner)
	return name
}

func give(t *testing.T, name string, mode os.FileMode, owner int) {
	t.Helper()
	if owner != os.Geteuid() {
		if err := os.Chown(name, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// link makes a symbolic link of a user.
func link(t *testing.T, target, name string, owner int) string {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
	if owner != os.Geteuid() {
		if err := os.Lchown(name, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

func level(t *testing.T, reached, path string) Level {
	t.Helper()
	f, err := os.Open(reached)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return LevelOf(f, path)
}

// ownTree returns a directory that only root can change, in a mount namespace of the test's
// thread. The test may mount what it likes there, and must not have parts that are tests
// themselves: those have other threads.
func ownTree(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	mountOn(t, "tmpfs", dir, 0, "mode=755")
	return dir
}

// mountOn mounts something until the test ends.
func mountOn(t *testing.T, kind, at string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount(kind, at, kind, flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// bind shows a tree in a second place, with flags of its own, until the test ends.
func bind(t *testing.T, from, at string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestPrivateDir asks for directories of this user, of others, and for links of both.
func TestPrivateDir(t *testing.T) {
	testenv.Root(t)
	top := t.TempDir()
	private := mkdir(t, filepath.Join(top, "private"), 0o755, 0)
	theirs := mkdir(t, filepath.Join(top, "theirs"), 0o755, nobody)
	open := mkdir(t, filepath.Join(top, "open"), 0o777, 0)
	sticky := mkdir(t, filepath.Join(top, "sticky"), 0o777|os.ModeSticky, 0)
	group := mkdir(t, filepath.Join(top, "group"), 0o775, 0)
	mkdir(t, filepath.Join(theirs, "mine"), 0o700, 0)
	mkdir(t, filepath.Join(sticky, "mine"), 0o700, 0)
	link(t, private, filepath.Join(sticky, "their-link"), nobody)
	link(t, private, filepath.Join(sticky, "my-link"), 0)
	link(t, "theirs/mine", filepath.Join(top, "through"), 0)
	link(t, "loop", filepath.Join(top, "loop"), 0)
	for _, c := range []struct {
		path string
		want bool
	}{
		{private, true},
		{filepath.Join(private, "not", "there", "yet"), true},
		{theirs, false},
		{filepath.Join(theirs, "mine"), false},
		{filepath.Join(theirs, "not-yet"), false},
		{open, false},
		{group, false},
		{sticky, true},
		{filepath.Join(sticky, "mine"), true},
		{filepath.Join(sticky, "my-link"), true},
		{filepath.Join(sticky, "their-link"), false},
		{filepath.Join(sticky, "their-link", "not-yet"), false},
		{filepath.Join(top, "through"), false},
		{top + "/through/../../private", false}, // through a directory of another user
		{filepath.Join(top, "loop"), false},
		{write(t, filepath.Join(private, "file"), 0o600, 0), false},
		{"private", false},
		{"", false},
	} {
		if got := PrivateDir(c.path); got != c.want {
			t.Errorf("PrivateDir(%q) = %v, want %v", c.path, got, c.want)
		}
	}
}

// TestOwnAndTrustedFiles has files of this user and of others.
func TestOwnAndTrustedFiles(t *testing.T) {
	dir := ownTree(t)
	plain := mkdir(t, filepath.Join(dir, "plain"), 0o755, 0)
	for _, c := range []struct {
		name    string
		mode    os.FileMode
		owner   int
		isOwn   bool
		trusted bool
	}{
		{"own", 0o644, 0, true, true},
		{"group", 0o664, 0, false, false},
		{"everybody", 0o646, 0, false, false},
		{"theirs", 0o644, nobody, false, false},
	} {
		f, err := os.Open(write(t, filepath.Join(plain, c.name), c.mode, c.owner))
		if err != nil {
			t.Fatal(err)
		}
		if OwnFile(f) != c.isOwn || TrustedFile(f) != c.trusted {
			t.Errorf("%s: own %v, trusted %v, want %v and %v", c.name, OwnFile(f), TrustedFile(f), c.isOwn, c.trusted)
		}
		f.Close()
	}
	again := mkdir(t, filepath.Join(dir, "again"), 0o755, 0)
	bind(t, plain, again, unix.MS_NOSUID)
	f, err := os.Open(filepath.Join(again, "own"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if TrustedFile(f) {
		t.Error("a file of a nosuid mount is trusted: its owner may be of somebody's making")
	}
}

// TestLevelOf reaches root's files, and files that only look like them, in every way.
func TestLevelOf(t *testing.T) {
	dir := ownTree(t)
	root := write(t, filepath.Join(dir, "root"), 0o755, 0)
	theirs := mkdir(t, filepath.Join(dir, "theirs"), 0o755, nobody)
	shared := mkdir(t, filepath.Join(dir, "shared"), 0o777|os.ModeSticky, 0)
	inShared := write(t, filepath.Join(shared, "file"), 0o755, 0)
	inTheirs := write(t, filepath.Join(theirs, "file"), 0o755, 0)
	below := write(t, filepath.Join(mkdir(t, filepath.Join(shared, "dir"), 0o755, 0), "file"), 0o755, 0)
	linked := write(t, filepath.Join(dir, "linked"), 0o755, 0)
	hard := filepath.Join(shared, "hard") // as others could make it without fs.protected_hardlinks
	if err := os.Link(linked, hard); err != nil {
		t.Fatal(err)
	}
	other := write(t, filepath.Join(dir, "other"), 0o755, 0)
	for _, c := range []struct {
		what          string
		reached, path string
		want          Level
	}{
		{"root's file", root, root, Root},
		{"the path that the kernel remembers", root, "", Root},
		{"dots on the way", root, filepath.Join(dir, "shared") + "/.././/root", Root},
		{"a path that is not absolute", root, "root", Others},
		{"the path of another file", root, other, Others},
		{"a path that leads nowhere", root, root + "-gone", Others},
		{"a file of another user", write(t, filepath.Join(dir, "a"), 0o755, nobody), "", Others},
		{"a file that a group may write", write(t, filepath.Join(dir, "b"), 0o775, 0), "", Others},
		{"a file that everybody may write", write(t, filepath.Join(dir, "c"), 0o757, 0), "", Others},
		{"a directory of another user", inTheirs, "", Others},
		{"a file in a directory like /tmp", inShared, "", Root},
		{"a directory in one like /tmp", below, "", Root},
		{"one more name in a directory like /tmp", hard, hard, Others},
		{"a file that has one more name", linked, linked, Root},
		{"root's link", root, link(t, root, filepath.Join(dir, "link"), 0), Root},
		{"root's link in a directory like /tmp", root, link(t, root, filepath.Join(shared, "link"), 0), Others},
		{"another user's link", root, link(t, root, filepath.Join(dir, "their-link"), nobody), Others},
		{"a link that leads through another user's directory", root, link(t, "theirs/../root", filepath.Join(dir, "through"), 0), Others},
	} {
		if got := level(t, c.reached, c.path); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	for _, special := range []string{dir, "/dev/null", "/proc/self/status"} {
		if got := level(t, special, special); got != Others {
			t.Errorf("%s: %v, want %v", special, got, Others)
		}
	}
}

// TestLevelOfRemovedFile removes files in every directory that they can be in.
func TestLevelOfRemovedFile(t *testing.T) {
	dir := ownTree(t)
	theirs := mkdir(t, filepath.Join(dir, "theirs"), 0o755, nobody)
	shared := mkdir(t, filepath.Join(dir, "shared"), 0o777|os.ModeSticky, 0)
	again := mkdir(t, filepath.Join(dir, "again"), 0o755, 0)
	bound := mkdir(t, filepath.Join(dir, "bound"), 0o755, 0)
	bind(t, bound, again, 0)
	hidden := mkdir(t, filepath.Join(dir, "hidden"), 0o755, 0)
	emptied := mkdir(t, filepath.Join(dir, "emptied"), 0o755, 0)
	for _, c := range []struct {
		what  string
		name  string
		mode  os.FileMode
		owner int
		then  func(name string)
		want  Level
	}{
		{"root's file", filepath.Join(dir, "root"), 0o755, 0, nil, Root},
		{"a name that ends as the kernel's mark", filepath.Join(dir, "x (deleted)"), 0o755, 0, nil, Root},
		{"one in whose place another one was put", filepath.Join(dir, "upgraded"), 0o755, 0, func(name string) { write(t, name, 0o755, 0) }, Root},
		{"over a mount", filepath.Join(again, "mounted"), 0o755, 0, nil, Root},
		{"a file of another user", filepath.Join(dir, "user"), 0o755, nobody, nil, Others},
		{"a file that everybody may write", filepath.Join(dir, "open"), 0o757, 0, nil, Others},
		{"in a directory of another user", filepath.Join(theirs, "file"), 0o755, 0, nil, Others},
		{"in a directory like /tmp", filepath.Join(shared, "file"), 0o755, 0, nil, Others},
		{"in a directory that is gone", filepath.Join(emptied, "file"), 0o755, 0, func(string) {
			if err := os.Remove(emptied); err != nil {
				t.Fatal(err)
			}
		}, Others},
		{"in a directory that another one hides", filepath.Join(hidden, "file"), 0o755, 0, func(string) { mountOn(t, "tmpfs", hidden, 0, "mode=755") }, Others},
	} {
		f, err := os.Open(write(t, c.name, c.mode, c.owner))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(c.name); err != nil {
			t.Fatal(err)
		}
		if c.then != nil {
			c.then(c.name)
		}
		if got := LevelOf(f, ""); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if got := LevelOf(f, c.name); got != Others {
			t.Errorf("%s, at the path of another file or of none: %v, want %v", c.what, got, Others)
		}
		f.Close()
	}
}

// TestLevelOfMounts reaches root's files over mounts.
func TestLevelOfMounts(t *testing.T) {
	dir := ownTree(t)
	tree := mkdir(t, filepath.Join(dir, "tree"), 0o755, 0)
	file := write(t, filepath.Join(tree, "file"), 0o755, 0)
	again := mkdir(t, filepath.Join(dir, "again"), 0o755, 0)
	bind(t, tree, again, 0)
	if got := level(t, file, filepath.Join(again, "file")); got != Root {
		t.Errorf("one more place of the tree: %v, want %v", got, Root)
	}
	// What an image shows that somebody else made: the disk of this machine stands for it.
	nosuid := mkdir(t, filepath.Join(dir, "nosuid"), 0o755, 0)
	bind(t, filepath.Dir(os.Args[0]), nosuid, unix.MS_NOSUID)
	if got := level(t, filepath.Join(nosuid, filepath.Base(os.Args[0])), ""); got != Others {
		t.Errorf("a nosuid mount: %v, want %v", got, Others)
	}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		mkdir(t, filepath.Join(dir, name), 0o755, 0)
	}
	write(t, filepath.Join(dir, "lower", "file"), 0o755, 0)
	merged := filepath.Join(dir, "merged")
	mountOn(t, "overlay", merged, 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work")
	inside := filepath.Join(merged, "file")
	if got := level(t, inside, ""); got != Others {
		t.Errorf("a file in a container: %v, want %v", got, Others)
	}
	if got := level(t, inside, filepath.Join(dir, "lower", "file")); got != Others {
		t.Errorf("a file in a container, under the path of another one: %v, want %v", got, Others)
	}
	// A mount on a directory of the way, which hides what the path led to.
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mountOn(t, "tmpfs", tree, 0, "mode=755")
	write(t, file, 0o755, 0)
	if got := LevelOf(f, file); got != Others {
		t.Errorf("a file that another one hides: %v, want %v", got, Others)
	}
}

// TestTrueOwners has directories on mounts whose files have the owner that they show, and on others.
func TestTrueOwners(t *testing.T) {
	memory := ownTree(t)
	for path, want := range map[string]bool{memory: true, "/": true, "/proc": false, "/proc/self/fd": false, "/sys": false} {
		if got := isTrueAt(t, path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	elsewhere, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(elsewhere)
	ownTree(t) // in another mount namespace, where "/" is another mount
	if TrueOwners(elsewhere) {
		t.Error("a directory of another mount namespace shows owners")
	}
	if TrueOwners(-1) {
		t.Error("no directory shows owners")
	}
}

func isTrueAt(t *testing.T, path string) bool {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	return TrueOwners(fd)
}

// TestMappedOwners has a mount that shows the owners of its files as others.
func TestMappedOwners(t *testing.T) {
	top := ownTree(t)
	from, at := mkdir(t, filepath.Join(top, "from"), 0o755, nobody), mkdir(t, filepath.Join(top, "at"), 0o755, 0)
	mapped, err := mapOwner(t, from, nobody)
	if err != nil {
		t.Skip("no mounts that map owners here:", err)
	}
	defer unix.Close(mapped)
	if err := unix.MoveMount(mapped, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil || st.Uid != 0 {
		t.Fatalf("owner %d, %v; want 0", st.Uid, err)
	}
	if isTrueAt(t, at) {
		t.Error("a mount that maps owners shows true ones")
	}
	if !isTrueAt(t, from) {
		t.Error("the directory itself does not show its owner")
	}
}

// mapOwner returns a mount of a directory on which the files of a user show root as their owner.
func mapOwner(t *testing.T, dir string, user int) (fd int, err error) {
	cmd := exec.Command(testenv.Tool(t, "sleep"), "1000")
	ids := []syscall.SysProcIDMap{{ContainerID: user, HostID: 0, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	if err := cmd.Start(); err != nil {
		return -1, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	users, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(users)
	if fd, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
		return -1, err
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users)})
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// TestLevelOfAnotherUser runs as one who is not root: as a part of the test above all, who
// has no right to root's files but to read them.
func TestLevelOfAnotherUser(t *testing.T) {
	dir := ownTree(t)
	home := mkdir(t, filepath.Join(dir, "home"), 0o755, 4242)
	own := write(t, filepath.Join(home, "own"), 0o755, 4242)
	roots := write(t, filepath.Join(dir, "roots"), 0o755, 0)
	inHome := write(t, filepath.Join(home, "roots"), 0o755, 0)
	theirs := write(t, filepath.Join(home, "theirs"), 0o755, nobody)
	for _, c := range []struct {
		name string
		want Level
	}{{own, Others}, {roots, Root}, {inHome, Others}, {theirs, Others}} {
		if got := level(t, c.name, ""); got != c.want {
			t.Errorf("as root, %s: %v, want %v", filepath.Base(c.name), got, c.want)
		}
	}
	self := geteuid
	geteuid = func() int { return 4242 }
	defer func() { geteuid = self }()
	for _, c := range []struct {
		name string
		want Level
	}{{own, Own}, {roots, Root}, {inHome, Own}, {theirs, Others}} {
		if got := level(t, c.name, ""); got != c.want {
			t.Errorf("as the user, %s: %v, want %v", filepath.Base(c.name), got, c.want)
		}
	}
	if PrivateDir(home) != true || PrivateDir(dir) != true {
		t.Error("the user's home is not private to the user")
	}
}

// TestParseMount has lines of mounts that show true owners, and of others.
func TestParseMount(t *testing.T) {
	for _, c := range []struct {
		line string
		want mount
		ok   bool
	}{
		{`36 35 98:0 /mnt1 / rw,noatime shared:1 - ext4 /dev/root rw,errors=continue`, mount{id: 36, point: "/", isTrue: true}, true},
		{`36 35 98:0 / /a\040b rw - xfs /dev/sdb1 rw`, mount{id: 36, point: "/a b", isTrue: true}, true},
		{`36 35 98:0 / /media rw,nosuid,nodev - ext4 /dev/sdb1 rw`, mount{id: 36, point: "/media", isNosuid: true}, true},
		{`36 35 98:0 / /home rw,idmapped - ext4 /dev/sdb1 rw`, mount{id: 36, point: "/home"}, true},
		{`36 35 0:40 / /tmp rw,nosuid,nodev - tmpfs tmpfs rw`, mount{id: 36, point: "/tmp", isTrue: true, isNosuid: true}, true},
		{`23 26 0:6 / /dev rw,nosuid - devtmpfs udev rw,size=4k,mode=755`, mount{id: 23, point: "/dev", isTrue: true, isNosuid: true}, true},
		{`36 35 0:40 / / rw - overlay overlay rw,lowerdir=/a`, mount{id: 36, point: "/", isTrue: true}, true},
		{`36 35 0:40 / /var/lib/docker/overlay2/0/merged rw - overlay overlay rw`, mount{id: 36, point: "/var/lib/docker/overlay2/0/merged"}, true},
		{`36 35 0:40 / /mnt rw - fuse.sshfs a:/ rw`, mount{id: 36, point: "/mnt", isFUSE: true}, true},
		{`36 35 8:40 / /mnt rw - fuseblk /dev/sdb rw`, mount{id: 36, point: "/mnt", isFUSE: true}, true},
		{`36 35 0:40 / /mnt rw - nfs4 a:/ rw`, mount{id: 36, point: "/mnt"}, true},
		{`36 35 0:40 / /mnt rw - `, mount{}, false},
		{`x 35 0:40 / /mnt rw - ext4 a rw`, mount{}, false},
		{``, mount{}, false},
	} {
		got, ok := parseMount(c.line)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v, %v, want %+v, %v", c.line, got, ok, c.want, c.ok)
		}
	}
}

// TestIsAlone has groups of one user and of several.
func TestIsAlone(t *testing.T) {
	dir := t.TempDir()
	groups, users := filepath.Join(dir, "group"), filepath.Join(dir, "passwd")
	for _, c := range []struct {
		groups, users string
		want          bool
	}{
		{"ann:x:1000:\n", "ann:x:1000:1000::/home/ann:\n", true},
		{"ann:x:1000:\nbob:x:1001:\n", "bob:x:1001:1001::/:\nann:x:1000:1000::/home/ann:\n", true},
		{"ann:x:1000:bob\n", "ann:x:1000:1000::/home/ann:\n", false},
		{"ann:x:1000:\n", "ann:x:1000:1000::/home/ann:\nbob:x:1001:1000::/:\n", false},
		{"users:x:100:\n", "ann:x:1000:1000::/home/ann:\n", false},
		{"ann:x:1000:\nalias:x:1000:bob\n", "ann:x:1000:1000::/home/ann:\n", false},
		{"", "", false},
	} {
		for name, text := range map[string]string{groups: c.groups, users: c.users} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := isAlone("1000", groups, users); got != c.want {
			t.Errorf("%q and %q: %v, want %v", c.groups, c.users, got, c.want)
		}
	}
	if isAlone("1000", groups+"-gone", users) {
		t.Error("without the file of groups")
	}
}
