package verb

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError returns an error of pflag about a flag of a command in the words of this program: pflag shows those of the
// function that could not read the value. A name that no flag has gets those of flags that are similar.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names cobra.Command // which knows what is similar
		names.SuggestionsMinimumDistance = 2
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		if similar := names.SuggestionsFor(unknown.GetSpecifiedName()); len(similar) > 0 && len(unknown.GetSpecifiedName()) > 2 {
			return fmt.Errorf("%w: --%s is one", err, strings.Join(similar, ", --"))
		}
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f := invalid.GetFlag()
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return fmt.Errorf("%s: %s", name, wrongValue(f.Value, invalid))
}

// wrongValue says what is wrong with the value of a flag.
func wrongValue(v pflag.Value, invalid *pflag.InvalidValueError) string {
	value := invalid.GetValue()
	switch v.Type() {
	case "bool":
		return fmt.Sprintf("%q is neither true nor false", value)
	case "int", "int64":
		if errors.Is(invalid, strconv.ErrRange) {
			return fmt.Sprintf("%q is too large a number", value)
		}
		return fmt.Sprintf("%q is not a whole number", value)
	}
	return invalid.Unwrap().Error()
}

// TimeSpan is a flag with a time: a number of seconds, or one with units as in 1m30s.
type TimeSpan time.Duration

// String returns the time with its unit.
func (t *TimeSpan) String() string {
	if *t == 0 {
		return "0"
	}
	return time.Duration(*t).String()
}

// Type returns what the value is called in the help.
func (t *TimeSpan) Type() string { return "TIME" }

// Set reads a time.
func (t *TimeSpan) Set(s string) error {
	d, err := ParseTime(s)
	*t = TimeSpan(d)
	return err
}

// ParseTime reads 5 and 0.5, which are seconds as for sleep(1), and 5s, 1m30s, 250ms.
func ParseTime(s string) (time.Duration, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a time: write seconds, or 250ms, 30s, 5m, 720h", s)
		}
		return d, nil
	}
	seconds, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is not a time: write seconds, or 250ms, 30s, 5m, 720h", s)
	case err != nil || seconds >= math.MaxInt64/1e9:
		return 0, fmt.Errorf("%q is too long a time", s)
	}
	return time.Duration(seconds * 1e9), nil
}

// PidList is a flag with the numbers of processes, separated by commas.
type PIDList []int

// String returns the numbers.
func (l *PIDList) String() string {
	var words []string
	for _, pid := range *l {
		words = append(words, strconv.Itoa(pid))
	}
	return strings.Join(words, ",")
}

// Type returns what the value is called in the help.
func (l *PIDList) Type() string { return "PID" }

// Set adds numbers.
func (l *PIDList) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		pid, ok := ProcessID(word)
		if !ok || pid == 0 {
			return NotProcessID(word)
		}
		*l = append(*l, pid)
	}
	return nil
}

// NotProcessID says that a word is not the number of a process.
func NotProcessID(word string) error { return fmt.Errorf("%q is not the ID of a process", word) }

// ProcessID reads an argument of digits only.
func ProcessID(arg string) (int, bool) {
	if strings.Trim(arg, "0123456789") != "" {
		return 0, false
	}
	pid, err := strconv.Atoi(arg)
	return pid, err == nil
}

// NoArguments refuses arguments.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no arguments: %q", cmd.Name(), args[0])
	}
	return nil
}

// Takes demands arguments of these names: "FILE" is one that there must be, "[FILE]" one that
// may be missing, "FILE..." the last one, of which there may be several.
func Takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				return Usagef("%s: %s is missing", cmd.Name(), strings.TrimSuffix(name, "..."))
			}
		}
		if n := len(names); len(args) > n && !strings.HasSuffix(names[n-1], "...") {
			return Usagef("%s: %q is one argument too many: it takes %s", cmd.Name(), args[n], strings.Join(names, " "))
		}
		return nil
	}
}

// CompleteValues lets shells complete the values of a flag.
func CompleteValues(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // no such flag
	}
}
