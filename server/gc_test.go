package server

import (
	"bytes"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"hallmark/server/api"
	"hallmark/server/store"
)

// TestRetention has files asked for and sent on some days, and nobody later: they stay for so long, and
// come again when they are sent again.
func TestRetention(t *testing.T) {
	p := program(t)
	var days atomic.Int64
	s, base := start(t, func(c *Config) {
		c.Store.Now = func() time.Time { return time.Now().AddDate(0, 0, int(days.Load())) }
		c.CollectEvery, c.Retention = time.Hour, store.Retention{Age: 10 * 24 * time.Hour}
	})
	used := func() string {
		m, err := s.Store.Manifest(t.Context(), p.id)
		if err != nil {
			t.Fatal(err)
		}
		return m.Used
	}
	today := func() string { return s.now().UTC().Format(time.DateOnly) }
	upload(t, base, p.full, "name=prog").want(t, 201)

	days.Store(9)
	for range 3 {
		ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200)
	}
	if used() != "" || len(s.usage.ids) != 1 {
		t.Errorf("%d uses are noted, and the manifest has %q", len(s.usage.ids), used())
	}
	s.writeUsage(t.Context())
	if used() != today() {
		t.Errorf("%s, want %s", used(), today())
	}
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200)
	if len(s.usage.ids) != 0 {
		t.Error("a second use on one day is noted")
	}

	days.Store(18)
	s.collect(t.Context())
	plan, err := json.Marshal(api.Plan{Files: []api.PlanFile{{ID: p.id, SHA256: hashHex(p.full), Size: int64(len(p.full))}}})
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(t, "POST", base+"/v1/plan", bytes.NewReader(plan)).want(t, 200); !bytes.Contains(a.body, []byte(`"skip"`)) || used() != today() {
		t.Errorf("%s: used %s", a.body, used())
	}
	days.Store(27)
	upload(t, base, p.full, "name=prog").want(t, 200)
	if used() != today() {
		t.Errorf("a file that is sent again: used %s", used())
	}
	days.Store(36)
	s.collect(t.Context())
	ask(t, "GET", base+"/v1/identities/"+p.id.String(), nil).want(t, 200)

	days.Store(50)
	s.collect(t.Context())
	ask(t, "GET", base+"/v1/identities/"+p.id.String(), nil).want(t, 404)
	if n := s.Store.Catalog().Len(); n != 0 {
		t.Errorf("%d identities in the catalogue", n)
	}
	if a := ask(t, "GET", base+"/metrics", nil); !bytes.Contains(a.body, []byte(`hallmark_collected_total{kind="identity"} 1`)) {
		t.Errorf("%s", a.body)
	}
	if a := ask(t, "POST", base+"/v1/plan", bytes.NewReader(plan)).want(t, 200); !bytes.Contains(a.body, []byte(`"upload"`)) {
		t.Errorf("%s", a.body)
	}
	upload(t, base, p.full, "name=prog").want(t, 201)
	days.Store(53)
	s.collect(t.Context())
	if a := ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 200); !bytes.Equal(a.body, p.full) {
		t.Error("other bytes")
	}
}
