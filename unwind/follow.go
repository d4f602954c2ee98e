package unwind

import (
	"cmp"
	"maps"
	"slices"

	"hallmark/internal/elffile"
)

// followed makes rows of small functions without call frame information, whose every
// instruction is followed: what compilers' run-time libraries and C libraries begin and end
// programs with (_init, _fini, frame_dummy, __do_global_dtors_aux, register_tm_clones,
// call_weak_fn).
//
// Where a function begins is not recorded, but is where a section does, or at a multiple of 16
// bytes. That it does there follows from the instructions: from a place that a function
// comes to after it has pushed something, no way leads to a return with the stack as it was.
// Code that does anything to the stack but push, pop and add constants has no rows, and
// neither has what leads there.
func (b *builder) followed() error {
	var part *part
	m := followedMachines[b.file.machine]
	const (
		least = 8       // bytes of the shortest function
		most  = 4 << 10 // that have a gap which is looked at
	)
	left, begins := maxFollowed, b.sectionStarts()
	small := b.gaps()
	small = slices.DeleteFunc(small, func(g gap) bool { return g.end-g.start > most })
	return b.eachGap(small, least, 0, func(at off, code []byte) {
		all := map[int]followedPlace{}
		for start := range code {
			if left <= 0 {
				break
			}
			if _, done := all[start]; done || (at+off(start))%16 != 0 && !(start == 0 && begins[at]) {
				continue
			}
			if one := m.follow(code, start, all, &left); one != nil {
				maps.Copy(all, one)
			}
		}
		if len(all) > 0 && part == nil {
			part = b.layer(Known).part()
		}
		if len(all) > 0 {
			part.places(at, all, m.rule)
		}
	})
}

// sectionStarts returns where in the file sections of code begin.
func (b *builder) sectionStarts() map[off]bool {
	starts := map[off]bool{}
	for s := range b.file.filled() {
		if s.Flags&elffile.SHF_EXECINSTR != 0 {
			starts[off(s.Offset)] = true
		}
	}
	return starts
}

// followedPlace is an instruction that was followed.
type followedPlace struct {
	size  int
	state followedState
}

// followedState says what has become of the stack before an instruction.
type followedState struct {
	depth int32    // of the stack pointer below the CFA, in bytes
	frame int32    // of the frame pointer, 0 if it is not the function's own
	saved [6]int32 // of the registers of Machine.Saved, 0 where they are unchanged
	link  int32    // of the return address of arm64, 0 where it is in its register
}

// followedStep is what an instruction does.
type followedStep struct {
	size    int
	next    followedState // behind it
	on      bool          // it goes on there
	returns bool
	target  int // of a jump, relative to its start
	jumps   bool
}

// followedMachine knows the instructions of a machine.
type followedMachine struct {
	entry followedState // at a function's first instruction
	step  func(code []byte, s followedState) (followedStep, bool)
	rule  func(s followedState) Rule
}

var followedMachines = map[Machine]followedMachine{
	X86_64: {followedEntryX86, followX86, followedRuleX86},
	ARM64:  {followedState{}, followARM64, followedRuleARM64},
}

// follow follows all ways from a place in code, and returns what is at each instruction that
// is not among those known already; nil if that is not sure. It takes what it looks at off left.
func (m *followedMachine) follow(code []byte, start int, known map[int]followedPlace, left *int) map[int]followedPlace {
	type way struct {
		at    int
		state followedState
	}
	found, ways, returns := map[int]followedPlace{}, []way{{start, m.entry}}, false
	for len(ways) > 0 {
		if *left--; *left < 0 {
			return nil
		}
		w := ways[len(ways)-1]
		ways = ways[:len(ways)-1]
		if p, ok := known[w.at]; ok {
			if p.state != w.state {
				return nil
			}
			returns = true // as what is known does
			continue
		}
		if p, ok := found[w.at]; ok {
			if p.state != w.state {
				return nil
			}
			continue
		}
		if w.at >= len(code) {
			return nil
		}
		s, ok := m.step(code[w.at:], w.state)
		if !ok || s.returns && s.next != m.entry {
			return nil
		}
		found[w.at] = followedPlace{s.size, w.state}
		returns = returns || s.returns
		if s.on {
			ways = append(ways, way{w.at + s.size, s.next})
		}
		if to := w.at + s.target; s.jumps && to >= 0 && to < len(code) {
			ways = append(ways, way{to, s.next})
		} else if s.jumps && s.next != m.entry {
			return nil // to another function, with something on the stack
		}
	}
	if !returns || overlap(found, known) {
		return nil
	}
	return found
}

// overlap reports whether instructions lie within one another: some are none.
func overlap(found, known map[int]followedPlace) bool {
	for at, p := range found {
		for in := at + 1; in < at+p.size; in++ {
			if _, ok := found[in]; ok {
				return true
			}
			if _, ok := known[in]; ok {
				return true
			}
		}
	}
	return false
}

// places adds what was found in the code from an offset on.
func (p *part) places(at off, all map[int]followedPlace, rule func(followedState) Rule) {
	end := -1
	for _, start := range slices.SortedFunc(maps.Keys(all), cmp.Compare[int]) {
		place := all[start]
		if start != end {
			stop := start + place.size
			for next, ok := all[stop]; ok; next, ok = all[stop] {
				stop += next.size
			}
			if !p.begin(at+off(start), at+off(stop)) {
				return
			}
		}
		p.row(at+off(start), rule(place.state))
		end = start + place.size
	}
}
