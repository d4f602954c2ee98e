package unwind

// Method says how a frame was found.
type Method uint8

// The methods. enum unwind_method of internal/bpf/c/events/stack.h has the same numbers.
const (
	NoMethod Method = iota // not told: the kernel's own frames
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
