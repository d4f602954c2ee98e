package unwind

import (
	"hallmark/addr"
)

// Frame is one frame of a stack.
type Frame struct {
	// At is the instruction that is executed, or the last byte of the call. Nothing called
	// what signal handlers return to: that is executed next.
	At     addr.Abs
	Method Method
}

// A Walker walks the stacks of a process. It is not for use by several goroutines at once.
type Walker struct {
	Machine Machine
	Memory  Memory
	Space   Space
	// Entry is where the stack of the process's first thread began (mm->start_stack, 28th
	// field of /proc/PID/stat), 0 when that is not known. Code that nobody called ends there.
	Entry addr.Abs
	// AddressBits is how many bits the addresses of programs have on this kernel, for arm64,
	// which signs return addresses in those above: 39 to 52; 0 is 48.
	AddressBits uint8
	// Max is how many frames are yielded at most.
	Max int

	mapping Mapping // of the latest frame
	cached  bool    // the mapping is one
}

// Walk yields the frames of a stack from that of s on, which becomes the outermost one,
// and returns how the stack ended. A frame is only yielded when code can be at its address.
// A stack of which some frames are known already goes on with the state of the last of
// them, which is yielded again. When yield returns false, Walk returns EndUnknown.
func (w *Walker) Walk(s *State, yield func(Frame) bool) End {
	w.cached = false
	s.bits = w.AddressBits
	for range w.Max {
		if end := w.enter(s.Lookup()); end != EndUnknown {
			return end
		}
		rule := w.rule(s)
		if rule.Kind == Signal && w.mapping.holds(s.IP) {
			s.Exact = true
		}
		if !yield(Frame{s.Lookup(), s.Method}) {
			return EndUnknown
		}
		if end, ended := w.step(s, &rule); ended {
			return end
		}
	}
	return TooDeep
}

// enter finds the mapping of a frame, and how the stack ends if that cannot be code.
func (w *Walker) enter(at addr.Abs) End {
	if !w.cached || !w.mapping.holds(at) {
		w.mapping, w.cached = w.Space.At(at)
		if !w.cached || !w.mapping.holds(at) {
			return NotMapped
		}
	}
	if w.mapping.Content == Data {
		return NotCode
	}
	return EndUnknown
}

// rule returns the rule of a frame in w.mapping.
func (w *Walker) rule(s *State) Rule {
	m := &w.mapping
	if m.Content != File || m.Table == nil {
		return Rule{}
	}
	return m.Table.Lookup(m.Offset + addr.Offset(s.Lookup()-m.Start))
}

// step goes to the caller of a frame in w.mapping, which has this rule.
func (w *Walker) step(s *State, rule *Rule) (End, bool) {
	m := &w.mapping
	switch {
	case m.Content == Generated:
		return w.stepGenerated(s)
	case m.Content == Unidentified:
		return NotIdentified, true
	case m.Table == nil:
		return NoTable, true
	}
	switch {
	case rule.Kind == FP:
		return s.StepFP(w.Machine, w.Memory)
	case rule.Kind != None:
		return s.Step(w.Machine, rule, w.Memory)
	case w.atEntry(s):
		return Complete, true
	case rule.Silence() == Gap && m.keepsFP():
		return s.StepFP(w.Machine, w.Memory)
	}
	return rule.end(), true
}

// stepGenerated goes to the caller of generated code. No stack begins there: where it seems
// to, the frame pointer is none.
func (w *Walker) stepGenerated(s *State) (End, bool) {
	end, ended := s.StepFP(w.Machine, w.Memory)
	if end == Complete {
		end = BadFrame
	}
	return end, ended
}

// entrySlack is how much of the stack code may have pushed that nobody called.
const entrySlack = 32

// atEntry reports whether a frame has the stack that the process began with: the dynamic
// linker's first instructions have no call frame information.
func (w *Walker) atEntry(s *State) bool {
	sp, known := s.Get(w.Machine.StackPointer())
	return known && w.Entry > entrySlack && sp >= uint64(w.Entry)-entrySlack
}

// Method says how a frame was found.
type Method uint8

// The methods. enum unwind_method of internal/bpf/c/events/stack.h has the same numbers.
const (
	NoMethod Method = iota // not known: the kernel's own frames
	ByRegs                 // the innermost frame: where the processor stood
	ByCFI                  // by a rule of a Table
	ByFP                   // by the frame pointer
	BySignal               // what a signal interrupted
)

// End says how a stack ended.
type End uint8

// The ends. enum stack_end of internal/bpf/c/events/stack.h has the same numbers.
const (
	EndUnknown    End = iota // the frames say nothing of it
	Complete                 // the entry of the program or of the thread was reached
	NoUserStack              // there is none: a kernel thread
	NoTable                  // the table of a file was not there yet
	NoRule                   // no call frame information covers the place
	Unsupported              // what the call frame information says cannot be said in a table
	RegisterLost             // a register that is needed was not preserved
	Unreadable               // the stack's memory could not be read
	NotMapped                // a return address is in no mapping
	NotCode                  // a return address is in memory that is not executable
	BadFrame                 // the caller's stack would be below the callee's, or there is no caller where one must be
	TooDeep                  // there are more frames than are recorded
	NotIdentified            // a file without identity: being written, or no room in the table of files
	Compat                   // a 32-bit process
	FramePointers            // the kernel walked by frame pointers, whose end says nothing
	ends
)
