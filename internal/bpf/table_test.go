package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

// spinner is the code of a program that counts down for some milliseconds and exits
// with 0.
var spinner = []byte{
	0xb9, 0x00, 0x00, 0x80, 0x00, // mov $1<<23, %ecx
	0xff, 0xc9, // 1: dec %ecx
	0x75, 0xfc, // jnz 1b
	0xb8, 0x3c, 0x00, 0x00, 0x00, // mov $60, %eax: exit
	0x31, 0xff, // xor %edi, %edi
	0x0f, 0x05, // syscall
}

// spinnerOffset is where the code is in the file.
const spinnerOffset = 64 + 56

// writeSpinner writes an executable file of one segment, without notes.
func writeSpinner(t *testing.T, name string) {
	t.Helper()
	const base = 0x400000
	size := uint64(spinnerOffset + len(spinner))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + spinnerOffset), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
		spinner,
	} {
		if err := binary.Write(&b, binary.LittleEndian, field); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(name, b.Bytes(), 0o700); err != nil {
		t.Fatal(err)
	}
}

// spinners are files to be run while they are sampled.
type spinners struct {
	names  []string
	inodes []uint64
	ran    map[uint32]int // which of them a process ran
}

func newSpinners(t *testing.T, n int) *spinners {
	t.Helper()
	testenv.Need(t, runtime.GOARCH == "amd64", "an x86-64 machine")
	s := &spinners{ran: map[uint32]int{}}
	dir := t.TempDir()
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint("spinner", i))
		writeSpinner(t, name)
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		s.names, s.inodes = append(s.names, name), append(s.inodes, st.Ino)
	}
	return s
}

// run runs one of them to its end. The thread must be the one that is sampled.
func (s *spinners) run(t *testing.T, i int) {
	t.Helper()
	cmd := exec.Command(s.names[i])
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	s.ran[uint32(cmd.Process.Pid)] = i
}

// check wants every frame in a file of the processes that ran to be in the code of
// the very file that it ran. It returns which files there were frames of.
func (s *spinners) check(t *testing.T, got *seen) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	for pair := range got.pairs {
		i, ok := s.ran[pair.owner.PID]
		if !ok || pair.owner.Process != filepath.Base(s.names[i]) {
			continue // before it ran the program
		}
		for _, f := range got.stacks[pair.stack] {
			if f.Kind != InFile {
				continue
			}
			file, ok := got.files[f.Serial]
			if !ok || file.Inode != s.inodes[i] || f.At < spinnerOffset || f.At > spinnerOffset+uint64(len(spinner)) {
				t.Fatalf("%s is sampled at %#x of %+v", s.names[i], f.At, file)
			}
			found[i] = true
		}
	}
	return found
}

// sampled lets a function run on a thread that is sampled with all that it starts.
func sampled(t *testing.T, s *Sampler, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: 3989,
		Bits:   unix.PerfBitFreq | unix.PerfBitInherit,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := s.Attach(fd); err != nil {
		t.Fatal(err)
	}
	f()
}

// take takes what was counted.
func take(t *testing.T, s *Sampler, got *seen) {
	t.Helper()
	if err := s.Counts(got.count); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(got); err != nil {
		t.Fatal(err)
	}
}

func statsOf(t testing.TB, s *Sampler) Stats {
	t.Helper()
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// TestTableMakesRoom runs many files through a small table, and wants all of them to
// be found, each as itself.
func TestTableMakesRoom(t *testing.T) {
	const files = 64
	spinners := newSpinners(t, files)
	s := newTestSampler(t, Options{Entries: 8})
	got := newSeen()
	sampled(t, s, func() {
		for i := range files {
			spinners.run(t, i)
			take(t, s, got)
		}
	})
	found, stats := spinners.check(t, got), statsOf(t, s)
	if len(found) < files*9/10 || stats.Evicted < files/2 || stats.Entries > 8 {
		t.Errorf("%d of %d files were found: %+v", len(found), files, stats)
	}
}

// TestFullTableIsTold runs many files through a small table in which nobody makes
// room, and wants the frames without an entry to say so.
func TestFullTableIsTold(t *testing.T) {
	const files = 40
	spinners := newSpinners(t, files)
	s := newTestSampler(t, Options{Entries: 8})
	sampled(t, s, func() {
		for i := range files {
			spinners.run(t, i)
		}
	})
	got := newSeen()
	take(t, s, got)
	found, stats := spinners.check(t, got), statsOf(t, s)
	var missing uint64
	for stack, n := range got.counts {
		for _, f := range got.stacks[stack] {
			if f.Kind == NoEntry {
				missing += n
			}
		}
	}
	if missing == 0 || len(found) > 8 || missing != stats.TableFull+stats.Refused || stats.LostEvents > 0 {
		t.Errorf("%d frames have no entry, %d of %d files were found: %+v", missing, len(found), files, stats)
	}
}

// TestUsedEntriesStay wants a file that is always in use to keep its entry while many
// others come and go.
func TestUsedEntriesStay(t *testing.T) {
	const files = 48
	spinners := newSpinners(t, files)
	s := newTestSampler(t, Options{Entries: 32})
	got := newSeen()
	sampled(t, s, func() {
		for i := 1; i < files; i++ {
			spinners.run(t, 0)
			take(t, s, got)
			spinners.run(t, i)
		}
	})
	take(t, s, got)
	numbers := map[int]int{}
	for _, f := range got.files {
		for i, inode := range spinners.inodes {
			if f.Inode == inode {
				numbers[i]++
			}
		}
	}
	if stats := statsOf(t, s); numbers[0] != 1 || stats.Evicted == 0 {
		t.Errorf("the file in use has %d serial numbers: %+v", numbers[0], stats)
	}
	spinners.check(t, got)
}

// TestCountsAreComplete takes counts all the time, and wants every sample to be counted
// once or to be reported as lost.
func TestCountsAreComplete(t *testing.T) {
	s := newTestSampler(t, Options{})
	var over atomic.Bool
	result := make(chan *seen)
	sampled(t, s, func() {
		go func() { result <- hammer(t, s, &over) }()
		spin(300 * time.Millisecond)
	})
	over.Store(true)
	got := <-result
	var samples uint64
	for stack, n := range got.counts {
		samples += n
		if got.stacks[stack] == nil {
			t.Errorf("the frames of stack %x are not told", stack)
		}
	}
	if stats := statsOf(t, s); samples == 0 || samples+stats.LostCounts != stats.Samples {
		t.Errorf("%d samples are counted: %+v", samples, stats)
	}
}

// TestSerialNumbersEnd wants no number to be given twice when there are no more.
func TestSerialNumbersEnd(t *testing.T) {
	const last = 0xffff0000 // LAST_SERIAL of filetable.h
	spinners := newSpinners(t, 8)
	s := newTestSampler(t, Options{})
	if err := s.objects.LastSerial.Set(uint64(last - 3)); err != nil {
		t.Fatal(err)
	}
	got := newSeen()
	sampled(t, s, func() {
		for i := range spinners.names {
			spinners.run(t, i)
		}
	})
	take(t, s, got)
	for serial := range got.files {
		if serial <= last-3 || serial > last {
			t.Errorf("serial number %#x was given", serial)
		}
	}
	if stats := statsOf(t, s); len(got.files) != 3 || stats.Refused == 0 {
		t.Errorf("%d files were introduced: %+v", len(got.files), stats)
	}
	spinners.check(t, got)
}

// TestEviction wants a report that the inode of a file is gone, and its entry to be
// the first to make room.
func TestEviction(t *testing.T) {
	spinners := newSpinners(t, 1)
	s := newTestSampler(t, Options{})
	var fs unix.Statfs_t
	if err := unix.Statfs(spinners.names[0], &fs); err != nil {
		t.Fatal(err)
	}
	hooks := s.EvictionHooks()
	testenv.Need(t, hooks == "security_inode_free" || hooks == "lsm/inode_free_security" ||
		hooks != "" && fs.Type == unix.EXT4_SUPER_MAGIC, "a kernel that tells BPF programs which inodes are gone")
	got := newSeen()
	sampled(t, s, func() { spinners.run(t, 0) })
	take(t, s, got)
	if len(spinners.check(t, got)) != 1 {
		t.Fatalf("the file was not sampled: %+v", statsOf(t, s))
	}
	if err := os.Remove(spinners.names[0]); err != nil {
		t.Fatal(err)
	}
	// Whoever records this machine at the same time keeps the file open for a while.
	testenv.Await(t, "that the inode is gone, by "+hooks, func() bool {
		old, err := s.table.oldest()
		if err != nil {
			t.Fatal(err)
		}
		return len(old) > 0 && old[0].time == 0 && statsOf(t, s).Gone > 0
	})
}

// TestMemory wants the kernel's account to grow with the table.
func TestMemory(t *testing.T) {
	small, large := newTestSampler(t, Options{Entries: 1024}), newTestSampler(t, Options{Entries: 65536})
	a, err := small.Memory()
	if err != nil {
		t.Fatal(err)
	}
	b, err := large.Memory()
	if err != nil {
		t.Fatal(err)
	}
	entry := uint64(unsafe.Sizeof(samplerFileEntry{})) + 8
	if a.Table < 1024*entry || b.Table-a.Table < (65536-1024)*entry || b.All-a.All != b.Table-a.Table || a.All < 4<<20 {
		t.Errorf("1,024 entries take %+v, 65,536 take %+v", a, b)
	}
}
