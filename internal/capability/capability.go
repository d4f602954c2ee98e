// Package capability reports which capabilities(7) this process has, as far as recording needs them.
package capability

import (
	"strings"

	"golang.org/x/sys/unix"
)

// capabilityNames are those of capabilities(7) that recording asks for.
var capabilityNames = map[int]string{
	unix.CAP_BPF:     "CAP_BPF",
	unix.CAP_PERFMON: "CAP_PERFMON",
}

// Has reports whether this process has a capability in effect. It says nothing of
// the user namespace in which it has it.
func Has(c int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil {
		return false
	}
	return sets[c/32].Effective&(1<<(c%32)) != 0
}

// LackingForBPF returns the names of the capabilities that programs of BPF take and this process
// does not have, "" if it has them. CAP_SYS_ADMIN stands for both.
func LackingForBPF() string {
	if Has(unix.CAP_SYS_ADMIN) {
		return ""
	}
	var lacking []string
	for _, c := range []int{unix.CAP_BPF, unix.CAP_PERFMON} {
		if !Has(c) {
			lacking = append(lacking, capabilityNames[c])
		}
	}
	return strings.Join(lacking, " and ")
}

// CanLockMemory reports whether this process may lock as much memory as it likes.
func CanLockMemory() bool { return Has(unix.CAP_IPC_LOCK) }
