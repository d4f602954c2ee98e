// What is shown, kept in the fragment of the URL: a page can be linked to, and the server
// learns nothing of it but the questions that it answers.

/**
 * @typedef {object} State
 * @property {string} p       profile, where the server has several; empty for the only one
 * @property {string} base    the profile that it is compared with
 * @property {string} view    flame, functions, binaries, processes, changes, lines, code
 * @property {string} type    sample type; empty for the profile's default
 * @property {string} q       search
 * @property {string} focus   stacks with a function that matches
 * @property {string} ignore  no stacks with a function that matches
 * @property {string} hide    no frames that match
 * @property {string[]} with     functions that all stacks have, by key
 * @property {string[]} without  functions that are taken out, by key
 * @property {string[]} label filters, key=value each, in which signs are encoded as in URLs
 * @property {string} from    nanoseconds since the start; empty for all
 * @property {string} to
 * @property {string} root    path of frames to the frame that fills the width, joined by dots
 * @property {string} fn      function at hand: of the sandwich, of lines and of instructions
 * @property {string} colour  kind, identity, change; empty for what suits
 * @property {string} up      "1": a flame graph, which grows upwards
 * @property {string} invert  "1": from the leaves
 * @property {string} calls   "1": each call of a function by itself is a frame
 * @property {string} split   label whose values are the first frames; empty for what suits
 * @property {string} whole   "1": no split
 * @property {string} scale   "total" or empty: the base is scaled to the same total, or counts as it is
 * @property {string} sort
 * @property {string} bin     binary at hand, by its number
 * @property {string} v       version of the numbers in root, bin and fn, where the server may number anew
 */

/** @type {State} */
const empty = {
  p: "", base: "", view: "flame", type: "", q: "", focus: "", ignore: "", hide: "", with: [], without: [], label: [], from: "", to: "", root: "", fn: "",
  colour: "", up: "", invert: "", calls: "", split: "", whole: "", scale: "", sort: "", bin: "", v: "",
};

const lists = ["with", "without", "label"];

/**
 * @param {string} fragment
 * @returns {State}
 */
export function parseState(fragment) {
  const params = new URLSearchParams(fragment.replace(/^#/, ""));
  /** @type {any} */
  const s = { ...empty };
  for (const key of Object.keys(empty)) {
    if (lists.includes(key)) s[key] = params.getAll(key);
    else if (params.has(key)) s[key] = params.get(key);
  }
  return s;
}

/**
 * @param {State} s
 * @returns {string}
 */
export function formatState(s) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(s)) {
    if (Array.isArray(value)) value.forEach((v) => params.append(key, v));
    else if (value !== /** @type {any} */ (empty)[key]) params.set(key, value);
  }
  return params.toString();
}

/** @type {State} */
let current = parseState(location.hash);

/** Version of the numbers of functions and binaries; empty where they stay as they are. */
let version = "";

export function numbersVersion() {
  return version;
}

/**
 * What a state says by the numbers that the server has now.
 * @param {State} s
 * @returns {State}
 */
function ofVersion(s) {
  if (s.v === version || !hasNumbers(s)) return s;
  const own = { ...s, root: "", bin: "", v: "" };
  if (isNumber(own.fn)) {
    own.fn = "";
    if (["sandwich", "lines", "code"].includes(own.view)) own.view = empty.view; // these are of a function
  }
  return own;
}

/**
 * Sets the version of the numbers that the server has now. What the URL has by numbers of another one is dropped: it
 * would be something else.
 * @param {string} v
 */
export function setNumbersVersion(v) {
  version = v;
  const own = ofVersion(current);
  if (own === current) return;
  current = own;
  const fragment = formatState(current);
  history.replaceState(null, "", location.pathname + location.search + (fragment ? "#" + fragment : ""));
}

/** @param {State} s */
function hasNumbers(s) {
  return s.root !== "" || s.bin !== "" || isNumber(s.fn);
}

/** @param {string} text */
function isNumber(text) {
  return text !== "" && text.length < 10;
}

/**
 * A state with the version of its numbers, if it has any.
 * @param {State} s
 * @returns {State}
 */
function withVersion(s) {
  return { ...s, v: hasNumbers(s) ? version : "" };
}

/** @type {((now: State, before: State) => void)[]} */
const listeners = [];

/** @returns {State} */
export function state() {
  return current;
}

/**
 * Calls f after each change.
 * @param {(now: State, before: State) => void} f
 */
export function onState(f) {
  listeners.push(f);
}

/**
 * Changes what is shown. The browser's "back" undoes it, unless it is a step of a series,
 * as typing is.
 * @param {Partial<State>} patch
 * @param {{replace?: boolean}} [o]
 */
export function setState(patch, o) {
  const next = withVersion({ ...current, ...patch });
  const fragment = formatState(next);
  if (fragment === formatState(current)) return;
  const url = location.pathname + location.search + (fragment ? "#" + fragment : "");
  if (o && o.replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  changeTo(next);
}

/**
 * The fragment of a page that differs in some things, for links.
 * @param {Partial<State>} patch
 */
export function linkTo(patch) {
  return "#" + formatState(withVersion({ ...current, ...patch }));
}

/** @param {State} next */
function changeTo(next) {
  const before = current;
  current = next;
  for (const f of listeners) f(next, before);
}

/** Whether a change is one of what is counted, and not of how it is shown. */
export function selectsOther(/** @type {State} */ a, /** @type {State} */ b) {
  return selectionKey(a) !== selectionKey(b);
}

/**
 * The questions that select what is counted.
 * @param {State} s
 * @returns {URLSearchParams}
 */
export function selection(s) {
  const params = new URLSearchParams();
  for (const key of /** @type {const} */ (["type", "focus", "ignore", "hide", "from", "to"])) {
    if (s[key]) params.set(key, s[key]);
  }
  for (const key of /** @type {const} */ (["with", "without", "label"])) {
    for (const one of s[key]) params.append(key, one);
  }
  return params;
}

/**
 * The questions that say which profile is shown.
 * @param {State} s
 * @returns {URLSearchParams & {size: number}}
 */
export function identityOf(s) {
  const params = new URLSearchParams();
  if (s.p) params.set("p", s.p);
  if (s.base) params.set("base", s.base);
  return /** @type {any} */ (params);
}

/** @param {State} s */
function selectionKey(s) {
  return selection(s).toString();
}

window.addEventListener("popstate", () => changeTo(ofVersion(parseState(location.hash))));
window.addEventListener("hashchange", () => {
  const next = ofVersion(parseState(location.hash));
  if (formatState(next) !== formatState(current)) changeTo(next);
});
