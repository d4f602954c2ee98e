package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"hallmark/server/api"
	"hallmark/server/client"
)

type namedAnswer struct {
	Results  []entry
	Complete bool
}

func byName(t *testing.T, base, key, value string) namedAnswer {
	t.Helper()
	return read[namedAnswer](t, ask(t, "GET", base+"/metadata?key="+key+"&value="+url.QueryEscape(value), nil).want(t, http.StatusOK))
}

// TestEveryName finds a file under all names under which it came, also where a better file of its identity is served, and
// where the bytes are there already. More names than are kept make answers incomplete.
func TestEveryName(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	found := func(path string) bool {
		t.Helper()
		m := byName(t, base, "file", path)
		s := read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search?q="+url.QueryEscape(path), nil).want(t, http.StatusOK))
		if len(m.Results) > 0 != (s.Total > 0) || m.Complete != s.Complete {
			t.Errorf("%s: %+v, %+v", path, m, s)
		}
		return len(m.Results) > 0 && m.Complete
	}
	upload(t, base, p.stripped, "name=/m/prog&archive=prog_1.0.deb").want(t, http.StatusCreated)
	upload(t, base, p.full, "name=/m/prog.unstripped").want(t, http.StatusCreated)
	plan := func(b []byte, path string) {
		t.Helper()
		text, err := json.Marshal(api.Plan{Files: []api.PlanFile{{ID: p.id, SHA256: hashHex(b), Size: int64(len(b)), Name: path}}})
		if err != nil {
			t.Fatal(err)
		}
		if out := read[api.Planned](t, ask(t, "POST", base+"/v1/plan", bytes.NewReader(text)).want(t, http.StatusOK)); out.Files[0].Action != api.Skip {
			t.Errorf("%s: %+v", path, out)
		}
	}
	plan(p.stripped, "/m/copy")
	for _, path := range []string{"/m/prog", "/m/prog.unstripped", "/m/copy"} {
		if !found(path) {
			t.Errorf("%s is not found, or the answer is not complete", path)
		}
	}
	if s := read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search?q=prog_1.0", nil).want(t, http.StatusOK)); s.Total != 1 {
		t.Errorf("by its package: %+v", s)
	}
	for i := range 20 {
		plan(p.stripped, fmt.Sprint("/m/many/", i))
	}
	if m := byName(t, base, "file", "/m/many/19"); m.Complete {
		t.Errorf("names were left out, and the answer is complete: %+v", m)
	}
	if m := byName(t, base, "buildid", p.id.String()); m.Complete || len(m.Results) > 20 {
		t.Errorf("names were left out: %+v", m)
	}
	if s := read[api.SearchAnswer](t, ask(t, "GET", base+"/v1/search?q=many%2F19", nil).want(t, http.StatusOK)); s.Complete {
		t.Errorf("names were left out, and the answer is complete: %+v", s)
	}
}

// TestNamesOfOnePush sends the same bytes under two names in one push.
func TestNamesOfOnePush(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	pusher := client.Pusher{Client: &client.Client{URL: base}}
	for _, name := range []string{"/m/one", "/m/other"} {
		f := client.File{PlanFile: api.PlanFile{ID: p.id, Name: name, Archive: "both.tar"}, Content: bytes.NewReader(p.full)}
		if err := pusher.Add(t.Context(), f, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := pusher.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/m/one", "/m/other"} {
		if m := byName(t, base, "file", name); len(m.Results) != 2 || m.Results[0].Archive != "both.tar" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}
