package cli

import (
	"fmt"
	"os"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"hallmark/profile"
	"hallmark/profile/fromperf"
)

// input is what the verbs that read a profile have in common.
type input struct {
	sampleType string
	maxSize    int64          // MiB, 0 for what fits into profile.Limits
	isSized    func() bool    // whether maxSize was given
	event      string         // of a recording by perf
	times      bool           // keep the times of its samples
	tell       bool           // what it lacks: the output has no room for it
	nameless   bool           // leave its frames without names as they are
	symbols    *symbolOptions // say where its files may be; nil: nowhere else
	trust      bool           // give files without identity those that are at their paths

	limits profile.Limits        // of the profile that was read last
	events []fromperf.EventCount // of the recording that was read last
	advice string                // on files without identity in it
	damage bool                  // the recording ends where it is damaged
}

// defaultProfile is the file that 'record' writes, and that verbs which read a profile read,
// where none is named.
const defaultProfile = "hallmark.pb.gz"

// profileArgument returns the name of the profile to read.
func profileArgument(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if _, err := os.Stat(defaultProfile); err != nil {
		return "", usageError{fmt.Errorf("FILE is missing: there is no %s here, which 'hallmark record' writes", defaultProfile)}
	}
	return defaultProfile, nil
}

const maxMaxSize = 1 << 20 // MiB; a profile takes several times its size in memory

func (in *input) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&in.sampleType, "sample-type", "", "count this `TYPE` of value, of those in the profile: cpu, samples, inuse_space … (default: the profile's own choice)")
	in.addSizeFlag(flags)
	flags.StringVar(&in.event, "event", "", "of a perf.data file, count the samples of this `EVENT`, 'all' for all of them (default: the first one in the file that has samples)")
	flags.BoolVar(&in.trust, "trust-paths", false, "of a perf.data file, take the files that are at the recorded paths now, without proof")
}

// addSizeFlag adds the flag of all verbs that read profiles.
func (in *input) addSizeFlag(flags *pflag.FlagSet) {
	flags.Int64Var(&in.maxSize, "max-size", 0, "refuse a profile beyond so many `MiB` uncompressed, and take any other whatever memory it needs (default: what takes about 512 MiB of memory and ten times its file)")
	in.isSized = func() bool { return flags.Changed("max-size") }
}

// read reads the profile in the file called name, or on standard input for "-". A
// recording by perf will do.
func (in *input) read(e *env, name string) (*pprof.Profile, error) {
	all, err := in.readAll(e, name, false)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// status is the exit status of a verb that has said what the profile has: 1 of a recording that
// could not be read to its end.
func (in *input) status() error {
	if in.damage {
		return exitStatus(1)
	}
	return nil
}

// readEach is read, but with one profile of each event where all events of a recording are
// wanted.
func (in *input) readEach(e *env, name string) ([]*pprof.Profile, error) {
	return in.readAll(e, name, in.event == everyEvent)
}

func (in *input) readAll(e *env, name string, each bool) ([]*pprof.Profile, error) {
	all, err := in.readAny(e, name, each)
	return all, adviseSize(describeKind(name, err))
}

func (in *input) readAny(e *env, name string, each bool) ([]*pprof.Profile, error) {
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	rec, rest, err := in.findRecording(e, name)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		defer rec.close()
		in.limits = o.Limits(rec.size)
		return in.convertPerf(e, rec, each)
	}
	text, err := findText(name, &rest)
	if err != nil {
		return nil, err
	}
	if text != nil {
		defer text.close()
		return in.convertText(text, o)
	}
	switch {
	case in.event != "":
		return nil, usageError{fmt.Errorf("--event is for recordings by perf, and %s is a profile: use --sample-type", inputName(name))}
	case in.trust:
		return nil, usageError{fmt.Errorf("--trust-paths is for recordings by perf, and %s is a profile", inputName(name))}
	}
	var p *pprof.Profile
	if rest == nil {
		p, in.limits, err = profile.ReadFileLimited(name, o)
		return []*pprof.Profile{p}, err
	}
	if p, in.limits, err = profile.ReadLimited(rest, o); err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(name), err)
	}
	return []*pprof.Profile{p}, nil
}

func (in *input) options() (profile.ReadOptions, error) {
	if in.isSized != nil && in.isSized() && (in.maxSize < 1 || in.maxSize > maxMaxSize) {
		return profile.ReadOptions{}, usageError{fmt.Errorf("--max-size must be between 1 and %d", maxMaxSize)}
	}
	return profile.ReadOptions{MaxSize: in.maxSize << 20}, nil
}
