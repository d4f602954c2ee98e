package perfdata

import (
	"bytes"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/quick"
)

func fileAsText(t testing.TB, data []byte, opts ReaderOptions) string {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	if err := WriteText(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func textAsFile(t testing.TB, text string, opts WriterOptions) []byte {
	t.Helper()
	var f memFile
	w, err := NewWriter(&f, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := ReadText(strings.NewReader(text), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return f.data
}

// TestTextOfRecordings turns recordings into text, the text into a file in the other
// byte order, and that into text again.
func TestTextOfRecordings(t *testing.T) {
	for _, rec := range recordings[:6] {
		t.Run(rec.name, func(t *testing.T) {
			data, err := os.ReadFile(perfRecord(t, false, rec.args...))
			if err != nil {
				t.Fatal(err)
			}
			want := fileAsText(t, data, ReaderOptions{})
			got := fileAsText(t, textAsFile(t, want, WriterOptions{BigEndian: true, InOrder: true}), ReaderOptions{})
			// A copy is not compressed, and always says when its samples are from.
			// It always has the size of a build ID, which perf leaves out of some records.
			differs := regexp.MustCompile(` (FirstSample=\w+ LastSample=\w+|Compression=\{[^}]*\})|(?:HeaderBuildID \{)Misc=\w+`)
			compareLines(t, strings.Split(differs.ReplaceAllString(got, ""), "\n"), strings.Split(differs.ReplaceAllString(want, ""), "\n"))
			if lines := strings.Count(want, "\n"); lines < 20 {
				t.Errorf("%d lines only", lines)
			}
		})
	}
}

// TestTextOfEveryKind gives records of every kind any content.
func TestTextOfEveryKind(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, make := range textKinds {
		for range 50 {
			want := make()
			fillValue(random, reflect.ValueOf(want).Elem())
			text := Text(want)
			got, err := ParseText(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s:\ngot  %+v\nwant %+v", name, got, want)
			}
		}
	}
}

// fillValue sets what the text has, to anything.
func fillValue(random *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous || inText(f) {
				fillValue(random, v.Field(i))
			}
		}
	case reflect.Slice:
		if n := random.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fillValue(random, v.Index(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fillValue(random, v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{"", "a b", `"}`, "[x]=", "\x00\xff\n"}[random.IntN(5)])
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Int32:
		v.SetInt(int64(int32(random.Uint32())))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(random.Uint64() >> random.IntN(64) & (1<<v.Type().Bits() - 1))
	}
}

func TestTextErrors(t *testing.T) {
	for text, want := range map[string]string{
		"Nothing {}":                   `no kind of record: "Nothing"`,
		"Sample":                       "expected {",
		"Sample {PID=x}":               "invalid syntax",
		"Sample {PID=99999999999}":     "out of range",
		"Sample {Nothing=1}":           `a field of Sample instead of "Nothing"`,
		"Sample {PID 1}":               "expected =",
		"Sample {PID=1} {":             "expected the end",
		"Sample {Callchain=[1 2":       "expected ]",
		"Comm {Name=abc}":              "expected a quoted string",
		"BPFEvent {Tag=x01}":           "1 bytes, expected 8",
		"HeaderAttr {Attr={Fields=X}}": `no field of samples: "X"`,
		"Malformed {Err=1}":            `instead of "Err"`,
	} {
		if _, err := ParseText(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestSampleTypeText(t *testing.T) {
	if err := quick.Check(func(n uint64) bool {
		got, err := parseFields(SampleType(n).String())
		return err == nil && got == SampleType(n)
	}, nil); err != nil {
		t.Error(err)
	}
	if got := (SampleIP | SampleTID | 1<<40).String(); got != "IP|TID|0x10000000000" {
		t.Error(got)
	}
}

func FuzzText(f *testing.F) {
	for _, r := range records {
		f.Add(Text(r.want))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseText(text)
		if err != nil {
			return
		}
		once := Text(r)
		again, err := ParseText(once)
		if err != nil || Text(again) != once {
			t.Errorf("%q: %q, %v", text, once, err)
		}
	})
}
