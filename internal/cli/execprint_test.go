package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWatchText wants a line for each event, whose columns are those of the heads and, in a
// terminal, whole.
func TestWatchText(t *testing.T) {
	for _, width := range []int{0, 60, 90, 200} {
		for _, exits := range []bool{false, true} {
			text := watchText{width: width, exits: exits}
			for i, ev := range watchEvents(t) {
				lines := strings.Split(string(text.append(nil, ev)), "\n")
				if i == 0 {
					lines = lines[1:] // the heads
				}
				if len(lines) != 2 || lines[1] != "" {
					t.Fatalf("%d lines: %q", len(lines), lines)
				}
				line := lines[0]
				if !strings.HasPrefix(line, ev.Time.Local().Format("15:04:05.000000")) || !utf8.ValidString(line) {
					t.Errorf("%q", line)
				}
				if id := "15dfff3239aa7c3"; ev.Program != nil && !ev.Program.ID.IsZero() && !strings.Contains(line, id) {
					t.Errorf("no %s in a terminal of %d: %s", id, width, line)
				}
				if long := utf8.RuneCountInString(line); width >= 110 && long > width {
					t.Errorf("%d characters, in a terminal of %d: %s", long, width, line)
				}
			}
		}
	}
}
