package addr2line

import (
	"strings"
	"testing"
)

// TestSuffixes compares names with the suffixes of clones and of parts.
func TestSuffixes(t *testing.T) {
	names := []string{
		"_Z1fi.cold", "_Z1fi.cold.12", "_Z1fi.part.0", "_Z1fi.constprop.1", "_Z1fi.isra.34", "_Z1fi.isra.34.part.35",
		"_Z1fi.lto_priv.0", "_Z1fi.lto_priv.0.cold", "_Z1fi.llvm.123456789", "_Z1fi.__uniq.1234567", "_Z1fi.__uniq.12345.llvm.77",
		"_Z1fi.part.0.constprop.1.isra.2.cold", "_Z1fi._omp_fn.0", "_Z1fi.resolver", "_Z1fi.123.abc",
		"_Z1fi", "_Zbroken.cold", "main.cold", "_RNvNtCs1234_7mycrate3foo3bar.llvm.12.cold",
	}
	for tool, readable := range map[string]demangler{"llvm-cxxfilt-19": demangleLLVM, "c++filt": demangleGNU} {
		lines := strings.Split(filter(t, strings.Join(names, "\n")+"\n", tool), "\n")
		for i, name := range names {
			if strings.HasPrefix(name, "_R") && tool == "c++filt" {
				continue // it writes out the hash of a crate
			}
			if got := readable(name); got != lines[i] {
				t.Errorf("%s of %s is %s, want %s", tool, name, got, lines[i])
			}
		}
	}
}
