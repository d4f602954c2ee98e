// Package reason says why something could not be known: why a frame has no
// identity, why an address has no symbol, or why a stack has no more frames.
//
// In a batch a miss is a value beside the answers. A call that returns one thing or nothing returns
// the reason as its error, which errors.As and errors.Is find, as they do a syscall.Errno.
//
// Every reason has a short text for the user, a code that machines can rely on, and
// where there is one, advice on how to do better.
package reason

import (
	"errors"
	"fmt"
)

// Reason is why a frame has no identity, an address no symbol or a stack no more
// frames. The zero value, None, says that nothing is missing.
type Reason uint8

const (
	// None says that nothing is missing.
	None Reason = iota

	// Why a frame has no identity.

	NotMapped     // no mapping holds the address
	NotExecutable // the address is in memory that is not executable
	Anonymous     // executable memory without a file: generated code
	Vsyscall      // the kernel's fixed vsyscall page, which has no file
	ProcessGone   // the process exited before its mappings were read
	FileGone      // the mapped file could not be reached any more
	FileChanged   // the file at the path is not, or no longer, the one mapped
	FileDamaged   // the file claims to be ELF and is malformed
	NotPermitted  // the kernel refused to show it to this user
	KernelHidden  // the kernel does not show its addresses to this user
	NotAFile      // a mapping of something without content to identify, a device for instance
	ModuleUnknown // kernel code outside the kernel image and of no known module
	TableFull     // the kernel's table of files had no room for it
	Unstable      // the mappings of the process changed while they were read
	RecordsLost   // the kernel's records of what was mapped found no room
	FileWritten   // the file was being written, or had just been
	StackmapIP    // the kernel's stackmap found no build ID
	BadOffset     // the kernel's stackmap has an offset that is not in the file's code
	IDLength      // the kernel's stackmap has a build ID without its length, and no file has the length
	NotRecorded   // whoever made the profile wrote no identity into it
	TooLarge      // a file without a build ID, with more code than is hashed
	HashBudget    // a file without a build ID, when enough of others were hashed
	Outside       // the process is of another PID namespace, where nobody here can know which it is
	FileTimes     // the file system's times do not show whether the file changed
	// FileUnresponsive says that the file lies on a file system that a program or another
	// machine serves, which did not answer in time; or that the process itself waits for one.
	FileUnresponsive
	ContentUnknown // another file has the build ID that the file claims, and nobody knows whether they differ

	// Why an address has no symbol.

	NoIdentity    // the frame has no identity to look symbols up by
	NoFile        // no file with this identity was found
	NoSymbolTable // the file has no symbol table of any kind
	NoSymbol      // the symbol tables name nothing at this address
	BadSymbols    // the symbol tables are malformed here
	NoPerfMap     // generated code whose runtime wrote no perf map
	NotLookedUp   // nobody has asked for a symbol yet
	ServerFailed  // no file was found here, and a debuginfod server failed
	NoOffset      // text has an address and not where in its file it is

	DifferentContent // files have the build ID, and none of them is known to be the file
	NotBelieved      // a file has the build ID, and others than this user can have written it
	MapTooLarge      // generated code whose perf map is larger than what is read of one
	TooManyFiles     // enough other files were looked for
	DebugFileAlone   // only the debug file is there, and where an offset of its program is in memory is not known

	// Why a stack has no more frames; NotMapped and NotExecutable of a return address
	// are others.

	NoUserStack     // there is none: in kernel threads, in execve, in exit
	NoTable         // the unwind table of a file was not there
	NoRule          // no call frame information covers the place
	UnsupportedRule // the call frame information is beyond what tables say
	RegisterLost    // a register that is needed was not preserved
	StackUnreadable // the memory of the stack could not be read
	BadFrame        // the caller's frame cannot be where it was looked for: below the callee's, or at address 0
	TooDeep         // there are more frames than are recorded
	NoSerial        // which content of a file it was is not known
	Compat          // a 32-bit process
	FramePointers   // frame pointers do not show whether frames are missing

	// Defect is why an address has no symbol where a reader of the file panicked.
	Defect

	// NotCode is why an address has no symbol which is not in the code of its file.
	NotCode

	// Excess is why an address has no symbol where the tables of its file are far more than
	// the file holds: in holes, or in the same place.
	Excess

	// NotRead is why a frame has no identity whose file nobody has looked at yet.
	NotRead

	// Rewritten is why a frame has no identity whose page of a file the process has
	// rewritten in its memory: by a hook, a relocation, a debugger's breakpoint.
	Rewritten

	// Guest is why a frame has no identity that was sampled while a processor ran a virtual
	// machine, or the hypervisor below this one: its addresses are of another kernel and of its
	// processes.
	Guest

	// Unproven is why an identity may not be that of the code which ran: the file claims it, and
	// nobody has compared its content.
	Unproven

	count
)

type words struct{ code, text, advice string }

// table is indexed by Reason. Codes are for machines and do not change.
var table = [count]words{
	None: {"none", "known", ""},

	NotMapped: {"not-mapped", "address is in no mapping",
		"usually a frame-pointer walk through code built without frame pointers"},
	NotExecutable: {"not-executable", "address is in memory that is not executable",
		"usually a frame-pointer walk through code built without frame pointers"},
	Anonymous:        {"anonymous", "executable memory without a file (generated code)", ""},
	Vsyscall:         {"vsyscall", "the kernel's vsyscall page", ""},
	ProcessGone:      {"process-gone", "process exited before its mappings were read", ""},
	FileGone:         {"file-gone", "mapped file cannot be reached any more", "record with CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE, as root has them: deleted and foreign files can be opened then"},
	FileChanged:      {"file-changed", "file at the path is not the one that was mapped", "restart the process, it runs a file that was replaced"},
	FileDamaged:      {"file-damaged", "mapped file is a malformed ELF file", ""},
	NotPermitted:     {"not-permitted", "not permitted to read it", "run with CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE, as root has them"},
	KernelHidden:     {"kernel-hidden", "kernel addresses are hidden from this user", "run with CAP_SYSLOG, as root has it, and set kernel.kptr_restrict to 0 or 1"},
	NotAFile:         {"not-a-file", "mapping of something that is not a regular file", ""},
	ModuleUnknown:    {"module-unknown", "kernel code of no known module", ""},
	TableFull:        {"table-full", "no room in the table of mapped files", ""},
	Unstable:         {"unstable", "mappings changed while they were read", ""},
	RecordsLost:      {"records-lost", "the kernel's records of what processes map were lost", "record with --backend bpf, or single processes with -p"},
	FileWritten:      {"file-written", "mapped file was being written, or had just been", ""},
	StackmapIP:       {"stackmap-ip", "the kernel's stackmap found no build ID", "record with --backend bpf or perf"},
	BadOffset:        {"bad-offset", "the kernel's stackmap has an offset outside of the file's code", "usually a frame-pointer walk through code built without frame pointers"},
	IDLength:         {"id-length", "the kernel's stackmap does not say how long the build ID is, nor does a file", "record with --backend bpf or perf"},
	NotRecorded:      {"not-recorded", "profile has no identity of the file", "record with hallmark"},
	TooLarge:         {"too-large", "mapped file has no build ID, and more than 1 GiB of code to hash", "link it with --build-id"},
	HashBudget:       {"hash-budget", "mapped file has no build ID, and there was too much other code to hash", "link it with --build-id, or ask for its process alone"},
	Outside:          {"outside", "process outside of the container (PID namespace) that was recorded in", "record outside of it, or in a container with the PID namespace of the host (--pid=host)"},
	FileUnresponsive: {"file-unresponsive", "its file system (FUSE, a network) did not answer in time, or a program has a lease on it", "see whether the server of that file system still runs, and who holds leases: /proc/locks"},

	ContentUnknown: {"content-unknown", "another file has the same build ID, and the content of this one is unknown", "record again while nobody changes the file; 'hallmark ps' names both"},

	FileTimes: {"file-times", "file system whose times do not show whether the file changed since it was mapped", "on Linux 6.18 and later few samples have it: nobody has read the file for them; before, start the program before the recording, or run it from a disk"},

	NoIdentity:    {"no-identity", "frame has no identity", ""},
	NoFile:        {"no-file", "no file with this identity was found", "install its package, or look where the file is"},
	NoSymbolTable: {"no-symbol-table", "file has no symbol table (stripped)", "install its debug symbols (Debian: PACKAGE-dbgsym or PACKAGE-dbg)"},
	NoSymbol:      {"no-symbol", "no symbol covers the address", "install its debug symbols (Debian: PACKAGE-dbgsym or PACKAGE-dbg)"},
	BadSymbols:    {"bad-symbols", "symbol table is malformed here", ""},
	NoPerfMap:     {"no-perf-map", "generated code that no /tmp/perf-PID.map names", "have the runtime write one (a JVM that runs: jcmd PID Compiler.perfmap, Java 17 and later; node --perf-basic-prof; python 3.15 and later -X perf)"},
	NotLookedUp:   {"not-looked-up", "symbols were not looked up", ""},
	ServerFailed:  {"server-failed", "file is not here, and a debuginfod server failed", "try again later, or install its debug symbols"},
	NoOffset:      {"no-offset", "text does not have the offset in the file", "let perf script print it: -F +dsoff, or --show-mmap-events --show-task-events"},

	DifferentContent: {"different-content", "same build ID, different content", "name the right file with --debug-path, and no other one"},
	MapTooLarge:      {"map-too-large", "generated code of a process whose /tmp/perf-PID.map is too large (64 MiB or 2 million lines)", "have the runtime write less of it, or a new one"},
	TooManyFiles:     {"too-many-files", "symbols of enough other files were looked for", "prepare an index of it, and ask for it alone"},
	DebugFileAlone:   {"debug-file-alone", "only its debug file is known, which does not show where an offset of the program is", "name or push the program, too; a recording by hallmark record needs the debug file alone"},
	NotBelieved:      {"not-believed", "others can have written the file with this build ID", "name it with --debug-path if it is the right one"},

	NoUserStack:     {"no-user-stack", "no user stack: a kernel thread, or a process that executes a program or ends", ""},
	NoTable:         {"no-table", "no unwind table of the file was there", "record for longer, with more --unwind-memory, or with CAP_SYS_PTRACE so that the file can be opened"},
	NoRule:          {"no-rule", "no call frame information covers the place", "if it keeps frame pointers: record with --call-graph fp; else build it with -fasynchronous-unwind-tables"},
	UnsupportedRule: {"unsupported-rule", "call frame information is of a kind that is not supported", ""},
	RegisterLost:    {"register-lost", "a register that is needed was not preserved", ""},
	StackUnreadable: {"stack-unreadable", "stack could not be read", ""},
	BadFrame:        {"bad-frame", "caller's frame cannot be where it was looked for", "in generated code: have it keep frame pointers, if its compiler can (java -XX:+PreserveFramePointer)"},
	TooDeep:         {"too-deep", "more frames than are recorded", ""},
	NoSerial:        {"no-serial", "file has no serial number: being written, mapped anew, or without room in the table of files", ""},
	Compat:          {"compat", "32-bit process", ""},
	FramePointers:   {"frame-pointers", "walked by frame pointers, which do not show whether frames are missing", "record with --call-graph dwarf, which the backends bpf and perf have"},

	NotCode: {"not-code", "no code of the file is there", "offsets count from the start of the file, virtual addresses do not"},

	Excess: {"excess", "tables of symbols are far more than the file holds on its disk", "if it is what it claims to be: copy it without holes (cp --sparse=never)"},

	NotRead: {"not-read", "its file was not read in time: there was too much to read", "ask for its process alone"},

	Unproven: {"unproven", "the file claims the identity, and its content was not compared", "--backend bpf with the capabilities of root (CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE) proves files on disks; another user's file in memory (tmpfs, memfd) or on FUSE stays a claim"},

	Guest: {"guest", "code of a virtual machine, or of the hypervisor", "record inside of the virtual machine"},

	Rewritten: {"rewritten", "page of the file that the process has rewritten in its memory", "look at which pages: hallmark maps PID; a debugger's breakpoint makes such a page too"},

	Defect: {"defect", "the reader of the file panicked, a defect of hallmark", "report it with the file, and with what hallmark index says of it"},
}

// String returns the reason as a short phrase for people.
func (r Reason) String() string {
	if r >= count {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return table[r].text
}

// Error returns what String does. None is no error: see Err.
func (r Reason) Error() string { return r.String() }

// Err returns the reason as an error, which is nil for None.
func (r Reason) Err() error {
	if r == None {
		return nil
	}
	return r
}

// Of returns the reason inside of an error, or None where there is none.
func Of(err error) Reason {
	r := None
	errors.As(err, &r)
	return r
}

// Code returns the reason as one lower-case word for machines, "not-mapped"
// for instance. It does not change from release to release.
func (r Reason) Code() string {
	if r >= count {
		return fmt.Sprintf("reason-%d", uint8(r))
	}
	return table[r].code
}

// Advice returns what the user can do about it, or "" where nothing helps.
func (r Reason) Advice() string {
	if r >= count {
		return ""
	}
	return table[r].advice
}

// Unsure reports whether it is no reason why a stack lacks frames, but why nobody knows whether it does.
func (r Reason) Unsure() bool { return r == FramePointers }

// Parse returns the reason that has this code.
func Parse(code string) (Reason, bool) {
	for r, w := range table {
		if w.code == code {
			return Reason(r), true
		}
	}
	return None, false
}

// MarshalText returns the reason's code.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Code()), nil }

// UnmarshalText reads a reason's code.
func (r *Reason) UnmarshalText(text []byte) error {
	got, ok := Parse(string(text))
	if !ok {
		return fmt.Errorf("unknown reason %q", text)
	}
	*r = got
	return nil
}
