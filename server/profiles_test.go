package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"hallmark/debuginfo/debuginfod"
	"hallmark/internal/testenv"
	"hallmark/profile"
	"hallmark/profile/otlp"
	"hallmark/server/forward"
)

// collector is a backend that keeps the messages which it is sent.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	messages [][]byte
	came     chan struct{}
}

func newCollector(t *testing.T) *collector {
	c := &collector{came: make(chan struct{}, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := io.ReadAll(z)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.messages = append(c.messages, b)
		w.WriteHeader(http.StatusOK)
		c.came <- struct{}{}
	}))
	t.Cleanup(c.Close)
	return c
}

// next waits for a message.
func (c *collector) next(t *testing.T) []byte {
	t.Helper()
	select {
	case <-c.came:
	case <-time.After(testenv.Patience):
		t.Fatal("no message came")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages[len(c.messages)-1]
}

// startForwarding starts a server that passes profiles on to c.
func startForwarding(t *testing.T, c *collector, change func(*Config)) (*Server, string) {
	t.Helper()
	s, base := start(t, func(conf *Config) {
		withSymbols(t)(conf)
		conf.Forward = &forward.Forwarder{URL: c.URL + forward.Path}
		if change != nil {
			change(conf)
		}
	})
	runForwarder(t, s)
	return s, base
}

// runForwarder has what waits be sent while the test runs.
func runForwarder(t *testing.T, s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Forward.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// bareProfile has addresses of the program and of a file that nobody has, without names.
func bareProfile(t *testing.T, p built) *pprof.Profile {
	t.Helper()
	at, err := strconv.ParseUint(addressOf(t, p, "f"), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	mapping := func(id uint64, build string) *pprof.Mapping {
		return &pprof.Mapping{ID: id, Start: at &^ 4095, Limit: at&^4095 + 1<<16, Offset: at &^ 4095, File: "/bin/prog", BuildID: build}
	}
	m, other := mapping(1, p.id.String()), mapping(2, strings.Repeat("ab", 20))
	l := []*pprof.Location{{ID: 1, Mapping: m, Address: at}, {ID: 2, Mapping: other, Address: at}}
	return &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}}, Mapping: []*pprof.Mapping{m, other}, Location: l,
		Sample: []*pprof.Sample{{Location: l, Value: []int64{7}, Label: map[string][]string{"service": {"shop"}}, NumLabel: map[string][]int64{"pid": {12}}}},
	}
}

func encoded(t *testing.T, p *pprof.Profile, isJSON bool) []byte {
	t.Helper()
	m, err := otlp.FromProfile(p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Append(nil)
	if isJSON {
		b, err = m.AppendJSON(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decoded(t *testing.T, b []byte) *pprof.Profile {
	t.Helper()
	m, err := otlp.Parse(b, otlp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Profile(profile.ReadOptions{}.Limits(int64(len(b))))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

// namesAt returns the names at a location, innermost first.
func namesAt(l *pprof.Location) (names []string) {
	for _, line := range l.Line {
		names = append(names, fmt.Sprintf("%s:%d", line.Function.Name, line.Line))
	}
	return names
}

// TestForward has messages come in each form that OTLP has, and go on with names where the store has the file.
func TestForward(t *testing.T) {
	p := program(t)
	c := newCollector(t)
	_, base := startForwarding(t, c, nil)
	upload(t, base, p.stripped, "").want(t, 201)
	upload(t, base, p.debug, "").want(t, 201)
	bare := bareProfile(t, p)
	for name, r := range map[string]struct {
		body   []byte
		header []string
		answer string
	}{
		"protobuf":   {encoded(t, bare, false), []string{"Content-Type", "application/x-protobuf"}, ""},
		"gzip":       {gzipped(encoded(t, bare, false)), []string{"Content-Type", "application/x-protobuf", "Content-Encoding", "gzip"}, ""},
		"JSON":       {encoded(t, bare, true), []string{"Content-Type", "application/json; charset=utf-8"}, "{}"},
		"JSON, gzip": {gzipped(encoded(t, bare, true)), []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}, "{}"},
	} {
		a := ask(t, "POST", base+forward.Path, bytes.NewReader(r.body), r.header...).want(t, 200)
		if string(a.body) != r.answer || !strings.HasPrefix(r.header[1], a.Header.Get("Content-Type")) {
			t.Errorf("%s: answer %q, %v", name, a.body, a.Header)
		}
		got := decoded(t, c.next(t))
		if s := got.Sample[0]; s.Value[0] != 7 || s.Label["service"][0] != "shop" || s.NumLabel["pid"][0] != 12 {
			t.Errorf("%s: %v", name, s)
		}
		if names := namesAt(got.Sample[0].Location[0]); len(names) == 0 || !strings.HasPrefix(names[len(names)-1], "f:") || strings.HasSuffix(names[0], ":0") {
			t.Errorf("%s: names %q", name, names)
		}
		if names := namesAt(got.Sample[0].Location[1]); len(names) != 0 {
			t.Errorf("%s: a file that nobody has: %q", name, names)
		}
	}
	// An empty message is taken, and goes nowhere.
	ask(t, "POST", base+forward.Path, nil, "Content-Type", "application/x-protobuf").want(t, 200)
	if len(c.came) != 0 {
		t.Error("an empty message was passed on")
	}
}

// TestForwardUnchanged has a message with no file of the store, and fields that nobody knows, come out as it came.
func TestForwardUnchanged(t *testing.T) {
	c := newCollector(t)
	_, base := startForwarding(t, c, nil)
	b := encoded(t, bareProfile(t, program(t)), false)
	b = append(b, protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "of a later version")...)
	ask(t, "POST", base+forward.Path, bytes.NewReader(b), "Content-Type", "application/x-protobuf").want(t, 200)
	if got := c.next(t); !bytes.Equal(got, b) {
		t.Errorf("%d bytes came as %d:\n%q\n%q", len(b), len(got), b, got)
	}
}

// TestForwardFetchesNothing has a message name a file that another server has: the server does not ask for it,
// which it does for a debugger.
func TestForwardFetchesNothing(t *testing.T) {
	p := program(t)
	asked := make(chan string, 10)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(404)
	}))
	defer up.Close()
	c := newCollector(t)
	_, base := startForwarding(t, c, func(conf *Config) {
		conf.Upstream = &debuginfod.Client{URLs: []string{up.URL}, Dir: t.TempDir()}
	})
	ask(t, "POST", base+forward.Path, bytes.NewReader(encoded(t, bareProfile(t, p), false)), "Content-Type", "application/x-protobuf").want(t, 200)
	c.next(t)
	if len(asked) != 0 {
		t.Errorf("a profile had the server ask for %s", <-asked)
	}
	ask(t, "GET", base+"/buildid/"+p.id.String()+"/executable", nil).want(t, 404)
	if len(asked) == 0 {
		t.Error("the test cannot fail: nobody asks the other server")
	}
}

// TestForwardOtherCode has a message say that the file had other code than the one that the store has.
func TestForwardOtherCode(t *testing.T) {
	p := program(t)
	c := newCollector(t)
	_, base := startForwarding(t, c, nil)
	upload(t, base, p.full, "").want(t, 201)
	bare := bareProfile(t, p)
	bare.Comments = []string{"content=8bb18077fa415b4d1306d85709708bc9622c9d24 build_id=" + p.id.String() + ` file="/bin/prog"`}
	ask(t, "POST", base+forward.Path, bytes.NewReader(encoded(t, bare, false)), "Content-Type", "application/x-protobuf").want(t, 200)
	if names := namesAt(decoded(t, c.next(t)).Sample[0].Location[0]); len(names) != 0 {
		t.Errorf("other code got the names %q", names)
	}
}

func TestForwardRefusals(t *testing.T) {
	c := newCollector(t)
	s, base := startForwarding(t, c, nil)
	good := encoded(t, bareProfile(t, program(t)), false)
	pb := []string{"Content-Type", "application/x-protobuf"}
	bad := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), protowire.AppendString(protowire.AppendTag(nil, 5, protowire.BytesType), "not empty"))
	old := func() []byte { // a sample with attributes where they were in 1.9
		sample := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), []byte{1})
		for _, field := range []protowire.Number{2, 2, 2, 1} {
			sample = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), sample)
		}
		return sample
	}()
	for name, r := range map[string]struct {
		body   []byte
		header []string
		status int
		text   string
	}{
		"damaged":           {bad, pb, 400, "string 0 is not the zero value"},
		"version 1.9":       {old, pb, 400, "1.9"},
		"another type":      {good, []string{"Content-Type", "text/plain"}, 415, "text/plain"},
		"another encoding":  {good, append(slices.Clone(pb), "Content-Encoding", "br"), 415, "br"},
		"no gzip":           {good, append(slices.Clone(pb), "Content-Encoding", "gzip"), 400, "gzip"},
		"cut gzip":          {gzipped(good)[:50], append(slices.Clone(pb), "Content-Encoding", "gzip"), 400, "EOF"},
		"a bomb":            {gzipped(make([]byte, maxMessage+1)), append(slices.Clone(pb), "Content-Encoding", "gzip"), 413, "larger"},
		"damaged JSON":      {[]byte("{"), []string{"Content-Type", "application/json"}, 400, "OTLP"},
		"a circle of them":  {good, append(slices.Clone(pb), forward.HopsHeader, "8"), 508, "8 forwarders"},
		"less than no hops": {good, append(slices.Clone(pb), forward.HopsHeader, "-1"), 508, "forwarders"},
	} {
		a := ask(t, "POST", base+forward.Path, bytes.NewReader(r.body), r.header...).want(t, r.status)
		text := ""
		if strings.Contains(r.header[1], "json") {
			var status struct{ Message string }
			if err := json.Unmarshal(a.body, &status); err != nil {
				t.Errorf("%s: %v: %s", name, err, a.body)
			}
			text = status.Message
		} else if b, n := protowire.ConsumeBytes(a.body[min(1, len(a.body)):]); n > 0 && a.body[0] == 0x12 {
			text = string(b)
		}
		if !strings.Contains(text, r.text) {
			t.Errorf("%s: message %q, want %q", name, text, r.text)
		}
	}
	if status := statusOf(messageError(fmt.Errorf("a message: %w", profile.ErrTooLarge))); status != 413 {
		t.Errorf("a message that takes too much memory: %d", status)
	}
	if used := s.profiles.bodies.inUse(); used != 0 {
		t.Errorf("%d bytes of the memory of bodies were not given back", used)
	}
	if used := s.profiles.decoded.inUse(); used != 0 {
		t.Errorf("%d bytes of the memory of messages were not given back", used)
	}
	if len(c.came) != 0 {
		t.Error("something was passed on")
	}
	_, without := start(t, nil)
	ask(t, "POST", without+forward.Path, bytes.NewReader(good), pb...).want(t, 404)
}

// TestForwardFull answers 503 while the backend takes nothing and the queue is full, and goes on later.
func TestForwardFull(t *testing.T) {
	c := newCollector(t)
	good := encoded(t, bareProfile(t, program(t)), false)
	s, base := start(t, func(conf *Config) {
		conf.Forward = &forward.Forwarder{URL: c.URL + forward.Path, MaxQueue: 3 * int64(len(good))} // a client leaves as much as it has
	})
	send := func() answered {
		return ask(t, "POST", base+forward.Path, bytes.NewReader(good), "Content-Type", "application/x-protobuf")
	}
	send().want(t, 200)
	send().want(t, 200)
	if a := send().want(t, 503); a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("%v", a.Header)
	}
	runForwarder(t, s)
	c.next(t)
	c.next(t)
	for end := time.Now().Add(testenv.Patience); s.Forward.Queued() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	send().want(t, 200)
	c.next(t)
	metrics := ask(t, "GET", base+"/metrics", nil).want(t, 200)
	if !bytes.Contains(metrics.body, []byte(`hallmark_forwarded_total{result="sent"}`)) {
		t.Errorf("%s", metrics.body)
	}
}

// TestForwardRoles takes profiles of those alone who may push.
func TestForwardRoles(t *testing.T) {
	c := newCollector(t)
	tokens, secrets := testTokens(t)
	_, base := startForwarding(t, c, func(conf *Config) { conf.Tokens = tokens })
	good := encoded(t, bareProfile(t, program(t)), false)
	for role, status := range map[Role]int{Read: 403, Symbolize: 403, UploadCI: 200, UploadAgent: 200, Admin: 200, "": 401} {
		header := []string{"Content-Type", "application/x-protobuf"}
		if role != "" {
			header = append(header, "Authorization", "Bearer "+secrets[role])
		}
		if a := ask(t, "POST", base+forward.Path, bytes.NewReader(good), header...).want(t, status); status != 200 && a.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s: %v", role, a.Header)
		}
	}
}

// testTokens returns a file with a token of each role, and the secrets.
func testTokens(t *testing.T) (file string, secrets map[Role]string) {
	t.Helper()
	secrets = map[Role]string{}
	var all []Token
	for _, r := range Roles {
		token, secret := NewToken(string(r), []Role{r}, time.Time{})
		all, secrets[r] = append(all, token), secret
	}
	file = t.TempDir() + "/tokens.json"
	if err := WriteTokens(file, all); err != nil {
		t.Fatal(err)
	}
	return file, secrets
}

// TestForwardEnds has the server end while a message waits for its backend: it is sent first.
func TestForwardEnds(t *testing.T) {
	came, release := make(chan struct{}), make(chan struct{})
	var sent atomic.Bool
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(came)
		<-release
		sent.Store(true)
	}))
	defer backend.Close()
	s, _ := start(t, func(conf *Config) { conf.Forward = &forward.Forwarder{URL: backend.URL + forward.Path} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	good := encoded(t, bareProfile(t, program(t)), false)
	ask(t, "POST", "http://"+l.Addr().String()+forward.Path, bytes.NewReader(good), "Content-Type", "application/x-protobuf").want(t, 200)
	<-came
	cancel()
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	if err := <-ended; err != nil || !sent.Load() {
		t.Errorf("%v, sent: %v", err, sent.Load())
	}
	if err := s.Forward.Add(good, "", 0); err == nil {
		t.Error("a server that has ended takes messages")
	}
}

// TestRewrite has profiles come back with names, in the format in which they came.
func TestRewrite(t *testing.T) {
	p := program(t)
	_, base := start(t, withSymbols(t))
	upload(t, base, p.full, "").want(t, 201)
	bare := bareProfile(t, p)
	var plain, compressed bytes.Buffer
	if err := errors.Join(profile.WriteUncompressed(&plain, bare), profile.Write(&compressed, bare)); err != nil {
		t.Fatal(err)
	}
	readPprof := func(b []byte) *pprof.Profile {
		out, err := profile.Read(bytes.NewReader(b), profile.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	readJSON := func(b []byte) *pprof.Profile {
		m, err := otlp.ParseJSON(b, otlp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := m.Profile(profile.ReadOptions{}.Limits(int64(len(b))))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	readGzip := func(b []byte) *pprof.Profile {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		b, err = io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return decoded(t, b)
	}
	for name, c := range map[string]struct {
		body []byte
		read func([]byte) *pprof.Profile
		kind string
	}{
		"pprof":      {compressed.Bytes(), readPprof, "application/octet-stream"},
		"plain":      {plain.Bytes(), readPprof, "application/octet-stream"},
		"OTLP":       {encoded(t, bare, false), func(b []byte) *pprof.Profile { return decoded(t, b) }, "application/x-protobuf"},
		"OTLP, gzip": {gzipped(encoded(t, bare, false)), readGzip, "application/gzip"},
		"JSON":       {encoded(t, bare, true), readJSON, "application/json"},
	} {
		a := ask(t, "POST", base+"/v1/rewrite", bytes.NewReader(c.body)).want(t, 200)
		if a.Header.Get("Content-Type") != c.kind || a.Header.Get(namedHeader) != "1" || a.Header.Get(bareHeader) != "1" || a.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %v", name, a.Header)
		}
		got := c.read(a.body)
		if names := namesAt(got.Sample[0].Location[0]); len(names) == 0 || !strings.HasPrefix(names[len(names)-1], "f:") || got.Sample[0].Value[0] != 7 {
			t.Errorf("%s: names %q", name, names)
		}
		if names := namesAt(got.Sample[0].Location[1]); len(names) != 0 {
			t.Errorf("%s: a file that nobody has: %q", name, names)
		}
	}

	// Other code, as the profile says, and the kernel, whose offsets are others.
	other := bareProfile(t, p)
	other.Comments = []string{"content=8bb18077fa415b4d1306d85709708bc9622c9d24 build_id=" + p.id.String() + ` file="/bin/prog"`}
	kernel := bareProfile(t, p)
	kernel.Mapping[0].File = "[kernel]"
	for name, p := range map[string]*pprof.Profile{"other code": other, "the kernel": kernel} {
		var b bytes.Buffer
		if err := profile.Write(&b, p); err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{b.Bytes(), encoded(t, p, false)} {
			if a := ask(t, "POST", base+"/v1/rewrite", bytes.NewReader(body)).want(t, 200); a.Header.Get(namedHeader) != "0" {
				t.Errorf("%s: %v", name, a.Header)
			}
		}
	}
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{
		"text": {[]byte("no profile"), 400}, "nothing": {nil, 400}, "gzip of nothing": {gzipped(nil), 400}, "cut": {compressed.Bytes()[:30], 400},
		"twice gzip": {gzipped(compressed.Bytes()), 400}, "a bomb": {gzipped(make([]byte, maxMessage+1)), 413}, "damaged": {[]byte(`{"dictionary":5}`), 400},
	} {
		if a := ask(t, "POST", base+"/v1/rewrite", bytes.NewReader(c.body)); a.StatusCode != c.status || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.body)
		}
	}
}
