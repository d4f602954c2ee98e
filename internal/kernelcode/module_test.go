package kernelcode

import (
	"os"
	"strings"
	"testing"
)

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
