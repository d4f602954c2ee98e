package fstimes

import (
	"strings"
	"testing"
)

func TestTrusted(t *testing.T) {
	for magic, want := range map[int64]bool{
		0xef53: true, 0x58465342: true, 0x9123683e: true, 0xe0f5e1e2: true,
		-0x1f0a1e1e: true, // erofs, where statfs has 32 bits with a sign
		0x01021994:  false, 0x65735546: false, 0x4d44: false, 0x794c7630: false, 0x6969: false,
		0: false, 0x12345678: false,
	} {
		got, why := Trusted(magic)
		if got != want || why == "" {
			t.Errorf("Trusted(%#x) = %v, %q", magic, got, why)
		}
	}
}

// TestReasons wants a reason for each file system, and none that is believed and is not.
func TestReasons(t *testing.T) {
	for _, fs := range List() {
		if fs.Name == "" || fs.Why == "" {
			t.Errorf("no reason for %#x", fs.Magic)
		}
		if why := untrusted[fs.Magic]; why != "" {
			t.Errorf("%s is believed, and is not: %s", fs.Name, why)
		}
	}
	for magic, why := range untrusted {
		if !strings.Contains(why, ": ") {
			t.Errorf("%#x: reason %q without the name of the file system", magic, why)
		}
	}
}
