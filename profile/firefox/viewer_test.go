package firefox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/profile"
)

// viewer is the profiler's own code without its pages, as its authors publish it:
// npm install -g @firefox-devtools/profiler-cli.
type viewer struct {
	t       *testing.T
	program string
	env     []string
}

// openViewer loads a profile into the profiler. Debian has no package of it, so where it is
// not installed the test is skipped everywhere.
func openViewer(t *testing.T, p *pprof.Profile, o Options) viewer {
	t.Helper()
	program, err := exec.LookPath("profiler-cli")
	if err != nil {
		t.Skip("NOT CHECKED: needs profiler-cli (npm install -g @firefox-devtools/profiler-cli)")
	}
	dir, err := os.MkdirTemp("/tmp", "viewer") // sockets are in it: the path must be short
	if err != nil {
		t.Fatal(err)
	}
	v := viewer{t, program, append(os.Environ(), "PROFILER_CLI_SESSION_DIR="+dir)}
	name := filepath.Join(dir, "loaded")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(f, p, o); err != nil {
		t.Fatal(err)
	}
	// Its command "load" starts this and waits half a second for it only.
	daemon := exec.Command(program, "--daemon", name, "--session", "test")
	daemon.Env = v.env
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
		os.RemoveAll(dir)
	})
	for attempt := 1; ; attempt++ {
		if _, err := v.output("thread", "list"); err == nil {
			return v
		} else if attempt == 60 {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 2)
	}
}

func (v viewer) output(args ...string) ([]byte, error) {
	cmd := exec.Command(v.program, append(args, "--session", "test")...)
	cmd.Env = v.env
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("profiler-cli %v: %w\n%s%s", args, err, &out, &problems)
	}
	return out.Bytes(), nil
}

func (v viewer) read(into any, args ...string) {
	v.t.Helper()
	out, err := v.output(append(args, "--json")...)
	if err != nil {
		v.t.Fatal(err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		v.t.Fatalf("profiler-cli %v: %v", args, err)
	}
}

// self is how much the functions of a thread weigh themselves.
type self map[[3]string]float64 // process, thread, function

// functions asks the viewer.
func (v viewer) functions() self {
	v.t.Helper()
	var list struct {
		Threads []struct{ ThreadHandle, Name, ProcessName string }
	}
	v.read(&list, "thread", "list")
	all := self{}
	for _, th := range list.Threads {
		var functions struct {
			Functions []struct {
				Name        string
				SelfSamples float64
			}
		}
		v.read(&functions, "thread", "functions", "--include-idle", "--limit", strconv.Itoa(1<<20), "--thread", th.ThreadHandle)
		for _, f := range functions.Functions {
			if f.SelfSamples != 0 {
				all[[3]string{th.ProcessName, th.Name, f.Name}] += f.SelfSamples
			}
		}
	}
	return all
}

// leaves are the same of the profile.
func leaves(p *pprof.Profile, value int, scale float64) self {
	all := self{}
	for _, s := range p.Sample {
		process, _ := profile.Process(s)
		thread, _ := profile.Thread(s)
		thread, process = cmp.Or(thread, process, "profile"), cmp.Or(process, "profile")
		for c := range profile.CallsAt(s.Location[0]) {
			if v := float64(s.Value[value]) * scale; v != 0 {
				all[[3]string{process, thread, c.Name()}] += v
			}
			break // the innermost
		}
	}
	return all
}

// TestViewer has the profiler itself say what functions weigh.
func TestViewer(t *testing.T) {
	timed := proftest.Mixed()
	for i, s := range timed.Sample {
		var times []int64
		for k := range s.Value[0] {
			times = append(times, 1_700_000_000_000_000_000+int64(i)*1_000_000+k*500_000)
		}
		profile.AddTimes(s, times)
	}
	for _, test := range []struct {
		name  string
		p     *pprof.Profile
		value int
		scale float64
	}{
		{"cpu", proftest.CPU(t), 1, 1e-6},
		{"counts", proftest.CPU(t), 0, 1},
		{"mixed", proftest.Mixed(), 1, 1e-6},
		{"timed", timed, 1, 1e-6},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := openViewer(t, test.p, Options{SampleType: test.p.SampleType[test.value].Type})
			got, want := v.functions(), leaves(test.p, test.value, test.scale)
			for key, n := range want {
				if math.Abs(got[key]-n) > 1e-6*math.Abs(n) {
					t.Errorf("%v weighs %v, want %v", key, got[key], n)
				}
			}
			for key, n := range got {
				if want[key] == 0 {
					t.Errorf("%v weighs %v, want nothing", key, n)
				}
			}
		})
	}
}
