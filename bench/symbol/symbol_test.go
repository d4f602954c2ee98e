package main

import (
	"bytes"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Tasks run this program to be measured.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == measuredArg {
		if err := printMeasured(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestTaskCountsOnlyItsProgram(t *testing.T) {
	kept := bytes.Repeat([]byte{1}, 256<<20)
	small, err := task{args: []string{"true"}}.run()
	if err != nil {
		t.Fatal(err)
	}
	if small.peak <= 0 || small.peak > 64<<20 {
		t.Errorf("true took %d bytes beside our %d", small.peak, len(kept))
	}
	if _, err := (task{args: []string{"false"}, asks: true}).run(); err != nil {
		t.Errorf("a program that found nothing failed: %v", err)
	}
	if _, err := (task{args: []string{"false"}}).run(); err == nil {
		t.Error("a program that failed did not")
	}
	if _, err := (task{args: []string{"sh", "-c", "echo why >&2; exit 2"}}).run(); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a program that failed: %v", err)
	}
	runtime.KeepAlive(kept)
}

func TestReadAnswers(t *testing.T) {
	inlined := answer{{name: "callee", file: "a.h", line: 7}, {name: "caller", file: "a.c", line: 12}}
	known := answer{{name: "f", file: "b.c", line: 3}}
	for _, test := range []struct {
		name, text string
		read       func(string) (map[uint64]answer, error)
	}{
		{
			"llvm-symbolizer", "0x10\ncallee\n/src/a.h:7:3\ncaller\na.c:12:0\n\n0x20\n??\n??:0:0\n\n0x30\nf\nb.c:3:1\n\n",
			func(s string) (map[uint64]answer, error) { return readBlocks(strings.NewReader(s)) },
		},
		{
			"a driver", "0x10\ncallee\n/src/a.h:7:3\ncaller\na.c:12:0\n\n0x20\n\n0x30\nf\nb.c:3:1\n\n",
			func(s string) (map[uint64]answer, error) { return readBlocks(strings.NewReader(s)) },
		},
		{
			"GNU addr2line", "0x0000000000000010\ncallee\n/src/a.h:7 (discriminator 2)\ncaller\na.c:12\n0x20\n??\n??:?\n0x30\nf\nb.c:3\n",
			func(s string) (map[uint64]answer, error) { return readLines(strings.NewReader(s)) },
		},
		{
			"eu-addr2line", "0x10\ncallee inlined at a.c:12:5 in caller\n/src/a.h:7:3\ncaller\na.c:12:5\n0x20\n??\n??:0\n0x30\nf\nb.c:3:1\n",
			func(s string) (map[uint64]answer, error) { return readLines(strings.NewReader(s)) },
		},
	} {
		got, err := test.read(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for at, want := range map[uint64]answer{0x10: inlined, 0x20: nil, 0x30: known} {
			if answer, ok := got[at]; !ok || !slices.Equal(answer, want) {
				t.Errorf("%s says %v of %#x, want %v", test.name, answer, at, want)
			}
		}
	}
}

func TestReadAnswersRefuses(t *testing.T) {
	for _, text := range []string{"f\nb.c:3:1\n", "0x10\nf\n", "0x10\nf\nnowhere\n"} {
		if got, err := readBlocks(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestConsensusAndDisputes(t *testing.T) {
	f, g := answer{{file: "f.c", line: 1}}, answer{{file: "g.c", line: 1}}
	s := said{
		self:   {1: f, 2: f, 3: f, 4: f},
		"llvm": {1: f, 2: g, 3: g, 4: nil},
		"eu":   {1: f, 2: g, 3: f, 4: nil},
	}
	peers := []string{"llvm", "eu"}
	if theirs, ours := s.consensus(peers); theirs != 3 || ours != 1 {
		t.Errorf("they agree on %d, and we on %d of them, want 3 and 1", theirs, ours)
	}
	want := []string{"hallmark · eu = llvm", "hallmark = eu · llvm"}
	var got []string
	for _, d := range s.disputes(append(peers, self)) {
		got = append(got, d.groups)
	}
	if !slices.Equal(got, want) {
		t.Errorf("disputes %q, want %q", got, want)
	}
}

func TestCompareCountsNames(t *testing.T) {
	s := said{
		self: {
			1: {{name: "f", also: "f.cold", file: "f.c", line: 1}},
			2: {{name: "f", file: "f.c", line: 2}},
			3: {{name: "f", file: "f.c", line: 3}},
		},
		"peer": {
			1: {{name: "f.cold", file: "f.c", line: 1}},
			2: {{name: "g", file: "f.c", line: 2}},
			3: {{name: "f", file: "f.c", line: 4}},
		},
	}
	if c := s.compare("peer"); c.asked != 3 || c.same != 2 || c.renamed != 1 {
		t.Errorf("of %d addresses %d are the same and %d renamed, want 3, 2 and 1", c.asked, c.same, c.renamed)
	}
}

func TestUniformStaysInText(t *testing.T) {
	text := union([]span{{100, 110}, {20, 30}, {105, 120}, {30, 31}})
	if want := []span{{20, 31}, {100, 120}}; !slices.Equal(text, want) {
		t.Fatalf("union is %v, want %v", text, want)
	}
	seen := map[uint64]bool{}
	for _, a := range uniform(rand.New(rand.NewPCG(1, 2)), text, 2000) {
		seen[a] = true
		if a < 20 || a >= 31 && a < 100 || a >= 120 {
			t.Fatalf("%d is outside", a)
		}
	}
	if len(seen) != 31 {
		t.Errorf("%d of 31 addresses were chosen", len(seen))
	}
}

func TestParsePasses(t *testing.T) {
	if d, err := parsePasses("5000\n300 17\n200 17\n250 17\n"); err != nil || d != 200*time.Nanosecond {
		t.Errorf("fastest pass is %v, %v", d, err)
	}
	for _, out := range []string{"", "5000\n", "5000\nslow\n"} {
		if d, err := parsePasses(out); err == nil {
			t.Errorf("%q was read as %v", out, d)
		}
	}
}

func TestTableAlignsNumbers(t *testing.T) {
	tab := (&report{}).table("T", "name", "n", "at")
	tab.row("a", 1, "0x10")
	tab.row("b", "", "0x20")
	want := "T:\n\n| name | n | at |\n|---|--:|---|\n| a | 1 | 0x10 |\n| b |  | 0x20 |\n"
	if got := tab.String(); got != want {
		t.Errorf("table is\n%s, want\n%s", got, want)
	}
}
