package bpf

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/testenv"
	"hallmark/unwind"
)

// buildStacks builds testdata/stacks.c without frame pointers.
func buildStacks(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "stacks")
	args := []string{"-O2", "-fomit-frame-pointer", "-static-libgcc", "-pthread", "-o", out, "testdata/stacks.c"}
	if msg, err := exec.Command(testenv.Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

// stackKinds are those that stacks.c can make.
var stackKinds = []string{"recursion", "deep", "qsort", "alloca", "aligned", "sparse", "signal", "fault", "thread", "mixed"}

// someKinds are those that a test looks at which loads the programs anew for each: on an
// emulated processor that takes a kernel up to 20 s.
func someKinds() []string {
	if testenv.Emulated() {
		return []string{"signal", "mixed"}
	}
	return stackKinds
}

// A still process has one stack, and keeps it.
type still struct {
	pid, tid int
	vdso     addr.Abs
	stack    []addr.Abs // as libgcc has it, the innermost frame first
}

// startStill runs stacks.c until the test ends.
func startStill(t testing.TB, program, kind string) *still {
	t.Helper()
	cmd := exec.Command(program, kind)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &still{pid: cmd.Process.Pid}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	if s.tid, err = strconv.Atoi(lines.Text()); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	for _, word := range strings.Fields(lines.Text()) {
		at, err := strconv.ParseUint(word, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.stack = append(s.stack, addr.Abs(at))
	}
	vdso, _ := vdsoOf(t, s.pid)
	s.vdso = addr.Abs(vdso)
	return s
}

// sampleThread has programs take samples of a thread until it has used so much time.
func sampleThread(t testing.TB, s *Sampler, tid int, d time.Duration) *seen {
	t.Helper()
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: 1_000_000, // ns
	}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := s.Attach(fd); err != nil {
		t.Fatal(err)
	}
	var used [8]byte
	for time.Duration(*(*uint64)(unsafe.Pointer(&used))) < d {
		time.Sleep(10 * time.Millisecond)
		if _, err := unix.Read(fd, used[:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		t.Fatal(err)
	}
	got := newSeen()
	if err := s.Counts(got.count); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(got); err != nil {
		t.Fatal(err)
	}
	return got
}

// putTables gives the programs the tables of files that were introduced, and of the vdso.
func putTables(t testing.TB, s *Sampler, files map[uint32]File) map[uint32]*unwind.Table {
	t.Helper()
	tables := map[uint32]*unwind.Table{VDSOSerial: vdsoTable(t)}
	for serial, f := range files {
		tables[serial] = tableOf(t, f.Path)
	}
	for serial, table := range tables {
		if err := s.Tables().Put(serial, table); err != nil {
			t.Fatal(err)
		}
	}
	return tables
}

func tableOf(t testing.TB, path string) *unwind.Table {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := unwind.Build(f, unwind.BuildOptions{})
	if err != nil {
		t.Fatal(path, err)
	}
	return table
}

// vdsoOf returns where a process has the vdso.
func vdsoOf(t testing.TB, pid int) (start, end int64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
				t.Fatal(err)
			}
		}
	}
	return start, end
}

// vdsoTable reads this process's own vdso, which is that of all.
func vdsoTable(t testing.TB) *unwind.Table {
	t.Helper()
	start, end := vdsoOf(t, os.Getpid())
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, start); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	table, err := unwind.Build(strings.NewReader(string(image)), unwind.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// absolute returns the addresses of the user's frames of a stack.
func absolute(t testing.TB, frames []Frame, files map[uint32]File, vdso addr.Abs) (at []addr.Abs) {
	t.Helper()
	for _, f := range frames {
		switch {
		case f.Kind == InKernel:
		case f.Kind == InFile:
			file, ok := files[f.Serial]
			if !ok {
				t.Fatalf("a frame in file %d, which was not introduced", f.Serial)
			}
			at = append(at, file.Start+addr.Abs(f.At)-addr.Abs(file.Offset))
		case f.Kind == InVDSO:
			at = append(at, vdso+addr.Abs(f.At))
		default:
			at = append(at, addr.Abs(f.At))
		}
	}
	return at
}

// TestUnwinding compares the stacks of programs that keep no frame pointers with what
// libgcc's unwinder says of them in these programs themselves.
func TestUnwinding(t *testing.T) {
	testenv.Root(t)
	program := buildStacks(t)
	sampler := unwindingSamplers(t)
	for _, kind := range stackKinds {
		t.Run(kind, func(t *testing.T) {
			s := sampler(t)
			process := startStill(t, program, kind)
			first := sampleThread(t, s, process.tid, 20*time.Millisecond)
			if len(first.copies) == 0 {
				if n := first.samples(); n < 5 {
					testenv.Lack(t, "%d samples without tables", n)
				}
				t.Errorf("without tables, no sample is to be finished: %v end as %v", first.counts, first.ends)
			}
			files := first.files
			var second *seen
			for range 3 { // a file may be met anew: it was compiled just now
				putTables(t, s, files)
				second = sampleThread(t, s, process.tid, 200*time.Millisecond)
				if len(second.copies) == 0 {
					break
				}
				maps.Copy(files, second.files)
			}
			if len(second.copies) > 0 {
				t.Errorf("with tables, %d samples are to be finished", len(second.copies))
			}
			checkStill(t, process, second, files)
		})
	}
}

// unwindingSamplers returns what makes a sampler for each subtest. On an emulated processor,
// where a kernel takes longest to check the programs, it is one that forgets what it knew.
func unwindingSamplers(t *testing.T) func(t testing.TB) *Sampler {
	t.Helper()
	if !testenv.Emulated() {
		return func(t testing.TB) *Sampler { return newTestSampler(t, Options{Unwind: true}) }
	}
	s := newTestSampler(t, Options{Unwind: true})
	return func(t testing.TB) *Sampler {
		t.Helper()
		if err := s.ForgetAll(); err != nil {
			t.Fatal(err)
		}
		if err := s.Tables().Remove(VDSOSerial); err != nil {
			t.Fatal(err)
		}
		if err := s.Resend(); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestForking samples a process in the kernel's copying of its memory, which marks all its
// mappings as being changed though none is: its callers are reported nevertheless.
func TestForking(t *testing.T) {
	testenv.Root(t)
	program := buildStacks(t)
	s := newTestSampler(t, Options{Unwind: true, UserOnly: true})
	process := startStill(t, program, "forking")
	putTables(t, s, sampleThread(t, s, process.tid, 20*time.Millisecond).files)
	got := sampleThread(t, s, process.tid, 300*time.Millisecond)
	samples := uint64(0)
	for stack, n := range got.counts {
		samples += n
		for _, f := range got.stacks[stack] {
			if f.Kind == Unstable {
				t.Errorf("%d samples end in mappings that change: %v", n, got.stacks[stack])
			}
		}
	}
	if samples < 100 {
		testenv.Lack(t, "%d samples", samples)
	}
}

// checkStill compares the stacks of a still process with what it says itself. The
// innermost frame is somewhere in a loop.
func checkStill(t *testing.T, process *still, got *seen, files map[uint32]File) {
	t.Helper()
	want, end := process.stack, unwind.Complete
	if len(want) > MaxFrames {
		want, end = want[:MaxFrames], unwind.TooDeep
	}
	var right, all uint64
	for stack, n := range got.counts {
		frames := absolute(t, got.stacks[stack], files, process.vdso)
		all += n
		kernel := len(got.stacks[stack]) - len(frames)
		cut := want[:min(len(want), MaxFrames-kernel)]
		if got.ends[stack] == end && len(frames) > 1 && slices.Equal(frames[1:], cut[1:]) {
			right += n
			continue
		}
		t.Errorf("%d samples: end %d, %v\nwant %d, %v", n, got.ends[stack], frames, end, cut)
	}
	if all == 0 || right != all {
		t.Errorf("%d of %d samples are right", right, all)
	}
}

// processSpace is what user space learned of a process.
type processSpace struct {
	*Space
	tables map[uint32]*unwind.Table
}

// At finds the area of an address.
func (p processSpace) At(a addr.Abs) (unwind.Mapping, bool) {
	for _, area := range p.VMAs {
		if a < area.Start || a >= area.End {
			continue
		}
		m := unwind.Mapping{Start: area.Start, End: area.End, Offset: addr.Offset(uint64(area.Start) - area.Base)}
		switch area.Kind {
		case InFile:
			m.Table = p.tables[area.Serial]
		case InVDSO:
			m.Table = p.tables[VDSOSerial]
		case Generated:
			m.Content = unwind.Generated
		default:
			m.Content = unwind.Unidentified
		}
		return m, true
	}
	return unwind.Mapping{}, false
}

// vdso returns where the vdso begins.
func (s *Space) vdso() addr.Abs {
	for _, a := range s.VMAs {
		if a.Kind == InVDSO {
			return a.Start
		}
	}
	return 0
}

// walkCopy walks a copy from its frame on, at most so many frames.
func walkCopy(c *Copy, space *Space, tables map[uint32]*unwind.Table, most int) (frames []unwind.Frame, end unwind.End) {
	w := unwind.Walker{
		Machine: unwind.X86_64,
		Memory:  &unwind.Stack{Base: c.Start, Bytes: c.Memory, Missing: c.Missing},
		Space:   processSpace{space, tables},
		Entry:   c.Entry,
		Max:     most,
	}
	if stackPointer == unwind.SP {
		w.Machine = unwind.ARM64
	}
	state := unwind.State{IP: c.IP, Exact: c.Exact, Method: unwind.ByRegs, Registers: unwind.Registers{Values: c.Registers, Known: c.Known}}
	end = w.Walk(&state, func(f unwind.Frame) bool {
		frames = append(frames, f)
		return true
	})
	return frames, end
}

// TestAgreement walks the stacks of all samples with package unwind too, from copies of
// their memory, and wants the same of both: every frame, how it was found, and the end.
func TestAgreement(t *testing.T) {
	testenv.Root(t)
	program := buildStacks(t)
	for _, kind := range append([]string{"busy"}, someKinds()...) {
		t.Run(kind, func(t *testing.T) {
			s := newTestSampler(t, Options{Unwind: true, CopyAll: true, UserOnly: true})
			process := startStill(t, program, kind)
			first := sampleThread(t, s, process.tid, 20*time.Millisecond)
			tables := putTables(t, s, first.files)
			second := sampleThread(t, s, process.tid, 200*time.Millisecond)
			compared, unfinished := 0, 0
			for _, c := range second.copies {
				space := second.spaces[c.Space]
				if space == nil {
					space = first.spaces[c.Space]
				}
				if !c.Counted { // a file was met anew, and its table is not there
					unfinished++
					continue
				}
				if space == nil {
					t.Fatalf("a copy of space %d, which was not told", c.Space)
				}
				checkCopy(t, kind, c, second, space, tables, first.files)
				compared++
			}
			if compared == 0 || compared < 9*unfinished {
				t.Errorf("%d copies were compared: %+v", compared, statsOf(t, s))
			}
		})
	}
}

// endOfCopy returns how the walk of a copy may end: one has memory of one stack, while the
// handler of a fault may be on another one than the fault, and at most MaxCopy of it.
func endOfCopy(kind string) unwind.End {
	if kind == "fault" || kind == "deep" {
		return unwind.Unreadable
	}
	return unwind.Complete
}

func checkCopy(t *testing.T, kind string, c *Copy, got *seen, space *Space, tables map[uint32]*unwind.Table, files map[uint32]File) {
	t.Helper()
	frames := got.stacks[c.Stack]
	at := absolute(t, frames, files, space.vdso())
	walked, end := walkCopy(c, space, tables, MaxFrames)
	same := end == got.ends[c.Stack] && len(at) == len(walked)
	if other := endOfCopy(kind); other != unwind.Complete {
		same = same || end == other && len(at) > len(walked)
	}
	for i := range min(len(at), len(walked)) {
		same = same && walked[i].At == at[i] && walked[i].Method == frames[i].Method
	}
	if !same {
		t.Errorf("the programs end with %d: %v\nthe copy with %d: %v", got.ends[c.Stack], at, end, walked)
	}
}

// TestFinished finishes samples that lack a table, and wants what the programs say once
// they have it.
func TestFinished(t *testing.T) {
	testenv.Root(t)
	program := buildStacks(t)
	for _, kind := range someKinds() {
		t.Run(kind, func(t *testing.T) {
			s := newTestSampler(t, Options{Unwind: true, UserOnly: true})
			process := startStill(t, program, kind)
			files := sampleThread(t, s, process.tid, 20*time.Millisecond).files
			tables := putTables(t, s, files)
			for serial, f := range files { // as if only the program's had come
				if filepath.Base(f.Path) != "stacks" {
					if err := s.Tables().Remove(serial); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.Resend(); err != nil {
				t.Fatal(err)
			}
			got := sampleThread(t, s, process.tid, 50*time.Millisecond)
			if kind == "deep" {
				checkStill(t, process, got, files) // it ends before it meets another file
				return
			}
			if len(got.copies) == 0 {
				t.Fatal("no sample is to be finished")
			}
			if kind == "sparse" && got.copies[0].Missing == 0 {
				t.Error("all pages of the stack are there")
			}
			for _, c := range got.copies {
				known := absolute(t, got.stacks[c.Stack], files, process.vdso)
				walked, end := walkCopy(c, got.spaces[c.Space], tables, MaxFrames)
				known[len(known)-1] = walked[0].At // whether handlers return to it is in its table
				for _, f := range walked[1:] {
					known = append(known, f.At)
				}
				want := process.stack[1:]
				if endOfCopy(kind) != unwind.Complete {
					want = want[:min(len(want), len(known)-1)]
				}
				if c.Counted || got.ends[c.Stack] != unwind.NoTable || end != endOfCopy(kind) || !slices.Equal(known[1:], want) {
					t.Errorf("finished with %d: %v\nwant %v", end, known, process.stack)
				}
			}
		})
	}
}
