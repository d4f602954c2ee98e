package addr2line

import (
	"math"
	"math/bits"
	"strconv"
)

// parseHex reads a hexadecimal number, which may have blanks and 0x before it, and
// returns what is behind it. No number is 0, and one that is too large is the largest
// there is.
func parseHex(s []byte) (n uint64, rest []byte) {
	for len(s) > 0 && isBlank(s[0]) {
		s = s[1:]
	}
	if len(s) > 1 && s[0] == '0' && s[1]|0x20 == 'x' {
		s = s[2:]
	}
	large := false
	i := 0
	for ; i < len(s); i++ {
		d := digit(s[i])
		if d >= 16 {
			break
		}
		large = large || n>>60 != 0
		n = n<<4 | uint64(d)
	}
	if large {
		n = math.MaxUint64
	}
	return n, s[i:]
}

// digit returns what a hexadecimal digit stands for, or more than 15 for anything else.
func digit(c byte) byte {
	switch {
	case c-'0' < 10:
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return math.MaxUint8
}

const hexDigits = "0123456789abcdef"

// appendDigits appends so many hexadecimal digits.
func appendDigits(b []byte, n uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		b = append(b, hexDigits[n>>(4*i)&0xf])
	}
	return b
}

// appendHex appends a hexadecimal number with 0x and without leading zeros.
func appendHex(b []byte, n uint64) []byte {
	return appendDigits(append(b, "0x"...), n, max(1, (bits.Len64(n)+3)/4))
}

func appendDecimal(b []byte, n uint64) []byte { return strconv.AppendUint(b, n, 10) }
