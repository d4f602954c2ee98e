package execprint

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWatchText wants a line for each event, whose columns are those of the heads and, in a
// terminal, no longer than a line of it.
func TestWatchText(t *testing.T) {
	for _, width := range []int{0, 60, 80, 90, 100, 200} {
		for _, exits := range []bool{false, true} {
			text := Text{Width: width, Exits: exits}
			for i, ev := range watchEvents(t) {
				lines := strings.Split(string(text.Append(nil, ev)), "\n")
				if i == 0 {
					lines = lines[1:] // the heads
				}
				if len(lines) != 2 || lines[1] != "" {
					t.Fatalf("%d lines: %q", len(lines), lines)
				}
				line := lines[0]
				if !strings.HasPrefix(line, ev.Time.Local().Format("15:04:05.000")) || !utf8.ValidString(line) {
					t.Errorf("%q", line)
				}
				if id := "15dfff3239a"; ev.Program != nil && !ev.Program.ID.IsZero() && !strings.Contains(line, id) {
					t.Errorf("no %s in a terminal of %d: %s", id, width, line)
				}
				if long := utf8.RuneCountInString(line); width >= 80 && long > width {
					t.Errorf("%d characters, in a terminal of %d: %s", long, width, line)
				}
			}
		}
	}
}

func TestFitted(t *testing.T) {
	for _, test := range []struct {
		program, rest string
		n             int
		want          string
	}{
		{"/usr/bin/ls", "", 20, "/usr/bin/ls"},
		{"/usr/bin/ls", "/etc", 16, "/usr/bin/ls /etc"},
		{"/usr/lib/jvm/bin/java", "", 9, "…bin/java"},
		{"/usr/lib/jvm/bin/java", "-jar x.jar", 24, "…jvm/bin/java -jar x.jar"},
		{"/usr/bin/sh", "-c 'make all install'", 20, "…/bin/sh -c 'make a…"},
		{"/opt/größe/größe", "[exit 0]", 17, "…e/größe [exit 0]"},
	} {
		got := fitted(test.program, test.rest, test.n)
		if got != test.want || utf8.RuneCountInString(got) > test.n {
			t.Errorf("fitted(%q, %q, %d) = %q, want %q", test.program, test.rest, test.n, got, test.want)
		}
	}
}
