package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/protobuf/encoding/protojson"

	"hallmark/profile"
)

// ParseJSON decodes a message in OTLP's form of JSON. The errors are those of Parse. The names of fields
// did not change with the protocol, so a message of 1.9 is one of 1.10 here.
func ParseJSON(b []byte, o Options) (*Message, error) {
	if _, err := CostJSON(b, o); err != nil {
		return nil, err
	}
	in := new(collector.ExportProfilesServiceRequest)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxDepth + 1}).Unmarshal(b, in); err != nil {
		return nil, formatf("%w", err)
	}
	m := &Message{in}
	if err := m.identifiers(fromHex); err != nil {
		return nil, err
	}
	return checked(in)
}

// CostJSON is Cost for a message in JSON: what it takes at most.
func CostJSON(b []byte, o Options) (int64, error) {
	if n := int64(len(b)); n > o.size() {
		return n, fmt.Errorf("%w: a message of %d bytes, and at most %d are read", profile.ErrTooLarge, n, o.size())
	}
	s := scan{most: o.memory()}
	objects, elements := int64(bytes.Count(b, []byte("{"))), int64(bytes.Count(b, []byte(",")))
	err := s.take(objects*jsonObject + elements*growth*stringSize + int64(len(b)))
	return s.cost, err
}

// jsonObject is the most bytes of memory that a message in a message takes.
const jsonObject = 320

// AppendJSON appends the message in OTLP's form of JSON.
func (m *Message) AppendJSON(b []byte) ([]byte, error) {
	if err := m.identifiers(toHex); err != nil {
		return b, err
	}
	b, err := protojson.MarshalOptions{}.MarshalAppend(b, m.in)
	if err != nil {
		return b, err
	}
	return b, m.identifiers(fromHex)
}

// Identifiers are in hexadecimal in OTLP's form of JSON, where protobuf's own has base64. What was read
// as base64 and is hexadecimal gives its text back, since both have full groups of four digits.

func fromHex(read []byte) ([]byte, error) {
	if n := len(read); n == 0 || n == 8 || n == 16 { // another writer's base64
		return read, nil
	}
	id, err := hex.DecodeString(base64.StdEncoding.EncodeToString(read))
	if err != nil {
		return nil, formatf("an identifier is not in hexadecimal")
	}
	return id, nil
}

func toHex(id []byte) ([]byte, error) {
	if len(id)%2 != 0 {
		return nil, nil // it is none
	}
	return base64.StdEncoding.DecodeString(hex.EncodeToString(id))
}

// identifiers changes the identifiers of links and profiles.
func (m *Message) identifiers(change func([]byte) ([]byte, error)) (err error) {
	for _, l := range m.in.GetDictionary().GetLinkTable() {
		if l == nil {
			continue
		}
		if l.TraceId, err = change(l.TraceId); err != nil {
			return err
		}
		if l.SpanId, err = change(l.SpanId); err != nil {
			return err
		}
	}
	for _, p := range m.profiles() {
		if p.ProfileId, err = change(p.ProfileId); err != nil {
			return err
		}
	}
	return nil
}

// isJSON reports whether a file that begins with some bytes may be a message in JSON.
func isJSON(head []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{"))
	if !ok {
		return false
	}
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return bytes.HasPrefix(rest, []byte(`"resourceProfiles"`)) || bytes.HasPrefix(rest, []byte(`"dictionary"`))
}

// IsJSON reports whether a message is one in JSON, by its first bytes.
func IsJSON(b []byte) bool { return isJSON(b[:min(len(b), 4096)]) }
