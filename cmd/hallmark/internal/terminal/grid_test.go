package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTableOnATerminal(t *testing.T) {
	newTable := func() *Grid {
		t := &Grid{Columns: []Column{{Right: true}, {Most: 8}, {}}}
		t.Add("n", "binary", "function")
		t.Add("12345", "a very long binary", strings.Repeat("name ", 40))
		t.Add("1", "x", "évil\x1b[31m\nname\t\u202e")
		return t
	}
	for _, width := range []int{0, 10, 40, 80, 500} {
		var out strings.Builder
		newTable().Write(&out, width)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 3 {
			t.Errorf("width %d: %d lines:\n%s", width, len(lines), &out)
		}
		for _, line := range lines {
			if strings.ContainsAny(line, "\x1b\t\u202e") {
				t.Errorf("width %d: %q would move the cursor", width, line)
			}
			if n := utf8.RuneCountInString(line); width >= 40 && n > width {
				t.Errorf("width %d: a line of %d characters: %q", width, n, line)
			}
		}
		if cut := strings.Contains(out.String(), "…"); cut != (width > 0) {
			t.Errorf("width %d: cut %v:\n%s", width, cut, &out)
		}
	}
}

// TestTableGivesRoom wants a table with long cells in its middle to fit, and one that fits to be left alone.
func TestTableGivesRoom(t *testing.T) {
	for _, width := range []int{0, 60, 80, 300} {
		table := &Grid{Columns: []Column{{}, {Gives: true}, {Gives: true}, {}}}
		table.Add("0x55fe6984d139", strings.Repeat("name::", 10), "/usr/src/"+strings.Repeat("dir/", 10)+"file.c:1234", "/usr/bin/program")
		table.Add("0x55fe6984d139", "main", "x.c:1", "/usr/bin/program")
		var out strings.Builder
		table.Write(&out, width)
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("width %d: %d characters: %s", width, n, line)
			}
			if !strings.Contains(line, "/usr/bin/program") {
				t.Errorf("width %d: the last column gave: %s", width, line)
			}
		}
		if cut := strings.Contains(out.String(), "…"); cut != (width == 60 || width == 80) {
			t.Errorf("width %d: cut %v:\n%s", width, cut, &out)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		s    string
		n    int
		want string
	}{
		{"short", 5, "short"},
		{"/usr/lib/libc.so.6", 10, "/us…c.so.6"},
		{"ééééééé", 4, "é…éé"},
		{"long", 1, "…"},
		{"", 1, ""},
	} {
		if got := shorten(test.s, test.n); got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.s, test.n, got, test.want)
		}
	}
}
