package procmap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kernelText returns the lines of /proc/PID/maps, read without this package.
func kernelText(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err == nil && len(text) == 0 { // its first thread has ended, maybe: another one has its memory
		others, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/maps")
		for _, name := range others {
			if other, err := os.ReadFile(name); err == nil && len(other) > 0 {
				text = other
				break
			}
		}
	}
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
// kernel's text, byte for byte. What others do is no matter of ours: see compareProcess.
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

// looks is how often a process is looked at while it and its witness do not agree.
const looks = 20

// compareProcess compares one process. What a process does in between may make any answer
// differ once: it executes another program, ends, or gives up a mapping that it has again
// a moment later. So the kernel and we are asked anew until we agree, and a dispute counts
// when it is there each time.
func compareProcess(t *testing.T, pid int, m Method) outcome {
	t.Helper()
	var missing map[string]bool // lines that the kernel had each time, and we never
	var stable int
	for look := range looks {
		var errs [3]error
		before, err := kernelText(pid)
		errs[0] = err
		ours, err := ourText(pid, m)
		errs[1] = err
		after, err := kernelText(pid)
		errs[2] = err
		o, dispute := judge(before, after, errs)
		switch {
		case dispute != "" && look == looks-1:
			t.Errorf("process %d, %v: %s", pid, m, dispute)
			return o
		case dispute != "":
			missing = map[string]bool{} // nothing is there each time
			continue
		case o == equal && (equalLines(ours, before) || equalLines(ours, after)):
			return equal
		case o != equal && o != restless:
			return o
		}
		missing, stable = stillMissing(missing, before, ours, after)
	}
	for line := range missing {
		t.Errorf("process %d, %v: missing %q, %d times", pid, m, line, looks)
	}
	t.Logf("process %d keeps changing: compared its %d stable lines", pid, stable)
	return restless
}

// stillMissing returns which of the lines that were missing, all when nil, are in the
// kernel's text before and after and not in ours, and how many that text has both times.
func stillMissing(missing map[string]bool, before, ours, after []string) (still map[string]bool, stable int) {
	still = map[string]bool{}
	for _, line := range before {
		if !slices.Contains(after, line) {
			continue
		}
		stable++
		if !slices.Contains(ours, line) && (missing == nil || missing[line]) {
			still[line] = true
		}
	}
	return still, stable
}

// judge says whether there is something to compare, or what is in dispute. What the kernel
// says before and after, if it is the same, we must say too; else the process is just changing.
func judge(before, after []string, errs [3]error) (o outcome, dispute string) {
	kernel, ours, later := errs[0], errs[1], errs[2]
	want := func(target error, o outcome) (outcome, string) {
		if !errors.Is(ours, target) {
			return o, fmt.Sprintf("%v, want %v", ours, target)
		}
		return o, ""
	}
	switch {
	case errors.Is(kernel, os.ErrPermission) && errors.Is(later, os.ErrPermission):
		return want(os.ErrPermission, noAccess)
	case errors.Is(kernel, os.ErrNotExist):
		return want(os.ErrProcessDone, gone)
	case kernel != nil || later != nil:
		return restless, ""
	case len(before) == 0 && len(after) == 0:
		return want(ErrNoMemory, noMemory)
	case len(before) == 0 || len(after) == 0 || errors.Is(ours, os.ErrProcessDone):
		return restless, ""
	case ours != nil:
		return equal, ours.Error()
	}
	return equal, ""
}

func equalLines(a, b []string) bool {
	return strings.Join(a, "\n") == strings.Join(b, "\n")
}
