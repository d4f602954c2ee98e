// Package otlp reads and writes OpenTelemetry's profiles (OTLP, opentelemetry-proto 1.10 and later,
// still called v1development), and gives their locations functions and lines.
//
// A message has a dictionary: tables of strings, mappings, locations, functions, links, attributes
// and stacks, which refer to each other by index. Element 0 of each table is the zero value, so that
// the index 0 is none. Attributes have their keys and texts in two forms, as text or as an index of
// the table of strings; both are read.
//
// Hallmark's facts are in a message where OpenTelemetry's semantic conventions have them:
//
//   - A mapping has its identity in the attributes process.executable.build_id.gnu, .go and .htlhash.
//     An identity that is a content is in the attribute hallmark.identity, and the content of a file that
//     has another identity in hallmark.content.
//   - Addresses are virtual addresses of the file, as in package profile, in mappings whose range is
//     that of the segment. Addresses of a process in mappings of that process are read as well. An
//     address outside of the range of its mapping is taken for a virtual address of the file.
//   - A location has profile.frame.type: "kernel" or "native".
//   - Process and container are attributes of the resource, threads those of samples.
//   - What pprof has and OTLP has not is in the attributes pprof.*.
//
// Messages come from strangers. Parse bounds the memory that one takes before it is decoded, and
// checks each index. A message of protocol 1.9 or earlier has the same name and path, and other
// numbers for the fields of a sample: it is recognised by its content and refused.
package otlp

import (
	"errors"
	"fmt"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"hallmark/profile"
)

// Defaults of Options.
const (
	DefaultMaxSize   = 64 << 20 // bytes: what servers and senders of OTLP take
	DefaultMaxMemory = 2 << 30  // bytes, as they are counted: twice what real messages take
)

// Options bounds what a message may cost.
type Options struct {
	// MaxSize is the most bytes of the message, uncompressed; DefaultMaxSize when zero.
	MaxSize int64
	// MaxMemory is the most bytes of memory that the decoded message takes; DefaultMaxMemory
	// when zero.
	MaxMemory int64
}

func (o Options) size() int64 {
	if o.MaxSize == 0 {
		return DefaultMaxSize
	}
	return o.MaxSize
}

func (o Options) memory() int64 {
	if o.MaxMemory == 0 {
		return DefaultMaxMemory
	}
	return o.MaxMemory
}

// ErrOldProtocol is the error for a message of protocol 1.9 or earlier. It arrives wrapped.
var ErrOldProtocol = errors.New("the message is OTLP profiles of protocol 1.9 or earlier, whose samples have other field numbers: " +
	"versions 1.10 and later are read, so update the sender")

// A Message is a request to a collector, or the content of a file, which are the same bytes. All its
// indices are sound.
type Message struct {
	in *collector.ExportProfilesServiceRequest
}

// Parse decodes a message. The error wraps profile.ErrFormat, profile.ErrTooLarge or ErrOldProtocol.
func Parse(b []byte, o Options) (*Message, error) {
	if _, err := Cost(b, o); err != nil {
		return nil, err
	}
	in := new(collector.ExportProfilesServiceRequest)
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth + 1}).Unmarshal(b, in); err != nil {
		return nil, formatf("%w", err)
	}
	return checked(in)
}

// checked returns a message whose indices are sound.
func checked(in *collector.ExportProfilesServiceRequest) (*Message, error) {
	m := &Message{in}
	switch err := m.check(); {
	case errors.Is(err, ErrOldProtocol):
		return nil, err
	case err != nil:
		return nil, formatf("%w", err)
	}
	return m, nil
}

// Append appends the encoded message.
func (m *Message) Append(b []byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(b, m.in)
}

// Len returns how many profiles the message has.
func (m *Message) Len() (n int) {
	for range m.profiles() {
		n++
	}
	return n
}

// profiles yields the profiles with the resources that they are of.
func (m *Message) profiles() func(yield func(*otlp.ResourceProfiles, *otlp.Profile) bool) {
	return func(yield func(*otlp.ResourceProfiles, *otlp.Profile) bool) {
		for _, r := range m.in.GetResourceProfiles() {
			for _, s := range r.GetScopeProfiles() {
				for _, p := range s.GetProfiles() {
					if !yield(r, p) {
						return
					}
				}
			}
		}
	}
}

// formatf returns an error that wraps profile.ErrFormat.
func formatf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", profile.ErrFormat, fmt.Errorf("OTLP: "+format, args...))
}

// Detect reports whether a file that begins with some bytes may be a message: nothing else that
// Hallmark reads begins so. A few dozen bytes suffice.
//
// A profile by pprof begins with a type of values, whose first field is a number, where a message
// has the profiles of a resource, whose fields are messages.
func Detect(head []byte) bool {
	if isJSON(head) {
		return true
	}
	if len(head) < 3 || head[0] != 0x0a && head[0] != 0x12 {
		return false
	}
	at := 1
	for at < len(head) && head[at] >= 0x80 {
		at++
	}
	at++
	if at > 6 || at+1 >= len(head) {
		return false
	}
	if head[0] == 0x12 {
		// The dictionary first, as the Collector writes it, whose fields are in the order of writers. pprof has
		// a sample there, whose fields are three, and none of them empty.
		return head[at]&7 == 2 && head[at]>>3 >= 1 && head[at]>>3 <= 7 && (head[at]>>3 > 3 || head[at+1] == 0)
	}
	return head[at] == 0x0a || head[at] == 0x12 || head[at] == 0x1a
}
