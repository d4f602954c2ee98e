package procmap

import (
	"os"
	"reflect"
	"syscall"
	"testing"

	"hallmark/addr"
	"hallmark/reason"
)

// TestLocate locates code of this program, of the vdso, data of a file with a page that this process has
// rewritten, memory without a file, and an address where nothing is: as the single questions answer.
func TestLocate(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	all, err := p.All()
	if err != nil {
		t.Fatal(err)
	}
	addrs := []addr.Abs{addr.Abs(reflect.ValueOf(TestLocate).Pointer()), 1, addr.Abs(1)<<63 + 1}
	for _, v := range all {
		addrs = append(addrs, v.Start, v.End-1, v.Start+(v.End-v.Start)/2)
	}
	located, err := p.Locate(addrs)
	if err != nil {
		t.Fatal(err)
	}
	if len(located) != len(addrs) {
		t.Fatalf("%d locations of %d addresses", len(located), len(addrs))
	}
	inVDSO, inFile, mapped := 0, 0, 0
	for i, l := range located {
		if l.Addr != addrs[i] {
			t.Fatalf("location %d is of %v, not %v", i, l.Addr, addrs[i])
		}
		v, ok, err := p.Find(l.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if l.Identity.Reason != reason.NotMapped || l.File != (VMA{}) || l.InFile {
				t.Errorf("%v, where nothing is mapped: %+v", l.Addr, l)
			}
			continue
		}
		mapped++
		id, err := p.Identity(v)
		if err != nil {
			t.Fatal(err)
		}
		if l.Identity.ID != id.ID || l.Identity.Reason != id.Reason {
			t.Errorf("%v: %+v, want %+v", l.Addr, l.Identity, id)
		}
		switch {
		case v.Kind() == KindVDSO:
			inVDSO++
			fallthrough
		case v.FileBacked():
			inFile++
			if l.File != v || !l.InFile || l.Offset != v.FileOffset(l.Addr) {
				t.Errorf("%v: %+v, want offset %v of %v", l.Addr, l, v.FileOffset(l.Addr), v)
			}
		case !id.Inferred && l.InFile:
			t.Errorf("%v: in a file: %+v", l.Addr, l)
		}
	}
	if inVDSO == 0 || inFile == inVDSO || mapped == inFile || located[0].Identity.ID.IsZero() {
		t.Errorf("%d of %d mapped addresses are in files, %d in the vdso; this program is %+v", inFile, mapped, inVDSO, located[0])
	}
}

// TestLocateRewritten wants the pages of code that a process has rewritten to have no identity, and the
// others of that mapping to have theirs.
func TestLocateRewritten(t *testing.T) {
	v, b := mapBytes(t, 4, syscall.MAP_PRIVATE, 2)
	if err := syscall.Mprotect(b, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		t.Skipf("this process may map no file that was written to executable: %v", err)
	}
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	page := addr.Abs(os.Getpagesize())
	located, err := p.Locate([]addr.Abs{v.Start, v.Start + 2*page, v.Start + 3*page - 1, v.Start + 3*page})
	if err != nil {
		t.Fatal(err)
	}
	for i, isRewritten := range []bool{false, true, true, false} {
		l := located[i]
		if (l.Identity.Reason == reason.Rewritten) != isRewritten || !l.InFile || l.Offset != addr.Offset(l.Addr-v.Start) || l.Unlooked != nil {
			t.Errorf("%+v, want rewritten: %v", l, isRewritten)
		}
	}
}
