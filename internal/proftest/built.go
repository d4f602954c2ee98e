package proftest

import (
	"slices"

	pprof "github.com/google/pprof/profile"
)

// Maker builds a profile by hand. Start with New.
type Maker struct{ Profile *pprof.Profile }

// New returns a Maker of a profile of samples and CPU time.
func New() Maker {
	return Maker{&pprof.Profile{
		SampleType:        []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		DefaultSampleType: "cpu",
		PeriodType:        &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"},
		Period:            Period,
	}}
}

// Period is the CPU time in nanoseconds that a sample stands for.
const Period = 10_000_000

// Mapping adds a mapping of 1 MiB at address start and file offset 0x1000.
func (m Maker) Mapping(file, buildID string, start uint64) *pprof.Mapping {
	p := m.Profile
	p.Mapping = append(p.Mapping, &pprof.Mapping{
		ID: uint64(len(p.Mapping) + 1), Start: start, Limit: start + 1<<20, Offset: 0x1000, File: file, BuildID: buildID,
	})
	return p.Mapping[len(p.Mapping)-1]
}

// Function adds a function, or finds the one of this name.
func (m Maker) Function(name string) *pprof.Function {
	p := m.Profile
	i := slices.IndexFunc(p.Function, func(f *pprof.Function) bool { return f.Name == name })
	if i < 0 {
		i = len(p.Function)
		p.Function = append(p.Function, &pprof.Function{ID: uint64(i + 1), Name: name, SystemName: name})
	}
	return p.Function[i]
}

// Location adds a location; the functions are those inlined there, innermost first.
func (m Maker) Location(mapping *pprof.Mapping, address uint64, functions ...string) *pprof.Location {
	p := m.Profile
	l := &pprof.Location{ID: uint64(len(p.Location) + 1), Mapping: mapping, Address: address}
	for i, name := range functions {
		l.Line = append(l.Line, pprof.Line{Function: m.Function(name), Line: int64(10 + i)})
	}
	p.Location = append(p.Location, l)
	return l
}

// Sample adds a stack, leaf first, that was seen count times in a process.
func (m Maker) Sample(process string, pid, count int64, stack ...*pprof.Location) {
	s := &pprof.Sample{Location: stack, Value: []int64{count, count * Period}}
	if process != "" {
		s.Label = map[string][]string{"process": {process}}
		s.NumLabel = map[string][]int64{"pid": {pid}}
	}
	m.Profile.Sample = append(m.Profile.Sample, s)
}

// Identities that Mixed uses.
const (
	AppID    = "a1b2c3d4e5f60718293a4b5c6d7e8f9001020304"
	LibID    = "0102030405060708090a0b0c0d0e0f1011121314"
	KernelID = "ffeeddccbbaa99887766554433221100ffeeddcc"
)

// Mixed returns a profile with everything that a profile can have: inlined and
// recursive functions, functions of the same name in two binaries, the kernel,
// frames without symbol and frames without identity, several processes.
func Mixed() *pprof.Profile {
	m := New()
	app := m.Mapping("/usr/bin/app", AppID, 0x400000)
	lib := m.Mapping("/usr/lib/libz.so.1 (deleted)", LibID, 0x7f0000000000)
	kernel := m.Mapping("[kernel]", KernelID, 0xffffffff81000000)
	nowhere := m.Mapping("[not-mapped]", "", 0)
	gone := m.Mapping("[file-gone] /opt/old", "", 0)

	main := m.Location(app, 0x401000, "main")
	loop := m.Location(app, 0x402000, "step", "loop") // step is inlined into loop
	walk := m.Location(app, 0x403000, "walk")
	libMain := m.Location(lib, 0x7f0000001000, "main")
	stripped := m.Location(lib, 0x7f0000002abc)
	read := m.Location(kernel, 0xffffffff81001000, "vfs_read")
	dark := m.Location(kernel, 0xffffffff81002000)
	hole := m.Location(nowhere, 0xdead0000)
	lost := m.Location(gone, 0x123)

	m.Sample("app", 10, 5, loop, main)
	m.Sample("app", 11, 3, walk, walk, walk, main)
	m.Sample("app", 11, 2, read, stripped, main)
	m.Sample("app", 10, 1, dark, read, main)
	m.Sample("old", 12, 2, libMain, lost)
	m.Sample("old", 12, 1, hole)
	m.Sample("", 0, 4, main)
	return m.Profile
}
