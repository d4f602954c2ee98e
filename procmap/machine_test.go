package procmap

import (
	"errors"
	"os"
	"slices"
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
		switch o := judge(t, pid, before, after, errs); {
		case o == equal && (equalLines(ours, before) || equalLines(ours, after)):
			return equal
		case o != equal && o != restless:
			return o
		}
	}
	have := map[string]bool{}
	for _, line := range ours {
		have[line] = true
	}
	stable := 0
	for _, line := range before {
		if !slices.Contains(after, line) {
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

// judge says whether there is something to compare. What the kernel says before and
// after, if it is the same, we must say too; else the process is just changing.
func judge(t *testing.T, pid int, before, after []string, errs [3]error) outcome {
	t.Helper()
	kernel, ours, later := errs[0], errs[1], errs[2]
	want := func(target error, o outcome) outcome {
		if !errors.Is(ours, target) {
			t.Errorf("process %d: %v, want %v", pid, ours, target)
		}
		return o
	}
	switch {
	case errors.Is(kernel, os.ErrPermission) && errors.Is(later, os.ErrPermission):
		return want(os.ErrPermission, noAccess)
	case errors.Is(kernel, os.ErrNotExist):
		return want(os.ErrProcessDone, gone)
	case kernel != nil || later != nil:
		return restless
	case len(before) == 0 && len(after) == 0:
		return want(ErrNoMemory, noMemory)
	case len(before) == 0 || len(after) == 0 || errors.Is(ours, os.ErrProcessDone):
		return restless
	case ours != nil:
		t.Errorf("process %d: %v", pid, ours)
	}
	return equal
}

func equalLines(a, b []string) bool {
	return strings.Join(a, "\n") == strings.Join(b, "\n")
}
