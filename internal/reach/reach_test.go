package reach

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/bpf"
	"hallmark/internal/contentcache"
	"hallmark/internal/elftest"
	"hallmark/internal/fstimes"
	"hallmark/internal/patience"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
)

// TestReadWhileChanged changes a file after it was seen and before its identity is read.
func TestReadWhileChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library")
	become := func(id byte) buildid.ID {
		time.Sleep(fstimes.Delay()) // or two changes may have one time
		file := elftest.File{Sections: []elftest.Section{elftest.NoteSection(".note.gnu.build-id", 0x200, 4, elftest.Notes(binary.LittleEndian, 4, elftest.GNU(bytes.Repeat([]byte{id}, 20))))}}
		if err := os.WriteFile(path, file.Build(), 0o755); err != nil {
			t.Fatal(err)
		}
		made, err := buildid.New(buildid.GNU, bytes.Repeat([]byte{id}, 20))
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	become(1)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	testenv.Need(t, KeepsTimes(f), "a temporary directory on a file system whose times are believed")
	before := StampOf(f)
	changes := 1
	var want buildid.ID
	read := func() Found {
		if changes > 0 {
			changes--
			want = become(byte(2 + changes))
		}
		return identifyOnce(context.Background(), f, false)
	}
	if found := whileUnchanged(f, read); found.ID != want || found.Seen == before || found.Seen != StampOf(f) {
		t.Errorf("%v (%v) at %+v, which was changed from %+v", found.ID, found.Why, found.Seen, before)
	}
	changes = readAttempts
	if found := whileUnchanged(f, read); found.Why != reason.FileWritten || !found.ID.IsZero() {
		t.Errorf("%v (%v) of a file that changes all the time", found.ID, found.Why)
	}
}

// TestWaitForClock wants a change after the wait to have another time than the one before it.
func TestWaitForClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for n := range 30 {
		write := func() bpf.Time {
			if err := os.WriteFile(path, []byte{byte(n)}, 0o755); err != nil {
				t.Fatal(err)
			}
			var st syscall.Stat_t
			if err := syscall.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			return timeOf(st.Ctim)
		}
		first := write()
		waitForClock(&bpf.Validity{Ctime: first})
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			t.Fatal(err)
		}
		if second := write(); second == first || !time.Unix(now.Unix()).After(wall(first)) {
			t.Fatalf("changed at %v, and at %v after the clock said %v", wall(first), wall(second), time.Unix(now.Unix()))
		}
	}
	future := time.Now().Add(time.Hour)
	waitForClock(&bpf.Validity{Ctime: bpf.Time{Sec: future.Unix()}}) // the clock was set back: nothing to wait for
}

// TestHashingHasTwoBudgets has a stranger's file use up what is hashed, and what is read of
// contents, and wants those of a file of this user all the same.
func TestHashingHasTwoBudgets(t *testing.T) {
	testenv.Root(t)
	ctx := contentcache.WithBudgets(t.Context(), buildid.Budget{Bytes: 1 << 20})
	// Not below a directory that others can change.
	dir, err := os.MkdirTemp("/var/lib", "hallmark")
	if err != nil {
		testenv.Lack(t, "%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	read := func(name string, owner, size int) Found {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte(name), size/len(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return Identify(ctx, f, false)
	}
	if found := read("theirs", 65534, 1<<20); found.Why != reason.None {
		t.Fatalf("the stranger's file: %v", found.Why)
	}
	if found := read("more", 65534, 1<<20); found.Why != reason.HashBudget {
		t.Errorf("one more file of the stranger: %v, want %v", found.Why, reason.HashBudget)
	}
	if found := read("ours", 0, 1<<20); found.Why != reason.None || found.ID.Kind() != buildid.ByContent {
		t.Errorf("this user's file: %v (%v)", found.ID, found.Why)
	}
	if found := read("beyond", 0, 1<<20); found.Why != reason.HashBudget {
		t.Errorf("one more file of this user: %v, want %v", found.Why, reason.HashBudget)
	}
}

// TestFilesThatTakeTurns has a process map one file where it mapped another one before. The one of before is
// found by its path, if that is proven to be it.
func TestFilesThatTakeTurns(t *testing.T) {
	dir := t.TempDir()
	paths := map[byte]string{}
	for id := range byte(3) {
		file := elftest.File{Sections: []elftest.Section{elftest.NoteSection(".note.gnu.build-id", 0x200, 4, elftest.Notes(binary.LittleEndian, 4, elftest.GNU(bytes.Repeat([]byte{id}, 20))))}}
		paths[id] = filepath.Join(dir, string('a'+rune(id)))
		if err := os.WriteFile(paths[id], file.Build(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before, now := paths[0], open(t, paths[1])
	testenv.Need(t, KeepsTimes(now), "a temporary directory on a file system whose times are believed")
	mem, err := unix.Mmap(int(now.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	start := addr.Abs(uintptr(unsafe.Pointer(&mem[0])))
	q := Request{
		VMA:      procmap.VMA{Start: start, End: start + addr.Abs(len(mem)), Perm: procmap.Exec, Name: before},
		PID:      uint32(os.Getpid()),
		Validity: validityOf(t, before),
	}
	found := File(t.Context(), q, 0)
	defer found.Close()
	if got := bytes.Repeat([]byte{0}, 20); !found.Proven || !bytes.Equal(found.ID.Bytes(), got) {
		t.Errorf("found %v (%v), proven: %v; want the file of before", found.ID, found.Why, found.Proven)
	}
	if err := os.Rename(paths[2], before); err != nil { // a third one at its path
		t.Fatal(err)
	}
	another := File(t.Context(), q, 0)
	defer another.Close()
	if another.Proven {
		t.Errorf("%v is proven, which is neither mapped nor was", another.ID)
	}
}

// TestLockedProcess wants the file of a process that lets nobody look at its mappings to be the one at its path, where
// what the kernel saw of it proves that, and none otherwise.
func TestLockedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	build := proctest.BuildC(t, proctest.UniqueID())
	proctest.CopyTo(t, build, path)
	v, fs := validityOf(t, path), FileSystemOf(open(t, path))
	isDisk := (fs == unix.EXT4_SUPER_MAGIC || fs == unix.XFS_SUPER_MAGIC) && v.Medium != 0
	testenv.Need(t, isDisk, "a temporary directory on ext4 or xfs on a numbered disk (Linux 5.15)")
	time.Sleep(2 * fstimes.Delay())
	pid, release := os.Getpid(), make(chan struct{})
	defer close(release)
	if o := patience.Try(pid, time.Millisecond, func() { <-release }); o != patience.Silent {
		t.Fatalf("the process lets somebody look: %v", o)
	}
	st := proctest.Stat(t, path)
	vma := procmap.VMA{Start: 0x1000, End: 0x2000, Perm: procmap.Read | procmap.Exec, Name: path}
	number := Number{procmap.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}, st.Ino, uint64(v.Generation)}
	for name, q := range map[string]Request{
		"seen by BPF": {Validity: v},
		"numbered":    {Want: proctest.FileID(t, build), Number: number, Media: CurrentMedia(), Mapped: time.Now()},
	} {
		q.VMA, q.PID = vma, uint32(pid)
		found, _ := Here(t.Context(), q)
		found.Close()
		if isProven := found.Proven || found.Numbered; found.ID != proctest.FileID(t, build) || !isProven {
			t.Errorf("%s: it is %v (%v), proven: %v", name, found.ID, found.Why.Code(), isProven)
		}
		if other := *v; q.Validity != nil {
			other.Inode++
			q.Validity = &other
		}
		if q.Number.Inode++; q.Validity != nil {
			q.Number = Number{}
		}
		if found, _ := Here(t.Context(), q); found.Why != reason.FileUnresponsive || found.MayAnswerAside() {
			t.Errorf("%s: another file is %v (%v)", name, found.ID, found.Why.Code())
			found.Close()
		}
	}
}
