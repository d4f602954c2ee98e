package server

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"hallmark/addr"
	"hallmark/internal/elftest"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/client"
	"hallmark/server/columns"
	"hallmark/server/symbols"
	"hallmark/symbol"
)

func withSymbols(t *testing.T) func(*Config) {
	return func(c *Config) {
		c.Symbols = &symbols.Indexes{Store: c.Store, Dir: filepath.Join(t.TempDir(), "index"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	}
}

// testChains wants of an answer that has each chain once what the one has that has it for each address.
func testChains(t *testing.T, base string, p built) {
	var addresses []string
	for range 3 {
		addresses = append(addresses, `"`+addressOf(t, p, "main")+`"`, `"0x1"`, `"`+addressOf(t, p, "f")+`"`)
	}
	body := fmt.Sprintf(`{"files":[{"id":%q,"virtual":true,"addresses":[%s]}]`, p.id, strings.Join(addresses, ","))
	var each, once api.SymbolizeAnswer
	for text, to := range map[string]*api.SymbolizeAnswer{body + "}": &each, body + `,"chains":true}`: &once} {
		if err := json.Unmarshal(ask(t, "POST", base+"/v1/symbolize", strings.NewReader(text)).want(t, 200).body, to); err != nil {
			t.Fatal(err)
		}
	}
	f := once.Files[0]
	if len(f.Chains) != 3 || len(f.Numbers) != 9 || len(f.Results) != 0 || f.Code != each.Files[0].Code {
		t.Fatalf("%+v", f)
	}
	for i, n := range f.Numbers {
		if !reflect.DeepEqual(f.Chains[n], each.Files[0].Results[i]) {
			t.Errorf("%d: %+v, want %+v", i, f.Chains[n], each.Files[0].Results[i])
		}
	}
}

// TestSymbolize compares the answers for all code of a program with those of the program's own
// debug information.
func TestSymbolize(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.stripped, "").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	file, err := symbol.OpenFile(filepath.Join(p.dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	q := &columns.Question{Files: []columns.File{{ID: p.id.String()}, {ID: strings.Repeat("ab", 20), Addresses: []uint64{1}}, {ID: p.id.String(), Virtual: true}}}
	for o := uint64(0); o < uint64(len(p.stripped)); o++ {
		q.Files[0].Addresses = append(q.Files[0].Addresses, o)
	}
	at, err := strconv.ParseUint(addressOf(t, p, "f"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	q.Files[2].Addresses = []uint64{at}
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Symbolize(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if a.Files[0].Why != "" {
		t.Fatalf("why: %s", a.Files[0].Why)
	}
	named := 0
	for o, got := range a.Results(0) {
		want := file.LookupOffset(addr.Offset(o))
		if len(got.Frames) != len(want.Frames) || got.Source != want.Source || got.Reason != want.Reason {
			t.Fatalf("offset %#x: %+v, want %+v", o, got, want)
		}
		for i := range got.Frames {
			if got.Frames[i] != want.Frames[i] {
				t.Errorf("offset %#x: %+v, want %+v", o, got.Frames[i], want.Frames[i])
			}
			named++
		}
	}
	if named == 0 {
		t.Error("nothing has a name")
	}
	if a.Files[1].Why != string(symbols.NoFile) {
		t.Errorf("a file that nobody has: %q", a.Files[1].Why)
	}
	if r := a.Results(2); len(r[0].Frames) == 0 || r[0].Frames[len(r[0].Frames)-1].Func != "f" {
		t.Errorf("f: %+v", r)
	}
	// The same as JSON, out of order.
	var out api.SymbolizeAnswer
	body := `{"files":[{"id":"` + p.id.String() + `","virtual":true,"addresses":["` + addressOf(t, p, "main") + `","0x1","` + addressOf(t, p, "f") + `"]}]}`
	if err := json.Unmarshal(ask(t, "POST", base+"/v1/symbolize", strings.NewReader(body)).want(t, 200).body, &out); err != nil {
		t.Fatal(err)
	}
	r := out.Files[0].Results
	if len(r) != 3 || r[0].Frames[len(r[0].Frames)-1].Function != "main" || r[1].Reason == "" || r[2].Frames[len(r[2].Frames)-1].Function != "f" || r[2].Source != "dwarf" {
		t.Errorf("%+v", out)
	}
	testChains(t, base, p)
	ask(t, "POST", base+"/v1/symbolize", strings.NewReader("nonsense"), "Content-Type", "application/x-protobuf").want(t, 400)
	for body, want := range map[string]string{
		`{"files":[{"addresses":["zz"]}]}`:             `\"zz\" is no address: `,
		`{"files":[{"addresses":[1]}]}`:                `\"\" is no identity: `,
		`{"files":[{"id":"xyz","addresses":[1]}]}`:     `\"xyz\" is no identity: not an even number of hexadecimal digits`,
		`{"files":[{"id":"93ac61e","addresses":[1]}]}`: `\"93ac61e\" is no identity: `,
	} {
		if a := ask(t, "POST", base+"/v1/symbolize", strings.NewReader(body)).want(t, 400); !strings.Contains(string(a.body), want) || strings.Contains(string(a.body), "strconv") {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	// The start of an identity is none that is missing.
	if a := ask(t, "POST", base+"/v1/symbolize", strings.NewReader(`{"files":[{"id":"93ac61ec","addresses":[1]}]}`)).want(t, 200); !strings.Contains(string(a.body), `"why":"short"`) {
		t.Errorf("%s", a.body)
	}
	if a := ask(t, "GET", base+"/v1/missing", nil).want(t, 200); !strings.Contains(string(a.body), strings.Repeat("ab", 20)) || strings.Contains(string(a.body), "93ac61ec") {
		t.Errorf("%s", a.body)
	}
}

// TestBetterFile wants an index that was made of a stripped file to be replaced when a debug file
// comes, and another server over the same store to make none.
func TestBetterFile(t *testing.T) {
	p := program(t)
	s, base := start(t, withSymbols(t))
	at, err := strconv.ParseUint(addressOf(t, p, "f"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(base string) symbol.Result {
		t.Helper()
		c, err := client.New(base, "")
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{{ID: p.id.String(), Virtual: true, Addresses: []uint64{at}}}})
		if err != nil || a.Files[0].Why != "" {
			t.Fatalf("%+v, %v", a, err)
		}
		return a.Results(0)[0]
	}
	upload(t, base, p.stripped, "").want(t, 201)
	if r := ask(base); len(r.Frames) > 0 {
		t.Errorf("stripped: %+v", r)
	}
	upload(t, base, p.debug, "").want(t, 201)
	if r := ask(base); len(r.Frames) == 0 || r.Frames[0].Line == 0 {
		t.Errorf("with its debug file: %+v", r)
	}
	_, other := start(t, func(c *Config) {
		c.Store.Blobs = s.Store.Blobs
		withSymbols(t)(c)
	})
	if r := ask(other); len(r.Frames) == 0 || r.Frames[0].Line == 0 {
		t.Errorf("another server: %+v", r)
	}
}

// TestHostileFile wants a file whose debug information is damaged to cost its own index alone.
func TestHostileFile(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.full, "").want(t, 201)
	note := elftest.Notes(nil, 4, elftest.GNU([]byte("0123456789abcdefghij")))
	hostile := elftest.File{Sections: []elftest.Section{
		{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Flags: elf.SHF_ALLOC, Data: note},
		{Name: ".text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Data: make([]byte, 64)},
		{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: bytes.Repeat([]byte{0xff}, 1000)},
		{Name: ".debug_abbrev", Type: elf.SHT_PROGBITS, Data: bytes.Repeat([]byte{0x80}, 1000)},
	}}.Build()
	upload(t, base, hostile, "").want(t, 201)
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{
		{ID: "303132333435363738396162636465666768696a", Addresses: []uint64{64}}, {ID: p.id.String(), Addresses: []uint64{0}},
	}})
	if err != nil || a.Files[0].Why != string(symbols.Damaged) || a.Files[1].Why != "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// failing is storage that cannot read what a key contains.
type failing struct {
	blob.Store
	part string
}

func (f *failing) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	if strings.Contains(key, f.part) {
		return nil, blob.Info{}, errors.New("the disk is broken")
	}
	return f.Store.Get(ctx, key, offset, length)
}

// TestSymbolizeInParts asks for so much that the answer comes in parts, and for a file among it that the store cannot read.
func TestSymbolizeInParts(t *testing.T) {
	p := program(t)
	broken := strings.Repeat("cd", 20)
	_, base := start(t, func(c *Config) {
		c.Store.Blobs = &failing{c.Store.Blobs, broken[2:]}
		withSymbols(t)(c)
	})
	upload(t, base, p.full, "").want(t, 201)
	one := columns.File{ID: p.id.String()}
	for o := uint64(0); o < 50_000; o++ {
		one.Addresses = append(one.Addresses, o)
	}
	post := func(q *columns.Question) *http.Response {
		t.Helper()
		resp, err := http.Post(base+"/v1/symbolize", "application/x-protobuf", bytes.NewReader(q.Append(nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	c, err := client.New(base, "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.Symbolize(t.Context(), &columns.Question{Files: []columns.File{one}})
	if err != nil {
		t.Fatal(err)
	}
	q := &columns.Question{Files: []columns.File{one, one, {ID: strings.Repeat("ab", 20), Addresses: []uint64{1}}, one}}
	resp := post(q)
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.ContentLength >= 0 {
		t.Fatalf("%v, %s, %d bytes: they should come in parts", err, resp.Status, resp.ContentLength)
	}
	got, err := columns.ParseAnswer(b, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, 3} {
		if !reflect.DeepEqual(got.Results(i), want.Results(0)) {
			t.Errorf("file %d has other names", i)
		}
	}
	if got.Files[2].Why != string(symbols.NoFile) {
		t.Errorf("a file that nobody has: %q", got.Files[2].Why)
	}
	q.Files[3].ID = broken
	if _, err := c.Symbolize(t.Context(), q); !errors.Is(err, columns.ErrEnded) || strings.Contains(err.Error(), "disk") {
		t.Errorf("a store that fails after two parts: %v", err)
	}
	if resp := post(&columns.Question{Files: q.Files[3:]}); resp.StatusCode != 500 {
		t.Errorf("a store that fails at once: %s", resp.Status)
	}
}
