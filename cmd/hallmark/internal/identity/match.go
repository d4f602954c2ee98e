package identity

import (
	"strings"
)

// IsHead reports whether s is an identity, or can be the first digits of one.
func IsHead(s string) bool {
	if text, ok := strings.CutPrefix(s, "go:"); ok {
		return len(text) >= LeastDigits
	}
	digits := strings.TrimPrefix(s, "content:")
	return len(digits) >= LeastDigits && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
}

// LeastDigits is how many digits of a build ID must be given.
const LeastDigits = 6
