package bpf

import "testing"

// TestPageSize refuses the kernels on which every file offset would be wrong.
func TestPageSize(t *testing.T) {
	for bytes, fits := range map[int]bool{4096: true, 16384: false, 65536: false} {
		if err := checkPageSize(bytes); (err == nil) != fits {
			t.Errorf("pages of %d bytes: %v", bytes, err)
		}
	}
}
