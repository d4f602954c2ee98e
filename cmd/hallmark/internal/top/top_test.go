package top

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"hallmark/internal/proftest"
	"hallmark/profile"
	"hallmark/profile/summary"
)

func state(t testing.TB) *State {
	t.Helper()
	p := proftest.Mixed()
	profile.NameUnknown(p)
	p.Function[0].Name = "ma\x1b[31min\n"
	sum, err := summary.New(p, summary.Options{SampleType: "samples"})
	if err != nil {
		t.Fatal(err)
	}
	return &State{Target: "the machine", Sum: sum, Round: 3}
}

func press(s *State, keys string) (quit bool) {
	for _, key := range keys {
		quit = s.Key(key)
	}
	return quit
}

// firstLine returns the first line of the table.
func firstLine(s *State) string { return s.Screen(100, 20)[2] }

func TestKeys(t *testing.T) {
	s := state(t)
	if line := firstLine(s); !strings.Contains(line, "step") {
		t.Errorf("by flat the first one is %q", line)
	}
	press(s, "s")
	if line := firstLine(s); !strings.Contains(line, "main") && !strings.Contains(line, `ma\x1b`) {
		t.Errorf("by cum the first one is %q", line)
	}
	press(s, "sb")
	if line := firstLine(s); !strings.Contains(line, proftest.AppID[:10]) || !strings.Contains(line, "/usr/bin/app") {
		t.Errorf("the first binary is %q", line)
	}
	press(s, "p")
	if line := firstLine(s); !strings.HasSuffix(line, " app") {
		t.Errorf("the first process is %q", line)
	}
	press(s, "f/WALK\r")
	if lines := s.Screen(100, 20); !strings.Contains(lines[2], "walk") || strings.TrimSpace(lines[3]) != "" {
		t.Errorf("filtered there are %q", lines)
	}
	press(s, "/wx\x7falk") // while typing no letter is a command
	if s.Filter != "walk" || !s.typing || strings.Contains(s.prompt(100), "help") {
		t.Errorf("the filter is %q", s.Filter)
	}
	press(s, "\x1b")
	if s.Filter != "" || s.typing {
		t.Error("Escape keeps the filter")
	}
	s.Key(Down)
	if s.First != 1 {
		t.Error("Down does not scroll")
	}
	press(s, "kkkk")
	if s.First != 0 {
		t.Error("it scrolls beyond the first line")
	}
	for _, keys := range []string{"q", "\x03", "/ab\x03", "\x04"} {
		if s := state(t); !press(s, keys) {
			t.Errorf("%q does not end it", keys)
		}
	}
}

// TestHelp opens the help and leaves it, by keys that do nothing else and by those that do.
func TestHelp(t *testing.T) {
	for keys, want := range map[string]State{
		"?":          {help: true},
		"h":          {help: true},
		"??":         {},
		"hh":         {},
		"?x":         {},
		"?\x1b":      {},
		"?b":         {Table: Binaries},
		"?p?f":       {Table: Functions},
		"?\t?":       {Table: Binaries, help: true},
		"?s":         {ByCum: true},
		"? ":         {Paused: true},
		"?/ab\r":     {Filter: "ab"},
		"/ab\r?\x1b": {Filter: "ab"},
	} {
		s := state(t)
		press(s, keys)
		if s.Table != want.Table || s.ByCum != want.ByCum || s.Filter != want.Filter || s.Paused != want.Paused || s.help != want.help {
			t.Errorf("%q: table %v, by cum %v, filter %q, paused %v, help %v", keys, s.Table, s.ByCum, s.Filter, s.Paused, s.help)
		}
		screen := strings.Join(s.Screen(100, 20), "\n")
		if isHelp := strings.Contains(screen, "Escape leaves this help"); isHelp != want.help {
			t.Errorf("%q: help %v:\n%s", keys, isHelp, screen)
		}
		if strings.Contains(s.prompt(100), "Escape: back") != want.help {
			t.Errorf("%q: %s", keys, s.prompt(100))
		}
	}
}

// TestScreens wants screens of all sizes that fit, and text that steers no terminal.
func TestScreens(t *testing.T) {
	for _, sum := range []bool{true, false} {
		for table := range Table(len(tableNames)) {
			for _, size := range [][2]int{{1, 1}, {2, 3}, {20, 5}, {80, 24}, {300, 100}} {
				s := state(t)
				s.Table, s.First = table, 1000
				if !sum {
					s.Sum = nil
				}
				for range 2 {
					lines := s.Screen(size[0], size[1])
					if len(lines) > size[1] {
						t.Errorf("%d lines on a screen of %v", len(lines), size)
					}
					for _, line := range lines {
						if utf8.RuneCountInString(line) > size[0] || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
							t.Errorf("on a screen of %v is %q", size, line)
						}
					}
					press(s, "?")
				}
			}
		}
	}
}

// TestNarrowScreen wants the help whole on narrow terminals, and the keys for help and end at the bottom.
func TestNarrowScreen(t *testing.T) {
	words := func(lines []string) string { return strings.Join(strings.Fields(strings.Join(lines, " ")), " ") }
	var whole []string
	for _, entries := range help {
		whole = append(whole, entries...)
	}
	for _, width := range []int{50, 60, 80, 200} {
		s := state(t)
		if last := s.Screen(width, 20)[19]; strings.Contains(last, "…") || !strings.HasSuffix(last, "? help  q ends") {
			t.Errorf("%d columns: the last line is %q", width, last)
		}
		press(s, "?")
		if screen := words(s.Screen(width, 20)[1:]); !strings.HasPrefix(screen, words(whole)) {
			t.Errorf("%d columns: %s", width, screen)
		}
		press(s, "?b")
		if line := firstLine(s); !strings.Contains(line, "/usr/bin/app") {
			t.Errorf("%d columns: %s", width, line)
		}
	}
}

func TestReadKeys(t *testing.T) {
	keys := make(chan rune)
	go readKeys(strings.NewReader("a\x1b[A\x1bOB\x1b[6~\x1b[1;5Cö\xff\x1b"), keys)
	var got []rune
	for key := range keys {
		got = append(got, key)
	}
	if want := []rune{'a', Up, Down, PageDown, 'ö', escape}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteRound(t *testing.T) {
	var out bytes.Buffer
	s := state(t)
	s.WriteRound(&out, 1)
	if text := out.String(); !strings.HasPrefix(text, "hallmark top: the machine, round 3: 18 samples\n") || strings.Count(text, "\n") != 5 || !strings.Contains(text, "coverage: 92.5% identified") {
		t.Errorf("%q", text)
	}
}
