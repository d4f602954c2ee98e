package symbolize

import "bytes"

// Format is what an input is.
type Format uint8

// The formats that Detect distinguishes.
const (
	Text     Format = iota // logs, stack traces, perf script and all other text
	Folded                 // one stack and its count a line
	Pprof                  // a profile, uncompressed
	PerfData               // a recording of perf
)

// Detect returns the format of what starts with these bytes, uncompressed. The whole
// first line should be among them; more make it surer.
func Detect(start []byte) Format {
	switch {
	case bytes.HasPrefix(start, []byte("PERFILE2")), bytes.HasPrefix(start, []byte("2ELIFREP")):
		return PerfData
	case isPprof(start):
		return Pprof
	case isFolded(start):
		return Folded
	}
	return Text
}

// isPprof reports whether bytes start as a message of proto/profile.proto does, whose
// first field is the first sample type; in text the length behind its tag would be a
// control character.
func isPprof(start []byte) bool {
	const sampleType = 1<<3 | 2 // as pprof and all others order the fields
	return len(start) > 2 && start[0] == sampleType && start[1] < '\t' && (start[2] == 1<<3 || start[2] == 2<<3 || start[1] == 0)
}

// isFolded reports whether all lines are stacks with their counts, and one of them looks
// like nothing else: frames with ; between them, or one of which only the file is known.
func isFolded(start []byte) bool {
	if end := bytes.LastIndexByte(start, '\n'); end >= 0 {
		start = start[:end]
	}
	certain := false
	for line := range bytes.Lines(start) {
		line = bytes.TrimRight(line, "\r\n")
		space := bytes.LastIndexByte(line, ' ')
		if space <= 0 || space == len(line)-1 || len(bytes.Trim(line[space+1:], "0123456789")) > 0 {
			return false
		}
		stack := line[:space]
		certain = certain || bytes.IndexByte(stack, ';') >= 0 && !bytes.Contains(stack, []byte("; ")) ||
			stack[0] == '[' && stack[space-1] == ']' && bytes.IndexByte(stack, ' ') < 0
	}
	return certain
}
