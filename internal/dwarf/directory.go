package dwarf

import (
	"cmp"
	"slices"
)

// A Directory says which units of a Data may have code at an address.
//
// It goes by what the units' own entries say, and for a unit whose entry does not say
// by what is in it. Functions that lie elsewhere are not found: no compiler is known to
// make such. .debug_aranges is not consulted: compilers leave it out, or units
// out of it, and to find those takes a look at every header, after which the look at
// the entry behind costs little. Other readers that trust it miss code.
type Directory struct {
	Units []*Unit // in the order of the file
	spans []unitSpan
	tops  []uint64 // of each span, the highest end in the part of the tree below it
}

// unitSpan is addresses that a unit may have.
type unitSpan struct {
	Range
	unit int32
}

// Directory makes the Directory of the Reader's Data, and prepares it for other
// Readers. Damaged units are left out, and the error reports them.
func (r *Reader) Directory() (*Directory, error) {
	units, err := r.main.Units()
	if err != nil {
		units = r.main.codeUnits() // up to the damage
	}
	return r.directory(units, r.Addresses, err)
}

func (r *Reader) directory(units []*Unit, addresses func(*Unit, []Range) ([]Range, error), err error) (*Directory, error) {
	dir := &Directory{Units: units}
	var ranges []Range
	for i, u := range units {
		var damage error
		if ranges, damage = addresses(u, ranges[:0]); damage == nil {
			damage = r.main.spend(spanCost * len(ranges))
		}
		if damage == nil {
			damage = r.main.hold(spanCost*len(ranges), ".debug_info", u.start)
		}
		if damage != nil {
			if err = cmp.Or(err, damage); r.main.isSpent() {
				break
			}
			continue
		}
		dir.add(ranges, i)
	}
	dir.finish()
	return dir, err
}

func (dir *Directory) add(ranges []Range, unit int) {
	for _, r := range ranges {
		dir.spans = append(dir.spans, unitSpan{r, int32(unit)})
	}
}

func (dir *Directory) finish() {
	slices.SortFunc(dir.spans, func(a, b unitSpan) int {
		return cmp.Or(cmp.Compare(a.Low, b.Low), cmp.Compare(a.unit, b.unit))
	})
	dir.tops = make([]uint64, len(dir.spans))
	dir.grow(0, len(dir.spans))
}

// Addresses appends the addresses that a unit may have to ranges. It can read the unit.
func (r *Reader) Addresses(u *Unit, ranges []Range) ([]Range, error) {
	ranges, ok := r.claims(u, ranges)
	if ok {
		return ranges, nil
	}
	if err := r.Read(u); err != nil {
		return ranges, err
	}
	return r.AppendKnown(ranges), nil
}

// grow sets the tops of the spans from low up to high, which are a tree: its root is
// in the middle, and the parts before and behind are its branches.
func (dir *Directory) grow(low, high int) (top uint64) {
	if low == high {
		return 0
	}
	middle := low + (high-low)/2
	top = max(dir.spans[middle].High, dir.grow(low, middle), dir.grow(middle+1, high))
	dir.tops[middle] = top
	return top
}

// maxClaims is how many units that may have an address are looked at. In what linkers
// make there is one, or a few where code that units have in common was merged: of very
// many that claim the same code these are the first ones.
const maxClaims = 256

// At appends the units that may have code at v to units, as their indices in Units and
// in that order.
func (dir *Directory) At(v uint64, units []int32) []int32 {
	start := len(units)
	units = dir.collect(v, 0, len(dir.spans), units, start+maxClaims)
	if len(units) > start+1 {
		slices.Sort(units[start:])
		units = slices.Compact(units)
	}
	return units
}

func (dir *Directory) collect(v uint64, low, high int, units []int32, most int) []int32 {
	for low < high && len(units) < most {
		middle := low + (high-low)/2
		if dir.tops[middle] <= v {
			return units
		}
		units = dir.collect(v, low, middle, units, most)
		s := &dir.spans[middle]
		if s.Low > v || len(units) >= most {
			return units
		}
		if v < s.High {
			units = append(units, s.unit)
		}
		low = middle + 1
	}
	return units
}

// Lines is a Directory that goes by the line programs of the units. These speak of
// more addresses than the entries do: of padding, of thunks, of what was written in
// assembler.
func (r *Reader) Lines(units []*Unit) (*Directory, error) {
	return r.directory(units, r.LineAddresses, nil)
}

// LineAddresses appends the addresses that the line program of a unit speaks of. It
// can read the unit.
func (r *Reader) LineAddresses(u *Unit, ranges []Range) ([]Range, error) {
	r.reset()
	s, err := r.brief(u)
	if err != nil {
		return ranges, err
	}
	if s.partial {
		if err := r.Read(u); err != nil {
			return ranges, err
		}
		return r.AppendKnown(ranges), nil
	}
	if err := r.readLines(s); err != nil {
		return ranges, err
	}
	for i := range r.sequences {
		ranges = append(ranges, r.sequences[i].Range)
	}
	return ranges, nil
}
