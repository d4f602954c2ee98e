package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// newTestExecWatcher loads the programs, where that is possible.
func newTestExecWatcher(t *testing.T, o ExecOptions) *ExecWatcher {
	t.Helper()
	testenv.Root(t)
	w, err := NewExecWatcher(o)
	testenv.Need(t, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// told is what an ExecWatcher reported.
type told struct {
	files map[uint32]File
	ids   map[uint32]buildid.ID
	execs []*Exec
	exits []*Exit
	ended []*Ended
}

func newTold() *told { return &told{files: map[uint32]File{}, ids: map[uint32]buildid.ID{}} }

func (s *told) File(f File)                           { s.files[f.Serial] = f }
func (s *told) Identity(serial uint32, id buildid.ID) { s.ids[serial] = id }
func (s *told) Exit(e *Exit)                          { s.exits = append(s.exits, clone(e)) }
func (s *told) Ended(e *Ended)                        { s.ended = append(s.ended, clone(e)) }
func (s *told) Exec(e *Exec) {
	e = clone(e)
	e.Args = bytes.Clone(e.Args)
	s.execs = append(s.execs, e)
}

func clone[T any](p *T) *T { v := *p; return &v }

// readUntil reads until something is there.
func (s *told) readUntil(t *testing.T, w *ExecWatcher, what string, seen func() bool) {
	t.Helper()
	for wait := testenv.BeginWait(); ; time.Sleep(time.Millisecond) {
		if err := w.Read(s); err != nil {
			t.Fatal(err)
		}
		if seen() {
			return
		}
		if !wait.Over() {
			continue
		}
		// The programs run with the process: an event that they emitted by then was lost, if it
		// is not here. A process that still waits for a CPU has emitted none.
		if stats, err := w.Stats(); err != nil || stats.LostExecs+stats.LostExits+stats.LostEnds > 0 {
			t.Fatalf("%s does not come: %+v, %v", what, stats, err)
		}
		wait.Lack(t, "%s does not come", what)
	}
}

// readEnded reads the events of processes that this one has waited for, until seen reports true.
// The programs run with those processes: the ring has all their events by then, and an event
// that has not come when the ring is empty is lost.
func (s *told) readEnded(t *testing.T, w *ExecWatcher, what string, seen func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := w.Read(s); err != nil {
			t.Fatal(err)
		}
		if seen() {
			return
		}
		if w.reader.AvailableBytes() == 0 { // else another process is writing
			stats, err := w.Stats()
			t.Fatalf("%s is lost: %+v, %v", what, stats, err)
		}
	}
	testenv.Lack(t, "%s does not come", what)
}

// tinyProgram returns the smallest program that can be: it ends at once with a status, or
// never if that is negative. Its build ID is of 20 times this byte.
func tinyProgram(t *testing.T, id byte, status int) []byte {
	t.Helper()
	var code []byte
	switch {
	case runtime.GOARCH == "amd64" && status < 0:
		code = []byte{0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7} // pause, and again
	case runtime.GOARCH == "amd64":
		code = []byte{0xb8, 231, 0, 0, 0, 0xbf, byte(status), 0, 0, 0, 0x0f, 0x05} // exit_group
	case runtime.GOARCH == "arm64" && status < 0:
		code = binary.LittleEndian.AppendUint32(nil, 0x14000000) // b .
	case runtime.GOARCH == "arm64":
		for _, instruction := range []uint32{0xd2800000 | uint32(status)<<5, 0xd2800bc8, 0xd4000001} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
	default:
		t.Skip("no program of " + runtime.GOARCH)
	}
	const base, notes, text = 0x400000, 64 + 2*56, 64 + 2*56 + 36
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1,
		Entry: base + text, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2,
	}
	size := uint64(text + len(code))
	segments := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Filesz: size, Memsz: size, Align: 0x10000},
		{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: notes, Vaddr: base + notes, Filesz: 36, Memsz: 36, Align: 4},
	}
	var b bytes.Buffer
	for _, part := range []any{&header, segments, []uint32{4, 20, 3}, []byte("GNU\x00"), bytes.Repeat([]byte{id}, 20), code} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func tinyID(t *testing.T, id byte) buildid.ID {
	t.Helper()
	want, err := buildid.New(buildid.GNU, bytes.Repeat([]byte{id}, 20))
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// writeTiny writes such a program into a file.
func writeTiny(t *testing.T, id byte, status int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tiny")
	if err := os.WriteFile(name, tinyProgram(t, id, status), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// identifies reports whether the kernel reads the identities of all programs. The hook where
// files are mapped is not there any more when a program maps nothing after its code.
func (w *ExecWatcher) identifies() bool { return w.taskWork }

// execution returns what a process executed last, which this one has waited for, and wants its
// identity. The watcher has to report exits: what a process executed is reported before its end, and
// so is an identity that the process read before it ran.
func (s *told) execution(t *testing.T, w *ExecWatcher, pid int, id buildid.ID) *Exec {
	t.Helper()
	last := s.last(t, w, pid)
	switch have, read := s.ids[last.Program.Serial]; {
	case last.Program.Kind != InFile:
		t.Fatalf("process %d has executed %s, which is no file with a serial number: %+v", pid, last.Path, last.Program)
	case read && have != id, !read && w.identifies():
		t.Fatalf("process %d has executed %s, of which the kernel read the identity %q; want %q", pid, last.Path, have, id)
	}
	if _, ok := s.files[last.Program.Serial]; !ok {
		t.Errorf("the program of %+v was not introduced", last)
	}
	return last
}

// last returns what a process executed last, which this one has waited for.
func (s *told) last(t *testing.T, w *ExecWatcher, pid int) *Exec {
	t.Helper()
	s.readEnded(t, w, fmt.Sprintf("the end of process %d", pid), func() bool {
		return slices.ContainsFunc(s.exits, func(e *Exit) bool { return int(e.PID) == pid })
	})
	var last *Exec
	for _, e := range s.execs {
		if int(e.PID) == pid {
			last = e
		}
	}
	if last == nil {
		stats, err := w.Stats()
		t.Fatalf("nothing is told of what process %d executed: %+v, %v", pid, stats, err)
	}
	return last
}

// marksMappings reports whether the kernel distinguishes the mappings of a process: since 6.4.
func marksMappings(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var area *btf.Struct
	if err := kernel.TypeByName("vm_area_struct", &area); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(area.Members, func(m btf.Member) bool { return m.Name == "vm_lock_seq" })
}

// execRole says, in the environment, what this program is to do in a test.
const execRole = "HALLMARK_TEST_EXEC"

func init() {
	file := os.Getenv("HALLMARK_TEST_FILE")
	switch os.Getenv(execRole) {
	case "mount": // a file system that nobody else sees
		program, err := os.ReadFile(file)
		must(err)
		must(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
		must(syscall.Mount("tmpfs", filepath.Dir(file), "tmpfs", 0, ""))
		must(os.WriteFile(file+"-hidden", program, 0o755))
		must(syscall.Exec(file+"-hidden", []string{"hidden"}, nil))
	case "thread": // executes in a thread that is not the first one
		for {
			go func() {
				runtime.LockOSThread()
				if syscall.Gettid() != os.Getpid() {
					must(syscall.Exec(file, []string{fmt.Sprint(syscall.Gettid())}, nil))
				}
				select {}
			}()
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}

// execScene is a way to have a program executed, and what is to be reported of it besides its
// identity.
type execScene struct {
	name   string
	memory bool // the file is on a file system whose times mean nothing
	start  func(t *testing.T, program string) *exec.Cmd
	check  func(t *testing.T, e *Exec, program string)
}

var execScenes = []execScene{
	{"plain", false, func(t *testing.T, program string) *exec.Cmd { return exec.Command(program, "a", "", "b\nc\xff") },
		func(t *testing.T, e *Exec, program string) {
			if string(e.Args) != program+"\x00a\x00\x00b\nc\xff\x00" || e.ArgsCut || e.File != program || e.Script || e.Deleted || e.Name != "tiny" {
				t.Errorf("%+v", e)
			}
			if e.PPID != uint32(os.Getpid()) || e.TID != e.PID || e.UID != uint32(os.Getuid()) || e.Interpreter != e.Program {
				t.Errorf("%+v", e)
			}
		}},
	{"long", false, func(t *testing.T, program string) *exec.Cmd {
		return exec.Command(program, strings.Repeat("x", 3000), strings.Repeat("y", 3000))
	}, func(t *testing.T, e *Exec, program string) {
		want := program + "\x00" + strings.Repeat("x", 3000) + "\x00" + strings.Repeat("y", 3000)
		if !e.ArgsCut || string(e.Args) != want[:4096] {
			t.Errorf("%d bytes of arguments, cut %v", len(e.Args), e.ArgsCut)
		}
	}},
	{"memfd", true, func(t *testing.T, program string) *exec.Cmd {
		fd, err := unix.MemfdCreate("tiny in memory", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		memory := os.NewFile(uintptr(fd), "memfd")
		t.Cleanup(func() { memory.Close() })
		b, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := memory.Write(b); err != nil {
			t.Fatal(err)
		}
		return inherit(memory)
	}, func(t *testing.T, e *Exec, _ string) {
		if e.Path != "/memfd:tiny in memory" || !e.Deleted {
			t.Errorf("%+v", e)
		}
	}},
	{"deleted", false, func(t *testing.T, program string) *exec.Cmd {
		f, err := os.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		return inherit(f)
	}, func(t *testing.T, e *Exec, program string) {
		if e.Path != program || !e.Deleted {
			t.Errorf("%+v", e)
		}
	}},
	{"mount namespace", true, func(t *testing.T, program string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), execRole+"=mount", "HALLMARK_TEST_FILE="+program)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return cmd
	}, func(t *testing.T, e *Exec, program string) {
		if e.Path != program+"-hidden" || e.Count < 2 || string(e.Args) != "hidden\x00" {
			t.Errorf("%+v", e)
		}
	}},
	{"chroot", false, func(t *testing.T, program string) *exec.Cmd {
		cmd := exec.Command("/tiny")
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: filepath.Dir(program)}
		return cmd
	}, func(t *testing.T, e *Exec, program string) {
		if e.Path != program || e.File != "/tiny" {
			t.Errorf("%+v", e)
		}
	}},
	{"PID namespace", false, func(t *testing.T, program string) *exec.Cmd {
		cmd := exec.Command(program)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		return cmd
	}, nil},
	{"script", false, func(t *testing.T, program string) *exec.Cmd { return exec.Command(script(t, program+" x"), "y") },
		func(t *testing.T, e *Exec, program string) {
			if !e.Script || e.Interp != program || e.Path != program || string(e.Args) != program+"\x00x\x00"+e.File+"\x00y\x00" {
				t.Errorf("%+v", e)
			}
		}},
	{"script of a script", false, func(t *testing.T, program string) *exec.Cmd { return exec.Command(script(t, script(t, program))) },
		func(t *testing.T, e *Exec, program string) {
			if !e.Script || e.Interp != program || e.Path != program || e.File == program {
				t.Errorf("%+v", e)
			}
		}},
	{"thread", false, func(t *testing.T, program string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), execRole+"=thread", "HALLMARK_TEST_FILE="+program)
		return cmd
	}, func(t *testing.T, e *Exec, _ string) {
		if e.TID == e.PID || string(e.Args) != fmt.Sprintf("%d\x00", e.TID) {
			t.Errorf("%+v", e)
		}
	}},
	{"setuid", false, func(t *testing.T, program string) *exec.Cmd {
		if err := errors.Join(os.Chown(program, 12345, 54321), syscall.Chmod(program, 0o6755)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		cmd := inherit(f)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd
	}, func(t *testing.T, e *Exec, _ string) {
		if e.UID != 65534 || e.GID != 65534 || e.EUID != 12345 || e.EGID != 54321 {
			t.Errorf("%+v", e)
		}
	}},
}

// TestExecIdentities executes programs that are gone at once, wherever their files are, and
// wants the kernel to have read the identity of each. Where neither the times of a file nor the
// kernel say what a mapping is of, it wants the program to be reported as such.
func TestExecIdentities(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	marks := marksMappings(t)
	for i, s := range execScenes {
		t.Run(s.name, func(t *testing.T) {
			got := newTold()
			id := byte(0x10 + i)
			program := writeTiny(t, id, 7)
			cmd := s.start(t, program)
			var status *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &status) || status.ExitCode() != 7 {
				t.Fatal(err)
			}
			var e *Exec
			if s.memory && !marks && !memoryIsBelieved {
				if e = got.last(t, w, cmd.Process.Pid); e.Program.Kind != Unread {
					t.Errorf("%s is told as %+v", e.Path, e.Program)
				}
			} else {
				e = got.execution(t, w, cmd.Process.Pid, tinyID(t, id))
			}
			if s.check != nil {
				s.check(t, e, program)
			}
		})
	}
}

// inherit returns a command that executes an open file.
func inherit(f *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	return cmd
}

// script writes a script for an interpreter.
func script(t *testing.T, interpreter string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(name, []byte("#!"+interpreter+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestExecOwn executes this program, that has an interpreter or none.
func TestExecOwn(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	got := newTold()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"=exit")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	e := got.execution(t, w, cmd.Process.Pid, ownIdentity(t))
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	loaded := slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if loaded != (e.Interpreter != e.Program) || e.Interpreter.Kind != InFile {
		t.Errorf("%+v, and the program has an interpreter: %v", e, loaded)
	}
}

// TestExecThatFails wants no event where nothing is executed.
func TestExecThatFails(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	got := newTold()
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/nonexistent/program", damaged, script(t, "/nonexistent/interpreter")} {
		if err := exec.Command(name).Run(); err == nil {
			t.Errorf("%s was executed", name)
		}
	}
	last := exec.Command(writeTiny(t, 1, 0))
	if err := last.Run(); err != nil {
		t.Fatal(err)
	}
	got.execution(t, w, last.Process.Pid, tinyID(t, 1))
	for _, e := range got.execs {
		if e.PPID == uint32(os.Getpid()) && int(e.PID) != last.Process.Pid {
			t.Errorf("%+v", e)
		}
	}
}

// TestExecExits compares with what wait reports.
func TestExecExits(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	for _, status := range []int{0, 1, 255, -1} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			got := newTold()
			cmd := exec.Command(writeTiny(t, 2, status))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if status < 0 {
				cmd.Process.Kill()
			}
			cmd.Wait()
			pid := uint32(cmd.Process.Pid)
			var e *Exit
			got.readEnded(t, w, "the end", func() bool {
				i := slices.IndexFunc(got.exits, func(e *Exit) bool { return e.PID == pid })
				if i >= 0 {
					e = got.exits[i]
				}
				return i >= 0
			})
			if want := cmd.ProcessState.Sys().(syscall.WaitStatus); syscall.WaitStatus(e.Status) != want {
				t.Errorf("status %#x, wait tells %#x", e.Status, want)
			}
			if e.PPID != uint32(os.Getpid()) || e.Name != "tiny" || e.Time < sinceBootOf(t, e.Started) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// sinceBootOf turns a time of CLOCK_BOOTTIME into one of CLOCK_MONOTONIC. They are the same
// where the machine did not sleep.
func sinceBootOf(t *testing.T, started uint64) uint64 {
	t.Helper()
	ahead := int64(math.MinInt64)
	for range 5 { // this thread may have to wait for a CPU between the two
		var monotonic, boot unix.Timespec
		if err := errors.Join(unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot), unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic)); err != nil {
			t.Fatal(err)
		}
		ahead = max(ahead, boot.Nano()-monotonic.Nano())
	}
	return started - uint64(ahead)
}

// TestExecWake wants what ends to wake nobody who does not wait for it, and to wake who does.
func TestExecWake(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Follow: true, Exits: true})
	if err := w.Follow(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	cat := testenv.Tool(t, "cat")
	woken := newEdge(t, w.Descriptor())
	got := newTold()
	for i, test := range []struct {
		wake     bool
		patience int // ms
	}{{false, 0}, {true, int(testenv.Patience.Milliseconds())}, {false, 0}} {
		if err := w.Wake(test.wake); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(cat)
		in, err := cmd.StdinPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		got.readUntil(t, w, "the execution", func() bool { return len(got.execs) > i })
		woken(0) // by that
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		if have := woken(test.patience); have != test.wake {
			t.Errorf("woken: %v, with Wake(%v)", have, test.wake)
		}
		got.readEnded(t, w, "the end", func() bool { return len(got.exits) > i })
	}
}

// TestExecFills wants who waits for nothing to be woken all the same before events are lost.
func TestExecFills(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Follow: true, Ring: 1 << 16})
	if err := errors.Join(w.Follow(uint32(os.Getpid())), w.Wake(false)); err != nil {
		t.Fatal(err)
	}
	program := testenv.Tool(t, "true")
	live := func() {
		if err := exec.Command(program, strings.Repeat("x", 1000)).Run(); err != nil {
			t.Fatal(err)
		}
	}
	got := newTold()
	live() // a file that was never seen wakes
	got.readEnded(t, w, "the execution", func() bool { return len(got.execs) > 0 })
	woken := newEdge(t, w.Descriptor())
	for n := 1; !woken(0); n++ {
		if live(); n == 100 {
			t.Fatal("nobody was woken")
		}
	}
	if err := w.Read(got); err != nil {
		t.Fatal(err)
	}
	stats, err := w.Stats()
	if n := len(got.execs); n < 20 || stats.LostExecs > 0 || err != nil {
		t.Errorf("%d executions told, %+v, %v", n, stats, err)
	}
}

// newEdge returns what reports whether a descriptor with something to read was woken since it
// was called last, or is within some milliseconds.
func newEdge(t *testing.T, fd int) func(timeout int) bool {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(epoll) })
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		t.Fatal(err)
	}
	return func(timeout int) bool {
		for {
			n, err := unix.EpollWait(epoll, make([]unix.EpollEvent, 1), timeout)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		}
	}
}

// TestExecCPU compares the time that a process has run with what wait reports. It runs long
// enough before it executes its last program for the scheduler to have counted that.
//
// The time that it has run in all is reported on the CPU that happens to free it, in whatever process that
// runs. There are kernels that leave BPF programs out, and count nothing, while certain
// processes run, such as the agent of a sandbox: so more than one may be without it.
func TestExecCPU(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Exits: true})
	got := newTold()
	busy := `i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; exec "$0"`
	var cmd *exec.Cmd
	var cpu time.Duration
	for n := 1; cpu == 0; n++ {
		if n > 20 {
			testenv.Lack(t, "of %d processes it was not told what they have run", n-1)
		}
		cmd = exec.Command(testenv.Tool(t, "sh"), "-c", busy, testenv.Tool(t, "true"))
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		patience := time.Now().Add(2 * time.Second)
		got.readUntil(t, w, "the end", func() bool {
			for _, e := range got.ended {
				if int(e.PID) == cmd.Process.Pid {
					cpu = time.Duration(e.CPU)
				}
			}
			return cpu != 0 || time.Now().After(patience)
		})
	}
	var before []time.Duration // each program of its
	for _, e := range got.execs {
		if int(e.PID) == cmd.Process.Pid {
			before = append(before, time.Duration(e.CPU))
		}
	}
	if len(before) != 2 || before[0] >= before[1] || before[1] >= cpu {
		t.Errorf("of %v, %v before it executed its programs", cpu, before)
	}
	// The times of wait are scaled from ticks where the kernel counts these.
	if want := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); cpu < want/2 || cpu > 2*want+10*time.Millisecond {
		t.Errorf("it has run %v, wait tells %v", cpu, want)
	}
}

// TestExecFollow wants reports of what is followed and of nothing else.
func TestExecFollow(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Follow: true, Exits: true})
	tiny := writeTiny(t, 3, 0)
	if err := exec.Command(tiny).Run(); err != nil {
		t.Fatal(err)
	}
	if err := w.Follow(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	got := newTold()
	cmd := exec.Command(tiny)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	got.readEnded(t, w, "the end", func() bool { return len(got.exits) > 0 })
	if len(got.execs) != 1 || int(got.execs[0].PID) != cmd.Process.Pid || len(got.exits) != 1 || int(got.exits[0].PID) != cmd.Process.Pid {
		t.Errorf("%+v", got)
	}
}

// TestExecMany executes programs faster than anybody can look at them.
func TestExecMany(t *testing.T) {
	const atOnce, programs = 4, 3
	count := 2000
	if testenv.Emulated() {
		count = 400
	}
	// There is room for all of it, so that nothing is lost whenever it is read.
	w := newTestExecWatcher(t, ExecOptions{Follow: true, Exits: true, Ring: 1 << 24})
	if err := w.Follow(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	got := newTold()
	var names []string
	for i := range programs {
		names = append(names, writeTiny(t, byte(0x50+i), i))
	}
	var mu sync.Mutex
	want := map[uint32]byte{}
	var starters sync.WaitGroup
	for n := range atOnce {
		starters.Go(func() {
			for i := n; i < count; i += atOnce {
				p, err := os.StartProcess(names[i%programs], []string{"tiny"}, new(os.ProcAttr))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[uint32(p.Pid)] = byte(0x50 + i%programs)
				mu.Unlock()
				p.Wait()
			}
		})
	}
	done := make(chan struct{})
	go func() { starters.Wait(); close(done) }()
	for over := false; !over; time.Sleep(time.Millisecond) {
		if err := w.Read(got); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	stats, err := w.Stats()
	if err != nil || stats.LostExecs+stats.LostExits+stats.LostEnds > 0 { // Uncertain ones are looked for below
		t.Errorf("%+v, %v", stats, err)
	}
	missed := int(stats.LostExecs)
	got.readEnded(t, w, "the last one", func() bool { return len(got.execs)+missed >= len(want) })
	stats, err = w.Stats()
	if err != nil || stats.LostExecs+stats.LostExits+stats.LostEnds > 0 { // Uncertain ones are looked for below
		t.Errorf("%+v, %v", stats, err)
	}
	execs, exits := map[uint32]*Exec{}, map[uint32]*Exit{}
	for _, e := range got.execs {
		if e.PPID == uint32(os.Getpid()) { // other processes may get the numbers of those that ended
			execs[e.PID] = e
		}
	}
	for _, e := range got.exits {
		if x := execs[e.PID]; x != nil && x.Started == e.Started {
			exits[e.PID] = e
		}
	}
	shared, unread := map[uint32]int{}, int64(0)
	for _, e := range execs {
		shared[e.Program.Serial]++
	}
	for pid, id := range want {
		e := execs[pid]
		switch {
		case e == nil:
			t.Errorf("process %d was not told", pid)
			continue
		case w.identifies() && got.ids[e.Program.Serial].IsZero() && shared[e.Program.Serial] == 1:
			unread++
			t.Logf("process %d: nobody has read the identity: %+v, %+v, %+v", pid, e, got.files[e.Program.Serial], stats)
		case w.identifies() && got.ids[e.Program.Serial] != tinyID(t, id):
			t.Errorf("process %d has the identity %v: %+v, %+v, %+v", pid, got.ids[e.Program.Serial], e, got.files[e.Program.Serial], stats)
		}
		switch {
		case exits[pid] == nil || syscall.WaitStatus(exits[pid].Status).ExitStatus() != int(id-0x50):
			t.Errorf("process %d: %+v", pid, exits[pid])
		}
	}
	if testenv.TooMany(unread, int64(len(shared)), unreadShare) {
		t.Errorf("nobody has read %d of %d identities", unread, len(shared))
	}
}

// unreadShare is how many of the identities that one execution asks for may be read by nobody: the
// kernel asks for task work by an interrupt of its own, and a process may have ended when that comes.
// It was seen once in 2,000 identities, of a file that had just been written; package capture opens the
// file of such a program.
const unreadShare = 1e-3

// TestExecAtOnce executes files for the first time on several CPUs at once, while their times
// are too young to show another content: what vouches for each is then another process.
func TestExecAtOnce(t *testing.T) {
	rounds := 500
	if testenv.Thorough() {
		rounds = 25_000
	}
	if testenv.Emulated() {
		rounds /= 5
	}
	for _, noTaskWork := range []bool{false, true} {
		if noTaskWork && !HasTaskWork() {
			continue // it is without anyhow
		}
		t.Run(fmt.Sprintf("NoTaskWork=%v", noTaskWork), func(t *testing.T) {
			w := newTestExecWatcher(t, ExecOptions{NoTaskWork: noTaskWork})
			tiny := filepath.Join(t.TempDir(), "tiny")
			var unread, asked int64
			for n := range rounds {
				if err := os.WriteFile(tiny, tinyProgram(t, byte(n), 0), 0o755); err != nil {
					t.Fatal(err)
				}
				u, a := w.executeAtOnce(t, tiny, tinyID(t, byte(n)), n)
				unread, asked = unread+u, asked+a
				if err := os.Remove(tiny); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("nobody has read %d of %d identities; %s", unread, asked, w.counters())
			if testenv.TooMany(unread, asked, unreadShare) {
				t.Errorf("nobody has read %d of %d identities", unread, asked)
			}
		})
	}
}

// executeAtOnce has four processes execute a program, and wants a report of each at once. It
// returns how many entries were made for them, and how many of these nobody has read.
func (w *ExecWatcher) executeAtOnce(t *testing.T, program string, id buildid.ID, round int) (unread, entries int64) {
	t.Helper()
	pids := startAtOnce(t, program)
	got := newTold()
	got.readEnded(t, w, "an execution", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return got.execOf(pid) == nil })
	})
	users := map[uint32]int{}
	for _, pid := range pids {
		users[got.execOf(pid).Program.Serial]++
	}
	for _, pid := range pids {
		e := got.execOf(pid)
		if _, read := got.ids[e.Program.Serial]; !read && w.identifies() && users[e.Program.Serial] == 1 {
			unread++ // only this process was asked
			continue
		}
		if problem := got.problem(w, e, id); problem != "" {
			t.Fatalf("round %d: process %d: %s; %s", round, pid, problem, w.counters())
		}
	}
	return unread, int64(len(users))
}

// startAtOnce executes a program four times at once, waits for the ends, and returns the
// processes.
func startAtOnce(t *testing.T, program string) []int {
	t.Helper()
	pids := make([]int, 4)
	var starters sync.WaitGroup
	for i := range pids {
		starters.Go(func() {
			p, err := os.StartProcess(program, []string{"tiny"}, new(os.ProcAttr))
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = p.Pid
			p.Wait()
		})
	}
	starters.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return pids
}

// execOf returns what was reported of the execution of a process of this one, or nil.
func (s *told) execOf(pid int) *Exec {
	for _, e := range s.execs {
		if int(e.PID) == pid && e.PPID == uint32(os.Getpid()) {
			return e
		}
	}
	return nil
}

// problem returns what is wrong with the report of an execution.
func (s *told) problem(w *ExecWatcher, e *Exec, id buildid.ID) string {
	_, introduced := s.files[e.Program.Serial]
	switch have, read := s.ids[e.Program.Serial]; {
	case e.Program.Kind != InFile:
		return fmt.Sprintf("its program has no entry: %v", e.Program)
	case !introduced:
		return fmt.Sprintf("its program was not introduced: %v", e.Program)
	case read && have != id, !read && w.identifies():
		return fmt.Sprintf("its program has the identity %v", have)
	}
	return ""
}

// counters returns what the programs have counted, on all CPUs.
func (w *ExecWatcher) counters() string {
	stats, err := readStats(w.objects.Scratches, w.objects.WorksDone)
	return fmt.Sprintf("%+v, %v", stats, err)
}

// TestExecLost executes more than there is room for, and wants all to be reported or counted.
func TestExecLost(t *testing.T) {
	w := newTestExecWatcher(t, ExecOptions{Follow: true, Ring: 1 << 16})
	if err := w.Follow(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	const count = 300
	tiny := writeTiny(t, 4, 0)
	for range count {
		if err := exec.Command(tiny, strings.Repeat("x", 1000)).Run(); err != nil {
			t.Fatal(err)
		}
	}
	got := newTold()
	if err := w.Read(got); err != nil {
		t.Fatal(err)
	}
	stats, err := w.Stats()
	if err != nil || stats.LostExecs == 0 || len(got.execs) == 0 || len(got.execs)+int(stats.LostExecs) != count {
		t.Errorf("%d told, %+v, %v", len(got.execs), stats, err)
	}
}

// TestKnown wants what was made before, of other bytes than those that may be overwritten, and
// no more of it than there is room for.
func TestKnown(t *testing.T) {
	var k known
	made := 0
	text := func(b []byte) string { made++; return strings.ToUpper(string(b)) }
	var b []byte
	for i := range 3 * maxKnown {
		for range 2 {
			b = fmt.Appendf(b[:0], "text %d", i)
			if got, want := k.get(b, text), fmt.Sprintf("TEXT %d", i); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		if made != i+1 || len(k) > maxKnown {
			t.Fatalf("%d made of %d, %d kept", made, i+1, len(k))
		}
	}
	long := bytes.Repeat([]byte{'x'}, longKnown+1)
	before := len(k)
	if got := k.get(long, text); len(got) != len(long) || len(k) != before {
		t.Errorf("%d bytes, %d kept", len(got), len(k)-before)
	}
}

// FuzzExecEvent wants no event to do harm, whatever is in it.
func FuzzExecEvent(f *testing.F) {
	for kind := range byte(40) {
		f.Add(append([]byte{kind, 0, 0, 0}, make([]byte, 700)...))
	}
	f.Fuzz(func(_ *testing.T, event []byte) {
		// What is none is an error.
		_ = new(execDecoder).dispatch(event, newTold())
	})
}

// BenchmarkExec says what the programs cost, by the kernel's own count.
func BenchmarkExec(b *testing.B) {
	testenv.Root(b)
	w, err := NewExecWatcher(ExecOptions{Exits: true})
	testenv.Need(b, err == nil, fmt.Sprint("a kernel that takes the BPF programs: ", err))
	defer w.Close()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	testenv.Need(b, err == nil, fmt.Sprint("statistics of BPF programs: ", err))
	defer stats.Close()
	if err := w.Wake(false); err != nil {
		b.Fatal(err)
	}
	program := testenv.Tool(b, "true")
	for b.Loop() {
		if err := exec.Command(program).Run(); err != nil {
			b.Fatal(err)
		}
		if err := w.Read(newTold()); err != nil {
			b.Fatal(err)
		}
	}
	for name, p := range map[string]*ebpf.Program{"exec": w.objects.SeeExec, "exit": w.exits.SeeExit, "free": w.exits.SeeFree} {
		s, err := p.Stats()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), name+"-ns")
	}
}
