package buildid

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// MaxSize is the largest number of bytes that an ID holds. The linkers write 8,
// 16 or 20; ld --build-id=0x… writes what it is given.
const MaxSize = 255

// Kind says what the bytes of an ID are.
type Kind uint8

// The kinds of identity, the best first.
const (
	None      Kind = iota // no identity
	GNU                   // NT_GNU_BUILD_ID, the linker's note
	Go                    // the Go toolchain's own note, for files without a GNU note
	ByContent             // Content: a hash of the code, for files without any note, or whose note is not believed
	HTL                   // hash of head, tail and length, by which OpenTelemetry names files without any note
)

var kindNames = [...]string{None: "none", GNU: "gnu", Go: "go", ByContent: "content", HTL: "htl"}

// String returns "none", "gnu", "go", "content" or "htl".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An ID is the identity of a file's content: its kind and its bytes, exact and
// never padded. IDs are equal (==) when both are, and serve as map keys. The
// zero ID is no identity.
type ID struct {
	kind  Kind
	bytes string
}

// New returns the ID of this kind with a copy of b. A GNU ID has 1 to MaxSize
// bytes, an HTL ID has 16, a Go ID has 1 to MaxSize printable ASCII characters
// without spaces.
func New(kind Kind, b []byte) (ID, error) {
	if err := check(kind, b); err != nil {
		return ID{}, err
	}
	return ID{kind, string(b)}, nil
}

func check(kind Kind, b []byte) error {
	switch kind {
	case GNU, Go:
		if len(b) < 1 || len(b) > MaxSize {
			return errSize
		}
		if kind == Go && !printable(b) {
			return errText
		}
	case ByContent:
		if len(b) != ContentSize {
			return errSize
		}
	case HTL:
		if len(b) != htlSize {
			return errSize
		}
	default:
		return errKind
	}
	return nil
}

// printable holds for what can stand in a line, a URL and a label as it is.
func printable(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// Kind returns what the bytes are, None for the zero ID.
func (id ID) Kind() Kind { return id.kind }

// Bytes returns a copy of the bytes.
func (id ID) Bytes() []byte { return []byte(id.bytes) }

// IsZero reports whether id is no identity.
func (id ID) IsZero() bool { return id == ID{} }

// maxGNUForm is the most that perf keeps of a build ID, BUILD_ID_SIZE of its
// tools/perf/util/build-id.h. Of longer ones it keeps the beginning.
const maxGNUForm = 20

// GNUForm returns the GNU identity that stands for id in formats that know no other kind
// and up to 20 bytes, as perf.data; the zero ID for itself.
//
// For the Go toolchain's, which is text and longer, that is what the toolchain itself
// makes a GNU build ID of it by (-B gobuildid of cmd/link, by default since Go 1.24): so
// a file that was linked with a GNU build ID and one that was not have the same.
func (id ID) GNUForm() ID {
	b := id.Bytes()
	switch id.kind {
	case None:
		return id
	case Go:
		sum := sha256.Sum256(b)
		sum[0] ^= 0xff // cmd/internal/hash, Sum32
		b = sum[:]
	}
	return ID{GNU, string(b[:min(len(b), maxGNUForm)])}
}

// Hallmark's forms of the IDs that are not GNU's start with these.
const (
	goPrefix      = "go:"
	contentPrefix = "content:"
	htlPrefix     = "htl:"
)

// String returns what Parse reads: lower-case hexadecimal for a GNU ID, "go:"
// and the text for a Go ID, "content:" or "htl:" and hexadecimal for a hash, "" for the
// zero ID.
func (id ID) String() string {
	text, _ := id.MarshalText() // never fails
	return string(text)
}

// AppendText appends what String returns. The error is always nil.
func (id ID) AppendText(b []byte) ([]byte, error) {
	switch id.kind {
	case Go:
		return append(append(b, goPrefix...), id.bytes...), nil
	case ByContent:
		b = append(b, contentPrefix...)
	case HTL:
		b = append(b, htlPrefix...)
	}
	const digits = "0123456789abcdef"
	for _, c := range []byte(id.bytes) {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b, nil
}

// Parse reads the form that String writes; hexadecimal digits may be upper-case.
// The empty string is an error.
func Parse(s string) (ID, error) {
	id, err := parse(s)
	if err != nil {
		return ID{}, fmt.Errorf("build ID %.80q: %w", s, err)
	}
	return id, nil
}

func parse(s string) (ID, error) {
	if text, ok := strings.CutPrefix(s, goPrefix); ok {
		return New(Go, []byte(text))
	}
	kind, digits := GNU, s
	if d, ok := strings.CutPrefix(s, contentPrefix); ok {
		kind, digits = ByContent, d
	} else if d, ok := strings.CutPrefix(s, htlPrefix); ok {
		kind, digits = HTL, d
	}
	if len(digits) > 2*MaxSize {
		return ID{}, errSize
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return ID{}, errDigits
	}
	return New(kind, b)
}

// MarshalText returns what String returns.
func (id ID) MarshalText() ([]byte, error) {
	return id.AppendText(make([]byte, 0, len(contentPrefix)+2*len(id.bytes)))
}

// UnmarshalText reads what MarshalText wrote: empty text is the zero ID, the
// rest is as in Parse.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	got, err := Parse(string(text))
	if err != nil {
		return err
	}
	*id = got
	return nil
}
