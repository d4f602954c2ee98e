package bpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// newTestList loads the program where the kernel can have it.
func newTestList(t *testing.T) *List {
	t.Helper()
	testenv.Root(t)
	err := checkKernel()
	testenv.Need(t, err == nil, fmt.Sprintf("a kernel that takes the BPF programs: %v", err))
	l, err := NewList()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
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
func TestListIsWhatProcSays(t *testing.T) {
	l := newTestList(t)
	for range 2 {
		before := map[int][]place{}
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			var pid int
			fmt.Sscan(filepath.Base(dir), &pid)
			before[pid] = codeInText(t, pid)
		}
		taken := takeList(t, l)
		compared := 0
		for pid, want := range before {
			if !slices.Equal(want, codeInText(t, pid)) || len(want) == 0 {
				continue
			}
			if taken[pid] == nil {
				t.Errorf("process %d is missing", pid)
				continue
			}
			compared++
			if got := placesOf(taken[pid]); !slices.Equal(got, want) {
				t.Errorf("process %d:\n got %v\nwant %v", pid, got, want)
			}
		}
		self := taken[os.Getpid()]
		if compared == 0 || self == nil {
			t.Fatalf("%d processes compared, this one: %v", compared, self)
		}
		checkFile(t, self.Code[0].File)
		if exe, err := os.Readlink("/proc/self/exe"); err != nil || self.Code[0].Path != exe {
			t.Errorf("this program is at %s, want %s, %v", self.Code[0].Path, exe, err)
		}
	}
}

// TestListOfManyMappings looks at a process with more mappings than fit into what the
// kernel gives at a time.
func TestListOfManyMappings(t *testing.T) {
	l := newTestList(t)
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
func TestListWithoutFirstThread(t *testing.T) {
	l := newTestList(t)
	pid := startCopy(t, "leaderless")
	// Its mappings are gone a moment before its files, and while it has these the kernel's
	// iterator takes the other threads for more of the same.
	for deadline := time.Now().Add(10 * time.Second); !isZombie(t, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first thread does not end")
		}
	}
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
func TestListWhileProcessesChange(t *testing.T) {
	l := newTestList(t)
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
func TestListTellsContents(t *testing.T) {
	l := newTestList(t)
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

// FuzzListReader reads records that may be anything. What comes out is not more than what
// there was.
func FuzzListReader(f *testing.F) {
	order := binary.NativeEndian
	process, file, area := make([]byte, 40), make([]byte, 104), make([]byte, 40)
	for kind, b := range [][]byte{listedProcess: process, listedFile: file, listedArea: area} {
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
	f.Fuzz(func(t *testing.T, b []byte) {
		r := listReader{processes: map[uint32]*listed{}, files: map[uint64]*Code{}}
		if r.read(b) != nil {
			return
		}
		n := 0
		for i, p := range r.sorted() {
			n += 40 * (1 + len(p.Code))
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
