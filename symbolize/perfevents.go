package symbolize

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"hallmark/buildid"
	"hallmark/reason"
)

// perfEvents is what text of perf script said of processes and of files.
type perfEvents struct {
	processes map[int][]perfMapping // in the order of addresses, none over another
	threads   map[int]int           // their processes
	mappings  int
	files     map[string]perfFile
}

// perfMapping is a file in the memory of a process.
type perfMapping struct {
	start, end, offset uint64
	path               string
	id                 buildid.ID // zero if not known
}

// perfFile is what is known of all files that were at a path.
type perfFile struct {
	path    string
	id      buildid.ID
	several bool // and not only one
}

// Bounds of the memory of a text without end. Beyond them all is forgotten.
const (
	maxMappings       = 1 << 19
	maxProcessMapping = 1 << 16 // what the kernel allows too (vm.max_map_count)
	maxThreads        = 1 << 18
	maxFiles          = 1 << 14
)

func newPerfEvents() *perfEvents {
	return &perfEvents{processes: map[int][]perfMapping{}, threads: map[int]int{}, files: map[string]perfFile{}}
}

// perfMmap matches what perf_event__fprintf_mmap2 and its older sibling print.
var (
	perfMmap = pattern(`PERF_RECORD_MMAP2? (-?\d+)/(-?\d+): \[(?:0x)?([0-9a-f]+)\((?:0x)?([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)([^\]]*)\]: [^ ]+ (.*)$`)
	perfFork = pattern(`PERF_RECORD_FORK\((\d+):(\d+)\):\((\d+):(\d+)\)`)
	perfExec = pattern(`PERF_RECORD_COMM exec: .*:(\d+)/\d+$`)
	perfExit = pattern(`PERF_RECORD_EXIT\((\d+):(\d+)\)`)
	perfID   = pattern(`^([0-9a-f]{16,64}) (/.*)$`)
)

// read reads the line of an event.
func (e *perfEvents) read(line string) {
	if m := perfMmap().FindStringSubmatch(line); m != nil {
		e.readMmap(m)
	} else if m := perfFork().FindStringSubmatch(line); m != nil {
		e.fork(atoi(m[1]), atoi(m[2]), atoi(m[3]))
	} else if m := perfExec().FindStringSubmatch(line); m != nil {
		e.drop(atoi(m[1]))
	} else if m := perfExit().FindStringSubmatch(line); m != nil {
		delete(e.threads, atoi(m[2]))
		if m[1] == m[2] {
			e.drop(atoi(m[1]))
		}
	}
}

// atoi returns a number that a pattern matched, -1 for one beyond all numbers of
// processes.
func atoi(digits string) int {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return -1
	}
	return int(n)
}

func (e *perfEvents) readMmap(m []string) {
	path := strings.TrimSuffix(m[7], " (deleted)")
	if !strings.HasPrefix(path, "/") || len(path) > maxPath {
		return
	}
	start, _, ok1 := cutHex(m[3])
	size, _, ok2 := cutHex(m[4])
	offset, _, ok3 := cutHex(m[5])
	if !ok1 || !ok2 || !ok3 || size == 0 || start+size < start || offset+size < offset {
		return
	}
	at := perfMapping{start: start, end: start + size, offset: offset}
	if id, ok := strings.CutPrefix(m[6], " <"); ok {
		at.id, _ = parseID(strings.TrimSuffix(id, ">"))
	}
	at.path = e.identify(path, at.id)
	process := atoi(m[1])
	e.note(process, atoi(m[2]))
	e.add(process, at)
}

// note remembers the process of a thread.
func (e *perfEvents) note(process, thread int) {
	if len(e.threads) >= maxThreads {
		clear(e.threads)
	}
	e.threads[thread] = process
}

// add puts a mapping into a process, in the place of what was there.
func (e *perfEvents) add(process int, m perfMapping) {
	if e.mappings >= maxMappings {
		clear(e.processes)
		e.mappings = 0
	}
	if len(e.processes[process]) >= maxProcessMapping {
		e.drop(process)
	}
	all := e.processes[process]
	from, _ := slices.BinarySearchFunc(all, m.start, func(o perfMapping, a uint64) int { return cmp.Compare(o.end, a+1) })
	to, _ := slices.BinarySearchFunc(all, m.end, func(o perfMapping, a uint64) int { return cmp.Compare(o.start, a) })
	parts := []perfMapping{m}
	if from < to {
		first, last := all[from], all[to-1]
		if first.start < m.start {
			first.end = m.start
			parts = slices.Insert(parts, 0, first)
		}
		if last.end > m.end {
			last.offset += m.end - last.start
			last.start = m.end
			parts = append(parts, last)
		}
	}
	e.mappings += len(parts) - (to - from)
	e.processes[process] = slices.Replace(all, from, to, parts...)
}

func (e *perfEvents) drop(process int) {
	e.mappings -= len(e.processes[process])
	delete(e.processes, process)
}

// fork gives a new process what its parent has; or it is only a thread.
func (e *perfEvents) fork(process, thread, parent int) {
	e.note(process, thread)
	if process == parent {
		return
	}
	e.drop(process)
	if all := e.processes[parent]; e.mappings+len(all) < maxMappings {
		e.processes[process] = slices.Clone(all)
		e.mappings += len(all)
	}
}

// identify remembers the identity of the file at a path, unless it is zero, and returns
// the path, of which there is one copy.
func (e *perfEvents) identify(path string, id buildid.ID) string {
	f, known := e.files[path]
	if known && (id.IsZero() || f.id == id) {
		return f.path
	}
	if !known {
		if len(e.files) >= maxFiles {
			*e = *newPerfEvents()
		}
		f.path = strings.Clone(path) // the line that it is a part of may be long
	}
	if f.id.IsZero() {
		f.id = id
	} else {
		f.several = true
	}
	e.files[f.path] = f
	return f.path
}

// readIdentity reads a line of perf buildid-list, if it is one.
func (e *perfEvents) readIdentity(line string) {
	if len(line) < 18 || !isHex(line[0]) {
		return
	}
	if m := perfID().FindStringSubmatch(line); m != nil {
		if id, err := parseID(m[1]); err == nil && len(m[2]) <= maxPath {
			e.identify(m[2], id)
		}
	}
}

// identity returns the identity of the file at a path, the zero ID if it is not known
// or if there were several.
func (e *perfEvents) identity(path string) buildid.ID {
	if f := e.files[path]; !f.several {
		return f.id
	}
	return buildid.ID{}
}

// processOf returns the process of a thread, -1 if it is not known.
func (e *perfEvents) processOf(thread int) int {
	if process, ok := e.threads[thread]; ok {
		return process
	}
	return -1
}

// absolute returns where in its file a frame is whose number is an address, if perf
// does not say it itself.
func (e *perfEvents) absolute(process int, f *perfFrame) (place, reason.Reason) {
	at := place{module: f.module, at: f.offset, offset: true}
	all := e.processes[process]
	i, _ := slices.BinarySearchFunc(all, f.ip, func(o perfMapping, a uint64) int { return cmp.Compare(o.end, a+1) })
	mapped := i < len(all) && all[i].start <= f.ip && all[i].path == f.module
	switch {
	case mapped:
		at.id = all[i].id
		if !f.has {
			at.at = f.ip - all[i].start + all[i].offset
		}
	case !f.has:
		return at, reason.NoOffset
	}
	if at.id.IsZero() {
		at.id = e.identity(f.module)
	}
	return at, reason.None
}

// mappingOf returns the mapping of a process in which a frame is if its number is an
// offset in the file. It is false if the number could as well be an address there.
func (e *perfEvents) mappingOf(process int, f *perfFrame) (perfMapping, bool) {
	var found perfMapping
	ok := false
	for _, m := range e.processes[process] {
		if m.path != f.module {
			continue
		}
		if m.start <= f.ip && f.ip < m.end {
			return m, false
		}
		if m.offset <= f.ip && f.ip-m.offset < m.end-m.start {
			found, ok = m, true
		}
	}
	if found.id.IsZero() {
		found.id = e.identity(f.module)
	}
	return found, ok
}

// knows reports whether a process is known to have mapped a file.
func (e *perfEvents) knows(process int, path string) bool {
	return slices.ContainsFunc(e.processes[process], func(m perfMapping) bool { return m.path == path })
}
