package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openers are what opens a file or makes a directory by a name, by package; an os.Root does so
// by its methods. A name that somebody else chose is opened by internal/regular alone, and by what
// is made of it: buildid.ReadFile, symbol.OpenFile, symbol.OpenIndex, procmap.Process.OpenFile.
// Output is made by internal/atomicfile. A perf event of a thread is opened by perfring.OpenEvent alone, which
// does not wait for a thread that never ends to execute a program.
var openers = map[string][]string{
	"os":                    {"Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadFile", "Create", "CreateTemp", "WriteFile", "DirFS", "Truncate", "CopyFS", "Root", "Mkdir", "MkdirAll"},
	"io/ioutil":             {"ReadFile", "WriteFile", "TempFile"},
	"syscall":               {"Open", "Openat", "Creat", "SYS_OPEN", "SYS_OPENAT", "Truncate"},
	"golang.org/x/sys/unix": {"Open", "Openat", "Openat2", "Creat", "OpenByHandleAt", "SYS_OPEN", "SYS_OPENAT", "SYS_OPENAT2", "OpenTree", "Truncate", "PerfEventOpen", "SYS_PERF_EVENT_OPEN"},
	"debug/elf":             {"Open"},
	"debug/buildinfo":       {"ReadFile"},
	"archive/zip":           {"OpenReader"},
}

// Why a function may open what it opens.
const (
	typed    = "a path that the user typed, which may be a pipe"
	output   = "where the user wants output"
	kernel   = "a constant path, or that of a number, in the kernel's own file systems"
	ownCache = "in a directory that nobody else can change"
	placed   = "the place alone (O_PATH), which is looked at before anything is opened, or the kernel's files of a process"
	door     = "the door itself"
	fresh    = "a new file with a name of its own, which it loses at once"
	made     = "a new file with a name of its own, which nothing had before (O_EXCL)"
	own      = "a file that this very process has mapped"
	machine  = "a constant path that root alone can change"
)

// doors are the functions that may open files by themselves, with the reasons.
var doors = map[string]string{
	"cmd/hallmark/internal/cli/idneighbours.go:openTrue":        placed,
	"cmd/hallmark/internal/cli/index.go:makeKernelIndex":        kernel,
	"cmd/hallmark/internal/cli/push.go:pushing.directory":       typed,
	"cmd/hallmark/internal/cli/push.go:pushing.vdso":            kernel,
	"cmd/hallmark/internal/cli/pushsource.go:openSourceDirs":    typed,
	"cmd/hallmark/internal/cli/record.go:record.rescue":         made,
	"cmd/hallmark/internal/cli/serve.go:serveOptions.openStore": typed,
	"cmd/hallmark/internal/cli/symbolize.go:symbolizer.open":    typed,
	"cmd/hallmark/internal/doctor/census.go:numberWords":        kernel,
	"cmd/hallmark/internal/doctor/census.go:readSlabs":          kernel,
	"cmd/hallmark/internal/doctor/feature.go:probeKallsyms":     kernel,
	"cmd/hallmark/internal/doctor/feature.go:probeMapFiles":     own,
	"cmd/hallmark/internal/input/other.go:findOther":            typed,
	"cmd/hallmark/internal/perffile/recording.go:Find":          typed,
	"cmd/hallmark/internal/perffile/recording.go:Open":          typed,
	"cmd/hallmark/internal/proof/prover.go:kernelSymbol":        kernel,
	"cmd/hallmark/internal/proof/prover.go:readModules":         kernel,

	"buildid/kernel.go:readNotes":                   kernel,
	"buildid/memory.go:ReadVDSO":                    kernel,
	"buildid/memory.go:vdsoBase":                    kernel,
	"buildid/scan.go:kernelFS":                      placed,
	"debuginfo/debuginfod/cache.go:Client.remember": ownCache,
	"debuginfo/debuginfod/cache.go:makeDir":         ownCache,
	"server/metrics.go:residentMemory":              kernel,
	"execwatch/facts.go:readFacts":                  kernel,
	"internal/aside/busy.go:isRunnable":             kernel,
	"internal/atomicfile/atomicfile.go:WriteFastIn": ownCache,
	"internal/atomicfile/atomicfile.go:WriteIn":     ownCache,
	"internal/atomicfile/atomicfile.go:place.open":  output,
	"internal/atomicfile/atomicfile.go:writeIn":     ownCache,
	"internal/atomicfile/leftovers.go:Sweep":        ownCache,
	"internal/atomicfile/place.go:openat":           output,
	"internal/atomicfile/temp.go:ScratchIn":         fresh,
	"internal/backend/unusable.go:lockedDown":       kernel,
	"internal/backend/unusable.go:ownsMachine":      kernel,
	"internal/bpf/kerneltypes.go:openKernelTypes":   kernel,
	"internal/bpf/subvolumes.go:findBtrfs":          kernel,
	"internal/bpf/stackmap.go:stackDepth":           kernel,
	"internal/cachedir/cachedir.go:Dir.list":        ownCache,
	"internal/cachedir/cachedir.go:Dir.make":        ownCache,
	"internal/cachedir/cachedir.go:Dir.sweep":       ownCache,
	"internal/cachedir/cachedir.go:Dir.use":         ownCache,
	"internal/cachedir/cachedir.go:tryLock":         ownCache,
	"internal/cachedir/user.go:rootHome":            machine,
	"internal/contentcache/disk.go:newDisk":         kernel,
	"internal/contentcache/disks.go:disks.numberOf": kernel,
	"internal/contentcache/sight.go:centiseconds":   kernel,
	"internal/kernelcode/cache.go:kernelCache.read": kernel,
	"internal/kernelcode/cache.go:newKernelCache":   kernel,
	"internal/kernelcode/cache.go:readModules":      kernel,
	"internal/mounts/file.go:View.openHere":         placed,
	"internal/mounts/mapfile.go:OpenMapFile":        placed,
	"internal/mounts/mapfile.go:procIsOfOurs":       kernel,
	"internal/mounts/mounts.go:View.read":           kernel,
	"internal/mounts/mounts.go:ownTable.read":       kernel,
	"internal/mounts/walk.go:openName":              placed,
	"internal/patience/patience.go:lookBeside":      kernel,
	"internal/perfmap/perfmap.go:openDirectory":     placed,
	"internal/perfmap/perfmap.go:status":            kernel,
	"internal/perfring/event.go:MaxFrequency":       kernel,
	"internal/perfring/event.go:OnlineCPUs":         kernel,
	"internal/perfring/event.go:OpenEvent":          door,
	"internal/perfring/event.go:ParanoidLevel":      kernel,
	"internal/procfs/args.go:readArgs":              kernel,
	"internal/procfs/account.go:subordinates":       machine,
	"internal/procfs/bounded.go:OpenLink":           kernel,
	"internal/procfs/cgroup.go:Cgroups.open":        kernel,
	"internal/procfs/read.go:read":                  kernel,
	"internal/procfs/self.go:AddressBits":           kernel,
	"internal/procfs/threads.go:Processes":          kernel,
	"internal/procfs/threads.go:ThreadsOf":          kernel,
	"internal/reach/tree.go:ownRoot":                placed,
	"internal/reach/vdso.go:openMemory":             kernel,
	"internal/regular/regular.go:Scratch.call":      door,
	"internal/release/build.go:builder.build":       ownCache,
	"internal/release/build.go:licensesIn":          ownCache,
	"internal/release/build.go:readBelow":           ownCache,
	"internal/release/dist.go:mayReplace":           output,
	"internal/release/dist.go:writeAll":             output,
	"internal/release/dist.go:writeWhole":           output,
	"internal/release/release.go:release.fill":      ownCache,
	"internal/release/release.go:release.make":      output,
	"internal/setmodule/main.go:rename":             typed,
	"internal/trust/directory.go:open":              placed,
	"internal/trust/group.go:eachLine":              machine,
	"internal/trust/mountinfo.go:mountTable.read":   kernel,
	"internal/trust/trust.go:knowsAll":              kernel,
	"perfdata/dir.go:OpenFiles":                     typed,
	"procmap/foreign.go:readAside":                  kernel,
	"procmap/gate.go:machineGate":                   kernel,
	"procmap/handle.go:openPath":                    placed,
	"procmap/live/kernel.go:readKernel":             kernel,
	"procmap/process.go:Process.memory":             kernel,
	"procmap/rewritten.go:Process.pagemap":          kernel,
	"procmap/process.go:threads":                    kernel,
	"profile/local/kernel.go:kallsyms":              kernel,
	"server/blob/dir.go:Dir":                        ownCache,
	"server/blob/dir.go:OpenDir":                    ownCache,
	"server/indexer/indexer.go:Make":                machine,
	"profile/local/kernel.go:vdso":                  kernel,
	"profile/local/tables.go:vdsoTable":             kernel,
	"profile/compact/read.go:ReadFile":              typed,
	"profile/read.go:ReadFileLimited":               typed,
	"profile/view/peer.go:ownerOf":                  kernel,
	"profile/view/server.go:Server.Serve":           typed,
}

// TestOneDoorForNamesOfOthers refuses functions that open files and are not in doors, and
// doors that nobody uses.
func TestOneDoorForNamesOfOthers(t *testing.T) {
	found := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel("../..", path)
		if d.IsDir() && (slices.Contains(notProduct, name) || d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return findOpeners(path, name, found)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range slices.Sorted(maps.Keys(found)) {
		if doors[function] == "" {
			t.Errorf("%s opens a file (%s): if the name may be one that somebody else chose, use internal/regular; else say here why not",
				function, strings.Join(found[function], ", "))
		}
	}
	for _, function := range slices.Sorted(maps.Keys(doors)) {
		if found[function] == nil {
			t.Errorf("%s may open files and does not", function)
		}
	}
}

// notProduct are directories of what only tests and measures.
var notProduct = []string{
	"bench", "tools", "internal/certtest", "internal/dwarftest", "internal/elftest", "internal/fusetest", "internal/perfgen", "internal/perftest", "internal/proctest", "internal/proftest",
	"internal/testenv", "internal/testrun", "internal/unwindtest", "internal/vmtest",
}

// findOpeners adds the functions of a file that mention one of the openers.
func findOpeners(path, name string, found map[string][]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	packages := map[string][]string{} // by what the file calls them
	for _, i := range file.Imports {
		from := strings.Trim(i.Path.Value, `"`)
		local := from[strings.LastIndexByte(from, '/')+1:]
		if i.Name != nil {
			local = i.Name.Name
		}
		if local == "." && openers[from] != nil {
			return fmt.Errorf("%s imports %s under no name", name, from)
		}
		packages[local] = openers[from]
	}
	for _, d := range file.Decls {
		function := name + ":" + nameOf(d)
		ast.Inspect(d, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(packages[x.Name], s.Sel.Name) {
				found[function] = append(found[function], x.Name+"."+s.Sel.Name)
			}
			return true
		})
	}
	return nil
}

// nameOf returns the name of a function, with that of its receiver's type; of other
// declarations the first name that is declared.
func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if p, ok := receiver.(*ast.StarExpr); ok {
			receiver = p.X
		}
		return fmt.Sprint(receiver) + "." + d.Name.Name
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				return s.Names[0].Name
			case *ast.TypeSpec:
				return s.Name.Name
			}
		}
	}
	return "?"
}
