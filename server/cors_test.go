package server

import (
	"strings"
	"testing"
)

// TestCORS lets pages of other sites ask for files alone, and only where the flag says so.
func TestCORS(t *testing.T) {
	p := program(t)
	for _, on := range []bool{false, true} {
		_, base := start(t, func(c *Config) { c.CORS = on })
		upload(t, base, p.stripped, "name=/usr/bin/prog").want(t, 201)
		want := ""
		if on {
			want = "*"
		}
		file := base + "/buildid/" + p.id.String() + "/executable"
		for _, url := range []string{file, base + "/metadata?key=file&value=/usr/bin/prog"} {
			if got := ask(t, "GET", url, nil, "Origin", "https://elsewhere.example").want(t, 200).Header.Get("Access-Control-Allow-Origin"); got != want {
				t.Errorf("%s: %q", url, got)
			}
		}
		for _, path := range []string{"/v1/profiles", "/v1/health", "/metrics", "/"} {
			if a := ask(t, "GET", base+path, nil, "Origin", "https://elsewhere.example"); a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s may be read by other sites", path)
			}
		}
		a := ask(t, "OPTIONS", file, nil, "Origin", "https://elsewhere.example", "Access-Control-Request-Method", "GET")
		if methods := a.Header.Get("Access-Control-Allow-Methods"); on != (a.StatusCode == 204 && strings.Contains(methods, "GET") && !strings.Contains(methods, "PUT")) {
			t.Errorf("OPTIONS: %d, %q", a.StatusCode, methods)
		}
	}
}

// TestMaxSize wants a client's own limit to be kept, as by elfutils' server.
func TestMaxSize(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	upload(t, base, p.stripped, "").want(t, 201)
	file := base + "/buildid/" + p.id.String() + "/executable"
	ask(t, "GET", file, nil, "X-DEBUGINFOD-MAXSIZE", "100").want(t, 406)
	ask(t, "GET", file, nil, "X-DEBUGINFOD-MAXSIZE", "100000000").want(t, 200)
}

// TestModified wants Last-Modified to be the file's time where whoever sent it says so. Nothing is taken for the same by a
// time: many files have that of one build.
func TestModified(t *testing.T) {
	p := program(t)
	_, base := start(t, nil)
	upload(t, base, p.stripped, "modified=1000000000").want(t, 201)
	upload(t, base, p.debug, "modified=99999999999").want(t, 201) // in the year 5138
	file := base + "/buildid/" + p.id.String()
	const when = "Sun, 09 Sep 2001 01:46:40 GMT"
	a := ask(t, "GET", file+"/executable", nil).want(t, 200)
	if got := a.Header.Get("Last-Modified"); got != when {
		t.Errorf("%q", got)
	}
	if got := ask(t, "GET", file+"/section/.text", nil).want(t, 200).Header.Get("Last-Modified"); got != when {
		t.Errorf("a section: %q", got)
	}
	if got := ask(t, "GET", file+"/debuginfo", nil).want(t, 200).Header.Get("Last-Modified"); strings.Contains(got, "5138") || got == "" {
		t.Errorf("a time to come: %q", got)
	}
	ask(t, "GET", file+"/executable", nil, "If-Modified-Since", when).want(t, 200)
	ask(t, "GET", file+"/executable", nil, "If-Range", when, "Range", "bytes=5-9").want(t, 200)
	ask(t, "GET", file+"/executable", nil, "If-Range", a.Header.Get("ETag"), "Range", "bytes=5-9").want(t, 206)
	ask(t, "GET", file+"/executable", nil, "If-None-Match", a.Header.Get("ETag")).want(t, 304)
	// It comes again with another time.
	upload(t, base, p.stripped, "modified=1100000000")
	if got := ask(t, "GET", file+"/executable", nil).want(t, 200).Header.Get("Last-Modified"); got == when {
		t.Errorf("it came again: %q", got)
	}
}
