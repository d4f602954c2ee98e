package symbolize

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hallmark/reason"
)

// Summary says what became of the frames in a text.
type Summary struct {
	Frames     int64 // found, in which the text names a file
	Symbolized int64 // of them: those that got a function
	Named      int64 // of them: those that had a function already, and keep it
	Trusted    int64 // of those symbolized: by a file taken on trust, for its name
	Gaps       []Gap // why the others got none, the most frequent first
}

// Gap is a reason why frames got no function.
type Gap struct {
	Reason  reason.Reason
	Frames  int64
	Modules []string // files that they are in, those with the most frames first
}

// tally counts frames.
type tally struct {
	frames, symbolized, named, trusted int64
	gaps                               map[reason.Reason]map[string]int64
}

func newTally() *tally { return &tally{gaps: map[reason.Reason]map[string]int64{}} }

// maxModules is how many files are distinguished for one reason.
const maxModules = 1000

// add counts a frame that got a function, or did not for this reason.
func (t *tally) add(module string, why reason.Reason) {
	t.frames++
	if why == reason.None {
		t.symbolized++
		return
	}
	modules := t.gaps[why]
	if modules == nil {
		modules = map[string]int64{}
		t.gaps[why] = modules
	}
	if _, known := modules[module]; !known {
		if len(modules) >= maxModules || len(module) > maxPath {
			module = ""
		}
		module = strings.Clone(module)
	}
	modules[module]++
}

func (t *tally) finish() *Summary {
	s := &Summary{Frames: t.frames + t.named, Symbolized: t.symbolized, Named: t.named, Trusted: t.trusted}
	for why, modules := range t.gaps {
		g := Gap{Reason: why}
		for _, n := range modules {
			g.Frames += n
		}
		delete(modules, "")
		g.Modules = slices.SortedFunc(maps.Keys(modules), func(a, b string) int {
			return cmp.Or(cmp.Compare(modules[b], modules[a]), cmp.Compare(a, b))
		})
		s.Gaps = append(s.Gaps, g)
	}
	slices.SortFunc(s.Gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(b.Frames, a.Frames), cmp.Compare(a.Reason, b.Reason))
	})
	return s
}
