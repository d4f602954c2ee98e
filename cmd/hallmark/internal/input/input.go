// Package input reads the profile that a verb is given: a profile by pprof, or a recording by perf that
// becomes one, within the limits that the flags set.
package input

import (
	"fmt"
	"os"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"hallmark/cmd/hallmark/internal/perffile"
	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/profile"
	"hallmark/profile/fromperf"
)

// A Reader reads profiles, by the flags that the verbs have in common which show one.
type Reader struct {
	SampleType  string
	maxSize     int64       // MiB, 0 for what fits into profile.Limits
	isSized     func() bool // whether maxSize was given
	Event       string      // of a recording by perf
	Times       bool        // keep the times of its samples
	ReportLacks bool        // report what the profile lacks: the output has no room for it
	Nameless    bool        // leave its frames without names as they are
	DebugPaths  *[]string   // where its files may be, too; nil: nowhere else
	trust       bool        // give files without identity those that are at their paths
	binaries    []string    // files that are those without identity that have their names
	named       map[string]namedFile

	Differences bool           // accept text that is a comparison, and return in Base what it is compared with
	Base        *pprof.Profile // nil where the profile that was read last is no comparison

	limits profile.Limits        // of the profile that was read last
	Events []fromperf.EventCount // of the recording that was read last
	Advice string                // on files without identity in it
	damage bool                  // the recording ends where it is damaged
}

// DefaultFile is the file that 'record' writes, and that verbs which read a profile read,
// where none is named.
const DefaultFile = "hallmark.pb.gz"

// Argument returns the name of the profile to read.
func Argument(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	if _, err := os.Stat(DefaultFile); err != nil {
		return "", verb.Usagef("FILE is missing: there is no %s here, which 'hallmark record' writes", DefaultFile)
	}
	return DefaultFile, nil
}

const maxMaxSize = 1 << 20 // MiB; a profile takes several times its size in memory

// AddFlags adds the flags of verbs that show profiles.
func (in *Reader) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&in.SampleType, "sample-type", "", "count this `TYPE` of value, of those in the profile: cpu, samples, inuse_space … (default: the profile's own choice)")
	in.AddSizeFlag(flags)
	flags.StringVar(&in.Event, "event", "", "of a perf.data file, count the samples of this `EVENT`, 'all' for all of them (default: the first one in the file that has samples)")
	flags.BoolVar(&in.trust, "trust-paths", false, "where files have no identity, take the files that are at their paths now, without proof")
	flags.StringArrayVar(&in.binaries, "binary", nil, "take this `FILE` for the one of its name that has no identity in the profile, without proof (can be repeated)")
}

// AddSizeFlag adds the flag of all verbs that read profiles.
func (in *Reader) AddSizeFlag(flags *pflag.FlagSet) {
	flags.Int64Var(&in.maxSize, "max-size", 0, "accept a profile of up to this many `MiB` uncompressed, however much memory it takes (default: about 512 MiB of memory and ten times its file)")
	in.isSized = func() bool { return flags.Changed("max-size") }
}

// Read reads the profile in the file called name, or on standard input for "-". A
// recording by perf will do.
func (in *Reader) Read(e *verb.Env, name string) (*pprof.Profile, error) {
	all, err := in.readAll(e, name, false)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Status is the exit status of a verb that has said what the profile has: 1 of a recording that
// could not be read to its end.
func (in *Reader) Status() error {
	if in.damage {
		return verb.ExitStatus(1)
	}
	return nil
}

// ReadEach is read, but with one profile of each event where all events of a recording are
// wanted.
func (in *Reader) ReadEach(e *verb.Env, name string) ([]*pprof.Profile, error) {
	return in.readAll(e, name, in.Event == EveryEvent)
}

func (in *Reader) readAll(e *verb.Env, name string, each bool) ([]*pprof.Profile, error) {
	all, err := in.readAny(e, name, each)
	return all, AdviseSize(DescribeKind(name, err))
}

func (in *Reader) readAny(e *verb.Env, name string, each bool) ([]*pprof.Profile, error) {
	o, err := in.Options()
	if err != nil {
		return nil, err
	}
	rec, rest, err := perffile.Find(e.Stdin, name, o.MaxSize)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		defer rec.Close()
		in.limits = o.Limits(rec.Size)
		return in.convertPerf(e, rec, each)
	}
	other, err := findOther(name, &rest)
	if err != nil {
		return nil, err
	}
	if other != nil {
		defer other.close()
		all, err := in.convertOther(other, o)
		if err != nil {
			return nil, err
		}
		return in.identifyAll(perffile.InputName(name), all)
	}
	if err := in.forRecordings(name); err != nil {
		return nil, err
	}
	var p *pprof.Profile
	if rest == nil {
		p, in.limits, err = profile.ReadFileLimited(name, o)
	} else if p, in.limits, err = profile.ReadLimited(rest, o); err != nil {
		err = fmt.Errorf("%s: %w", perffile.InputName(name), err)
	}
	if err != nil {
		return nil, err
	}
	return in.identifyAll(perffile.InputName(name), []*pprof.Profile{p})
}

// Options returns what the flags say of the size of a profile.
func (in *Reader) Options() (profile.ReadOptions, error) {
	if in.isSized != nil && in.isSized() && (in.maxSize < 1 || in.maxSize > maxMaxSize) {
		return profile.ReadOptions{}, verb.Usagef("--max-size must be between 1 and %d", maxMaxSize)
	}
	return profile.ReadOptions{MaxSize: in.maxSize << 20}, nil
}
