package browser

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"hallmark/internal/testenv"
)

// save writes a profile for a test.
func save(t *testing.T, name string, p *maker) string {
	t.Helper()
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	name = filepath.Join(t.TempDir(), name)
	if err := Save(name, p.p); err != nil {
		t.Fatal(err)
	}
	return name
}

// inRow returns the share of a row of the flame graph that is not empty.
func (p *tab) inRow(row int) (share float64) {
	p.t.Helper()
	p.do(p.Eval(fmt.Sprintf(`(() => {
		const c = document.querySelector("canvas[role=application]");
		const at = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
		at.drawImage(c, 0, 0);
		const height = 19 * devicePixelRatio;
		const row = at.getImageData(0, %d * 20 * devicePixelRatio, c.width, height + 1).data;
		let n = 0;
		for (let x = 0; x < c.width; x++) {
			for (let y = 0; y < height; y++) {
				const i = 4 * (y * c.width + x);
				if (row[i] !== row[row.length - 4] || row[i + 1] !== row[row.length - 3] || row[i + 2] !== row[row.length - 2]) { n++; break; }
			}
		}
		return n / c.width;
	})()`, row), &share))
	return share
}

// TestNarrowFramesAreMarked wants frames that the page got, and that are too narrow for it, to have a mark.
func TestNarrowFramesAreMarked(t *testing.T) {
	p := open(t, Look{}, save(t, "wide.pb.gz", wide(3400))) // 0.376 pixels each
	p.await("document.querySelector('#status').textContent.includes('frames shown')")
	for row, name := range []string{"all", "main", "those that main calls"} {
		if share := p.inRow(row); share < 0.95 {
			t.Errorf("the row of %s has something in %.2f of its width", name, share)
		}
	}
}

// TestUnknownCompleteness wants stacks of which nobody knows whether they are complete not to be called cut.
func TestUnknownCompleteness(t *testing.T) {
	m := newMaker()
	app := m.mapping("/srv/app/server", ServerID, 0x400000)
	main, other := m.at(app, 0x100, "/src/main.c", "main"), m.at(app, 0x200, "/src/main.c", "other")
	m.stack("server", 1, "", "frame-pointers", 0, 80, main)
	m.stack("server", 1, "", "complete", 0, 20, other)
	p := open(t, Look{}, save(t, "fp.pb.gz", m))
	p.wants("#coverage summary", "20.0% known to be complete")
	p.wants("#coverage .gaps", "completeness unknown", "walked by frame pointers")
	p.await("!document.querySelector('#coverage').textContent.includes('stack is cut')")
	p.await("[...document.querySelectorAll('.meter')].every((m) => m.className === 'meter')")
	p.do(p.Eval(`(() => {
		const c = document.querySelector("canvas[role=application]");
		c.focus();
		for (const key of ["ArrowDown", "ArrowDown"]) c.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
	})()`, nil))
	p.await("document.querySelector('#details').textContent.includes('nobody knows whether callers are missing')")

	m.stack("server", 1, "", "no-table", 0, 100, main)
	p = open(t, Look{}, save(t, "cut.pb.gz", m))
	p.wants("#coverage summary", "10.0% known to be complete")
	p.wants("#coverage .gaps", "completeness unknown", "stack is cut")
}

// TestNotes wants many notes to open at their beginning, and those that are few of their kind to come first.
func TestNotes(t *testing.T) {
	m := newMaker()
	m.stack("server", 1, "", "complete", 0, 80, m.at(m.mapping("/srv/app/server", ServerID, 0x400000), 0x100, "/src/main.c", "main"))
	for i := range 100 {
		m.p.Comments = append(m.p.Comments, fmt.Sprintf("note: the content of /usr/lib/%d.so is unknown", i))
	}
	m.p.Comments = append(m.p.Comments, "note: 4598 stacks end early")
	p := open(t, Look{Width: 390, Height: 780, Phone: true}, save(t, "notes.pb.gz", m))
	p.do(p.Eval("[...document.querySelectorAll('#tools button')].find((b) => b.textContent === '101 notes').click()", nil))
	p.await("document.querySelector('dialog[open]')")
	p.wants("dialog p", "4598 stacks end early")
	p.wants("dialog summary", "(and 99 more of this kind)")
	p.await("document.querySelector('dialog').scrollTop === 0 && document.activeElement.textContent === 'Close'")
}

// TestRoom wants the words of the fields to be seen, and room for a table beside an open coverage and the time.
func TestRoom(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.click("#filters .menu summary")
	var cut []string
	p.do(p.Eval(`[...document.querySelectorAll("#filters input")].filter((i) => {
		const at = document.createElement("canvas").getContext("2d"), style = getComputedStyle(i);
		at.font = style.font;
		return at.measureText(i.placeholder).width > i.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20; // the button that empties it
	}).map((i) => i.placeholder)`, &cut))
	if len(cut) > 0 {
		t.Errorf("words of fields are cut: %q", cut)
	}
	p.show("view=functions")
	p.do(p.Eval("document.querySelector('#coverage details').open = true", nil))
	var height float64
	p.do(p.Eval("document.querySelector('#view .tablewrap').clientHeight", &height))
	if height < 200 {
		t.Errorf("the table has %g pixels", height)
	}
	p.do(p.Eval("document.querySelector('#view tbody tr td.num').click()", nil))
	p.await("document.querySelector('#details dl')")
}

// TestProcessesAreFirst wants the graph of several processes to say which process a column is, unless the URL has it
// otherwise.
func TestProcessesAreFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "after.html")
	p := open(t, Look{}, profileFile("after.pb.gz"))
	if out, err := exec.Command(command, "convert", "--no-debuginfod", "-o", file, profileFile("after.pb.gz")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := func(p *tab, want string) {
		t.Helper()
		p.do(p.Eval(`(() => {
			const c = document.querySelector("canvas[role=application]");
			for (const key of ["Home", "ArrowDown"]) c.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
		})()`, nil))
		p.await(fmt.Sprintf("document.querySelector('#status').textContent.startsWith(%q)", want))
	}
	for _, p := range []*tab{p, openURL(t, Look{}, "file://"+file)} {
		first(p, "process: server")
		p.show("whole=1")
		first(p, "main.main")
		p.show("invert=1")
		first(p, "app.next")
		p.show("")
		first(p, "process: server")
	}
	p.show("label=process=worker")
	first(p, "[")
	var main string
	p.do(p.Eval(`fetch("api/functions").then((r) => r.json()).then((t) => String(t.rows.find((r) => r.name === "main.main").frame))`, &main))
	p.show("root=" + main) // a path of the whole graph
	first(p, "app.(*Server).serve")
	p.do(p.Eval(`(() => { const s = document.querySelector("select[aria-label='Split by']"); s.value = "thread"; s.dispatchEvent(new Event("change")); })()`, nil))
	p.await("location.hash.includes('split=thread') && !document.querySelector('.busy')")
	first(p, "thread: server")
}

// TestCompareFits wants what changed to be in sight, in a window of any size, and nothing to be over the details.
func TestCompareFits(t *testing.T) {
	both := []string{"--diff", profileFile("before.pb.gz"), profileFile("after.pb.gz")}
	seen := `(() => {
		const heads = [...document.querySelectorAll("#view thead th")];
		return heads.filter((h) => h.getBoundingClientRect().right <= innerWidth).map((h) => h.textContent.trim()).join(" ");
	})()`
	for view, want := range map[string]string{"changes": "function", "binaries": "binary, identity", "labels": "process"} {
		for _, look := range []Look{{}, {Width: 390, Height: 844, Phone: true}} {
			p := open(t, look, both...)
			p.show("view=" + view)
			p.await("document.querySelector('#view tbody tr')")
			var heads string
			p.do(p.Eval(seen, &heads))
			if !strings.Contains(heads, want) || !strings.Contains(heads, "change") {
				t.Errorf("%s at %d pixels: %q are in sight", view, look.Width, heads)
			}
			p.await(`(() => {
				const tab = document.querySelector("#tabs [aria-current]").getBoundingClientRect();
				return tab.left >= 0 && tab.right <= innerWidth + 1;
			})()`)
		}
	}
	p := open(t, Look{Width: 390, Height: 844, Phone: true}, both...)
	p.show("view=changes")
	p.do(p.Eval("document.querySelector('#view tbody button.linklike').click()", nil))
	p.await("document.querySelector('#details dl')")
	p.await(`(() => {
		const box = document.querySelector("#details h2").getBoundingClientRect();
		return document.querySelector("#details").contains(document.elementFromPoint(box.left + 5, box.top + 5));
	})()`)
}

// TestNoRowForFewEnds wants no row for missing callers that are too few to be seen.
func TestNoRowForFewEnds(t *testing.T) {
	m := newMaker()
	main := m.at(m.mapping("/srv/app/server", ServerID, 0x400000), 0x100, "/src/main.c", "main")
	m.stack("server", 1, "", "complete", 0, 2000, main)
	m.stack("server", 1, "", "no-table", 0, 1, main)
	p := open(t, Look{}, save(t, "few.pb.gz", m))
	if share := p.inRow(1); share < 0.95 {
		t.Errorf("the row below the root has something in %.2f of its width", share)
	}
}

// TestFilterByFunction wants the buttons of a function to choose it alone, whatever its name is.
func TestFilterByFunction(t *testing.T) {
	m := newMaker()
	a, b := m.mapping("/srv/a", ServerID, 0x400000), m.mapping("/srv/b", LibcID, 0x10000000)
	long, odd := "std::map<"+strings.Repeat("x", 1400)+">::find", "odd\x07name"
	m.stack("p", 1, "", "complete", 0, 2, m.at(a, 0x200, "", long), m.at(a, 0x100, "", "main"))
	m.stack("p", 1, "", "complete", 0, 4, m.at(a, 0x300, "", odd), m.at(b, 0x100, "", "main"))
	m.stack("p", 1, "", "complete", 0, 8, m.at(b, 0x100, "", "main"))
	p := open(t, Look{}, save(t, "names.pb.gz", m))
	for name, want := range map[string]string{"std::map<": "20 ms;", "odd": "40 ms;", "main a": "20 ms;", "main b": "120 ms;"} {
		p.do(p.Eval("document.querySelector('#details').replaceChildren()", nil))
		p.show("view=functions")
		p.await("document.querySelectorAll('#view tbody tr').length === 4")
		p.do(p.Eval(fmt.Sprintf(`[...document.querySelectorAll("#view tbody tr")].find((r) => r.innerText.replace(/\s+/g, " ").includes(%q)).click()`, name), nil))
		p.await(fmt.Sprintf("document.querySelector('#details dl') && document.querySelector('#details h2').textContent.startsWith(%q)", strings.Fields(name)[0]))
		p.do(p.Eval("[...document.querySelectorAll('#details button')].find((b) => b.textContent === 'Focus').click()", nil))
		p.await("document.querySelector('.chip')")
		p.wants(".chip", "with "+strings.Fields(name)[0])
		p.show(strings.Replace(strings.TrimPrefix(p.fragment(), "#"), "view=functions", "view=flame", 1))
		p.await(fmt.Sprintf("document.querySelector('#status').textContent.startsWith(%q)", want))
	}
	p.show("view=functions&without=" + p.key("main"))
	p.await("document.querySelectorAll('#view tbody tr').length === 3")
	p.do(p.Do(chromedp.Reload(), chromedp.WaitReady("html[data-ready]", chromedp.ByQuery)))
	p.await("document.querySelector('.chip').textContent.startsWith('without frames of main')") // of a link
}

// TestAfterAnError wants the page to go on after a question that is refused, and not to be busy.
func TestAfterAnError(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	for _, fragment := range []string{"from=5&to=3", "type=x", "view=functions&type=x", "view=labels&from=5&to=3"} {
		p.show(fragment) // waits until nothing is busy
		p.await("document.querySelector('#view [role=alert]')")
		p.show("")
		p.await("document.querySelector('#view canvas[role=application]') && !document.querySelector('#view [role=alert]')")
		p.await("document.querySelector('#status').textContent.startsWith('7.80 s')")
	}
	p.show("root=99999") // only the graph is refused
	p.await("document.querySelector('#view [role=alert]') && document.querySelector('#view canvas')")
	p.do(p.Do(chromedp.EmulateViewport(900, 700)))
	p.await("document.querySelector('#view canvas').clientWidth < 1000")
	for _, text := range p.Problems() { // the browser reports what the server refused
		if !strings.Contains(text, "Failed to load resource") {
			t.Error(text)
		}
	}
}

// TestFocusStays wants a control that draws its bar anew to keep the focus.
func TestFocusStays(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	press := func(selector, text string) {
		t.Helper()
		p.do(p.Eval(fmt.Sprintf("(() => { const b = [...document.querySelectorAll(%q)].find((b) => b.textContent === %q); b.focus(); b.click(); })()", selector, text), nil))
		p.await("!document.querySelector('.busy')")
	}
	p.click("#time .label button")
	press("#time button", "by thread")
	p.await("document.activeElement.textContent === 'by thread' && document.activeElement.getAttribute('aria-pressed') === 'true'")
	p.click("#display .menu summary")
	press("#display button", "Identity")
	p.await("document.activeElement.textContent === 'Identity' && document.activeElement.getAttribute('aria-pressed') === 'true'")
	p.show("view=functions")
	press("#view th button", "cum")
	p.await("document.activeElement.textContent === 'cum' && document.activeElement.closest('th').hasAttribute('aria-sort')")
}
