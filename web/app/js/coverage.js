// How much is known, always in sight; with the reasons for the rest, and what helps.

import { ask, latest } from "./api.js";
import { add, byID, el, fill, nameText } from "./dom.js";
import { grouped, percent } from "./format.js";
import { selection } from "./state.js";

/**
 * @typedef {object} Gap
 * @property {string} lacks   identity, symbol, stack
 * @property {string} reason
 * @property {string} [advice]
 * @property {number} count   frames, or samples
 * @property {string[]} [binaries]
 * @property {boolean} [unsure]  of stacks: nobody knows whether frames are missing
 */

/**
 * @typedef {object} Coverage
 * @property {number} frames
 * @property {number} identified
 * @property {number} claimed     those whose identity is not proven
 * @property {number} symbolized
 * @property {number} samples   whose stacks say how they ended
 * @property {number} complete
 * @property {number} [unsure]  of which nobody knows whether they are complete
 * @property {Gap[]} gaps
 */

const one = latest();

/** Shows the coverage of what is selected. */
export function showCoverage(/** @type {import("./state.js").State} */ s) {
  return one(async (signal) => {
    const c = /** @type {Coverage} */ (await ask("coverage", selection(s), signal));
    const place = byID("coverage");
    const open = place.querySelector("details")?.open;
    const summary = el("summary", null,
      meter("identified", c.identified, c.frames, "frames whose file is identified"),
      c.claimed ? el("span", { class: "soft", title: "frames whose file claims the identity, without proof" }, percent(c.claimed, c.frames) + " claimed") : null,
      meter("named", c.symbolized, c.frames, "frames with the name of their function"),
      c.samples ? meter(c.unsure ? "known to be complete" : "complete", c.complete, c.samples, "stacks that are known to be complete", c.unsure) : null,
      el("span", { class: "soft" }, grouped(c.frames) + " frames" + (c.gaps.length ? " · why not all, and what helps" : "")));
    fill(place, el("details", { open: !!open }, summary, gaps(c)));
  });
}

/**
 * @param {string} text
 * @param {number} part
 * @param {number} whole
 * @param {string} of
 * @param {number} [unsure]  the part of which this is not known: it is not poor
 */
function meter(text, part, whole, of, unsure) {
  const share = whole ? part / whole : 0;
  const good = whole ? (part + (unsure || 0)) / whole : 0;
  const cls = good >= 0.95 ? "" : good >= 0.6 ? " poor" : " bad";
  const bar = el("b", null);
  bar.style.setProperty("width", 100 * share + "%");
  return el("span", { class: "meter" + cls, title: percent(part, whole) + " of the " + of },
    el("i", { "aria-hidden": "true" }, bar), percent(part, whole) + " " + text);
}

/** @param {Coverage} c */
function gaps(c) {
  if (!c.frames) return el("div", { class: "gaps" }, "There are no frames.");
  if (!c.gaps.length) return el("div", { class: "gaps" }, "All frames are identified and named, as far as this is known.");
  const rows = el("tbody", null);
  for (const g of c.gaps) {
    const whole = g.lacks === "stack" ? c.samples : c.frames;
    const what = el("td", { class: "text" }, g.reason);
    if (g.binaries && g.binaries.length) {
      add(what, ": ");
      g.binaries.forEach((b, i) => add(what, i ? ", " : "", nameText(b)));
    }
    if (g.advice) add(what, el("div", { class: "advice" }, g.advice));
    add(rows, el("tr", null, el("td", { class: "num" }, percent(g.count, whole)),
      el("td", null, g.lacks !== "stack" ? "no " + g.lacks : g.unsure ? "completeness unknown" : "stack is cut"), what));
  }
  return el("div", { class: "gaps" }, el("table", null,
    el("thead", null, el("tr", null, el("th", { class: "num", scope: "col" }, "share"), el("th", { scope: "col" }, "lacks"), el("th", { scope: "col" }, "because"))), rows));
}
