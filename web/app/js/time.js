// When the samples were taken: a heat map of all, and a track for each process. What is selected
// there limits everything else.

import { ask, isFile, latest } from "./api.js";
import { add, button, byID, el, fill, nameText } from "./dom.js";
import { filterBy, span } from "./filters.js";
import { quantity, ticks } from "./format.js";
import { info, typeOf, unitOf } from "./info.js";
import { selection, setState, state } from "./state.js";
import { isDark } from "./theme.js";
import { hideTip, showTip } from "./tip.js";

/**
 * @typedef {object} Track
 * @property {string} label
 * @property {string} [filter]  what chooses its samples
 * @property {number} total
 * @property {number[]} values
 */

const columns = 120;
const cell = 30e6; // nanoseconds that a part of a column has at least: samples are 10 ms apart
const one = latest();
/** @type {{from: number, to: number, heat: Track | null, tracks: Track[], by: string, left: number} | null} */
let shown = null;
/** @type {(() => void)[]} */
let drawings = [];
let by = "process";
let folded = true;

/** How many parts a column of the heat map has: with fewer than a few it shows bars, as the tracks below it. */
function rowsOf() {
  const rows = Math.min(12, Math.floor(info().duration / columns / cell));
  return rows < 4 ? 1 : rows;
}

/** Asks for the tracks of what is selected, but for the range of time. */
export function showTime(/** @type {import("./state.js").State} */ s) {
  const place = byID("time");
  if (!info().times) return Promise.resolve();
  place.hidden = false;
  return one(async (signal) => {
    const params = selection({ ...s, from: "", to: "" });
    params.set("columns", String(columns));
    params.set("rows", String(rowsOf()));
    params.set("by", by);
    shown = await ask("time", params, signal);
    make();
  });
}

/** Draws again: the range, or the colours, are others. */
export function drawTime() {
  for (const d of drawings) d();
}

function make() {
  const place = byID("time");
  const t = /** @type {any} */ (shown);
  drawings = [];
  const choice = ["process", "thread", "container"].filter((k) => k === "process" || info().labels.some((l) => l.key === k));
  const fold = t.tracks.length ? button(folded ? "Tracks ▸" : "Tracks ▾", () => { folded = !folded; make(); }, { "aria-expanded": String(!folded) }) : null;
  fill(place, folded ? null : el("div", { class: "bar" },
    choice.map((k) => button("by " + k, () => { by = k; showTime(state()); }, { "aria-pressed": String(by === k) })),
    state().from || state().to ? button("All of the time", () => setState({ from: "", to: "" })) : null,
    el("span", { class: "soft", id: "range" }, rangeText())));
  const tracks = el("div", { class: "tracks" });
  if (t.heat) add(tracks, track(t.heat, true, Math.max(1, ...t.heat.values), fold));
  const most = Math.max(1, ...t.tracks.map((/** @type {Track} */ one) => Math.max(...one.values))); // one scale, to compare them
  if (!folded) for (const one of t.tracks) add(tracks, track(one, false, most));
  const length = t.to - t.from;
  const marks = ticks(length).map(({ at, text }) => {
    const tick = el("span", { class: at > 0.9 * length ? "last" : "" }, text);
    tick.style.setProperty("left", 100 * at / length + "%");
    return tick;
  });
  add(place, tracks, el("div", { class: "track" }, el("span", { class: "label soft" }, t.left && !folded ? t.left + " more" : ""),
    el("div", { class: "axis", "aria-hidden": "true" }, marks)));
  drawTime();
}

function rangeText() {
  if (isFile) return "";
  const s = state();
  if (s.from || s.to) return "selected: " + span(+s.from, +s.to);
  return "drag over a track to select a range; arrow keys move it, Shift widens it";
}

/**
 * @param {Track} t
 * @param {boolean} heat
 * @param {number} most   the value that fills a part of the time
 * @param {HTMLElement | null} [fold]   shows and hides the tracks below
 */
function track(t, heat, most, fold) {
  const name = heat ? "all" : t.label || "(none)";
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", {
    tabIndex: heat ? 0 : -1, role: "slider", "aria-label": "Range of time" + (heat ? "" : " of " + name), "aria-valuemin": "0",
    "aria-valuemax": String(shown && shown.to - shown.from), "aria-valuenow": state().from || "0", "aria-valuetext": rangeText(),
  }));
  const strip = el("div", { class: heat ? "strip tall" : "strip" }, canvas);
  drawings.push(() => draw(canvas, t, heat, most));
  canvas.addEventListener("pointermove", (e) => tell(e, name, t, heat ? rowsOf() : 1));
  canvas.addEventListener("pointerleave", hideTip);
  if (!isFile) drag(canvas);
  const label = heat ? el("span", { class: "label" }, fold || "all")
    : el("span", { class: "label" }, isFile || !t.filter ? nameText(name) : button(name, () => filterBy(t.filter || ""), { class: "linklike name", title: "Only " + by + " " + name }));
  return el("div", { class: "track" }, label, strip);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Track} t
 * @param {boolean} heat
 * @param {number} most
 */
function draw(canvas, t, heat, most) {
  const box = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  if (!box.width) return;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  ctx.scale(ratio, ratio);
  const dark = isDark();
  const per = heat ? rowsOf() : 1;
  const wide = box.width / (t.values.length / per);
  const high = box.height / per;
  t.values.forEach((v, i) => {
    const part = v / most;
    const column = Math.floor(i / per);
    const gap = high > 4 ? 0.5 : 0;
    ctx.fillStyle = dark ? "#202228" : "#f0f0f4";
    ctx.fillRect(column * wide, (i % per) * high, Math.max(wide - 0.5, 0.5), high - gap);
    if (v <= 0) return;
    const size = per > 1 ? high - gap : Math.max(1, part * high); // a bar, where there is room for it
    ctx.fillStyle = heatColour(Math.sqrt(part), dark);
    ctx.fillRect(column * wide, (i % per + 1) * high - gap - size, Math.max(wide - 0.5, 0.5), size);
  });
  const s = state();
  const all = /** @type {any} */ (shown);
  if (!s.from && !s.to) return;
  const at = (/** @type {number} */ ns) => ns / (all.to - all.from) * box.width;
  ctx.fillStyle = dark ? "rgb(22 23 27 / 70%)" : "rgb(255 255 255 / 75%)";
  ctx.fillRect(0, 0, at(+s.from), box.height);
  ctx.fillRect(at(+s.to), 0, box.width, box.height);
  ctx.strokeStyle = dark ? "#8ab8ff" : "#0b57b8";
  ctx.lineWidth = 2;
  ctx.strokeRect(at(+s.from), 1, Math.max(at(+s.to) - at(+s.from), 2), box.height - 2);
}

/**
 * Says what a part of the time counts.
 * @param {PointerEvent} e
 * @param {string} name
 * @param {Track} t
 * @param {number} rows
 */
function tell(e, name, t, rows) {
  const all = /** @type {any} */ (shown);
  const box = /** @type {Element} */ (e.target).getBoundingClientRect();
  const at = (/** @type {number} */ part, /** @type {number} */ count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
  const wide = t.values.length / rows;
  const i = at((e.clientX - box.left) / box.width, wide) * rows + at((e.clientY - box.top) / box.height, rows);
  const length = (all.to - all.from) / t.values.length;
  const unit = unitOf(state().type);
  const busy = typeOf(state().type)?.type === "cpu" && unit === "nanoseconds" ? ", " + (t.values[i] / length).toFixed(2) + " CPUs" : "";
  showTip(/** @type {Element} */ (e.target), e.clientX, e.clientY, [el("div", null, el("strong", null, el("bdi", null, name))),
    el("div", null, span(Math.round(i * length), Math.round((i + 1) * length))), el("div", null, quantity(t.values[i], unit) + busy)]);
}

/**
 * @param {number} part 0 to 1
 * @param {boolean} dark
 */
function heatColour(part, dark) {
  return dark ? `hsl(${30 + 20 * part} ${60 + 30 * part}% ${16 + 44 * part}%)` : `hsl(${45 - 40 * part} 85% ${92 - 48 * part}%)`;
}

/** @param {HTMLCanvasElement} canvas */
function drag(canvas) {
  let start = -1;
  const at = (/** @type {PointerEvent} */ e) => {
    const box = canvas.getBoundingClientRect();
    return Math.max(0, Math.min(1, (e.clientX - box.left) / box.width));
  };
  const choose = (/** @type {number} */ a, /** @type {number} */ b, /** @type {boolean} */ replace) => {
    const all = /** @type {any} */ (shown);
    const length = all.to - all.from;
    const step = length / (columns * 12);
    const from = Math.floor(Math.min(a, b) * length / step) * step;
    const to = Math.max(Math.ceil(Math.max(a, b) * length / step) * step, from + step);
    setState({ from: String(Math.round(from)), to: String(Math.round(Math.min(to, length))), root: "" }, { replace });
  };
  canvas.addEventListener("pointerdown", (e) => {
    start = at(e);
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", (e) => {
    if (start < 0) return;
    const end = at(e);
    if (Math.abs(end - start) * canvas.clientWidth < 3) setState({ from: "", to: "" });
    else choose(start, end, false);
    start = -1;
  });
  canvas.addEventListener("keydown", (e) => {
    const by = e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0;
    if (!by && e.key !== "Escape") return;
    e.preventDefault();
    if (e.key === "Escape") return setState({ from: "", to: "" });
    const s = state();
    const all = /** @type {any} */ (shown);
    const length = all.to - all.from;
    const step = 1 / columns;
    let [from, to] = s.from || s.to ? [+s.from / length, +s.to / length] : [0, 10 * step];
    if (e.shiftKey) to = Math.max(from + step, Math.min(1, to + by * step));
    else if (from + by * step >= 0 && to + by * step <= 1 + 1e-9) [from, to] = [from + by * step, to + by * step];
    choose(from + step / 100, to - step / 100, true);
  });
}

/** Shows another range. */
export function updateTime() {
  if (!shown) return;
  const focus = document.activeElement instanceof HTMLCanvasElement && byID("time").contains(document.activeElement);
  make();
  if (focus) /** @type {any} */ (byID("time").querySelector("canvas"))?.focus();
}

new ResizeObserver(() => drawTime()).observe(byID("time"));

