package bpf

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"hallmark/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden of this kernel")

// safelyVerified is how many instructions of a program a verifier may look at here.
// It gives up at a million, and the next kernel may need more.
const safelyVerified = 500_000

// verified is, for each program, how many instructions the verifier of a kernel
// looked at, or refused. It is what the program costs when it is loaded, and how far
// it is from not being loaded at all.
type verified map[string]int

// refused stands for a program that the kernel does not take, or this machine.
const refused = -1

// TestVerifiedInstructions compares with the golden of this kernel: with another
// release of the same series a program may need a quarter more.
func TestVerifiedInstructions(t *testing.T) {
	testenv.Root(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	have := verifyAll(t)
	for program, n := range have {
		if n > safelyVerified {
			t.Errorf("the verifier looks at %d instructions of %s: too near to its limit of a million", n, program)
		}
	}
	golden := filepath.Join("testdata", "verified", kernelName(t, release)+".txt")
	b, err := os.ReadFile(golden)
	if *update {
		if _, want := parseVerified(t, b); !t.Failed() {
			have.update(t, golden, release, want)
		}
		return
	}
	if os.IsNotExist(err) {
		t.Logf("no golden for this kernel; it would be\n%s", have.format(release))
		return
	}
	of, want := parseVerified(t, b)
	for program, n := range have {
		switch w, ok := want[program]; {
		case !ok, of == release && n != w:
			t.Errorf("%s: %d instructions, the golden has %d (known: %v)", program, n, w, ok)
		case w != refused && (n == refused || n > w+w/4):
			t.Errorf("%s: %d instructions, and %d on %s", program, n, w, of)
		}
	}
	if len(have) != len(want) || t.Failed() {
		t.Errorf("%s is (go test -update rewrites it)\n%shave\n%s", golden, b, have.format(release))
	}
}

// update rewrites a golden, but not with the news that a program is refused.
func (v verified) update(t *testing.T, golden, release string, old verified) {
	t.Helper()
	for program, n := range v {
		if was, ok := old[program]; ok && was != refused && n == refused {
			t.Errorf("%s is refused now; it was not, so %s stays as it is", program, golden)
		}
	}
	if t.Failed() {
		return
	}
	if err := os.WriteFile(golden, v.format(release), 0o644); err != nil {
		t.Error(err)
	}
}

// kernelName names what has a golden: the series of the kernel and who built it,
// the first word of letters in its release, and the architecture unless it is amd64.
func kernelName(t *testing.T, release string) string {
	t.Helper()
	m := regexp.MustCompile(`^(\d+\.\d+)[^a-z]*([a-z]*)`).FindStringSubmatch(release)
	if m == nil {
		t.Fatalf("the kernel's release is %q", release)
	}
	name := strings.TrimSuffix(m[1]+"-"+m[2], "-")
	if runtime.GOARCH != "amd64" {
		name += "-" + runtime.GOARCH
	}
	return name
}

// verifyAll loads every program of every object, each by itself.
func verifyAll(t *testing.T) verified {
	t.Helper()
	objects, err := filepath.Glob("*_bpfel.o")
	if err != nil || len(objects) == 0 {
		t.Fatal(objects, err)
	}
	all := verified{}
	types := btf.NewCache() // which are read once
	for _, object := range objects {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		leaveOldTaskWork(spec)
		if v := spec.Variables["task_work"]; v != nil {
			if err := v.Set(HasTaskWork()); err != nil {
				t.Fatal(err)
			}
		}
		for program := range spec.Programs {
			all[strings.TrimSuffix(object, "_bpfel.o")+"."+program] = verify(t, spec.Copy(), program, types)
		}
		if v := spec.Variables["unwinding"]; v != nil {
			if err := v.Set(true); err != nil {
				t.Fatal(err)
			}
			all["sampler.sample(unwinding)"] = verify(t, spec, "sample", types)
		}
	}
	return all
}

// verify loads one program of an object.
func verify(t *testing.T, spec *ebpf.CollectionSpec, program string, types *btf.Cache) int {
	t.Helper()
	spec.Programs = map[string]*ebpf.ProgramSpec{program: spec.Programs[program]}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		t.Logf("%s: %v", program, err)
		return refused
	}
	defer loaded.Close()
	info, err := loaded.Programs[program].Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	testenv.Need(t, ok, "Linux 5.16, which tells how many instructions were verified")
	return int(n)
}

// format writes a golden: the release, and a line for each program.
func (v verified) format(release string) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, release)
	for _, program := range slices.Sorted(maps.Keys(v)) {
		if v[program] == refused {
			fmt.Fprintf(&b, "%-32s refused\n", program)
		} else {
			fmt.Fprintf(&b, "%-32s %7d\n", program, v[program])
		}
	}
	return b.Bytes()
}

// parseVerified reads what format writes.
func parseVerified(t *testing.T, golden []byte) (release string, v verified) {
	t.Helper()
	release, lines, _ := strings.Cut(string(golden), "\n")
	v = verified{}
	for line := range strings.Lines(lines) {
		program, n := "", refused
		if _, err := fmt.Sscanf(line, "%s %d", &program, &n); err != nil && !strings.Contains(line, " refused") {
			t.Fatalf("golden: %q: %v", line, err)
		}
		v[program] = n
	}
	return release, v
}
