package profile

import (
	"strings"

	pprof "github.com/google/pprof/profile"

	"hallmark/reason"
	"hallmark/unwind"
)

// Walk says how the frames of a user's stack were found, and why there are no more of
// them. The zero Walk says nothing.
type Walk struct {
	End     unwind.End
	Methods Methods
}

// Methods is a set of ways in which frames were found.
type Methods uint8

// With returns the set with one more method.
func (m Methods) With(one unwind.Method) Methods { return m | 1<<one }

// Has reports whether frames were found in this way.
func (m Methods) Has(one unwind.Method) bool { return m&(1<<one) != 0 }

// Labels of samples that say how their stacks were walked. All samples of a
// recording together have few different values: how many frames were found in which way
// would make each depth of a stack another one.
const (
	endLabel    = "stack"   // "complete", or the code of the reason why it is not
	methodLabel = "unwound" // the methods, in the order of methodNames: "cfi fp"
)

// complete is the endLabel of a stack that has all frames.
const complete = "complete"

// methodNames are by unwind.Method. Every stack has an innermost frame, so that is named
// only where it is alone.
var methodNames = [...]string{unwind.ByRegs: "regs", unwind.ByCFI: "cfi", unwind.ByFP: "fp", unwind.BySignal: "signal"}

// endReasons say why a stack has no more frames.
var endReasons = map[unwind.End]reason.Reason{
	unwind.NoUserStack:   reason.NoUserStack,
	unwind.NoTable:       reason.NoTable,
	unwind.NoRule:        reason.NoRule,
	unwind.Unsupported:   reason.UnsupportedRule,
	unwind.RegisterLost:  reason.RegisterLost,
	unwind.Unreadable:    reason.StackUnreadable,
	unwind.NotMapped:     reason.NotMapped,
	unwind.NotCode:       reason.NotExecutable,
	unwind.BadFrame:      reason.BadFrame,
	unwind.TooDeep:       reason.TooDeep,
	unwind.NotIdentified: reason.NoSerial,
	unwind.Compat:        reason.Compat,
	unwind.FramePointers: reason.FramePointers,
}

// String returns the methods as the label of samples has them, "" for none.
func (m Methods) String() string {
	if m&^(1<<unwind.NoMethod) != 1<<unwind.ByRegs {
		m &^= 1 << unwind.ByRegs
	}
	var names []string
	for method, name := range methodNames {
		if m&(1<<method) != 0 && name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// end returns how the stack ended, as the label of samples has it, "" where that is not reported.
func (w Walk) end() string {
	if w.End == unwind.Complete {
		return complete
	}
	if r := endReasons[w.End]; r != reason.None {
		return r.Code()
	}
	return ""
}

// label adds to the labels of an owner what there is to say of the walk. The maps of the
// owner stay as they are.
func (w Walk) label(l sampleLabels) sampleLabels {
	end, methods := w.end(), w.Methods.String()
	if end == "" && methods == "" {
		return l
	}
	text := make(map[string][]string, len(l.text)+2)
	for name, values := range l.text {
		text[name] = values
	}
	if end != "" {
		text[endLabel] = []string{end}
	}
	if methods != "" {
		text[methodLabel] = []string{methods}
	}
	return sampleLabels{text: text, numbers: l.numbers}
}

// StackEnd returns why the stack of s has no more frames: reason.None when it is complete.
// It reports false where the profile does not say.
func StackEnd(s *pprof.Sample) (reason.Reason, bool) {
	ends := s.Label[endLabel]
	if len(ends) == 0 {
		return reason.None, false
	}
	if ends[0] == complete {
		return reason.None, true
	}
	r, ok := reason.Parse(ends[0])
	return r, ok && r != reason.None
}

// EndOf returns what a label of a sample says of the end of its stack, as StackEnd does. It
// reports false for other labels.
func EndOf(key, value string) (reason.Reason, bool) {
	if key != endLabel {
		return reason.None, false
	}
	return StackEnd(&pprof.Sample{Label: map[string][]string{endLabel: {value}}})
}
