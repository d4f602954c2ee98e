package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
)

// role says, in the environment, what a copy of the test program is to be.
const role = "HALLMARK_TEST_ROLE"

// The main thread of a copy must be the first thread of its process.
func init() { runtime.LockOSThread() }

// play makes this process what its role says, if it has one.
func play() {
	switch os.Getenv(role) {
	case "":
		return
	case "wait":
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	case "remap":
		go remap()
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	case "alternate":
		go alternate() // says "ready" itself
		io.Copy(io.Discard, os.Stdin)
	case "leaderless":
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		fmt.Println("ready")
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	case "exec":
		os.Setenv(role, "exit")
		syscall.Exec("/proc/self/exe", []string{"exit"}, os.Environ())
	}
	os.Exit(0)
}

// remap keeps changing the mappings of this process.
func remap() {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	for {
		b, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		if err := syscall.Munmap(b); err != nil {
			panic(err)
		}
	}
}

// Addresses where nothing else is, and between them many mappings.
const (
	lowPlace    = 0x10_0000_0000
	highPlace   = 0x7000_0000_0000
	between     = 0x20_0000_0000
	manyBetween = 400
)

// alternate keeps changing the mappings of this process, with pauses: of the first and the
// last one it always has one, or both.
func alternate() {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	place := func(at uintptr) {
		const prot, flags = syscall.PROT_READ | syscall.PROT_EXEC, syscall.MAP_PRIVATE | syscall.MAP_FIXED
		if _, _, err := syscall.Syscall6(syscall.SYS_MMAP, at, 1<<12, prot, flags, f.Fd(), 0); err != 0 {
			panic(err)
		}
	}
	remove := func(at uintptr) {
		if _, _, err := syscall.Syscall(syscall.SYS_MUNMAP, at, 1<<12, 0); err != 0 {
			panic(err)
		}
	}
	for i := range uintptr(manyBetween) {
		place(between + i<<12)
	}
	place(lowPlace)
	fmt.Println("ready")
	for {
		start := time.Now()
		for range 20 {
			place(highPlace)
			remove(lowPlace)
			place(lowPlace)
			remove(highPlace)
		}
		time.Sleep(time.Since(start))
	}
}

// startCopy starts a copy of this program that runs until the test ends.
func startCopy(t *testing.T, as string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", as, err)
		}
	})
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// newTestStock loads the program where the kernel can have it.
func newTestStock(t *testing.T) *Stock {
	t.Helper()
	testenv.Root(t)
	s, err := NewStock()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err) // before Linux 6.7; nothing else gives this error
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func list(t *testing.T, s *Stock, pids ...uint32) map[uint32]*Process {
	t.Helper()
	taken, unseen, err := s.List(pids...)
	if err != nil || len(unseen) > 0 && len(pids) > 0 { // of all processes, some may never rest
		t.Fatalf("processes %v could not be seen: %v", unseen, err)
	}
	return taken
}

// place is a mapping as /proc/PID/maps and Code have it. What is before the last name
// of the path depends on who looks.
type place struct {
	start, end addr.Abs
	offset     addr.Offset
	name       string
}

// codeInText returns the executable mappings of files that the text of a thread's
// mappings has.
func codeInText(t *testing.T, tid int) []place {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", tid))
	if err != nil {
		return nil // it is gone
	}
	var places []place
	for line := range strings.Lines(string(text)) {
		var p place
		var perm, dev string
		var inode uint64
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &p.start, &p.end, &perm, &p.offset, &dev, &inode); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if perm[2] == 'x' && inode != 0 {
			_, path, _ := strings.Cut(line, "/")
			p.name = nameOf(strings.ReplaceAll(strings.TrimSuffix(path, "\n"), `\012`, "\n"))
			places = append(places, p)
		}
	}
	return places
}

// nameOf returns the last name of a path, without the words that the text adds to one that
// is gone; a file may have them in its name.
func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), " (deleted)") }

func placesOf(p *Process) []place {
	var places []place
	for _, c := range p.Code {
		places = append(places, place{c.Start, c.End, c.Offset, nameOf(c.Path)})
	}
	return places
}

func ownIdentity(t *testing.T) buildid.ID {
	t.Helper()
	info, err := buildid.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// TestStockIsWhatProcSays compares the mappings of all processes with the text in /proc.
func TestStockIsWhatProcSays(t *testing.T) {
	s := newTestStock(t)
	var taken map[uint32]*Process
	compareWithText(t, func() map[int]*Process {
		// Who cannot be seen is another's: of those that rest, none is missing.
		var err error
		if taken, _, err = s.List(); err != nil {
			t.Fatal(err)
		}
		byPID := map[int]*Process{}
		for pid, p := range taken {
			byPID[int(pid)] = p
		}
		return byPID
	})
	self := taken[uint32(os.Getpid())]
	if self == nil {
		t.Fatal("this process is missing")
	}
	checkFile(t, self.Code[0].File)
	id, none := self.Code[0].ID, buildid.ID{}
	for n := 0; id == none && n < 3; n++ { // a page that could not be had in that moment
		t.Log("the identity of this program was left for later")
		if self = list(t, s)[uint32(os.Getpid())]; self != nil {
			id = self.Code[0].ID
		}
	}
	if want := ownIdentity(t); id != want {
		t.Errorf("the identity of this program is %v, want %v", id, want)
	}
}

// compareWithText compares what is taken of all processes with the text in /proc before and
// after. Processes that this test has started rest, and must be there in the first look. Any
// other one is right if it is so in one of several looks: it may change its mappings or execute
// a program in between, and have the same before and after. The text is right then, too, but
// of other moments. A mistake about a process that rests is there each time.
func compareWithText(t *testing.T, take func() map[int]*Process) {
	t.Helper()
	own := map[int]bool{os.Getpid(): true, startCopy(t, "wait"): true, startCopy(t, "wait"): true}
	pids := map[int]string{} // and what was wrong with them
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		var pid int
		fmt.Sscan(filepath.Base(dir), &pid)
		pids[pid] = ""
	}
	compared := 0
	for range 5 {
		before := map[int][]place{}
		for pid := range pids {
			before[pid] = codeInText(t, pid)
		}
		taken := take()
		for pid, want := range before {
			if !slices.Equal(want, codeInText(t, pid)) || len(want) == 0 {
				delete(pids, pid)
				continue
			}
			compared++
			if p := taken[pid]; p == nil {
				pids[pid] = "it is missing"
			} else if got := placesOf(p); !slices.Equal(got, want) {
				pids[pid] = fmt.Sprintf("\n got %v\nwant %v", got, want)
			} else {
				delete(pids, pid)
				continue
			}
			if own[pid] {
				t.Errorf("process %d: %s", pid, pids[pid])
			}
		}
	}
	for pid, wrong := range pids {
		t.Errorf("process %d in each look: %s", pid, wrong)
	}
	if compared < len(own) {
		t.Errorf("%d processes compared", compared)
	}
}

// TestStockOfManyMappings looks at a process with more mappings than fit into one look.
func TestStockOfManyMappings(t *testing.T) {
	s := newTestStock(t)
	f := copyOfSelf(t, nil)
	const n = 1000
	page := os.Getpagesize()
	for range n {
		// All of the same page, so that no two of them become one.
		b, err := syscall.Mmap(int(f.Fd()), int64(page), page, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(b) })
	}
	pid := uint32(os.Getpid())
	for _, pids := range [][]uint32{nil, {pid}} {
		want := codeInText(t, os.Getpid())
		if got := placesOf(list(t, s, pids...)[pid]); !slices.Equal(got, want) || len(got) < n/2 {
			t.Errorf("%d mappings, /proc says %d", len(got), len(want))
		}
	}
}

// copyOfSelf returns a copy of this program, that was changed as given. Nobody writes
// to it any more, and its times are old enough to show another change.
func copyOfSelf(t *testing.T, change func([]byte)) *os.File {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(b)
	}
	name := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	time.Sleep(aTick)
	return f
}

// aTick is longer than the clock for the times of files stands still.
const aTick = 50 * time.Millisecond

// TestStockWithoutFirstThread looks at a process whose first thread has ended.
func TestStockWithoutFirstThread(t *testing.T) {
	s := newTestStock(t)
	pid := startCopy(t, "leaderless")
	testenv.Await(t, "the end of the first thread", func() bool { return len(codeInText(t, pid)) == 0 })
	tids, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tids) < 2 {
		t.Fatal(tids, err)
	}
	var tid int
	fmt.Sscan(filepath.Base(tids[len(tids)-1]), &tid)
	want := codeInText(t, tid)
	for _, pids := range [][]uint32{nil, {uint32(pid)}} {
		p := list(t, s, pids...)[uint32(pid)]
		if p == nil || !slices.Equal(placesOf(p), want) || len(want) == 0 {
			t.Errorf("got %+v, want %v", p, want)
		}
	}
}

// TestStockWhileProcessesChange takes stock over and over while others start, execute
// and end, and change their mappings. Those that live before and after are there, once
// and as they are; no identity is wrong, and one content has one serial number.
func TestStockWhileProcessesChange(t *testing.T) {
	s := newTestStock(t)
	stable := []int{os.Getpid(), startCopy(t, "wait"), startCopy(t, "wait")}
	remapping := startCopy(t, "remap")
	steady := codeInText(t, stable[1])
	churn(t)
	id := ownIdentity(t)
	serials := map[Validity]uint32{}
	seen := 0
	for range 60 {
		taken, unseen, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range stable {
			if p, want := taken[uint32(pid)], codeInText(t, pid); p == nil || !slices.Equal(placesOf(p), want) {
				t.Fatalf("process %d: got %+v, want %v", pid, p, want)
			}
		}
		// It may wait for a CPU in the middle of a change, for longer than anybody looks.
		switch p := taken[uint32(remapping)]; {
		case p != nil && len(p.Code) >= len(steady):
			seen++
		case p != nil || !slices.Contains(unseen, uint32(remapping)):
			t.Fatalf("the process that changes its mappings: %+v", p)
		}
		for _, p := range taken {
			checkProcess(t, p, id, serials)
		}
	}
	if seen == 0 {
		testenv.Lack(t, "the process that changes its mappings is never at rest")
	}
}

// churn starts processes that end at once, or execute another program and end,
// until the test is over.
func churn(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	var wait sync.WaitGroup
	for _, as := range []string{"exit", "exec"} {
		wait.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), role+"="+as)
				if err := cmd.Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Cleanup(func() {
		close(over)
		wait.Wait()
	})
}

// checkProcess wants the mappings of a process in order and once each.
func checkProcess(t *testing.T, p *Process, id buildid.ID, serials map[Validity]uint32) {
	t.Helper()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range p.Code {
		if i > 0 && c.Start < p.Code[i-1].End {
			t.Fatalf("mappings %d and %d of %+v overlap", i-1, i, p)
		}
		if c.Key == 0 {
			continue // somebody is writing to it
		}
		if known, ok := serials[c.Validity]; ok && known != c.Serial || c.Serial == 0 {
			t.Fatalf("%s has the serial numbers %d and %d", c.Path, known, c.Serial)
		}
		serials[c.Validity] = c.Serial
		if c.Path == exe && c.ID != id {
			t.Fatalf("%s has the identity %v, want %v", c.Path, c.ID, id)
		}
	}
}

// codeOfFile returns what this process has mapped of a file.
func codeOfFile(t *testing.T, s *Stock, f *os.File) Code {
	t.Helper()
	var found []Code
	for _, c := range list(t, s, uint32(os.Getpid()))[uint32(os.Getpid())].Code {
		if c.Path == f.Name() {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s is mapped as %+v", f.Name(), found)
	}
	return found[0]
}

// otherID returns an identity that differs from the given one in its first byte, and
// puts it in its place.
func otherID(t *testing.T, b []byte, id buildid.ID) buildid.ID {
	t.Helper()
	at := bytes.Index(b, id.Bytes())
	if at < 0 || id.Kind() != buildid.GNU {
		t.Fatalf("the test program has no build ID: %v", id)
	}
	b[at]++
	other, err := buildid.New(buildid.GNU, b[at:at+len(id.Bytes())])
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// TestStockBelievesFilesOnly maps a file and changes what is in memory of it: that is
// no identity. Then the file itself is changed: that is another content, and none that
// can be believed while somebody may write to it.
func TestStockBelievesFilesOnly(t *testing.T) {
	s := newTestStock(t)
	f, id := copyOfSelf(t, nil), ownIdentity(t)
	mapped := func(change func([]byte)) Code {
		const prot = syscall.PROT_READ | syscall.PROT_WRITE | syscall.PROT_EXEC
		b, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, prot, syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Munmap(b)
		change(b)
		return codeOfFile(t, s, f)
	}
	changed := mapped(func(b []byte) { otherID(t, b, id) })
	if !changed.ID.IsZero() {
		t.Errorf("memory that was written has the identity %v", changed.ID)
	}
	first := mapped(func([]byte) {})
	if first.ID != id || first.Serial != changed.Serial {
		t.Errorf("the file has the identity %v, want %v", first.ID, id)
	}
	w, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 1<<16)
	if _, err := w.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	want := otherID(t, head, id)
	if _, err := w.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(aTick)
	if open := mapped(func([]byte) {}); open.Serial != 0 || !open.ID.IsZero() {
		t.Errorf("a file that is open for writing is %+v", open)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if second := mapped(func([]byte) {}); second.ID != want || second.Serial == first.Serial {
		t.Errorf("the changed file is %+v, want identity %v", second, want)
	}
}

// TestStockComesBeforeSamples enters the files of this process into the table of a
// Sampler that cannot read identities itself. Nobody learns of them before there are
// samples, and then of their identities too.
func TestStockComesBeforeSamples(t *testing.T) {
	for _, o := range []Options{{NoTaskWork: true, Running: true}, {Running: true}} {
		s := newTestSampler(t, o)
		if err := s.Enter(); errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err) // before Linux 6.7
		} else if err != nil {
			t.Fatal(err)
		}
		told := newSeen()
		if err := s.Read(told); err != nil || len(told.files) > 0 {
			t.Fatalf("%d files are told of: %v", len(told.files), err)
		}
		got := sampleSelf(t, s)
		found := 0
		for serial, f := range got.files {
			if f.PID == uint32(os.Getpid()) && got.ids[serial] == ownIdentity(t) {
				checkFile(t, f)
				found++
			}
		}
		stats, err := s.Stats()
		if err != nil || found != 1 || stats.Readings > 0 {
			t.Errorf("found %d times this program in %+v %v: %+v, %v", found, got.files, got.ids, stats, err)
		}
	}
}

// TestStockReaderRefuses wants an error for records that are cut off or unknown.
func TestStockReaderRefuses(t *testing.T) {
	for kind := range uint32(5) {
		for _, size := range []uint32{0, 4, 8, 12, 1 << 31} {
			b := make([]byte, 12)
			put := func(at int, n uint32) { copy(b[at:], []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) }
			put(0, kind)
			put(4, size)
			r := &stockReader{stock: &Stock{}, seen: map[uint32]bool{}}
			if err := r.read(b); err == nil {
				t.Errorf("a record of kind %d and size %d was taken", kind, size)
			}
		}
	}
}
