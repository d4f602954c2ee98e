package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// A frame is what is said of one function at an address.
type frame struct {
	name string // as the linker saw it
	also string // the ELF symbol's name, where it is given beside
	file string // without its directories
	line int
}

// An answer is the frames at an address, innermost first; none if nothing is known
// of its line.
type answer []frame

// place returns what answers are compared by: the number of frames, the file and the
// line of each.
func (a answer) place() string {
	var b strings.Builder
	for _, f := range a {
		fmt.Fprintf(&b, "%s:%d ", f.file, f.line)
	}
	return b.String()
}

// normal returns the answer as all programs would have given it: one of several
// ways to say that the line is not known is that there is no frame.
func (a answer) normal() answer {
	if len(a) == 1 && a[0].line == 0 {
		return nil
	}
	return a
}

// readBlocks reads answers as llvm-symbolizer prints them with
// --output-style=LLVM -a: the address, two lines for each frame, an empty line.
func readBlocks(r io.Reader) (map[uint64]answer, error) {
	return readAnswers(r, func(line string) bool { return line == "" })
}

// readLines reads answers as addr2line prints them with -a -f -i: the address, two
// lines for each frame, and then the next address.
func readLines(r io.Reader) (map[uint64]answer, error) {
	return readAnswers(r, func(string) bool { return false })
}

func readAnswers(r io.Reader, isEnd func(line string) bool) (map[uint64]answer, error) {
	answers := map[uint64]answer{}
	var at uint64
	var frames answer
	open := false
	end := func() {
		if open {
			answers[at] = frames.normal()
		}
		frames, open = nil, false
	}
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		switch {
		case isEnd(line):
			end()
		case isAddress(line):
			end()
			at, _ = strconv.ParseUint(line[2:], 16, 64)
			open = true
		case !open:
			return nil, fmt.Errorf("%q is not an address", line)
		default:
			if !s.Scan() {
				return nil, fmt.Errorf("no place after %q", line)
			}
			f, err := parseFrame(line, s.Text())
			if err != nil {
				return nil, err
			}
			frames = append(frames, f)
		}
	}
	end()
	return answers, s.Err()
}

func isAddress(line string) bool {
	digits, ok := strings.CutPrefix(line, "0x")
	_, err := strconv.ParseUint(digits, 16, 64)
	return ok && err == nil
}

// parseFrame reads the lines with the function and with its place: file:line, perhaps
// followed by a column or by a discriminator.
func parseFrame(function, place string) (frame, error) {
	function, _, _ = strings.Cut(function, " inlined at ") // eu-addr2line
	place, _, _ = strings.Cut(place, " (discriminator ")
	file, rest, ok := cutLast(place)
	if !ok {
		return frame{}, fmt.Errorf("%q is not a place", place)
	}
	if before, line, ok := cutLast(file); ok && isNumber(line) {
		file, rest = before, line
	}
	f := frame{name: function, file: base(file)}
	f.line, _ = strconv.Atoi(rest) // ? for a line that is not known
	return f, nil
}

// base returns the last element of a path, ?? of none.
func base(file string) string {
	if file == "" {
		return "??"
	}
	return path.Base(file)
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}
