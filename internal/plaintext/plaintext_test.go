package plaintext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"plain", "std::vector<int>::push_back(int&&)", "std::vector<int>::push_back(int&&)"},
		{"other scripts", "größe_計算_é", "größe_計算_é"},
		{"escape sequence", "\x1b[2Jmain", "\uFFFD[2Jmain"},
		{"line feed", "main\n0 forged", "main\uFFFD0 forged"},
		{"return", "main\rforged", "main\uFFFDforged"},
		{"backspace and delete", "a\b\x7f", "a\uFFFD\uFFFD"},
		{"C1 control", "\u009b2Jmain", "\uFFFD2Jmain"},
		{"C1 control that is no UTF-8", "\x9b2Jmain", "\uFFFD2Jmain"},
		{"separators of lines and paragraphs", "a\u2028b\u2029", "a\uFFFDb\uFFFD"},
		{"embeddings", "\u202aa\u202bb\u202cc\u202dd\u202e", "\uFFFDa\uFFFDb\uFFFDc\uFFFDd\uFFFD"},
		{"isolates", "\u2066a\u2067b\u2068c\u2069", "\uFFFDa\uFFFDb\uFFFDc\uFFFD"},
		{"marks of direction", "\u200ea\u200fb\u061c", "\uFFFDa\uFFFDb\uFFFD"},
		{"no width", "a\u200bb\ufeffc\u00ad", "a\uFFFDb\uFFFDc\uFFFD"},
		{"tab and wide spaces", "a\tb\u00a0c\u3000d", "a\uFFFDb\uFFFDc\uFFFDd"},
		{"damaged", "a\xffb\xc3", "a\uFFFDb\uFFFD"},
	} {
		if got := Line(test.in); got != test.want {
			t.Errorf("%s: %+q became %+q, want %+q", test.name, test.in, got, test.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"/usr/bin/größe 1":      "/usr/bin/größe 1",
		"/tmp/a\nforged":        `"/tmp/a\nforged"`,
		"/tmp/\x1b[2J\x9b\"":    `"/tmp/\x1b[2J\x9b\""`,
		"/tmp/\u202egpj.exe":    `"/tmp/\u202egpj.exe"`,
		"/tmp/\u009b\u2028\xff": `"/tmp/\u009b\u2028\xff"`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("%+q became %s, want %s", in, got, want)
		}
	}
}

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"":                     `""`,
		"/opt/my program":      "/opt/my program",
		"/opt/two  blanks":     `"/opt/two  blanks"`,
		"/opt/end ":            `"/opt/end "`,
		" start":               `" start"`,
		"/tmp/x [deleted]":     `"/tmp/x [deleted]"`,
		"/tmp/x (inferred)":    `"/tmp/x (inferred)"`,
		"/tmp/x [1] y (2) z":   "/tmp/x [1] y (2) z",
		"[vdso]":               "[vdso]",
		"(sd-pam)":             "(sd-pam)",
		"/tmp/a\nforged":       `"/tmp/a\nforged"`,
		`"/tmp/a\nforged"`:     `"\"/tmp/a\\nforged\""`,
		"/tmp/\u202egpj.exe":   `"/tmp/\u202egpj.exe"`,
		"/usr/bin/größe \"1\"": `/usr/bin/größe "1"`,
	} {
		if got := Name(in); got != want {
			t.Errorf("%+q became %s, want %s", in, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"one line\n":                   "one line",
		"a\nhallmark: all is well":     "a\n  hallmark: all is well",
		"a\r\nb\x1b[2J":                "a\uFFFD\n  b\uFFFD[2J",
		"a\n\nb":                       "a\n\n  b",
		"goroutine 1:\n\tmain.go:12\n": "goroutine 1:\n      main.go:12",
	} {
		if got := Text(in); got != want {
			t.Errorf("%+q became %+q, want %+q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2J\n\u202e\x9b")
	f.Fuzz(func(t *testing.T, s string) {
		for i, line := range strings.Split(Text(s), "\n") {
			if i > 0 && line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%+q: a line of its own: %+q", s, line)
			}
			for _, r := range line {
				if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) {
					t.Errorf("%+q: %+q is left", s, r)
				}
			}
			if !utf8.ValidString(line) || Line(line) != line {
				t.Errorf("%+q: %+q is not plain", s, line)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add("a\x1b[2J\n\u202e\x9b\u009b\x7f\U000e0041\u00a0größe")
	f.Fuzz(func(t *testing.T, s string) {
		var out bytes.Buffer
		enc := json.NewEncoder(JSON(&out))
		enc.SetEscapeHTML(false)
		if err := enc.Encode(map[string]string{s: s}); err != nil {
			t.Fatal(err)
		}
		if line := strings.TrimSuffix(out.String(), "\n"); Line(line) != line {
			t.Errorf("%+q became %+q", s, line)
		}
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Errorf("%+q became %+q: %v", s, out.String(), err)
		}
		for key, value := range got {
			if utf8.ValidString(s) && (key != s || value != s) {
				t.Errorf("%+q became %+q", s, value)
			}
		}
	})
}
