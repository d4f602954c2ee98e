// Package kernelcode gives addresses of the running kernel their identities and names: those of its
// image, its modules, and BPF programs, which may be gone by the time that names are read.
package kernelcode

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/addrspace"
	"hallmark/internal/bpf"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
	"hallmark/symbol"
)

// Kernel resolves the addresses of kernel code: of the image, of modules and of
// BPF programs. While recording it only collects; what the addresses mean is
// loaded at the end.
type Kernel struct {
	cacheDir string

	symbols  *symbol.Kallsyms
	why      reason.Reason // symbols is nil because of it
	image    *profile.Binary
	modules  []module
	programs programs // those that are loaded; nil for none
	// transient is code that came or went while recording, newest last.
	transient []perfdata.Ksymbol
}

// programs know the code of BPF programs: bpf.ProgramCode.
type programs interface {
	Name(addr.Abs) (name string, ok bool)
	Line(addr.Abs) (file string, line int, ok bool)
}

// module is a loaded kernel module.
type module struct {
	name       string
	start, end addr.Abs
	binary     *profile.Binary // nil when it has no build ID
}

// String distinguishes the module from any other one that there was or will be.
func (m module) String() string {
	id := ""
	if m.binary != nil {
		id = m.binary.ID.String()
	}
	return fmt.Sprintf("%s %x-%x %s", m.name, uint64(m.start), uint64(m.end), id)
}

// New returns a kernel of which nothing is known yet. A copy of its symbols is kept in a
// directory, "" for no copy.
func New(cacheDir string) *Kernel { return &Kernel{cacheDir: cacheDir} }

// maxTransient bounds the memory for names of code that came and went: the older
// half makes room.
const maxTransient = 1 << 16

// Learn remembers the name of code that came or went while recording: it may be
// gone when the names are read. Older code is first reported when it goes.
func (k *Kernel) Learn(r *perfdata.Ksymbol) {
	if r.Unregistered && k.has(r) {
		return
	}
	if len(k.transient) == maxTransient {
		k.transient = append(k.transient[:0], k.transient[maxTransient/2:]...)
	}
	k.transient = append(k.transient, *r)
}

// has reports whether the code is what was last known to be there.
func (k *Kernel) has(r *perfdata.Ksymbol) bool {
	s := k.passing(r.Addr)
	return s != nil && s.Name == r.Name
}

// Load reads the symbols for these addresses, and the identities of the running
// kernel.
func (k *Kernel) Load(addresses []addr.Abs) {
	info, _ := buildid.ReadKernel() // without an identity the zero one
	k.modules = readModules(procDir)
	cache := newKernelCache(k.cacheDir, procDir, info.ID, k.modules)
	cache.isKnown = func(a addr.Abs) bool {
		k.readPrograms(addresses)
		_, isLoaded := k.loaded(a)
		return isLoaded || k.passing(a) != nil
	}
	symbols, err := cache.read(addresses)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		k.why = reason.KernelHidden
		return
	case err != nil:
		k.why = reason.BadSymbols
		return
	case symbols.Hidden() || symbols.Text() == 0:
		k.why = reason.KernelHidden
		return
	}
	k.symbols = symbols
	k.settleImage(info.ID)
	if slices.ContainsFunc(addresses, k.isProgram) {
		k.readPrograms(addresses)
	}
}

// readPrograms reads the code of loaded programs, once.
func (k *Kernel) readPrograms(addresses []addr.Abs) {
	if k.programs == nil {
		k.programs = bpf.ReadProgramCode(addresses)
	}
}

const procDir = "/proc"

// settleImage settles what identity the image has and where it lies.
func (k *Kernel) settleImage(id buildid.ID) {
	if id.IsZero() || k.symbols.Etext() <= k.symbols.Text() {
		return
	}
	k.image = &profile.Binary{
		ID:       id,
		Path:     "[kernel]",
		Segments: []profile.Segment{{Virt: addrspace.KernelText(runtime.GOARCH), Size: uint64(k.symbols.Etext() - k.symbols.Text())}},
	}
}

// parseModule reads a line such as
//
//	nf_tables 282624 2 nft_compat,nft_chain_nat, Live 0xffffffffc0a4b000
func parseModule(line string) (module, bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return module{}, false
	}
	size, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return module{}, false
	}
	start, err := strconv.ParseUint(strings.TrimPrefix(fields[5], "0x"), 16, 64)
	if err != nil || start == 0 {
		return module{}, false
	}
	m := module{name: fields[0], start: addr.Abs(start), end: addr.Abs(start + size)}
	if info, err := buildid.ReadModule(fields[0]); err == nil {
		m.binary = &profile.Binary{ID: info.ID, Path: "[" + fields[0] + "]"}
	}
	return m, true
}

// Frame says what an address of the kernel is, one of those that were loaded.
func (k *Kernel) Frame(a addr.Abs) profile.Frame {
	f := profile.Frame{Addr: a, Reason: k.why}
	if k.symbols == nil {
		return f
	}
	f.Symbols = k.name(a)
	f.Binary, f.Offset, f.Reason = k.binary(a)
	return f
}

// binary returns what part of the kernel an address is in. Offsets in the image
// count from _text, those in a module from where it was loaded.
func (k *Kernel) binary(a addr.Abs) (*profile.Binary, addr.Offset, reason.Reason) {
	if m := findModule(k.modules, a); m != nil && m.binary != nil {
		return m.binary, addr.Offset(a - m.start), reason.None
	}
	if _, ok := k.loaded(a); ok {
		return nil, 0, reason.Anonymous
	}
	owner, known := k.symbols.Module(a)
	switch {
	case known && owner == "" && k.image != nil:
		return k.image, addr.Offset(a - k.symbols.Text()), reason.None
	case k.passing(a) != nil, known && (owner == "bpf" || strings.HasPrefix(owner, "__builtin__")):
		return nil, 0, reason.Anonymous
	}
	return nil, 0, reason.ModuleUnknown
}

func (k *Kernel) name(a addr.Abs) []symbol.Frame {
	frames := k.symbols.Lookup(a).Frames
	if name, ok := k.loaded(a); ok {
		frames = []symbol.Frame{{Func: name, Linkage: name}}
	}
	// Records from the recording say where it ends; kallsyms does not.
	if s := k.passing(a); s != nil && (len(frames) == 0 || frames[0].Linkage != s.Name) {
		return []symbol.Frame{{Func: s.Name, Linkage: s.Name}}
	}
	if k.programs != nil && k.isProgram(a) {
		frames[0].File, frames[0].Line, _ = k.programs.Line(a)
	}
	return frames
}

// isProgram reports whether an address is in a BPF program that is loaded.
func (k *Kernel) isProgram(a addr.Abs) bool {
	if _, ok := k.loaded(a); ok {
		return true
	}
	module, ok := k.symbols.Module(a)
	return ok && module == "bpf"
}

// loaded returns the name of the function of a loaded BPF program that has an address, once they were read.
func (k *Kernel) loaded(a addr.Abs) (name string, ok bool) {
	if k.programs == nil {
		return "", false
	}
	return k.programs.Name(a)
}

// passing returns the name of code that came while recording, and may be gone.
func (k *Kernel) passing(a addr.Abs) *perfdata.Ksymbol {
	for i := len(k.transient) - 1; i >= 0; i-- {
		if s := &k.transient[i]; a >= s.Addr && uint64(a-s.Addr) < uint64(s.Size) {
			return s
		}
	}
	return nil
}
