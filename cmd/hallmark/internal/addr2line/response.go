package addr2line

import (
	"strings"

	"hallmark/internal/regular"
)

// Limits on response files: how many are read, and how large one may be.
const (
	maxResponseFiles = 100
	maxResponseSize  = 1 << 20
)

// expandResponseFiles puts the words of FILE in place of each argument @FILE. One that
// cannot be read stays what it is. Words are separated by blanks, may be quoted, and a
// backslash takes the meaning from what follows it.
func expandResponseFiles(args []string) []string {
	var expanded []string
	left := maxResponseFiles
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, ok := strings.CutPrefix(arg, "@")
		if !ok || left == 0 {
			expanded = append(expanded, arg)
			continue
		}
		text, ok := readResponse(name)
		if !ok {
			expanded = append(expanded, arg)
			continue
		}
		left--
		args = append(splitWords(text), args...)
	}
	return expanded
}

func readResponse(name string) (string, bool) {
	text, err := regular.ReadFile(name, maxResponseSize)
	return string(text), err == nil
}

// splitWords splits text as a shell would, without its expansions.
func splitWords(text string) []string {
	var words []string
	var word []byte
	started := false
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			word, started = append(word, text[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, started = c, true
		case quote == 0 && isBlank(c):
			if started {
				words = append(words, string(word))
			}
			word, started = word[:0], false
		default:
			word, started = append(word, c), true
		}
	}
	if started {
		words = append(words, string(word))
	}
	return words
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
