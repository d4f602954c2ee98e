package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"hallmark/internal/testenv"
)

// contrast returns texts whose contrast with what is behind them is less than WCAG 2.2 wants (1.4.3):
// 4.5 to 1, and 3 to 1 for large ones.
const contrast = `(() => {
	const parse = (c) => (c.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; })
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
		}
		return [255, 255, 255];
	};
	const poor = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest("noscript, .sr, .skip, :disabled")) continue;
		const style = getComputedStyle(e);
		const a = light(parse(style.color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const large = parseFloat(style.fontSize) >= 24;
		if (ratio < (large ? 3 : 4.5)) poor.push(walk.currentNode.textContent.trim().slice(0, 40) + " " + ratio.toFixed(2));
	}
	return poor;
})()`

// nameless returns controls without a name, and ids that are there twice.
const nameless = `(() => {
	const poor = [];
	const named = (e) => e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.textContent.trim() || e.title || (e.labels && e.labels.length);
	for (const e of document.querySelectorAll("a, button, input, select, summary, canvas, [role], nav, aside")) {
		if (e.checkVisibility() && !named(e)) poor.push("no name: " + e.outerHTML.slice(0, 80));
	}
	const seen = new Set();
	for (const e of document.querySelectorAll("[id]")) {
		if (seen.has(e.id)) poor.push("twice: " + e.id);
		seen.add(e.id);
	}
	for (const role of ["main", "nav", "header"]) if (document.querySelectorAll(role === "header" ? "body > header" : role).length !== 1) poor.push("not one " + role);
	if (document.documentElement.lang === "") poor.push("no language");
	for (const t of document.querySelectorAll("table")) if (!t.querySelector("th[scope]") && !t.closest("dialog, aside")) poor.push("a table without heads");
	return poor;
})()`

var views = []string{"", "view=functions", "view=binaries", "view=labels", "q=app", "colour=identity&up=1"}

func TestContrastAndNames(t *testing.T) {
	for _, dark := range []bool{false, true} {
		p := open(t, Look{Dark: dark}, "--diff", profileFile("before.pb.gz"), profileFile("after.pb.gz"))
		for _, fragment := range append([]string{"view=changes", "view=lines&fn=" + p.key("app.parse")}, views...) {
			p.show(fragment)
			p.do(p.Eval("document.querySelector('#coverage details').open = true", nil))
			for _, check := range []string{contrast, nameless} {
				var poor []string
				p.do(p.Eval(check, &poor))
				for _, text := range poor {
					t.Errorf("dark %v, %q: %s", dark, fragment, text)
				}
			}
		}
	}
}

// TestPaletteContrast wants the text on each box of the flame graph to be read.
func TestPaletteContrast(t *testing.T) {
	p := open(t, Look{}, profileFile("after.pb.gz"))
	var poor []string
	p.do(p.Eval(`(async () => {
		const { palette, kinds } = await import("./app/js/colour.js");
		const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		const light = (colour) => {
			c.fillStyle = colour;
			c.fillRect(0, 0, 1, 1);
			return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; })
				.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
		};
		const poor = [];
		for (const dark of [false, true]) {
			const p = palette(dark);
			const check = (name, box, text) => {
				const a = light(box), b = light(text);
				const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
				if (ratio < 4.5) poor.push(name + (dark ? " dark " : " light ") + box + " " + ratio.toFixed(2));
			};
			for (const [name, k] of Object.entries(kinds)) for (const shade of [-1, 0, 1, 2]) for (const turn of [-6, 0, 6]) check(name, p.fill(k.hue + turn, k.sat, shade), p.text);
			for (let hue = 0; hue < 360; hue += 5) for (const shade of [-1, 0, 1]) check("identity", p.fill(hue, 55, shade), p.text);
			for (let change = -1; change <= 1; change += 0.1) check("change", p.change(change), p.text);
			check("match", p.match, p.text);
			check("dim", p.dim, p.dimText);
		}
		return poor;
	})()`, &poor))
	for _, text := range poor {
		t.Error(text)
	}
}

// axe returns the source of axe-core, fetched by npm.
func axe(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("needs npm in PATH, which fetches axe-core")
	}
	dir := t.TempDir()
	cmd := exec.Command(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, "axe-core@4")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs axe-core, which npm cannot fetch now: %s", out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestAxe has axe-core look at the pages.
func TestAxe(t *testing.T) {
	if chromium == nil {
		testenv.Need(t, false, "chromium in PATH")
	}
	source := axe(t)
	for _, dark := range []bool{false, true} {
		p := open(t, Look{Dark: dark}, profileFile("after.pb.gz"))
		p.do(p.Eval(source+";0", nil))
		for _, fragment := range views {
			p.show(fragment)
			var text string
			p.do(p.Eval(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) =>
				JSON.stringify(r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 100)).join(" | "))))`, &text))
			var violations []string
			if err := json.Unmarshal([]byte(text), &violations); err != nil {
				t.Fatal(err)
			}
			for _, v := range violations {
				t.Errorf("dark %v, %q: %s", dark, fragment, v)
			}
		}
		p.Problems() // axe-core styles what it measures, which the policy refuses
	}
}
