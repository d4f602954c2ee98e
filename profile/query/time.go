package query

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"hallmark/profile"
	"hallmark/profile/compact"
)

// processOf returns the name and the number of the process that labels name, as
// profile.Process does, and whether they name one.
func processOf(labels []compact.Label) (name string, pid int64, ok bool) {
	for _, l := range labels {
		switch {
		case l.Key == "process" && l.IsText && name == "":
			name = profile.Cut(l.Text)
		case l.Key == "pid" && !l.IsText && pid == 0:
			pid = l.Number
		}
	}
	return name, pid, name != "" || pid != 0
}

// TimelineOptions say what is wanted of a selection in time.
type TimelineOptions struct {
	Buckets   int    // equal parts of the time; 0 means 512, and there are no more than 1 << 16
	By        string // a track for each value of this label; "" for one track
	MaxTracks int    // those that count most; 0 means 64
	From, To  int64  // the time that is shown; both 0: from the first one to the last one
}

// Timeline is what stacks counted when. A stack that was seen several times counts a part of
// its value each time. Stacks without times are not in it.
type Timeline struct {
	From, To int64 // from From on and before To, as profile.Times has them
	Tracks   []Track
	Left     int // tracks that are left out
}

// Track is the stacks with one value of a label.
type Track struct {
	Label   string
	Missing bool // these have no such label
	Total   int64
	Values  []int64 // by part of the time
}

// Timeline returns what the stacks counted when.
func (s *Selection) Timeline(o TimelineOptions) Timeline {
	o.Buckets = min(cmp.Or(max(o.Buckets, 0), 512), 1<<16)
	o.MaxTracks = cmp.Or(max(o.MaxTracks, 0), 64)
	w := s.sides[0]
	if o.From == 0 && o.To == 0 {
		o.From, o.To = w.extent()
	}
	t := Timeline{From: o.From, To: o.To, Tracks: []Track{}}
	if o.To <= o.From {
		return t
	}
	trackOf, names := w.tracks(o.By)
	totals := make([]int64, len(names))
	for set, v := range w.sets {
		totals[trackOf[set]] += v
	}
	shown := w.largest(totals, names, o.MaxTracks)
	at := slices.Repeat([]int{-1}, len(names))
	for i, n := range shown {
		at[n] = i
		t.Tracks = append(t.Tracks, Track{Label: names[n].text, Missing: names[n].missing, Values: make([]int64, o.Buckets)})
	}
	t.Left = len(names) - len(shown)
	w.eachTime(func(row int, time, v int64) {
		i := at[trackOf[w.side.p.Labels(row)]]
		if i >= 0 && time >= o.From && time < o.To {
			high, low := bits.Mul64(uint64(time-o.From), uint64(o.Buckets))
			bucket, _ := bits.Div64(high, low, uint64(o.To-o.From))
			t.Tracks[i].Values[bucket] += v
			t.Tracks[i].Total += v
		}
	})
	return t
}

// eachTime calls f with each time of the selection's rows that the filter lets through, and with
// the part of the value that it stands for.
func (w *weights) eachTime(f func(row int, time, value int64)) {
	p := w.side.p
	var times []int64
	for row := range w.rows {
		times = p.Times(times[:0], row)
		v, n := w.value(row), int64(len(times))
		for i, t := range times {
			f(row, t, v/n+part(v%n, int64(i)+1, n)-part(v%n, int64(i), n))
		}
	}
}

// part returns the part i of n of a value that is smaller than n.
func part(v, i, n int64) int64 {
	if n <= math.MaxInt32 {
		return v * i / n
	}
	return int64(float64(v) * float64(i) / float64(n))
}

// extent returns the first time and what is behind the last one.
func (w *weights) extent() (from, to int64) {
	first := true
	w.eachTime(func(_ int, time, _ int64) {
		if first {
			from, to, first = time, time+1, false
		}
		from, to = min(from, time), max(to, time+1)
	})
	return from, to
}

// begins returns the time of a profile's first sample.
func (s *side) begins() int64 {
	s.first.once.Do(func() {
		isFirst := true
		var times []int64
		for row := range s.p.Samples() {
			for _, t := range s.p.Times(times[:0], row) {
				if isFirst || t < s.first.time {
					s.first.time, isFirst = t, false
				}
			}
		}
	})
	return s.first.time
}

// tracks returns the track of each set of labels, and the names of tracks.
func (w *weights) tracks(key string) (of []int, names []labelValue) {
	p := w.side.p
	of = make([]int, p.LabelSets())
	known := map[labelValue]int{}
	for set := range of {
		name := labelValue{missing: key != ""}
		for _, l := range p.LabelSet(uint32(set)) {
			if key != "" && l.Key == key {
				name = labelValue{text: l.Value()}
				break
			}
		}
		n, ok := known[name]
		if !ok {
			n = len(names)
			known[name], names = n, append(names, name)
		}
		of[set] = n
	}
	return of, names
}

// largest returns the tracks that count most.
func (w *weights) largest(totals []int64, names []labelValue, most int) []int {
	var all []int
	for n := range names {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b int) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(names[a].text, names[b].text))
	})
	return all[:min(len(all), most)]
}
