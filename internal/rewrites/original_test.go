package rewrites

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/addr"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/procmap"
)

// mapCopy maps a new file of four pages to execute it, and puts a copy of the second and third page
// in their place. It returns the memory.
func mapCopy(t *testing.T) []byte {
	t.Helper()
	content := make([]byte, 4*PageSize)
	for i := range content {
		content[i] = byte(i / PageSize)
	}
	name := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(name, content, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Skip(err) // the directory may be mounted noexec
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	at := unsafe.Pointer(&b[PageSize])
	if _, err := unix.MmapPtr(-1, 0, at, 2*PageSize, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED); err != nil {
		t.Skip(err) // such memory may be forbidden
	}
	copy(b[PageSize:], content[PageSize:3*PageSize])
	return b
}

// TestCopies wants pages that differ from the file later, or are gone, to count as rewritten, and
// copies of a program that has ended not to count.
func TestCopies(t *testing.T) {
	if os.Getpagesize() != PageSize {
		t.Skip("pages have another size")
	}
	b := mapCopy(t)
	r := New(nil, nil)
	defer r.Close()
	pid, first := os.Getpid(), addr.Abs(uintptr(unsafe.Pointer(&b[0])))
	var c *copies
	for _, page := range []addr.Abs{first + PageSize, first + 2*PageSize} {
		f, err := findCopy(pid, page, true)
		if err != nil || !f.copied || f.from.offset != addr.Offset(page-first) {
			t.Fatalf("page %v: %+v, %v", page, f, err)
		}
		if c = r.follow(pid, f.program, page, f.from); c == nil {
			t.Fatal("there is no room for it")
		}
	}
	if r.copiers != 1 || len(c.pages) != 2 {
		t.Errorf("%d programs, %d pages", r.copiers, len(c.pages))
	}
	check := func(what string, want ...addr.Offset) {
		t.Helper()
		spans, err := c.spans()
		var got []addr.Offset
		for _, s := range spans {
			for at := s.offset; at < s.offset+s.size; at += PageSize {
				got = append(got, at)
			}
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: pages at %v differ, %v; want %v", what, got, err, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: pages at %v differ, want %v", what, got, want)
			}
		}
	}
	check("copies")
	b[2*PageSize+7] ^= 1
	check("the second one written", 2*PageSize)
	if found, err := rewrittenIn(pid, rewritesTime, lookFor{copies: c}); err != nil || len(found) == 0 || found[len(found)-1].start != 2*PageSize {
		t.Errorf("a look finds %v, %v", found, err)
	}
	b[PageSize] ^= 1
	check("both written", PageSize, 2*PageSize)
	b[PageSize] ^= 1
	b[2*PageSize+7] ^= 1
	check("as before")
	if err := unix.Mprotect(b[PageSize:2*PageSize], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	check("one that nobody can execute", PageSize, 2*PageSize) // what is left fills no hole
}

// TestCopiesOfAnEarlierProgram wants the copies of a program that has ended to count as nothing, and
// those of the next one to be known again.
func TestCopiesOfAnEarlierProgram(t *testing.T) {
	program, _ := proctest.BuildRewrite(t, false)
	cmd := exec.Command("/bin/sh", "-c", `read line; exec "$0" copies`, program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	earlier, err := procmap.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	c := &copies{program: earlier, pages: map[addr.Abs]copiedPage{0x1000: {path: "/lib/a.so"}}}
	defer c.ended()
	if spans, err := c.spans(); err != nil || len(spans) != 1 || c.alive() != nil || c.replaced() {
		t.Errorf("%v, %v; want the page, which is not mapped", spans, err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the next program", func() bool { return c.alive() != nil })
	if spans, err := c.spans(); !errors.Is(err, os.ErrProcessDone) || len(spans) != 0 || !c.replaced() {
		t.Errorf("%v, %v, of a program that has ended", spans, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !errors.Is(c.alive(), os.ErrProcessDone) || c.replaced() {
		t.Error("a process that is gone executes something")
	}
}
