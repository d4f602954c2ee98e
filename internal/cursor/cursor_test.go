package cursor

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	little, big := New(data, 0, false), New(data, 0, true)
	if a, b := little.U8(), big.U8(); a != 1 || b != 1 {
		t.Errorf("U8 %#x %#x", a, b)
	}
	if a, b := little.U16(), big.U16(); a != 0x0302 || b != 0x0203 {
		t.Errorf("U16 %#x %#x", a, b)
	}
	if a, b := little.U32(), big.U32(); a != 0x07060504 || b != 0x04050607 {
		t.Errorf("U32 %#x %#x", a, b)
	}
	if a, b := little.U64(), big.U64(); a != 0x0f0e0d0c0b0a0908 || b != 0x08090a0b0c0d0e0f {
		t.Errorf("U64 %#x %#x", a, b)
	}
	if little.Err() != nil || big.Err() != nil {
		t.Error(little.Err(), big.Err())
	}
}

func TestFirstErrorStays(t *testing.T) {
	c := New([]byte{1, 2, 3}, 0x100, false)
	c.U8()
	if c.U32() != 0 || c.U8() != 0 || c.String() != "" || c.Bytes(1) != nil || c.Len() != 0 {
		t.Error("a read after an error returned something")
	}
	const want = "offset 0x101: 4 bytes wanted, 2 left"
	if c.Err() == nil || c.Err().Error() != want {
		t.Errorf("got %v, want %s", c.Err(), want)
	}
}

func TestHugeLengths(t *testing.T) {
	c := New(make([]byte, 8), 0, false)
	c.Skip(math.MaxUint64)
	if c.Err() == nil {
		t.Error("skipping 2^64-1 bytes succeeded")
	}
	c = New(make([]byte, 8), 0, false)
	c.SeekTo(math.MaxUint64)
	if c.Err() == nil {
		t.Error("seeking to 2^64-1 succeeded")
	}
}

func TestUvarint(t *testing.T) {
	for _, test := range []struct {
		data []byte
		want uint64
		ok   bool
	}{
		{[]byte{0}, 0, true},
		{[]byte{0x7f}, 127, true},
		{[]byte{0xe5, 0x8e, 0x26}, 624485, true},
		{[]byte{0x80, 0x80, 0}, 0, true},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, math.MaxUint64, true},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, 0, false},
		{[]byte{0x80}, 0, false},
		{nil, 0, false},
	} {
		c := New(test.data, 0, false)
		if got := c.Uvarint(); got != test.want || (c.Err() == nil) != test.ok {
			t.Errorf("Uvarint(%x) = %d, %v", test.data, got, c.Err())
		}
	}
}

func TestVarint(t *testing.T) {
	for n, want := range []int64{0, -1, 1, -2, 2} {
		c := New([]byte{byte(n)}, 0, false)
		if got := c.Varint(); got != want {
			t.Errorf("Varint(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestStringAndAlign(t *testing.T) {
	c := New([]byte("abc\x00de\x00\x00f"), 0, false)
	if s := c.String(); s != "abc" {
		t.Errorf("got %q", s)
	}
	c.U8()
	c.Align(4)
	if c.Pos() != 8 || c.U8() != 'f' {
		t.Errorf("position %d after Align", c.Pos())
	}
	c.SeekTo(8)
	if c.String() != "" || c.Err() == nil {
		t.Error("a string without NUL was read")
	}
}
