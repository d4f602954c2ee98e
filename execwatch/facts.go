package execwatch

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hallmark/internal/perfring"
	"hallmark/internal/procfs"
)

// factsOf is what /proc said of a process, at a time. It is of the program that the
// process ran then.
type factsOf struct {
	read   uint64 // when, ns, CLOCK_MONOTONIC
	args   []byte
	cut    bool
	ppid   int
	owner  *Credentials
	cgroup string
}

// pendingFacts are facts that are read while records are: a process may let whoever looks at its
// memory wait, and files have to be reached before other processes end.
type pendingFacts struct {
	facts atomic.Pointer[factsOf]
	// until is when the process became another one, or another program: what was read later is
	// not of this execution. Only the reader of records uses it.
	until uint64
}

// known returns the facts, if they were read before a time; nil while they are not there. It
// reports false if there will be none.
func (p *pendingFacts) known(before uint64) (f *factsOf, ok bool) {
	if p == nil {
		return nil, false
	}
	switch f = p.facts.Load(); {
	case f == nil:
		return nil, p.until == 0
	case p.until != 0 && f.read >= p.until:
		return nil, false
	case f.read >= before:
		return nil, true
	}
	return f, true
}

// doubt says that the process became another one, or another program, at a time.
func (p *pendingFacts) doubt(at uint64) {
	if p != nil && (p.until == 0 || at < p.until) {
		p.until = at
	}
}

const (
	// maxFactsReaders bounds the processes that are looked at at once.
	maxFactsReaders = 64
	// factsPatience is how long the reader of records waits for one of these looks to end. When
	// none did, it waits for none during factsPause: processes that let nobody look at them must
	// not hold up all others.
	factsPatience, factsPause = 50 * time.Millisecond, time.Second
)

// factsReaders read facts beside the records.
type factsReaders struct {
	slots  chan struct{}
	all    *sync.WaitGroup
	paused time.Time // none is waited for until then
}

func newFactsReaders() factsReaders {
	return factsReaders{slots: make(chan struct{}, maxFactsReaders), all: new(sync.WaitGroup)}
}

// read reads the facts of a process, nil if too many others are looked at.
func (r *factsReaders) read(pid uint32) *pendingFacts {
	if !r.take() {
		return nil
	}
	p := new(pendingFacts)
	r.all.Go(func() {
		defer func() { <-r.slots }()
		p.facts.Store(readFacts(pid))
	})
	return p
}

// take takes a slot.
func (r *factsReaders) take() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
	}
	if time.Now().Before(r.paused) {
		return false
	}
	late := time.NewTimer(factsPatience)
	defer late.Stop()
	select {
	case r.slots <- struct{}{}:
		return true
	case <-late.C:
		r.paused = time.Now().Add(factsPause)
		return false
	}
}

// readFacts reads what the kernel's records do not have. Facts of a process that is gone are left out.
func readFacts(pid uint32) *factsOf {
	f := new(factsOf)
	f.args = procfs.ArgsOf(pid)
	if len(f.args) > procfs.MaxArgs {
		f.args, f.cut = f.args[:procfs.MaxArgs], true
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		f.readStatus(status)
	}
	if cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil {
		f.cgroup = unifiedCgroup(cgroup)
	}
	f.read = perfring.Monotonic()
	return f
}

// readStatus takes what is known under these names in /proc/PID/status: proc(5).
func (f *factsOf) readStatus(status []byte) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	var owner Credentials
	found := 0
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		values := strings.Fields(rest)
		switch {
		case name == "PPid" && len(values) == 1:
			f.ppid, _ = strconv.Atoi(values[0])
		case name == "Uid" && len(values) == 4:
			owner.UID, owner.EUID = procfs.Number(values[0]), procfs.Number(values[1])
			found++
		case name == "Gid" && len(values) == 4:
			owner.GID, owner.EGID = procfs.Number(values[0]), procfs.Number(values[1])
			found++
		}
	}
	if found == 2 {
		f.owner = &owner
	}
}

// unifiedCgroup returns the cgroup of version 2: cgroups(7).
func unifiedCgroup(b []byte) string {
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path
		}
	}
	return ""
}

// fill gives an event what was read.
func (f *factsOf) fill(ev *Event) {
	if len(f.args) > 0 {
		ev.Args, ev.ArgsCut = splitArgs(f.args), f.cut
	}
	if f.ppid != 0 {
		ev.PPID = f.ppid
	}
	ev.Credentials, ev.Cgroup = f.owner, f.cgroup
	ev.Container = procfs.UnifiedContainer(ev.Cgroup)
}
