package perfring

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{
		"0":         {0},
		"0-3":       {0, 1, 2, 3},
		"0-1,4,6-7": {0, 1, 4, 6, 7},
	} {
		if got, err := parseCPUs(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("parseCPUs(%q) = %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "x", "3-1", "-1", "0-", "0-99999999"} {
		if got, err := parseCPUs(list); err == nil {
			t.Errorf("parseCPUs(%q) = %v", list, got)
		}
	}
	if got, err := OnlineCPUs(); err != nil || len(got) < runtime.NumCPU() {
		t.Errorf("%d CPUs are online, this process may use %d: %v", len(got), runtime.NumCPU(), err)
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-1,4,6-7")
	f.Add("0-65535")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := parseCPUs(list)
		if err == nil && len(cpus) == 0 {
			t.Errorf("parseCPUs(%q) finds none and no error", list)
		}
		if len(cpus) > maxCPU*(strings.Count(list, ",")+1) {
			t.Errorf("parseCPUs(%q) finds %d", list, len(cpus))
		}
	})
}
