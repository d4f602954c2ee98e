package perftest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hallmark/internal/testenv"
)

// Disturb records the whole machine and asks for build IDs, and runs programs that have longer
// ones than the kernel and perf know, until the test ends. It returns when what is recorded
// without Record is wrong, and ends the test where the kernel keeps recordings apart.
func Disturb(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	for _, id := range []string{strings.Repeat("a1", 24), strings.Repeat("b2", 64)} {
		name := filepath.Join(dir, id[:4])
		build := exec.Command(testenv.Tool(t, "gcc"), "-Wl,--build-id=0x"+id, "-xc", "-", "-o", name)
		build.Stdin = strings.NewReader("#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1); }\n")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := until(t, exec.Command(name)); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := until(t, exec.Command(testenv.Tool(t, "perf"), "record", "-q", "-a", "-B", "-N", Asks, "-e", "dummy", "-o", filepath.Join(dir, "all.data")))
	if err != nil {
		t.Fatal(err)
	}
	const tries = 100
	for range tries {
		if confused(t, filepath.Join(dir, "probe.data")) {
			return
		}
		select {
		case <-ended:
			t.Fatal("perf does not record the machine")
		default:
		}
	}
	t.Skip("this kernel keeps recordings apart")
}

// until starts a program that runs until the test ends.
func until(t testing.TB, cmd *exec.Cmd) (ended chan struct{}, err error) {
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
	})
	return ended, nil
}

// confused reports whether a recording that does not ask for build IDs seems to have some.
func confused(t testing.TB, file string) bool {
	t.Helper()
	Run(t, "record", "-q", "-B", "-o", file, "-e", "dummy", "--", "true")
	return mendFile(t, file)
}
