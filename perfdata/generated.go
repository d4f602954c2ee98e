package perfdata

import "strings"

// generatedPrefix is how names of mappings begin that show one function of generated code.
// In the kernel's records no name of a mapping does.
const generatedPrefix = "[jit] "

// divisionSlash stands for slashes in such names: perf shows of a path what is behind the last.
const divisionSlash = "\u2215"

// GeneratedName returns the name of a mapping that shows one function of generated code.
// perf.data has no record for names of code in user space: perf report looks for a file,
// /tmp/perf-PID.map, which another machine does not have, nor this one for long. So the
// function takes the place of the library, and whoever reads perf.data shows it.
func GeneratedName(function string) string {
	return generatedPrefix + strings.ReplaceAll(function, "/", divisionSlash)
}

// GeneratedFunction returns the function whose code a mapping of this name shows, ok false
// if it is any other mapping.
func GeneratedFunction(name string) (function string, ok bool) {
	function, ok = strings.CutPrefix(name, generatedPrefix)
	if !ok || function == "" {
		return "", false
	}
	return strings.ReplaceAll(function, divisionSlash, "/"), true
}
