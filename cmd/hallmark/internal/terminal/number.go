package terminal

import (
	"fmt"
	"math"
	"strconv"

	"hallmark/internal/plaintext"
)

// unit is a unit that people read.
type unit struct {
	name string
	size float64 // in the smallest of its kind
}

var (
	times = []unit{{"ns", 1}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}}
	sizes = []unit{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}
)

// pprofUnits are the units of sample types that people read in other units, and
// their size in the smallest of these.
var pprofUnits = map[string]struct {
	units []unit
	size  float64
}{
	"nanoseconds":  {times, 1},
	"microseconds": {times, 1e3},
	"milliseconds": {times, 1e6},
	"seconds":      {times, 1e9},
	"bytes":        {sizes, 1},
	"kilobytes":    {sizes, 1 << 10},
	"megabytes":    {sizes, 1 << 20},
}

// A Ruler writes values that are read together, all in one unit: "1.32s",
// "0.09s". The zero Ruler writes numbers without a unit: "12,345".
type Ruler struct {
	name     string
	factor   float64 // turns a value into the unit
	decimals int
}

// RulerFor returns a ruler for values of a pprof unit of which total is the
// largest.
func RulerFor(total int64, pprofUnit string) Ruler {
	known, ok := pprofUnits[pprofUnit]
	if !ok {
		return Ruler{}
	}
	most := math.Abs(float64(total)) * known.size
	best := known.units[0]
	for _, u := range known.units {
		if most >= u.size {
			best = u
		}
	}
	r := Ruler{name: best.name, factor: known.size / best.size}
	switch {
	case best.size == 1 || most/best.size >= 1000:
	case most/best.size >= 100:
		r.decimals = 1
	default:
		r.decimals = 2
	}
	return r
}

// Format writes a value with the unit.
func (r Ruler) Format(value int64) string {
	if r.name == "" || value == 0 {
		return plaintext.Thousands(value)
	}
	return strconv.FormatFloat(float64(value)*r.factor, 'f', r.decimals, 64) + r.name
}

// Quantity writes a value that stands alone.
func Quantity(value int64, pprofUnit string) string {
	return RulerFor(value, pprofUnit).Format(value)
}

// Count writes a number of things with a comma before every three digits, and "-" for 0, which stands
// for one that is not known.
func Count(n int) string {
	if n == 0 {
		return "-"
	}
	return plaintext.Thousands(int64(n))
}

// Percent returns what share of the whole a part is. Only the whole is 100%, and
// only nothing is 0%: what is between is not rounded to either.
func Percent(part, whole int64) string {
	switch share := 100 * float64(part) / float64(whole); {
	case whole == 0:
		return "-"
	case part == whole:
		return "100%"
	case part == 0:
		return "0%"
	case math.Abs(share) < 0.1:
		return "<0.1%"
	case share > 99.9:
		return "99.9%"
	default:
		return fmt.Sprintf("%.1f%%", share)
	}
}
