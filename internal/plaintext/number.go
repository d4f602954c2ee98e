package plaintext

import (
	"slices"
	"strconv"
)

// Thousands writes n with a comma before every three digits.
func Thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(digits) - 3; i > start; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Plural returns "1 frame", "12,345 frames". A number other than 1 has the noun with an s behind it, or
// many: "identities", "records were lost".
func Plural(n int64, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return Thousands(n) + " " + many[0]
	}
	return Thousands(n) + " " + one + "s"
}

// Sentence returns how many things there are, as Plural does, and a text about them; "" for none.
func Sentence(n uint64, one, many, text string) string {
	if n == 0 {
		return ""
	}
	return Plural(int64(n), one, many) + " " + text
}

// Sentences returns those that are not empty.
func Sentences(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}
