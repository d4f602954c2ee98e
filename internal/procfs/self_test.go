package procfs

import (
	"runtime"
	"testing"
)

func TestAddressBits(t *testing.T) {
	n := AddressBits()
	if runtime.GOARCH == "amd64" && n != 47 && n != 56 || n < 36 || n > 56 {
		t.Errorf("%d bits", n)
	}
}
