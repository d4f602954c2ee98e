package perfdata

import "testing"

func TestGeneratedName(t *testing.T) {
	for _, function := range []string{"f", "JS:*one /a/b.js:1", "[x]", " "} {
		if got, ok := GeneratedFunction(GeneratedName(function)); !ok || got != function {
			t.Errorf("%q became %q, %v", function, got, ok)
		}
	}
	for _, name := range []string{"", "[jit] ", "[vdso]", "//anon", "/usr/bin/[jit] f", "[JIT] tid 7"} {
		if got, ok := GeneratedFunction(name); ok || got != "" {
			t.Errorf("%q shows %q", name, got)
		}
	}
}
