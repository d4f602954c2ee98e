package cli

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/verb"
	"hallmark/profile/compact"
	"hallmark/profile/query"
)

// stackFilter is what a report is of, where that is not the whole profile.
type stackFilter struct {
	focus, ignore              string
	process, thread, container string
	from, to                   time.Duration // since the first sample; to is 0 for the end

	focused, ignored *regexp.Regexp
}

// errFiltered is the error of a report of nothing.
var errFiltered = errors.New("no sample passes the filters")

func (f *stackFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.focus, "focus", "", "only stacks with a function, source file or binary whose name has `TEXT`, a regular expression")
	flags.StringVar(&f.ignore, "ignore", "", "no stacks with a function, source file or binary whose name has `TEXT`")
	flags.StringVar(&f.process, "process", "", "only samples of processes with this `NAME`, or of the one with this ID")
	flags.StringVar(&f.thread, "thread", "", "only samples of threads with this `NAME`, or of the one with this ID")
	flags.StringVar(&f.container, "container", "", "only samples of the container whose number begins with `ID`")
	flags.Var((*verb.TimeSpan)(&f.from), "from", "only samples from this `TIME` on, since the first one (seconds, or 2s, 1m)")
	flags.Var((*verb.TimeSpan)(&f.to), "to", "only samples before this `TIME`, since the first one")
}

// check returns the error of filters that nothing can pass, or that are no expression.
func (f *stackFilter) check() (err error) {
	if f.hasTime() && (f.from < 0 || f.to != 0 && f.to <= f.from) {
		return fmt.Errorf("from %v to %v is no time", f.from, f.to)
	}
	for _, p := range []struct {
		text, flag string
		to         **regexp.Regexp
	}{{f.focus, "focus", &f.focused}, {f.ignore, "ignore", &f.ignored}} {
		if p.text == "" {
			continue
		}
		if *p.to, err = query.Pattern(p.text); err != nil {
			return fmt.Errorf("--%s: %w", p.flag, err)
		}
	}
	return nil
}

func (f *stackFilter) hasTime() bool { return f.from != 0 || f.to != 0 }

func (f *stackFilter) isSet() bool {
	return f.hasTime() || f.focus != "" || f.ignore != "" || f.process != "" || f.thread != "" || f.container != ""
}

// of returns the filter for a profile and its base, which may be nil.
func (f *stackFilter) of(after, before *compact.Profile) (query.Filter, error) {
	out := query.Filter{Focus: f.focused, Ignore: f.ignored}
	if f.hasTime() {
		if !after.HasTimes() || before != nil && !before.HasTimes() {
			return out, errors.New("the profile does not have the times of its samples, which 'hallmark record --timeline' keeps")
		}
		out.From, out.To = int64(f.from), int64(f.to)
		if out.To == 0 {
			out.To = math.MaxInt64 / 4
		}
	}
	for _, l := range []struct{ value, name, number string }{{f.process, "process", "pid"}, {f.thread, "thread", "tid"}} {
		switch _, isNumber := verb.ProcessID(l.value); {
		case l.value == "":
		case isNumber:
			out.Labels = append(out.Labels, query.LabelFilter{Key: l.number, Values: []string{l.value}})
		default:
			out.Labels = append(out.Labels, query.LabelFilter{Key: l.name, Values: []string{l.value}})
		}
	}
	if f.container != "" {
		out.Labels = append(out.Labels, query.LabelFilter{Key: "container", Values: containers(f.container, after, before)})
	}
	return out, nil
}

// containers returns the numbers of containers in profiles that begin with some digits.
func containers(head string, profiles ...*compact.Profile) (numbers []string) {
	for _, p := range profiles {
		if p == nil {
			continue
		}
		for set := range p.LabelSets() {
			for _, l := range p.LabelSet(uint32(set)) {
				if l.Key == "container" && strings.HasPrefix(l.Text, head) && !slices.Contains(numbers, l.Text) {
					numbers = append(numbers, l.Text)
				}
			}
		}
	}
	return numbers
}
