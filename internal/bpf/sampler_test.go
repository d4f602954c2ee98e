package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/fstimes"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// memoryIsBelieved says that temporary files are in memory.
var memoryIsBelieved bool

func TestMain(m *testing.M) {
	play()
	memoryIsBelieved = fstimes.BelieveTemporary()
	goleak.VerifyTestMain(m)
}

// seen is what a Sampler reported.
type seen struct {
	files  map[uint32]File
	ids    map[uint32]buildid.ID
	stacks map[StackID][]Frame
	counts map[StackID]uint64
	owners map[Task]uint64
	pairs  map[pair]uint64
	ends   map[StackID]unwind.End
	copies []*Copy
	spaces map[uint64]*Space
}

// keep returns a copy of c that stays.
func keep(c *Copy) *Copy {
	kept := *c
	kept.Memory = slices.Clone(c.Memory)
	return &kept
}

// pair is what samples are counted by.
type pair struct {
	stack StackID
	owner Task
}

func newSeen() *seen {
	return &seen{
		files: map[uint32]File{}, ids: map[uint32]buildid.ID{}, stacks: map[StackID][]Frame{}, counts: map[StackID]uint64{},
		owners: map[Task]uint64{}, pairs: map[pair]uint64{}, ends: map[StackID]unwind.End{}, spaces: map[uint64]*Space{},
	}
}

func (s *seen) File(f File)                           { s.files[f.Serial] = f }
func (s *seen) Identity(serial uint32, id buildid.ID) { s.ids[serial] = id }
func (s *seen) Stack(id StackID, frames []Frame, end unwind.End) {
	s.stacks[id], s.ends[id] = frames, end
}
func (s *seen) Copy(c *Copy)   { s.copies = append(s.copies, keep(c)) }
func (s *seen) Space(p *Space) { s.spaces[p.ID] = p }

// samples returns how many were counted.
func (s *seen) samples() (n uint64) {
	for _, count := range s.counts {
		n += count
	}
	return n
}

func (s *seen) count(stack StackID, o Task, n uint64) {
	s.counts[stack] += n
	s.owners[o] += n
	s.pairs[pair{stack, o}] += n
}

// newTestSampler loads the programs, where that is possible.
func newTestSampler(t testing.TB, o Options) *Sampler {
	t.Helper()
	testenv.Root(t)
	s, err := NewSampler(o)
	testenv.Need(t, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// sampleSelf samples this thread while it spins.
func sampleSelf(t *testing.T, s *Sampler) *seen {
	t.Helper()
	spinSampled(t, s.Attach)
	got := newSeen()
	if err := s.Counts(got.count); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(got); err != nil {
		t.Fatal(err)
	}
	return got
}

// spinSampled spins while programs take the samples of this thread.
func spinSampled(t *testing.T, attaches ...func(event int) error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: 997,
		Bits:   unix.PerfBitFreq,
	}
	for _, attach := range attaches {
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := attach(fd); err != nil {
			t.Fatal(err)
		}
	}
	spin(300 * time.Millisecond)
}

// spin uses that much time of a CPU, which on a busy machine takes longer.
//
//go:noinline
func spin(d time.Duration) {
	for end := cpuTime() + d; cpuTime() < end; {
		x := sink // not in memory: the race detector would be where the time goes
		for range 1 << 16 {
			x = x*6364136223846793005 + 1
		}
		sink = x
	}
}

var sink uint64

// cpuTime returns what this thread has used.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// TestSamplerKnowsItself wants the frames of this program under its file, its
// offsets and its identity, and the validity that stat reports of it.
func TestSamplerKnowsItself(t *testing.T) {
	s := newTestSampler(t, Options{})
	got := sampleSelf(t, s)
	self, err := buildid.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	var samples, spinning uint64
	for stack, n := range got.counts {
		samples += n
		for _, f := range got.stacks[stack] {
			file, ok := got.files[f.Serial]
			if f.Kind != InFile || !ok || addr.Abs(f.At)-addr.Abs(file.Offset)+file.Start != absOfSpin(f, file) {
				continue
			}
			checkFile(t, file)
			if id := got.ids[f.Serial]; s.TaskWork() && id != self.ID {
				t.Fatalf("the identity is %v, want %v", id, self.ID)
			}
			spinning += n
			break
		}
	}
	// The rest is in the system calls around it, which take long on emulated machines.
	if spinning == 0 && samples > 0 {
		t.Errorf("none of %d samples is in spin: %+v", samples, statsOf(t, s))
	}
	testenv.AtMost(t, "samples that are not in spin", int64(samples-spinning), int64(samples), 0.75)
	checkOwner(t, got)
}

// absOfSpin returns the address that a frame in a file has in this process if it
// is in spin, and 0 else.
func absOfSpin(f Frame, file File) addr.Abs {
	a := file.Start + addr.Abs(f.At) - addr.Abs(file.Offset)
	if fn := runtime.FuncForPC(uintptr(a)); fn != nil && fn.Entry() == reflect.ValueOf(spin).Pointer() {
		return a
	}
	return 0
}

func checkFile(t *testing.T, f File) {
	t.Helper()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(exe, &st); err != nil {
		t.Fatal(err)
	}
	want := Validity{
		Inode:      st.Ino,
		Size:       uint64(st.Size),
		Mtime:      Time{st.Mtim.Sec, uint32(st.Mtim.Nsec)},
		Ctime:      Time{st.Ctim.Sec, uint32(st.Ctim.Nsec)},
		Dev:        Dev{unix.Major(st.Dev), unix.Minor(st.Dev)},
		Generation: f.Generation,
		Medium:     medium(t, f),
		Pinned:     f.Pinned, // the test may have been linked just now
	}
	if f.Validity != want || f.Path != exe || f.PID != uint32(os.Getpid()) {
		t.Fatalf("the file is %+v, stat says %+v of %s", f, want, exe)
	}
}

// medium returns the number of the disk that a file is on, as sysfs has it, and what
// was reported of files that are on none.
func medium(t *testing.T, f File) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/diskseq", f.Dev.Major, f.Dev.Minor))
	if err != nil {
		return f.Medium
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func checkOwner(t *testing.T, got *seen) {
	t.Helper()
	for o := range got.owners {
		if o.PID != uint32(os.Getpid()) || o.Process != filepath.Base(os.Args[0])[:min(15, len(filepath.Base(os.Args[0])))] || o.Started == 0 {
			t.Errorf("samples are of %+v", o)
		}
	}
}

// TestForgottenIsIntroducedAgain takes entries of files out of the table, one by one
// and all at once, and wants another serial number for the same content.
func TestForgottenIsIntroducedAgain(t *testing.T) {
	s := newTestSampler(t, Options{UserOnly: true})
	first := sampleSelf(t, s)
	for _, f := range first.files {
		if err := s.Forget(f); err != nil {
			t.Fatal(err)
		}
	}
	second := sampleAgain(t, s, first)
	if err := s.ForgetAll(); err != nil {
		t.Fatal(err)
	}
	if n := statsOf(t, s).Entries; n != 0 {
		t.Errorf("%d entries are left of all", n)
	}
	sampleAgain(t, s, second)
}

func sampleAgain(t *testing.T, s *Sampler, before *seen) *seen {
	t.Helper()
	if err := s.Resend(); err != nil {
		t.Fatal(err)
	}
	now := sampleSelf(t, s)
	again := 0
	for _, f := range now.files {
		for _, old := range before.files {
			if f.Inode == old.Inode && f.Dev == old.Dev && f.Serial != old.Serial {
				again++
			}
		}
	}
	if again == 0 || len(now.stacks) == 0 {
		t.Errorf("%d files are introduced again, %d stacks sent again", again, len(now.stacks))
	}
	return now
}

// TestKernelFrames wants them when they are wanted.
func TestKernelFrames(t *testing.T) {
	for _, userOnly := range []bool{false, true} {
		s := newTestSampler(t, Options{UserOnly: userOnly, NoTaskWork: true})
		got := sampleSelf(t, s)
		for _, frames := range got.stacks {
			for i, f := range frames {
				if f.Kind >= frameKinds {
					t.Fatalf("frame %d is of kind %d", i, f.Kind)
				}
				if f.Kind == InKernel && userOnly {
					t.Fatal("there are frames of the kernel")
				}
			}
		}
		if len(got.ids) > 0 {
			t.Error("an identity was read without task work")
		}
	}
}

// TestSamplerTimes wants every sample counted by itself, at times between start and end.
func TestSamplerTimes(t *testing.T) {
	s := newTestSampler(t, Options{Times: true})
	before := clock(t)
	got := sampleSelf(t, s)
	after := clock(t)
	n := uint64(0)
	for o, samples := range got.owners {
		if o.Seen < before || o.Seen > after {
			t.Errorf("seen at %d, between %d and %d", o.Seen, before, after)
		}
		n += samples
	}
	if stats, err := s.Stats(); err != nil || n != stats.Samples || uint64(len(got.owners)) != n || n < 20 {
		t.Errorf("%d samples at %d times, of %+v, %v", n, len(got.owners), stats, err)
	}
}

func clock(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return uint64(now.Nano())
}

// TestForgetAll wants every file introduced again, and none under its old number.
func TestForgetAll(t *testing.T) {
	s := newTestSampler(t, Options{})
	first := sampleSelf(t, s)
	if err := errors.Join(s.ForgetAll(), s.Resend()); err != nil {
		t.Fatal(err)
	}
	second := sampleSelf(t, s)
	for serial := range first.files {
		if f, ok := second.files[serial]; ok {
			t.Errorf("file %d came again: %s", serial, f.Path)
		}
	}
	for _, frames := range second.stacks {
		for _, f := range frames {
			if _, ok := second.files[f.Serial]; f.Kind == InFile && !ok {
				t.Errorf("a frame in file %d, which was not introduced again", f.Serial)
			}
		}
	}
	if len(second.stacks) == 0 {
		t.Error("no stacks")
	}
}
