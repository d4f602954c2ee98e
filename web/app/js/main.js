// The page: asks what the profile is, makes the parts, and has them follow the URL.

import { ask, isFile } from "./api.js";
import { showCoverage } from "./coverage.js";
import { closeDetails, showDetails } from "./details.js";
import { add, button, byID, el, fill, showDialog } from "./dom.js";
import { makeFilters, onFound, search, showFilters } from "./filters.js";
import { FlameView } from "./flameview.js";
import { grouped, plural, quantity } from "./format.js";
import { showHelp } from "./help.js";
import { info, setInfo, typeOf } from "./info.js";
import { SandwichView } from "./sandwich.js";
import { identityOf, linkTo, onState, selectsOther, setNumbersVersion, setState, state } from "./state.js";
import { say, showError } from "./status.js";
import { BinariesView, CodeView, FunctionsView, LabelsView, LinesView } from "./tables.js";
import { isDark, onTheme, toggleTheme } from "./theme.js";
import { drawTime, showTime, updateTime } from "./time.js";

/** @typedef {import("./state.js").State} State */

/**
 * @typedef {object} View
 * @property {(s: State) => Promise<void>} show
 * @property {(s: State, before: State) => Promise<void>} update
 * @property {() => void} found
 * @property {(dark: boolean) => void} theme
 */

/** @type {View | null} */
let view = null;
let viewName = "";
let chosen = ""; // function

/** @returns {{name: string, text: string}[]} */
function tabs() {
  const s = state();
  const list = [
    { name: "flame", text: "Flame graph" }, { name: "functions", text: "Functions" }, { name: "binaries", text: "Binaries" },
    { name: "labels", text: "Processes" },
  ];
  if (info().base) list.splice(1, 0, { name: "changes", text: "Changes" });
  if (s.fn && !isFile) {
    list.push({ name: "sandwich", text: "Callers and callees" }, { name: "lines", text: "Lines" });
    if (info().code) list.push({ name: "code", text: "Instructions" });
  }
  return list;
}

function showTabs() {
  fill(byID("tabs"), tabs().map((t) => el("a", {
    href: linkTo({ view: t.name, sort: "", bin: "", ...(t.name === "labels" || t.name === "flame" ? {} : { split: "" }) }),
    "aria-current": t.name === state().view ? "page" : null,
  }, t.text)));
  const place = byID("tabs");
  const shown = place.querySelector("[aria-current]");
  if (shown) place.scrollLeft = Math.min(Math.max(place.scrollLeft, shown.offsetLeft + shown.offsetWidth - place.clientWidth), shown.offsetLeft);
}

/**
 * @param {string} name
 * @param {Element} place
 * @returns {View}
 */
function make(name, place) {
  const open = { open: (/** @type {string} */ fn) => choose(fn) };
  /** @type {import("./flameview.js").Select} */
  const select = (tree, node, at) => choose(String(tree.frameOf(node).id), tree, node, at);
  switch (name) {
    case "functions": case "changes": return new FunctionsView(place, open);
    case "binaries": return new BinariesView(place, open);
    case "labels": return new LabelsView(place, open);
    case "sandwich": return new SandwichView(place, select);
    case "lines": return new LinesView(place, open);
    case "code": return new CodeView(place, open);
  }
  return new FlameView(place, select);
}

/**
 * @param {string} fn
 * @param {import("./tree.js").Tree} [tree]
 * @param {number} [node]
 * @param {{x: number, y: number}} [at]
 */
function choose(fn, tree, node, at) {
  if (Number(fn) < 0) return;
  chosen = fn;
  showDetails(fn, tree, node, at).catch(report);
}

/**
 * Shows an error in place of the view, which is made anew with what is shown next.
 * @param {unknown} e
 */
function report(e) {
  showError(byID("view"), e);
  view = null;
}

/** @type {Intl.DateTimeFormatOptions} with the zone: who gets a link may be in another one */
const dateForm = { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" };

function header() {
  const i = info();
  const s = state();
  document.title = i.title + (i.base ? " less " + i.base : "") + " · Hallmark";
  fill(byID("title"), el("bdi", null, i.title), i.base ? " compared with " : "", i.base ? el("bdi", null, i.base) : null);
  const when = i.time ? new Date(i.time).toLocaleString(undefined, dateForm) : "";
  fill(byID("summary"), [i.duration ? quantity(i.duration, "nanoseconds") : "", plural(i.stacks, "stack"), when].filter(Boolean).join(" · "));
  const tools = byID("tools");
  fill(tools);
  if (i.types.length > 1) {
    const select = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "What is counted" },
      i.types.map((t) => el("option", { value: t.name }, i.types.some((x) => x !== t && x.type === t.type) ? t.type + " in " + t.unit : t.type))));
    select.value = typeOf(s.type)?.name || "";
    select.disabled = isFile;
    select.addEventListener("change", () => setState({ type: select.value }));
    add(tools, select);
  }
  if (i.notes.length) add(tools, button(plural(i.notes.length, "note"), () => notes(), { "aria-haspopup": "dialog" }));
  if (i.download && !isFile) add(tools, el("a", { href: "api/download" + (identityOf(s).size ? "?" + identityOf(s) : ""), download: "profile.pb.gz" }, "Download"));
  add(tools, button(isDark() ? "Light" : "Dark", toggleTheme, { id: "theme" }), button("Help", showHelp, { "aria-haspopup": "dialog" }));
}

/** Shows the notes. Those that differ in a name or a number alone are behind the others, and together. */
function notes() {
  /** @type {Map<string, string[]>} */
  const kinds = new Map();
  for (const n of info().notes) {
    const kind = n.replace(/\S*[\d/]\S*/g, "…");
    kinds.set(kind, [...(kinds.get(kind) || []), n]);
  }
  const all = [...kinds.values()].sort((a, b) => Number(a.length > few) - Number(b.length > few));
  showDialog("Notes", all.flatMap((list) => (list.length <= few ? list.map((n) => el("p", null, n))
    : el("details", null, el("summary", null, list[0] + " (and " + grouped(list.length - 1) + " more of this kind)"), list.slice(1).map((n) => el("p", null, n))))));
}

const few = 3; // notes of a kind that are listed

/**
 * Shows what the URL says.
 * @param {State} s
 * @param {State | null} before
 */
async function follow(s, before) {
  showTabs();
  showFilters();
  const jobs = [];
  if (s.fn) chosen = s.fn;
  if (!view || viewName !== s.view) {
    const place = byID("view");
    for (const e of [place, byID("display"), byID("legend")]) fill(e);
    view = make(s.view, place);
    viewName = s.view;
    jobs.push(view.show(s));
  } else if (before) {
    jobs.push(view.update(s, before));
  }
  if (!before) await Promise.all(jobs); // the picture comes first, and what is beside it then
  if (!before || selectsOther(s, before)) {
    jobs.push(showCoverage(s));
    if (!before || selectsOther({ ...s, from: "", to: "" }, { ...before, from: "", to: "" })) jobs.push(showTime(s));
    else updateTime();
  }
  if (!before || s.q !== before.q || selectsOther(s, before)) jobs.push(search());
  if (before && before.type !== s.type) header();
  if (before && before.scale !== s.scale && chosen && !byID("details").hidden) choose(chosen);
  await Promise.all(jobs);
}

/** Keys that act wherever the focus is, but in a field. */
function keys(/** @type {KeyboardEvent} */ e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement) {
    if (e.key !== "Escape") return;
    e.preventDefault(); // the text stays
    /** @type {HTMLElement} */ (byID("view").querySelector("[tabindex='0']") || byID("main")).focus({ preventScroll: true });
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const go = (/** @type {Partial<State>} */ patch) => {
    e.preventDefault();
    setState(patch);
  };
  const s = state();
  switch (e.key) {
    case "/": e.preventDefault(); byID("q").focus(); break;
    case "f": go({ view: "flame" }); break;
    case "t": go({ view: info().base ? "changes" : "functions", sort: "" }); break;
    case "b": go({ view: "binaries" }); break;
    case "p": go({ view: "labels" }); break;
    case "c": if (chosen && !isFile) go({ view: "sandwich", fn: chosen }); break;
    case "l": if (chosen && !isFile) go({ view: "lines", fn: chosen }); break;
    case "i": if (chosen && info().code && !isFile) go({ view: "code", fn: chosen }); break;
    case "d": toggleTheme(); break;
    case "?": showHelp(); break;
    case "Escape":
      if (!byID("details").hidden) closeDetails();
      else if (s.root) go({ root: s.root.split(".").slice(0, -1).join(".") });
      break;
  }
}

/** The page of the server that a profile is on, which its own is below; "" for none. */
function serverPage() {
  return (/^(.*\/)profiles\/[^/]+\/(vs\/[^/]+\/)?$/.exec(location.pathname) || ["", ""])[1];
}

async function start() {
  const since = performance.now();
  const up = serverPage();
  const text = up ? "The server reads the profile, and looks for names" : "The profile is being opened";
  const progress = el("p", { class: "notice", role: "status" }, text + ".");
  if (up) byID("top").prepend(el("a", { href: up + "#view=profiles" }, "← Profiles"));
  byID("view").prepend(progress);
  const clock = setInterval(() => fill(progress, text + ": " + Math.round((performance.now() - since) / 1000) + " s."), 1000);
  try {
    setInfo(await ask("profile", identityOf(state())));
    setNumbersVersion(info().version || "");
  } catch (e) {
    report(e);
    document.documentElement.dataset.ready = "error"; // for tests
    return;
  } finally {
    clearInterval(clock);
    byID("view").classList.remove("busy");
  }
  header();
  makeFilters();
  onFound(() => view?.found());
  onTheme((dark) => {
    view?.theme(dark);
    drawTime();
    header();
  });
  onState((s, before) => {
    if (s.p !== before.p || s.base !== before.base) location.reload(); // another profile
    else follow(s, before).catch(report);
  });
  document.addEventListener("keydown", keys);
  byID("skip").addEventListener("click", (/** @type {Event} */ e) => {
    e.preventDefault();
    byID("main").focus();
  });
  await follow(state(), null).catch(report);
  document.documentElement.dataset.ready = "1"; // for tests
}

start();
