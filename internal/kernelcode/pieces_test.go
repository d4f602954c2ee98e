package kernelcode

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/symbol"
)

// symbolText is a text like /proc/kallsyms with so many lines, of which some have one address, some none, and
// some are not in order.
func symbolText(r *rand.Rand, lines int) []byte {
	var b bytes.Buffer
	at := uint64(fakeText)
	fmt.Fprintf(&b, "%016x A percpu_thing\n%016x T _text\n%016x T _stext\n", 0, at, at+64)
	for i := range lines {
		if r.IntN(4) > 0 {
			at += 1 + r.Uint64N(300)
		}
		switch r.IntN(20) {
		case 0:
			b.WriteString("damaged line\n\n")
		case 1:
			fmt.Fprintf(&b, "%016x t far_%d\t[mod%d]\n", uint64(inModule)+r.Uint64N(1<<16), i, i%3)
		default:
			fmt.Fprintf(&b, "%016x %c function_%d%s\n", at, "tTWwdDbR"[r.IntN(8)], i, strings.Repeat("_long", r.IntN(4)))
		}
	}
	fmt.Fprintf(&b, "%016x T _etext", at+16)
	return b.Bytes()
}

// answers returns what is known of addresses.
func answers(k *symbol.Kallsyms, addresses []addr.Abs) string {
	var b strings.Builder
	fmt.Fprintln(&b, k.Text(), k.Stext(), k.Etext(), k.Hidden())
	for _, a := range addresses {
		module, ok := k.Module(a)
		fmt.Fprintln(&b, a, k.Lookup(a), module, ok)
	}
	return b.String()
}

// inPieces writes a text in pieces to a file, behind so many other bytes.
func inPieces(t *testing.T, text []byte, behind int) *os.File {
	t.Helper()
	var b bytes.Buffer
	b.Write(make([]byte, behind))
	if err := writePieces(&b, text); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "pieces")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// someAddresses returns addresses in a text, and some below and above all.
func someAddresses(r *rand.Rand, text []byte, n int) []addr.Abs {
	lines := bytes.Split(text, []byte("\n"))
	list := []addr.Abs{fakeText, inProgram, 1<<64 - 1}
	if n > 1 {
		list = append(list, 1, fakeText-1)
	}
	for range n {
		if at := addressOf(lines[r.IntN(len(lines))]); at != 0 {
			list = append(list, addr.Abs(at+r.Uint64N(3)))
		}
	}
	return list
}

// edges returns the addresses where pieces begin, and those beside them.
func edges(t *testing.T, f *os.File, begin int64) (addresses []addr.Abs) {
	t.Helper()
	list, _, err := readList(f, begin)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list[1:] {
		addresses = append(addresses, addr.Abs(p.Start-1), addr.Abs(p.Start), addr.Abs(p.Start+1))
	}
	return addresses
}

// TestPieces wants the answers of pieces to be those of all lines.
func TestPieces(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 0))
		text := symbolText(r, int(seed*500))
		f := inPieces(t, text, int(seed))
		questions := [][]addr.Abs{someAddresses(r, text, 0), someAddresses(r, text, 3), someAddresses(r, text, 100)}
		for edge := range slices.Chunk(edges(t, f, int64(seed)), 1) {
			questions = append(questions, edge)
		}
		for _, addresses := range questions {
			want, err := symbol.ReadKallsymsAt(bytes.NewReader(text), addresses)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readPieces(f, int64(seed), addresses)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := answers(got, addresses), answers(want, addresses); got != want {
				t.Errorf("seed %d: %s\nof all lines:\n%s", seed, got, want)
			}
		}
	}
}

// TestPiecesOfThisKernel does the same with the symbols of the running kernel, and wants few bytes to be read.
func TestPiecesOfThisKernel(t *testing.T) {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Skip(err)
	}
	addresses := someAddresses(rand.New(rand.NewPCG(1, 2)), text, 50)
	want, err := symbol.ReadKallsymsAt(bytes.NewReader(text), addresses)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readPieces(inPieces(t, text, 0), 0, addresses)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := answers(got, addresses), answers(want, addresses); got != want {
		t.Errorf("%s\nof all lines:\n%s", got, want)
	}
}

// TestDamagedPieces changes, cuts and lengthens a file. An answer after that is the truth, if there is one.
func TestDamagedPieces(t *testing.T) {
	text := symbolText(rand.New(rand.NewPCG(3, 4)), 3000)
	f := inPieces(t, text, 8)
	whole, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	addresses := firstOfPiece(t, f, 8)
	k, err := readPieces(f, 8, addresses)
	if err != nil {
		t.Fatal(err)
	}
	want, refused := answers(k, addresses), 0
	for at := 8; at < len(whole); at++ {
		if at > 200 && at%997 != 0 {
			continue
		}
		for bit := range 8 {
			if _, err := f.WriteAt([]byte{whole[at] ^ 1<<bit}, int64(at)); err != nil {
				t.Fatal(err)
			}
			k, err := readPieces(f, 8, addresses)
			if err != nil {
				refused++
			} else if got := answers(k, addresses); got != want {
				t.Errorf("bit %d at %d: %s\nwant\n%s", bit, at, got, want)
			}
		}
		if _, err := f.WriteAt(whole[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 500 {
		t.Errorf("only %d damaged files are refused", refused)
	}
	for what, b := range map[string][]byte{
		"cut off in the list": whole[:40], "cut off in a piece": whole[:len(whole)/2], "cut off by one byte": whole[:len(whole)-1], "nothing": whole[:8],
		"longer": append(bytes.Clone(whole), '\n'), "without pieces": make([]byte, 16), "many pieces": bytes.Repeat([]byte{0xff}, 1<<20),
	} {
		if err := os.WriteFile(f.Name(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readPieces(f, 8, addresses); err == nil {
			t.Errorf("%s: it answers", what)
		}
	}
}

// firstOfPiece returns the address of a function that is the first of a piece. It is alone: with others, more
// pieces are read than its own.
func firstOfPiece(t *testing.T, f *os.File, begin int64) []addr.Abs {
	t.Helper()
	for one := range slices.Chunk(edges(t, f, begin)[3:], 1) {
		if k, err := readPieces(f, begin, one); err == nil && k.Lookup(one[0]).Frames != nil && one[0]&1 == 0 {
			return one
		}
	}
	t.Fatal("no piece begins with a function")
	return nil
}
