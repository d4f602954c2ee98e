package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// flagError returns an error of pflag in the words of this program: pflag shows those of the
// function that could not read the value.
func flagError(err error) error {
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

// timeSpan is a flag with a time: a number of seconds, or one with units as in 1m30s.
type timeSpan time.Duration

// String returns the time with its unit.
func (t *timeSpan) String() string {
	if *t == 0 {
		return "0"
	}
	return time.Duration(*t).String()
}

// Type returns what the value is called in the help.
func (t *timeSpan) Type() string { return "TIME" }

// Set reads a time.
func (t *timeSpan) Set(s string) error {
	d, err := parseTime(s)
	*t = timeSpan(d)
	return err
}

// parseTime reads 5 and 0.5, which are seconds as for sleep(1), and 5s, 1m30s, 250ms.
func parseTime(s string) (time.Duration, error) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a time: write seconds, or 30s, 5m, 250ms", s)
		}
		return d, nil
	}
	seconds, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is not a time: write seconds, or 30s, 5m, 250ms", s)
	case err != nil || seconds >= math.MaxInt64/1e9:
		return 0, fmt.Errorf("%q is too long a time", s)
	}
	return time.Duration(seconds * 1e9), nil
}

// pidList is a flag with the numbers of processes, separated by commas.
type pidList []int

// String returns the numbers.
func (l *pidList) String() string {
	var words []string
	for _, pid := range *l {
		words = append(words, strconv.Itoa(pid))
	}
	return strings.Join(words, ",")
}

// Type returns what the value is called in the help.
func (l *pidList) Type() string { return "PID" }

// Set adds numbers.
func (l *pidList) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		pid, ok := processID(word)
		if !ok || pid == 0 {
			return notProcessID(word)
		}
		*l = append(*l, pid)
	}
	return nil
}

// notProcessID says that a word is not the number of a process.
func notProcessID(word string) error { return fmt.Errorf("%q is not the ID of a process", word) }
