package vmtest

import "slices"

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
	{"6.1", `FUSE in the kernel|Linux 6\.13|Linux 6\.11|Linux 6\.7|Linux 6\.4`, suites},
	{"5.10", `FUSE in the kernel|BPF programs|Linux 6\.11|Linux 6\.7|Linux 6\.4|Linux 5\.16`, suites},
	{"6.12-arm64", `x86-64 machine|breakpoints in the kernel|maps \[vsyscall\]`, armSuites},
}

// A suite is tests of one package that run in the guest.
type suite struct {
	name     string // in the list of what has passed
	pkg      string
	run      string   // which: those that the kernel has a say in
	must     []string // these have to be run on every kernel that has what they need
	compiled string   // these compile programs, so they are run on the host first
	sources  []string // files outside pkg that they compile, and that are part of it in the guest
	inputs   []string // packages besides pkg whose code meets the kernel in these tests
}

// recordInputs are those of capture's tests. The doctor of each kernel has the same, and its
// verb.
var recordInputs = []string{"internal/bpf", "procmap", "buildid", "unwind", "internal/aside", "internal/mounts", "internal/perfmap", "internal/perfregs",
	"internal/perfring", "internal/procfs", "internal/objects", "internal/proctest", "internal/reach", "internal/rewrites", "internal/unwindtables", "internal/backend", "internal/jitcode", "internal/kernelcode", "execwatch", "inventory", "launch"}

// doctor is what is run on each kernel after the suites: hallmark doctor --json.
var doctor = suite{name: "doctor", pkg: "capture", inputs: append(slices.Clone(recordInputs), "cmd/hallmark/internal/doctor", "cmd/hallmark/internal/cli/doctor.go")}

// notOfKernels are packages that suites are built with, and that are no reason to run them
// again: what these packages do is the same on every kernel, and is tested on this one.
var notOfKernels = map[string]string{
	"addr":                  "types",
	"reason":                "types",
	"profile":               "a model, and files that it is written to",
	"perfdata":              "a format",
	"symbol":                "files and their index",
	"debuginfo":             "where files are",
	"debuginfo/debuginfod":  "a protocol of servers",
	"internal/addrspace":    "arithmetic",
	"internal/atomicfile":   "writing and renaming files",
	"internal/capability":   "one system call",
	"internal/cachedir":     "directories of the user",
	"internal/contentcache": "hashes of files, remembered",
	"internal/contested":    "comparing what others have read",
	"internal/cursor":       "reading bytes",
	"internal/leaktest":     "which goroutines tests may leave",
	"internal/defect":       "panics of readers",
	"internal/inflate":      "a decompressor",
	"internal/intern":       "tables in memory",
	"internal/ordered":      "a set and a map",
	"internal/plaintext":    "sentences",
	"internal/dwarf":        "a format",
	"internal/patience":     "waiting",
	"internal/pclntab":      "a format",
	"internal/elftest":      "builds files for tests",
	"internal/fstimes":      "a list of file systems",
	"internal/fusetest":     "a server for tests, of which most are not run there",
	"internal/ranges":       "arithmetic",
	"internal/elffile":      "a format",
	"internal/symtab":       "a format",
	"internal/quota":        "arithmetic",
	"internal/readable":     "names",
	"internal/regular":      "opening files, which a suite of its own asks the kernels for",
	"internal/testenv":      "what tests need",
	"internal/trust":        "owners of files",
	"internal/turns":        "an order of work",
}

var suites = append([]suite{
	{
		name: "bpf",
		pkg:  "internal/bpf",
		run:  ".",
		must: []string{"TestSamplerKnowsItself", "TestForgottenIsIntroducedAgain", "TestKernelFrames", "TestInNMI", "TestVerifiedInstructions",
			"TestUnwinding", "TestForking", "TestAgreement", "TestFinished", "TestStraddling",
			"TestExecIdentities", "TestExecOwn", "TestExecExits", "TestExecWake", "TestExecCPU", "TestExecFollow", "TestExecMany", "TestExecAtOnce", "TestExecLost"},
		compiled: "^TestUnwinding$/^recursion$", // all make the same program
		inputs:   []string{"buildid", "unwind"},
	},
	{
		name:     "procmap",
		pkg:      "procmap",
		run:      ".",
		must:     []string{"TestIdentities", "TestEveryProcess", "TestOverwritten", "TestMemfd", "TestMountNamespace", "TestOverlay", "TestThirtyTwoBits", "TestChurn"},
		compiled: "ThirtyTwoBits",
		inputs:   []string{"buildid", "internal/aside", "internal/mounts"},
	},
}, everywhere...)

// everywhere are the suites that run on all architectures.
var everywhere = []suite{
	{
		name: "buildid",
		pkg:  "buildid",
		run:  "Kernel|Notes|Modules|Memory|Process|VDSO|Deleted",
		must: []string{"TestProcesses", "TestVDSO", "TestDeletedProgram"},
	},
	{
		name: "regular",
		pkg:  "internal/regular",
		run:  "^Test(OnlyRegularFiles|ReopenIsOfThePlace|OpenEntryOfOthers|SwappedNames)$",
		must: []string{"TestOnlyRegularFiles", "TestReopenIsOfThePlace", "TestOpenEntryOfOthers", "TestSwappedNames"},
	},
	{
		name:     "record",
		pkg:      "capture",
		run:      capturing,
		must:     []string{"TestRecordRunning/bpf", "TestRecordReplacedFile/bpf", "TestRecordSystem/bpf", "TestRecordSystem/perf"},
		compiled: capturing,
		inputs:   recordInputs,
	},
	{
		name:   "watch",
		pkg:    "execwatch",
		run:    watching,
		must:   []string{"TestWatchCommand/bpf", "TestWatchCommand/opened", "TestWatchCommand/perf", "TestWatchMany/bpf", "TestWatchMany/opened", "TestWatchMany/perf"},
		inputs: recordInputs,
	},
}

// capturing are the tests of capture that do not want most samples to be in the
// program: on an emulated processor its start takes longer than its work.
const capturing = "^Test(RecordRunning|RecordReplaced|RecordLabels|RecordSystem|Cgroup)"

// watching are the tests of execwatch that receive executions.
const watching = "^TestWatch(Command|Many|Ends)$"

// armSuites run on arm64: what depends on the architecture, and, of what does not, as
// much as shows that it indeed does not.
var armSuites = append([]suite{
	{
		name:   "bpf",
		pkg:    "internal/bpf",
		run:    "^Test(SamplerKnowsItself|ForgottenIsIntroducedAgain|KernelFrames|StackmapOfGo|StockIsWhatProcSays|VerifiedInstructions|Exec.*)$",
		must:   []string{"TestSamplerKnowsItself", "TestForgottenIsIntroducedAgain", "TestKernelFrames", "TestStackmapOfGo", "TestVerifiedInstructions", "TestExecIdentities", "TestExecExits", "TestExecAtOnce"},
		inputs: []string{"buildid", "unwind"},
	},
	{
		name:     "bpf-unwinding",
		pkg:      "internal/bpf",
		run:      "^TestUnwinding$/^(signal|mixed)$",
		must:     []string{"TestUnwinding/signal", "TestUnwinding/mixed"},
		compiled: "^TestUnwinding$/^signal$",
		inputs:   []string{"buildid", "unwind"},
	},
	{
		name:     "unwind",
		pkg:      "unwind",
		run:      "^TestOwnStacks$",
		must:     []string{"TestOwnStacks"},
		compiled: "^TestOwnStacks$",
		sources:  []string{"internal/bpf/testdata/stacks.c"},
		inputs:   []string{"procmap", "buildid", "internal/aside", "internal/mounts"},
	},
	{
		name:   "procmap",
		pkg:    "procmap",
		run:    ".",
		must:   []string{"TestIdentities", "TestEveryProcess", "TestOverwritten", "TestMemfd", "TestMountNamespace", "TestOverlay", "TestChurn"},
		inputs: []string{"buildid", "internal/aside", "internal/mounts"},
	},
}, everywhere...)
