package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"hallmark/cmd/hallmark/internal/terminal"
	"hallmark/cmd/hallmark/internal/verb"
)

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5":          5 * time.Second,
		"0":          0,
		"0.5":        500 * time.Millisecond,
		".25":        250 * time.Millisecond,
		"5s":         5 * time.Second,
		"1m30s":      90 * time.Second,
		"250ms":      250 * time.Millisecond,
		"-1s":        -time.Second, // for its flag to refuse
		"9000000000": 9e18,
	} {
		if got, err := verb.ParseTime(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "1.2.3", "-5", "5x", "1e3", "inf", "nan", "0x5", "1_0", "9223372037", "99999999999999999999", "s", "5 s"} {
		if got, err := verb.ParseTime(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestPIDList(t *testing.T) {
	var l verb.PIDList
	for _, text := range []string{"1,22", "333"} {
		if err := l.Set(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if l.String() != "1,22,333" {
		t.Errorf("got %v", l)
	}
	for _, text := range []string{"", "0", "-1", "1,,2", "1,", "+1", "1 2", "abc", "99999999999999999999"} {
		if err := l.Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestHelpFitsATerminal wants no line of the help of any command to be longer than that of a
// terminal, most of which have 80 columns.
func TestHelpFitsATerminal(t *testing.T) {
	var check func(cmd *cobra.Command)
	commands := 0
	check = func(cmd *cobra.Command) {
		commands++
		var help strings.Builder
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > terminal.UnknownWidth {
				t.Errorf("%s: %d characters: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRootCommand(&verb.Env{}))
	if commands < len(verbs) {
		t.Errorf("%d commands", commands)
	}
}
