package elffile

import (
	"bytes"
	"testing"
)

// TestRelocations applies relocations whose fields have odd sizes.
func TestRelocations(t *testing.T) {
	const riscv, loongarch = 243, 258
	for _, test := range []struct {
		name    string
		machine uint16
		typ     uint32
		big     bool
		field   []byte
		value   uint64
		want    []byte // nil if the field is not there as a whole
	}{
		{"R_RISCV_SUB6", riscv, 52, false, []byte{0xc5}, 7, []byte{0xfe}},
		{"R_RISCV_SET6", riscv, 53, false, []byte{0xc5}, 0x47, []byte{0xc7}},
		{"R_RISCV_SET16", riscv, 55, false, []byte{9, 9, 9}, 0x30201, []byte{1, 2, 9}},
		{"R_RISCV_SET_ULEB128", riscv, 60, false, []byte{0x80, 0x80, 0x00, 9}, 300, []byte{0xac, 0x82, 0x00, 9}},
		{"R_RISCV_SUB_ULEB128", riscv, 61, false, []byte{0xac, 0x82, 0x00, 9}, 200, []byte{0xe4, 0x80, 0x00, 9}},
		{"R_LARCH_ADD8", loongarch, 47, false, []byte{0xff, 9}, 2, []byte{1, 9}},
		{"R_LARCH_ADD24", loongarch, 49, false, []byte{0xff, 0xff, 0, 9}, 1, []byte{0, 0, 1, 9}},
		{"R_LARCH_SUB24", loongarch, 54, false, []byte{0, 0, 1, 9}, 1, []byte{0xff, 0xff, 0, 9}},
		{"R_LARCH_SUB64", loongarch, 56, false, []byte{0, 1, 0, 0, 0, 0, 0, 0}, 1, []byte{0xff, 0, 0, 0, 0, 0, 0, 0}},
		{"R_LARCH_ADD6", loongarch, 105, false, []byte{0xff}, 2, []byte{0xc1}},
		{"R_LARCH_SUB6", loongarch, 106, false, []byte{0xc0}, 1, []byte{0xff}},
		{"R_LARCH_ADD_ULEB128", loongarch, 107, false, []byte{0x81, 0x00}, 200, []byte{0xc9, 0x01}},
		{"R_LARCH_SUB_ULEB128", loongarch, 108, false, []byte{0xc9, 0x01}, 200, []byte{0x81, 0x00}},
		{"beyond the end", loongarch, 2, false, []byte{1, 2, 3, 4, 5, 6, 7}, 1, nil},
		{"without an end", loongarch, 107, false, []byte{0x80, 0x80}, 1, nil},
		{"of no length", loongarch, 107, false, bytes.Repeat([]byte{0x80}, 20), 1, nil},
		{"R_SPARC_UA16", 2, 55, true, []byte{9, 9, 9}, 0x30201, []byte{2, 1, 9}},
	} {
		m := Image{Machine: test.machine, Big: test.big}
		r, known := relocations[test.machine][test.typ]
		if ok := m.applyRelocation(r, test.field, test.value, false); !known || ok != (test.want != nil) || ok && !bytes.Equal(test.field, test.want) {
			t.Errorf("%s: % x, %v; want % x", test.name, test.field, ok, test.want)
		}
	}
}
