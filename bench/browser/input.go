package browser

import (
	"fmt"
	"os"

	pprof "github.com/google/pprof/profile"
)

// Identities in the profile that Machine makes.
const (
	ServerID = "0123456789abcdef0123456789abcdef01234567"
	LibcID   = "89abcdef0123456789abcdef0123456789abcdef"
	KernelID = "fedcba9876543210fedcba9876543210fedcba98"
)

// Evil is a name that would be executed by a page that takes text for markup, and that turns the
// direction of text.
const Evil = "<img src=x onerror=\"window.evil=1\"><script>window.evil=2</script>\u202e\x1b[2J\xff"

type maker struct {
	p         *pprof.Profile
	functions map[string]*pprof.Function
	places    map[string]*pprof.Location
}

func newMaker() *maker {
	const start = 1_790_000_000_000_000_000
	return &maker{functions: map[string]*pprof.Function{}, places: map[string]*pprof.Location{}, p: &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprof.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: period, DefaultSampleType: "cpu",
		TimeNanos: start, DurationNanos: 10_000_000_000,
	}}
}

func (m *maker) mapping(file, id string, start uint64) *pprof.Mapping {
	made := &pprof.Mapping{ID: uint64(len(m.p.Mapping) + 1), Start: start, Limit: start + 1<<24, File: file, BuildID: id, HasFunctions: true}
	m.p.Mapping = append(m.p.Mapping, made)
	return made
}

func (m *maker) function(name, file string) *pprof.Function {
	f := m.functions[name]
	if f == nil {
		f = &pprof.Function{ID: uint64(len(m.p.Function) + 1), Name: name, SystemName: name, Filename: file, StartLine: 10}
		m.functions[name] = f
		m.p.Function = append(m.p.Function, f)
	}
	return f
}

// at returns a place in a file with functions, the innermost of which is first.
func (m *maker) at(mapping *pprof.Mapping, offset uint64, file string, functions ...string) *pprof.Location {
	key := fmt.Sprint(mapping.ID, offset)
	l := m.places[key]
	if l == nil {
		l = &pprof.Location{ID: uint64(len(m.p.Location) + 1), Mapping: mapping, Address: mapping.Start + offset}
		for i, name := range functions {
			l.Line = append(l.Line, pprof.Line{Function: m.function(name, file), Line: int64(11 + i)})
		}
		m.places[key] = l
		m.p.Location = append(m.p.Location, l)
	}
	return l
}

const period = 10_000_000

// stack adds a stack, leaf first, of a process that was seen n times from a time on.
func (m *maker) stack(process string, pid int64, container, end string, from, n int64, stack ...*pprof.Location) {
	s := &pprof.Sample{
		Location: stack, Value: []int64{n, n * period},
		Label:    map[string][]string{"process": {process}, "thread": {process}, "stack": {end}},
		NumLabel: map[string][]int64{"pid": {pid}, "tid": {pid}, "timestamp": nil},
		NumUnit:  map[string][]string{"timestamp": nil},
	}
	if container != "" {
		s.Label["container"] = []string{container}
	}
	for i := range n {
		s.NumLabel["timestamp"] = append(s.NumLabel["timestamp"], from+i*period)
		s.NumUnit["timestamp"] = append(s.NumUnit["timestamp"], "nanoseconds")
	}
	m.p.Sample = append(m.p.Sample, s)
}

// Machine returns a profile of two processes in 10 seconds: with kernel code, Go, native code,
// inlined calls, code without names, stacks that are cut, a container and a hostile name. Slow is
// how often a function was seen that a second profile has more of.
func Machine(slow int64) *pprof.Profile {
	m := newMaker()
	server, libc, kernel := m.mapping("/srv/app/server", ServerID, 0x400000), m.mapping("/usr/lib/libc.so.6", LibcID, 0x10000), m.mapping("[kernel]", KernelID, 0xffffffff81000000)
	gone := m.mapping("[file-gone] /opt/old/worker", "", 0)
	gone.HasFunctions = false
	main := m.at(server, 0x1000, "/src/app/main.go", "main.main")
	serve := m.at(server, 0x2000, "/src/app/serve.go", "app.(*Server).serve")
	parse := m.at(server, 0x3000, "/src/app/parse.go", "app.next", "app.parse") // next is inlined
	slowAt := m.at(server, 0x4000, "/src/app/slow.go", "app.regressed")
	alloc := m.at(libc, 0x5000, "malloc.c", "malloc")
	unnamed := m.at(libc, 0x6000, "")
	read := m.at(kernel, 0x7000, "", "vfs_read")
	entry := m.at(kernel, 0x7100, "", "entry_SYSCALL_64")
	old := m.at(gone, 0x10, "")
	evil := m.at(server, 0x8000, "/src/<b>evil</b>.go", Evil)
	m.stack("server", 100, "c0ffee", "complete", 0, 300, parse, serve, main)
	m.stack("server", 100, "c0ffee", "complete", 3_000_000_000, 150, read, entry, serve, main)
	m.stack("server", 100, "c0ffee", "complete", 4_500_000_000, slow, slowAt, serve, main)
	m.stack("server", 101, "c0ffee", "complete", 6_000_000_000, 80, alloc, parse, serve, main)
	m.stack("worker", 200, "", "file-gone", 2_000_000_000, 60, unnamed, old)
	m.stack("worker", 200, "", "no-table", 7_000_000_000, 40, alloc, unnamed)
	m.stack("worker", 201, "", "complete", 8_000_000_000, 30, evil, main)
	return m.p
}

// Save writes a profile to a file.
func Save(name string, p *pprof.Profile) error {
	if err := p.CheckValid(); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := p.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
