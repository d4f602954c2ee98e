package buildid

// For tests that bring their own /sys/module.
var (
	ReadModuleIn = readModule
	ModulesIn    = modules
)

// KernelFS reports whether Scan stays out of a directory.
var KernelFS = kernelFS

// MaxReads is the number of reads of one search.
const MaxReads = maxReads

// IsOwn reports whether a scan took the directory of a file for one that nobody else can change.
func (e Entry) IsOwn() bool { return e.isOwn }
