package capture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/execwatch"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/fstimes"
	"hallmark/internal/fusetest"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
)

// timeScenes change files where their times do not show it.
var timeScenes = []scene{
	{name: "written through a mapping, tmpfs", run: writtenThroughMapping, open: true, caught: true},
	{name: "changed by the server, FUSE", run: changedBehind, open: true, caught: true},
	{name: "no build ID, tmpfs", run: func(x *torture) {
		for range 3 {
			x.exec(x.image(form{program: true, dir: x.shm(), idSize: -1}))
		}
	}, open: true},
	{name: "mapped before, tmpfs", prepare: func(x *torture) func() {
		i := x.image(form{dir: x.shm()})
		return x.start("map a", i, 0, imageSize, "wait call a", i.from, long)
	}},
}

// TestTimesThatTellNothing records programs whose files change without a change of the times.
func TestTimesThatTellNothing(t *testing.T) {
	needTimes(t)
	neverWrong(t, timeScenes)
}

// rewriteMapped gives a file the content of an image by stores to pages that were mapped
// writable when they were read: on tmpfs no time changes.
func (x *torture) rewriteMapped(path string, i *image) {
	x.t.Helper()
	content := x.read(i.path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		x.t.Fatal(err)
	}
	sum := byte(0)
	for at := 0; at < len(m); at += os.Getpagesize() {
		sum += m[at]
	}
	copy(m, content)
	if err := unix.Munmap(m); err != nil || sum == 0 && len(m) == 0 {
		x.t.Fatal(err)
	}
}

// pairOnTmpfs makes two images and a file there that has the content of the first.
func (x *torture) pairOnTmpfs() (a, b *image, file string) {
	dir := x.shm()
	a, b = x.pair(form{program: true})
	file = x.victim(dir, a)
	time.Sleep(2 * fstimes.Delay())
	return a, b, file
}

func writtenThroughMapping(x *torture) {
	a, b, file := x.pairOnTmpfs()
	before := proctest.Stat(x.t, file)
	for range 6 {
		for _, i := range []*image{a, b} {
			x.rewriteMapped(file, i)
			x.exec(i, file)
		}
	}
	if after := proctest.Stat(x.t, file); after.Ctim != before.Ctim {
		x.t.Error("the times have changed, so nothing was tested")
	}
}

// changedBehind changes a program on the server's side, while the kernel believes the times
// that it was told first.
func changedBehind(x *torture) {
	server := fusetest.Mount(x.t, fusetest.SSHFS)
	a, b := x.pair(form{program: true})
	name := fmt.Sprintf("remote-%d", os.Getpid())
	for range 4 {
		for _, i := range []*image{a, b} {
			x.overwrite(server.Behind(name), i)
			x.exec(i, server.Path(name))
		}
	}
}

// TestWatchTimes executes programs whose files change without a change of the times, and
// wants no execution of one reported as that of the other.
func TestWatchTimes(t *testing.T) {
	testenv.Root(t)
	needTimes(t)
	for _, where := range []string{"tmpfs", "fuse"} {
		t.Run(where, func(t *testing.T) {
			for _, r := range fsRecorders {
				t.Run(r.name, func(t *testing.T) {
					r.need(t)
					watchTimes(t, r.watch, where)
				})
			}
		})
	}
}

func watchTimes(t *testing.T, o execwatch.Options, where string) {
	const rounds = 10
	x := &torture{maker: maker{t: t, dir: t.TempDir()}}
	a, b := x.image(form{program: true, rounds: 1000}), x.image(form{program: true, rounds: 1000})
	file, change := x.victim(x.shm(), a), x.rewriteMapped
	if where == "fuse" {
		server := fusetest.Mount(t, fusetest.SSHFS)
		file = server.Path("program")
		change = func(_ string, i *image) { x.overwrite(server.Behind("program"), i) }
		change(file, a)
	}
	time.Sleep(2 * fstimes.Delay())
	// The command is a shell that has the program changed before it executes it.
	steps, done := filepath.Join(t.TempDir(), "steps"), filepath.Join(t.TempDir(), "done")
	for _, fifo := range []string{steps, done} {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for n := range rounds {
			_ = os.WriteFile(steps, fmt.Appendln(nil, n), 0) // the shell reads it
			if _, err := os.ReadFile(done); err != nil || n == rounds-1 {
				return
			}
			change(file, []*image{b, a}[n%2])
		}
	}()
	script := fmt.Sprintf(`for i in %s; do read step <"$1"; "$0"; echo >"$2"; done`, "1 2 3 4 5 6 7 8 9 10")
	told := watched(t, o, "sh", "-c", script, file, steps, done)
	n, unknown := 0, 0
	for _, ev := range told {
		if ev.Kind != execwatch.Executed || ev.Program == nil || ev.Program.Path != file {
			continue
		}
		want := []*image{a, b}[n%2].id
		switch {
		case ev.Program.ID.IsZero():
			unknown++
			t.Logf("execution %d: %v", n, ev.Program.Reason.Code())
		case ev.Program.ID != want:
			t.Errorf("execution %d: WRONG: %v, want %v", n, ev.Program.ID, want)
		case ev.Program.Contested && where == "tmpfs":
			t.Errorf("execution %d: the same file is said to be another one of that identity", n)
		}
		n++
	}
	if n != rounds {
		t.Errorf("%d executions were told, want %d", n, rounds)
	}
	if o.Backend == BPF && !o.NoTaskWork && bpf.HasTaskWork() && unknown > 0 {
		t.Errorf("%d of %d executions have no identity", unknown, n)
	}
}

// TestSnapshots records two subvolumes' versions of a file, which have the same numbers, under
// different paths and under the same one.
func TestSnapshots(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "mkfs.btrfs")
	neverWrong(t, []scene{
		{name: "snapshots", run: inSnapshots(form{program: true})},
		{name: "snapshots, no build ID", run: inSnapshots(form{program: true, idSize: -1}), doubted: true},
		{name: "snapshots under one path, no build ID", run: snapshotsUnderOnePath, private: true},
	})
}

// snapshots mounts a btrfs that has two versions of a file in two subvolumes.
func (x *torture) snapshots(f form) (dir string, images [2]*image) {
	dir = x.t.TempDir()
	disk, at := filepath.Join(dir, "disk"), filepath.Join(dir, "btrfs")
	x.command("truncate", "-s", "200M", disk)
	x.command("mkfs.btrfs", "-q", disk)
	if err := os.Mkdir(at, 0o755); err != nil {
		x.t.Fatal(err)
	}
	out, err := exec.Command("mount", "-o", "loop", disk, at).CombinedOutput()
	testenv.Need(x.t, err == nil, fmt.Sprintf("btrfs on a loop device: %s", out))
	x.t.Cleanup(func() { x.command("umount", "-l", at) })
	x.command("btrfs", "subvolume", "create", filepath.Join(at, "one"))
	name := fmt.Sprintf("snapped-%d", os.Getpid())
	a, b := x.pair(f)
	x.overwrite(filepath.Join(at, "one", name), a)
	x.command("btrfs", "subvolume", "snapshot", filepath.Join(at, "one"), filepath.Join(at, "two"))
	for n, i := range []*image{a, b} {
		file := *i
		file.path = filepath.Join(at, []string{"one", "two"}[n], name)
		x.overwrite(file.path, i)
		images[n] = &file
	}
	time.Sleep(fstimes.Delay() * 5 / 4)
	one, two := proctest.Stat(x.t, images[0].path), proctest.Stat(x.t, images[1].path)
	if one.Ino != two.Ino || one.Dev == two.Dev {
		x.t.Errorf("inode %d of device %#x and inode %d of device %#x: nothing is tested", one.Ino, one.Dev, two.Ino, two.Dev)
	}
	return at, images
}

func (x *torture) command(name string, args ...string) {
	x.t.Helper()
	if out, err := exec.Command(testenv.Tool(x.t, name), args...).CombinedOutput(); err != nil {
		x.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func inSnapshots(f form) func(x *torture) {
	return func(x *torture) {
		_, images := x.snapshots(f)
		for range 3 {
			for _, i := range images {
				x.exec(i)
			}
		}
	}
}

// snapshotsUnderOnePath runs programs of two containers, so to speak.
func snapshotsUnderOnePath(x *torture) {
	at, images := x.snapshots(form{program: true, idSize: -1})
	for range 3 {
		for n, i := range images {
			volume, same := filepath.Join(at, []string{"one", "two"}[n]), filepath.Join("/mnt", filepath.Base(i.path))
			x.execAs(nameOf(same), i, testenv.Tool(x.t, "unshare"), "-m", "sh", "-c", `mount --bind "$0" /mnt && exec "$1"`, volume, same)
		}
	}
}

// TestContentOfOthers wants a file of another file system to be no proof, whatever times its
// server has given it.
func TestContentOfOthers(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		f, err := os.CreateTemp(dir, "hallmark-test")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(f.Name())
		defer f.Close()
		st := proctest.Stat(t, f.Name())
		v := bpf.Validity{
			Inode: st.Ino, Size: uint64(st.Size), Dev: bpf.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)},
			Medium: contentcache.DiskOf(unix.Major(st.Dev), unix.Minor(st.Dev)),
			Mtime:  bpf.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}, Ctime: bpf.Time{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)},
		}
		if fs := reach.FileSystemOf(f); fs != fstimes.Overlay && fs != fstimes.Btrfs && !reach.IsContent(f, &v) {
			t.Errorf("%s is not what it is", f.Name())
		}
		v.Dev.Minor++
		if fs := reach.FileSystemOf(f); fs != fstimes.Overlay && fs != fstimes.Btrfs && reach.IsContent(f, &v) {
			t.Errorf("%s is believed to be on another file system", f.Name())
		}
		v.Dev.Minor--
		v.Medium++
		if fs := reach.FileSystemOf(f); fs != fstimes.Overlay && fs != fstimes.Btrfs && v.Medium > 1 && reach.IsContent(f, &v) {
			t.Errorf("%s is believed to be on another medium", f.Name())
		}
		v.Medium--
		v.Pinned = reach.AnyMapping
		if reach.IsContent(f, &v) {
			t.Errorf("%s: times are believed that tell nothing", f.Name())
		}
	}
}
