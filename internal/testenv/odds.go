package testenv

import (
	"math"
	"testing"
)

// Odds is how likely a test may be to fail by chance: a machine that tests every minute
// for a thousand years meets less than one such failure in each of its judgements.
const Odds = 1e-9

// TooMany reports whether n trials of which each fails with a probability of at most rate
// have so many failures by chance with a probability of less than [Odds]: the exact upper
// tail of the binomial distribution.
//
// The rate is what the test tolerates, and why belongs into its comment. Trials must not
// depend on each other: where all samples of a process share their fate, the process is
// the trial and not the sample.
func TooMany(failures, n int64, rate float64) bool {
	return upperTail(failures, n, rate) < Odds
}

// Judges reports whether so many trials are enough for [TooMany] to ever say so: whether
// it does when all of them fail.
func Judges(n int64, rate float64) bool { return TooMany(n, n, rate) }

// AtMost judges failures of which a rate is tolerated. A test with too few trials to judge
// ends with a [Lack].
func AtMost(t testing.TB, what string, failures, n int64, rate float64) {
	t.Helper()
	switch {
	case !Judges(n, rate):
		Lack(t, "%s: %d are too few to judge whether %g %% of them may be so", what, n, 100*rate)
	case TooMany(failures, n, rate):
		t.Errorf("%s: %d of %d, where %g %% are tolerated", what, failures, n, 100*rate)
	}
}

// upperTail returns the probability of at least k failures in n trials.
func upperTail(k, n int64, rate float64) float64 {
	if k <= 0 || rate >= 1 {
		return 1
	}
	if rate <= 0 || k > n {
		return 0
	}
	sum, logOf := 0.0, func(m int64) float64 { v, _ := math.Lgamma(float64(m) + 1); return v }
	for i := k; i <= n; i++ {
		p := math.Exp(logOf(n) - logOf(i) - logOf(n-i) + float64(i)*math.Log(rate) + float64(n-i)*math.Log1p(-rate))
		if sum += p; p < sum*1e-17 && float64(i) > float64(n)*rate {
			break // the rest is smaller still
		}
	}
	return sum
}
