package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"hallmark/internal/testenv"
)

// served is a symbol server in a test.
type served struct {
	t     *testing.T
	url   string
	token string
}

func serve(t *testing.T, token string, args ...string) *served {
	t.Helper()
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	v, err := StartServer(command, t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	return &served{t, v.URL, token}
}

// send makes a request, and returns the answer.
func (s *served) send(method, path string, body []byte) []byte {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %.300s %v", method, path, resp.StatusCode, b, err)
	}
	return b
}

// keep has the server keep a profile, and returns its ID.
func (s *served) keep(file, title string) string {
	s.t.Helper()
	b, err := os.ReadFile(profileFile(file))
	if err != nil {
		s.t.Fatal(err)
	}
	var kept struct{ ID string }
	if err := json.Unmarshal(s.send("POST", "/v1/profiles?title="+url.QueryEscape(title), b), &kept); err != nil {
		s.t.Fatal(err)
	}
	return kept.ID
}

// push sends the file of a program, and returns its identity.
func (s *served) push(path string) string {
	s.t.Helper()
	cmd := exec.Command(command, "push", "--json", "--server", s.url, path)
	cmd.Env = append(os.Environ(), "HALLMARK_TOKEN="+s.token)
	out, err := cmd.Output()
	var sent struct {
		ID string `json:"build_id"`
	}
	if err != nil || json.Unmarshal(out, &sent) != nil {
		s.t.Fatalf("%s: %v", out, err)
	}
	return sent.ID
}

// goTo opens a part of the server's page, and waits until it is drawn.
func (p *tab) goTo(fragment string) {
	p.t.Helper()
	p.do(p.Do(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", fragment), nil)))
	p.await(fmt.Sprintf("document.documentElement.dataset.ready === %q", "#"+fragment))
}

// click clicks on the first element of a selector.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(p.Do(chromedp.Click(selector, chromedp.ByQuery)))
}

// TestServerPages goes from a search to a binary, from what is missing to profiles, and compares two.
func TestServerPages(t *testing.T) {
	s := serve(t, "")
	id := s.push(command)
	before, after := s.keep("before.pb.gz", "before"), s.keep("after.pb.gz", Evil)
	p := openURL(t, Look{}, s.url+"/")
	p.wants("#view", id, "hallmark", "1–1 of 1")
	p.enter("#q", "nothing has this")
	p.await("document.querySelector('#view').textContent.includes('No binary')")
	p.do(p.Eval("document.querySelector('#q').value = ''", nil))
	p.enter("#q", id[:7])
	p.await("document.querySelector('#view td.id a')")
	p.click("#view td.id a")
	p.await("document.querySelector('#view h2')")
	p.wants("#view h2", id)
	p.wants("#view", ".text", "program or library", "push", command)
	p.click("#view a[href*='view=functions']")
	p.await("document.querySelector('#view').textContent.includes('Only in')")
	p.enter("#q", "main.main")
	p.await("document.querySelector('#view').textContent.includes('1 not')")
	s.send("POST", "/v1/symbolize", fmt.Appendf(nil, `{"files": [{"id": %q, "virtual": true, "addresses": [4198400]}]}`, id))
	p.do(p.Eval("document.querySelector('#q').value = ''", nil))
	p.enter("#q", "main.")
	p.await("document.querySelector('#view td.id a')")
	p.wants("#view", "main.main", "main.go", "1 binary searched", id)
	p.click("#tabs a:nth-child(4)")
	p.await("document.querySelector('#view').textContent.includes('2 in all')")
	p.wants("#view", "before", "pprof", "<img src=x")
	p.enter("#q", "before")
	p.await("document.querySelector('#view').textContent.includes('1 in all')")
	p.click("#view td:last-child a")
	p.await("document.querySelector('#view').textContent.includes('Do not compare')")
	p.goTo("view=profiles&base=" + before)
	p.do(p.Do(chromedp.Click(fmt.Sprintf("#view a[href*='%s?']", after), chromedp.ByQuery), chromedp.WaitReady("html[data-ready='1']", chromedp.ByQuery)))
	p.wants("#title", "compared with", "before")
	p.await("location.pathname.endsWith('/vs/" + before + "/')")
	p.show("view=changes")
	p.await("document.querySelector('#view table')")
	p.do(p.Go(s.url + "/profiles/" + after))
	p.show("view=binaries")
	p.await("document.querySelector('#view table')")
	p.do(p.Go(s.url + "/#view=missing"))
	p.wants("#view", LibcID)
	p.click("#tabs a:nth-child(5)")
	p.await("document.querySelector('#view').textContent.includes('answers')")
	p.wants("#view", "whoever reaches the server", "2, ")
	var evil any
	p.do(p.Eval("window.evil === undefined ? 0 : window.evil", &evil))
	if fmt.Sprint(evil) != "0" {
		t.Error("a title was executed")
	}
}

// TestServerLinks opens links to a part of a profile: numbers of functions that are others by now are dropped, and
// those of this version are kept.
func TestServerLinks(t *testing.T) {
	s := serve(t, "")
	page := s.url + "/profiles/" + s.keep("after.pb.gz", "after") + "/"
	p := openURL(t, Look{}, page+"#view=sandwich&fn=0&root=1.2&v=0123456789abcdef&q=app")
	if f := p.fragment(); strings.Contains(f, "root") || strings.Contains(f, "fn=") || !strings.Contains(f, "q=app") {
		t.Errorf("the fragment is %s", f)
	}
	var about struct{ Version string }
	if err := json.Unmarshal(s.send("GET", strings.TrimPrefix(page, s.url)+"api/profile", nil), &about); err != nil || about.Version == "" {
		t.Fatal(err)
	}
	other := openURL(t, Look{}, page+"#view=sandwich&fn=0&v="+about.Version)
	if f := other.fragment(); !strings.Contains(f, "fn=0") {
		t.Errorf("the fragment is %s", f)
	}
	// So in a page that is open: the link of yesterday is put there.
	other.do(other.Eval("location.hash = '#view=sandwich&fn=0&root=1.2&v=0123456789abcdef&q=app'", nil))
	other.await("document.querySelector('#q').value === 'app'")
	other.await("!performance.getEntriesByType('resource').some((e) => e.name.includes('root=1.2') || e.name.includes('api/callers?fn=0&q'))")
	other.await("document.querySelector('#tabs [aria-current]').textContent !== 'Callers and callees'")
}

// TestServerLogin shows a profile to who has a token, at the link that was asked for.
func TestServerLogin(t *testing.T) {
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	out, err := exec.Command(command, "serve", "token", "--tokens", tokens, "--name", "reader", "--role", "admin").Output()
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, strings.TrimSpace(string(out)), "--tokens", tokens)
	id := s.keep("after.pb.gz", "after")
	p := openTab(t, Look{})
	p.do(p.Do(chromedp.Navigate(s.url+"/profiles/"+id), chromedp.WaitReady("#login", chromedp.ByQuery)))
	p.enter("input[name=token]", s.token)
	p.do(p.Do(chromedp.WaitReady("html[data-ready='1']", chromedp.ByQuery)))
	p.wants("#title", "after")
	p.do(p.Go(s.url + "/#view=health"))
	p.wants("#view", "you are reader")
	for _, check := range []string{contrast, nameless} {
		p.poor(check)
	}
	p.click("#logout")
	p.do(p.Do(chromedp.WaitReady("#login", chromedp.ByQuery)))
	for _, check := range []string{contrast, nameless} {
		p.poor(check)
	}
	p.do(p.Do(chromedp.Navigate(s.url+"/profiles/"+id), chromedp.WaitReady("#login", chromedp.ByQuery)))
}

func (p *tab) poor(check string) {
	p.t.Helper()
	var poor []string
	p.do(p.Eval(check, &poor))
	for _, text := range poor {
		p.t.Error(text)
	}
}

// serverViews are the parts of the page of a server.
var serverViews = []string{"view=search", "view=functions", "view=functions&q=main", "view=search&q=none", "view=missing", "view=profiles", "view=health"}

// TestServerContrastAndNames looks at the pages of a server, light and dark, and on a phone.
func TestServerContrastAndNames(t *testing.T) {
	s := serve(t, "")
	id := s.push(command)
	profile := s.keep("after.pb.gz", Evil)
	s.send("GET", "/profiles/"+profile+"/api/profile", nil)
	for _, look := range []Look{{}, {Dark: true}, {Width: 390, Height: 800, Phone: true}} {
		p := openURL(t, look, s.url+"/")
		for _, fragment := range append([]string{"view=binary&id=" + id, "view=profiles&base=" + profile}, serverViews...) {
			p.goTo(fragment)
			for _, check := range []string{contrast, nameless} {
				p.poor(check)
			}
			var wide bool
			p.do(p.Eval("document.documentElement.scrollWidth > document.documentElement.clientWidth", &wide))
			if wide {
				t.Errorf("%+v, %s: the page is wider than the window", look, fragment)
			}
		}
	}
}

// TestServerAxe has axe-core look at the pages of a server.
func TestServerAxe(t *testing.T) {
	s := serve(t, "")
	source := axe(t)
	id := s.push(command)
	s.keep("after.pb.gz", "after")
	p := openURL(t, Look{}, s.url+"/")
	p.do(p.Eval(source+";0", nil))
	for _, fragment := range append([]string{"view=binary&id=" + id}, serverViews...) {
		p.goTo(fragment)
		var found []string
		p.do(p.Eval(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.map((n) => n.html.slice(0, 100)).join(" | ")))`, &found))
		for _, text := range found {
			t.Errorf("%s: %s", fragment, text)
		}
	}
}

// TestServerErrorPages wants a page that is not there to have the form of the others, with a way on.
func TestServerErrorPages(t *testing.T) {
	s := serve(t, "")
	p := openTab(t, Look{})
	for path, want := range map[string]string{"/profiles/none": "no profile has this name", "/buildid/0123abcd/executable": "no file with this build ID", "/nowhere": "no such path"} {
		p.do(p.Do(chromedp.Navigate(s.url + path)))
		p.await("document.querySelector('header#top h1')")
		p.wants("[role=alert]", want)
		p.poor(contrast)
		p.click("#tabs a[href='/#view=profiles']")
		p.await("document.querySelector('#view') && document.querySelector('#view').textContent.includes('The server has no profiles')")
	}
	for _, text := range p.Problems() { // the browser reports what the server refused
		if !strings.Contains(text, "Failed to load resource") {
			t.Error(text)
		}
	}
}

// TestServerProfileLeadsBack wants the page of a profile to lead to the list, and to show what it waits for at once.
func TestServerProfileLeadsBack(t *testing.T) {
	s := serve(t, "")
	before, after := s.keep("before.pb.gz", "before"), s.keep("after.pb.gz", "after")
	p := openTab(t, Look{})
	for _, path := range []string{after + "/", after + "/vs/" + before + "/", strings.Repeat("0", 64) + "/"} {
		p.do(p.Go(s.url + "/profiles/" + path))
		p.click("#top a[href$='#view=profiles']")
		p.await("document.querySelector('#view') && document.querySelector('#view').textContent.includes('2 in all')")
	}
	p.Problems() // of the profile that is not there
	page := string(s.send("GET", "/profiles/"+after+"/", nil))
	if !strings.Contains(page, `class="skeleton"`) {
		t.Error("the page has nothing to show before its scripts run")
	}
}

// TestServerTablesFit wants each build ID on one line beside its path, and on a phone each cell in sight.
func TestServerTablesFit(t *testing.T) {
	s := serve(t, "")
	id := s.push(command)
	s.keep("before.pb.gz", "before")
	s.keep("after.pb.gz", "a profile with a title that is as long as titles of profiles are")
	for _, look := range []Look{{Width: 1280, Height: 800}, {Width: phoneWidth, Height: phoneHeight, Phone: true}} {
		p := openURL(t, look, s.url+"/")
		for _, fragment := range []string{"view=search", "view=profiles", "view=binary&id=" + id, "view=missing"} {
			p.goTo(fragment)
			var poor []string
			p.do(p.Eval(`(() => {
				const poor = [];
				for (const td of document.querySelectorAll("#view td")) {
					const box = td.getBoundingClientRect();
					if (box.width && (box.left < 0 || box.right > innerWidth + 1)) poor.push("out of sight: " + td.textContent);
				}
				const lines = (e) => { const r = document.createRange(); r.selectNodeContents(e); return new Set([...r.getClientRects()].map((b) => Math.round(b.top))).size; };
				for (const a of document.querySelectorAll("#view td.id a, #view td:last-child a")) if (innerWidth > 700 && lines(a) > 1) poor.push("wrapped: " + a.textContent);
				for (const a of document.querySelectorAll("#view td a[aria-label^=Compare]")) {
					a.scrollIntoView({ block: "center" });
					const box = a.getBoundingClientRect();
					if (document.elementFromPoint(box.left + box.width / 2, box.top + 4) !== a) poor.push("not to be clicked: " + a.textContent);
				}
				return poor;
			})()`, &poor))
			for _, text := range poor {
				t.Errorf("%d pixels, %s: %s", look.Width, fragment, text)
			}
		}
		p.goTo("view=binary&id=" + id)
		p.wants("#view h2", "hallmark", id)
	}
}
