package cli

import (
	"fmt"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"hallmark/profile"
)

// input is what the verbs that read a profile have in common.
type input struct {
	sampleType string
	maxSize    int64          // MiB
	event      string         // of a recording by perf
	times      bool           // keep the times of its samples
	tell       bool           // what it lacks: the output has no room for it
	nameless   bool           // leave its frames without names as they are
	symbols    *symbolOptions // say where its files may be; nil: nowhere else
}

const maxMaxSize = 1 << 20 // MiB; a profile takes several times its size in memory

func (in *input) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&in.sampleType, "sample-type", "", "count this `TYPE` of value, of those in the profile: cpu, samples, inuse_space … (default: the profile's own choice)")
	flags.Int64Var(&in.maxSize, "max-size", profile.DefaultMaxSize>>20, "refuse a profile beyond so many `MiB` uncompressed")
	flags.StringVar(&in.event, "event", "", "of a perf.data file, count the samples of this `EVENT` (default: the first one)")
}

// read reads the profile in the file called name, or on standard input for "-". A
// recording by perf will do.
func (in *input) read(e *env, name string) (*pprof.Profile, error) {
	o, err := in.options()
	if err != nil {
		return nil, err
	}
	p, stdin, ok, err := in.readPerf(e, name)
	if ok || err != nil {
		return p, err
	}
	if name != "-" {
		return profile.ReadFile(name, o)
	}
	p, err = profile.Read(stdin, o)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return p, nil
}

func (in *input) options() (profile.ReadOptions, error) {
	if in.maxSize < 1 || in.maxSize > maxMaxSize {
		return profile.ReadOptions{}, usageError{fmt.Errorf("--max-size must be between 1 and %d", maxMaxSize)}
	}
	return profile.ReadOptions{MaxSize: in.maxSize << 20}, nil
}
