package view

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"hallmark/internal/proftest"
	"hallmark/internal/testenv"
)

// messages is a terminal: Serve writes to it while the test reads.
type messages struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.Write(b)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.buf.String()
}

// compiledFrom returns a profile whose functions were compiled from a file, as its debug
// information says.
func compiledFrom(file string) *pprof.Profile {
	p := proftest.Mixed()
	for _, f := range p.Function {
		f.Filename = file
	}
	for _, l := range p.Location {
		for i := range l.Line {
			l.Line[i].Line = 1
		}
	}
	return p
}

// TestProfileOpensNoFile shows a program that was compiled with #line 1 "/etc/shadow".
func TestProfileOpensNoFile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "shadow")
	if err := os.WriteFile(secret, []byte("root:$y$j9T$salt:20000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{secret, "shadow", "./shadow", "/proc/self/cwd/shadow", filepath.Base(dir) + "/shadow"} {
		site := start(t, compiledFrom(name), Options{})
		for _, page := range append([]string{site.linesOf(t, "main")}, pages...) {
			if _, body := site.get(t, page); strings.Contains(body, "$j9T$salt") {
				t.Errorf("compiled from %s: %s shows the file", name, page)
			}
		}
	}
}

// TestProfileOpensNoPipe shows a program that was compiled from a pipe. Opening it would wait
// for ever, and opening a device may do worse.
func TestProfileOpensNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	site := start(t, compiledFrom(pipe), Options{})
	status, body := site.get(t, site.linesOf(t, "main"))
	if status != http.StatusOK || !strings.Contains(body, "main") {
		t.Errorf("status %d:\n%s", status, body)
	}
}

// TestStrangersAreRefused asks for pages as other users of the machine can, and other pages in
// the user's browser.
func TestStrangersAreRefused(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	stranger := site.stranger()
	for _, page := range append([]string{"nothing", "?key=", "?key=x", "?ticket=", "api/tree?key=" + strings.Repeat("A", 26)}, pages...) {
		for _, header := range [][]string{
			nil,
			{"Cookie", "hallmark-view=x"},
			{"Cookie", "hallmark-view-" + port(site) + "="},
			{"Cookie", "hallmark-view-" + port(site) + "=x; hallmark-view-" + port(site) + "=y"},
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
		} {
			if status, body := stranger.get(t, page, header...); status != http.StatusForbidden || strings.Contains(body, "vfs_read") {
				t.Errorf("%q with %q: status %d: %.80s", page, header, status, body)
			}
		}
	}
	root := regexp.MustCompile(`^http://[^/]+/`).FindString(site.pages)
	for _, page := range []string{"", "api/", "api/tree", "api/download", "app/js/main.js"} {
		if status, _, body := stranger.ask(t, "GET", root+page); status != http.StatusForbidden || !strings.Contains(body, "URL that it printed") {
			t.Errorf("/%s: status %d: %.80s", page, status, body)
		}
	}
}

func port(s *site) string {
	return regexp.MustCompile(`:(\d+)`).FindStringSubmatch(s.pages)[1]
}

// TestOtherUsersAreRefused has nobody's curl ask. The ports of the machine and the command
// lines of its processes are no secret to it.
func TestOtherUsersAreRefused(t *testing.T) {
	testenv.Root(t)
	curl := testenv.Tool(t, "curl")
	opened := filepath.Join(t.TempDir(), "opened")
	t.Setenv("BROWSER", script(t, "printf '%s\\n' \"$@\" > "+opened))
	site := startAs(t, compiledFrom("/etc/shadow"), Options{}, Server{Browser: true})
	testenv.Await(t, "the browser", func() bool { b, err := os.ReadFile(opened); return err == nil && bytes.HasSuffix(b, []byte("\n")) })
	arg, err := os.ReadFile(opened)
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.TrimSpace(string(arg)) // as every user can see it
	base, _, _ := strings.Cut(seen, "?")
	for _, url := range []string{base, base + "api/tree", base + "api/lines?fn=0", base + "api/download", seen} {
		cmd := exec.Command(curl, "-sL", "-c", "/dev/null", "--max-time", "60", url)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "URL that it printed") {
			t.Errorf("nobody gets %s: %v: %.80s", url, err, out)
		}
	}
	open(t, seen) // the user's browser
	if status, _, _ := site.stranger().ask(t, "GET", seen); status != http.StatusForbidden {
		t.Errorf("the URL that the browser was started with opens the pages twice: status %d", status)
	}
}

// script makes a program.
func script(t *testing.T, body string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestOtherSitesAreRefused sends what pages of other sites can make the user's browser send
// if it adds the cookie, which it does for pages of other ports.
func TestOtherSitesAreRefused(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	for _, test := range []struct {
		name   string
		header []string
		want   int
	}{
		{"by address", nil, http.StatusOK},
		{"by name", []string{"Host", "localhost:1234"}, http.StatusOK},
		{"by address, version 6", []string{"Host", "[::1]:1234"}, http.StatusOK},
		{"by a foreign name", []string{"Host", "attacker.example"}, http.StatusForbidden},
		{"by a foreign name with port", []string{"Host", "attacker.example:80"}, http.StatusForbidden},
		{"by a name that only starts well", []string{"Host", "localhost.attacker.example"}, http.StatusForbidden},
		{"by an address that only looks well", []string{"Host", "127.0.0.1.attacker.example"}, http.StatusForbidden},
		{"typed", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, http.StatusOK},
		{"the page itself", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, http.StatusOK},
		{"a link elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, http.StatusForbidden},
		{"a link on another port", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}, http.StatusForbidden},
		{"a script elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
		{"a script on another port", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"a script elsewhere in an old browser", []string{"Origin", "http://attacker.example"}, http.StatusForbidden},
		{"a script without an origin", []string{"Origin", "null"}, http.StatusForbidden},
	} {
		if status, _ := site.get(t, "api/tree", test.header...); status != test.want {
			t.Errorf("%s: status %d, want %d", test.name, status, test.want)
		}
	}
}

// TestNothingIsWritten asks for a change in all ways, from another site and from the page itself.
func TestNothingIsWritten(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	site := start(t, proftest.Mixed(), Options{})
	for _, page := range append([]string{"saveconfig?config=theirs&f=x", "deleteconfig?config=mine"}, pages...) {
		for _, header := range [][]string{
			nil,
			{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
			{"Sec-Fetch-Site", "same-origin", "Origin", strings.TrimSuffix(regexp.MustCompile(`^http://[^/]+/`).FindString(site.pages), "/")},
		} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				if status, _, _ := site.ask(t, method, site.pages+page, header...); status < 400 {
					t.Errorf("%s %s with %q: status %d", method, page, header, status)
				}
			}
		}
	}
	if names, err := filepath.Glob(home + "/*"); err != nil || len(names) != 0 {
		t.Errorf("the home has %q (%v)", names, err)
	}
}

// TestHomeIsNotNeeded serves in an environment without a home.
func TestHomeIsNotNeeded(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(name, "") // is restored
		os.Unsetenv(name)
	}
	if status, _ := start(t, proftest.Mixed(), Options{}).get(t, "api/tree"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// TestNothingIsExecuted has programs in the path that pprof runs.
func TestNothingIsExecuted(t *testing.T) {
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	for _, name := range []string{"dot", "perf_to_profile", "addr2line", "objdump", "nm", "llvm-symbolizer"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+name+" >> "+ran+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	site := start(t, proftest.Mixed(), Options{})
	for _, page := range pages {
		site.get(t, page)
	}
	if names, err := os.ReadFile(ran); err == nil {
		t.Errorf("executed: %s", names)
	}
}

// steering is a name that a program may have, which clears the screen in two ways, forges a
// line, and turns the direction of the text.
const steering = "\x1b[2Jmain\u009b2J\nhallmark: all is well\u202e\u2066"

// steers holds for what a terminal would execute, or show elsewhere.
func steers(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) }

// TestTerminalGetsPlainText asks for pages by what a terminal executes.
func TestTerminalGetsPlainText(t *testing.T) {
	terminal := new(messages)
	p := proftest.Mixed()
	p.Function[0].Name = steering
	p.Mapping[0].File = steering
	p.Sample[0].NumLabel = map[string][]int64{steering: {1}}
	p.Sample[0].NumUnit = map[string][]string{steering: {"bytes"}}
	p.Sample[1].NumLabel = map[string][]int64{steering: {1}}
	p.Sample[1].NumUnit = map[string][]string{steering: {"\x1b[31m"}}
	site := startAs(t, p, Options{Title: steering, Symbols: named(steering)}, Server{Errors: terminal})
	for _, page := range append([]string{
		"api/search?q=%1b%5B2J(", "api/search?q=a%0Ahallmark:+all+is+well(", "api/tree?focus=%1b(", "api/tree?type=%1b%5B2J",
		"api/tree?width=%1b%5B2J", "api/functions?sort=%C2%9B2J(", "api/functions?sort=%E2%80%AE%1b", "api/function?fn=%1b", "api/labels?key=%1b",
		"api/tree?split=%1b", "api/tree?root=%1b", "api/tree?label=%1b", "api/profile?p=%1b", "%1b", "app/%1b.js",
	}, pages...) {
		status, body := site.get(t, page)
		if page == "api/download" || status == http.StatusOK && (strings.HasPrefix(page, "api/tree") || strings.HasPrefix(page, "api/call")) {
			continue // binary; TestNamesStayText looks at the names of trees
		}
		if i := strings.IndexFunc(body, func(r rune) bool { return r != '\t' && r != '\r' && steers(r) }); i >= 0 {
			t.Errorf("%s: the answer has %+q", page, body[max(0, i-40):min(len(body), i+4)])
		}
	}
	for line := range strings.Lines(terminal.String()) {
		if strings.HasPrefix(line, "hallmark:") || strings.ContainsFunc(line, steers) {
			t.Errorf("the terminal gets the line %+q", line)
		}
	}
}

// TestNamesStayText has names that are HTML, scripts, controls and no UTF-8.
func TestNamesStayText(t *testing.T) {
	p := proftest.Mixed()
	const evil = `</script></title></head><script>evil()</script><img src=x onerror="evil()">'-evil()-'` + "\u2028\xff\xc0"
	p.Function[0].Name, p.Function[1].Filename, p.Mapping[0].File = evil, evil, "/x/"+evil
	p.Function[2].Name = steering
	p.SampleType[0].Type = evil
	p.Comments, p.DocURL = []string{evil}, "javascript:evil()"
	p.Sample[0].Label["process"] = []string{evil}
	site := start(t, p, Options{SampleType: "cpu", Title: evil, BaseTitle: evil, Base: compacted(t, proftest.Mixed())})
	for _, page := range append([]string{"api/search?q=%3Cscript%3Eevil()%3C/script%3E", "nothing%3Cscript%3Eevil()%3C/script%3E"}, pages...) {
		_, h, body := site.ask(t, "GET", site.pages+page)
		if page == "api/download" {
			continue
		}
		if strings.HasPrefix(body, "HMT1") {
			body = headOf(t, body)
		}
		for _, bad := range []string{"<script>evil", "<img", "\x1b", "\u009b", "\u202e", "\u2066", "\u2028"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s: the answer has %+q", page, bad)
			}
		}
		if !utf8.ValidString(body) {
			t.Errorf("%s: the answer is no UTF-8", page)
		}
		kind := h.Get("Content-Type")
		if page != "" && strings.HasPrefix(kind, "text/html") {
			t.Errorf("%s: the answer is HTML", page)
		}
		checkPolicy(t, page, h.Get("Content-Security-Policy"), body)
	}
}

// headOf returns the text in a tree.
func headOf(t *testing.T, tree string) string {
	t.Helper()
	size := binary.LittleEndian.Uint32([]byte(tree[4:8]))
	return tree[8 : 8+size]
}

// checkPolicy wants a policy by which the pages' own scripts run, which are files, and no others.
func checkPolicy(t *testing.T, page, policy, body string) {
	t.Helper()
	if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "script-src 'self'") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "require-trusted-types-for 'script'") {
		t.Errorf("%s: the policy is %q", page, policy)
	}
	if page != "" {
		return
	}
	if inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]`).FindString(body); inline != "" {
		t.Errorf("the page has a script in it: %s", inline)
	}
	for _, bad := range []string{`(?i)<[^>]*\son[a-z]+\s*=`, `(?i)<style`, `(?i)<[^>]*\sstyle\s*=`, `(?i)javascript:`, `(?i)(src|href)="(https?:)?//`} {
		if found := regexp.MustCompile(bad).FindString(body); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
}

// TestHeaders wants of every answer that it stays where it is.
func TestHeaders(t *testing.T) {
	opened := start(t, proftest.Mixed(), Options{})
	users := map[string]*site{"the user": opened, "a stranger": opened.stranger()}
	for who, s := range users {
		for _, page := range append([]string{"nothing", "api/search?q=("}, pages...) {
			_, h, _ := s.ask(t, "GET", s.pages+page)
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s, %s: %s is %q, want %q", who, page, name, got, want)
				}
			}
			if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("%s, %s: the policy is %q", who, page, csp)
			}
		}
	}
}

// TestFloodOfHeaders sends more than a browser does.
func TestFloodOfHeaders(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	status, _, _ := site.stranger().ask(t, "GET", site.pages, "X-Long", strings.Repeat("x", 256<<10))
	if status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want %d", status, http.StatusRequestHeaderFieldsTooLarge)
	}
}

// TestFloodOfConnections holds as many connections as somebody without the key can.
func TestFloodOfConnections(t *testing.T) {
	site := start(t, proftest.Mixed(), Options{})
	for range maxConnections + maxConnections/2 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port(site))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if status, _ := site.get(t, "api/tree"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	open(t, site.url)
}
