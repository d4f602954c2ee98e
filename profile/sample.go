package profile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"
)

// ErrNoSampleType is the error for a profile that counts nothing.
var ErrNoSampleType = errors.New("profile has no sample types")

// ErrNegative is the error of formats that cannot express negative values, which
// the difference of two profiles has.
var ErrNegative = errors.New("profile has negative values")

// SampleIndex returns the position in Sample.Value of the first of the named
// sample types that p has: "cpu" for instance, or its number. The name "" is p's default type,
// which every profile has. The error lists the types that there are.
func SampleIndex(p *pprof.Profile, names ...string) (int, error) {
	return TypeIndex(len(p.SampleType), func(i int) string { return p.SampleType[i].Type }, p.DefaultSampleType, names...)
}

// maxListed is how many types of samples an error lists.
const maxListed = 20

// TypeIndex is SampleIndex for n types that typeOf returns, of which one is the default. It goes over them once for
// each name, and copies none: a profile may have a million.
func TypeIndex(n int, typeOf func(int) string, byDefault string, names ...string) (int, error) {
	if n == 0 {
		return 0, ErrNoSampleType
	}
	for _, name := range names {
		if index, ok := typeIndex(n, typeOf, byDefault, name); ok {
			return index, nil
		}
	}
	var types []string
	for i := range min(n, maxListed) {
		types = append(types, typeOf(i))
	}
	if n > maxListed {
		types = append(types, fmt.Sprintf("and %d more", n-maxListed))
	}
	return 0, fmt.Errorf("profile has no sample type %s, only %s", strings.Join(names, " or "), strings.Join(types, ", "))
}

// typeIndex finds a type by the rules of pprof.Profile.SampleIndexByName.
func typeIndex(n int, typeOf func(int) string, byDefault, name string) (int, bool) {
	if name == "" {
		for i := 0; byDefault != "" && i < n; i++ {
			if typeOf(i) == byDefault {
				return i, true
			}
		}
		return n - 1, true
	}
	if i, err := strconv.Atoi(name); err == nil {
		return i, 0 <= i && i < n
	}
	inUse := strings.TrimPrefix(name, "inuse_") // as heap profiles were once written
	for i := range n {
		if t := typeOf(i); t == name || t == inUse {
			return i, true
		}
	}
	return 0, false
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
