package view

import (
	"flag"
	"net"

	"hallmark/internal/plaintext"
)

// flags gives the driver its command line.
type flags struct {
	*flag.FlagSet
	args []string
}

func (f flags) StringList(name, value, usage string) *[]*string {
	return &[]*string{f.String(name, value, usage)}
}

func (flags) ExtraUsage() string { return "" }

func (flags) AddExtraUsage(string) {}

func (f flags) Parse(func()) []string {
	if err := f.FlagSet.Parse(f.args); err != nil {
		return nil
	}
	return f.Args()
}

// flags returns the command line that has the driver serve pages at l.
func (s *source) flags(l net.Listener) flags {
	// The driver remembers options, so even an empty one is given.
	args := []string{"-http=" + l.Addr().String(), "-sample_index=" + plaintext.Line(s.options.SampleType)}
	if s.options.Base != nil {
		args = append(args, "-diff_base="+baseName)
	}
	set := flag.NewFlagSet("pprof", flag.ContinueOnError)
	set.SetOutput(s.options.Errors)
	return flags{set, append(args, profileName)}
}
