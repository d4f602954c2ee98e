//go:build race

package testenv

// Race reports whether the race detector looks on. It makes tests take several times as
// long, so in the packages that test.sh tests without it too they may look at less: at as
// much as shows what goroutines share, or, where these share nothing, at nothing.
const Race = true
