package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"hallmark/internal/testenv"
)

var (
	chromium *Browser
	command  string // hallmark
	inputs   string // directory of profiles
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := Find(); err != nil {
		return m.Run() // each test says what it lacks
	}
	dir, err := os.MkdirTemp("", "hallmark-browser.")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	inputs, command = dir, filepath.Join(dir, "hallmark")
	build := exec.Command("go", "build", "-o", command, "./cmd/hallmark")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "hallmark cannot be built:", err)
		return 1
	}
	for name, slow := range map[string]int64{"before.pb.gz": 20, "after.pb.gz": 120} {
		if err := Save(filepath.Join(dir, name), Machine(slow)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if chromium, err = Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Chromium:", err)
		return 1
	}
	defer chromium.Stop()
	return m.Run()
}

// tab is a page in a test.
type tab struct {
	*Page
	t *testing.T
}

// open opens what 'hallmark view' shows with these arguments.
func open(t *testing.T, look Look, args ...string) *tab {
	t.Helper()
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	view, err := StartView(command, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Stop)
	return openURL(t, look, view.URL)
}

func openURL(t *testing.T, look Look, url string) *tab {
	t.Helper()
	p := openTab(t, look)
	p.do(p.Go(url))
	return p
}

// openTab opens an empty tab, in whose console nothing may be in the end.
func openTab(t *testing.T, look Look) *tab {
	t.Helper()
	if look.Width == 0 {
		look.Width, look.Height = 1280, 800
	}
	page, err := chromium.Open(look)
	if err != nil {
		t.Fatal(err)
	}
	p := &tab{page, t}
	t.Cleanup(func() {
		for _, text := range page.Problems() {
			t.Errorf("the console has: %s", text)
		}
		page.Close()
	})
	return p
}

func (p *tab) do(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// text returns the text of an element.
func (p *tab) text(selector string) string {
	p.t.Helper()
	var text string
	p.do(p.Eval(fmt.Sprintf("(document.querySelector(%q) || {textContent: 'there is no %s'}).textContent", selector, selector), &text))
	return text
}

func (p *tab) await(expression string) {
	p.t.Helper()
	p.do(p.Await(expression))
}

func (p *tab) show(fragment string) {
	p.t.Helper()
	p.do(p.Show(fragment))
}

// wants wants the text of an element to contain words.
func (p *tab) wants(selector string, words ...string) {
	p.t.Helper()
	text := p.text(selector)
	for _, w := range words {
		if !strings.Contains(text, w) {
			p.t.Errorf("%s has no %q: %.600s", selector, w, text)
		}
	}
}

func (p *tab) fragment() string {
	p.t.Helper()
	var hash string
	p.do(p.Eval("decodeURIComponent(location.hash)", &hash))
	return hash
}

// type_ types text into a field and ends it with Enter.
func (p *tab) enter(selector, text string) {
	p.t.Helper()
	p.do(p.Do(chromedp.Focus(selector, chromedp.ByQuery), chromedp.SendKeys(selector, text+"\r", chromedp.ByQuery)))
}

func profileFile(name string) string { return filepath.Join(inputs, name) }

func TestOpen(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.wants("#title", "after.pb.gz")
	p.wants("#coverage summary", "identified", "named", "complete")
	p.wants("#tabs", "Flame graph", "Functions", "Binaries", "Processes")
	p.wants("#status", "7.80 s")
	var title string
	p.do(p.Eval("document.title", &title))
	if !strings.HasPrefix(title, "after.pb.gz") {
		t.Errorf("the title is %q", title)
	}
	if n := p.colours("canvas[role=application]"); n < 4 {
		t.Errorf("the flame graph has %d colours", n)
	}
}

// colours returns how many colours a canvas has.
func (p *tab) colours(selector string) (n int) {
	p.t.Helper()
	p.do(p.Eval(fmt.Sprintf(`(() => {
		const c = document.querySelector(%q);
		const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		const seen = new Set();
		for (let i = 0; i < d.length; i += 4 * 97) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
		return seen.size;
	})()`, selector), &n))
	return n
}

// TestFiguresAgree compares the tables with 'hallmark report' and with pprof.
func TestFiguresAgree(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	out, err := exec.Command(command, "report", "--json", "--no-debuginfod", profileFile("after.pb.gz")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Total     int64
		Functions []struct {
			Function  string
			Unnamed   bool
			Flat, Cum int64
		}
		Binaries []struct {
			Binary    string
			BuildID   string `json:"build_id"`
			Flat, Cum int64
		}
		Processes []struct {
			Process string
			Flat    int64
		}
		Coverage struct {
			Frames     int64 `json:"frame_count"`
			Identified int64
			Symbolized int64
			Stacks     struct{ Samples, Complete int64 }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Total     int64
		Functions []struct {
			Name      string
			Unnamed   bool
			Flat, Cum int64
		}
		Binaries []struct {
			File, Identity string
			Flat, Cum      int64
		}
		Labels []struct {
			Value string
			Flat  int64
		}
		Coverage struct{ Frames, Identified, Symbolized, Samples, Complete int64 }
	}
	p.do(p.Eval(`(async () => {
		const ask = async (what) => (await fetch("api/" + what)).json();
		const f = await ask("functions");
		return {Total: f.total, Functions: f.rows, Binaries: (await ask("binaries")).rows, Labels: (await ask("labels?key=process")).rows, Coverage: await ask("coverage")};
	})()`, &shown))
	if shown.Total != report.Total {
		t.Errorf("total %d, want %d", shown.Total, report.Total)
	}
	functions := map[string][2]int64{}
	for _, f := range shown.Functions {
		if !f.Unnamed {
			functions[f.Name] = [2]int64{f.Flat, f.Cum}
		}
	}
	compared := 0
	for _, f := range report.Functions {
		if f.Unnamed || strings.HasPrefix(f.Function, "<img") { // shown as plain text
			continue
		}
		compared++
		if got := functions[f.Function]; got != [2]int64{f.Flat, f.Cum} {
			t.Errorf("%s: %d, the report has %d, %d", f.Function, got, f.Flat, f.Cum)
		}
	}
	if compared < 6 || len(shown.Binaries) != len(report.Binaries) || len(shown.Labels) != len(report.Processes) {
		t.Errorf("%d functions, %d and %d binaries, %d and %d processes", compared, len(shown.Binaries), len(report.Binaries), len(shown.Labels), len(report.Processes))
	}
	for i, b := range report.Binaries {
		if got := shown.Binaries[i]; got.File != b.Binary || got.Identity != b.BuildID || got.Flat != b.Flat || got.Cum != b.Cum {
			t.Errorf("binary %d is %+v, the report has %+v", i, got, b)
		}
	}
	for i, process := range report.Processes {
		if got := shown.Labels[i]; got.Value != process.Process || got.Flat != process.Flat {
			t.Errorf("process %d is %+v, the report has %+v", i, got, process)
		}
	}
	c := report.Coverage
	if got := shown.Coverage; got.Frames != c.Frames || got.Identified != c.Identified || got.Symbolized != c.Symbolized || got.Samples != c.Stacks.Samples || got.Complete != c.Stacks.Complete {
		t.Errorf("coverage %+v, the report has %+v", got, c)
	}
	comparePprof(t, functions)
}

// comparePprof compares functions with those of 'go tool pprof -top'.
func comparePprof(t *testing.T, functions map[string][2]int64) {
	out, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=0", "-unit=ns", "-sample_index=cpu", profileFile("after.pb.gz")).Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*(\d+)(?:ns)? +\S+ +\S+ +(\d+)(?:ns)? +\S+  (\S.*?)(?: \(inline\))?$`)
	compared := 0
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		flat, _ := strconv.ParseInt(m[1], 10, 64)
		cum, _ := strconv.ParseInt(m[2], 10, 64)
		if want, ok := functions[m[3]]; ok {
			compared++
			if want != [2]int64{flat, cum} {
				t.Errorf("%s: %d, pprof has %d, %d", m[3], want, flat, cum)
			}
		}
	}
	if compared < 6 {
		t.Errorf("%d functions of pprof are compared:\n%s", compared, out)
	}
}

func TestSearch(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.do(p.Do(chromedp.KeyEvent("/")))
	p.await("document.activeElement.id === 'q'")
	p.do(p.Eval("document.activeElement.value = ''", nil))
	p.do(p.Do(chromedp.SendKeys("#q", "^app\\.parse$", chromedp.ByQuery)))
	p.await("document.querySelector('#found').textContent.startsWith('1 function')")
	p.wants("#found", "1 function", "48.7%", "3.80 s")
	if !strings.Contains(p.fragment(), "q=^app") {
		t.Errorf("the URL has %q", p.fragment())
	}
	p.show("q=app.parse(") // no regular expression: it is looked for as it is
	p.await("document.querySelector('#found').textContent.startsWith('0 functions')")
}

// TestFilters focuses, ignores and hides, goes back, and opens the link again.
func TestFilters(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.click("#filters .menu summary")
	p.enter("#focus", "vfs_read")
	p.await("document.querySelector('#status').textContent.startsWith('1.50 s')")
	p.wants("#coverage summary", "600 frames")
	p.do(p.Do(chromedp.NavigateBack()))
	p.await("document.querySelector('#status').textContent.startsWith('7.80 s')")
	p.show("ignore=main.main")
	p.await("document.querySelector('#status').textContent.startsWith('1 s;')")
	p.show("view=functions&hide=^malloc$")
	p.await("!document.querySelector('#view').textContent.includes('malloc')")
	p.show("view=functions&label=process=worker")
	p.await("document.querySelector('#view').textContent.includes('1.30 s')")
	p.wants("#chips", "process: worker")
	p.do(p.Do(chromedp.Click("#chips button", chromedp.ByQuery)))
	p.await("!document.querySelector('.chip')")
}

// TestFlameGraph walks by keys, zooms, and turns the graph around.
func TestFlameGraph(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	canvas := "canvas[role=application]"
	p.do(p.Do(chromedp.Focus(canvas, chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown)))
	p.await("document.querySelector('#status').textContent.startsWith('process: server')")
	p.do(p.Do(chromedp.KeyEvent(kb.ArrowDown)))
	p.await("document.querySelector('#status').textContent.startsWith('main.main, in server')")
	p.do(p.Do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter)))
	p.await("location.hash.includes('root=')")
	p.await("!document.querySelector('.busy')")
	p.wants("#status", "frames shown")
	p.show("invert=1&up=1&colour=identity")
	p.await("document.querySelectorAll('[aria-pressed=true]').length >= 3")
	p.show("split=process")
	p.await("document.querySelector('#status').textContent.includes('frames shown')")
	p.show("view=sandwich&fn=" + p.key("malloc"))
	p.await("document.querySelectorAll('canvas[role=application]').length === 2")
	p.await("document.querySelector('#view').textContent.includes('Callers of malloc')")
	p.wants("#view", "Callees of malloc (1.20 s")
}

// key returns the key of a function.
func (p *tab) key(name string) (key string) {
	p.t.Helper()
	p.do(p.Eval(fmt.Sprintf(`fetch("api/functions").then((r) => r.json()).then((t) => t.rows.find((r) => r.name === %q).key)`, name), &key))
	return key
}

// TestCutStacks wants the flame graph itself to have what says that stacks are cut.
func TestCutStacks(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	var ends int
	p.do(p.Eval(`fetch("api/tree").then((r) => r.arrayBuffer()).then((b) => {
		const n = new DataView(b).getUint32(4, true);
		return JSON.parse(new TextDecoder().decode(new Uint8Array(b, 8, n))).ends.length;
	})`, &ends))
	if ends < 1 {
		t.Error("the tree does not say that callers are missing")
	}
}

// TestTime selects a range, which limits all else.
func TestTime(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.click("#time .label button")
	p.await("document.querySelectorAll('#time canvas').length >= 3")
	p.wants("#time", "server", "worker")
	var box struct{ X, Y, W, H float64 }
	p.do(p.Eval("(() => { const b = document.querySelector('#time canvas').getBoundingClientRect(); return {X: b.x, Y: b.y, W: b.width, H: b.height}; })()", &box))
	y := box.Y + box.H/2
	p.do(p.Do(
		chromedp.MouseEvent("mousePressed", box.X+0.70*box.W, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent("mouseMoved", box.X+0.8*box.W, y, chromedp.ButtonLeft),
		chromedp.MouseEvent("mouseReleased", box.X+0.95*box.W, y, chromedp.ButtonLeft, chromedp.ClickCount(1))))
	p.await("location.hash.includes('from=')")
	p.await("!document.querySelector('.busy')")
	p.wants("#chips", "time:")
	p.show(strings.TrimPrefix(p.fragment(), "#") + "&view=labels")
	p.await("document.querySelector('#view').textContent.includes('worker')")
	var from, to float64
	p.do(p.Eval("+new URLSearchParams(location.hash.slice(1)).get('from')", &from))
	p.do(p.Eval("+new URLSearchParams(location.hash.slice(1)).get('to')", &to))
	if from < 5e9 || to > 9.9e9 || to-from < 1e9 {
		t.Errorf("from %g to %g", from, to)
	}
}

// TestCompare looks at the difference of two profiles.
func TestCompare(t *testing.T) {
	p := open(t, Look{}, "--diff", profileFile("before.pb.gz"), profileFile("after.pb.gz"))
	p.wants("#title", "after.pb.gz compared with before.pb.gz")
	p.wants(".legend", "less", "more than before")
	p.show("view=changes")
	p.await("document.querySelector('#view tbody tr')")
	p.wants("#view tbody tr", "app.regressed")
	p.wants("#view .legend", "as they are")
	p.wants("#view tbody tr", "app.regressed", "+1")
	p.show("view=changes&scale=total")
	p.await("document.querySelector('#view .legend').textContent.includes('both totals are the same')")
	for _, view := range []string{"binaries", "labels"} {
		p.show("view=" + view)
		p.await("document.querySelector('#view tbody tr')")
		p.wants("#view .legend", "as they are")
	}
}

// TestIdentity follows a function to its identity and back by the command that is shown.
func TestIdentity(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.show("view=functions")
	p.await("[...document.querySelectorAll('#view button')].some((b) => b.textContent === 'app.parse')")
	p.do(p.Eval("[...document.querySelectorAll('#view button')].find((b) => b.textContent === 'app.parse').click()", nil))
	p.await("document.querySelector('#details dl')")
	p.wants("#details", ServerID, "/srv/app/server", "server", "c0ffee", "hallmark lookup "+ServerID+" 0x")
	p.do(p.Eval("[...document.querySelectorAll('#details button')].find((b) => b.textContent === 'Binary').click()", nil))
	p.await("document.querySelector('#view tr[aria-selected]')")
	p.wants("#view tr[aria-selected]", "/srv/app/server", ServerID)
	p.show("view=lines&fn=" + p.key("app.parse"))
	p.await("document.querySelector('#view').textContent.includes('/src/app/parse.go')")
	p.wants("#view", "12", "--source DIR")
}

// TestNamesAreShown has names with markup, controls and no UTF-8: they are text.
func TestNamesAreShown(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	for _, fragment := range []string{"", "view=functions", "view=binaries", "view=labels", "view=lines&fn=" + p.evilKey(), "view=sandwich&fn=" + p.evilKey(), "q=<script>", "focus=<img"} {
		p.show(fragment)
	}
	p.show("view=functions")
	p.await("document.querySelector('#view').textContent.includes('<img src=x')")
	var found struct {
		Evil   any
		Images int
		Text   string
	}
	p.do(p.Eval(`({Evil: window.evil || null, Images: document.images.length, Text: document.body.innerText})`, &found))
	if found.Evil != nil || found.Images != 0 {
		t.Errorf("a name was executed: %+v", found)
	}
	for _, bad := range []string{"\x1b", "\u202e"} {
		if strings.Contains(found.Text, bad) {
			t.Errorf("the page has %+q", bad)
		}
	}
}

func (p *tab) evilKey() (key string) {
	p.t.Helper()
	p.do(p.Eval(`fetch("api/functions").then((r) => r.json()).then((t) => t.rows.find((r) => r.name.startsWith("<img")).key)`, &key))
	return key
}

// TestPolicy wants the browser to refuse what the pages do not do.
func TestPolicy(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	var refused []bool
	p.do(p.Eval(`(async () => {
		const list = [];
		try { document.createElement("div").innerHTML = "<b>x</b>"; list.push(false); } catch { list.push(true); }
		const s = document.createElement("script");
		try { s.textContent = "window.evil = 3"; document.body.append(s); } catch { }
		list.push(window.evil === undefined);
		try { await fetch("http://127.0.0.1:1/"); list.push(false); } catch { list.push(true); }
		return list;
	})()`, &refused))
	for i, ok := range refused {
		if !ok {
			t.Errorf("attempt %d was not refused", i)
		}
	}
	if len(p.Problems()) == 0 {
		t.Error("the browser does not report what it refused")
	}
}

// TestSmallWindow wants no part of the page to be beside a phone's screen.
func TestSmallWindow(t *testing.T) {
	for _, dark := range []bool{false, true} {
		p := open(t, Look{Width: 390, Height: 780, Dark: dark, Phone: true}, profileFile("after.pb.gz"))
		for _, fragment := range []string{"", "view=functions", "view=binaries", "view=labels"} {
			p.show(fragment)
			var size struct{ Page, Window float64 }
			p.do(p.Eval("({Page: document.documentElement.scrollWidth, Window: innerWidth})", &size))
			if size.Page > size.Window+1 {
				t.Errorf("%q: the page is %g pixels wide, the window %g", fragment, size.Page, size.Window)
			}
		}
	}
}

// TestTheme wants the choice to last, and all to be drawn in it.
func TestTheme(t *testing.T) {
	p := open(t, Look{Dark: true}, profileFile("after.pb.gz"))
	dark := "getComputedStyle(document.body).backgroundColor"
	var was, is string
	p.do(p.Eval(dark, &was))
	p.do(p.Do(chromedp.Click("#theme", chromedp.ByQuery)))
	p.do(p.Eval(dark, &is))
	if was == is {
		t.Errorf("the page stays %s", was)
	}
	p.do(p.Do(chromedp.Reload(), chromedp.WaitReady("html[data-ready]", chromedp.ByQuery)))
	p.do(p.Eval(dark, &was))
	if was != is {
		t.Errorf("the page is %s again, it was %s", was, is)
	}
}

// TestKeys uses the pages without a mouse.
func TestKeys(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	for key, view := range map[string]string{"t": "functions", "b": "binaries", "p": "labels"} {
		p.do(p.Do(chromedp.KeyEvent(key)))
		p.await("location.hash.includes('view=" + view + "')")
	}
	p.do(p.Do(chromedp.KeyEvent("?")))
	p.await("document.querySelector('dialog[open]')")
	p.do(p.Do(chromedp.KeyEvent(kb.Escape)))
	p.await("!document.querySelector('dialog')")
	p.show("")
	var reached []string
	p.do(p.Do(chromedp.KeyEvent("f")))
	for range 40 {
		var at string
		p.do(p.Do(chromedp.KeyEvent(kb.Tab)))
		p.do(p.Eval("document.activeElement.tagName + '.' + (document.activeElement.id || document.activeElement.getAttribute('role') || document.activeElement.textContent)", &at))
		reached = append(reached, at)
	}
	all := strings.Join(reached, " ")
	for _, want := range []string{"CANVAS.slider", "A.Functions", "INPUT.q", "SUMMARY.Display", "CANVAS.application", "SUMMARY."} {
		if !strings.Contains(all, want) {
			t.Errorf("Tab does not reach %s: %s", want, all)
		}
	}
}

// TestFile looks at the pages as one file, which has no server.
func TestFile(t *testing.T) {
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	file := profileFile("after.html")
	if out, err := exec.Command(command, "convert", "--no-debuginfod", "-o", file, profileFile("after.pb.gz")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, look := range []Look{{}, {Width: 390, Height: 780, Phone: true}} {
		p := openURL(t, look, "file://"+file)
		p.wants("#title", "after")
		p.wants("#coverage summary", "identified")
		if n := p.colours("canvas[role=application]"); n < 4 {
			t.Errorf("the flame graph has %d colours", n)
		}
		p.show("q=^app\\.parse$")
		p.await("document.querySelector('#found').textContent.includes('48.7%')")
		for fragment, want := range map[string]string{"view=functions": "app.parse", "view=binaries": ServerID, "view=labels": "worker"} {
			p.show(fragment)
			p.await(fmt.Sprintf("document.querySelector('#view').textContent.includes(%q)", want))
		}
		p.show("view=flame&invert=1")
		p.await("document.querySelector('canvas[role=application]')")
		p.show("view=functions")
		p.await("[...document.querySelectorAll('#view button')].some((b) => b.textContent === 'app.parse')")
		p.do(p.Eval("[...document.querySelectorAll('#view button')].find((b) => b.textContent === 'app.parse').click()", nil))
		p.await("document.querySelector('#details dl')")
		p.wants("#details", "hallmark lookup "+ServerID)
	}
}
