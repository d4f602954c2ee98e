package testenv

import "testing"

// Brief reports whether a test is to look at a part of what it otherwise looks at: in a quick
// run, and, in packages that test.sh tests without the race detector too, under it.
func Brief() bool { return Race || testing.Short() }
