// Package process reads what another process has cost so far: proc_pid_stat(5), proc_pid_status(5).
package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// CPU returns how many seconds a process has run on a processor, 0 where there is none.
func CPU(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(words) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(words[11])
	system, _ := strconv.Atoi(words[12])
	return float64(user+system) / 100 // USER_HZ
}

// Peak returns the most memory that a process had at a time, in MiB.
func Peak(pid int) float64 { return memory(pid, "VmHWM:") }

// Resident returns how much memory a process has, in MiB.
func Resident(pid int) float64 { return memory(pid, "VmRSS:") }

func memory(pid int, line string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for text := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(text, line); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) / 1024
		}
	}
	return 0
}
