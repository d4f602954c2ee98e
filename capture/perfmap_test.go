package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
	"hallmark/reason"
)

// TestRecordGeneratedCode wants the names that a program wrote for the code that
// it generated, also though it has ended when they are read.
func TestRecordGeneratedCode(t *testing.T) { eachBackend(t, recordGeneratedCode) }

func recordGeneratedCode(t *testing.T, backend Backend) { runGeneratedCode(t, backend, "300") }

// TestRecordGeneratedCodeInMemfd has the code in a file without a name, that is written
// through another mapping.
func TestRecordGeneratedCodeInMemfd(t *testing.T) {
	needBPF(t)
	runGeneratedCode(t, BPF, "300", "memfd")
}

func runGeneratedCode(t *testing.T, backend Backend, args ...string) {
	c, err := launch.Start(append([]string{buildJIT(t)}, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(fmt.Sprintf("/tmp/perf-%d.map", c.PID())) })
	p, _, _ := recordSession(t, t.Context(), Options{Backend: backend, Command: c})
	checkGenerated(t, p, "jit")
}

// TestRecordGeneratedCodeInContainer has the map in a /tmp that ends with the
// process, which counts itself in its own way, and is another user's.
func TestRecordGeneratedCodeInContainer(t *testing.T) {
	eachBackend(t, recordGeneratedCodeInContainer)
}

func recordGeneratedCodeInContainer(t *testing.T, backend Backend) {
	testenv.Root(t)
	script := `mount -t tmpfs none /tmp && chmod 1777 /tmp && cd / && exec setpriv --reuid=65534 --clear-groups /proc/self/fd/9 1500`
	c, err := launch.Start([]string{"sh", "-c", `exec 9<"$0" && exec unshare --mount --pid --fork --mount-proc sh -c "$1"`, buildJIT(t), script})
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := recordSession(t, t.Context(), Options{Backend: backend, Command: c})
	checkGenerated(t, p, "9") // as it is executed
}

func buildJIT(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jit")
	proctest.Compile(t, "gcc", file, "-O1", "testdata/jit.c")
	return file
}

// checkGenerated wants most samples of a process in the loop of jit.c, by its name.
func checkGenerated(t *testing.T, p *pprof.Profile, process string) {
	t.Helper()
	found, all := int64(0), int64(0)
	for _, sample := range p.Sample {
		if name, _ := profile.Process(sample); name != process {
			continue
		}
		all += sample.Value[0]
		leaf := sample.Location[0]
		if len(leaf.Line) == 1 && leaf.Line[0].Function.Name == "generated_loop" {
			found += sample.Value[0]
			if why := profile.ReasonOf(leaf.Mapping); why != reason.Anonymous {
				t.Errorf("generated code has the reason %v", why)
			}
		}
	}
	checkMost(t, "the generated loop", found, all, 0.2)
}
