package vmtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

var update = flag.Bool("update", false, "test nothing, and rewrite the goldens of all kernels")

// A kernel is one that getkernels.sh fetches.
type kernel struct {
	series string
	lacks  string // matches the reasons for which tests are skipped on it, and should be
	suites []suite
}

// kernels are those that tests run on. Those that take longest are early in the list, so
// that at the end none goes on alone; Go begins with the last.
var kernels = []kernel{
	{"7.2", "", suites},
	{"6.18", "", suites},
	{"6.12", "", suites},
	{"6.1", `Linux 6\.13|Linux 6\.11|Linux 6\.7|Linux 6\.4`, suites},
	{"5.10", `BPF programs|Linux 6\.11|Linux 6\.7|Linux 6\.4|Linux 5\.16`, suites},
	{"6.12-arm64", `x86-64 machine|breakpoints in the kernel|maps \[vsyscall\]`, armSuites},
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
		pkg: "internal/bpf",
		run: ".",
		must: []string{"TestSamplerKnowsItself", "TestForgottenIsIntroducedAgain", "TestKernelFrames", "TestInNMI", "TestVerifiedInstructions",
			"TestUnwinding", "TestForking", "TestAgreement", "TestFinished", "TestStraddling",
			"TestExecIdentities", "TestExecOwn", "TestExecExits", "TestExecWake", "TestExecCPU", "TestExecFollow", "TestExecMany", "TestExecAtOnce",
			"TestExecLost"},
		compiled: "^TestUnwinding$/^recursion$", // all make the same program
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
	{
		pkg:  "capture",
		run:  watching,
		must: []string{"TestWatchCommand/bpf", "TestWatchCommand/opened", "TestWatchCommand/perf", "TestWatchMany/bpf", "TestWatchMany/opened", "TestWatchMany/perf"},
	},
}

// capturing are the tests of capture that do not want most samples to be in the
// program: on an emulated processor its start takes longer than its work.
const capturing = "^Test(RecordRunning|RecordReplaced|RecordLabels|RecordSystem|Command|Cgroup)"

// watching are the tests of capture that are told what is executed.
const watching = "^TestWatch(Command|Many|Ends)$"

// armSuites run on arm64: what depends on the architecture, and, of what does not, as
// much as shows that it indeed does not.
var armSuites = []suite{
	{
		pkg:  "internal/bpf",
		run:  "^Test(SamplerKnowsItself|ForgottenIsIntroducedAgain|KernelFrames|StackmapOfGo|StockIsWhatProcSays|VerifiedInstructions|Exec.*)$",
		must: []string{"TestSamplerKnowsItself", "TestForgottenIsIntroducedAgain", "TestKernelFrames", "TestStackmapOfGo", "TestVerifiedInstructions", "TestExecIdentities", "TestExecExits", "TestExecAtOnce"},
	},
	{
		pkg:      "internal/bpf",
		run:      "^TestUnwinding$/^(signal|mixed)$",
		must:     []string{"TestUnwinding/signal", "TestUnwinding/mixed"},
		compiled: "^TestUnwinding$/^signal$",
	},
	{
		pkg:      "unwind",
		run:      "^TestOwnStacks$",
		must:     []string{"TestOwnStacks"},
		compiled: "^TestOwnStacks$",
	},
	{
		pkg:  "procmap",
		run:  ".",
		must: []string{"TestIdentities", "TestEveryProcess", "TestOverwritten", "TestMemfd", "TestMountNamespace", "TestOverlay", "TestChurn"},
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
	{
		pkg:  "capture",
		run:  watching,
		must: []string{"TestWatchCommand/bpf", "TestWatchCommand/opened", "TestWatchCommand/perf", "TestWatchMany/bpf", "TestWatchMany/opened", "TestWatchMany/perf"},
	},
}

// goldens is what is run to rewrite them.
var goldens = []suite{{pkg: "internal/bpf", run: "^TestVerifiedInstructions$"}}

// perSuite is more than a package takes in the guest, beside others.
const perSuite = 20 * time.Minute

// TestKernels runs the suites, and the doctor, on each kernel: on as many at once as there
// are processors, because a guest is emulated by one.
func TestKernels(t *testing.T) {
	dir := os.Getenv("HALLMARK_KERNELS")
	testenv.Need(t, dir != "", "HALLMARK_KERNELS, a directory of kernels (make kernels)")
	testenv.Need(t, runtime.GOARCH == "amd64", "a machine of amd64, as most kernels are")
	for _, tool := range []string{"busybox", "cat", "readelf", "sleep"} {
		testenv.Tool(t, tool)
	}
	b := newBuilder(t)
	if !*update {
		b.compile(slices.Concat(suites, armSuites))
	}
	for _, k := range kernels {
		t.Run(k.series, func(t *testing.T) { k.test(t, b, filepath.Join(dir, "vmlinuz-"+k.series)) })
	}
}

// test boots a kernel and has its suites run.
func (k kernel) test(t *testing.T, b builder, image string) {
	arch, err := archOf(image)
	testenv.Need(t, err == nil, fmt.Sprintf("the kernel (make kernels): %v", err))
	testenv.Tool(t, arch.emulator)
	if *update {
		k.suites = goldens
	}
	system, err := SystemFor(image)
	if err != nil {
		t.Fatal(err)
	}
	jobs, files := jobs(k.suites), b.pack(t, system, k.suites)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(jobs))*perSuite)
	defer cancel()
	m := Machine{Kernel: image, Modules: ModulesFor(image), Files: files}
	results, err := m.Run(ctx, jobs)
	if err != nil {
		t.Error(err)
	}
	for i, s := range k.suites {
		k.report(t, s, results[i])
	}
	checkDoctor(t, k.series, results[len(k.suites)])
}
