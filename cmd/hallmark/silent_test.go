package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/buildid"
	"hallmark/internal/fusetest"
	"hallmark/internal/testenv"
	"hallmark/reason"
)

// watchdog is how long a verb may take that ends by itself: it is far more than it needs.
const watchdog = 20 * time.Second

// victimVar makes a process of the test binary that has something unpleasant mapped.
const victimVar = "HALLMARK_TEST_VICTIM"

// victim maps a file to execute and says where, and further ones. With "args" its own arguments are
// a page of the file, and with "lease" it has a lease on it.
func victim(how string) {
	switch how {
	case "reader":
		readVictim()
		return
	case "burn":
		burn()
	}
	file := os.Args[1]
	f, err := os.Open(file)
	check(err)
	info, err := f.Stat()
	check(err)
	m, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
	check(err)
	for _, file := range strings.Fields(os.Args[2]) {
		f, err := os.Open(file)
		check(err)
		_, err = syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		check(err)
	}
	if how == "lease" {
		signal.Ignore(syscall.SIGIO) // by which the kernel asks for it
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		check(err)
	}
	if how == "args" {
		coverArguments(int(f.Fd()))
	}
	var execute func(*dirtyFile)
	if how == "execute" {
		execute = prepareExecution() // whose child closes the files, so that the kernel writes what is dirty
	}
	var dirty *dirtyFile
	if how == "launder" || how == "execute" {
		dirty = newDirtyFile(os.Args[1])
	}
	fmt.Printf("%x\n", uintptr(unsafe.Pointer(&m[0])))
	if how == "flip" {
		flipMappings(uintptr(unsafe.Pointer(&m[0])), f)
	}
	switch how {
	case "lock":
		lockMappings(uintptr(unsafe.Pointer(&m[0])))
	case "launder":
		launderPage(dirty)
	case "execute":
		execute(dirty)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A process that waits in mmap(2) does so with its first thread: /proc shows what that one does.
func init() {
	if os.Getenv(victimVar) == "launder" {
		runtime.LockOSThread()
	}
}

// burn takes processor time for ever, in code that was run before the parent learns of it.
func burn() {
	for n := 0; ; n++ {
		if n == 1<<28 {
			fmt.Println("warm")
		}
	}
}

// coverArguments maps the file over the first page that has nothing but its arguments, one of
// which is long: proc_pid_stat(5). What lies before them is the stack.
func coverArguments(fd int) {
	stat, err := os.ReadFile("/proc/self/stat")
	check(err)
	words := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	start, err := strconv.ParseUint(words[48-3], 10, 64)
	check(err)
	const fixed = 0x10 // MAP_FIXED
	_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, (uintptr(start)+4095)&^4095, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE|fixed, uintptr(fd), 0)
	if errno != 0 {
		check(errno)
	}
}

// flipMappings maps a file that answers and this one by turns at one address, as fast as it can.
func flipMappings(at uintptr, f *os.File) {
	other, err := os.Open("/proc/self/exe")
	check(err)
	go func() {
		const fixed = 0x10 // MAP_FIXED
		for {
			for _, fd := range []uintptr{other.Fd(), f.Fd()} {
				_, _, errno := syscall.Syscall6(syscall.SYS_MMAP, at, 8192, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE|fixed, fd, 0)
				if errno != 0 {
					check(errno)
				}
			}
		}
	}()
}

// lockMappings lets nobody look at this process's mappings once the file does not answer: another
// process that reads a page of it holds the lock while it waits, and a change of the mappings
// waits for that lock, before everybody else.
func lockMappings(at uintptr) {
	awaitWord()
	reader := exec.Command("/proc/self/exe", strconv.Itoa(os.Getpid()), strconv.FormatUint(uint64(at), 10))
	reader.Env = append(os.Environ(), victimVar+"=reader")
	check(reader.Start())
	go func() { _ = reader.Wait() }()
	time.Sleep(lockTime / 2)
	_, _ = syscall.Mmap(-1, 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)
}

// awaitWord waits for the parent to say that the server does not answer any more.
func awaitWord() {
	var told [1]byte
	_, err := io.ReadFull(os.Stdin, told[:])
	check(err)
}

// A dirtyFile has a page that is written to in memory, and is open once more, for direct I/O.
type dirtyFile struct {
	page   []byte
	direct int
}

func newDirtyFile(name string) *dirtyFile {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	check(err)
	page, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	direct, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_DIRECT, 0)
	check(err)
	d := &dirtyFile{page, direct}
	d.write()
	return d
}

func (d *dirtyFile) write() { d.page[0] = '\x7f' } // as it was

// mapDirect maps the file that is open for direct I/O. The kernel has the page written first, and holds the
// lock of the mappings for writing meanwhile (fuse_file_mmap, fs/fuse/file.c). It may have written the page
// before, as another process may call sync(2).
func (d *dirtyFile) mapDirect() {
	d.write()
	_, _ = syscall.Mmap(d.direct, 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
}

// launderPage waits with that lock held, once the server does not answer any more.
func launderPage(d *dirtyFile) {
	awaitWord()
	d.mapDirect()
}

// prepareExecution returns a function that has a child execute a program that shares this process's mappings,
// as all children of Go do until then, while launderPage has their lock: the kernel waits for that lock with
// another one of the child held (exec_mmap, fs/exec.c), under which it answers most questions about a process.
//
// Go's runtime must not need memory meanwhile, or nobody gets to the child: it has what it needs before.
func prepareExecution() (forEver func(*dirtyFile)) {
	debug.SetGCPercent(-1)
	execute := func() {
		if pid, err := syscall.ForkExec("/bin/true", []string{"true"}, nil); err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
	execute()
	check(unix.Mlockall(unix.MCL_CURRENT)) // nor may it fault
	ready, lock := make(chan bool), make(chan *dirtyFile)
	go func() {
		runtime.LockOSThread()
		ready <- true
		(<-lock).mapDirect()
	}()
	<-ready
	return func(d *dirtyFile) {
		awaitWord()
		lock <- d
		time.Sleep(lockTime / 2)
		execute() // it may come to that when the server is gone
	}
}

// lockTime is how long that takes. Without the lock the test proves less.
const lockTime = 500 * time.Millisecond

// readVictim reads memory of another process.
func readVictim() {
	mem, err := os.Open("/proc/" + os.Args[1] + "/mem")
	check(err)
	at, err := strconv.ParseInt(os.Args[2], 10, 64)
	check(err)
	_, _ = mem.ReadAt(make([]byte, 16), at)
}

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// startVictim starts a victim and returns its process and the address of the mapping, and what
// has it go on.
func startVictim(t *testing.T, how, file string, more ...string) (pid int, address string, goOn func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", file, strings.Join(more, " "), strings.Repeat("long ", 3*4096/5))
	// A signal would want memory of its stack, which nobody gets while the mappings are locked.
	cmd.Env = append(os.Environ(), victimVar+"="+how, "GODEBUG=asyncpreemptoff=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanln(out, &address); err != nil {
		t.Fatal("a victim did not start: ", err)
	}
	return cmd.Process.Pid, address, func() {
		if _, err := in.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lockTime)
	}
}

// silentScene is a file system that does not answer any more, what lies there, and who has it
// mapped.
type silentScene struct {
	server   *fusetest.Server
	file     string   // that nobody has read, unless another test recorded the machine meanwhile
	id       string   // its build ID
	pid      int      // of the victim
	address  string   // of the file there
	mappings []string // the names in map_files of what the victim has mapped to execute
	program  int      // a process whose program lies there
	dir      string   // that answers
	// twin is a file there whose start somebody has read, and near a copy of it that answers.
	twin, near string
	burning    string // a process that takes processor time in the twin
}

func newSilentScene(t *testing.T, how string, silence func(*fusetest.Server)) *silentScene {
	t.Helper()
	options := fusetest.SSHFS
	options.KeepContent = true // or what is read is read again when somebody opens it
	s := &silentScene{server: fusetest.Mount(t, options), dir: t.TempDir()}
	sleep := testenv.Tool(t, "sleep")
	for _, name := range []string{"library.so", "program"} {
		if msg, err := exec.Command("cp", sleep, s.server.Behind(name)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
	}
	s.file = s.server.Path("library.so")
	info, err := buildid.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	s.id = info.ID.String()
	s.makeTwins(t)
	var goOn func()
	if how == "twins" { // a file that nobody has read would make the server known to be silent
		s.file = s.twin
	}
	s.pid, s.address, goOn = startVictim(t, how, s.file, s.near)
	program := exec.Command("sh", "-c", `exec "$0" 1000`, s.server.Path("program"))
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	s.program = program.Process.Pid
	testenv.Await(t, "a program of the file system", func() bool {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.program))
		return path == s.server.Path("program")
	})
	t.Cleanup(s.server.Close) // first of all: who ends waits for it to close files
	silence(s.server)
	s.mappings = mappingsOf(t, s.pid)
	if how == "lock" || how == "launder" || how == "execute" {
		goOn()
	}
	return s
}

// makeTwins copies a large program to both sides, and has the identity of the one read that lies on the
// file system: the kernel has its pages then, and not those of its code.
func (s *silentScene) makeTwins(t *testing.T) {
	t.Helper()
	s.twin, s.near = s.server.Path("twin"), filepath.Join(s.dir, "twin")
	for _, path := range []string{s.server.Behind("twin"), s.near} {
		if msg, err := exec.Command("cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", path).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
	}
	if out, errors := s.run(t, 0, "id", s.twin); !strings.Contains(out, s.twin) {
		t.Fatalf("id: %s%s", out, errors)
	}
}

// mappingsOf returns the names in map_files of what a process has mapped to execute. Nobody looks there: the
// kernel would know the names afterwards.
func mappingsOf(t *testing.T, pid int) (names []string) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if words := strings.Fields(line); len(words) > 5 && words[1][2] == 'x' && words[4] != "0" {
			start, end, _ := strings.Cut(words[0], "-")
			names = append(names, strings.TrimLeft(start, "0")+"-"+strings.TrimLeft(end, "0"))
		}
	}
	return names
}

// lookUp has a program for each mapping of the victim wait for the file behind it.
func (s *silentScene) lookUp(t *testing.T) {
	t.Helper()
	if len(s.mappings) == 0 {
		t.Fatal("the victim has no mappings")
	}
	for _, name := range s.mappings {
		looker := exec.Command(testenv.Tool(t, "readlink"), fmt.Sprintf("/proc/%d/map_files/%s", s.pid, name))
		if err := looker.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = looker.Process.Kill()
			_ = looker.Wait()
		})
		testenv.Await(t, "a program that waits for the victim", func() bool {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", looker.Process.Pid))
			return strings.Contains(string(stat), "Name:\treadlink\n") && strings.Contains(string(stat), "State:\tD")
		})
	}
}

// startBurning starts a program of the file system that takes processor time.
func (s *silentScene) startBurning(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `exec "$0"`, s.twin) // else our fork waits for its execve
	cmd.Env = append(os.Environ(), victimVar+"=burn")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		s.server.Close() // it may wait for a page
		_ = cmd.Wait()
	})
	var warm string
	s.burning = strconv.Itoa(cmd.Process.Pid)
	if _, err := fmt.Fscanln(out, &warm); err != nil || warm != "warm" {
		t.Fatalf("a program of the file system did not start: %q, %v", warm, err)
	}
}

// run runs a verb, which must end before the watchdog does. Interrupt sends it a Ctrl-C after a
// while. The file system is taken away when it does not end: nothing else would end it.
func (s *silentScene) run(t *testing.T, interrupt time.Duration, args ...string) (stdout, stderr string) {
	t.Helper()
	out, errors := s.create(t, "stdout"), s.create(t, "stderr") // no pipes: somebody may be left who has them
	cmd := exec.Command("hallmark", args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+s.dir, "GOTRACEBACK=all") // for SIGQUIT below
	cmd.Stdout, cmd.Stderr = out, errors
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if interrupt > 0 {
		time.AfterFunc(interrupt, func() { _ = cmd.Process.Signal(os.Interrupt) })
	}
	select {
	case <-ended:
	case <-time.After(watchdog):
		waits := threadsOf(cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGQUIT) // it says where it waits
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			if s.server != nil {
				s.server.Close()
			}
			_ = cmd.Process.Kill()
			<-ended
		}
		t.Fatalf("hallmark %s did not end:\n%s%s", strings.Join(args, " "), s.content(t, "stderr"), waits)
	}
	t.Logf("hallmark %s: %v", strings.Join(args, " "), time.Since(began).Round(10*time.Millisecond))
	return s.content(t, "stdout"), s.content(t, "stderr")
}

// threadsOf returns where the threads of a process wait in the kernel.
func threadsOf(pid int) string {
	var b strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		stat, _ := os.ReadFile(task + "/stat")
		call, _ := os.ReadFile(task + "/syscall")
		stack, _ := os.ReadFile(task + "/stack")
		fmt.Fprintf(&b, "%ssystem call %s%s", stat, call, stack)
	}
	return b.String()
}

func (s *silentScene) create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func (s *silentScene) content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSilentFileSystem has every verb that looks at processes look at one with a mapping on a
// file system that does not answer, and at one whose program lies there. All of them end, have
// everything else in them, and name the file and the reason.
func TestSilentFileSystem(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	for name, silence := range map[string]func(*fusetest.Server){
		"silent": (*fusetest.Server).Silence, "reads": (*fusetest.Server).SilenceReads, "dead": (*fusetest.Server).Die,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSilentScene(t, "map", silence)
			victim, self := strconv.Itoa(s.pid), strconv.Itoa(os.Getpid())
			names := func(what, text string) {
				t.Helper()
				why := "file-unresponsive"
				if name == "dead" {
					why = "file-" // what died says so
				}
				// If another test's recording read the file while it could, the kernel knows its build ID.
				isKnown := strings.Contains(linesWith(text, s.file), s.id)
				if !strings.Contains(text, s.file) || !strings.Contains(text, why) && !isKnown {
					t.Errorf("%s does not name %s and %s:\n%s", what, s.file, why, text)
				}
			}

			out, unseen := s.run(t, 0, "ps", "--libs")
			if strings.Contains(linesWith(out, victim), reason.NotRead.Code()) || !lists(out, victim) && strings.Contains(unseen, "could not be looked at") { // other victims took its time
				out, _ = s.run(t, 0, "ps", "--libs", victim, self)
			}
			names("ps", linesWith(out, s.file)+linesWith(out, victim))
			if !lists(out, self) {
				t.Errorf("ps does not list process %s:\n%s", self, out)
			}
			out, _ = s.run(t, 0, "ps", "--json", victim)
			if !strings.Contains(out, `"program":{"binary":"`) {
				t.Errorf("ps does not know the victim's program:\n%s", out)
			}
			out, _ = s.run(t, 0, "maps", victim)
			names("maps", linesWith(out, s.file))
			isKnown := strings.Contains(linesWith(out, s.file), s.id)
			if !strings.Contains(out, "[vdso]") {
				t.Errorf("maps lacks the vdso:\n%s", out)
			}
			_, _ = s.run(t, 0, "id", strconv.Itoa(s.program), self)
			out, _ = s.run(t, 0, "addr", victim, s.address)
			if !strings.Contains(out, s.file) {
				t.Errorf("addr: %s", out)
			}
			out, _ = s.run(t, 0, "census")
			if !strings.Contains(out, "identities of these") {
				t.Errorf("census: %s", out)
			}
			// Beside tests whose processes let nobody look, census may not have looked at this one either.
			missing, unseen := linesWith(out, s.file), linesWith(out, "not counted: code of")
			isUnseen := missing == "" && (strings.Contains(unseen, reason.FileUnresponsive.String()) || strings.Contains(unseen, reason.NotRead.String()))
			if name != "dead" && !isUnseen && !isKnown && !strings.HasPrefix(missing, "not counted: identity of "+s.file+": ") {
				t.Errorf("census does not say that the identity of a file is not among those that it counts:\n%s", out)
			}
			for _, backend := range []string{"perf", "bpf"} {
				file := filepath.Join(s.dir, backend+".pb.gz")
				_, text := s.run(t, 0, "record", "-a", "-d", "2s", "--backend", backend, "-o", file)
				if _, err := os.Stat(file); err != nil {
					t.Errorf("record wrote no profile: %v\n%s", err, text)
				}
				out, _ = s.run(t, 0, "exec", "--backend", backend, "--", "sh", "-c", "/bin/true; /bin/true")
				if strings.Count(out, "/true") < 2 {
					t.Errorf("exec: %s", out)
				}
			}
			_, _ = s.run(t, time.Second, "record", "-a", "-d", "1h", "-o", filepath.Join(s.dir, "interrupted.pb.gz"))
			if _, err := os.Stat(filepath.Join(s.dir, "interrupted.pb.gz")); err != nil {
				t.Errorf("record did not write its profile when it was interrupted: %v", err)
			}
			_, _ = s.run(t, time.Second, "exec")
		})
	}
}

// TestSilentArguments looks at a process that has put a page which never comes in the place of
// its arguments, while it executes nothing and while others do.
func TestSilentArguments(t *testing.T) {
	testenv.Root(t)
	s := newSilentScene(t, "args", (*fusetest.Server).Silence)
	out, errors := s.run(t, 0, "ps", strconv.Itoa(s.pid))
	if !strings.Contains(out, strconv.Itoa(s.pid)) {
		t.Errorf("ps: %s%s", out, errors)
	}
}

// TestFlippingMappings looks at a process whose mapping is of a file that answers in one moment and
// of one that does not in the next.
func TestFlippingMappings(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s := newSilentScene(t, "flip", (*fusetest.Server).Silence)
	victim := strconv.Itoa(s.pid)
	for range 5 {
		_, _ = s.run(t, 0, "maps", victim)
		_, _ = s.run(t, 0, "ps", "--libs", victim)
		_, _ = s.run(t, 0, "addr", victim, s.address)
	}
	for _, backend := range []string{"perf", "bpf"} {
		file := filepath.Join(s.dir, backend+".pb.gz")
		_, text := s.run(t, 0, "record", "-a", "-d", "1s", "--backend", backend, "-o", file)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("record wrote no profile: %v\n%s", err, text)
		}
	}
}

// TestLeasedFile looks at a process that has a lease on the file that it has mapped: whoever opens the file
// would wait for the process to give the lease up, 45 s. Nobody knows then whether the file was replaced.
func TestLeasedFile(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s := &silentScene{dir: t.TempDir()}
	file := filepath.Join(s.dir, "leased.so")
	if msg, err := exec.Command("cp", testenv.Tool(t, "sleep"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	pid, address, _ := startVictim(t, "lease", file)
	victim := strconv.Itoa(pid)
	for _, args := range [][]string{{"maps", victim}, {"ps", "--libs", victim}, {"addr", victim, address}} {
		out, _ := s.run(t, 0, args...)
		if line := linesWith(out, file); line == "" || strings.Contains(line, "[replaced]") || strings.Contains(line, "file-gone") {
			t.Errorf("%s says of the file: %q", args[0], line)
		}
	}
	if _, errors := s.run(t, 0, "id", file); !strings.Contains(errors, "lease") {
		t.Errorf("id does not say that there is a lease: %s", errors)
	}
	for _, backend := range []string{"perf", "bpf"} {
		profile := filepath.Join(s.dir, backend+".pb.gz")
		_, _ = s.run(t, 0, "record", "-a", "-d", "1s", "--backend", backend, "-o", profile)
		if _, err := os.Stat(profile); err != nil {
			t.Error(err)
		}
	}
}

// TestLockedMappings looks at a process that lets nobody look at its mappings.
func TestLockedMappings(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s := newSilentScene(t, "lock", (*fusetest.Server).Silence)
	self := strconv.Itoa(os.Getpid())
	out, errors := s.run(t, 0, "ps")
	if !lists(out, self) {
		t.Errorf("ps does not list process %s:\n%s", self, out)
	}
	t.Log(linesWith(out, strconv.Itoa(s.pid)), errors)
	_, errors = s.run(t, 0, "maps", strconv.Itoa(s.pid))
	t.Log(errors)
	_, _ = s.run(t, 0, "addr", strconv.Itoa(s.pid), s.address)
	for _, backend := range []string{"perf", "bpf"} {
		file := filepath.Join(s.dir, backend+".pb.gz")
		_, text := s.run(t, 0, "record", "-a", "-d", "1s", "--backend", backend, "-o", file)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("record wrote no profile: %v\n%s", err, text)
		}
	}
	_, _ = s.run(t, time.Second, "exec", "--backend", "perf")
	_, _ = s.run(t, 0, "census")
}

// TestLaunderedMappings looks at a process that waits for its file system in mmap(2), with the lock of
// its mappings held: also whoever opens a file by the address of its mapping would wait. Somebody else has
// done that already for each of its mappings, and whoever looks up the same name in the same directory waits
// for them, until they end.
func TestLaunderedMappings(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s, victim := launderingScene(t)
	s.lookUp(t)
	out, errors := s.run(t, 0, "maps", victim)
	if !strings.Contains(out, "file-unresponsive") {
		t.Errorf("maps does not say that nobody could look:\n%s%s", out, errors)
	}
	_, errors = s.run(t, 0, "addr", victim, s.address)
	if !strings.Contains(errors, "in time") {
		t.Errorf("addr does not say that nobody could look:\n%s", errors)
	}
	_, _ = s.run(t, 0, "ps", victim)
	for _, args := range [][]string{{"-p", victim, "--backend", "perf"}, {"-p", victim, "--backend", "bpf"}, {"-a", "--backend", "perf"}, {"-a", "--backend", "bpf"}} {
		file := filepath.Join(s.dir, "x.pb.gz")
		_ = os.Remove(file)
		_, text := s.run(t, 0, append([]string{"record", "-d", "1s", "-o", file}, args...)...)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("record %v wrote no profile: %v\n%s", args, err, text)
		}
	}
}

// launderingScene returns a scene, and its victim, which waits in mmap(2). It may wait earlier, for a page that the
// kernel began to write at the wrong moment.
func launderingScene(t *testing.T) (*silentScene, string) {
	for range 5 {
		s := newSilentScene(t, "launder", (*fusetest.Server).Silence)
		victim := strconv.Itoa(s.pid)
		for began := time.Now(); time.Since(began) < sceneTime; time.Sleep(time.Millisecond) {
			where, _ := os.ReadFile("/proc/" + victim + "/syscall")
			if strings.HasPrefix(string(where), strconv.Itoa(syscall.SYS_MMAP)+" ") {
				return s, victim
			}
		}
		t.Logf("process %s does not wait in mmap(2)", victim)
	}
	testenv.Lack(t, "no process waits in mmap(2)")
	return nil, ""
}

// sceneTime is how long a scene may take to be ready, before another one is made.
const sceneTime = 20 * time.Second

// TestExecutingForEver looks at a process that never ends to execute a program. Nearly all that /proc has
// of it would be waited for: its links, and its state.
func TestExecutingForEver(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s, victim := executingScene(t)
	for _, args := range [][]string{{"id", victim}, {"maps", victim}, {"addr", victim, "0x1000"}, {"ps", victim}, {"ps"}} {
		_, errors := s.run(t, 0, args...)
		if args[0] != "ps" && !strings.Contains(errors, "in time") {
			t.Errorf("%s does not say that nobody could look:\n%s", args[0], errors)
		}
	}
	for _, args := range [][]string{{"-p", victim, "--backend", "perf"}, {"-p", victim, "--backend", "bpf"}, {"-a", "--backend", "perf"}, {"-a", "--backend", "bpf"}} {
		file := filepath.Join(s.dir, "x.pb.gz")
		_ = os.Remove(file)
		_, text := s.run(t, 0, append([]string{"record", "-d", "1s", "-o", file}, args...)...)
		if _, err := os.Stat(file); err != nil && !strings.Contains(text, "in time") {
			t.Errorf("record %v wrote no profile, and does not say why: %v\n%s", args, err, text)
		}
	}
	for _, backend := range []string{"perf", "bpf"} {
		_, _ = s.run(t, 0, "exec", "-d", "1s", "--backend", backend)
	}
}

// executingScene returns a scene, and the process there that waits in execve(2). The kernel may have it wait for
// something else, such as memory.
func executingScene(t *testing.T) (*silentScene, string) {
	for range 5 {
		s := newSilentScene(t, "execute", (*fusetest.Server).Silence)
		child := childOf(t, s.pid)
		if child == 0 {
			t.Log("no child: its parent waits for memory")
			continue
		}
		victim := strconv.Itoa(child)
		waits := 0
		testenv.Await(t, "a process that waits", func() bool { // and not for a moment
			state, _ := os.ReadFile("/proc/" + victim + "/status")
			if waits++; !strings.Contains(string(state), "State:\tD") {
				waits = 0
			}
			return waits > 100
		})
		if isHeldUp(t, "readlink", "/proc/"+victim+"/exe") {
			return s, victim
		}
		t.Logf("process %s waits, and not in execve(2)", victim)
	}
	testenv.Lack(t, "no process waits in execve(2)")
	return nil, ""
}

// isHeldUp reports whether a command does not end soon, which it would at once.
func isHeldUp(t *testing.T, args ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lockTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Tool(t, args[0]), args[1:]...)
	_ = cmd.Run()
	return ctx.Err() != nil
}

// childOf returns the child of a process, 0 if there is none for seconds. It reads what can be had of any process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	for began := time.Now(); time.Since(began) < sceneTime; time.Sleep(time.Millisecond) {
		names, _ := filepath.Glob("/proc/[0-9]*/status")
		for _, name := range names {
			if status, _ := os.ReadFile(name); strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
				child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
				if err != nil {
					t.Fatal(err)
				}
				return child
			}
		}
	}
	return 0
}

// linesWith returns the lines that contain a text.
func linesWith(text, part string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// lists reports whether a line of ps begins with a number.
func lists(text, number string) bool {
	for line := range strings.Lines(text) {
		if word, _, _ := strings.Cut(strings.TrimLeft(line, " "), " "); word == number {
			return true
		}
	}
	return false
}

// TestSilentContent has two files of one build ID, of which one lies on a file system that does not
// answer any more: the kernel has its identity, and nobody can read its code. Whoever compares
// the two must not wait for it. The program takes processor time, so that samples are in it.
func TestSilentContent(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	s := newSilentScene(t, "twins", func(*fusetest.Server) {})
	s.startBurning(t)
	twin, err := os.Open(s.twin)
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	s.server.SilenceReads()
	// The kernel may have read all of it ahead: then nobody asks the server.
	if err := unix.Fadvise(int(twin.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	victim := strconv.Itoa(s.pid)
	for _, verb := range [][]string{{"ps", "--libs", victim}, {"ps", "--libs"}, {"maps", victim}, {"ps", "--libs", "--stale"}} {
		out, _ := s.run(t, 0, verb...)
		if verb[len(verb)-1] == "--stale" {
			continue
		}
		line := linesWith(out, s.twin)
		if !strings.Contains(line, "[claimed: same build ID, content unknown]") && !strings.Contains(line, "[file-unresponsive]") { // on a busy machine
			t.Errorf("%v does not say that nobody knows whether the files are the same:\n%s", verb, line)
		}
	}
	_, _ = s.run(t, 0, "addr", victim, s.address)
	_, _ = s.run(t, 0, "census")
	for _, backend := range []string{"perf", "bpf"} {
		file := filepath.Join(s.dir, backend+".pb.gz")
		_, text := s.run(t, 0, "record", "-a", "-d", "2s", "--backend", backend, "-o", file)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("record wrote no profile: %v\n%s", err, text)
		}
	}
	_, _ = s.run(t, 0, "exec", "--", s.near, "-test.run=^$")
}

// TestSilentUser reports a recording of a program that lies on a file system of another user, whose
// server does not answer any more: nobody asks that server for names of what another user claims.
func TestSilentUser(t *testing.T) {
	testenv.Root(t)
	options := fusetest.SSHFS
	options.User = 65534
	s := &silentScene{server: fusetest.Mount(t, options), dir: t.TempDir()}
	s.twin = s.server.Path("twin")
	if msg, err := exec.Command("cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", s.server.Behind("twin")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	s.startBurning(t)
	file := filepath.Join(s.dir, "cpu.pb.gz")
	_, text := s.run(t, 0, "record", "-p", s.burning, "-d", "1s", "--no-symbols", "-o", file)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("record wrote no profile: %v\n%s", err, text)
	}
	s.server.Silence()
	out, errors := s.run(t, 0, "report", "--verbose", file)
	if lines := linesWith(out, reason.Unproven.String()+": twin"); !strings.Contains(lines, "no symbol") {
		t.Errorf("the report does not say why the file was left alone:\n%s%s", out, errors)
	}
	_, _ = s.run(t, 0, "convert", file, "-o", filepath.Join(s.dir, "stacks.folded"))
	where := "    " + s.twin + "+0x1000\n"
	if err := os.WriteFile(filepath.Join(s.dir, "log"), []byte(where), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _ = s.run(t, 0, "symbolize", filepath.Join(s.dir, "log"))
}
