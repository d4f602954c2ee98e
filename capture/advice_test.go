package capture

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/fstimes"
	"hallmark/internal/proctest"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/reason"
)

// advised has, for each reason whose advice is another backend, a load that meets it.
var advised = map[reason.Reason]struct {
	from  Options
	whole bool // the machine is recorded
	args  func(t *testing.T) []string
}{
	reason.StackmapIP: {from: Options{Backend: Stackmap}, args: func(t *testing.T) []string {
		return []string{proctest.BuildGo(t), "400ms"}
	}},
	reason.IDLength: {from: Options{Backend: Stackmap}, args: func(t *testing.T) []string {
		const script = `for i in 1 2 3 4 5 6; do cp "$0" "$1" && "$1" 60 && rm "$1"; done`
		return []string{"sh", "-c", script, proctest.BuildC(t, "-static", "-Wl,--build-id=md5"), filepath.Join(t.TempDir(), "gone")}
	}},
	reason.RecordsLost: {from: Options{Backend: Perf, CallGraph: CallGraph{By: ByFP}, changePages: 2}, whole: true, args: func(t *testing.T) []string {
		const script = `for i in $(seq 40); do (for j in $(seq 20); do /bin/true; done) & done; wait`
		return []string{"sh", "-c", script}
	}},
	reason.Unproven: {from: Options{Backend: Perf}, args: func(t *testing.T) []string {
		program := filepath.Join(t.TempDir(), "theirs")
		proctest.CopyTo(t, proctest.BuildC(t, "-static"), program)
		if err := os.Chown(program, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * fstimes.Delay())
		return []string{"sh", "-c", `for i in $(seq 100); do "$0" 4; done`, program}
	}},
}

// TestAdviceHelps follows the advice of each reason that names another backend, on the same load: a larger share of the
// frames in files is identified, or proven where that is what they lack.
func TestAdviceHelps(t *testing.T) {
	testenv.Root(t)
	for _, code := range strings.Fields(codesOfReasons()) {
		why, _ := reason.Parse(code)
		load, ok := advised[why]
		advice := backendsIn(why.Advice())
		if len(advice) == 0 {
			continue
		}
		if !ok {
			t.Errorf("%s: nothing follows the advice %q", code, why.Advice())
			continue
		}
		t.Run(code, func(t *testing.T) {
			needBPF(t)
			needPerf(t)
			if load.from.Backend == Stackmap {
				needStackmap(t)
			}
			args := load.args(t)
			before, met := share(t, load.from, load.whole, why, args)
			if met == 0 {
				testenv.Lack(t, "no frame has the reason")
			}
			for _, b := range advice {
				after, _ := share(t, Options{Backend: b}, load.whole, why, args)
				t.Logf("%v: %.1f %%, by %v %.1f %%", load.from.Backend, 100*before, b, 100*after)
				if after <= before {
					t.Errorf("by %v %.1f %% are identified, by %v, which is advised, %.1f %%", load.from.Backend, 100*before, b, 100*after)
				}
			}
		})
	}
}

// backendsIn returns the backends that an advice names.
func backendsIn(advice string) (all []Backend) {
	_, rest, ok := strings.Cut(advice, "--backend ")
	if !ok {
		return nil
	}
	for _, word := range strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
		switch word {
		case "bpf":
			all = append(all, BPF)
		case "perf":
			all = append(all, Perf)
		case "or":
		default:
			return all
		}
	}
	return all
}

// codesOfReasons returns the codes of all reasons.
func codesOfReasons() string {
	var all []string
	for r := reason.None; !strings.HasPrefix(r.Code(), "reason-"); r++ {
		all = append(all, r.Code())
	}
	return strings.Join(all, " ")
}

// share records a load, and returns which part of the frames in files is identified, or proven if the reason is that
// they are not; and how many frames have the reason.
func share(t *testing.T, opts Options, whole bool, why reason.Reason, args []string) (part float64, met int64) {
	t.Helper()
	var p *pprof.Profile
	opts.Frequency = 999
	if whole {
		p = recordBeside(t, opts, args)
	} else {
		p, _, _ = recordCommand(t, opts, args...)
	}
	c := profile.MeasureCoverage(p, nil)
	for _, g := range c.Gaps {
		if g.Reason == why {
			met += g.Frames
		}
	}
	if why == reason.Unproven {
		return float64(c.Proven) / float64(max(1, c.Frames)), met
	}
	return float64(c.FileIdentified) / float64(max(1, c.FileFrames)), met
}

// recordBeside records the machine while a command runs.
func recordBeside(t *testing.T, opts Options, args []string) *pprof.Profile {
	t.Helper()
	begun := make(chan struct{})
	var once sync.Once
	opts.SystemWide = true
	opts.Progress = func(time.Duration, Stats) { once.Do(func() { close(begun) }) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		<-begun
		ended <- exec.Command(args[0], args[1:]...).Run()
	}()
	p, _, _ := recordSession(t, ctx, opts)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return p
}
