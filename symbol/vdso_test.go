package symbol

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/testenv"
)

// TestVdso reads the image that the kernel mapped into this process.
func TestVdso(t *testing.T) {
	image := vdsoImage(t)
	f, err := NewFile(bytes.NewReader(image), "[vdso]")
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := e.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
			continue
		}
		functions++
		for _, v := range []uint64{s.Value, s.Value + s.Size - 1} {
			got := f.LookupVirt(addr.Virt(v))
			name := linkage(f, addr.Virt(v))
			if strings.TrimPrefix(s.Name, "__vdso_") != strings.TrimPrefix(name, "__vdso_") || got.Source != SourceDynsym && got.Source != SourceSymtab {
				t.Errorf("%#x is %+v, want %s", v, got, s.Name)
			}
			if o, ok := f.Offset(addr.Virt(v)); !ok || !same(f.LookupOffset(o), got) {
				t.Errorf("offset %v of %#x is %+v, want %+v", o, v, f.LookupOffset(o), got)
			}
		}
	}
	if functions == 0 {
		t.Error("no function in the vdso")
	}
	x := mustIndexFile(t, f)
	for o := range addr.Offset(len(image)) {
		if got, want := x.LookupOffset(o), f.LookupOffset(o); !reflect.DeepEqual(got, want) {
			t.Fatalf("offset %v is %+v in the index, and %+v in the vdso", o, got, want)
		}
	}
}

func same(a, b Result) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func vdsoImage(t testing.TB) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		var start, end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil || !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		image := make([]byte, end-start)
		if _, err := mem.ReadAt(image, start); err != nil {
			t.Fatal(err)
		}
		return image
	}
	testenv.Need(t, false, "a vdso")
	return nil
}
