package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// eachList runs a test with both ways of listing, where the kernel can have them.
func eachList(t *testing.T, test func(*testing.T, *List)) {
	t.Helper()
	testenv.Root(t)
	err := checkKernel()
	testenv.Need(t, err == nil, fmt.Sprintf("a kernel that takes the BPF programs: %v", err))
	l, err := NewList()
	if err != nil {
		t.Fatal(err)
	}
	locked, err := loadLocked()
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]*List{"locked": {locked: locked}, "as it is": l}
	for name, l := range lists {
		t.Run(name, func(t *testing.T) { test(t, l) })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// takeList returns the processes by their numbers, in whose order they must be.
func takeList(t *testing.T, l *List) map[int]*Process {
	t.Helper()
	list, err := l.Take()
	if err != nil {
		t.Fatal(err)
	}
	byPID := map[int]*Process{}
	for i, p := range list {
		if i > 0 && p.PID <= list[i-1].PID {
			t.Fatalf("process %d comes after %d", p.PID, list[i-1].PID)
		}
		byPID[int(p.PID)] = p
	}
	return byPID
}

// TestListIsWhatProcSays compares the mappings of all processes that have the same ones
// before and after with the text in /proc, in a first and in a later look.
func TestListIsWhatProcSays(t *testing.T) { eachList(t, listIsWhatProcSays) }

func listIsWhatProcSays(t *testing.T, l *List) {
	for range 2 {
		var taken map[int]*Process
		compareWithText(t, func() map[int]*Process {
			taken = takeList(t, l)
			return taken
		})
		self := taken[os.Getpid()]
		if self == nil {
			t.Fatal("this process is missing")
		}
		checkFile(t, self.Code[0].File)
		if exe, err := os.Readlink("/proc/self/exe"); err != nil || self.Code[0].Path != exe {
			t.Errorf("this program is at %s, want %s, %v", self.Code[0].Path, exe, err)
		}
	}
}

// TestListOfManyMappings looks at a process with more mappings than fit into what the
// kernel gives at a time.
func TestListOfManyMappings(t *testing.T) { eachList(t, listOfManyMappings) }

func listOfManyMappings(t *testing.T, l *List) {
	f := copyOfSelf(t, nil)
	const n = 3000
	page := os.Getpagesize()
	for range n {
		// All of the same page, so that no two of them become one.
		b, err := syscall.Mmap(int(f.Fd()), int64(page), page, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(b) })
	}
	for range 3 {
		want := codeInText(t, os.Getpid())
		if got := placesOf(takeList(t, l)[os.Getpid()]); !slices.Equal(got, want) || len(got) < n/2 {
			t.Errorf("%d mappings, /proc says %d", len(got), len(want))
		}
	}
}

// TestListWithoutFirstThread looks at a process whose first thread has ended.
func TestListWithoutFirstThread(t *testing.T) { eachList(t, listWithoutFirstThread) }

func listWithoutFirstThread(t *testing.T, l *List) {
	pid := startCopy(t, "leaderless")
	// Its mappings are gone a moment before its files, and while it has these the kernel's
	// iterator takes the other threads for more of the same.
	testenv.Await(t, "the end of the first thread", func() bool { return isZombie(t, pid) })
	p := takeList(t, l)[pid]
	if p == nil || len(p.Code) == 0 {
		t.Fatalf("got %+v", p)
	}
	through := int(p.Code[0].PID)
	if want := codeInText(t, through); through == pid || !slices.Equal(placesOf(p), want) {
		t.Errorf("got %+v through thread %d, want %v", p, through, want)
	}
}

// isZombie reports whether the first thread of a process has ended.
func isZombie(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}

// TestListWhileProcessesChange lists over and over while others start, execute and end,
// and change their mappings. Those that live before and after are there, once and as
// they are.
func TestListWhileProcessesChange(t *testing.T) { eachList(t, listWhileProcessesChange) }

func listWhileProcessesChange(t *testing.T, l *List) {
	stable := []int{os.Getpid(), startCopy(t, "wait"), startCopy(t, "wait")}
	remapping := startCopy(t, "remap")
	steady := codeInText(t, stable[1])
	churn(t)
	for range 60 {
		taken := takeList(t, l)
		for _, pid := range stable {
			if p, want := taken[pid], codeInText(t, pid); p == nil || !slices.Equal(placesOf(p), want) {
				t.Fatalf("process %d: got %+v, want %v", pid, p, want)
			}
		}
		if p := taken[remapping]; p == nil || len(p.Code) < len(steady) {
			t.Fatalf("the process that changes its mappings: %+v", p)
		}
	}
}

// TestListTellsContents replaces a file between two looks, under the same name.
func TestListTellsContents(t *testing.T) { eachList(t, listTellsContents) }

func listTellsContents(t *testing.T, l *List) {
	f := copyOfSelf(t, nil)
	look := func() []Validity {
		t.Helper()
		b, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Munmap(b)
		var found []Validity
		for _, c := range takeList(t, l)[os.Getpid()].Code {
			if c.Path == f.Name() {
				found = append(found, c.Validity)
			}
		}
		return found
	}
	before := look()
	if err := os.Truncate(f.Name(), 1<<20); err != nil {
		t.Fatal(err)
	}
	after := look()
	if len(before) != 1 || len(after) != 1 || before[0] == after[0] || before[0].Inode != after[0].Inode {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// newTestWalk loads the program that goes through the trees of VMAs itself.
func newTestWalk(t *testing.T) *listProgram {
	t.Helper()
	testenv.Root(t)
	err := checkKernel()
	testenv.Need(t, err == nil, fmt.Sprintf("a kernel that takes the BPF programs: %v", err))
	w, err := loadWalk()
	if err != nil {
		t.Fatal(err)
	}
	if w == nil {
		var major, minor int
		var name unix.Utsname
		if err := unix.Uname(&name); err != nil {
			t.Fatal(err)
		}
		fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
		if major > 6 || major == 6 && minor >= 13 {
			t.Fatalf("Linux %d.%d tells when mappings have changed, or is without CONFIG_PER_VMA_LOCK", major, minor)
		}
		t.Skip("before Linux 6.13") // nothing else comes here
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// walkOnce looks at one process once, and reports whether it was at rest.
func walkOnce(t *testing.T, w *listProgram, pid uint32) (*Process, bool) {
	t.Helper()
	r := newListReader()
	if err := w.beginLook(); err != nil {
		t.Fatal(err)
	}
	if err := w.run(inventoryListOrder{Only: pid}, r); err != nil {
		t.Fatal(err)
	}
	p := r.processes[pid]
	if p == nil {
		return nil, false
	}
	return p.Process, true
}

// TestListNeedsNoLock looks at processes that rest: all of them are seen by the walk.
func TestListNeedsNoLock(t *testing.T) {
	w := newTestWalk(t)
	for range 3 {
		pid := startCopy(t, "wait")
		seen := false
		for range 10_000 { // it may not rest yet
			p, ok := walkOnce(t, w, uint32(pid))
			if seen = ok && slices.Equal(placesOf(p), codeInText(t, pid)); seen {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if !seen {
			t.Fatal("a process that rests is not seen")
		}
	}
}

// TestListIsOfOneMoment looks at a process that has always one of two mappings, or both,
// never none. Whoever reads what is around the first one, and later what is around the
// second one, may find none.
func TestListIsOfOneMoment(t *testing.T) {
	w := newTestWalk(t)
	pid := startCopy(t, "alternate")
	const looks = 2000
	seen := 0
	for deadline := time.Now().Add(20 * time.Second); seen < looks && time.Now().Before(deadline); {
		p, ok := walkOnce(t, w, uint32(pid))
		if !ok {
			continue
		}
		seen++
		found := 0
		for _, c := range p.Code {
			if c.Start == lowPlace || c.Start == highPlace {
				found++
			}
		}
		if found == 0 || len(p.Code) < manyBetween {
			t.Fatalf("look %d: of %d mappings %d are the ones that change: %v", seen, len(p.Code), found, placesOf(p))
		}
	}
	var changed uint64
	if err := w.changed.Get(&changed); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d looks; mappings had changed %d times while they were read", seen, changed); seen == 0 {
		testenv.Lack(t, "the process is never at rest")
	}
}

// TestListLeavesTheRestless lists a process that is never believed to rest in the other way.
func TestListLeavesTheRestless(t *testing.T) {
	l := &List{walk: newTestWalk(t)}
	l.walk.patience = 0
	defer func() {
		if err := l.locked.close(); err != nil {
			t.Error(err)
		}
	}()
	startCopy(t, "alternate")
	pid := startCopy(t, "wait")
	for range 200 {
		p := takeList(t, l)[pid]
		if want := codeInText(t, pid); p == nil || !slices.Equal(placesOf(p), want) {
			t.Fatalf("got %+v, want %v", p, want)
		}
		if l.locked != nil {
			return
		}
	}
	t.Log("nobody was seen while mappings changed")
}

// TestListReaderLooksAgain reads that a process was not at rest, and that there is more of it.
func TestListReaderLooksAgain(t *testing.T) {
	record := func(words ...uint64) []byte {
		var b []byte
		for _, w := range words {
			b = binary.NativeEndian.AppendUint64(b, w)
		}
		return b
	}
	kind := func(kind, size uint64) uint64 { return kind | size<<32 }
	file := append(record(kind(listedFile, 104), 0, 1), make([]byte, 80)...)
	code := func(tgid, exec, from, start uint64) []byte {
		return record(kind(listedCode, 56+32), tgid|tgid<<32, 5, exec, from, 0, 0, start, start+0x1000, 0, 1)
	}
	again := func(tgid, busy, exec, from uint64) []byte {
		return record(kind(listedAgain, 32), tgid|busy<<32, exec, from)
	}
	r := newListReader()
	read := func(records ...[]byte) {
		t.Helper()
		r.begin()
		if err := r.read(slices.Concat(records...)); err != nil {
			t.Fatal(err)
		}
	}
	read(file, code(7, 1, 0, 0x1000), again(7, 0, 1, 0x3000), again(8, 1, 0, 0), code(9, 1, 0, 0x1000), code(9, 1, 0, 0x5000), again(9, 1, 1, 0))
	if len(r.again) != 2 || r.again[7].From != 0x3000 || r.again[8].Busy != 1 || len(r.processes) != 2 || len(r.processes[9].Code) != 1 {
		t.Fatalf("%+v %+v", r.again, r.processes)
	}
	clear(r.again)
	read(code(7, 1, 0x3000, 0x3000))
	if p := r.processes[7]; len(p.Code) != 2 || p.Code[1].Start != 0x3000 {
		t.Errorf("more of a process: %+v", p.Process)
	}
	read(code(7, 2, 0, 0x9000), again(9, 1, 1, 0))
	if p := r.processes[7]; len(p.Code) != 1 || p.Code[0].Start != 0x9000 {
		t.Errorf("another program: %+v", p.Process)
	}
	if r.processes[9] != nil || len(r.again) != 1 {
		t.Errorf("a process that is to be looked at again is %+v", r.processes[9])
	}
}

// FuzzListReader reads records that may be anything. What comes out is not more than what
// there was.
func FuzzListReader(f *testing.F) {
	order := binary.NativeEndian
	process, file, area, code, again := make([]byte, 40), make([]byte, 104), make([]byte, 40), make([]byte, 88), make([]byte, 32)
	for kind, b := range [][]byte{listedProcess: process, listedFile: file, listedArea: area, listedCode: code, listedAgain: again} {
		if len(b) > 0 {
			order.PutUint32(b, uint32(kind))
			order.PutUint32(b[4:], uint32(len(b)))
		}
	}
	order.PutUint32(file[8:], 7)
	copy(file[96:], "a\x00tmp\x00")
	order.PutUint64(area[16:], 1)
	f.Add(slices.Concat(process, file, area))
	f.Add(area)
	f.Add(slices.Concat(file, code, again))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newListReader()
		if r.read(b) != nil {
			return
		}
		n := 0
		for i, p := range r.taken() {
			n += 40 + 32*len(p.Code)
			for j, c := range p.Code {
				if j > 0 && c.Start < p.Code[j-1].End && p.Code[j-1].Start < p.Code[j-1].End {
					t.Errorf("process %d: %v lies upon %v", i, c, p.Code[j-1])
				}
			}
		}
		if n > len(b) {
			t.Errorf("%d bytes became %d", len(b), n)
		}
	})
}

// TestLongList wants a list with too many mappings to be given up.
func TestLongList(t *testing.T) {
	r := newListReader()
	r.files[1] = new(Code)
	r.current = &listed{Process: new(Process)}
	r.listed = maxListed - 1
	if err := r.add(1, 1, 2, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.add(1, 2, 3, 0); !errors.Is(err, ErrLongList) {
		t.Errorf("got %v, want %v", err, ErrLongList)
	}
}
