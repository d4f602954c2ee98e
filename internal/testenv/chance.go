package testenv

import "math"

// Unlikely is the probability that [MostOdd] leaves to chance: a test that judges some ten
// thousand scenes a day by it fails without a defect once in some hundred years.
const Unlikely = 1e-9

// MostOdd returns how many of n samples may be odd when each one is, by chance and whatever the
// others are, with a probability of at most rate: with more than MostOdd the rate is another one,
// but for a probability of Unlikely. It is the tail of the binomial distribution, exactly.
//
// A scene states the rate beside its reason: how often something was seen that is no defect
// and that no rule explains. What depends on each other is one sample: the frames of one
// stack, for instance.
//
// It is of use only where n is so large that a defect shows: with a rate of 1/1000, 3 of 10
// samples may be odd, 6 of 100 and 11 of 1000.
func MostOdd(n int, rate float64) int {
	switch {
	case n <= 0 || rate <= 0:
		return 0
	case rate >= 1:
		return n
	}
	// P(X > k), summed from the far end, where the terms are smallest.
	tail := 0.0
	for k := n; k > 0; k-- {
		if tail += chanceOf(k, n, rate); tail > Unlikely {
			return k
		}
	}
	return 0
}

// chanceOf returns the probability that k of n samples are odd.
func chanceOf(k, n int, rate float64) float64 {
	logFactorial := func(n int) float64 {
		f, _ := math.Lgamma(float64(n) + 1)
		return f
	}
	ways := logFactorial(n) - logFactorial(k) - logFactorial(n-k)
	return math.Exp(ways + float64(k)*math.Log(rate) + float64(n-k)*math.Log1p(-rate))
}
