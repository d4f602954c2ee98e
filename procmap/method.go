package procmap

import "fmt"

// Method is a way to learn about VMAs.
type Method uint8

// The methods.
const (
	Auto  Method = iota // queries where the kernel has them, else text
	Query               // the PROCMAP_QUERY ioctl, since Linux 6.11
	Text                // reading /proc/PID/maps
)

var methodNames = [...]string{"auto", "query", "text"}

// String returns the method's name: auto, query or text.
func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// MarshalText returns the method's name.
func (m Method) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a method's name.
func (m *Method) UnmarshalText(text []byte) error {
	for i, name := range methodNames {
		if name == string(text) {
			*m = Method(i)
			return nil
		}
	}
	return fmt.Errorf("unknown method %q: want auto, query or text", text)
}
