package procmap

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

// kernelText returns the lines of /proc/PID/maps, read without this package.
func kernelText(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil || len(text) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

func ourText(pid int, m Method) ([]string, error) {
	p, err := OpenOptions(pid, Options{Method: m})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	list, err := p.All()
	var lines []string
	for _, v := range list {
		lines = append(lines, v.String())
	}
	return lines, err
}

// TestEveryProcess compares the VMAs of every process of this machine with the
// kernel's text, byte for byte.
func TestEveryProcess(t *testing.T) {
	many := start(t, play("many"))
	for _, m := range methods(t) {
		t.Run(m.String(), func(t *testing.T) {
			var same, denied, memoryless int
			for _, pid := range processes(t) {
				switch compareProcess(t, pid, m) {
				case equal:
					same++
				case noAccess:
					denied++
				case noMemory:
					memoryless++
				}
			}
			t.Logf("%d processes agree, %d not permitted, %d without memory", same, denied, memoryless)
			if compareProcess(t, many.pid, m) != equal {
				t.Error("the process with many VMAs was not compared")
			}
		})
	}
}

func processes(t *testing.T) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

type outcome int

const (
	equal outcome = iota
	restless
	noAccess
	noMemory
	gone
)

// compareProcess compares one process. When its mappings change all the time, what
// does not change is compared.
func compareProcess(t *testing.T, pid int, m Method) outcome {
	t.Helper()
	var before, ours, after []string
	for range 20 {
		var errs [3]error
		before, errs[0] = kernelText(pid)
		ours, errs[1] = ourText(pid, m)
		after, errs[2] = kernelText(pid)
		if o, ended := without(t, pid, before, errs); ended {
			return o
		}
		if equalLines(ours, before) || equalLines(ours, after) {
			return equal
		}
	}
	have := map[string]bool{}
	for _, line := range ours {
		have[line] = true
	}
	stable := 0
	for _, line := range before {
		if !contains(after, line) {
			continue
		}
		stable++
		if !have[line] {
			t.Errorf("process %d, %v: missing %q", pid, m, line)
		}
	}
	t.Logf("process %d keeps changing: compared its %d stable lines of %d", pid, stable, len(before))
	return restless
}

// without judges a process that could not be compared: both sides must see that.
func without(t *testing.T, pid int, before []string, errs [3]error) (outcome, bool) {
	t.Helper()
	kernel, ours, after := errs[0], errs[1], errs[2]
	switch {
	case kernel != nil && after != nil && ours != nil:
		if errors.Is(kernel, os.ErrPermission) {
			if !errors.Is(ours, os.ErrPermission) {
				t.Errorf("process %d: %v, want permission denied", pid, ours)
			}
			return noAccess, true
		}
		if !errors.Is(ours, os.ErrProcessDone) {
			t.Errorf("process %d: %v, want process done", pid, ours)
		}
		return gone, true
	case kernel == nil && len(before) == 0 && after == nil:
		if !errors.Is(ours, ErrNoMemory) {
			t.Errorf("process %d: %v, want no memory", pid, ours)
		}
		return noMemory, true
	case kernel == nil && after == nil && ours != nil:
		t.Errorf("process %d: %v", pid, ours)
		return equal, true
	}
	return gone, kernel != nil || ours != nil || after != nil
}

func equalLines(a, b []string) bool {
	return strings.Join(a, "\n") == strings.Join(b, "\n")
}

func contains(lines []string, line string) bool {
	for _, l := range lines {
		if l == line {
			return true
		}
	}
	return false
}
