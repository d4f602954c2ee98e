package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"hallmark/internal/elffile"
)

// maxLine is the longest line of a text table that is understood. Names of
// generated code can be whole signatures.
const maxLine = 64 << 10

var errTooLong = errors.New("table of symbols is longer than 1 GiB")

// eachLine calls f with every line of r, without its end. The line is only valid
// during the call, and empty if it was too long.
func eachLine(r io.Reader, f func(line []byte)) error {
	limited := &io.LimitedReader{R: r, N: elffile.MaxTable + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		isLine := err == nil || len(line) > 0
		for err == bufio.ErrBufferFull {
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		if isLine {
			f(withoutEnd(line))
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
	digits := bytes.TrimPrefix(line, []byte("0x"))
	i := 0
	for ; i < len(digits) && !isBlank(digits[i]); i++ {
		d := hexDigit(digits[i])
		if d > 15 || n>>60 != 0 {
			return 0, nil, false
		}
		n = n<<4 | d
	}
	rest = digits[i:]
	for len(rest) > 0 && isBlank(rest[0]) {
		rest = rest[1:]
	}
	return n, rest, i > 0
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// withoutEnd returns a line without the characters that end it. This and cutHex
// run for each of the kernel's symbols: sets of characters to trim cost a third of
// reading them.
func withoutEnd(line []byte) []byte {
	for n := len(line); n > 0 && (line[n-1] == '\n' || line[n-1] == '\r'); n-- {
		line = line[:n-1]
	}
	return line
}

// hexDigit returns the value of a hexadecimal digit, and more than 15 for any other
// character.
func hexDigit(c byte) uint64 {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return uint64(c|0x20-'a') + 10
	}
	return 16
}

// isName reports whether a name can be kept in a symtab.Names. A line that is being written
// can be zeros still.
func isName(name []byte) bool { return len(name) > 0 && bytes.IndexByte(name, 0) < 0 }
