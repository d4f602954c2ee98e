package reach

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
)

// TestTwinsOnOverlay gives two files on an overlay the same size and the same times, which their owner can
// do within a tick of the clock: one is never proven to be what was mapped of the other.
func TestTwinsOnOverlay(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	low, up, all := filepath.Join(dir, "low"), filepath.Join(dir, "up"), filepath.Join(dir, "all")
	for _, d := range []string{low, up, all, filepath.Join(dir, "work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const others = 65534
	create := func(dir, name string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, others, others); err != nil {
			t.Fatal(err)
		}
	}
	create(low, "c")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", low, up, filepath.Join(dir, "work"))
	if err := unix.Mount("none", all, "overlay", 0, opts); err != nil {
		testenv.Need(t, false, "overlayfs")
	}
	t.Cleanup(func() { _ = unix.Unmount(all, unix.MNT_DETACH) })
	create(all, "a")
	create(all, "b")
	testenv.Await(t, "equal times", func() bool {
		now := unix.NsecToTimespec(time.Now().Add(-time.Hour).UnixNano())
		for _, name := range []string{"a", "b"} {
			if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(all, name), []unix.Timespec{now, now}, 0); err != nil {
				t.Fatal(err)
			}
		}
		a, b := statOf(t, filepath.Join(all, "a")), statOf(t, filepath.Join(all, "b"))
		return a.Ctim == b.Ctim && a.Mtim == b.Mtim
	})
	hasHandles := isOfLayer(open(t, filepath.Join(all, "a")), validityOf(t, filepath.Join(up, "a")))
	if !hasHandles {
		testenv.Need(t, false, "handles of files on overlays (Linux 6.6) over this file system")
	}
	for _, c := range []struct {
		opened, mapped string
		want           bool
	}{{"all/a", "up/a", true}, {"all/b", "up/b", true}, {"all/a", "up/b", false}, {"all/b", "up/a", false}, {"all/c", "low/c", true}} {
		v := validityOf(t, filepath.Join(dir, c.mapped))
		if got := IsContent(open(t, filepath.Join(dir, c.opened)), v); got != c.want {
			t.Errorf("%s is proven to be what was mapped of %s: %v", c.opened, c.mapped, got)
		}
	}
}

func open(t *testing.T, path string) *os.File {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func statOf(t *testing.T, path string) (st syscall.Stat_t) {
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// validityOf returns what a BPF program sees of a file that is mapped.
func validityOf(t *testing.T, path string) *bpf.Validity {
	st := statOf(t, path)
	dev := bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
	return &bpf.Validity{
		Dev: dev, Inode: st.Ino, Size: uint64(st.Size), Mtime: timeOf(st.Mtim), Ctime: timeOf(st.Ctim),
		Generation: contentcache.GenerationOf(open(t, path)), Medium: contentcache.DiskOf(dev.Major, dev.Minor),
	}
}

// FuzzInodeOfLayer reads handles of any bytes.
func FuzzInodeOfLayer(f *testing.F) {
	f.Add(int32(0xf8), []byte("\x00\x00\x00\x00\xfb\x1d\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x77\x41\x98\x00\x30\x3f\xf1\x0c"))
	f.Fuzz(func(t *testing.T, kind int32, handle []byte) {
		if _, _, ok := inodeOfLayer(kind, handle); ok && len(handle) < 32 {
			t.Errorf("%d bytes have an inode and a generation", len(handle))
		}
	})
}

// TestContentOf wants the content of a file in memory, and none if the file has another identity than it had before.
func TestContentOf(t *testing.T) {
	build := proctest.BuildC(t, proctest.UniqueID())
	other := proctest.FileID(t, proctest.BuildC(t, proctest.UniqueID()))
	dir, err := os.MkdirTemp("/dev/shm", "content")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	name := filepath.Join(dir, "program")
	proctest.CopyTo(t, build, name)
	f := open(t, name)
	for _, id := range []buildid.ID{proctest.FileID(t, build), other} {
		if KeepsTimes(f) {
			t.Skip("the times of a file in memory are believed here")
		}
		want := proctest.FileContent(t, build)
		if id == other {
			want = buildid.Content{}
		}
		if got, err := ContentOf(t.Context(), f, id); got != want || err != nil {
			t.Errorf("content %v (%v), want %v", got, err, want)
		}
	}
}
