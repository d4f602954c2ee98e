package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A rule says what a package may import besides the standard library. What is
// not listed for it is refused; so is a package that has no rule.
type rule struct {
	module   []string // packages of this module, without "hallmark/"
	external []string // prefixes of other modules' packages
	why      string
}

const (
	sys   = "golang.org/x/sys/unix"
	pprof = "github.com/google/pprof/profile"

	command = "cmd/hallmark/internal/" // packages that only the command needs
)

var rules = map[string]rule{
	"addr":   {why: "the words of every package; imports nothing"},
	"reason": {why: "the words of every package; imports nothing"},

	"buildid": {
		module: []string{"addr", "internal/regular"},
		why:    "a tool that only wants build IDs gets nothing else",
	},
	"procmap": {
		module: []string{"addr", "buildid", "internal/fstimes", "internal/regular", "reason", "internal/aside", "internal/mounts", "internal/patience"},
		why:    "a tool that only wants VMAs gets nothing else, and no dependency at all",
	},
	"procmap/live": {
		module: []string{"addr", "buildid", "debuginfo", "internal/contested", "internal/perfmap", "procmap", "reason", "symbol"},
		why:    "addresses of a running process; procmap itself knows no symbols",
	},
	"perfdata": {
		module:   []string{"addr", "internal/cursor", "internal/regular"},
		external: []string{"github.com/klauspost/compress/"},
		why:      "records are values; what they mean is for capture to say",
	},
	"symbol": {
		module:   []string{"addr", "reason", "internal/cursor", "internal/defect", "internal/dwarf", "internal/elffile", "internal/pclntab", "internal/ranges", "internal/readable", "internal/regular", "internal/symtab"},
		external: []string{"github.com/ianlancetaylor/demangle", "github.com/klauspost/compress/", "github.com/xi2/xz"},
		why:      "knows files and addresses, and nothing of processes or profiles",
	},
	"unwind": {
		module: []string{"addr", "internal/cursor", "internal/elffile", "internal/pclntab"},
		why:    "call frame information to tables, and stacks by them; files and processes are for capture to find",
	},
	"debuginfo": {
		module: []string{"addr", "buildid", "debuginfo/debuginfod", "internal/cachedir", "internal/contentcache", "internal/mounts", "internal/trust", "reason", "symbol"},
		why:    "finds files by identity; whoever asks is above it",
	},
	"symbolize": {
		module: []string{"addr", "buildid", "debuginfo", "internal/plaintext", "reason", "symbol"},
		why:    "text in, text out; files are for debuginfo to find",
	},
	"server/blob": {why: "objects by key; what is in them is for the store to say"},
	"server/blob/s3blob": {
		module:   []string{"server/blob"},
		external: []string{"github.com/minio/minio-go/"},
		why:      "the only importer of the client of S3",
	},
	"server/blob/blobtest": {module: []string{"internal/testenv", "server/blob"}, why: "one suite for all stores of objects"},
	"server/store": {
		module: []string{"buildid", "internal/atomicfile", "internal/cursor", "internal/defect", "internal/elffile", "internal/seekable", "server/blob"},
		why:    "files by identity; it knows nothing of requests",
	},
	"server/indexer": {
		module:   []string{"buildid", "symbol"},
		external: []string{sys},
		why:      "makes an index where a hostile file can do no harm; what is done with it is for others to say",
	},
	"server/symbols": {
		module:   []string{"addr", "buildid", "internal/atomicfile", "internal/cachedir", "internal/seekable", "reason", "server/blob", "server/indexer", "server/store", "symbol"},
		external: []string{sys},
		why:      "indexes of a store; questions and answers are above it",
	},
	"server/columns": {module: []string{"addr", "reason", "symbol"}, why: "messages in columns, for servers and their clients"},
	"server/scan": {
		module:   []string{"buildid", "internal/atomicfile", "internal/plaintext", "internal/regular", "server/blob", "server/packages", "server/store"},
		external: []string{"github.com/klauspost/compress/"},
		why:      "files of this machine for a store; who asks for them is above it",
	},
	"server/packages": {
		external: []string{"github.com/klauspost/compress/", "github.com/xi2/xz"},
		why:      "what is in packages, for servers and for those who send files to them",
	},
	"server/api":    {module: []string{"buildid"}, why: "messages between servers and clients, and nothing else of either"},
	"server/client": {module: []string{"buildid", "server/api", "server/columns"}, why: "speaks with a server; a program that does has nothing else of it"},
	"server/remote": {
		module: []string{"addr", "buildid", "debuginfo", "reason", "server/api", "server/client", "server/columns", "symbol"},
		why:    "symbols of a server for debuginfo; a program that has no server needs nothing of it",
	},
	"server/forward": {
		module:   []string{"internal/defect", "internal/plaintext"},
		external: []string{"google.golang.org/protobuf/encoding/protowire"},
		why:      "sends messages on; what is in them is for the server to say",
	},
	"server": {
		module:   []string{"addr", "buildid", "debuginfo/debuginfod", "internal/atomicfile", "internal/defect", "internal/elffile", "internal/plaintext", "internal/regular", "profile", "profile/compact", "profile/fromany", "profile/otlp", "profile/query", "reason", "server/api", "server/blob", "server/columns", "server/forward", "server/store", "server/symbols", "symbol", "web"},
		external: []string{pprof, sys, "github.com/klauspost/compress/", "google.golang.org/protobuf/encoding/protowire"},
		why:      "answers requests over a store, and asks the kernel what a connection has received; it knows nothing of commands and terminals",
	},
	"internal/seekable": {external: []string{"github.com/klauspost/compress/"}, why: "a format of compressed files"},
	"debuginfo/debuginfod": {
		module: []string{"buildid", "internal/atomicfile", "internal/cachedir", "internal/regular"},
		why:    "speaks with servers; needs only the words of the question",
	},
	"profile": {
		module:   []string{"addr", "buildid", "internal/intern", "internal/ordered", "internal/plaintext", "reason", "symbol", "unwind"},
		external: []string{pprof, "github.com/klauspost/compress/"},
		why:      "the model depends on no machine: it must be readable anywhere",
	},
	"profile/folded": {module: []string{"internal/plaintext", "profile"}, external: []string{pprof}, why: "an exporter"},
	"profile/toperf": {
		module:   []string{"addr", "buildid", "internal/addrspace", "perfdata", "profile", "reason"},
		external: []string{pprof},
		why:      "a profile as perf would have recorded it, on any machine",
	},
	"profile/speedscope": {module: []string{"internal/jsonstream", "profile"}, external: []string{pprof}, why: "an exporter"},
	"profile/firefox":    {module: []string{"buildid", "internal/jsonstream", "profile"}, external: []string{pprof}, why: "an exporter"},
	"profile/compact": {
		module:   []string{"profile", "reason"},
		external: []string{pprof, "github.com/klauspost/compress/"},
		why:      "a profile in little memory; what is asked of it is for query to say",
	},
	"profile/svg": {
		module:   []string{"internal/plaintext", "profile", "profile/compact", "profile/query"},
		external: []string{pprof},
		why:      "an exporter",
	},
	"profile/query": {
		module:   []string{"addr", "buildid", "profile", "profile/compact", "reason"},
		external: []string{pprof},
		why:      "arithmetic over the model; whoever shows it is above",
	},
	"profile/summary": {module: []string{"buildid", "profile"}, external: []string{pprof}, why: "arithmetic over the model"},
	"profile/otlp": {
		module:   []string{"addr", "buildid", "profile", "reason", "symbol"},
		external: []string{pprof, "go.opentelemetry.io/proto/slim/otlp/", "google.golang.org/protobuf/"},
		why:      "OpenTelemetry's messages as profiles and back; the only importer of their generated code",
	},
	"profile/fromtext": {
		module:   []string{"profile", "reason"},
		external: []string{pprof},
		why:      "text of other programs as a profile, on any machine",
	},
	"profile/fromany": {
		module:   []string{"perfdata", "profile", "profile/compact", "profile/fromperf", "profile/fromtext", "profile/otlp"},
		external: []string{pprof},
		why:      "a profile in any format, on any machine; where its bytes come from is for the caller to say",
	},
	"profile/fromperf": {
		module:   []string{"addr", "buildid", "internal/addrspace", "internal/defect", "internal/perfregs", "internal/plaintext", "perfdata", "profile", "reason", "symbol", "unwind"},
		external: []string{pprof},
		why:      "a recording by perf as a profile; it looks at no machine, so that any machine can read it",
	},
	"profile/local": {
		module:   []string{"addr", "buildid", "debuginfo", "internal/mounts", "internal/procfs", "procmap", "profile", "reason", "symbol", "unwind"},
		external: []string{pprof},
		why:      "the one part of profile that looks at the machine it runs on",
	},
	"profile/view": {
		module:   []string{"internal/mounts", "internal/plaintext", "profile", "profile/compact", "profile/query", "web"},
		external: []string{sys},
		why:      "who may see pages; what is on them is for web to say",
	},
	"web": {
		module:   []string{"addr", "buildid", "internal/atomicfile", "internal/plaintext", "profile", "profile/query"},
		external: []string{"golang.org/x/arch/"},
		why:      "pages about profiles, wherever these come from and whoever may see them",
	},
	"capture": {
		module:   []string{"addr", "buildid", "debuginfo", "internal/addrspace", "internal/bpf", "internal/contested", "internal/perfregs", "internal/trust", "perfdata", "procmap", "profile", "reason", "symbol", "unwind", "internal/aside", "internal/mounts", "internal/capability", "internal/intern", "internal/patience", "internal/objects", "internal/perfring", "internal/plaintext", "internal/procfs", "internal/quota", "internal/reach", "internal/rewrites", "internal/backend", "internal/kernelcode", "internal/unwindtables", "launch"},
		external: []string{sys, pprof},
		why:      "records; knows nothing of commands and terminals",
	},

	"execwatch": {
		module: []string{"buildid", "internal/aside", "internal/backend", "internal/bpf", "internal/capability", "internal/contentcache", "internal/fstimes",
			"internal/mounts", "internal/objects", "internal/patience", "internal/perfring", "internal/procfs", "internal/reach", "internal/regular", "internal/trust",
			"launch", "perfdata", "procmap", "reason"},
		external: []string{sys},
		why:      "what is executed, as it happens; it takes no samples, and knows nothing of commands and terminals",
	},

	"inventory": {
		module: []string{"addr", "buildid", "internal/aside", "internal/bpf", "internal/contentcache", "internal/contested", "internal/mounts",
			"internal/patience", "internal/procfs", "internal/quota", "internal/reach", "internal/regular", "procmap", "reason"},
		external: []string{sys},
		why:      "what runs, and what is at its paths; it records nothing, so that a list costs no recording",
	},

	"launch": {
		module: []string{"internal/aside"},
		why:    "programs that wait until whoever starts them is ready; what is learned of them is for others to say",
	},

	"internal/addrspace":  {module: []string{"addr"}, why: "mappings of a process as records tell them; what they show is for others to say"},
	"internal/aside":      {module: []string{"internal/mounts"}, why: "asks a helper process; what is asked is for others to say"},
	"internal/atomicfile": {external: []string{sys}, why: "publishes files; what is in them is for others to say"},
	"internal/cachedir":   {module: []string{"buildid", "internal/atomicfile", "internal/trust"}, why: "files by identity in a bounded directory; what is in them is for others to say"},
	"internal/contentcache": {
		module:   []string{"buildid", "internal/cachedir", "internal/fstimes", "internal/trust"},
		external: []string{sys},
		why:      "contents of open files; what they are compared with is for others to say",
	},
	"internal/bpf": {
		module:   []string{"addr", "buildid", "internal/fstimes", "unwind"},
		external: []string{"github.com/cilium/ebpf", sys},
		why:      "the only importer of the BPF library, which nobody else need know",
	},
	"internal/jsonstream": {
		module: []string{"internal/plaintext"},
		why:    "writes JSON that a terminal may show; what is in it is for exporters to say",
	},
	"internal/contested": {
		module: []string{"buildid", "internal/contentcache", "procmap"},
		why:    "reads files that claim one identity, within limits; how files are reached is for others to say",
	},
	"internal/cursor":  {why: "reads doubtful bytes; imports nothing"},
	"internal/ordered": {why: "a set and a map; imports nothing"},
	"internal/dwarf":   {module: []string{"internal/cursor"}, why: "DWARF in memory to functions and lines; files are for symbol to open"},
	"internal/defect":  {why: "panics of readers; imports nothing, so that every reader can be contained"},
	"internal/dwarftest": {
		module:   []string{"internal/elftest"},
		external: []string{"github.com/klauspost/compress/"},
		why:      "makes programs for tests of DWARF readers, and knows none of these",
	},
	"internal/elftest":  {why: "builds ELF files for tests; imports nothing, so that every package can use it"},
	"internal/fstimes":  {why: "which times of files tell, with reasons; imports nothing, so that whoever remembers files can use it"},
	"internal/fusetest": {module: []string{"internal/testenv"}, why: "a file system whose server tests control"},
	"internal/leaktest": {external: []string{"go.uber.org/goleak"}, why: "which goroutines tests may leave behind"},
	"internal/imports":  {why: "this test"},
	"internal/pclntab":  {why: "the table of Go programs, for symbols and for stacks; files are for others to open"},
	"internal/jitcode": {
		module: []string{"addr", "internal/perfmap", "profile", "reason", "symbol"},
		why:    "names of generated code, within bounds; which of it was sampled is for recordings to say",
	},
	"internal/kernelcode": {
		module: []string{"addr", "buildid", "internal/addrspace", "internal/bpf", "internal/cachedir", "perfdata", "profile", "reason", "symbol"},
		why:    "code of the running kernel; which addresses were sampled is for recordings to say",
	},
	"internal/mounts":  {module: []string{"internal/regular"}, why: "which file systems answer by themselves; imports next to nothing, so that everybody can ask"},
	"internal/perfmap": {module: []string{"internal/mounts", "internal/procfs", "internal/regular"}, external: []string{sys}, why: "finds a file of a process; what is in it is for symbol to say"},
	"internal/backend": {
		module:   []string{"internal/bpf", "internal/capability", "internal/procfs", "internal/reach", "unwind"},
		external: []string{sys},
		why:      "ways of taking samples by name, whether one works here and why not; using them is for those above",
	},
	"internal/capability": {external: []string{sys}, why: "what this process may do; imports next to nothing, so that everybody can ask"},
	"internal/patience":   {why: "bounds waits for other processes; imports nothing, so that all that looks at processes can use it"},
	"internal/perfring": {
		module:   []string{"internal/capability", "internal/patience", "internal/perfregs", "perfdata"},
		external: []string{sys},
		why:      "perf events and their rings, for recordings, executions and doctor; what records mean is for them to say",
	},
	"internal/procfs":   {module: []string{"internal/aside", "internal/patience"}, external: []string{sys}, why: "facts about processes by number, for all that lists or records them"},
	"internal/proctest": {module: []string{"buildid", "internal/contentcache", "internal/testenv"}, external: []string{sys}, why: "programs that tests build and run"},
	"internal/objects": {
		module: []string{"buildid", "internal/aside", "internal/bpf", "internal/capability", "internal/contentcache", "internal/contested", "internal/jitcode",
			"internal/mounts", "internal/patience", "internal/perfmap", "internal/perfring", "internal/procfs", "internal/quota", "internal/reach", "internal/trust", "internal/turns",
			"perfdata", "procmap", "reason"},
		external: []string{sys},
		why:      "what mappings show, kept while somebody records; samples, stacks and profiles are for capture",
	},
	"internal/rewrites": {
		module: []string{"addr", "internal/aside", "internal/objects", "internal/patience", "internal/perfring", "internal/plaintext", "internal/procfs", "internal/reach", "procmap", "profile"},
		why:    "pages that are no file's any more, and the notes of a profile about them; samples in them are for capture to judge",
	},
	"internal/unwindtables": {
		module: []string{"buildid", "internal/bpf", "internal/cachedir", "internal/objects", "internal/patience", "internal/procfs", "internal/quota", "internal/reach", "internal/trust", "unwind"},
		why:    "tables of files, built, kept and given; stacks are for capture and profile to walk",
	},
	"internal/reach": {
		module: []string{"buildid", "internal/aside", "internal/bpf", "internal/contentcache", "internal/cursor", "internal/fstimes", "internal/mounts",
			"internal/patience", "internal/procfs", "internal/regular", "internal/trust", "addr", "perfdata", "procmap", "reason"},
		external: []string{sys},
		why:      "one mapping to its file; what is kept of files is for those above it",
	},
	"internal/perfregs": {module: []string{"addr", "perfdata", "unwind"}, why: "registers of perf's samples, for recordings and for perf's files"},
	"internal/plaintext": {
		why: "makes names harmless that come from others; imports nothing, so that all that prints can use it",
	},
	"internal/perfgen":  {module: []string{"perfdata"}, why: "makes perf.data files of any bytes for fuzz targets"},
	"internal/perftest": {module: []string{"internal/testenv"}, why: "has perf record programs for tests"},
	"internal/certtest": {why: "makes certificates for tests"},
	"internal/proftest": {module: []string{"internal/testenv"}, external: []string{pprof}, why: "builds profiles for tests"},
	"internal/quota":    {why: "shares of what is bounded in sum; imports nothing, so that all that keeps something for users can use it"},
	"internal/intern":   {why: "numbers values and sequences; imports nothing"},
	"internal/ranges":   {why: "arithmetic over addresses, for all tables of names; imports nothing"},
	"internal/inflate":  {why: "decompresses sections in memory; imports nothing, so that it is only about bytes"},
	"internal/elffile":  {module: []string{"addr", "internal/cursor", "internal/defect", "internal/inflate", "internal/pclntab"}, external: []string{"github.com/klauspost/compress/"}, why: "the one reader of ELF for symbols and stacks; what names and rows mean is for these to say"},
	"internal/symtab":   {module: []string{"addr", "internal/cursor", "internal/elffile", "internal/ranges"}, external: []string{"github.com/xi2/xz"}, why: "addresses to the names of linkers; frames and lines are for symbol to put together"},
	"internal/readable": {external: []string{"github.com/ianlancetaylor/demangle"}, why: "names for people, for symbols and for other programs' output"},
	"internal/regular":  {why: "opens names that somebody else chose; imports nothing, so that every package can use it"},
	"internal/trust":    {external: []string{sys}, why: "who can have written a file; what follows from it is for others to say"},
	"internal/testenv":  {why: "what tests may ask of the machine; imports nothing"},
	"internal/unwindtest": {
		module: []string{"addr", "perfdata", "unwind"},
		why:    "compares stacks with those of others, for tests and measurements",
	},
	"internal/turns": {
		module: []string{"internal/patience", "internal/quota"},
		why:    "jobs of several users, done in turn; what a job is, is for others to say",
	},
	"internal/vmtest": {
		module: []string{"internal/atomicfile"},
		why:    "runs programs on other kernels, whatever they are, and keeps a list of what has passed on them",
	},
	"internal/testrun": {
		module:   []string{"internal/testenv", "internal/vmtest"},
		external: []string{sys, "golang.org/x/term"},
		why:      "runs all tests, and has to be built before anything else is known to work",
	},
	"internal/setmodule": {
		module: []string{"internal/atomicfile", "internal/plaintext"},
		why:    "gives the module another path",
	},
	"internal/words":   {why: "a test of names"},
	"internal/release": {why: "builds what users install; it starts the command and imports nothing of it"},
	"internal/vmtest/onkernel": {
		module:   []string{"internal/vmtest"},
		external: []string{sys},
		why:      "all that a virtual machine has besides what runs there",
	},
	command + "addr2line": {
		module:   []string{"addr", "buildid", "debuginfo", "internal/plaintext", "internal/readable", "internal/regular", "symbol", command + "dwarfentry"},
		external: []string{"github.com/ianlancetaylor/demangle"},
		why:      "other programs' command lines over debuginfo; starts without the verbs",
	},
	command + "advice": {
		module: []string{"capture", "profile", "profile/compact", "profile/summary", "reason", "internal/plaintext", command + "input"},
		why:    "what helps here and now; verbs print it",
	},
	command + "cli": {
		module: []string{"addr", "buildid", "capture", "debuginfo", "debuginfo/debuginfod", "execwatch", "internal/atomicfile", "internal/cachedir", "internal/contested", "internal/defect",
			"internal/mounts", "internal/patience", "internal/plaintext", "internal/procfs", "internal/regular", "internal/trust", "inventory", "launch", "perfdata", "procmap",
			"procmap/live", "profile", "profile/compact", "profile/query", "profile/firefox", "profile/folded", "profile/fromperf", "profile/local", "profile/otlp", "profile/speedscope",
			"web", "profile/summary", "profile/svg", "profile/toperf", "profile/view", "reason", "server", "server/api", "server/blob", "server/blob/s3blob", "server/client", "server/forward", "server/indexer", "server/packages", "server/scan", "server/store", "server/symbols", "symbol", "symbolize", "unwind", command + "addr2line",
			command + "advice", command + "doctor", command + "execprint", command + "identity", command + "input", command + "lookupprint",
			command + "perffile", command + "progress", command + "proof", command + "symbolsource", command + "terminal", command + "top", command + "verb"},
		external: []string{"github.com/spf13/", "golang.org/x/term", sys, pprof},
		why:      "the verbs, over everything",
	},
	command + "doctor": {
		module: []string{"buildid", "capture", "debuginfo", "debuginfo/debuginfod", "internal/backend", "internal/bpf", "internal/cachedir",
			"internal/capability", "internal/patience", "internal/perfregs", "internal/perfring", "internal/plaintext", "internal/procfs", "inventory", "procmap",
			"profile", "reason"},
		external: []string{sys},
		why:      "what works here and what it costs, measured from outside; nothing that records depends on it",
	},
	command + "dwarfentry": {
		module: []string{"internal/cursor", "internal/dwarf"},
		why:    "entries of DWARF in memory, for questions that are rare; dwarf has the sections",
	},
	command + "execprint": {
		module:   []string{"buildid", "debuginfo", "execwatch", "internal/plaintext", "profile", command + "identity", command + "terminal", command + "verb"},
		external: []string{sys},
		why:      "executions as text and JSON; watching them is for the verb",
	},
	command + "hostile": {why: "attacks the command from outside; tests alone"},
	command + "identity": {
		module: []string{"buildid", "internal/ordered", "internal/plaintext", "profile", command + "terminal"},
		why:    "marks and heads of identities, for several verbs",
	},
	command + "input": {
		module: []string{"buildid", "debuginfo", "internal/cachedir", "internal/plaintext", "internal/regular", "internal/unwindtables", "perfdata", "profile", "profile/compact", "profile/firefox",
			"profile/fromperf", "profile/fromtext", "profile/local", "profile/otlp", "symbol", "unwind", command + "perffile", command + "proof", command + "verb"},
		external: []string{"github.com/spf13/", sys, pprof},
		why:      "profiles of verbs, and the files that are named for what has no identity in them; what they show of them is for them to say",
	},
	command + "lookupprint": {
		module: []string{"addr", "debuginfo", "internal/plaintext", "reason", "symbol", command + "advice", command + "terminal", command + "verb"},
		why:    "answers of any source of symbols as text and JSON; which source is for the verb to say",
	},
	command + "perffile": {
		module: []string{"internal/atomicfile", "perfdata", "profile"},
		why:    "opens recordings; what is in them is for others to read",
	},
	command + "progress": {
		module:   []string{"internal/plaintext"},
		external: []string{"golang.org/x/term"},
		why:      "a bar on a terminal",
	},
	command + "proof": {
		module: []string{"buildid", "internal/contested", "internal/fstimes", "internal/mounts", "internal/ordered", "internal/perfmap", "internal/plaintext",
			"internal/trust", "perfdata", "profile", "symbol", command + "perffile", command + "terminal"},
		external: []string{sys, pprof},
		why:      "files that are proven to be those of a recording; reading and writing it is for input and the verb",
	},
	command + "symbolsource": {
		module: []string{"buildid", "debuginfo", "debuginfo/debuginfod", "internal/cachedir", "internal/plaintext", "profile", "profile/local", "reason", "symbol",
			"internal/regular", "server/client", "server/remote", command + "progress", command + "terminal", command + "verb"},
		external: []string{"github.com/spf13/", pprof},
		why:      "sources of symbols by the flags of verbs; debuginfo searches",
	},
	command + "top": {
		module:   []string{"internal/plaintext", "profile", "profile/summary", command + "terminal"},
		external: []string{"golang.org/x/term"},
		why:      "a screen and keys; recording is for the verb",
	},
	command + "terminal": {
		module:   []string{"internal/plaintext"},
		external: []string{"golang.org/x/term"},
		why:      "text for people; imports next to nothing, so that all that prints can use it",
	},
	command + "verb": {
		module:   []string{"internal/plaintext"},
		external: []string{"github.com/spf13/"},
		why:      "what verbs have in common; knows none of them",
	},
	"cmd/hallmark": {
		module: []string{command + "cli", "launch", "server/indexer"},
		why:    "a few lines: launch and server/indexer turn a copy of the executable into a command, and into what makes an index",
	},
}

func TestDirectionOfImports(t *testing.T) {
	for _, pkg := range listPackages(t) {
		name := strings.TrimPrefix(pkg.ImportPath, "hallmark/")
		r, ok := rules[name]
		if !ok {
			t.Errorf("package %s has no rule: say here what it may import, and why", name)
			continue
		}
		for _, path := range pkg.Imports {
			if !r.allows(path) {
				t.Errorf("%s must not import %s: %s", name, path, r.why)
			}
		}
	}
}

func (r rule) allows(path string) bool {
	if inside, ok := strings.CutPrefix(path, "hallmark/"); ok {
		return slices.Contains(r.module, inside)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(r.external, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// TestRulesAreUsed refuses rules that allow what nobody does.
func TestRulesAreUsed(t *testing.T) {
	imports := map[string][]string{}
	for _, pkg := range listPackages(t) {
		imports[strings.TrimPrefix(pkg.ImportPath, "hallmark/")] = pkg.Imports
	}
	for name, r := range rules {
		used, ok := imports[name]
		if !ok {
			t.Errorf("there is a rule for %s, and no such package", name)
		}
		for _, inside := range r.module {
			if !slices.Contains(used, "hallmark/"+inside) {
				t.Errorf("%s may import %s and does not", name, inside)
			}
		}
	}
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "hallmark/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
