package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
	"hallmark/profile/query"
	"hallmark/server/api"
	"hallmark/server/blob"
	"hallmark/server/store"
)

func pprofBytes(t *testing.T, p *pprof.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read[T any](t *testing.T, a answered) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// post keeps a profile.
func post(t *testing.T, base string, b []byte, query string, status int, header ...string) api.KeptProfile {
	t.Helper()
	a := ask(t, "POST", base+"/v1/profiles?"+query, bytes.NewReader(b), header...).want(t, status)
	if status >= 300 {
		return api.KeptProfile{}
	}
	return read[api.KeptProfile](t, a)
}

// TestProfileIsKept keeps profiles in all formats as they came.
func TestProfileIsKept(t *testing.T) {
	_, base := start(t, nil)
	mixed := proftest.Mixed()
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	fmt.Fprint(z, "main;walk;step 42\nmain;rest 3\n")
	z.Close()
	cases := []struct {
		kind              string
		body              []byte
		samples, binaries int64
	}{
		{"pprof", pprofBytes(t, mixed), -1, -1},
		{"folded stacks", []byte("main;walk;step 42\nmain;rest 3\n"), 45, -1},
		{"folded stacks", gz.Bytes(), 45, -1},
		{"perf script", []byte("web 123/124 [001] 22977.565696:   10 cpu-clock:u:\n\t    1137 inner+0x2 (/bin/x)\n\n"), 1, 1},
		{"OTLP", encoded(t, mixed, false), -1, -1},
		{"OTLP", encoded(t, mixed, true), -1, -1},
	}
	for i, c := range cases {
		k := post(t, base, c.body, "title=Profile+"+fmt.Sprint(i), 201)
		if !k.New || k.ID != hashHex(c.body) || k.Kind != c.kind || k.Size != int64(len(c.body)) || k.URL != "/profiles/"+k.ID || k.Role != "ci" {
			t.Errorf("%+v", k)
		}
		if c.samples >= 0 && k.Samples != c.samples || c.binaries >= 0 && k.Binaries != c.binaries || k.Samples == 0 {
			t.Errorf("%s: %d samples, %d binaries", c.kind, k.Samples, k.Binaries)
		}
		if again := post(t, base, c.body, "title=Other", 200); again.New || again.ID != k.ID || again.Title != k.Title {
			t.Errorf("again: %+v", again)
		}
		a := ask(t, "GET", base+"/v1/profiles/"+k.ID, nil).want(t, 200)
		if !bytes.Equal(a.body, c.body) || a.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: other bytes came back, or so that a browser shows them: %v", c.kind, a.Header)
		}
		named := ask(t, "GET", base+"/v1/profiles/"+k.ID+"?named=1", nil).want(t, 200)
		if _, err := pprof.ParseData(named.body); err != nil {
			t.Errorf("%s: named: %v", c.kind, err)
		}
		page := ask(t, "GET", base+k.URL+"/", nil).want(t, 200)
		if !bytes.Contains(page.body, []byte("app/index.js")) || page.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: no page: %.200s", c.kind, page.body)
		}
		about := read[struct{ Title, Version string }](t, ask(t, "GET", base+k.URL+"/api/profile", nil).want(t, 200))
		if about.Title != fmt.Sprintf("Profile %d", i) || about.Version == "" {
			t.Errorf("%+v", about)
		}
		ask(t, "GET", base+k.URL+"/api/tree?v="+about.Version, nil).want(t, 200)
		ask(t, "GET", base+k.URL+"/api/tree?v=0", nil).want(t, 409)
	}
	if a := ask(t, "GET", base+"/profiles/"+hashHex(cases[0].body), nil).want(t, 303); a.Header.Get("Location") != hashHex(cases[0].body)+"/" {
		t.Error(a.Header)
	}
}

// TestProfileList pages through the list, newest first.
func TestProfileList(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	s, base := start(t, func(c *Config) { c.Store.Now = func() time.Time { return now } })
	var want []string
	for i := range 23 {
		if i%3 == 0 { // several have one time
			now = now.Add(time.Hour)
		}
		post(t, base, fmt.Appendf(nil, "a;b %d\n", i+1), fmt.Sprintf("title=n%02d", i), 201)
	}
	all, err := s.profileList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		want = append(want, p.ID)
	}
	if len(want) != 23 || all[0].Time.Before(all[22].Time) {
		t.Fatal(len(want), all[0], all[22])
	}
	var got []string
	for after := ""; ; {
		page := read[api.Profiles](t, ask(t, "GET", base+"/v1/profiles?limit=5&after="+after, nil).want(t, 200))
		for _, p := range page.Profiles {
			got = append(got, p.ID)
		}
		if page.Total != 23 {
			t.Error(page.Total)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the pages have %d profiles of %d, or in another order", len(got), len(want))
	}
	if one := read[api.Profiles](t, ask(t, "GET", base+"/v1/profiles?q=N07", nil).want(t, 200)); one.Total != 1 || one.Profiles[0].Title != "n07" {
		t.Errorf("%+v", one)
	}
	for _, bad := range []string{"limit=0", "limit=201", "limit=x", "after=x", "after=1-../.."} {
		ask(t, "GET", base+"/v1/profiles?"+bad, nil).want(t, 400)
	}
	// Another server of the store has the same list.
	other := New(Config{Store: &store.Store{Blobs: s.Store.Blobs, Scratch: t.TempDir()}})
	if all, err := other.profileList(t.Context()); err != nil || len(all) != 23 || all[3].ID != want[3] {
		t.Error(len(all), err)
	}
}

// TestOpenedAgain opens a profile anew, with the names that the store has by then.
func TestOpenedAgain(t *testing.T) {
	p := program(t)
	s, base := start(t, withSymbols(t))
	k := post(t, base, pprofBytes(t, bareProfile(t, p)), "", 201)
	old, err := s.openProfile(t.Context(), asker{}, k.ID, "")
	if err != nil || old.named != 0 || old.bare != 2 {
		t.Fatalf("%+v %v", old, err)
	}
	upload(t, base, p.full, "").want(t, 201)
	s.opened.mu.Lock()
	for _, o := range s.opened.all {
		o.at = o.at.Add(-namedTime - time.Second)
	}
	s.opened.mu.Unlock()
	for range 20 { // until the index is there
		o, err := s.openProfile(t.Context(), asker{}, k.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if o.pending {
			s.opened.drop(k.ID)
			continue
		}
		if o == old || o.named != 1 || o.bare != 1 || o.shown.Version == old.shown.Version {
			t.Errorf("%d named, %d bare, versions %s and %s", o.named, o.bare, old.shown.Version, o.shown.Version)
		}
		ask(t, "GET", base+k.URL+"/api/functions?v="+old.shown.Version, nil).want(t, 409)
		a := ask(t, "GET", base+k.URL+"/api/functions?v="+o.shown.Version, nil).want(t, 200)
		if !bytes.Contains(a.body, []byte(`"f"`)) {
			t.Errorf("no function f: %s", a.body)
		}
		return
	}
	t.Fatal("the index does not come")
}

// TestOpenedStarts opens a profile of a stripped program: what no symbol names has the start of its function, and what is
// downloaded has not.
func TestOpenedStarts(t *testing.T) {
	p := program(t)
	s, base := start(t, withSymbols(t))
	upload(t, base, p.stripped, "").want(t, 201)
	bare := bareProfile(t, p)
	at := bare.Location[0].Address
	bare.Location[0].Address++
	k := post(t, base, pprofBytes(t, bare), "", 201)
	for range 20 { // until the index is there
		o, err := s.openProfile(t.Context(), asker{}, k.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if o.pending {
			s.opened.drop(k.ID)
			continue
		}
		want := fmt.Sprintf("prog+%#x", at)
		if i := slices.IndexFunc(o.shown.Set.Frames(), func(f query.Frame) bool { return f.Name == want && f.Unnamed }); i < 0 {
			t.Errorf("%s is none of %+v", want, o.shown.Set.Frames())
		}
		if o.named != 0 || o.bare != 2 {
			t.Errorf("%d named, %d bare", o.named, o.bare)
		}
		var out bytes.Buffer
		if err := o.shown.Download(&out); err != nil {
			t.Fatal(err)
		}
		if down, err := pprof.ParseData(out.Bytes()); err != nil || len(down.Function) > 0 {
			t.Errorf("a download has %v, %v", down, err)
		}
		return
	}
	t.Fatal("the index does not come")
}

// TestVersionStays opens a profile several times, and wants the same numbers of functions each time: a page that is
// open would be refused otherwise.
func TestVersionStays(t *testing.T) {
	s, base := start(t, nil)
	k := post(t, base, pprofBytes(t, proftest.Mixed()), "", 201)
	versions := map[string]bool{}
	for range 20 {
		o, err := s.openProfile(t.Context(), asker{}, k.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		versions[o.shown.Version] = true
		s.opened.drop(k.ID)
	}
	if len(versions) != 1 {
		t.Errorf("%d versions of one profile", len(versions))
	}
}

// TestOpenedAtOnce has many look at one profile and at others at the same time.
func TestOpenedAtOnce(t *testing.T) {
	s, base := start(t, func(c *Config) { c.Opened = 2 })
	var ids []string
	for i := range 4 {
		ids = append(ids, post(t, base, fmt.Appendf(nil, "a;b %d\n", i+1), "", 201).ID)
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			o, err := s.openProfile(t.Context(), asker{}, ids[i%len(ids)], "")
			if err != nil || o.id != ids[i%len(ids)] {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if n := s.opened.count(); n > 2 {
		t.Errorf("%d are open", n)
	}
}

// TestProfilesAreCompared compares two, in either order.
func TestProfilesAreCompared(t *testing.T) {
	_, base := start(t, nil)
	one, two := post(t, base, []byte("a;b 5\n"), "title=one", 201), post(t, base, []byte("a;b 5\na;c 7\n"), "title=two", 201)
	a := ask(t, "GET", base+one.URL+"?base="+two.ID, nil).want(t, 303)
	if a.Header.Get("Location") != one.ID+"/vs/"+two.ID+"/" {
		t.Fatal(a.Header)
	}
	ask(t, "GET", base+"/profiles/"+one.ID+"/vs/"+two.ID+"/", nil).want(t, 200)
	about := read[struct{ Title, Base string }](t, ask(t, "GET", base+"/profiles/"+one.ID+"/vs/"+two.ID+"/api/profile", nil).want(t, 200))
	if about.Title != "one" || about.Base != "two" {
		t.Errorf("%+v", about)
	}
	heap := proftest.New()
	heap.Profile.SampleType = []*pprof.ValueType{{Type: "inuse_space", Unit: "bytes"}}
	heap.Profile.DefaultSampleType = ""
	heap.Profile.Sample = []*pprof.Sample{{Location: []*pprof.Location{heap.Location(heap.Mapping("/bin/x", "", 0x1000), 0x1004, "x")}, Value: []int64{1}}}
	other := post(t, base, pprofBytes(t, heap.Profile), "", 201)
	ask(t, "GET", base+one.URL+"/vs/"+other.ID+"/api/profile", nil).want(t, 422)
	ask(t, "GET", base+one.URL+"/vs/"+strings.Repeat("a", 64)+"/api/profile", nil).want(t, 404)
	ask(t, "GET", base+one.URL+"/vs/x/api/profile", nil).want(t, 404)
	ask(t, "GET", base+one.URL+"/vs/", nil).want(t, 404)
	ask(t, "GET", base+one.URL+"?base=../x", nil).want(t, 404)
}

// TestProfilesAreBounded keeps as many as it may, and the newest of them.
func TestProfilesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	s, base := start(t, func(c *Config) {
		c.Store.Now = func() time.Time { now = now.Add(time.Minute); return now }
		c.Retention.Profiles.Count = 3
		c.Opened = 2
	})
	var ids []string
	for i := range 5 {
		ids = append(ids, post(t, base, fmt.Appendf(nil, "a;b %d\n", i+1), "", 201).ID)
	}
	list := read[api.Profiles](t, ask(t, "GET", base+"/v1/profiles", nil).want(t, 200))
	if list.Total != 3 || list.Profiles[0].ID != ids[4] || list.Profiles[2].ID != ids[2] {
		t.Errorf("%+v", list)
	}
	ask(t, "GET", base+"/v1/profiles/"+ids[0], nil).want(t, 404)
	ask(t, "GET", base+"/profiles/"+ids[0]+"/api/profile", nil).want(t, 404)
	objects := 0
	for range s.Store.Blobs.List(t.Context(), "profiles/") {
		objects++
	}
	if objects != 6 {
		t.Errorf("the store has %d objects for three profiles", objects)
	}
	for _, id := range ids[2:] {
		ask(t, "GET", base+"/profiles/"+id+"/api/profile", nil).want(t, 200)
	}
	if n := s.opened.count(); n != 2 {
		t.Errorf("%d profiles are open, of two that may be", n)
	}
	// The one that is gone can come again.
	if k := post(t, base, []byte("a;b 1\n"), "", 201); k.ID != ids[0] {
		t.Error(k)
	}
	ask(t, "GET", base+"/v1/profiles/"+ids[0], nil).want(t, 200)
}

// TestWrongProfiles refuses what is no profile, and keeps nothing of it.
func TestWrongProfiles(t *testing.T) {
	s, base := start(t, func(c *Config) { c.OpenedMemory = 2 << 20 })
	exe, err := os.ReadFile("/proc/self/exe")
	testenv.Need(t, err == nil, "this program's file")
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{
		"nothing":         {nil, 422},
		"ELF":             {exe[:4096], 422},
		"HTML":            {[]byte("<script>alert(1)</script>"), 422},
		"half a profile":  {pprofBytes(t, proftest.Mixed())[:60], 422},
		"a perf.data":     {[]byte("PERFILE2\x68\x00\x00\x00\x00\x00\x00\x00"), 422},
		"damaged folded":  {[]byte("a;b 1\na;c x\n"), 422},
		"gzip of nothing": {[]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0}, 422},
		"bomb":            {gzipped(bytes.Repeat([]byte("a;b;c;d;e;f 1\n"), 30<<20)), 413},
	} {
		if a := ask(t, "POST", base+"/v1/profiles", bytes.NewReader(c.body)); a.StatusCode != c.status || !json.Valid(a.body) {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.body)
		}
	}
	for info := range s.Store.Blobs.List(t.Context(), "profiles/") {
		t.Errorf("%s was kept", info.Key)
	}
	// One that takes too much to be shown is kept, and can be had.
	var large strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&large, "main;f%d;g%d 1\n", i, i)
	}
	k := post(t, base, []byte(large.String()), "", 201)
	a := ask(t, "GET", base+k.URL+"/api/profile", nil).want(t, 413)
	if !strings.Contains(string(a.body), "hallmark view") || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%v %s", a.Header, a.body)
	}
	ask(t, "GET", base+"/v1/profiles/"+k.ID, nil).want(t, 200)
	for _, path := range []string{"/v1/profiles/x", "/v1/profiles/" + strings.Repeat("A", 64), "/profiles/x", "/profiles/x/", "/v1/profiles/" + strings.Repeat("b", 64)} {
		if a := ask(t, "GET", base+path, nil); a.StatusCode != 404 && path != "/profiles/x/" {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
}

// TestProfileRights asks with each role.
func TestProfileRights(t *testing.T) {
	file, secrets := testTokens(t)
	s, base := start(t, func(c *Config) { c.Tokens = file })
	body := []byte("a;b 5\n")
	bearer := func(role Role) string { return "Bearer " + secrets[role] }
	post(t, base, body, "", 401)
	post(t, base, body, "", 403, "Authorization", bearer(Read))
	post(t, base, body, "", 403, "Authorization", bearer(Symbolize))
	k := post(t, base, body, "", 201, "Authorization", bearer(UploadAgent))
	if k.Role != "agent" {
		t.Errorf("%+v", k)
	}
	for path, role := range map[string]Role{
		"/v1/profiles": Read, "/v1/profiles/" + k.ID: Read, k.URL + "/api/profile": Symbolize, k.URL + "/": Symbolize,
	} {
		for _, r := range Roles {
			want := 403
			if r == role || r == Admin {
				want = 200
			}
			ask(t, "GET", base+path, nil, "Authorization", bearer(r)).want(t, want)
		}
	}
	ask(t, "GET", base+"/v1/profiles/"+k.ID+"?named=1", nil, "Authorization", bearer(Read)).want(t, 403)
	ask(t, "DELETE", base+"/v1/profiles/"+k.ID, nil, "Authorization", bearer(UploadAgent)).want(t, 403)
	ask(t, "DELETE", base+"/v1/profiles/"+k.ID, nil, "Authorization", bearer(Admin)).want(t, 204)
	ask(t, "GET", base+"/v1/profiles/"+k.ID, nil, "Authorization", bearer(Read)).want(t, 404)
	s.ReadOnly = true
	post(t, base, body, "", 403, "Authorization", bearer(Admin))
}

// TestProfilesOfABusyStore fails as the store does.
func TestProfilesOfABusyStore(t *testing.T) {
	s, base := start(t, nil)
	post(t, base, []byte("a;b 5\n"), "", 201)
	s.Store.Blobs = fullStore{s.Store.Blobs}
	post(t, base, []byte("a;b 6\n"), "", http.StatusInsufficientStorage)
	if a := ask(t, "GET", base+"/v1/profiles", nil).want(t, 200); read[api.Profiles](t, a).Total != 1 {
		t.Errorf("%s", a.body)
	}
}

// fullStore is a store that has no room.
type fullStore struct{ blob.Store }

func (f fullStore) PutIfAbsent(context.Context, string, io.Reader, int64) (blob.Info, error) {
	return blob.Info{}, blob.ErrFull
}
