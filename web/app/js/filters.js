// Search and filters: what is typed, and what was chosen elsewhere as chips that go away by a
// click.

import { ask, isFile, latest } from "./api.js";
import { add, button, byID, el, fill, makeMenu } from "./dom.js";
import { percent, plural, quantity } from "./format.js";
import { info, unitOf } from "./info.js";
import { selection, setState, state } from "./state.js";
import { say } from "./status.js";

/**
 * @typedef {object} Found
 * @property {number[]} frames   numbers of the functions that match
 * @property {number} total      value of the stacks with any of them
 * @property {number} whole      value of all stacks
 * @property {boolean} [moreFrames]  there may be more functions: a file has not all of a large profile
 * @property {boolean} [more]        the value may be larger
 */

/** @type {Found | null} */
let found = null;
/** @type {((f: Found | null) => void)[]} */
const listeners = [];
const one = latest();

/** @param {(f: Found | null) => void} f is called with each answer of a search */
export function onFound(f) {
  listeners.push(f);
}

export function lastFound() {
  return found;
}

/** Asks which functions match the search, and how much of all goes through them. */
export function search() {
  const s = state();
  if (!s.q) {
    publish(null);
    showResult("");
    return Promise.resolve();
  }
  return one(async (signal) => {
    const params = selection(s);
    params.set("q", s.q);
    try {
      const f = /** @type {Found} */ (await ask("search", params, signal));
      publish(f);
      const [share, value] = [percent(f.total, f.whole), quantity(f.total, unitOf(s.type))];
      showResult((f.moreFrames ? "at least " : "") + plural(f.frames.length, "function") + ", " +
        (f.more ? "at least " + value + " (" + share + ")" : share + " (" + value + ")"));
      byID("q").removeAttribute("aria-invalid");
    } catch (e) {
      if (signal.aborted) throw e;
      publish(null);
      showResult(/** @type {Error} */ (e).message);
      byID("q").setAttribute("aria-invalid", "true");
    }
  });
}

/** @param {Found | null} f */
function publish(f) {
  found = f;
  for (const l of listeners) l(f);
}

/** @param {string} text */
function showResult(text) {
  fill(byID("found"), text);
  if (text) say(text);
}

/** Makes the fields. */
export function makeFilters() {
  const s = state();
  fill(byID("filters"),
    field("q", "Search", s.q, "text or regular expression", false),
    el("output", { id: "found", class: "soft", "aria-live": "polite" }),
    isFile ? null : makeMenu("Filters",
      field("focus", "Focus", s.focus, "stacks with …", true),
      field("ignore", "Ignore", s.ignore, "stacks without …", true),
      field("hide", "Hide", s.hide, "frames taken out", true)).menu);
  showChips();
}

/**
 * @param {"q" | "focus" | "ignore" | "hide"} key
 * @param {string} text
 * @param {string} value
 * @param {string} hint
 * @param {boolean} narrow
 */
function field(key, text, value, hint, narrow) {
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const input = el("input", {
    id: key, type: "search", value, placeholder: hint, spellcheck: false, autocomplete: "off", class: narrow ? "narrow" : "",
    maxLength: 4000, title: "a regular expression, or the text itself, in functions, source files and binaries",
  });
  const take = () => {
    clearTimeout(timer);
    setState({ [key]: /** @type {HTMLInputElement} */ (input).value, ...(key === "q" ? {} : { root: "" }) }, { replace: key === "q" });
  };
  input.addEventListener("change", take);
  if (key === "q") {
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(take, 200);
    });
  }
  return el("label", { for: key }, text, input);
}

/** Shows what is in the URL. */
export function showFilters() {
  const s = state();
  for (const key of /** @type {const} */ (["q", "focus", "ignore", "hide"])) {
    const input = /** @type {HTMLInputElement | null} */ (document.getElementById(key));
    if (input && document.activeElement !== input) input.value = s[key];
  }
  showChips();
}

function showChips() {
  const s = state();
  const place = byID("chips");
  fill(place);
  for (const l of s.label) {
    const not = l.startsWith("!");
    const at = l.indexOf("=");
    chip(place, (not ? "not " : "") + decoded(l.slice(not ? 1 : 0, at)) + ": " + (decoded(l.slice(at + 1)) || "(none)"),
      { label: s.label.filter((x) => x !== l) });
  }
  for (const key of /** @type {const} */ (["focus", "ignore", "hide"])) if (s[key]) chip(place, key + ": " + s[key], { [key]: "" });
  for (const key of s.with) chip(place, "with " + nameOf(key), { with: s.with.filter((x) => x !== key) });
  for (const key of s.without) chip(place, "without frames of " + nameOf(key), { without: s.without.filter((x) => x !== key) });
  if (s.from || s.to) chip(place, "time: " + span(+s.from, +s.to || info().duration), { from: "", to: "" });
  if (s.label.length + s.with.length + s.without.length + (s.from || s.to ? 1 : 0) + (s.focus ? 1 : 0) + (s.ignore ? 1 : 0) + (s.hide ? 1 : 0) > 1) {
    add(place, button("Clear all", () => setState({ label: [], with: [], without: [], from: "", to: "", focus: "", ignore: "", hide: "", root: "" })));
  }
}

/**
 * @param {number} from
 * @param {number} to
 */
export function span(from, to) {
  return quantity(from, "nanoseconds") + " – " + quantity(to, "nanoseconds");
}

/**
 * @param {Element} place
 * @param {string} text
 * @param {Partial<import("./state.js").State>} without
 */
function chip(place, text, without) {
  add(place, el("span", { class: "chip" }, el("bdi", null, text),
    button("×", () => setState({ ...without, root: "" }), { "aria-label": "Remove the filter " + text })));
}

/**
 * A part of a filter by label as people read it: what is no plain text is encoded in it.
 * @param {string} text
 */
function decoded(text) {
  try {
    return decodeURIComponent(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
  } catch {
    return text;
  }
}

/**
 * Adds a filter by a label.
 * @param {string} filter   as the server names the value
 * @param {boolean} [not]
 */
export function filterBy(filter, not) {
  const l = (not ? "!" : "") + filter;
  const s = state();
  if (!s.label.includes(l)) setState({ label: [...s.label, l], root: "" });
}

/** Names of functions by their keys, for chips. @type {Map<string, string>} */
const names = new Map();

/**
 * Adds a filter by a function itself: its name may be that of others, or no text that can be typed.
 * @param {"with" | "without"} how
 * @param {string} key
 * @param {string} name
 */
export function filterByFunction(how, key, name) {
  names.set(key, name);
  const s = state();
  if (!s[how].includes(key)) setState({ [how]: [...s[how], key], root: "" });
}

/**
 * The name of a function, which is asked for if it is not known yet.
 * @param {string} key
 */
function nameOf(key) {
  const name = names.get(key);
  if (name !== undefined) return name;
  names.set(key, key);
  ask("function", new URLSearchParams({ fn: key })).then((f) => {
    names.set(key, f.name);
    showChips();
  }, () => {}); // the answers that it filters say what is wrong
  return key;
}
