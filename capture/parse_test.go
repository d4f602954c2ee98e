package capture

import (
	"os"
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
	if got, err := onlineCPUs(); err != nil || len(got) < runtime.NumCPU() {
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

func TestParseModule(t *testing.T) {
	m, ok := parseModule("nf_tables 282624 2 nft_compat,nft_chain_nat, Live 0xffffffffc0a4b000")
	if !ok || m.start != 0xffffffffc0a4b000 || m.end != 0xffffffffc0a4b000+282624 {
		t.Errorf("got %v-%v, %v", m.start, m.end, ok)
	}
	for _, line := range []string{
		"",
		"nf_tables 282624 2 - Live",
		"nf_tables 282624 2 - Live 0x0000000000000000", // hidden from this user
		"nf_tables many 2 - Live 0xffffffffc0a4b000",
	} {
		if m, ok := parseModule(line); ok {
			t.Errorf("parseModule(%q) = %v-%v", line, m.start, m.end)
		}
	}
}

// TestParseModulesOfThisMachine wants every module that the kernel lists.
func TestParseModulesOfThisMachine(t *testing.T) {
	list, err := os.ReadFile("/proc/modules")
	if err != nil {
		t.Skip("a kernel without modules: ", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("the kernel hides the addresses of modules from this user")
	}
	for line := range strings.Lines(string(list)) {
		if _, ok := parseModule(line); !ok {
			t.Errorf("cannot read %q", line)
		}
	}
}

func FuzzParseModule(f *testing.F) {
	f.Add("nf_tables 282624 2 nft_compat,nft_chain_nat, Live 0xffffffffc0a4b000")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseModule(line); ok && m.start == 0 {
			t.Errorf("parseModule(%q) is at 0", line)
		}
	})
}
