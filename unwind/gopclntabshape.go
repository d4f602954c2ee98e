package unwind

import "slices"

// goShape is what the instructions of a function say that no list does. Addresses are
// those from which on something holds; never where nothing does.
type goShape struct {
	saved    [6]goSaved // by place in Rule.Saved
	frame    uint64     // the frame pointer is the function's own
	switched uint64     // the stack pointer may be on another stack
	lost     uint64     // the frame pointer may be anything, after it was the function's own
	begins   uint64     // the stack pointer is on another stack, which nothing leads away from
	clobber  uint64     // a register may be overwritten that was not saved
	foreign  bool       // it preserves what C functions preserve
}

const never = ^uint64(0)

// goSaved says from where on a register is saved, relative to the CFA, in units of 8 bytes.
type goSaved struct {
	from uint64
	at   int8
}

func newGoShape() goShape {
	s := goShape{frame: never, switched: never, lost: never, begins: never, clobber: never}
	for i := range s.saved {
		s.saved[i].from = never
	}
	return s
}

// cuts appends the addresses at which what holds may change, in order.
func (s *goShape) cuts(to []uint64) []uint64 {
	for _, at := range []uint64{s.frame, s.switched, s.lost, s.begins, s.clobber} {
		if at != never {
			to = append(to, at)
		}
	}
	for _, r := range s.saved {
		if r.from != never {
			to = append(to, r.from)
		}
	}
	slices.Sort(to)
	return to
}

// goMachine knows the functions of Go for a machine.
type goMachine struct {
	shape func(f *goFunction, flagged bool) goShape
	rule  func(f *goFunction, s *goShape, at uint64, delta int32) Rule
}

var goMachines = map[Machine]goMachine{
	X86_64: {goShapeX86, goRuleX86},
	ARM64:  {goShapeARM64, goRuleARM64},
}

// unusual is the rule of code that does what no rule can say.
func unusual() Rule { return Rule{Kind: None, Register: Register(Unusual)} }
