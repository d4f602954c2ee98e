package profile

import (
	"errors"
	"fmt"
	"strings"

	pprof "github.com/google/pprof/profile"
)

// ErrNoSampleType is the error for a profile that counts nothing.
var ErrNoSampleType = errors.New("profile has no sample types")

// ErrNegative is the error of formats that cannot express negative values, which
// the difference of two profiles has.
var ErrNegative = errors.New("profile has negative values")

// SampleIndex returns the position in Sample.Value of the first of the named
// sample types that p has: "cpu" for instance. The name "" is p's default type,
// which every profile has. The error lists the types that there are.
func SampleIndex(p *pprof.Profile, names ...string) (int, error) {
	if len(p.SampleType) == 0 {
		return 0, ErrNoSampleType
	}
	for _, name := range names {
		if index, err := p.SampleIndexByName(name); err == nil {
			return index, nil
		}
	}
	var types []string
	for _, t := range p.SampleType {
		types = append(types, t.Type)
	}
	return 0, fmt.Errorf("profile has no sample type %s, only %s", strings.Join(names, " or "), strings.Join(types, ", "))
}

// Process returns the name and the number of the process that s was taken in,
// "" and 0 where the profile does not say.
func Process(s *pprof.Sample) (name string, pid int64) { return nameAndNumber(s, "process", "pid") }

// Thread returns the name and the number of the thread that s was taken in, ""
// and 0 where the profile does not say.
func Thread(s *pprof.Sample) (name string, tid int64) { return nameAndNumber(s, "thread", "tid") }

func nameAndNumber(s *pprof.Sample, text, number string) (name string, n int64) {
	if names := s.Label[text]; len(names) > 0 {
		name = Cut(names[0])
	}
	if numbers := s.NumLabel[number]; len(numbers) > 0 {
		n = numbers[0]
	}
	return name, n
}
