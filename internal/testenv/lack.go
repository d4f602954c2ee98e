package testenv

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// LackMarker begins the line that [Lack] writes. The test command looks for it.
const LackMarker = "LACK: "

// AloneMarker begins the line in the output of a test that has passed when it was run
// again: what it lacked before follows.
const AloneMarker = "PASSED WHEN RUN ALONE: "

// LackVar names the environment variable by which the test command promises to run a
// test that lacks samples or time again, alone, after all others.
const LackVar = "HALLMARK_LACK"

// Lack ends a test that has got too few samples, or too little time, to judge: a busy
// machine may be the reason. Under the test command the test is then run once more,
// alone; it fails if it lacks them again, as it does at once under go test.
//
// Only a lack may be declared so. A wrong answer, a lost event, a race, a panic or a leak
// is a failure of the test, at the first try: a test that has failed already stays failed.
func Lack(t testing.TB, format string, args ...any) {
	t.Helper()
	text := LackMarker + fmt.Sprintf(format, args...)
	if os.Getenv(LackVar) == "later" && !t.Failed() {
		t.Skip(text)
	}
	t.Fatal(text)
}

// RunPattern returns the pattern of go test's -run that selects one test, by its whole name:
// TestX/sub is ^TestX$/^sub$.
func RunPattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
