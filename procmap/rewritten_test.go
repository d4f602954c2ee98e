package procmap

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"hallmark/addr"
)

// mapPages maps a new file of so many pages privately, and writes to these pages.
func mapPages(t *testing.T, n int, flags int, written ...int) VMA {
	v, _ := mapBytes(t, n, flags, written...)
	return v
}

// mapBytes is mapPages, and returns the memory as well.
func mapBytes(t *testing.T, n int, flags int, written ...int) (VMA, []byte) {
	t.Helper()
	size := n * os.Getpagesize()
	name := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	sum := byte(0)
	for i := 0; i < size; i += os.Getpagesize() {
		sum += b[i] // every page is there
	}
	for _, page := range written {
		b[page*os.Getpagesize()] = sum + 1
	}
	start := addr.Abs(uintptr(unsafe.Pointer(&b[0])))
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	v, ok, err := p.Find(start)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return v, b
}

// TestRewritten wants the pages that were written to and no others, by both ways to ask.
func TestRewritten(t *testing.T) {
	v := mapPages(t, 700, syscall.MAP_PRIVATE, 0, 3, 4, 699)
	page := addr.Abs(os.Getpagesize())
	want := []Pages{{v.Start, v.Start + page}, {v.Start + 3*page, v.Start + 5*page}, {v.Start + 699*page, v.Start + 700*page}}
	checkRewritten(t, v, want)
	if shared := mapPages(t, 4, syscall.MAP_SHARED, 1); shared.Perm&Shared == 0 {
		t.Error("the mapping is not shared")
	} else {
		checkRewritten(t, shared, nil)
	}
}

func checkRewritten(t *testing.T, v VMA, want []Pages) {
	t.Helper()
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got, err := p.Rewritten(v); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if v.Perm&Shared != 0 {
		return
	}
	f, err := p.pagemap()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := readPages(f, v); err != nil || !slices.Equal(got, want) {
		t.Errorf("by reading: %v, %v; want %v", got, err, want)
	}
}

// TestWrittenAlike wants a page that has the bytes of the file to be the file's.
func TestWrittenAlike(t *testing.T) {
	v, b := mapBytes(t, 4, syscall.MAP_PRIVATE, 1, 2)
	b[os.Getpagesize()] = 0
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	page := addr.Abs(os.Getpagesize())
	if got, err := p.Rewritten(v); err != nil || !slices.Equal(got, []Pages{{v.Start + 2*page, v.Start + 3*page}}) {
		t.Errorf("%v, %v; want the third page", got, err)
	}
}

// TestManyRewritten wants the last range to go on to the end where there are too many.
func TestManyRewritten(t *testing.T) {
	var written []int
	for i := range maxOwn + 50 {
		written = append(written, 2*i)
	}
	v := mapPages(t, 1000, syscall.MAP_PRIVATE, written...)
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.pagemap()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	byRead, readErr := readPages(f, v)
	found, err := p.Rewritten(v)
	for _, got := range [][]Pages{found, byRead} {
		if err != nil || readErr != nil || len(got) < maxOwn || got[len(got)-1].End != v.End {
			t.Errorf("%d ranges up to %v, %v, %v; want %d up to %v", len(got), got[len(got)-1].End, err, readErr, maxOwn, v.End)
		}
	}
}
