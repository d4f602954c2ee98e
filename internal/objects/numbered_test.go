package objects

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/contentcache"
	"hallmark/internal/contested"
	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

// gone is a process number that no process has: it is more than PID_MAX_LIMIT of include/linux/threads.h.
const gone = 1<<22 + 1

// numberOf returns the number that the kernel's records have of a file: device and inode by stat, the generation by
// FS_IOC_GETVERSION, or on tmpfs by the handle.
func numberOf(t *testing.T, file string) reach.Number {
	t.Helper()
	st := proctest.Stat(t, file)
	n := reach.Number{Dev: procmap.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}, Inode: st.Ino}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const getVersion = 0x80087601
	generation, err := unix.IoctlGetUint32(int(f.Fd()), getVersion)
	if n.Generation = uint64(generation); err == nil {
		return n
	}
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, file, 0)
	if err != nil {
		t.Skipf("the generation of %s is not known: %v", file, err)
	}
	n.Generation = uint64(binary.NativeEndian.Uint32(handle.Bytes()))
	return n
}

// numberedFile is a file whose processes are over.
type numberedFile struct {
	t      *testing.T
	set    *Set
	path   string
	id     buildid.ID
	number reach.Number
}

func newNumberedFile(t *testing.T, dir string) *numberedFile {
	t.Helper()
	testenv.Root(t)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	st := proctest.Stat(t, dir)
	isDisk := fs.Type == unix.EXT4_SUPER_MAGIC || fs.Type == unix.XFS_SUPER_MAGIC
	isDisk = isDisk && contentcache.DiskOf(unix.Major(st.Dev), unix.Minor(st.Dev)) != 0
	testenv.Need(t, isDisk || fs.Type == unix.TMPFS_MAGIC, "tmpfs, or ext4 or xfs on a numbered disk (Linux 5.15)")
	build := proctest.BuildC(t, "-Wl,--build-id=0x"+proctest.SharedID)
	f := &numberedFile{t: t, set: New(), path: filepath.Join(dir, "program"), id: proctest.FileID(t, build)}
	t.Cleanup(f.set.Close)
	proctest.CopyTo(t, build, f.path)
	f.number = numberOf(t, f.path)
	time.Sleep(2 * fstimes.Delay())
	return f
}

// see has a process that is over map the file, with this number and at this time, and returns the object.
func (f *numberedFile) see(number reach.Number, mapped time.Time) *Object {
	f.t.Helper()
	v := procmap.VMA{Start: 0x1000, End: 0x2000, Perm: procmap.Read | procmap.Exec, Name: f.path}
	key := reach.Key{ID: f.id, Path: f.path, Major: number.Dev.Major, Minor: number.Dev.Minor, Inode: number.Inode}
	o := f.set.File(key, v, 0)
	f.set.Reach(Job{Request: reach.Request{VMA: v, PID: gone, Mapped: mapped, Number: number}, Object: o})
	testenv.Await(f.t, "the file", func() bool {
		f.set.mu.Lock()
		defer f.set.mu.Unlock()
		return o.tried == o.asked && o.unchecked == 0
	})
	return o
}

// content returns the content of an object, as at the end of a recording.
func (f *numberedFile) content(o *Object) buildid.Content {
	f.set.Stop()
	f.set.Review()
	r := Reading{Object: o, Content: o.early}
	r.compare()
	if o.exact != !o.early.IsZero() && !o.unsure {
		f.t.Errorf("exact %v, and the content is %v", o.exact, o.early)
	}
	return r.Content
}

// eachNumbering runs a test on the disk and in memory.
func eachNumbering(t *testing.T, test func(t *testing.T, f *numberedFile)) {
	t.Run("disk", func(t *testing.T) { test(t, newNumberedFile(t, t.TempDir())) })
	t.Run("tmpfs", func(t *testing.T) {
		dir, err := os.MkdirTemp("/dev/shm", "numbered")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		test(t, newNumberedFile(t, dir))
	})
}

// TestNumberedFile wants the content of a file to be known by the number of its inode alone, after its process.
func TestNumberedFile(t *testing.T) {
	eachNumbering(t, func(t *testing.T, f *numberedFile) {
		o := f.see(f.number, time.Now())
		for range reach.MaxAttempts + 2 {
			f.see(f.number, time.Now())
		}
		if o.asked != 1 {
			t.Errorf("the file was looked for %d times", o.asked)
		}
		if got, want := f.content(o), proctest.FileContent(t, f.path); got != want || !o.numbered || o.ID != f.id {
			t.Errorf("content %v, want %v: %+v", got, want, o)
		}
	})
}

// TestOtherNumber has what was mapped differ from the file that is at its path in one thing. The build ID stays, which
// the kernel read, and the content is unknown.
func TestOtherNumber(t *testing.T) {
	changes := map[string]func(t *testing.T, f *numberedFile) (reach.Number, time.Time){
		"another inode": func(_ *testing.T, f *numberedFile) (reach.Number, time.Time) {
			n := f.number
			n.Inode++
			return n, time.Now()
		},
		"another generation": func(_ *testing.T, f *numberedFile) (reach.Number, time.Time) {
			n := f.number
			n.Generation++
			return n, time.Now()
		},
		"another device": func(_ *testing.T, f *numberedFile) (reach.Number, time.Time) {
			n := f.number
			n.Dev.Minor++
			return n, time.Now()
		},
		"no number": func(*testing.T, *numberedFile) (reach.Number, time.Time) { return reach.Number{}, time.Now() },
		"a file of others": func(t *testing.T, f *numberedFile) (reach.Number, time.Time) {
			if err := os.Chown(f.path, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * fstimes.Delay())
			return f.number, time.Now()
		},
		"others may write it": func(t *testing.T, f *numberedFile) (reach.Number, time.Time) {
			if err := os.Chmod(f.path, 0o777); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * fstimes.Delay())
			return f.number, time.Now()
		},
		"a directory of others": func(t *testing.T, f *numberedFile) (reach.Number, time.Time) {
			if err := os.Chown(filepath.Dir(f.path), 65534, 65534); err != nil {
				t.Fatal(err)
			}
			return f.number, time.Now()
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			eachNumbering(t, func(t *testing.T, f *numberedFile) {
				o := f.see(change(t, f))
				if got := f.content(o); !got.IsZero() || o.numbered || o.ID != f.id {
					t.Errorf("content %v: %+v", got, o)
				}
			})
		})
	}
}

// TestNumberedBeforeChange has a file change between two of its mappings, or after both. Nobody knows what was
// mapped before the change.
func TestNumberedBeforeChange(t *testing.T) {
	eachNumbering(t, func(t *testing.T, f *numberedFile) {
		before := time.Now()
		time.Sleep(2 * fstimes.Delay())
		if err := os.Chmod(f.path, 0o711); err != nil { // which sets the time that a write does
			t.Fatal(err)
		}
		time.Sleep(2 * fstimes.Delay())
		o := f.see(f.number, time.Now())
		f.see(f.number, before)
		if got := f.content(o); !got.IsZero() {
			t.Errorf("content %v: %+v", got, o)
		}
	})
}

// TestUnseenNumber has a mapping be seen after another one of its number was not, whose path led nowhere then: it is
// the same file.
func TestUnseenNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f := newNumberedFile(t, dir)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	o := f.see(f.number, time.Now())
	if o.way != nil || !o.missed {
		t.Fatalf("the file was seen: %+v", o)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	f.see(f.number, time.Now())
	if got, want := f.content(o), proctest.FileContent(t, f.path); got != want {
		t.Errorf("content %v, want %v: %+v", got, want, o)
	}
}

// become gives the file the bytes of another build by stores to mapped pages that were read before, of which tmpfs
// sets no time.
func (f *numberedFile) become(build string) {
	f.t.Helper()
	content, err := os.ReadFile(build)
	if err != nil {
		f.t.Fatal(err)
	}
	before := proctest.Stat(f.t, f.path)
	if int64(len(content)) > before.Size {
		f.t.Fatalf("%s has %d bytes, and the file %d", build, len(content), before.Size)
	}
	content = append(content, make([]byte, before.Size-int64(len(content)))...)
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	b, err := unix.Mmap(int(file.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = bytes.Clone(b)
	copy(b, content)
	if err := unix.Munmap(b); err != nil {
		f.t.Fatal(err)
	}
	if after := proctest.Stat(f.t, f.path); after.Ctim != before.Ctim {
		f.t.Fatal("the change has left a trace")
	}
}

// TestChangedWithoutTrace has a file in memory change after its content was read, and before that. A content that was
// read once may be of bytes between two builds: it counts if the file has it at the end.
func TestChangedWithoutTrace(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "numbered")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := newNumberedFile(t, dir)
	if err := os.WriteFile(f.path, make([]byte, 1<<16), 0o755); err != nil { // room for all builds
		t.Fatal(err)
	}
	time.Sleep(2 * fstimes.Delay())
	one, two := proctest.TwoBuilds(t, proctest.SharedID)
	f.become(one)
	o := f.see(f.number, time.Now())
	readNow := func() buildid.Content { return ReadContents([]*Object{o}, contested.Limits{})[0].Content }
	if got, want := readNow(), proctest.FileContent(t, one); got != want || got != o.early {
		t.Errorf("content %v, want %v: %+v", got, want, o)
	}
	f.become(two)
	if got := readNow(); !got.IsZero() {
		t.Errorf("content %v of a file that has changed", got)
	}
	f.become(one)
	o.early = buildid.Content{} // it is large
	f.set.Stop()
	f.become(proctest.BuildC(t, proctest.UniqueID()))
	f.set.Review()
	if got := readNow(); !got.IsZero() {
		t.Errorf("content %v of a file that has another identity by now", got)
	}
}
