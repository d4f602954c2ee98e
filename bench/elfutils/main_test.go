package main

import (
	"os"
	"testing"
)

// TestGuarded has root's command try to replace /dev/null, which other programs have open.
func TestGuarded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can replace it")
	}
	before, err := os.Stat("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	// A name that is new is tried first: where that can be made, nothing else is.
	const try = `if touch /dev/hallmark-test; then rm /dev/hallmark-test; exit 3; fi
mv /dev/null /dev/other 2>&1; echo nothing > /dev/null && test -c /dev/null`
	if out, err := guarded(t.Context(), "sh", "-c", try).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	after, err := os.Stat("/dev/null")
	if err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() {
		t.Errorf("%v, %v", after, err)
	}
}
