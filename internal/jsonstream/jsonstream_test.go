package jsonstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"hallmark/internal/plaintext"
)

// wanted is what encoding/json writes.
func wanted(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func written(t *testing.T, write func(w *Writer)) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestNumbers compares numbers of all magnitudes with those of encoding/json.
func TestNumbers(t *testing.T) {
	floats := []float64{0, math.Copysign(0, -1), 1e-6, 1e-7, -1e-6, 999999999999999999999, 1e21, -1e21, 1e22, math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 1.5}
	ints := []int64{0, -1, math.MaxInt64, math.MinInt64}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		if f := math.Float64frombits(random.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			floats = append(floats, f)
		}
		n := int64(random.Uint64()) >> random.IntN(64)
		floats = append(floats, float64(n), float64(n)/1e6, math.Nextafter(1e-6, random.Float64()), math.Nextafter(1e21, 1e22*random.Float64()))
		ints = append(ints, n)
	}
	for _, f := range floats {
		if got, want := written(t, func(w *Writer) { w.Float(f) }), wanted(t, f); got != want {
			t.Errorf("%b: %s, want %s", f, got, want)
		}
	}
	for _, n := range ints {
		if got, want := written(t, func(w *Writer) { w.Int(n) }), wanted(t, n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestPieces puts a value together that is longer than what is held.
func TestPieces(t *testing.T) {
	type all struct {
		Name string    `json:"name"`
		List []float64 `json:"list"`
	}
	v := all{Name: "<a & b>\n\u2028\xff" + strings.Repeat("long ", 1<<15)}
	for i := range 1 << 15 {
		v.List = append(v.List, float64(i)/8)
	}
	got := written(t, func(w *Writer) {
		w.Field(`{"name":`, v.Name)
		w.Text(`,"list":[`)
		for i, f := range v.List {
			w.Comma(i)
			w.Float(f)
		}
		w.Text("]}")
	})
	if want := wanted(t, v); got != want {
		t.Errorf("%d bytes are not the %d of encoding/json", len(got), len(want))
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestErrors(t *testing.T) {
	w := NewWriter(full{})
	for range 1 << 17 {
		w.Int(1)
	}
	if err := w.Flush(); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
	w = NewWriter(new(bytes.Buffer))
	w.Float(math.NaN())
	w.Text("1")
	var unsupported *json.UnsupportedValueError
	if err := w.Flush(); !errors.As(err, &unsupported) {
		t.Errorf("error %v for what is no number", err)
	}
}

// TestTerminalGetsPlainText writes names by which others steer a terminal. A program that reads
// the JSON gets the names as they are.
func TestTerminalGetsPlainText(t *testing.T) {
	const name = "\x1b[2Jmain\u009b2J\x7f\n\u202e\u2066\u2028\U000e0041größe"
	text := written(t, func(w *Writer) { w.Field(`{"name":`, name); w.Text("}") })
	if plaintext.Line(text) != text {
		t.Errorf("a terminal gets %+q", text)
	}
	var got struct{ Name string }
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Name != name {
		t.Errorf("%s is %+q, %v; want %+q", text, got.Name, err, name)
	}
}
