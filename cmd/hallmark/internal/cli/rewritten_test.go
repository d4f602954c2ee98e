package cli

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hallmark/cmd/hallmark/internal/symbolsource"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/procmap"
	"hallmark/procmap/live"
)

// mapRewritten maps this program once more and rewrites its second page.
func mapRewritten(t *testing.T) (start uintptr) {
	t.Helper()
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	b, err := unix.Mmap(int(f.Fd()), 0, 4*page, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Skip(err) // such memory may be forbidden
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	b[page] ^= 0xff
	return uintptr(unsafe.Pointer(&b[0]))
}

// TestMapsRewritten wants maps to count the pages that a process has rewritten.
func TestMapsRewritten(t *testing.T) {
	start := mapRewritten(t)
	line := fmt.Sprintf("%x-%x", start, start+4*uintptr(os.Getpagesize()))
	for isJSON, want := range map[bool]string{false: "[rewritten 1 page]", true: `"rewritten":1`} {
		var out, errs bytes.Buffer
		if err := runMaps(&verb.Env{Stdout: &out, Stderr: &errs}, mapsOptions{json: isJSON}, os.Getpid()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "rewritten"); n != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("no %q of %s, or others: %s", want, line, &out)
		}
	}
}

// TestAddrRewritten wants addr to give the reason in such a page, and the identity in the next one.
func TestAddrRewritten(t *testing.T) {
	start := mapRewritten(t)
	var out, errs bytes.Buffer
	page := uintptr(os.Getpagesize())
	args := []string{fmt.Sprintf("%x", start+page+8), fmt.Sprintf("%x", start+2*page)}
	if err := runAddr(&verb.Env{Stdout: &out, Stderr: &errs}, false, "", new(symbolsource.Server), os.Getpid(), args); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[0], "[rewritten]") || strings.Contains(lines[1], "rewritten") {
		t.Errorf("printed %s", &out)
	}
}

// mapCopied maps this program once more and puts a copy of its second and third page, in anonymous
// memory, in their place.
func mapCopied(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	b, err := unix.Mmap(int(f.Fd()), 0, 4*page, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	code := slices.Clone(b[page : 3*page])
	_, err = unix.MmapPtr(-1, 0, unsafe.Pointer(&b[page]), 2*uintptr(page), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	if err != nil {
		t.Skip(err) // such memory may be forbidden
	}
	copy(b[page:], code)
	return b
}

// TestMapsCopied wants maps to show code that was copied from a file as the file's in no page that
// differs.
func TestMapsCopied(t *testing.T) {
	b := mapCopied(t)
	page := os.Getpagesize()
	line := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&b[page])))
	look := func(isJSON bool) string {
		var out, errs bytes.Buffer
		if err := runMaps(&verb.Env{Stdout: &out, Stderr: &errs}, mapsOptions{json: isJSON}, os.Getpid()); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(out.String()) {
			if strings.HasPrefix(l, line) || strings.Contains(l, `"start_hex":"0x`+strings.TrimSuffix(line, "-")) {
				return l
			}
		}
		t.Fatalf("no line of %s in %s", line, &out)
		return ""
	}
	check := func(what string, isJSON bool, has, lacks string) {
		t.Helper()
		if got := look(isJSON); !strings.Contains(got, has) || strings.Contains(got, lacks) {
			t.Errorf("%s: %s; want %q and no %q", what, got, has, lacks)
		}
	}
	check("as in the file", false, "(inferred)", "rewritten")
	b[page+5] ^= 1
	check("one page differs", false, "(inferred) [rewritten 1 page]", "[rewritten]")
	check("one page differs", true, `"rewritten":1`, `"reason"`)
	b[2*page] ^= 1
	check("both pages differ", false, "[rewritten]", "[anonymous]")
	check("both pages differ", true, `"reason":"rewritten"`, `"build_id"`)
}

// TestAddrCopied wants addr to give the identity only in the page that is as in the file.
func TestAddrCopied(t *testing.T) {
	b := mapCopied(t)
	page := os.Getpagesize()
	b[page+5] ^= 1
	var out, errs bytes.Buffer
	start := uintptr(unsafe.Pointer(&b[0]))
	args := []string{fmt.Sprintf("%x", start+uintptr(page)+8), fmt.Sprintf("%x", start+2*uintptr(page))}
	if err := runAddr(&verb.Env{Stdout: &out, Stderr: &errs}, false, "", new(symbolsource.Server), os.Getpid(), args); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[0], "[rewritten]") || strings.Contains(lines[0], "(inferred)") ||
		strings.Contains(lines[1], "rewritten") || !strings.Contains(lines[1], "(inferred)") {
		t.Errorf("printed %s", &out)
	}
}

// TestUnlooked wants maps and addr to report that nobody knows whether pages were rewritten.
func TestUnlooked(t *testing.T) {
	p, err := procmap.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	records := []mapRecord{{vma: list[0]}, {}}
	if err := countRewritten(p, records); err != nil || !strings.Contains(records[0].Unlooked, os.ErrClosed.Error()) || records[1].Unlooked != "" {
		t.Errorf("%v, %q and %q", err, records[0].Unlooked, records[1].Unlooked)
	}
	var out, errs bytes.Buffer
	place := live.Location{Unlooked: os.ErrPermission}
	if err := writePlaces(&out, []live.Location{place}); err != nil || !strings.Contains(out.String(), `"rewritten_unknown":"permission denied"`) {
		t.Errorf("%v, %s", err, &out)
	}
	writeUnlooked(&errs, map[string]bool{"permission denied": true})
	if want := "hallmark: nobody knows which pages of files the process has rewritten: permission denied\n"; errs.String() != want {
		t.Errorf("%q, want %q", &errs, want)
	}
}
