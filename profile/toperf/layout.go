package toperf

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/internal/addrspace"
	"hallmark/perfdata"
	"hallmark/profile"
	"hallmark/reason"
)

const (
	page = 4096

	protRead, protWrite, protExec = 1, 2, 4 // of mmap(2)

	mapPrivate = 2 // of mmap(2)

	// firstKernel is the lowest address that is the kernel's, on every 64-bit machine.
	firstKernel = 1 << 63
	// maxArea is beyond every file that code is in: a larger distance between two
	// addresses of one file is nonsense.
	maxArea = 1 << 36

	// unmapped is an address in a page that never has a mapping, and data one in a
	// mapping that is not executable: for frames of which no more is known than that.
	unmapped = 0x10
	data     = 0x20010

	// firstUser is where files are put, and endUser is above all addresses of a process.
	firstUser = 0x10_0000_0000
	endUser   = 1 << 47

	// anonymous is how the kernel calls memory of no file in its records.
	anonymous = "//anon"
)

// area is where a mapping of the profile is put: in every process at the same place.
type area struct {
	record   perfdata.Mmap2
	kernel   bool
	listed   string // name in the list of build IDs
	lo, hi   uint64 // file offsets, from the first to behind the last
	absolute bool   // lo and hi are addresses as well
}

// place is a location of the profile as an address.
type place struct {
	ip     uint64
	kernel bool
	area   *area // nil where nothing is mapped
}

// layout gives every location its address.
type layout struct {
	every    bool
	places   map[*pprof.Location]place
	areas    []*area // in the order in which the profile has them
	programs []*perfdata.Ksymbol
	taken    []uint64 // pages at addresses that the profile has, in order

	mappings map[*pprof.Mapping]*area
	memory   map[uint64]*area  // by page
	code     []*pprof.Location // generated, in processes
	byName   map[string]*perfdata.Ksymbol
	waiting  []*pprof.Location // in areas that have no place yet

	nextUser, nextKernel uint64
}

// newLayout lays out a profile. every is Options.EveryIdentity.
func newLayout(p *pprof.Profile, every bool) *layout {
	l := &layout{
		every:  every,
		places: map[*pprof.Location]place{}, mappings: map[*pprof.Mapping]*area{},
		memory: map[uint64]*area{}, byName: map[string]*perfdata.Ksymbol{},
		nextUser: firstUser, nextKernel: linkedText(p) + 1<<30,
	}
	for _, at := range p.Location {
		l.add(at)
	}
	l.mapCode()
	slices.Sort(l.taken)
	text := linkedText(p)
	for _, a := range l.areas {
		l.put(a, text)
	}
	for _, at := range l.waiting {
		l.settle(at)
	}
	return l
}

// add finds the area of a location, or its address where it has one.
func (l *layout) add(at *pprof.Location) {
	why, path := pseudo(at.Mapping)
	kernel := profile.Call{Location: at}.Kernel()
	switch {
	case path != "":
		l.inFile(at, path, kernel)
	case why == reason.Anonymous:
		l.inMemory(at)
	case why == reason.NotExecutable:
		l.places[at] = place{ip: data, area: l.page(data, protRead|protWrite)}
	case why == reason.None && at.Mapping != nil && at.Mapping.File != "":
		l.inFile(at, at.Mapping.File, kernel)
	default:
		l.nowhere(at, kernel, why)
	}
}

// pseudo takes apart the name of a mapping whose frames have no identity.
func pseudo(m *pprof.Mapping) (reason.Reason, string) {
	if m == nil || m.BuildID != "" {
		return reason.None, ""
	}
	code, path, ok := strings.Cut(strings.TrimPrefix(m.File, "["), "]")
	r, known := reason.Parse(code)
	if !ok || !known || m.File[0] != '[' {
		return reason.None, ""
	}
	return r, strings.TrimPrefix(path, " ")
}

// nowhere places a frame of which there is no mapping.
func (l *layout) nowhere(at *pprof.Location, kernel bool, why reason.Reason) {
	known := at.Address >= page && (at.Address < endUser || at.Address >= firstKernel)
	ip := at.Address
	switch {
	case kernel && ip < firstKernel:
		ip = firstKernel
	case !known || why == reason.NotMapped:
		ip = unmapped
	default:
		l.take(ip)
	}
	l.places[at] = place{ip: ip, kernel: kernel || ip >= firstKernel && why != reason.Vsyscall}
}

func (l *layout) take(address uint64) { l.taken = append(l.taken, address&^(page-1)) }

// inMemory places generated code where it was: a process's runtime, and the kernel of
// its BPF programs, have other code at every address.
func (l *layout) inMemory(at *pprof.Location) {
	switch {
	case at.Address >= firstKernel:
		l.take(at.Address)
		l.program(at)
		l.places[at] = place{ip: at.Address, kernel: true}
	case at.Address < page || at.Address >= endUser:
		l.places[at] = place{ip: unmapped}
	default:
		l.take(at.Address)
		l.code = append(l.code, at)
	}
}

// program reports the name of generated code in the kernel.
func (l *layout) program(at *pprof.Location) {
	for c := range profile.CallsAt(at) {
		if c.Function == nil {
			return
		}
		k := l.byName[c.Name()]
		switch {
		case k == nil:
			k = &perfdata.Ksymbol{Addr: addr.Abs(at.Address), Size: 1, Kind: ksymbolBPF, Name: record(c.Name())}
			l.byName[c.Name()] = k
			l.programs = append(l.programs, k)
		case uint64(k.Addr) > at.Address && uint64(k.Addr)-at.Address < maxProgram:
			k.Size += uint32(uint64(k.Addr) - at.Address)
			k.Addr = addr.Abs(at.Address)
		case at.Address-uint64(k.Addr) < maxProgram:
			k.Size = max(k.Size, uint32(at.Address-uint64(k.Addr))+1)
		}
		return
	}
}

const (
	ksymbolBPF = 1       // PERF_RECORD_KSYMBOL_TYPE_BPF
	maxProgram = 1 << 20 // bytes of code of a BPF program
)

// page returns the area of memory without a file around an address.
func (l *layout) page(at uint64, prot uint32) *area {
	start := at &^ (page - 1)
	a := l.memory[start]
	if a == nil {
		a = &area{record: perfdata.Mmap2{
			Type: perfdata.TypeMmap2, Start: addr.Abs(start), Size: page, Prot: prot, Flags: mapPrivate, Name: anonymous,
		}}
		l.memory[start] = a
	}
	return a
}

// inFile notes which part of a file is needed.
func (l *layout) inFile(at *pprof.Location, path string, kernel bool) {
	m := at.Mapping
	offset := uint64(profile.FileOffset(at))
	a := l.mappings[m]
	if a == nil {
		a = l.newArea(m, path, kernel, offset)
		l.mappings[m] = a
		l.areas = append(l.areas, a)
	}
	lo, hi := min(a.lo, offset&^(page-1)), max(a.hi, offset&^(page-1)+page)
	if hi-lo > maxArea || hi < lo {
		l.nowhere(at, kernel, reason.NotMapped)
		return
	}
	a.lo, a.hi = lo, hi
	l.waiting = append(l.waiting, at)
}

func (l *layout) newArea(m *pprof.Mapping, path string, kernel bool, offset uint64) *area {
	a := &area{kernel: kernel, lo: offset &^ (page - 1), listed: record(path)}
	a.hi = a.lo + page
	if size := m.Limit - m.Start; m.Limit > m.Start && size <= maxArea && m.Offset < 1<<40 {
		a.lo, a.hi = m.Offset, m.Offset+size
	}
	a.absolute = kernel && m.Start >= firstKernel
	a.record = perfdata.Mmap2{Type: perfdata.TypeMmap2, Prot: protRead | protExec, Flags: mapPrivate, Name: a.listed}
	if id, ok := profile.Identity(m); ok && !profile.IsClaimed(m) && (l.every || id.Kind() == buildid.GNU) {
		a.record.BuildID = id.GNUForm().Bytes()
	}
	if a.isImage() {
		a.listed, a.record.Name = kernelImage, kernelImage+"_text"
	}
	if a.absolute {
		a.record.Start = addr.Abs(m.Start - m.Offset + a.lo)
	}
	return a
}

// kernelImage is how perf calls the kernel: in a mapping with a symbol of it behind.
const kernelImage = "[kernel.kallsyms]"

func (a *area) isImage() bool { return a.kernel && a.listed == "[kernel]" || a.listed == kernelImage }

// record cuts what a record has no room for.
func record(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return name[:min(len(name), maxName)]
}

const maxName = 4000 // bytes; perf has room for PATH_MAX, 4096

// put gives an area its place.
func (l *layout) put(a *area, text uint64) {
	size := (a.hi - a.lo + page - 1) &^ (page - 1)
	a.record.Size, a.record.Offset = size, addr.Offset(a.lo)
	switch {
	case a.absolute && l.free(uint64(a.record.Start), size) && uint64(a.record.Start)+size > uint64(a.record.Start):
		l.block(uint64(a.record.Start), size)
	case a.isImage() && l.free(text, a.hi):
		a.record.Start = addr.Abs(text + a.lo)
		l.block(text, a.hi)
	case a.kernel:
		a.record.Start = l.find(&l.nextKernel, size)
		a.record.Offset = 0
		if a.isImage() { // a second kernel, of a profile that was merged
			a.record.Name = "[" + kernelImage[1:len(kernelImage)-1] + ".other]"
		}
	default:
		a.record.Start = l.find(&l.nextUser, size)
	}
	if a.isImage() {
		// Of the kernel there is the address of the symbol in place of the offset.
		a.record.Offset = addr.Offset(a.record.Start)
	}
}

// find returns free room, with some around it.
func (l *layout) find(next *uint64, size uint64) addr.Abs {
	for !l.free(*next, size+page) {
		i, _ := slices.BinarySearch(l.taken, *next)
		*next = l.taken[i] + page
	}
	start := *next
	const gap = 1 << 20
	*next = (start + size + 2*gap - 1) &^ (gap - 1)
	return addr.Abs(start)
}

// free reports whether nothing that the profile reports the address of is there.
func (l *layout) free(start, size uint64) bool {
	i, _ := slices.BinarySearch(l.taken, start)
	return i == len(l.taken) || l.taken[i]-start >= size
}

// block keeps the room of a kernel's image, which begins and ends in pages of its own,
// from being found.
func (l *layout) block(start, size uint64) {
	i, _ := slices.BinarySearch(l.taken, start)
	l.taken = slices.Insert(l.taken, i, start, start+size)
}

// settle gives a location the address that follows from its area's.
func (l *layout) settle(at *pprof.Location) {
	a := l.mappings[at.Mapping]
	ip := uint64(profile.FileOffset(at)) - a.lo + uint64(a.record.Start)
	l.places[at] = place{ip: ip, kernel: a.kernel, area: a}
}

// buildIDs lists the files that have one.
func (l *layout) buildIDs() []perfdata.HeaderBuildID {
	var list []perfdata.HeaderBuildID
	seen := map[string]bool{}
	for _, a := range l.areas {
		key := string(a.record.BuildID) + "\x00" + a.listed
		if a.record.BuildID == nil || seen[key] {
			continue
		}
		seen[key] = true
		mode := perfdata.ModeUser
		if a.kernel {
			mode = perfdata.ModeKernel
		}
		list = append(list, perfdata.HeaderBuildID{Misc: uint16(mode), PID: -1, BuildID: a.record.BuildID, Name: a.listed})
	}
	return list
}

// archOf returns the machine that a profile is of, by uname -m: that of its kernel, if it
// has frames there, and else this one.
func archOf(p *pprof.Profile) string {
	for _, m := range p.Mapping {
		for _, machine := range addrspace.Machines {
			if m.Start >= firstKernel && m.Start&^(1<<30-1) == uint64(addrspace.KernelText(machine))&^(1<<30-1) {
				return machine
			}
		}
	}
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

func linkedText(p *pprof.Profile) uint64 {
	return uint64(cmp.Or(addrspace.KernelText(archOf(p)), addrspace.KernelText("x86_64")))
}
