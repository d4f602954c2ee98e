package columns

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"hallmark/reason"
	"hallmark/symbol"
)

func example() (*Question, *Answer) {
	q := &Question{WaitMS: 5, Files: []File{{ID: "00", Addresses: []uint64{1, 1, 500, 1 << 60}}, {ID: "11", Virtual: true}}}
	b := NewBuilder()
	frames := []symbol.Frame{
		{Func: "a::b", Linkage: "_ZN1a1bEv", File: "/x.c", Line: 3, Column: 2, Start: 1, Inlined: true, Lang: symbol.LangCPlusPlus},
		{Func: "main", Linkage: "main", Symbol: "main.cold", Local: true},
	}
	one, two := b.Chain(frames), b.Chain(frames[1:])
	b.Files = []FileAnswer{{Code: "aa", Chains: []uint64{one, one, two, 0}, From: []uint64{1, 1, 3, b.Reason(reason.NoSymbol)}}, {Why: "pending"}}
	return q, &b.Answer
}

func TestRoundTrip(t *testing.T) {
	q, a := example()
	asked, err := ParseQuestion(q.Append(nil), 4)
	if err != nil || !reflect.DeepEqual(asked, q) {
		t.Errorf("%+v, want %+v: %v", asked, q, err)
	}
	got, err := ParseAnswer(a.Append(nil), q)
	if err != nil {
		t.Fatal(err)
	}
	r := got.Results(0)
	if len(r) != 4 || len(r[0].Frames) != 2 || r[0].Frames[0].Func != "a::b" || !r[0].Frames[0].Inlined || r[2].Frames[0].Symbol != "main.cold" || r[3].Reason != reason.NoSymbol || got.Results(1) != nil {
		t.Errorf("%+v", r)
	}
	if len(got.Lengths) != 2 || len(got.Frames) != 2 {
		t.Errorf("%d chains, %d frames", len(got.Lengths), len(got.Frames))
	}
	if _, err := ParseQuestion(q.Append(nil), 3); err == nil {
		t.Error("4 addresses where 3 are allowed")
	}
}

// TestParts sends an answer in parts, which are one message, and one that ends with an error.
func TestParts(t *testing.T) {
	q := &Question{}
	whole, parted := NewBuilder(), NewBuilder()
	var out []byte
	for i := range 20 {
		q.Files = append(q.Files, File{ID: "00", Addresses: []uint64{1, 2}})
		for _, b := range []*Builder{whole, parted} {
			name := []string{"one", "two", "three"}[i%3]
			c := b.Chain([]symbol.Frame{{Func: name, Linkage: name, Line: i / 6}, {Func: "main", Linkage: "main"}})
			b.Files = append(b.Files, FileAnswer{Code: "aa", Chains: []uint64{c, 0}, From: []uint64{1, b.Reason(reason.NoSymbol)}})
		}
		if i%4 == 0 {
			out = parted.Part(out)
		}
	}
	out = parted.Part(parted.Part(out)) // the last one has nothing
	got, err := ParseAnswer(out, q)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseAnswer(whole.Append(nil), q)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v: %v", got, want, err)
	}
	if _, err := ParseAnswer(AppendError(out, "the store\x1b[2J is gone"), q); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "is gone") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("an answer that ended: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	q, a := example()
	f.Add(q.Append(nil))
	f.Add(a.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := ParseQuestion(b, 1000); err == nil {
			if again, err := ParseQuestion(q.Append(nil), 1000); err != nil || len(again.Files) != len(q.Files) {
				t.Errorf("%+v, %v", again, err)
			}
		}
		if a, err := ParseAnswer(b, q); err == nil {
			for i := range a.Files {
				_ = a.Results(i)
			}
		}
	})
}
