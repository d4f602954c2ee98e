package view

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
)

// broad returns a profile of so many functions with names of so many bytes. Each calls the one
// with the next number, and the first ones cost most.
func broad(functions, size int) *pprof.Profile {
	p := proftest.Mixed()
	p.Sample, p.Location, p.Function = nil, nil, nil
	for i := range functions {
		f := &pprof.Function{ID: uint64(i + 1), Name: fmt.Sprintf("f%d_%s", i, strings.Repeat("n", size)), Filename: "file.c"}
		l := &pprof.Location{ID: f.ID, Mapping: p.Mapping[0], Address: f.ID, Line: []pprof.Line{{Function: f, Line: 1}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
	}
	for i := range functions - 1 {
		value := make([]int64, len(p.SampleType))
		for k := range value {
			value[k] = int64(functions - i)
		}
		p.Sample = append(p.Sample, &pprof.Sample{Value: value, Location: []*pprof.Location{p.Location[i], p.Location[i+1]}})
	}
	return p
}

// TestPagesHaveABound shows more functions than a page can have, and longer names.
func TestPagesHaveABound(t *testing.T) {
	for _, test := range []struct {
		functions, size int
		note            string
	}{
		{maxShownPlaces/2 + 10, 10, "functions that cost least, shown as one"},
		{5000, 900, "functions that cost least, shown as one"},
		{20, 400_000, "20 names, behind 1024 bytes"},
	} {
		site := start(t, broad(test.functions, test.size), Options{})
		for _, page := range []string{"flamegraph", "top", "peek?f=", "source?f="} {
			status, body := site.get(t, page)
			if len(body) > 2*maxPeek {
				t.Errorf("%d names of %d bytes: %s has %d bytes", test.functions, test.size, page, len(body))
			}
			if status != http.StatusOK {
				t.Errorf("%d names of %d bytes: %s: status %d", test.functions, test.size, page, status)
			}
			if !strings.HasPrefix(page, "source") && !strings.Contains(body, test.note) {
				t.Errorf("%d names of %d bytes: %s does not say %q", test.functions, test.size, page, test.note)
			}
		}
		if _, body := site.get(t, "flamegraph"); !strings.Contains(body, "f0_nn") {
			t.Errorf("%d names of %d bytes: the most expensive function is not shown", test.functions, test.size)
		}
	}
}

// TestSmallProfilesAreShownWhole wants no note, and nothing changed.
func TestSmallProfilesAreShownWhole(t *testing.T) {
	p := broad(1000, 100)
	before := p.String()
	if reduce(p); p.String() != before {
		t.Error("the profile was changed")
	}
}

// TestReducedProfileIsSound checks what is left, and that nothing that costs is lost.
func TestReducedProfileIsSound(t *testing.T) {
	p := broad(30_000, 10)
	for i, l := range p.Location {
		l.Line[0].Line = int64(i)
		l.Line = append(l.Line, pprof.Line{Function: p.Function[0], Line: int64(i)})
	}
	samples := len(p.Sample)
	reduce(p)
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != samples || len(p.Function) < 10_000 || len(p.Function) > 21_000 {
		t.Errorf("%d samples of %d, %d functions", len(p.Sample), samples, len(p.Function))
	}
	if l := p.Location[0]; l.Line[0].Function.Name != p.Function[0].Name {
		t.Errorf("the first location is of %s", l.Line[0].Function.Name)
	}
	if last := p.Location[29_999]; last.Line[0].Function.Name != "(other functions)" || last.Line[1].Line != 0 {
		t.Errorf("the last location is %+v", last.Line)
	}
}

// TestLongNamesStayDifferent cuts names that begin alike.
func TestLongNamesStayDifferent(t *testing.T) {
	p := broad(2, 10)
	p.Function[0].Name = strings.Repeat("é", maxShownName) + "one"
	p.Function[1].Name = strings.Repeat("é", maxShownName) + "two"
	reduce(p)
	if a, b := p.Function[0].Name, p.Function[1].Name; a == b || len(a) > 2*maxShownName || strings.ToValidUTF8(a, "?") != a {
		t.Errorf("names %.20s… and %.20s…, %d bytes", a, b, len(a))
	}
}

// TestPeekHasABound has each function call each other one.
func TestPeekHasABound(t *testing.T) {
	const n = 400
	p := broad(n, 200)
	p.Sample = p.Sample[:1]
	for i := range n {
		s := &pprof.Sample{Value: p.Sample[0].Value}
		for k := range n {
			s.Location = append(s.Location, p.Location[k], p.Location[i])
		}
		p.Sample = append(p.Sample, s)
	}
	site := start(t, p, Options{})
	status, body := site.get(t, "peek?f=")
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "Search for fewer") {
		t.Errorf("status %d, %d bytes: %.100s", status, len(body), body)
	}
	if status, body := site.get(t, "peek?f=f7_"); status != http.StatusOK || !strings.Contains(body, "f399_") {
		t.Errorf("a part of them: status %d, %d bytes", status, len(body))
	}
	if status, _ := site.get(t, "peek?f=("); status != http.StatusBadRequest {
		t.Errorf("a pattern that is none: status %d", status)
	}
}

// TestPagesInPieces has a page written a few bytes at a time.
func TestPagesInPieces(t *testing.T) {
	const text = "<html><head><script>1</script></head><body></head><script>2</script></scrip"
	get := func(size int) string {
		page := guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for rest := []byte(text); len(rest) > 0; {
				n := min(size, len(rest))
				w.Write(bytes.Clone(rest[:n]))
				rest = rest[n:]
			}
		}))
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		_, policy, _ := strings.Cut(w.Header().Get("Content-Security-Policy"), "'nonce-")
		nonce, _, _ := strings.Cut(policy, "'")
		return strings.ReplaceAll(w.Body.String(), nonce, "N")
	}
	want := `<html><head><script nonce="N">1</script>` + hidden + `</head><body></head><script nonce="N">2</script></scrip`
	for size := 1; size <= len(text); size++ {
		if got := get(size); got != want {
			t.Fatalf("%d bytes at a time:\n%s", size, got)
		}
	}
}
