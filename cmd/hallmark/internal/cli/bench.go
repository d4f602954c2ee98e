package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/doctor"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/profile"
)

func newBenchCommand(e *verb.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure on this machine what things cost",
	}
	cmd.AddCommand(newBenchIdentityCommand(e))
	group(cmd)
	return cmd
}

const benchIdentityLong = `Measure what it costs to know the file of every frame, and how many are known:
by the kernel's own means (build IDs in stacks) and by the backends of 'record',
side by side. The result is Markdown.

A third of the time is for costs, those that the kernel accounts to each BPF
program. In the second third, bench compares the kernel's answer for each frame
with the mapping that is there; in the last one the backends record.

The command is run again and again until the time is over, without its output.
Coverage is measured of the command and all that it starts, and costs of the
whole machine. Without a command both are measured of the whole machine, as it
is. Needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN, which root has.`

func newBenchIdentityCommand(e *verb.Env) *cobra.Command {
	var opts doctor.CompareOptions
	asJSON := false
	cmd := &cobra.Command{
		Use:   "identity [flags] [-- CMD [ARG...]]",
		Short: "Compare ways to know the file of every frame: cost and coverage",
		Long:  benchIdentityLong,
		Example: `  hallmark bench identity                # whatever the machine does now
  hallmark bench identity -d 30s -- go build -a -o /dev/null cmd/gofmt
  hallmark bench identity --json -- python3 app.py | jq .costs`,
		RunE: func(_ *cobra.Command, args []string) error {
			if opts.Frequency < 1 || opts.Duration <= 0 {
				return verb.Usagef("frequency %d and duration %v must be positive", opts.Frequency, opts.Duration)
			}
			opts.Load = args
			return runBenchIdentity(e, opts, asJSON)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&opts.Frequency, "frequency", "F", 997, "`HZ`: samples a second of each way, for each CPU or thread")
	f.SetInterspersed(false) // what is behind the command is the command's
	opts.Duration = 20 * time.Second
	f.VarP((*verb.TimeSpan)(&opts.Duration), "duration", "d", "how long to measure (seconds, or 20s, 5m)")
	f.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func runBenchIdentity(e *verb.Env, opts doctor.CompareOptions, asJSON bool) error {
	ctx, stop := verb.Interruptible()
	defer stop()
	c, err := doctor.Compare(ctx, opts)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted before the measurement was over")
	}
	if err != nil {
		return err
	}
	if asJSON {
		return verb.WriteObject(e.Stdout, c)
	}
	fmt.Fprintf(e.Stdout, "%v at %d Hz; %.1f frames of user code in a stack\n",
		c.Duration, c.Frequency, float64(framesOf(c.Frames))/float64(max(c.Stacks, 1)))
	writeCosts(e, c.Costs)
	writeFrames(e, c.Frames)
	writeBackends(e, c.Backends)
	return nil
}

// framesOf returns the number of frames wherever they are.
func framesOf(shares []doctor.FrameShare) (sum uint64) {
	for _, s := range shares {
		sum += s.Valid + s.IP + s.Empty
	}
	return sum
}

func writeCosts(e *verb.Env, costs []doctor.WayCost) {
	fmt.Fprint(e.Stdout, "\n| way | samples | ns a sample | above the first |\n|---|---:|---:|---:|\n")
	for _, w := range costs {
		fmt.Fprintf(e.Stdout, "| %s | %d | %.0f | %+.0f |\n", w.Way, w.Samples, w.Nanos, w.Nanos-costs[0].Nanos)
	}
}

// writeFrames shows what the kernel's own way says of the frames. A build ID for an
// address in no mapping is that of another file.
func writeFrames(e *verb.Env, shares []doctor.FrameShare) {
	fmt.Fprint(e.Stdout, "\n| where the frames are | share | the kernel's own way: VALID | IP | EMPTY |\n|---|---:|---:|---:|---:|\n")
	all := framesOf(shares)
	for _, s := range shares {
		n := s.Valid + s.IP + s.Empty
		fmt.Fprintf(e.Stdout, "| %s | %s | %s | %s | %s |\n", s.Where, share(n, all), share(s.Valid, n), share(s.IP, n), share(s.Empty, n))
	}
}

func writeBackends(e *verb.Env, backends []doctor.BackendResult) {
	fmt.Fprint(e.Stdout, "\n| backend | samples | lost | frames in files | identified | without identity, of all frames |\n|---|---:|---:|---:|---:|---|\n")
	for _, b := range backends {
		c := b.Coverage
		fmt.Fprintf(e.Stdout, "| %s | %d | %d | %d | %s | %s |\n", b.Backend, b.Samples, b.Lost,
			c.FileFrames, share(c.FileIdentified, c.FileFrames), reasons(c))
	}
}

// reasons lists why frames have no identity.
func reasons(c profile.Coverage) string {
	var list []string
	for _, g := range c.Gaps {
		if g.Lacks == profile.LacksIdentity {
			list = append(list, fmt.Sprintf("%s %v", share(g.Frames, c.Frames), g.Reason))
		}
	}
	return strings.Join(list, "; ")
}

// share writes a part of a whole in percent, rounded down: 100 is all of it.
func share[T int64 | uint64](part, whole T) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", math.Floor(1e4*float64(part)/float64(whole))/100)
}
