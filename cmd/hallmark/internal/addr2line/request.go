package addr2line

import (
	"errors"
	"strconv"
	"strings"

	"hallmark/buildid"
)

// command says what is asked for.
type command uint8

const (
	commandCode command = iota
	commandData
	commandFrame
)

// A request is a line of llvm-symbolizer's protocol, or an argument in its place.
type request struct {
	command  command
	file     string
	identity buildid.ID // of the file, if it is named so
	number   uint64     // address, or offset from the symbol
	symbol   string     // "" if number is an address
	isParsed bool
}

// moduleName returns what the answer calls the file.
func (r *request) moduleName() string {
	if r.identity.IsZero() {
		return r.file
	}
	return strings.ToUpper(r.identity.String())
}

// Why a request cannot be understood, in llvm-symbolizer's words.
var (
	errTwoPrefixes  = errors.New("duplicate input file specification prefix")
	errNoFileBehind = errors.New("must be followed by an input file")
	errNoIDBehind   = errors.New("must be followed by a hash")
	errFileGiven    = errors.New("input file has already been specified")
	errQuotes       = errors.New("unbalanced quotes in input file name")
	errBadID        = errors.New("wrong format of build-id")
	errNoFile       = errors.New("no input filename has been specified")
	errNoAddress    = errors.New("no module offset has been specified")
	errNotNumber    = errors.New("expected a number as module offset")
)

// The characters that separate words, and those that are ignored in front of them.
const (
	requestBreaks = " \n\r"
	requestBlanks = " \t\n\v\f\r"
)

// parse reads a request. r has the command line's words on the file already. base
// is that of numbers: 16, or 0 for what their prefix says. If there is an error, r says
// as much as was understood.
func (r *request) parse(line string, base int) error {
	for i, prefix := range []string{"CODE ", "DATA ", "FRAME "} {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			r.command, line = command(i), rest
			break
		}
	}
	line, err := r.parseFile(line)
	if err != nil {
		return err
	}
	line = strings.Trim(line, requestBlanks)
	if line == "" {
		return errNoAddress
	}
	if end := strings.IndexAny(line, requestBreaks); end >= 0 {
		line = line[:end]
	}
	return r.parseAddress(line, base)
}

// parseFile reads what names the file, if it is there, and returns the rest.
func (r *request) parseFile(line string) (rest string, err error) {
	line = strings.TrimLeft(line, requestBlanks)
	given := r.file != "" || !r.identity.IsZero()
	line, isFile := strings.CutPrefix(line, "FILE:")
	line, isID := strings.CutPrefix(line, "BUILDID:")
	if !isFile && !isID {
		if !given {
			if r.file, line = nextWord(line); r.file == "" {
				return line, errNoFile
			}
		}
		return line, nil
	}
	line = strings.TrimLeft(line, requestBlanks)
	switch {
	case isFile && isID, strings.HasPrefix(line, "FILE:"), strings.HasPrefix(line, "BUILDID:"):
		return line, errTwoPrefixes
	case line == "" && isFile:
		return line, errNoFileBehind
	case line == "":
		return line, errNoIDBehind
	case given:
		return line, errFileGiven
	}
	name, line := nextWord(line)
	if name == "" {
		return line, errQuotes
	}
	if isFile {
		r.file = name
		return line, nil
	}
	var ok bool
	if r.identity, ok = parseIdentity(name); !ok {
		return line, errBadID
	}
	return line, nil
}

// nextWord returns the first word of a line, which may be in quotes, and what is
// behind it. The word is empty if its quote has no end.
func nextWord(line string) (word, rest string) {
	if line != "" && (line[0] == '"' || line[0] == '\'') {
		word, rest, ok := strings.Cut(line[1:], line[:1])
		if !ok {
			return "", line
		}
		return word, rest
	}
	if end := strings.IndexAny(line, requestBreaks); end >= 0 {
		return line[:end], line[end:]
	}
	return line, ""
}

// parseAddress reads an address: a number, or a symbol with or without an offset.
func (r *request) parseAddress(text string, base int) error {
	digits := text
	if base == 16 {
		digits = strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X")
	}
	var ok bool
	if r.number, ok = parseNumber(digits, base); ok {
		r.isParsed = true
		return nil
	}
	if digits == "" || text[0] >= '0' && text[0] <= '9' {
		return errNotNumber
	}
	r.symbol, r.number, r.isParsed = text, 0, true
	if plus := strings.LastIndexByte(text, '+'); plus > 0 {
		if offset, ok := parseNumber(text[plus+1:], 0); ok {
			r.symbol, r.number = text[:plus], offset
		}
	}
	return nil
}

// parseNumber reads a number as LLVM's StringRef::getAsInteger does.
func parseNumber(s string, base int) (uint64, bool) {
	if strings.Contains(s, "_") {
		return 0, false // strconv knows it as a separator
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}
