package lookupprint

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/symbol"
)

// ownIndex is an index of this program, and addresses in it.
func ownIndex(t *testing.T) (*symbol.Index, []addr.Virt) {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := symbol.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := f.Index(symbol.IndexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var addresses []addr.Virt
	for p := range x.Pieces() {
		addresses = append(addresses, p.Virt, p.Virt+addr.Virt(p.Size))
		if len(addresses) == 6000 {
			break
		}
	}
	return x, addresses
}

// TestLookupJSON compares what lookup --json prints with what encoding/json makes of
// the same frames.
func TestLookupJSON(t *testing.T) {
	x, addresses := ownIndex(t)
	var in strings.Builder
	for _, v := range addresses {
		in.WriteString(v.String() + "\n")
	}
	var out bytes.Buffer
	p := NewPrinter(&out, x, Style{JSON: true, Virtual: true}, nil)
	defer p.Close()
	if err := p.PrintAll(strings.NewReader(in.String())); err != nil {
		t.Fatal(err)
	}
	for _, v := range addresses {
		line, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		r := x.LookupVirt(v)
		want := map[string]any{"version": 2, "virtual": v}
		if len(r.Frames) > 0 {
			want["frames"], want["symbol_source"] = FrameRecords(r.Frames), r.Source.String()
		} else {
			want["symbol_reason"] = r.Reason
		}
		if got := normal(t, line); got != normal(t, encode(t, want)) {
			t.Fatalf("%s\nshould be\n%s", line, encode(t, want))
		}
	}
	if out.Len() > 0 {
		t.Errorf("and %s", out.Bytes())
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// normal returns JSON with the fields of objects in the order of their names.
func normal(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(encode(t, v))
}

// TestLookupAnswersAtOnce asks for an address and waits for the answer before it asks
// for the next, whose digits come in two parts.
func TestLookupAnswersAtOnce(t *testing.T) {
	x, addresses := ownIndex(t)
	question, ask := io.Pipe()
	read, answer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		p := NewPrinter(answer, x, Style{Virtual: true}, nil)
		defer p.Close()
		done <- p.PrintAll(question)
		answer.Close()
	}()
	buf := make([]byte, 64<<10)
	for _, v := range addresses[:100] {
		text := v.String()
		io.WriteString(ask, text[:5])
		io.WriteString(ask, text[5:]+" ")
		n, err := read.Read(buf)
		if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, text+"  ") || !strings.HasSuffix(got, "\n") {
			t.Fatalf("%s: %q, %v", text, got, err)
		}
	}
	ask.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestParseOffset(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "0x1f": 0x1f, "0XAbCdEf": 0xabcdef, "ffffffffffffffff": 1<<64 - 1, "0x00000000000000000001": 1,
	} {
		if n, err := ParseOffset([]byte(text)); err != nil || n != want {
			t.Errorf("%q: %#x, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "0x", "x1", "1 ", "g", "-1", "1_0", "0x0x1", "10000000000000000", "@", "`", "/", ":"} {
		if n, err := ParseOffset([]byte(text)); err == nil {
			t.Errorf("%q: %#x", text, n)
		}
	}
}

// TestLongOffset gives lookup an offset without an end.
func TestLongOffset(t *testing.T) {
	x, _ := ownIndex(t)
	p := NewPrinter(io.Discard, x, Style{}, nil)
	if err := p.PrintAll(strings.NewReader(strings.Repeat("0", 1<<20))); err != errLongOffset {
		t.Error(err)
	}
}
