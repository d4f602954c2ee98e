package objects

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/fstimes"
	"hallmark/internal/procfs"
	"hallmark/internal/proctest"
	"hallmark/internal/quota"
	"hallmark/internal/reach"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

// TestObjectsAreShared asks for the same objects by several goroutines at once: each file and
// each reason has one object, whose number is its place in the list. The race detector watches.
func TestObjectsAreShared(t *testing.T) {
	const goroutines, files = 4, 500
	s := NewPassing()
	id, err := buildid.New(buildid.GNU, make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	found := make([][]*Object, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range files {
				o := s.File(reach.Key{Inode: uint64(i)}, procmap.VMA{Name: "/lib/x.so", Inode: uint64(i)}, 0)
				s.Learn(o, id)
				if !o.Facts().Settled {
					t.Errorf("file %d has no identity", i)
				}
				found[g] = append(found[g], o, s.Missing(reason.Reason(i%7)))
			}
		})
	}
	all.Wait()
	defer s.Close()
	for g := range goroutines {
		for i, o := range found[g] {
			if o != found[0][i] || s.All()[o.Index] != o {
				t.Fatalf("goroutine %d has another object %d", g, i)
			}
		}
	}
	if len(s.All()) != files+7 {
		t.Errorf("%d objects", len(s.list))
	}
}

// mapPage maps a page for execution until the test ends.
func mapPage(t *testing.T, fd, flags int) addr.Abs {
	t.Helper()
	b, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return addr.Abs(uintptr(unsafe.Pointer(&b[0])))
}

// TestOverwrittenAndBack has the file of a process that ran before be another one for a while, with its old time put
// back in the end: nobody knows which frames are of which content. One more name of the file is no such change.
func TestOverwrittenAndBack(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, path string)
		want   reason.Reason
	}{
		"overwritten": {func(t *testing.T, path string) {
			was, content := proctest.Stat(t, path), proctest.BuildC(t, proctest.UniqueID())
			for _, from := range []string{content, path + "-copy"} {
				if msg, err := exec.Command("cp", from, path).CombinedOutput(); err != nil {
					t.Fatalf("cp: %v\n%s", err, msg)
				}
			}
			if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{was.Atim, was.Mtim}, 0); err != nil {
				t.Fatal(err)
			}
		}, reason.FileChanged},
		"linked": {func(t *testing.T, path string) {
			if err := os.Link(path, path+"-link"); err != nil {
				t.Fatal(err)
			}
		}, reason.None},
		"removed": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, reason.None},
	} {
		t.Run(name, func(t *testing.T) {
			build := proctest.BuildC(t, proctest.UniqueID())
			path := filepath.Join(t.TempDir(), "library")
			proctest.CopyTo(t, build, path)
			proctest.CopyTo(t, build, path+"-copy")
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			testenv.Need(t, reach.KeepsTimes(f), "a temporary directory on a file system whose times are believed")
			start := mapPage(t, int(f.Fd()), unix.MAP_PRIVATE)
			time.Sleep(2 * fstimes.Delay())
			vmas, err := reach.Mappings(os.Getpid())
			i := slices.IndexFunc(vmas, func(v procmap.VMA) bool { return v.Contains(start) })
			if err != nil || i < 0 {
				t.Fatalf("no mapping: %v", err)
			}
			s := New()
			defer s.Close()
			o := s.OfVMA(vmas[i], &Process{PID: uint32(os.Getpid())})
			s.Stop()
			if want := proctest.FileID(t, build); o.ID != want {
				t.Fatalf("it is %v (%v), want %v", o.ID, o.Why, want)
			}
			test.change(t, path)
			if s.Review(); o.Why != test.want || o.ID.IsZero() != (test.want != reason.None) {
				t.Errorf("it is %v (%v), want the reason %v", o.ID, o.Why, test.want)
			}
		})
	}
}

// TestMemoryWithFiles wants memory that has files which nobody can open known as memory, and files
// that others gave their names not.
func TestMemoryWithFiles(t *testing.T) {
	shared := mapPage(t, -1, unix.MAP_SHARED|unix.MAP_ANON)
	zero, err := os.Open(reach.DevZero)
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	private := mapPage(t, int(zero.Fd()), unix.MAP_PRIVATE)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vmas, err := reach.Mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, v := range vmas {
		want := !v.FileBacked() || v.Contains(shared) || v.Contains(private)
		if want && v.FileBacked() || v.Name == program {
			seen++
		}
		if got := reach.IsMemory(v); got != want {
			t.Errorf("%v is memory: %v", v, got)
		}
		if got := reach.IsMemoryByBPF(&bpf.File{Validity: bpf.Validity{Dev: bpf.Dev(v.Dev), Inode: v.Inode}, Path: strings.TrimSuffix(v.Name, procfs.Deleted)}); got != (want && v.FileBacked()) {
			t.Errorf("%v is memory to BPF: %v", v, got)
		}
	}
	if seen < 3 {
		t.Errorf("only %d of the mappings are there", seen)
	}
	for _, name := range []string{"/dev/zero", "/dev/zero (deleted)", "/anon_hugepage", "/anon_hugepage (deleted)", "/SYSV00000000 (deleted)"} {
		for _, dev := range []procmap.Dev{{Major: 8, Minor: 1}, {Minor: 4000}} { // of a disk, and of a tmpfs
			if v := (procmap.VMA{Name: name, Dev: dev, Inode: 7}); reach.IsMemory(v) {
				t.Errorf("%v is memory", v)
			}
			if reach.IsMemoryByBPF(&bpf.File{Validity: bpf.Validity{Dev: bpf.Dev(dev), Inode: 7}, Path: name}) {
				t.Errorf("%s on %v is memory to BPF", name, dev)
			}
		}
		if v := (procmap.VMA{Name: name}); reach.IsMemory(v) {
			t.Errorf("%s is memory, of which the kernel read a build ID", name)
		}
	}
}

// TestRoomForObjects has the file of a new mapping of a user who has no room left be no object, and files that
// are known, or root's, be the objects that they are.
func TestRoomForObjects(t *testing.T) {
	s := NewPassing()
	defer s.Close()
	const nobody = 1 << 23 // has this number
	known := s.File(reach.Key{Inode: 1}, procmap.VMA{}, nobody)
	s.SetRoom(quota.New(0, 0))
	none := s.File(reach.Key{Inode: 2}, procmap.VMA{}, nobody)
	if none.IsFile() || none.Facts().Why != reason.NotRead || s.Reach(Job{Object: none}) {
		t.Errorf("the file of a user without room: %+v", none.Facts())
	}
	s.Learn(none, buildid.ID{})
	s.Unproven(none, &bpf.Validity{})
	if why := none.Facts().Why; why != reason.NotRead {
		t.Errorf("it has the reason %v then", why)
	}
	if s.File(reach.Key{Inode: 1}, procmap.VMA{}, nobody) != known {
		t.Error("a known file is none any more")
	}
	if !s.File(reach.Key{Inode: 3}, procmap.VMA{}, uint32(os.Getpid())).IsFile() {
		t.Error("a file of this user has no room")
	}
	if g := s.Generated(&Process{PID: nobody, Account: nobody}); g.Code != nil || g.Facts().Why != reason.Anonymous {
		t.Errorf("generated code without room: %+v", g.Facts())
	}
}
