package capture

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// factsOf is what /proc told of a process, at a time. It is of the program that the
// process ran then.
type factsOf struct {
	read   uint64 // when, ns, CLOCK_MONOTONIC
	args   []byte
	cut    bool
	ppid   int
	owner  *Owner
	cgroup string
}

// maxArgs is MAX_EXEC_ARGS of exec.h: both backends tell as much.
const maxArgs = 4096

// readFacts reads what the kernel's records do not tell. What is gone is left out.
func readFacts(pid uint32) *factsOf {
	f := new(factsOf)
	f.args = argsOf(pid)
	if len(f.args) > maxArgs {
		f.args, f.cut = f.args[:maxArgs], true
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		f.readStatus(status)
	}
	if cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil {
		f.cgroup = unifiedCgroup(cgroup)
	}
	f.read = monotonic()
	return f
}

// readStatus takes what is known under these names in /proc/PID/status: proc(5).
func (f *factsOf) readStatus(status []byte) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	var owner Owner
	found := 0
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		values := strings.Fields(rest)
		switch {
		case name == "PPid" && len(values) == 1:
			f.ppid, _ = strconv.Atoi(values[0])
		case name == "Uid" && len(values) == 4:
			owner.UID, owner.EUID = number(values[0]), number(values[1])
			found++
		case name == "Gid" && len(values) == 4:
			owner.GID, owner.EGID = number(values[0]), number(values[1])
			found++
		}
	}
	if found == 2 {
		f.owner = &owner
	}
}

func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32) // the kernel wrote it
	return uint32(n)
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
func (f *factsOf) fill(ev *WatchEvent) {
	if len(f.args) > 0 {
		ev.Args, ev.ArgsCut = splitArgs(f.args), f.cut
	}
	if f.ppid != 0 {
		ev.PPID = f.ppid
	}
	ev.Owner, ev.Cgroup = f.owner, f.cgroup
	ev.Container = container(ev.Cgroup)
}
