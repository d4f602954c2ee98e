package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxLine is the longest line of a text table that is understood. Names of
// generated code can be whole signatures.
const maxLine = 64 << 10

var errTooLong = errors.New("table of symbols is longer than 1 GiB")

// eachLine calls f with every line of r, without its end. The line is only valid
// during the call, and empty if it was too long.
func eachLine(r io.Reader, f func(line []byte)) error {
	limited := &io.LimitedReader{R: r, N: maxTable + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		isLine := err == nil || len(line) > 0
		for err == bufio.ErrBufferFull {
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		if isLine {
			f(bytes.TrimRight(line, "\r\n"))
		}
		switch {
		case err == io.EOF && limited.N <= 0:
			return errTooLong
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// cutHex takes a hexadecimal number, with or without 0x, and the blanks after it
// from the front of a line.
func cutHex(line []byte) (n uint64, rest []byte, ok bool) {
	end := bytes.IndexAny(line, " \t")
	if end < 0 {
		end = len(line)
	}
	n, err := strconv.ParseUint(string(bytes.TrimPrefix(line[:end], []byte("0x"))), 16, 64)
	return n, bytes.TrimLeft(line[end:], " \t"), err == nil
}

// isName reports whether a name can be kept in a nameTable. What is being written
// can be zeros still.
func isName(name []byte) bool { return len(name) > 0 && bytes.IndexByte(name, 0) < 0 }

// nameTable collects names, each ended by a NUL, to be kept as one string.
type nameTable struct{ strings.Builder }

// add appends a name and returns where it is.
func (t *nameTable) add(name []byte) uint32 {
	at := t.Len()
	t.Write(name)
	t.WriteByte(0)
	return uint32(at)
}
