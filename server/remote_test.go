package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/addr"
	"hallmark/buildid"
	"hallmark/debuginfo"
	"hallmark/internal/testenv"
	"hallmark/reason"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/server/remote"
	"hallmark/server/symbols"
	"hallmark/symbol"
)

// asking returns a library that asks a server, and the warnings about it.
func asking(t *testing.T, base string) (*debuginfo.Library, *[]string) {
	t.Helper()
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Retries = 1
	warnings := new([]string)
	l := &debuginfo.Library{Remote: &remote.Server{Client: c, Warn: func(err error) { *warnings = append(*warnings, err.Error()) }}}
	l.Indexes.Dir = t.TempDir()
	return l, warnings
}

// TestRemotePatience asks for many files a server that says of each after a while that its index is being made.
func TestRemotePatience(t *testing.T) {
	var asked atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		time.Sleep(10 * time.Millisecond)
		b := columns.NewBuilder()
		b.Files = append(b.Files, columns.FileAnswer{Why: string(symbols.Pending)})
		w.Write(b.Answer.Append(nil))
	}))
	defer slow.Close()
	c, err := client.New(slow.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	s := &remote.Server{Client: c, Patience: 200 * time.Millisecond, Warn: func(err error) { warnings = append(warnings, err.Error()) }}
	for i := range 100 {
		id, err := buildid.Parse(fmt.Sprintf("%040x", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if s.Open(t.Context(), debuginfo.Query{ID: id}) != nil {
			t.Fatal("a server without symbols has some")
		}
	}
	if n := asked.Load(); n > 100 { // 1500 without a bound, and 20 where nothing else takes time
		t.Errorf("the server was asked %d times", n)
	}
	if len(warnings) == 0 || !strings.Contains(warnings[len(warnings)-1], "took too long in sum") {
		t.Errorf("%q", warnings)
	}
}

// TestRemote has a library ask a server for a program that this machine has nothing of, in any order,
// and compares the answers with those of the program's own debug information.
func TestRemote(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.stripped, "").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	file, err := symbol.OpenFile(filepath.Join(p.dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := buildid.ReadContent(t.Context(), strings.NewReader(string(p.stripped)))
	if err != nil {
		t.Fatal(err)
	}
	if mapped, err := buildid.ReadMapped(t.Context(), strings.NewReader(string(p.stripped))); err != nil || mapped != content {
		t.Errorf("recordings know the content as %v, not as %v", mapped, content)
	}
	l, warnings := asking(t, base)
	ask := func(q debuginfo.Query) (debuginfo.Symbols, reason.Reason) {
		s, err := l.Get(t.Context(), debuginfo.Request{Query: q})
		return s, reason.Of(err)
	}
	s, why := ask(debuginfo.Query{ID: p.id, Content: content})
	if s == nil {
		t.Fatal(why, *warnings)
	}
	defer s.Close()
	offsets, rng := make([]addr.Offset, 2*len(p.stripped)), testenv.Rand(t)
	for i := range offsets {
		offsets[i] = addr.Offset(rng.IntN(len(p.stripped)))
	}
	named := 0
	results, want := s.LookupOffsets(offsets), file.LookupOffsets(offsets)
	for i, o := range offsets {
		if len(want[i].Frames) > 0 {
			named++
		}
		if !reflect.DeepEqual(results[i].Named().Frames, want[i].Named().Frames) || len(want[i].Frames) == 0 && results[i].Reason != want[i].Reason {
			t.Fatalf("%#x: %+v, want %+v", o, results[i], want[i])
		}
	}
	at := offsets[0]
	if one := s.LookupOffset(at); named == 0 || !reflect.DeepEqual(one, results[0]) || !reflect.DeepEqual(s.LookupOffset(at), one) {
		t.Errorf("%d have names; %#x alone is %+v, want %+v", named, at, one, results[0])
	}
	if v, ok := file.Virt(at); ok && !reflect.DeepEqual(s.LookupVirt(v).Named().Frames, want[0].Named().Frames) {
		t.Errorf("%#x is %+v, want %+v", v, s.LookupVirt(v), want[0])
	}

	other, _ := buildid.New(buildid.GNU, make([]byte, 20))
	if s, why := ask(debuginfo.Query{ID: other}); s != nil || why != reason.NoFile {
		t.Errorf("of an unknown build there are symbols, %v", why)
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings %q", *warnings)
	}
	if content, err = buildid.ParseContent(strings.Repeat("ab", 20)); err != nil {
		t.Fatal(err)
	}
	if s, _ := ask(debuginfo.Query{ID: p.id, Rival: true}); s != nil {
		t.Error("a file that others claim to be has the symbols of the server's")
	}
	if s, why := ask(debuginfo.Query{ID: p.id, Content: content}); s != nil || why != reason.NoFile || len(*warnings) != 1 || !strings.Contains((*warnings)[0], "other code") {
		t.Errorf("of other content under the build ID there are symbols, %v, warnings %q", why, *warnings)
	}
}

// TestRemoteDebugFile asks a server that has a debug file alone: where the mappings of the program are known, it
// answers as the program's own debug information does.
func TestRemoteDebugFile(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.debug, "").want(t, 201)
	file, err := symbol.OpenFile(filepath.Join(p.dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := buildid.ReadContent(t.Context(), strings.NewReader(string(p.stripped)))
	if err != nil {
		t.Fatal(err)
	}
	var mapped []symbol.Mapping
	for _, s := range file.Segments() {
		if s.Executable() {
			skew := uint64(s.Virt) % 4096
			mapped = append(mapped, symbol.Mapping{Start: s.Virt - addr.Virt(skew), Offset: s.Offset - addr.Offset(skew), Size: (s.FileSize + skew + 4095) &^ 4095})
		}
	}
	var offsets []addr.Offset
	for _, m := range mapped {
		for o := m.Offset; o < m.Offset+addr.Offset(m.Size); o += 3 {
			offsets = append(offsets, o)
		}
	}
	want, named := file.LookupOffsets(offsets), 0
	for _, q := range []debuginfo.Query{
		{ID: p.id, Content: content, Mapped: mapped}, {ID: p.id, Mapped: mapped},
		{ID: p.id, Content: content}, {ID: p.id, Content: content, Mapped: mapped[:0:0], Rival: true}, {ID: p.id, Content: content, Mapped: mapped, Rival: true},
	} {
		l, warnings := asking(t, base)
		uncompared := 0
		l.Remote.(*remote.Server).Uncompared = func(buildid.ID, string) { uncompared++ }
		s, why := l.Get(t.Context(), debuginfo.Request{Query: q})
		if isRight := len(q.Mapped) > 0 && !q.Rival; !isRight || s == nil {
			if isRight || uncompared > 0 || len(*warnings) != 1 || !strings.Contains((*warnings)[0], "a debug file of "+p.id.String()+" alone") {
				t.Errorf("%+v: %v, %d uncompared, warnings %q", q, why, uncompared, *warnings)
			}
			if s != nil && s.LookupOffset(offsets[0]).Reason != reason.DebugFileAlone {
				t.Errorf("%+v: %+v", q, s.LookupOffset(offsets[0]))
			}
			continue
		}
		for i, r := range s.LookupOffsets(offsets) {
			if want[i].Source == symbol.SourcePLT { // which is in the code
				continue
			}
			if !reflect.DeepEqual(r.Frames, want[i].Frames) {
				t.Fatalf("%v: %+v, want %+v", offsets[i], r, want[i])
			}
			named += min(1, len(r.Frames))
		}
		if uncompared != 1 || len(*warnings) > 0 {
			t.Errorf("%+v: %d uncompared, warnings %q", q, uncompared, *warnings)
		}
	}
	if named == 0 {
		t.Error("nothing has a name")
	}
}

// TestRemoteFails has a server that is gone, and one that is waited for in vain.
func TestRemoteFails(t *testing.T) {
	p := program(t)
	srv := httptest.NewServer(nil)
	srv.Close()
	l, warnings := asking(t, srv.URL)
	for range 3 {
		if s, why := l.Get(t.Context(), debuginfo.Request{Query: debuginfo.Query{ID: p.id}}); s != nil || why != reason.NoFile {
			t.Errorf("without a server there are symbols, %v", why)
		}
	}
	if len(*warnings) != 1 {
		t.Errorf("warnings %q, want one", *warnings)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l, warnings = asking(t, srv.URL)
	if s := l.Remote.Open(ended, debuginfo.Query{ID: p.id}); s != nil || len(*warnings) > 0 {
		t.Errorf("whoever asks has given up, warnings %q", *warnings)
	}
}
