package vmtest

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

var update = flag.Bool("update", false, "test nothing, and rewrite the goldens of all kernels")

// A kernel is one that getkernels.sh fetches.
type kernel struct {
	series string
	lacks  string // matches the reasons for which tests are skipped on it, and should be
}

var kernels = []kernel{
	{"5.10", `BPF programs|Linux 6\.11|Linux 6\.7|Linux 5\.16`},
	{"6.1", `Linux 6\.11|Linux 6\.7`},
	{"6.12", ""},
	{"6.18", ""},
	{"7.2", ""},
}

// A suite is tests of one package that run in the guest.
type suite struct {
	pkg      string
	run      string   // which: those that the kernel has a say in
	must     []string // these have to be run on every kernel that has what they need
	compiled string   // these compile programs, so they are run on the host first
}

var suites = []suite{
	{
		pkg:  "internal/bpf",
		run:  ".",
		must: []string{"TestSamplerKnowsItself", "TestForgottenIsIntroducedAgain", "TestKernelFrames", "TestInNMI", "TestVerifiedInstructions"},
	},
	{
		pkg:      "procmap",
		run:      ".",
		must:     []string{"TestIdentities", "TestEveryProcess", "TestOverwritten", "TestMemfd", "TestMountNamespace", "TestOverlay", "TestThirtyTwoBits", "TestChurn"},
		compiled: "ThirtyTwoBits",
	},
	{
		pkg:  "buildid",
		run:  "Kernel|Notes|Modules|Memory|Process|VDSO|Deleted",
		must: []string{"TestProcesses", "TestVDSO", "TestDeletedProgram"},
	},
	{
		pkg:      "capture",
		run:      capturing,
		must:     []string{"TestRecordRunning/bpf", "TestRecordReplacedFile/bpf", "TestRecordSystem/bpf", "TestRecordSystem/perf"},
		compiled: capturing,
	},
}

// capturing are the tests of capture that do not want most samples to be in the
// program: on an emulated processor its start takes longer than its work.
const capturing = "^Test(RecordRunning|RecordReplaced|RecordLabels|RecordSystem|Command|Cgroup)"

// goldens is what is run to rewrite them.
var goldens = []suite{{pkg: "internal/bpf", run: "^TestVerifiedInstructions$"}}

// perSuite is more than a package takes in the guest.
const perSuite = 8 * time.Minute

// TestKernels runs the suites, and the doctor, on each kernel.
func TestKernels(t *testing.T) {
	dir := os.Getenv("HALLMARK_KERNELS")
	testenv.Need(t, dir != "", "HALLMARK_KERNELS, a directory of kernels (make kernels)")
	testenv.Need(t, runtime.GOARCH == "amd64", "a machine of amd64, as the kernels are")
	for _, tool := range []string{"qemu-system-x86_64", "busybox", "cat", "readelf", "sleep"} {
		testenv.Tool(t, tool)
	}
	chosen := suites
	if *update {
		chosen = goldens
	}
	files, jobs := pack(t, chosen)
	for _, k := range kernels {
		t.Run(k.series, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(jobs))*perSuite)
			defer cancel()
			image := filepath.Join(dir, "vmlinuz-"+k.series)
			m := Machine{Kernel: image, Modules: ModulesFor(image), Files: files}
			results, err := m.Run(ctx, jobs)
			if err != nil {
				t.Error(err)
			}
			for i, s := range chosen {
				k.report(t, s, results[i])
			}
			checkDoctor(t, k.series, results[len(chosen)])
		})
	}
}
