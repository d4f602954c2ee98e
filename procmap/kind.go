package procmap

import (
	"fmt"
	"strings"
)

// Kind is what a VMA is for, as far as its name and device show it.
type Kind uint8

// The kinds.
const (
	KindAnonymous Kind = iota // private memory, named by prctl or not at all
	KindFile                  // a file with a path, deleted or not
	KindHeap                  // [heap], moved by brk
	KindStack                 // [stack] of the first thread
	KindVDSO                  // [vdso], code of the kernel
	KindVVAR                  // [vvar] and its like, data of the vdso
	KindVsyscall              // [vsyscall], at a fixed address
	KindMemfd                 // a file that memfd_create made
	KindShm                   // shared memory, of System V, POSIX or anonymous
	KindHugetlb               // anonymous memory in huge pages of hugetlbfs
	KindDevice                // a device or an object of the kernel
	KindSpecial               // another area that the kernel made, [uprobes] for instance
)

var kindNames = [...]string{
	KindAnonymous: "anonymous", KindFile: "file", KindHeap: "heap", KindStack: "stack",
	KindVDSO: "vdso", KindVVAR: "vvar", KindVsyscall: "vsyscall", KindMemfd: "memfd",
	KindShm: "shm", KindHugetlb: "hugetlb", KindDevice: "device", KindSpecial: "special",
}

// String returns the kind as one word, "memfd" for instance.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// MarshalText returns what String returns.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// named is a kind whose names start with prefix, the more special ones first.
type named struct {
	prefix string
	kind   Kind
}

// ofFiles has the names of files that are not simply files. The kernel gives
// memory that several processes share a file without a path
// (mm/shmem.c, mm/hugetlb.c, ipc/shm.c and mm/memfd.c).
var ofFiles = []named{
	{"/memfd:", KindMemfd},
	{"/SYSV", KindShm},
	{"/dev/zero" + deleted, KindShm},
	{"/dev/shm/", KindShm},
	{"[anon_shmem:", KindShm},
	{"/anon_hugepage", KindHugetlb},
	{"/dev/hugepages/", KindFile},
	{"/dev/", KindDevice},
	{"/", KindFile},
	{"", KindDevice}, // anon_inode:[perf_event], socket:[4711]
}

// ofMemory has the names of VMAs without a file.
var ofMemory = []named{
	{"[heap]", KindHeap},
	{"[stack", KindStack}, // with the ID of a thread before Linux 4.5
	{"[vdso]", KindVDSO},
	{"[vvar", KindVVAR},
	{"[vsyscall]", KindVsyscall},
	{"[anon:", KindAnonymous},
	{"[", KindSpecial},
	{"", KindAnonymous},
}

// Kind returns what v is for. It goes by names: a device file outside /dev counts
// as a file until it is opened.
func (v VMA) Kind() Kind {
	names := ofMemory
	if v.FileBacked() {
		names = ofFiles
	}
	for _, n := range names {
		if strings.HasPrefix(v.Name, n.prefix) {
			return n.kind
		}
	}
	return KindAnonymous
}
