package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/testenv"
	"hallmark/procmap"
	"hallmark/reason"
	"hallmark/symbol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask looks up addresses of this very process. It stays open for what the answers are of.
func ask(t *testing.T, addrs ...addr.Abs) []Location {
	t.Helper()
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	places, err := p.Lookup(addrs)
	if err != nil {
		t.Fatal(err)
	}
	for i, place := range places {
		if place.Addr != addrs[i] {
			t.Errorf("answer %d is for %v, want %v", i, place.Addr, addrs[i])
		}
	}
	return places
}

// TestFunction compares with what the Go runtime says of its own functions.
func TestFunction(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range []any{TestFunction, strings.ToUpper, os.ReadFile, (*Process).Lookup} {
		pc := reflect.ValueOf(fn).Pointer()
		file, line := runtime.FuncForPC(pc).FileLine(pc)
		place := ask(t, addr.Abs(pc))[0]
		if place.Name != exe || place.Identity.ID != id.ID || !place.InFile {
			t.Errorf("%s: %+v, want an offset in %s, %v", runtime.FuncForPC(pc).Name(), place, exe, id.ID)
		}
		frames := place.Symbol.Frames
		if len(frames) == 0 {
			t.Errorf("%s: %v", runtime.FuncForPC(pc).Name(), place.Symbol.Reason)
			continue
		}
		outer := frames[len(frames)-1]
		if outer.Func != runtime.FuncForPC(pc).Name() || frames[0].File != file || frames[0].Line != line {
			t.Errorf("%+v, want %s at %s:%d", frames, runtime.FuncForPC(pc).Name(), file, line)
		}
	}
}

func TestVDSO(t *testing.T) {
	maps, err := procmap.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	list, err := maps.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if v.Kind() != procmap.KindVDSO {
			continue
		}
		named := 0
		for a := v.Start; a < v.End; a += 16 {
			place := ask(t, a)[0]
			if place.Name != "[vdso]" || place.Identity.ID.IsZero() || place.Offset != addr.Offset(a-v.Start) {
				t.Fatalf("%+v", place)
			}
			if f := place.Symbol.Frames; len(f) > 0 && strings.Contains(f[0].Func, "clock_gettime") {
				named++
			}
		}
		if named == 0 {
			t.Error("no address of the vdso is in clock_gettime")
		}
		return
	}
	t.Error("no [vdso] was seen")
}

func TestKernel(t *testing.T) {
	a, name := kernelSymbol(t)
	place := ask(t, a)[0]
	id, err := buildid.ReadKernel()
	if err != nil {
		t.Fatal(err)
	}
	if place.Name != "[kernel]" || place.Identity.ID != id.ID || place.InFile {
		t.Errorf("%+v, want the kernel, %v", place, id.ID)
	}
	if f := place.Symbol.Frames; len(f) != 1 || f[0].Func != name || place.Symbol.Source != symbol.SourceKallsyms {
		t.Errorf("%+v, want %s", place.Symbol, name)
	}
	if place := ask(t, 1<<63)[0]; place.Identity.Reason != reason.ModuleUnknown {
		t.Errorf("%+v, want unknown module", place)
	}
}

// kernelSymbol returns a function of the kernel and its address.
func kernelSymbol(t *testing.T) (addr.Abs, string) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[2] == "vfs_read" {
			n, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			testenv.Need(t, n != 0, "the addresses of the kernel, which root sees")
			return addr.Abs(n), fields[2]
		}
	}
	t.Fatal("no vfs_read in /proc/kallsyms", lines.Err())
	return 0, ""
}

func TestNothing(t *testing.T) {
	places := ask(t, 1, addr.Abs(reflect.ValueOf(&testing.T{}).Pointer()))
	for i, want := range []reason.Reason{reason.NotMapped, reason.Anonymous} {
		p := places[i]
		if p.Identity.Reason != want || p.InFile || p.Symbol.Reason != reason.NoIdentity {
			t.Errorf("%v: %+v, want %v", p.Addr, p, want)
		}
	}
}

// TestPerfMap has generated code whose names are in a perf map.
func TestPerfMap(t *testing.T) {
	code, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(code)
	start := addr.Abs(uintptr(unsafe.Pointer(&code[0])))
	if place := ask(t, start)[0]; place.Symbol.Reason != reason.NoPerfMap || place.Identity.Reason != reason.Anonymous {
		t.Errorf("without a map: %+v", place)
	}

	name := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	text := fmt.Sprintf("%x 40 LazyCompile:~handle app.js:7\n", uint64(start)+0x10)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	places := ask(t, start+0x18, start+0x50)
	if f := places[0].Symbol.Frames; len(f) != 1 || f[0].Func != "LazyCompile:~handle app.js:7" {
		t.Errorf("%+v", places[0])
	}
	if places[1].Symbol.Reason != reason.NoSymbol {
		t.Errorf("behind the code: %+v", places[1])
	}
}

func TestGone(t *testing.T) {
	if _, err := Open(1 << 30); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Open: %v, want process done", err)
	}
}
