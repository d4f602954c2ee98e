package testenv

import (
	"regexp"
	"strings"
	"testing"
)

// TestRunPattern wants a pattern to select one test, whatever is in its name.
func TestRunPattern(t *testing.T) {
	for _, name := range []string{"TestX", "TestX/a.b", "TestX/a/b(c)", "TestX/sub#01", "TestX/[1]*"} {
		patterns, parts := strings.Split(RunPattern(name), "/"), strings.Split(name, "/")
		for i, part := range parts {
			r := regexp.MustCompile(patterns[i])
			if !r.MatchString(part) || r.MatchString(part+"1") || r.MatchString("x"+part) {
				t.Errorf("%s: %s for %s", name, patterns[i], part)
			}
		}
	}
}
