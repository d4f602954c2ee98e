package capture

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/launch"
	"hallmark/profile"
)

// TestPprofSymbolizes gives pprof a profile without symbols. It must find the
// functions in the local binaries by itself, the same ones that are found here,
// with the same number of samples. go tool pprof, which only knows Go's own
// tables, does it for Go programs; the pprof of github.com/google/pprof, which
// asks addr2line, for all.
func TestPprofSymbolizes(t *testing.T) {
	needPerf(t)
	testenv.Tool(t, "addr2line")
	goTool := []string{testenv.Tool(t, "go"), "tool", "pprof"}
	google := []string{buildPprof(t)}
	for _, test := range []struct {
		name     string
		pprof    []string
		build    func(testing.TB, ...string) string
		flags    []string
		duration string
		function string
	}{
		{"go", goTool, proctest.BuildGo, nil, "300ms", "main.spin"},
		{"go pie", goTool, proctest.BuildGo, []string{"-buildmode=pie"}, "300ms", "main.spin"},
		{"go for google's", google, proctest.BuildGo, nil, "300ms", "main.spin"},
		{"c pie", google, proctest.BuildC, nil, "300", "burn"},
		{"c at a fixed address", google, proctest.BuildC, []string{"-no-pie"}, "300", "burn"},
		{"c static pie", google, proctest.BuildC, []string{"-static-pie"}, "300", "burn"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := launch.Start([]string{test.build(t, test.flags...), test.duration})
			if err != nil {
				t.Fatal(err)
			}
			s := startSession(t, Options{Command: c})
			if err := s.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			r, err := s.Finish(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "unsymbolized.pb.gz")
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Profile.Write(f); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			theirs := pprofFlat(t, test.pprof, file)[test.function]
			for _, s := range r.Profile.Sample {
				for _, l := range s.Location {
					if profile.ReasonOf(l.Mapping) == 0 && l.Mapping.File != "[kernel]" && len(l.Line) > 0 {
						t.Fatalf("%s has symbols already", l.Mapping.File)
					}
				}
			}
			if _, err := r.Symbolize(t.Context()); err != nil {
				t.Fatal(err)
			}
			ours := int64(0)
			for _, s := range r.Profile.Sample {
				if l := s.Location[0]; l.Line != nil && l.Line[len(l.Line)-1].Function.Name == test.function {
					ours += s.Value[0]
				}
			}
			if len(r.Profile.Sample) == 0 {
				testenv.Lack(t, "no samples")
			}
			if ours != theirs || ours == 0 {
				t.Errorf("%d samples in %s, pprof says %d", ours, test.function, theirs)
			}
		})
	}
}

// buildPprof builds the pprof command of the module that the profiles are made
// with; the tools module has what the command alone needs.
func buildPprof(t testing.TB) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "pprof")
	if msg, err := exec.Command(testenv.Tool(t, "go"), "build", "-C", "../tools", "-o", out, "github.com/google/pprof").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, msg)
	}
	return out
}

// pprofFlat returns the samples of each function itself, as pprof has them.
func pprofFlat(t testing.TB, pprof []string, file string) map[string]int64 {
	t.Helper()
	args := append(pprof[1:len(pprof):len(pprof)], "-noinlines", "-sample_index=samples", "-nodefraction=0", "-top", file)
	cmd := exec.Command(pprof[0], args...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pprof: %v\n%s", err, out)
	}
	flat := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[1], "%") {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			flat[fields[5]] = n
		}
	}
	if len(flat) == 0 {
		t.Fatalf("pprof shows no functions:\n%s", out)
	}
	return flat
}
