package browser

import (
	"fmt"
	"path/filepath"
	"testing"

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
	var cut []string
	p.do(p.Eval(`[...document.querySelectorAll("#filters input")].filter((i) => {
		const at = document.createElement("canvas").getContext("2d"), style = getComputedStyle(i);
		at.font = style.font;
		return at.measureText(i.placeholder).width > i.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
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
