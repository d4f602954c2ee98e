package buildid_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"hallmark/buildid"
)

var texts = []struct {
	text string
	kind buildid.Kind
	data string
}{
	{"00", buildid.GNU, "\x00"},
	{"0000000000000000", buildid.GNU, "\x00\x00\x00\x00\x00\x00\x00\x00"},
	{"15dfff3239aa7c3b16a71e6b2e3b6e4009dab998", buildid.GNU,
		"\x15\xdf\xff\x32\x39\xaa\x7c\x3b\x16\xa7\x1e\x6b\x2e\x3b\x6e\x40\x09\xda\xb9\x98"},
	{strings.Repeat("ab", 255), buildid.GNU, strings.Repeat("\xab", 255)},
	{"go:x", buildid.Go, "x"},
	{"go:go:htl:", buildid.Go, "go:htl:"},
	{"go:kOo6/BmXH_-7Ygw/VH", buildid.Go, "kOo6/BmXH_-7Ygw/VH"},
	{"htl:00112233445566778899aabbccddeeff", buildid.HTL,
		"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"},
}

func TestParse(t *testing.T) {
	for _, test := range texts {
		id, err := buildid.Parse(test.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", test.text, err)
			continue
		}
		if id.Kind() != test.kind || string(id.Bytes()) != test.data || id.String() != test.text || id.IsZero() {
			t.Errorf("Parse(%q) is %v %q, written %q", test.text, id.Kind(), id.Bytes(), id)
		}
		if text, err := id.AppendText([]byte("x")); err != nil || string(text) != "x"+test.text {
			t.Errorf("AppendText is %q, %v", text, err)
		}
		made, err := buildid.New(test.kind, []byte(test.data))
		if err != nil || made != id {
			t.Errorf("New(%v, %q) is %q, %v", test.kind, test.data, made, err)
		}
	}
}

func TestParseUpperCase(t *testing.T) {
	upper, err := buildid.Parse("ABCDEF")
	lower, err2 := buildid.Parse("abcdef")
	if err != nil || err2 != nil || upper != lower {
		t.Errorf("%q and %q, %v, %v", upper, lower, err, err2)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0", "0g", " 00", "00 ", "0x00", "gnu:00", strings.Repeat("ab", 256), strings.Repeat("a", 1<<20),
		"go:", "go:a b", "go:a\n", "go:\x00", "go:é", "go:" + strings.Repeat("a", 256),
		"htl:", "htl:00", "htl:00112233445566778899aabbccddeeff00", "HTL:00112233445566778899aabbccddeeff",
	} {
		id, err := buildid.Parse(text)
		if err == nil || !id.IsZero() {
			t.Errorf("Parse(%.40q) is %q", text, id)
		} else if len(err.Error()) > 300 {
			t.Errorf("Parse of %d bytes has an error of %d", len(text), len(err.Error()))
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		kind buildid.Kind
		size int
	}{
		{buildid.None, 0}, {buildid.None, 20}, {buildid.GNU, 0}, {buildid.GNU, 256},
		{buildid.Go, 0}, {buildid.Go, 256}, {buildid.HTL, 15}, {buildid.HTL, 17}, {buildid.HTL + 1, 16},
	} {
		if id, err := buildid.New(test.kind, bytes.Repeat([]byte("a"), test.size)); err == nil || !id.IsZero() {
			t.Errorf("New(%v, %d bytes) is %q", test.kind, test.size, id)
		}
	}
}

// TestNewCopies checks that an ID does not change with the bytes that it was made of.
func TestNewCopies(t *testing.T) {
	data := []byte("0123456789")
	id, err := buildid.New(buildid.GNU, data)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 'x'
	id.Bytes()[1] = 'x'
	if string(id.Bytes()) != "0123456789" {
		t.Errorf("ID became %q", id.Bytes())
	}
}

// TestKindsDiffer checks that the same bytes are not the same identity.
func TestKindsDiffer(t *testing.T) {
	seen := map[buildid.ID]bool{}
	for _, kind := range []buildid.Kind{buildid.GNU, buildid.Go, buildid.HTL} {
		id, err := buildid.New(kind, []byte("0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	if len(seen) != 3 {
		t.Errorf("three kinds make %d identities", len(seen))
	}
}

func TestJSON(t *testing.T) {
	type record struct {
		ID buildid.ID
	}
	for _, test := range texts {
		id, err := buildid.Parse(test.text)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(record{id})
		if err != nil {
			t.Fatal(err)
		}
		var got record
		if err := json.Unmarshal(data, &got); err != nil || got.ID != id {
			t.Errorf("%s comes back as %q, %v", data, got.ID, err)
		}
	}
	var zero record
	data, err := json.Marshal(zero)
	if err != nil || string(data) != `{"ID":""}` {
		t.Errorf("the zero ID is %s, %v", data, err)
	}
	got := record{ID: mustParse(t, "abcd")}
	if err := json.Unmarshal(data, &got); err != nil || !got.ID.IsZero() {
		t.Errorf("the zero ID comes back as %q, %v", got.ID, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"xyz"}`), &got); err == nil {
		t.Error("nonsense was read as an ID")
	}
}

func mustParse(t *testing.T, s string) buildid.ID {
	t.Helper()
	id, err := buildid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
