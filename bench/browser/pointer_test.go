package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	pprof "github.com/google/pprof/profile"
)

const phoneWidth, phoneHeight = 390, 844

// spot is a place in the window.
type spot struct{ X, Y float64 }

// inGraph returns the place at a share of the width of a row of the flame graph.
func (p *tab) inGraph(share float64, row int) (s spot) {
	p.t.Helper()
	p.do(p.Eval(fmt.Sprintf(`(() => {
		const box = document.querySelector("canvas[role=application]").getBoundingClientRect();
		const row = matchMedia("(pointer: coarse)").matches ? 26 : 20;
		return {X: box.x + %g * box.width, Y: box.y + (%d + 0.5) * row};
	})()`, share, row), &s))
	return s
}

// isOver wants an element of a selector to be under the pointer.
func (p *tab) isOver(s spot, selector string) {
	p.t.Helper()
	var under string
	p.do(p.Eval(fmt.Sprintf(`(() => {
		const e = document.elementFromPoint(%g, %g);
		return e && e.closest(%q) ? "" : e ? e.outerHTML.slice(0, 100) : "nothing";
	})()`, s.X, s.Y, selector), &under))
	if under != "" {
		p.t.Errorf("under the pointer is %s, and not %s", under, selector)
	}
}

// clicks clicks with the mouse at a place, without moving it in between.
func (p *tab) clicks(s spot, n int) {
	p.t.Helper()
	for i := 1; i <= n; i++ {
		p.do(p.Do(
			chromedp.MouseEvent("mousePressed", s.X, s.Y, chromedp.ButtonLeft, chromedp.ClickCount(i)),
			chromedp.MouseEvent("mouseReleased", s.X, s.Y, chromedp.ButtonLeft, chromedp.ClickCount(i))))
		if i < n { // the first click has all of its effect before the second one
			p.await("document.querySelector('#details dl')")
		}
	}
}

// TestDoubleClickZooms wants two clicks to zoom to what was under the first one, anywhere in the graph.
func TestDoubleClickZooms(t *testing.T) {
	for _, up := range []string{"whole=1", "whole=1&up=1", "whole=1&invert=1"} {
		for _, share := range []float64{0.1, 0.5, 0.9} {
			p := open(t, Look{}, profileFile("after.pb.gz"))
			p.show(up)
			at := p.inGraph(share, 2)
			if strings.Contains(up, "up=") {
				p.do(p.Eval("document.querySelector('canvas[role=application]').getBoundingClientRect().bottom - 50", &at.Y))
			}
			p.clicks(at, 1)
			p.await("document.querySelector('#details dl')")
			var name string
			p.do(p.Eval("document.querySelector('#details h2').textContent", &name))
			p.isOver(at, "canvas[role=application]")
			p.do(p.Do(chromedp.KeyEvent(kb.Escape)))
			p.await("document.querySelector('#details').hidden")
			p.do(p.Eval("document.querySelector('#details').replaceChildren()", nil))
			p.clicks(at, 2)
			p.await("location.hash.includes('root=')")
			var zoomed string
			p.do(p.Eval(`(async () => {
				const path = new URLSearchParams(location.hash.slice(1)).get("root").split(".");
				const rows = (await (await fetch("api/functions?limit=2000")).json()).rows;
				return rows.find((r) => String(r.frame) === path.at(-1)).name;
			})()`, &zoomed))
			if name == "" || zoomed != name {
				t.Errorf("%s at %g: a click chooses %q, and two zoom to %q", up, share, name, zoomed)
			}
		}
	}
}

// TestTapKeepsTheGraph wants what is tapped on a phone to stay in sight, and most of the window to be the graph.
func TestTapKeepsTheGraph(t *testing.T) {
	p := open(t, Look{Width: phoneWidth, Height: phoneHeight, Phone: true}, profileFile("after.pb.gz"))
	for _, up := range []string{"whole=1", "whole=1&up=1"} {
		p.show(up)
		at := p.inGraph(0.3, 2)
		if up != "whole=1" { // the rows begin at the lower edge
			p.do(p.Eval("document.querySelector('canvas[role=application]').getBoundingClientRect().bottom - 65", &at.Y))
		}
		p.clicks(at, 1) // a browser without a window makes no click of a touch
		p.await("!document.querySelector('#details').hidden")
		p.isOver(at, "canvas[role=application]")
		p.await("document.querySelector('#details dl')")
		p.isOver(at, "canvas[role=application]")
		var details float64
		p.do(p.Eval("document.querySelector('#details').getBoundingClientRect().height / innerHeight", &details))
		if details > 0.41 {
			t.Errorf("the details have %.2f of the window", details)
		}
		p.click("#details header button")
		p.await("document.querySelector('#details').hidden")
		p.do(p.Eval("document.querySelector('#details').replaceChildren()", nil))
	}
}

// TestTipGoes wants the tip to go with what it is about.
func TestTipGoes(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	show := func() spot {
		t.Helper()
		p.show("whole=1")
		at := p.inGraph(0.3, 2)
		p.do(p.Do(chromedp.MouseEvent("mouseMoved", at.X-3, at.Y), chromedp.MouseEvent("mouseMoved", at.X, at.Y)))
		p.await("!document.querySelector('#tip').hidden")
		return at
	}
	p.clicks(show(), 1)
	for _, key := range []string{"c", "l", "t", "b"} {
		show()
		p.do(p.Do(chromedp.KeyEvent(key)))
		p.await("document.querySelector('#tip').hidden")
	}
	show()
	p.show("view=binaries") // by a link: there is no event of the pointer, nor of a key
	p.await("document.querySelector('#tip').hidden")
	show()
	var strip spot
	p.do(p.Eval("(() => { const b = document.querySelector('#time canvas').getBoundingClientRect(); return {X: b.x + b.width / 3, Y: b.y + 9}; })()", &strip))
	p.do(p.Do(chromedp.MouseEvent("mouseMoved", strip.X, strip.Y)))
	p.await("document.querySelector('#tip').textContent.includes('CPUs')")
	p.show("whole=1&label=process=worker") // makes the tracks anew
	p.await("document.querySelector('#tip').hidden")
}

// TestEscapeLeavesSearch wants keys to act again after Escape, and the search to stay.
func TestEscapeLeavesSearch(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.do(p.Do(chromedp.KeyEvent("/")))
	p.do(p.Eval("document.activeElement.value = ''", nil))
	p.do(p.Do(chromedp.SendKeys("#q", "main", chromedp.ByQuery)))
	p.await("location.hash.includes('q=main')")
	p.do(p.Do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("b")))
	p.await("location.hash.includes('view=binaries')")
	p.await("document.querySelector('#q').value === 'main'")
}

// TestGraphHasTheRoom wants most of a window to be the graph: one row of controls, and tracks that open.
func TestGraphHasTheRoom(t *testing.T) {
	for _, args := range [][]string{{profileFile("after.pb.gz")}, {"--diff", profileFile("before.pb.gz"), profileFile("after.pb.gz")}} {
		for _, look := range []Look{{Width: 1280, Height: 800}, {Width: phoneWidth, Height: phoneHeight, Phone: true}} {
			p := open(t, look, args...)
			p.await("document.querySelector('#time canvas')")
			var share, controls float64
			p.do(p.Eval("document.querySelector('.flame').clientHeight / innerHeight", &share))
			if share < 0.6 {
				t.Errorf("at %d pixels the graph has %.2f of the height", look.Width, share)
			}
			p.do(p.Eval("document.querySelector('#controls').clientHeight", &controls))
			if !look.Phone && controls > 45 {
				t.Errorf("the controls have %g pixels", controls)
			}
			var wide bool
			p.do(p.Eval(fmt.Sprintf("document.documentElement.scrollWidth > %d", look.Width), &wide)) // a phone's window grows with the page
			if wide {
				t.Errorf("at %d pixels the page is wider than the window", look.Width)
			}
		}
	}
	p := open(t, Look{}, profileFile("after.pb.gz"))
	p.await("document.querySelectorAll('#time canvas').length === 1")
	p.click("#time .label button")
	p.await("document.querySelectorAll('#time canvas').length === 3")
	var marks []string
	p.do(p.Eval("[...document.querySelectorAll('#time .axis span')].map((s) => s.textContent)", &marks))
	if got := strings.Join(marks, ", "); got != "0, 2 s, 4 s, 6 s, 8 s" && got != "0, 2 s, 4 s, 6 s, 8 s, 10 s" {
		t.Errorf("the ticks are %s", got)
	}
	p.wants("#summary", "UTC")
}

// TestEmptyProfile wants a profile without samples to be called that, and not to be filtered.
func TestEmptyProfile(t *testing.T) {
	m := newMaker()
	m.mapping("/srv/app/server", ServerID, 0x400000)
	empty := save(t, "empty.pb.gz", m)
	p := open(t, Look{}, empty)
	for _, view := range []string{"", "view=functions", "view=binaries"} {
		p.show(view)
		p.await("document.querySelector('#view').textContent.includes('The profile is empty: it has no samples.')")
	}
	p.show("focus=x")
	p.await("document.querySelector('#view').textContent.includes('The profile is empty')")
	p = open(t, Look{}, profileFile("after.pb.gz"))
	p.show("focus=nothing has this")
	p.await("document.querySelector('#view').textContent.includes('no sample passes the filters')")
}

// TestQuantities wants values that are rounded up to the next unit to have that unit.
func TestQuantities(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	var got []string
	p.do(p.Eval(`import("./app/js/format.js").then(({ quantity, ticks }) => [
		...[949e6, 999.4e6, 999.6e6, 1e9, 999.9e3, 9.99e9].map((n) => quantity(n, "nanoseconds")), quantity(1023.9 * 1024, "bytes"),
		...[9.99e9, 949e6, 61e9, 3].map((n) => ticks(n).map((t) => t.text).join(" ")),
	])`, &got))
	want := []string{"949 ms", "999 ms", "1.00 s", "1 s", "1.00 ms", "9.99 s", "1.00 MiB",
		"0 2 s 4 s 6 s 8 s", "0 200 ms 400 ms 600 ms 800 ms", "0 20 s 40 s 60 s", "0 0.5 ns 1 ns 1.5 ns 2 ns 2.5 ns 3 ns"}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRecursionIsFolded wants a function that calls itself to be one row, unless somebody wants each call.
func TestRecursionIsFolded(t *testing.T) {
	m := newMaker()
	app := m.mapping("/srv/app/server", ServerID, 0x400000)
	main, walk, leaf := m.at(app, 0x100, "/src/main.c", "main"), m.at(app, 0x200, "/src/main.c", "walk"), m.at(app, 0x300, "/src/main.c", "leaf")
	m.stack("server", 1, "", "complete", 0, 80, append(append([]*pprof.Location{leaf}, slices.Repeat([]*pprof.Location{walk}, 400)...), main)...)
	p := open(t, Look{}, save(t, "deep.pb.gz", m))
	p.await("document.querySelector('#status').textContent.includes('4 frames shown')")
	at := p.inGraph(0.3, 2)
	p.do(p.Do(chromedp.MouseEvent("mouseMoved", at.X-3, at.Y), chromedp.MouseEvent("mouseMoved", at.X, at.Y)))
	p.await("!document.querySelector('#tip').hidden")
	p.wants("#tip", "walk ×400", "up to 400 calls")
	at = p.inGraph(0.3, 3)
	p.clicks(at, 1)
	p.await("document.querySelector('#details h2') && document.querySelector('#details h2').textContent === 'leaf'")
	p.click("#display .menu summary")
	p.do(p.Eval("[...document.querySelectorAll('#display button')].find((b) => b.textContent === 'Each call').click()", nil))
	p.await("document.querySelector('#status').textContent.includes('403 frames shown')")
}
