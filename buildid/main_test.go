package buildid_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package if it leaves goroutines or descriptors behind.
func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if after := descriptors(); after > before {
			fmt.Fprintf(os.Stderr, "%d descriptors at the start, %d at the end\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

// descriptors counts the open ones, without those of Go's network poller, which
// stay once they exist.
func descriptors() (n int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(link, "anon_inode:[event") {
			n++
		}
	}
	return n
}
