package procmap

import (
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"hallmark/addr"
	"hallmark/reason"
)

// TestOrigin looks at code that its program copied to anonymous memory and to a
// memory file.
func TestOrigin(t *testing.T) {
	path := copyFile(t, goFile(), "program")
	c := start(t, play("remap", path))
	base, err := strconv.ParseUint(c.line, 16, 64)
	must(t, err)
	want := idOf(t, path)
	for _, m := range methods(t) {
		p := open(t, c.pid, m)
		for pageNo := range addr.Abs(8) {
			at := addr.Abs(base) + pageNo*page + 123
			v, ok, err := p.Find(at)
			if !ok || err != nil {
				t.Fatal(v, ok, err)
			}
			copied := pageNo >= 2 && pageNo < 5
			file, ok, err := p.Origin(v)
			if err != nil || ok != copied || copied == (v.Kind() == KindFile) {
				t.Errorf("%v: Origin(%v) = %v, %v, %v", m, v, file, ok, err)
			}
			if ok && (file.FileOffset(at) != addr.Offset(pageNo*page+123) || file.Name != path || file.Start != v.Start) {
				t.Errorf("%v: page %d: Origin(%v) = %v", m, pageNo, v, file)
			}
			id, err := p.Identity(v)
			if err != nil || id.ID != want || id.Inferred != copied {
				t.Errorf("%v: page %d: identity %+v, %v, want %v", m, pageNo, id, err, want)
			}
		}
	}
}

// TestOwnNeighbours has code between other parts of the same memory file.
func TestOwnNeighbours(t *testing.T) {
	fd := memfd("program")
	defer syscall.Close(fd)
	must(t, syscall.Ftruncate(fd, 3*page))
	m, err := syscall.Mmap(fd, 0, 3*page, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	defer syscall.Munmap(m)
	must(t, syscall.Mprotect(m[page:2*page], syscall.PROT_READ|syscall.PROT_EXEC))
	p := open(t, os.Getpid(), Auto)
	v := mappingOf(t, p, func(v VMA) bool { return v.Kind() == KindMemfd })
	if file, ok, err := p.Origin(v); ok || err != nil {
		t.Errorf("Origin(%v) = %v, %v, %v", v, file, ok, err)
	}
	if id, err := p.Identity(v); err != nil || id.Reason != reason.Anonymous && os.Geteuid() == 0 {
		t.Errorf("Identity(%v) = %+v, %v", v, id, err)
	}
}

// TestNoOrigin has executable memory that is not a copy of a file's code, beside
// and between mappings of files.
func TestNoOrigin(t *testing.T) {
	vma := func(start, end uint64, perm Perm, offset uint64, inode uint64) VMA {
		v := VMA{Start: absPages(start), End: absPages(end), Perm: perm, Offset: addr.Offset(offset * page)}
		if inode != 0 {
			v.Dev, v.Inode, v.Name = Dev{8, 1}, inode, "/lib"+strconv.FormatUint(inode, 10)
		}
		return v
	}
	for name, tt := range map[string]struct {
		hole hole
		fits bool
	}{
		"fits":             {hole{vma(1, 2, Read|Exec, 0, 1), vma(4, 5, Read|Exec, 3, 1)}, true},
		"offset too small": {hole{vma(1, 2, Read|Exec, 0, 1), vma(4, 5, Read|Exec, 2, 1)}, false},
		"offset too large": {hole{vma(1, 2, Read|Exec, 0, 1), vma(4, 5, Read|Exec, 4, 1)}, false},
		"two files":        {hole{vma(1, 2, Read|Exec, 0, 1), vma(4, 5, Read|Exec, 3, 2)}, false},
		"no files":         {hole{vma(1, 2, Read|Exec, 0, 0), vma(4, 5, Read|Exec, 3, 0)}, false},
		"offset wraps":     {hole{vma(1, 2, Read|Exec, 1<<52-2, 1), vma(4, 5, Read|Exec, 1, 1)}, false},
	} {
		if got := tt.hole.fits(); got != tt.fits {
			t.Errorf("%s: %v, want %v", name, got, tt.fits)
		}
	}

	m, err := syscall.Mmap(-1, 0, page, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	must(t, err)
	defer syscall.Munmap(m)
	p := open(t, os.Getpid(), Auto)
	v := mappingOf(t, p, func(v VMA) bool { return v.Kind() == KindAnonymous })
	if file, ok, err := p.Origin(v); ok || err != nil {
		t.Errorf("Origin(%v) = %v, %v, %v", v, file, ok, err)
	}
	if id, err := p.Identity(v); err != nil || id.Reason != reason.Anonymous {
		t.Errorf("Identity(%v) = %+v, %v", v, id, err)
	}
}

// TestUnlikeOrigin wants code that was copied to anonymous memory to be the file's only in pages that
// are the same, from moment to moment.
func TestUnlikeOrigin(t *testing.T) {
	path := copyFile(t, goFile(), "program")
	text := mapFile(path, 0)
	defer syscall.Munmap(text)
	start := addr.Abs(uintptr(unsafe.Pointer(&text[0])))
	const prot, flags = syscall.PROT_READ | syscall.PROT_WRITE | syscall.PROT_EXEC, syscall.MAP_PRIVATE | syscall.MAP_ANON
	code := slices.Clone(text[2*page : 5*page])
	mapAt(uintptr(start+2*page), 3*page, prot, flags, ^uintptr(0), 0)
	copy(text[2*page:], code)
	pages := func(from, to addr.Abs) []Pages { return []Pages{{start + from*page, start + to*page}} }
	for _, m := range methods(t) {
		p := open(t, os.Getpid(), m)
		check := func(what string, want []Pages) {
			t.Helper()
			v, ok, err := p.Find(start + 2*page)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if got, err := p.Rewritten(v); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v: %s: %v, %v; want %v", m, what, got, err, want)
			}
			located, err := p.Locate([]addr.Abs{start + 3*page + 1, start + 4*page, start + 4*page - 1, start + page})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range located {
				isRewritten := slices.ContainsFunc(want, func(r Pages) bool { return r.Contains(l.Addr) })
				isCopy := l.Addr >= start+2*page && !isRewritten
				if (l.Identity.Reason == reason.Rewritten) != isRewritten || l.Identity.Inferred != isCopy || l.Identity.ID.IsZero() != isRewritten ||
					l.Offset != addr.Offset(l.Addr-start) {
					t.Errorf("%v: %s: %+v", m, what, l)
				}
			}
		}
		check("copy", nil)
		text[3*page+7] ^= 1
		check("fourth page written", pages(3, 4))
		text[2*page] ^= 1
		check("two pages written", pages(2, 4))
		text[3*page+7] ^= 1
		text[2*page] ^= 1
		check("as before", nil)
		v, _, _ := p.Find(start)
		if got, err := p.UnlikeOrigin(v, pages(0, 1)); err != nil || !slices.Equal(got, pages(0, 1)) {
			t.Errorf("%v: of the file itself: %v, %v", m, got, err)
		}
	}
}

// TestManyCopied wants pages beyond those that are compared to count as rewritten.
func TestManyCopied(t *testing.T) {
	path := copyFile(t, goFile(), "program")
	text := mapFile(path, 0)
	defer syscall.Munmap(text)
	start := addr.Abs(uintptr(unsafe.Pointer(&text[0])))
	code := slices.Clone(text[page : 4*page])
	mapAt(uintptr(start+page), 3*page, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC, syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	copy(text[page:], code)
	p := open(t, os.Getpid(), Auto)
	v, ok, err := p.Find(start + page)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	for left, want := range map[int64][]Pages{
		3: nil, 2: {{start + 3*page, start + 4*page}}, 0: {{start + page, start + 4*page}}, -5: {{start + page, start + 4*page}},
	} {
		p.copies.Store(maxCopied - left)
		if got, err := p.Rewritten(v); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d pages left: %v, %v; want %v", left, got, err, want)
		}
	}
}
