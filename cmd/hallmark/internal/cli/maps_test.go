package cli

import (
	"bufio"
	"bytes"
	"testing"

	"hallmark/procmap"
)

// TestMapsAsTheKernelWritesThem wants the bytes that the kernel writes for programs, and plain
// text for a terminal.
func TestMapsAsTheKernelWritesThem(t *testing.T) {
	vma := procmap.VMA{Start: 0x1000, End: 0x2000, Name: "/tmp/\x1b[2J\u202e\nforged"}
	for isTerminal, want := range map[bool]string{
		false: "/tmp/\x1b[2J\u202e\\012forged\n",
		true:  "/tmp/\uFFFD[2J\uFFFD\\012forged\n",
	} {
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		writeText(w, []procmap.VMA{vma}, isTerminal)
		w.Flush()
		if !bytes.HasSuffix(out.Bytes(), []byte(want)) {
			t.Errorf("terminal %v: %+q, want %+q at its end", isTerminal, &out, want)
		}
	}
}
