package testenv

import (
	"fmt"
	"os"
	"testing"
)

// LackMarker begins the line that [Lack] writes. The test command looks for it.
const LackMarker = "LACK: "

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
