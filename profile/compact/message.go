package compact

import (
	"encoding/binary"
)

// A message is protobuf (https://protobuf.dev/programming-guides/encoding) in memory. After
// damage it has no more fields.
type message struct {
	data []byte
	at   int
	bad  string // what is wrong
}

// field is one field of a message.
type field struct {
	number int
	value  uint64 // of a varint
	body   []byte // of what has a length
	packed bool   // it has a length
}

// next returns the next field, and false after the last one.
func (m *message) next(f *field) bool {
	for m.at < len(m.data) {
		key, n := uvarint(m.data[m.at:])
		if n <= 0 {
			return m.fail("a field's number is cut or too long")
		}
		m.at += n
		if key>>3 == 0 || key>>3 > 1<<29-1 {
			return m.fail("a field has an impossible number")
		}
		f.number = int(key >> 3)
		switch key & 7 {
		case 0:
			f.value, n = uvarint(m.data[m.at:])
			if n <= 0 {
				return m.fail("a number is cut or too long")
			}
			m.at += n
			f.body, f.packed = nil, false
			return true
		case 2:
			length, n := uvarint(m.data[m.at:])
			if n <= 0 || length > uint64(len(m.data)-m.at-n) {
				return m.fail("a field is longer than what it is in")
			}
			m.at += n
			f.body, f.packed, f.value = m.data[m.at:m.at+int(length)], true, 0
			m.at += int(length)
			return true
		case 1:
			m.at += 8
		case 5:
			m.at += 4
		default:
			return m.fail("a field has an unknown type")
		}
		if m.at > len(m.data) {
			return m.fail("a field is cut")
		}
		// No field of profiles has a fixed size: it is of a later version.
	}
	return false
}

func (m *message) fail(why string) bool {
	m.bad = why
	return false
}

func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	return binary.Uvarint(b)
}

// numbers appends the numbers of a repeated field, packed or one of them.
func (m *message) numbers(f *field, to []uint64) []uint64 {
	if !f.packed {
		return append(to, f.value)
	}
	for b := f.body; len(b) > 0; {
		v, n := uvarint(b)
		if n <= 0 {
			m.fail("a list of numbers is cut")
			break
		}
		to, b = append(to, v), b[n:]
	}
	return to
}
