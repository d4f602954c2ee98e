// The view of the flame graph: the graph, what it is drawn like, and zooming with more detail.

import { askTree, isFile, latest } from "./api.js";
import { kinds, palette } from "./colour.js";
import { add, button, byID, el, fill, makeMenu } from "./dom.js";
import { lastFound } from "./filters.js";
import { FlameGraph } from "./flame.js";
import { difference, grouped, percent, plural, quantity } from "./format.js";
import { emptyText, info } from "./info.js";
import { selection, selectsOther, setState, state } from "./state.js";
import { say, showError } from "./status.js";
import { isDark } from "./theme.js";
import { hideTip, showTip } from "./tip.js";
import { endParts } from "./tree.js";

/** @typedef {import("./tree.js").Tree} Tree */
/** @typedef {import("./state.js").State} State */

/** @typedef {(tree: Tree, node: number, at: {x: number, y: number}) => void} Select at: where the node is, in the window */

/**
 * @typedef {object} FlameViewOptions
 * @property {string} kind    tree, callers or callees
 * @property {boolean} [up]   always upwards
 * @property {Select} select
 */

/** A flame graph with its data. */
export class FlamePane {
  /**
   * @param {Element} place
   * @param {FlameViewOptions} options
   */
  constructor(place, options) {
    this.options = options;
    this.place = place;
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", {
      tabIndex: 0, role: "application", "aria-roledescription": "flame graph",
      "aria-label": "Flame graph. Arrow keys move between frames, Enter zooms, Escape leads back. The table of functions has the same figures.",
    }));
    const room = el("div", { class: "room" }, this.canvas);
    this.scroller = el("div", { class: "flame" }, room);
    this.message = el("div", null);
    add(place, this.message, this.scroller);
    this.graph = new FlameGraph(this.scroller, this.canvas, room, {
      select: (node, at) => this.selected(node, at),
      shows: () => !byID("details").hidden,
      zoom: (node) => this.zoom(node),
      hover: (node, x, y) => this.hover(node, x, y),
      detail: (node) => this.detail(node),
      label: (node) => nameIn(/** @type {Tree} */ (this.tree), node),
    });
    this.graph.setTheme(isDark());
    this.one = latest();
    /** @type {Tree | null} */
    this.tree = null;
    this.root = "";
  }

  /**
   * Asks for the tree and shows it.
   * @param {State} s
   */
  load(s) {
    const root = this.options.kind === "tree" ? s.root : "";
    return this.one(async (signal) => {
      this.place.classList.add("busy");
      try {
        const tree = await askTree(this.options.kind, this.question(s, root), signal);
        this.tree = tree;
        this.root = root;
        fill(this.message);
        this.graph.setTree(tree);
        this.graph.draw();
        document.documentElement.dataset.drawn = "1"; // for measurements
        this.mark();
        if (!tree.full) fill(this.message, el("p", { class: "notice" }, emptyText()));
        say(summaryOf(tree));
      } catch (e) {
        if (signal.aborted) throw e;
        this.tree = null;
        this.graph.clear();
        showError(this.message, e);
      } finally {
        if (!signal.aborted) this.place.classList.remove("busy");
      }
    });
  }

  /**
   * @param {State} s
   * @param {string} root
   */
  question(s, root) {
    const params = selection(s);
    if (this.options.kind !== "tree") params.set("fn", s.fn);
    else if (s.invert) params.set("invert", "1");
    const split = this.options.kind === "tree" ? splitOf(s) : "";
    if (split) params.set("split", split);
    if (!s.calls && !isFile) params.set("fold", "1"); // the trees of a file are folded
    if (info().base && s.scale) params.set("scale", s.scale);
    if (root) params.set("root", root);
    const width = isFile ? 0 : this.scroller.clientWidth;
    if (width) params.set("width", String(Math.min(4000, Math.ceil(width / 250) * 250)));
    return params;
  }

  /** Marks what matches the search. */
  mark() {
    const found = lastFound();
    if (!this.tree || !found) {
      this.graph.setMatches(null);
      return;
    }
    const ids = new Set(found.frames);
    this.graph.setMatches(Uint8Array.from(this.tree.head.frames, (f) => (ids.has(f.id) ? 1 : 0)));
  }

  /** A node fills the width; if some of it was cut, the server is asked for more of it. */
  zoom(/** @type {number} */ node) {
    const tree = /** @type {Tree} */ (this.tree);
    if (this.options.kind !== "tree" || isFile) {
      this.graph.zoomTo(node, () => {});
      return;
    }
    const path = tree.path(node);
    if (path === this.root) return;
    if (node < tree.head.chain) setState({ root: path });
    else this.graph.zoomTo(node, () => setState({ root: path }));
  }

  /** Asks for more of what is shown, without a change to what is seen. */
  detail(/** @type {number} */ node) {
    const tree = /** @type {Tree} */ (this.tree);
    if (this.options.kind !== "tree" || isFile) return;
    const root = tree.path(node);
    const s = state();
    this.one(async (signal) => {
      const finer = await askTree(this.options.kind, this.question(s, root), signal);
      const g = this.graph;
      const from = (g.from - tree.x[node]) / tree.span(node) * finer.full;
      const to = (g.to - tree.x[node]) / tree.span(node) * finer.full;
      const scroll = this.scroller.scrollTop;
      this.tree = finer;
      this.root = root;
      g.setTree(finer);
      g.from = Math.max(0, from);
      g.to = Math.min(finer.full, to);
      this.scroller.scrollTop = scroll;
      this.mark();
      setState({ root }, { replace: true });
    });
  }

  /**
   * @param {number} node
   * @param {{x: number, y: number}} at
   */
  selected(node, at) {
    const tree = this.tree;
    if (!tree || node < 0) return;
    say(describe(tree, node));
    this.options.select(tree, node, at);
  }

  /**
   * @param {number} node
   * @param {number} x
   * @param {number} y
   */
  hover(node, x, y) {
    const tree = this.tree;
    if (!tree || node < 0) return hideTip();
    const f = tree.frameOf(node);
    const binary = tree.binaryOf(node);
    showTip(this.canvas, x, y, [
      el("div", null, el("strong", null, el("bdi", null, labelOf(tree, node))), f.inlined ? " (inlined)" : ""),
      binary ? el("div", { class: "soft" }, el("bdi", null, binary.name), binary.identity ? " " + binary.identity : "") : null,
      el("div", null, valueText(tree, node)),
      tree.folded.has(node) ? el("div", { class: "soft" }, "calls itself: up to " + grouped((tree.folded.get(node) || 0) + 1) + " calls are one frame here") : null,
      f.why ? el("div", { class: "warning" }, f.why) : null,
      endText(tree, node),
    ]);
  }
}

/**
 * The name of a node beside those around it: there it is seen what label a value is of.
 * @param {Tree} tree
 * @param {number} node
 */
function nameIn(tree, node) {
  const times = tree.folded.get(node);
  return node === 0 && tree.depth[0] === 0 && tree.frameOf(0).id < 0 ? "all" : tree.frameOf(node).name + (times ? " ×" + grouped(times + 1) : "");
}

/**
 * @param {Tree} tree
 * @param {number} node
 */
export function labelOf(tree, node) {
  const { label } = tree.frameOf(node);
  return (label ? label + ": " : "") + nameIn(tree, node);
}

/**
 * A node's value, and its share of all.
 * @param {Tree} tree
 * @param {number} node
 */
export function valueText(tree, node) {
  const { unit, total, baseTotal } = tree.head;
  let text = quantity(tree.value[node], unit) + ", " + percent(tree.value[node], total);
  if (tree.self[node]) text += "; itself " + quantity(tree.self[node], unit) + ", " + percent(tree.self[node], total);
  if (tree.base) {
    text += "; before " + quantity(tree.base[node], unit) + ", " + percent(tree.base[node], baseTotal) +
      " (" + difference(Math.round(tree.value[node] - tree.base[node] * tree.head.scale), unit) + (tree.head.scale === 1 ? ")" : ", with the same total)");
  }
  return text;
}

/**
 * @param {Tree} tree
 * @param {number} node
 */
export function describe(tree, node) {
  const f = tree.frameOf(node);
  const binary = tree.binaryOf(node);
  return labelOf(tree, node) + (f.inlined ? ", inlined" : "") + (binary ? ", in " + binary.name : "") + ": " + valueText(tree, node);
}

/**
 * What is missing below the outermost frame of stacks.
 * @param {Tree} tree
 * @param {number} node
 */
function endText(tree, node) {
  const end = tree.ends.get(node);
  if (!end) return null;
  return el("div", null, endParts(end).map((part) => el("div", { class: part.unsure ? "soft" : "warning" },
    partText(part, tree.width(node)) + part.reasons.map((r) => r.reason).join("; "))));
}

/**
 * What is known of the callers of a part of a frame.
 * @param {{unsure: boolean, value: number}} part
 * @param {number} whole
 */
export function partText(part, whole) {
  const share = percent(part.value, whole);
  return part.unsure ? "For " + share + " of it nobody knows whether callers are missing: " : share + " of it has callers that are missing: ";
}

/** @param {Tree} tree */
function summaryOf(tree) {
  const h = tree.head;
  return quantity(h.total, h.unit) + (h.baseTotal ? " now, " + quantity(h.baseTotal, h.unit) + " before" : "") + "; " +
    plural(tree.n, "frame") + " shown" + (h.left ? ", " + plural(h.left, "frame") + " too narrow to be seen" : "");
}

/** The view, with its buttons. */
export class FlameView {
  /**
   * @param {Element} place
   * @param {Select} select
   */
  constructor(place, select) {
    const { menu, box } = makeMenu("Display");
    this.box = box;
    this.out = el("span", null);
    add(byID("display"), this.out, menu);
    this.pane = new FlamePane(place, { kind: "tree", select });
  }

  /** @param {State} s */
  show(s) {
    this.dress(s);
    return this.pane.load(s);
  }

  /**
   * @param {State} s
   * @param {State} before
   */
  update(s, before) {
    this.dress(s);
    const other = selectsOther(s, before) || s.calls !== before.calls || s.invert !== before.invert || splitOf(s) !== splitOf(before) || s.scale !== before.scale;
    if (other || (s.root !== before.root && s.root !== this.pane.root)) return this.pane.load(s);
    return Promise.resolve();
  }

  dress(/** @type {State} */ s) {
    const colour = s.colour || (info().base ? "change" : "kind");
    this.pane.graph.setUp(s.up === "1");
    this.pane.graph.setColour(colour);
    fill(this.box, toggles(s, colour));
    fill(this.out, s.root ? button("Zoom out", () => setState({ root: "" })) : null);
    fill(byID("legend"), legend(colour));
  }

  found() {
    this.pane.mark();
  }

  theme(/** @type {boolean} */ dark) {
    this.pane.graph.setTheme(dark);
    this.dress(state());
  }
}

/**
 * @param {State} s
 * @param {string} colour
 */
function toggles(s, colour) {
  const list = [
    group("Direction", [["Icicle", !s.up, { up: "" }], ["Flame", s.up === "1", { up: "1" }]]),
    group("Order", [["From callers", !s.invert, { invert: "", root: "" }], ["From leaves", s.invert === "1", { invert: "1", root: "" }]]),
    group("Colour", [
      ["Kind", colour === "kind", { colour: "kind" }], ["Identity", colour === "identity", { colour: "identity" }],
      ...(info().base ? [/** @type {any} */ (["Change", colour === "change", { colour: "change" }])] : []),
    ]),
  ];
  if (!isFile) list.push(group("Recursion", [["Recursion folded", !s.calls, { calls: "", root: "" }], ["Each call", s.calls === "1", { calls: "1", root: "" }]]));
  if (info().base) {
    list.push(group("Compare", [["As they are", s.scale !== "total", { scale: "" }], ["Same total", s.scale === "total", { scale: "total" }]]));
  }
  const splits = splitsOf(s);
  if (splits.length) list.push(splitter(s, splits));
  return list;
}

/**
 * @param {string} name
 * @param {[string, boolean, Partial<State>][]} choices
 */
function group(name, choices) {
  return el("span", { class: "group", role: "group", "aria-label": name },
    choices.map(([text, on, patch]) => button(text, () => setState(patch), { "aria-pressed": String(on) })));
}

/**
 * The labels that the graph can be split by. A file of its own has it by process from callers.
 * @param {State} s
 * @returns {string[]}
 */
function splitsOf(s) {
  const keys = info().labels.filter((l) => l.values > 1 && l.values <= 10000).map((l) => l.key);
  return isFile ? keys.filter((k) => k === "process" && !s.invert) : keys;
}

/** Stacks of a profile, beyond which it is not split unless somebody says so: each value is looked at by itself. */
const mostSplit = 100000;

/**
 * The label whose values are the first frames. Stacks of several processes begin with functions that all have: where the
 * URL says nothing else, they are split by process. A path of frames is one of the whole graph if it begins with a frame.
 * @param {State} s
 */
export function splitOf(s) {
  const splits = splitsOf(s);
  if (s.split || s.whole) return splits.includes(s.split) || !isFile ? s.split : "";
  const one = s.label.some((l) => l.startsWith("process="));
  return splits.includes("process") && info().stacks <= mostSplit && !one && !s.invert && !/^\d/.test(s.root) ? "process" : "";
}

/**
 * Chooses a label whose values become the first frames.
 * @param {State} s
 * @param {string[]} splits
 */
function splitter(s, splits) {
  const select = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "Split by" },
    el("option", { value: "" }, "no split"), splits.map((k) => el("option", { value: k }, "by " + k))));
  select.value = splitOf(s);
  select.addEventListener("change", () => setState({ split: select.value, whole: select.value ? "" : "1", root: "" }));
  return select;
}

/** @param {string} colour */
function legend(colour) {
  const p = palette(isDark());
  const swatch = (/** @type {string} */ fill) => {
    const i = el("i", { "aria-hidden": "true" });
    i.style.setProperty("background", fill);
    return i;
  };
  if (colour === "change") {
    return el("span", { class: "legend", "aria-label": "Legend", title: "The width of a frame is both profiles together" }, "less ",
      el("span", { class: "scale" }, [-1, -0.5, -0.2, 0, 0.2, 0.5, 1].map((c) => swatch(p.change(c)))), " more than before");
  }
  if (colour === "identity") return el("span", { class: "legend" }, "a hue for each identity; grey: none");
  return el("span", { class: "legend", "aria-label": "Legend" },
    ["kernel", "native", "go", "interpreted", "generated", "unknown"].map((k) => {
      const kind = kinds[/** @type {keyof typeof kinds} */ (k)];
      return el("span", null, swatch(p.fill(kind.hue, kind.sat, 0)), kind.text);
    }), el("span", null, "_ inlined"));
}
