// What is known of the frame that was chosen.

import { ask, isFile, latest } from "./api.js";
import { add, button, byID, el, fill, nameText } from "./dom.js";
import { filterBy, filterByFunction } from "./filters.js";
import { partText, valueText } from "./flameview.js";
import { percent, quantity } from "./format.js";
import { info } from "./info.js";
import { selection, setState, state } from "./state.js";
import { say } from "./status.js";
import { change } from "./table.js";
import { endParts } from "./tree.js";

/**
 * @typedef {object} Share
 * @property {string} name
 * @property {string} [filter]   what chooses its samples
 * @property {number} value
 */

/**
 * @typedef {object} Place
 * @property {string} offset   file offset, in hexadecimal
 * @property {string} virt     virtual address
 * @property {string} [source]
 * @property {number} [line]
 * @property {number} value
 */

/**
 * @typedef {object} Details
 * @property {number} frame
 * @property {string} key
 * @property {string} name
 * @property {string} kind
 * @property {boolean} [unnamed]
 * @property {string} [reason]
 * @property {string} [advice]
 * @property {string} [source]
 * @property {number} [line]
 * @property {string} [file]      path of the binary
 * @property {string} [identity]
 * @property {string} [claims]
 * @property {boolean} [contested]
 * @property {string} [claimant]  whose claim the identity is
 * @property {string} [package]
 * @property {number} binary
 * @property {number} flat
 * @property {number} cum
 * @property {number} total
 * @property {string} unit
 * @property {Place[]} places
 * @property {number} morePlaces
 * @property {Share[]} processes
 * @property {Share[]} containers
 * @property {string} [lookup]    the command that finds its function again
 * @property {number} [baseFlat]
 * @property {number} [baseCum]
 * @property {number} [baseTotal]
 * @property {number} scale       by what values of the base are multiplied
 * @property {string} [baseIdentity]  of the build in the base, where that is another one
 * @property {string} [baseLookup]
 */

const one = latest();

const phone = matchMedia("(max-width: 760px)");

/** Closes the panel. */
export function closeDetails() {
  byID("details").hidden = true;
}

/**
 * Shows a function, and the node of a tree if it was chosen there.
 * @param {string} fn   number or key of the function
 * @param {import("./tree.js").Tree} [tree]
 * @param {number} [node]
 * @param {{x: number, y: number}} [at]  where the node is in the window: the panel is on the other side
 */
export function showDetails(fn, tree, node, at) {
  return one(async (signal) => {
    const panel = byID("details");
    const f = tree && node !== undefined ? tree.frameOf(node) : null;
    if (f && f.id < 0) {
      panel.hidden = true;
      return;
    }
    if (at) panel.classList.toggle("first", phone.matches ? at.y > innerHeight / 2 : at.x > innerWidth / 2);
    panel.hidden = false;
    if (f) fill(panel, head(f.name), el("p", { class: "soft" }, valueText(/** @type {any} */ (tree), /** @type {number} */ (node))));
    const params = selection(state());
    params.set("fn", fn);
    if (info().base && state().scale && !isFile) params.set("scale", state().scale);
    /** @type {Details} */
    let d;
    try {
      d = await ask("function", params, signal);
    } catch (e) {
      if (signal.aborted) throw e;
      add(panel, el("p", { class: isFile ? "soft" : "error" }, /** @type {Error} */ (e).message));
      return;
    }
    fill(panel, head(d.name), inTree(tree, node), actions(d), facts(d), shares("Processes", d.processes, d, "process"),
      shares("Containers", d.containers, d, "container"), places(d),
      command("Look it up anywhere ", d.lookup), command("The build before ", d.baseLookup));
  });
}

/** @param {string} name */
function head(name) {
  return el("header", null, el("h2", null, nameText(name)), button("×", closeDetails, { "aria-label": "Close the details" }));
}

/**
 * @param {import("./tree.js").Tree | undefined} tree
 * @param {number | undefined} node
 */
function inTree(tree, node) {
  if (!tree || node === undefined) return null;
  const f = tree.frameOf(node);
  const end = tree.ends.get(node);
  return el("div", null, el("p", null, "Here: " + valueText(tree, node), f.inlined ? el("span", { class: "tag" }, "inlined") : null),
    end ? endParts(end).map((part) => el("p", { class: part.unsure ? "soft" : "warning" }, partText(part, tree.width(node)),
      part.reasons.map((r) => el("span", null, r.reason + (r.advice ? " → " + r.advice : "") + ". ")))) : null);
}

/** @param {Details} d */
function actions(d) {
  if (isFile) return null;
  const go = (/** @type {string} */ text, /** @type {any} */ patch) => button(text, () => setState(patch));
  return el("div", { class: "actions" },
    go("Callers and callees", { view: "sandwich", fn: d.key }),
    button("Focus", () => filterByFunction("with", d.key, d.name)),
    button("Hide", () => filterByFunction("without", d.key, d.name)),
    d.unnamed ? null : go("Lines", { view: "lines", fn: d.key }),
    info().code && d.identity ? go("Instructions", { view: "code", fn: d.key }) : null,
    d.binary >= 0 ? go("Binary", { view: "binaries", bin: String(d.binary) }) : null);
}

/** @param {Details} d */
function facts(d) {
  const list = el("dl", null);
  const fact = (/** @type {string} */ name, /** @type {any} */ value) => {
    if (value) add(list, el("dt", null, name), el("dd", null, value));
  };
  fact("Itself", quantity(d.flat, d.unit) + ", " + percent(d.flat, d.total));
  fact("With callees", quantity(d.cum, d.unit) + ", " + percent(d.cum, d.total));
  if (info().base) {
    const before = (/** @type {number} */ now, /** @type {number} */ then) => el("span", null, quantity(then, d.unit) + ", " + percent(then, d.baseTotal || 0) + " ",
      change(now - then * d.scale, d.unit), d.scale === 1 ? null : " with the same total");
    if (d.flat || d.baseFlat) fact("Itself before", before(d.flat, d.baseFlat || 0));
    fact("With callees before", before(d.cum, d.baseCum || 0));
  }
  fact("Kind", d.kind);
  fact("Binary", d.file && nameText(d.file));
  fact("Identity", d.identity && el("code", null, d.identity));
  fact("Identity before", d.baseIdentity && el("code", null, d.baseIdentity));
  fact("Claims", d.claims && el("code", null, d.claims));
  fact("", d.claimant && el("span", { class: "tag warn" }, "claimed by " + d.claimant + ", not compared"));
  fact("", d.contested && el("span", { class: "tag warn" }, "files of different content claim this build ID"));
  fact("Package", d.package);
  fact("Source", d.source && nameText(d.source + (d.line ? ":" + d.line : "")));
  fact("No name", d.reason);
  fact("What helps", d.advice);
  return list;
}

/**
 * @param {string} title
 * @param {Share[]} list
 * @param {Details} d
 * @param {string} key
 */
function shares(title, list, d, key) {
  if (!list || !list.length) return null;
  const rows = list.slice(0, 8).map((s) => el("tr", null, el("td", { class: "num" }, percent(s.value, d.cum)),
    el("td", { class: "text" }, isFile || !s.filter ? nameText(s.name || "(none)") : button(s.name || "(none)", () => filterBy(s.filter || ""), { class: "linklike name", title: "Only " + key + " " + s.name }))));
  return el("section", null, el("h3", null, title), el("table", null, el("tbody", null, rows)),
    list.length > 8 ? el("p", { class: "soft" }, list.length - 8 + " more") : null);
}

/** @param {Details} d */
function places(d) {
  if (!d.places.length) return null;
  const rows = d.places.map((p) => el("tr", null, el("td", { class: "num" }, percent(p.value, d.cum)),
    el("td", { class: "mono" }, p.offset), el("td", { class: "text" }, p.line ? nameText(p.source + ":" + p.line) : "")));
  return el("section", null, el("h3", null, "File offsets"),
    el("table", null, el("thead", { class: "sr" }, el("tr", null, ["share", "offset", "line"].map((t) => el("th", { scope: "col" }, t)))), el("tbody", null, rows)),
    d.morePlaces ? el("p", { class: "soft" }, d.morePlaces + " more") : null);
}

/**
 * A command to copy.
 * @param {string} title
 * @param {string | undefined} text
 */
function command(title, text) {
  if (!text) return null;
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      say("The browser does not allow it: select the text.");
    }
  });
  return el("section", null, el("h3", null, title), el("pre", { tabIndex: 0, "aria-label": "command" }, text), copy);
}
