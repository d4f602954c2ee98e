package vmtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

var update = flag.Bool("update", false, "test nothing, and rewrite the goldens of all kernels")

// goldens is what is run to rewrite them.
var goldens = []suite{{pkg: "internal/bpf", run: "^TestVerifiedInstructions$"}}

// perSuite is more than a package takes in the guest, beside others.
const perSuite = 20 * time.Minute

// TestKernels runs the suites, and the doctor, on each kernel: on as many at once as there
// are processors, because a guest is emulated by one. A suite that has passed on a kernel,
// and depends on nothing that has changed since, is not run again.
func TestKernels(t *testing.T) {
	dir := os.Getenv("HALLMARK_KERNELS")
	testenv.Need(t, dir != "", "HALLMARK_KERNELS, a directory of kernels (make kernels)")
	testenv.Need(t, runtime.GOARCH == "amd64", "a machine of amd64, as most kernels are")
	for _, tool := range []string{"busybox", "cat", "mkfs.ext4", "readelf", "sleep"} {
		testenv.Tool(t, tool)
	}
	list, err := readPassed(root)
	if err != nil {
		t.Fatal(err)
	}
	todo, packed := map[string][]suite{}, map[string][]suite{} // by kernel, by architecture
	for _, k := range kernels {
		todo[k.series] = list.todo(t, k)
		arch := archName(k)
		for _, s := range todo[k.series] {
			if s.run != "" && !slices.ContainsFunc(packed[arch], func(p suite) bool { return p.name == s.name }) {
				packed[arch] = append(packed[arch], s)
			}
		}
	}
	b := newBuilder(t)
	if !*update {
		b.compile(slices.Concat(packed["amd64"], packed["arm64"]))
	}
	for _, k := range kernels {
		if len(todo[k.series]) > 0 {
			k.suites = todo[k.series]
			t.Run(k.series, func(t *testing.T) { k.test(t, b, list, packed[archName(k)], filepath.Join(dir, "vmlinuz-"+k.series)) })
		}
	}
}

// archName returns the architecture of a kernel's machines.
func archName(k kernel) string {
	if strings.HasSuffix(k.series, "-arm64") {
		return "arm64"
	}
	return "amd64"
}

// todo returns what is to be run on a kernel: the suites and the doctor.
func (p *passed) todo(t *testing.T, k kernel) []suite {
	t.Helper()
	if *update {
		return append(slices.Clone(goldens), doctor)
	}
	var list []suite
	for _, s := range append(slices.Clone(k.suites), doctor) {
		fresh, err := p.has(k, s)
		if err != nil {
			t.Fatal(err)
		}
		if !fresh || testenv.Thorough() {
			list = append(list, s)
		}
	}
	return list
}

// test boots a kernel and has its suites run.
func (k kernel) test(t *testing.T, b builder, list *passed, packed []suite, image string) {
	arch, err := archOf(image)
	testenv.Need(t, err == nil, fmt.Sprintf("the kernel (make kernels): %v", err))
	testenv.Tool(t, arch.emulator)
	system, err := SystemFor(image)
	if err != nil {
		t.Fatal(err)
	}
	files := b.pack(t, system, packed)
	t.Parallel()
	m := Machine{Kernel: image, Modules: ModulesFor(image), Files: files}
	jobs := jobs(k.suites)
	for i := range jobs {
		jobs[i].Env = append(jobs[i].Env, testenv.LackVar+"=later")
	}
	results := run(t, &m, jobs)
	for i, s := range k.suites {
		ok := true
		if s.name == doctor.name {
			ok = checkDoctor(t, k.series, results[i])
		} else {
			ok = k.report(t, s, results[i], &m)
		}
		if !ok || !results[i].Ended || *update {
			continue
		}
		if err := list.add(k, s); err != nil {
			t.Error(err)
		}
	}
}

// run has the machine do the jobs.
func run(t *testing.T, m *Machine, jobs []Job) []Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(jobs))*perSuite)
	defer cancel()
	results, err := m.Run(ctx, jobs)
	if err != nil {
		t.Error(err)
	}
	return results
}
