package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
)

// machine is mountinfo of a machine with containers.
const machine = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:27 / /tmp rw shared:2 master:1 - tmpfs tmp\040fs rw
31 27 0:40 / /home/u/sshfs rw,nosuid - fuse.sshfs host:/ rw,user_id=1000
32 27 0:41 / /mnt/nfs rw - nfs4 server:/ rw,vers=4.2
33 27 43:0 / /mnt/nbd rw - ext4 /dev/nbd0 rw
34 27 0:50 / /c/1 rw - overlay overlay rw,lowerdir=/var/l1:/var/l2,upperdir=/var/u,workdir=/var/w
35 27 0:51 / /c/2 rw - overlay overlay rw,lowerdir=/home/u/sshfs/l:/var/l2
36 27 0:52 / /c/3 rw - overlay overlay rw,lowerdir=l/A:l/B,upperdir=/var/u
37 27 0:53 / /c/4 rw - overlay overlay rw,lowerdir+=/var/l1,datadir+=/mnt/nfs/data
38 27 0:54 / /c/5 rw - overlay overlay rw,lowerdir=/c/1/x::/var/d
39 27 0:55 / /c/6 rw - overlay overlay rw,lowerdir=/c/2/x
40 27 0:56 / /c/7 rw - overlay overlay rw,lowerdir=/var/with\134:colon:/var/b
41 27 0:57 / /new rw - fsofnextyear none rw
`

// TestTable wants to know which file systems answer, from the text of mountinfo.
func TestTable(t *testing.T) {
	var own table
	own.set(parse([]byte(machine)))
	for dev, want := range map[Dev]bool{
		{0, 21}: true, {254, 0}: true, {0, 27}: true,
		{0, 40}: false, {0, 41}: false, {43, 0}: false, {0, 57}: false,
		{0, 50}: true,  // an overlay over what answers
		{0, 51}: false, // with a layer that does not
		{0, 52}: false, // nobody knows where its layers are
		{0, 53}: false, {0, 54}: true, {0, 55}: false, {0, 56}: true,
		{9, 9}: false,
	} {
		if have := own.devs[dev]; have != want {
			t.Errorf("%v answers: %v", dev, have)
		}
	}
}

// TestPlaces wants to know where a file of a file system is, from the text of mountinfo.
func TestPlaces(t *testing.T) {
	const text = `20 1 259:2 / / rw - ext4 /dev/root rw
30 20 8:1 / /var/lib/docker rw - xfs /dev/sda1 rw
31 20 8:1 /volumes/a /srv/a\040b rw - xfs /dev/sda1 rw
40 20 0:40 /@home /home rw - btrfs /dev/sdb rw
`
	var here table
	here.set(parse([]byte(text)))
	for _, test := range []struct {
		dev  Dev
		path string
		want []string
	}{
		{Dev{259, 2}, "/usr/bin/x", []string{"/usr/bin/x"}},
		{Dev{8, 1}, "/overlay2/id/diff/x", []string{"/var/lib/docker/overlay2/id/diff/x"}},
		{Dev{8, 1}, "/volumes/a/x", []string{"/var/lib/docker/volumes/a/x", "/srv/a b/x"}},
		{Dev{8, 1}, "/volumes/ab", []string{"/var/lib/docker/volumes/ab"}},
		{Dev{0, 77}, "/@home/me/x", []string{"/home/me/x"}}, // a subvolume
		{Dev{8, 2}, "/x", nil},
	} {
		if got := here.places(test.dev, test.path); !slices.Equal(got, test.want) {
			t.Errorf("%v %s: %q, want %q", test.dev, test.path, got, test.want)
		}
	}
}

// TestContainer wants the root of a container to answer, which is an overlay over directories of the
// host, and what lies over it; but nothing that somebody else has mounted in the same way.
func TestContainer(t *testing.T) {
	const text = `500 400 0:60 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B,upperdir=/var/lib/docker/u
501 500 0:61 / /inner rw - overlay overlay rw,lowerdir=/var/lower
`
	for foreign, want := range map[bool]bool{false: true, true: false} {
		seen := table{foreign: foreign}
		seen.set(parse([]byte(text)))
		for _, dev := range []Dev{{0, 60}, {0, 61}} {
			if seen.devs[dev] != want {
				t.Errorf("foreign %v: %v answers: %v", foreign, dev, !want)
			}
		}
	}
}

// TestDamaged wants nothing to be believed of lines that are not understood.
func TestDamaged(t *testing.T) {
	for line := range strings.Lines(machine) {
		for n := range line {
			for _, m := range parse([]byte(line[:n])) {
				if m.kind != "ext" && !strings.Contains(line, " "+m.kind) && !strings.Contains(line, m.kind) {
					t.Errorf("%q: %+v", line[:n], m)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(machine))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var own table
		own.set(parse(b))
	})
}

func TestLayers(t *testing.T) {
	got := layersOf(`rw,lowerdir=/a\:b:/c::/d,upperdir=/with\040space,lowerdir+=/e,workdir=/w`)
	if want := []string{"/a:b", "/c", "/d", "/with space", "/e"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestInner wants memory that no mount shows to answer.
func TestInner(t *testing.T) {
	fd, ok := memfd(0)
	if !ok {
		t.Skip("no memfd")
	}
	defer syscall.Close(fd)
	if !AnswersFD(fd) {
		t.Error("a memfd does not answer")
	}
}

func open(t *testing.T, path string) int {
	t.Helper()
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	return fd
}

// TestOurs wants to know whose mounts are: those of FUSE are their users', and nobody but root
// mounts others here.
func TestOurs(t *testing.T) {
	const text = machine + `50 27 0:70 / /a rw - fuse host:/ rw,user_id=0,group_id=0
51 27 0:71 / /b rw - fuseblk /dev/sdx rw
`
	var own table
	own.set(parse([]byte(text)))
	for id, want := range map[uint64]bool{27: true, 30: true, 31: os.Geteuid() == 1000, 32: true, 50: true, 51: false, 99: false} {
		if have := own.ours[id]; have != want {
			t.Errorf("mount %d is ours: %v", id, have)
		}
	}
}

// watch fails the test, and ends what waits, when something waits for a silent server.
func watch(t *testing.T, s *fusetest.Server, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(testenv.Patience):
		s.Close()
		<-done
		t.Error("waited for a server that does not answer")
	}
}

// TestForeign looks at a file system that has just been mounted and whose server is silent: it
// does not answer, nobody waits for it, and paths to and through it are not gone.
func TestForeign(t *testing.T) {
	testenv.Root(t)
	if !AnswersFD(open(t, "/")) {
		t.Skip("the root of this machine does not answer by itself")
	}
	s := fusetest.Mount(t, fusetest.SSHFS)
	if err := os.WriteFile(s.Behind("file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(os.Symlink(s.Path("file"), filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "a"), 0o755), os.Symlink("a/../here", filepath.Join(dir, "around")),
		os.WriteFile(filepath.Join(dir, "here"), nil, 0o644), os.Symlink("loop", filepath.Join(dir, "loop"))); err != nil {
		t.Fatal(err)
	}
	fd := open(t, s.Path("file"))
	root := open(t, "/")
	s.Silence()
	watch(t, s, func() {
		if AnswersFD(fd) {
			t.Error("a file of FUSE answers")
		}
		dev, _, err := DeviceOf(fd)
		if err != nil || Answers(dev) {
			t.Errorf("%v answers, %v", dev, err)
		}
		for path, want := range map[string]error{
			s.Path("file"): ErrForeign, s.Path("other"): ErrForeign, s.Dir: ErrForeign,
			dir + "/link": ErrForeign, dir + "/none": syscall.ENOENT, dir + "/here": nil, dir + "/here/x": syscall.ENOTDIR,
			"/proc/self/root/" + dir + "/here": ErrForeign, "/proc/self/exe": ErrForeign, "/proc/self/fd/0": ErrForeign, "/proc/self/ns/mnt": ErrForeign,
			"/proc/self/status": nil, "/proc/mounts": nil, "/proc/thread-self/comm": nil,
			dir + "/around": nil, dir + "/loop": syscall.ELOOP, dir + "/../" + filepath.Base(dir) + "//./here": nil, "/": nil, "/..": nil,
		} {
			for how, find := range map[string]func() (int, error){
				"open": func() (int, error) { return Open(root, path) },
				"walk": func() (int, error) { return (&walk{view: new(View), root: root}).to(path) },
			} {
				got, err := find()
				if err == nil {
					syscall.Close(got)
				}
				if !errors.Is(err, want) {
					t.Errorf("%s %s: %v, want %v", how, path, err, want)
				}
			}
		}
	})
	s.Close()
	s = fusetest.Mount(t, fusetest.SSHFS)
	s.Die()
	watch(t, s, func() {
		if f, err := new(View).OpenFile(s.Path("file")); f != nil || !errors.Is(err, ErrForeign) {
			t.Error("a file system answers whose server has died")
		}
	})
}

// TestRemounted wants another file system under an old number to be found out.
func TestRemounted(t *testing.T) {
	testenv.Root(t)
	runtime.LockOSThread() // and never unlocked
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Open(dir, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev, _, err := DeviceOf(fd)
	if err != nil || !Answers(dev) || !AnswersFD(fd) {
		t.Errorf("a tmpfs does not answer, %v", err)
	}
	syscall.Close(fd)
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if Answers(dev) {
		t.Error("what is mounted no more answers")
	}
}

// TestAnybody wants a mount to be found that only another process sees.
func TestAnybody(t *testing.T) {
	testenv.Root(t)
	if Foreign() {
		t.Skip("something is mounted here that may not answer")
	}
	s := fusetest.Mount(t, fusetest.SSHFS)
	if !Foreign() {
		t.Error("a mount of FUSE is not seen")
	}
	s.Close()
}
