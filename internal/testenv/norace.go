//go:build !race

package testenv

// Race reports whether the race detector looks on.
const Race = false
