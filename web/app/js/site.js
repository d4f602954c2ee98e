// The page of a server: what it has, what it lacks, profiles. What is shown is in the fragment of the URL.

import { add, button, byID, el, fill, nameText } from "./dom.js";
import { baseName } from "./format.js";
import { isDark, onTheme, toggleTheme } from "./theme.js";

/**
 * @typedef {object} Place
 * @property {string} view   search, functions, binary, missing, profiles, health
 * @property {string} q      search
 * @property {string} id     of a binary
 * @property {string} at     place in a list
 * @property {string} base   profile that others are compared with
 */

/** @returns {Place} */
function place() {
  const params = new URLSearchParams(location.hash.replace(/^#/, ""));
  const get = (/** @type {string} */ name) => params.get(name) || "";
  return { view: get("view") || "search", q: get("q"), id: get("id"), at: get("at"), base: get("base") };
}

/** @param {Partial<Place>} p */
function link(p) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(p)) if (value) params.set(key, value);
  return "#" + params.toString();
}

/** An answer that is no success. */
class Refusal extends Error {}

/**
 * Asks the server. Without a token, the browser goes to the form for one.
 * @param {string} path
 * @param {Record<string, string>} [params]
 * @returns {Promise<any>}
 */
async function ask(path, params) {
  const query = new URLSearchParams(params).toString();
  let response;
  try {
    response = await fetch("v1/" + path + (query ? "?" + query : ""), { credentials: "same-origin", redirect: "error" });
  } catch {
    throw new Refusal("The server does not answer.");
  }
  if (response.status === 401) {
    location.assign("login?" + new URLSearchParams({ next: location.pathname + location.search + location.hash }));
    return new Promise(() => {});
  }
  if (response.ok) return response.json();
  let text = "The server answers " + response.status + ".";
  try {
    text = (await response.json()).error || text;
  } catch {
    // The number says it.
  }
  throw new Refusal(text);
}

const tabs = [["search", "Binaries"], ["functions", "Functions"], ["missing", "Missing"], ["profiles", "Profiles"], ["health", "Health"]];

/** @param {Place} p */
function showTabs(p) {
  const current = p.view === "binary" ? "search" : p.view;
  fill(byID("tabs"), tabs.map(([view, text]) => el("a", { href: link({ view }), "aria-current": view === current ? "page" : null }, text)));
}

/**
 * A table, or what to say where it is empty.
 * @param {string[]} heads  "#" before a head of numbers
 * @param {(import("./dom.js").Child | HTMLElement)[][]} rows
 * @param {string} none
 * @param {string} label
 */
function table(heads, rows, none, label) {
  if (!rows.length) return el("p", { class: "soft" }, none);
  const isNumber = heads.map((h) => h.startsWith("#"));
  return el("section", { "aria-label": label, tabIndex: 0 }, el("table", null,
    el("thead", null, el("tr", null, heads.map((h, i) => el("th", { scope: "col", class: isNumber[i] ? "num" : "" }, h.replace(/^#/, ""))))),
    el("tbody", null, rows.map((r) => el("tr", null, r.map((c, i) => {
      const cell = c instanceof HTMLTableCellElement ? c : el("td", { class: isNumber[i] ? "num" : "" }, c);
      cell.dataset.head = heads[i].replace(/^#/, ""); // on a phone, where each row is a block
      return cell;
    }))))));
}

/** @param {number} n */
function count(n) {
  return n.toLocaleString("en-US");
}

/** @param {number} n bytes */
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + " " + units[i];
}

/** @param {string} text as in RFC 3339 */
function when(text) {
  const d = new Date(text);
  if (isNaN(d.getTime()) || d.getFullYear() < 1971) return "";
  return d.toISOString().replace("T", " ").slice(0, 16);
}

/** @param {string} id */
function binaryLink(id) {
  return el("td", { class: "id" }, el("a", { class: "mono", href: link({ view: "binary", id }) }, id));
}

/**
 * A line with the other pages of a list.
 * @param {string} text
 * @param {Partial<Place> | null} first
 * @param {Partial<Place> | null} next
 */
function pager(text, first, next) {
  return el("div", { class: "pager" }, el("span", null, text),
    first && el("a", { href: link(first) }, "First page"), next && el("a", { href: link(next) }, "Next page"));
}

/**
 * A form for a search.
 * @param {Place} p
 * @param {string} label
 */
function searchForm(p, label) {
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "q", "aria-label": label, placeholder: label, value: p.q, maxLength: 300 }));
  const form = el("search", { class: "searchbar" }, input, button("Search", go));
  function go() {
    location.hash = link({ view: p.view, q: input.value.trim(), base: p.base, id: p.view === "functions" ? p.id : "" });
  }
  input.addEventListener("keydown", (e) => {
    if (/** @type {KeyboardEvent} */ (e).key === "Enter") go();
  });
  return form;
}

const pageSize = 50;

/** @type {Record<string, (p: Place) => Promise<(HTMLElement | null)[]>>} */
const views = {
  async search(p) {
    const offset = Number(p.at) || 0;
    const a = await ask("search", { q: p.q, offset: String(offset), limit: String(pageSize) });
    const end = offset + a.results.length;
    return [searchForm(p, "Start of a build ID, or part of a path"),
      table(["Path", "Build ID", "Symbols", "#Files"], a.results.map((/** @type {any} */ r) => [
        el("td", null, r.names.map((/** @type {string} */ n) => el("div", null, nameText(n)))), binaryLink(r.id), r.symbols, count(r.files)]),
      p.q ? "No binary of this server begins with this build ID, or has this in a path." : "The server has no binaries. 'hallmark push' sends some.", "Binaries"),
      a.scanned ? el("p", { class: "soft" }, "The directories of --scan have " + count(a.scanned) + " build IDs. They are found here once somebody has asked for them.") : null,
      pager((a.total ? count(offset + 1) + "–" + count(end) + " of " + count(a.total) : "") + (a.complete ? "" : " (the server still reads its store)"),
        offset ? { view: "search", q: p.q } : null, end < a.total ? { view: "search", q: p.q, at: String(end) } : null)];
  },

  async functions(p) {
    const form = searchForm(p, "Part of a function's name");
    const about = p.id
      ? el("p", null, "Only in ", el("a", { class: "mono", href: link({ view: "binary", id: p.id }) }, p.id), ". ", el("a", { href: link({ view: "functions", q: p.q }) }, "In all"))
      : el("p", { class: "soft" }, "Searched are the binaries that were symbolized on this server.");
    if (!p.q) return [form, about];
    const a = await ask("functions", { q: p.q, id: p.id, after: p.at });
    const of = [count(a.searched) + (a.searched === 1 ? " binary" : " binaries") + " searched"];
    if (a.not_here) of.push(count(a.not_here) + " not, as nobody has had them symbolized here");
    if (a.cut) of.push(count(a.cut) + " with more than is shown");
    if (!a.complete) of.push("the server still reads its store");
    return [form, about,
      table(["Function", "Source", "Binary", "Build ID", "Address"], a.functions.map((/** @type {any} */ f) => [
        el("td", { title: f.linkage || f.function }, nameText(f.function), f.inlined ? el("span", { class: "tag" }, "inlined") : null),
        nameText(f.source_file ? f.source_file + (f.line ? ":" + f.line : "") : ""), nameText(f.binary || ""), binaryLink(f.id),
        el("td", { class: "mono" }, "0x" + f.virtual.toString(16))]), "No function has this in its name.", "Functions"),
      pager(of.join(", "), p.at ? { view: "functions", q: p.q, id: p.id } : null, a.next ? { view: "functions", q: p.q, id: p.id, at: a.next } : null)];
  },

  async binary(p) {
    const a = await ask("identities/" + encodeURIComponent(p.id), { sections: "1" });
    const files = "buildid/" + encodeURIComponent(a.id) + "/";
    /** @type {any[]} */
    const origins = a.files.flatMap((/** @type {any} */ f) => f.origins.map((/** @type {any} */ o) => ({ ...o, of: f.sha256 })));
    const names = [...new Set(origins.map((o) => baseName(o.path || "")).filter(Boolean))];
    return [el("h2", null, nameText(names.slice(0, 3).join(", ") || "No name is known"), " ", el("span", { class: "mono soft" }, a.id)),
      el("dl", null,
        el("dt", null, "Symbols"), el("dd", null, symbols(a.symbols)),
        a.disputed ? el("dt", null, "Disputed") : null, a.disputed ? el("dd", { class: "more" }, "Files of different code have this build ID.") : null,
        el("dt", null, "Kept"), el("dd", null, a.pinned ? "for ever (pinned)" : "as long as it is used"),
        a.used ? el("dt", null, "Last asked for") : null, a.used ? el("dd", null, a.used) : null,
        a.asked ? el("dt", null, "Asked of this server") : null, a.asked ? el("dd", null, askedText(a.asked)) : null),
      a.symbols === "none" ? null : el("p", null, el("a", { href: link({ view: "functions", id: a.id }) }, "Search its functions")),
      el("h3", null, "Files"),
      table(["SHA-256", "What it is", "Symbols", "#Size", "Serves"], a.files.map((/** @type {any} */ f) => [
        el("td", { class: "mono", title: f.sha256 }, f.sha256.slice(0, 16)),
        [f.executable ? "program or library" : "", f.debug ? "debug information" : "", f.disputed ? "disputed" : ""].filter(Boolean).join(", "),
        f.symbols, bytes(f.size),
        el("td", null, (f.serves || []).map((/** @type {string} */ s) => [el("a", { href: files + s, download: "" }, s), " "]).flat()),
      ]), "There are none.", "Files"),
      el("h3", null, "Where from"),
      table(["File", "Trust", "By", "Who", "Path", "Archive", "Package", "Came (UTC)"], origins.map((o) => [
        el("td", { class: "mono" }, o.of.slice(0, 8)), o.trust, o.via, nameText(o.who || ""), nameText(o.path || ""), nameText(o.archive || ""), nameText(o.package || ""),
        el("td", { class: "when" }, when(o.time)),
      ]), "Nobody knows.", "Where from"),
      el("h3", null, "Sections"),
      table(["Section", "Of", "#Size"], (a.sections || []).map((/** @type {any} */ s) => [
        s.bytes ? el("a", { href: files + "section/" + encodeURIComponent(s.name), download: "" }, nameText(s.name)) : nameText(s.name), s.of, bytes(s.size),
      ]), "The files have none.", "Sections")];
  },

  async missing(p) {
    const offset = Number(p.at) || 0;
    const a = await ask("missing", { offset: String(offset), limit: String(pageSize) });
    const end = offset + a.missing.length;
    return [el("p", { class: "soft" }, "Build IDs that requests and profiles asked for and the server does not have, since " + when(a.since) + " (UTC)."),
      table(["Path", "Build ID", "#Times", "Last (UTC)"], a.missing.map((/** @type {any} */ m) => [
        nameText(m.name || ""), el("td", { class: "id mono" }, m.id), count(m.count), el("td", { class: "when" }, when(m.last))]), "Nothing was asked for that is not there.", "Missing"),
      pager(a.total ? count(offset + 1) + "–" + count(end) + " of " + count(a.total) : "", offset ? { view: "missing" } : null, end < a.total ? { view: "missing", at: String(end) } : null)];
  },

  async profiles(p) {
    const a = await ask("profiles", { q: p.q, after: p.at, limit: String(pageSize) });
    const page = (/** @type {any} */ f) => "profiles/" + encodeURIComponent(f.id) + (p.base && p.base !== f.id ? "?base=" + encodeURIComponent(p.base) : "");
    return [searchForm(p, "Part of a title, or start of an ID"),
      p.base ? el("p", null, "A link compares with ", el("span", { class: "mono" }, p.base.slice(0, 16)), ". ", el("a", { href: link({ ...p, base: "" }) }, "Do not compare")) : null,
      table(["Title", "Kind", "#Samples", "#Binaries", "#Size", "From", "Came (UTC)", "Compare"], a.profiles.map((/** @type {any} */ f) => [
        el("a", { href: page(f) }, nameText(f.title || f.id.slice(0, 16))), f.kind, count(f.samples), count(f.binaries), bytes(f.size), f.role, el("td", { class: "when" }, when(f.time)),
        f.id === p.base ? el("span", { class: "tag" }, "base") : el("a", { href: link({ ...p, base: f.id }), "aria-label": "Compare with " + (f.title || f.id) }, "Compare with"),
      ]), p.q ? "No profile has this in its title." : "The server has no profiles. 'hallmark push --profile' sends one.", "Profiles"),
      pager(a.total ? count(a.total) + " in all" : "", p.at ? { view: "profiles", q: p.q, base: p.base } : null, a.next ? { view: "profiles", q: p.q, base: p.base, at: a.next } : null)];
  },

  async health() {
    const a = await ask("health");
    /** @type {[string, string | number][]} */
    const facts = [
      ["Started", when(a.started) + " (UTC)"], ["Store", a.store_answers ? "answers" : "does not answer"],
      ...(a.broken ? /** @type {[string, string][]} */ ([["Lost files", count(a.broken) + ", until somebody pushes them again: " +
        (a.broken_files || []).map((/** @type {{sha256: string}} */ f) => f.sha256).join(" ")]]) : []),
      ...(a.damaged_lists ? /** @type {[string, string][]} */ ([["Damaged lists", count(a.damaged_lists) + ", until somebody pushes again what they list (the log names them)"]]) : []),
      ["Identities", count(a.identities) + (a.complete ? "" : ", and the server still reads its store")],
      ["Profiles", count(a.profiles) + ", " + bytes(a.profile_bytes) + " in the store, " + count(a.open_profiles) + " open"],
      ["Scanned", a.scanned_identities ? count(a.scanned_identities) + " identities, " + count(a.scanned_packages) + " packages" : "nothing (--scan)"],
      ["Asks", (a.upstream || []).map((/** @type {{url: string, resting: boolean}} */ u) => u.url + (u.resting ? " (it failed not long ago, and rests)" : "")).join(", ") || "no other server (--upstream)"],
      ["Symbolizes", a.symbolizes ? "yes" : "no"], ["Passes profiles on", a.forwards ? "yes" : "no (--forward)"], ["Takes files", a.read_only ? "no (--read-only)" : "yes"],
      ["Requests", count(a.requests) + " under way, " + count(a.connections) + " connections"],
      ["Refused", Object.entries(a.refused || {}).map(([why, n]) => why + " " + count(/** @type {number} */ (n))).join(", ") || "none"],
      ["Memory", bytes(a.memory_bytes) + (a.store_bytes ? ", and " + bytes(a.store_bytes) + " in the store" : "")], ["Version", a.version || "unknown"],
      ["Access", a.tokens ? "by token" + (a.who ? ": you are " + a.who : "") : "whoever reaches the server"],
    ];
    const tools = byID("tools");
    if (a.tokens && !document.getElementById("logout")) {
      tools.prepend(button("Log out", async () => {
        await fetch("logout", { method: "POST", credentials: "same-origin" });
        location.assign("login");
      }, { id: "logout" }));
    }
    const size = (/** @type {any} */ p, /** @type {number} */ n) => p.size >= 1 << 20 ? bytes(n) : count(n);
    return [el("dl", null, facts.map(([k, v]) => [el("dt", null, k), el("dd", null, nameText(String(v)))]).flat()),
      el("h2", null, "What clients share"),
      table(["Of", "#Taken", "#There is", "#Clients"], (a.pools || []).map((/** @type {any} */ p) => [p.of, size(p, p.in_use), size(p, p.size), count(p.clients)]), "Nothing.", "What clients share"),
      el("p", null, el("a", { href: "metrics" }, "Metrics"), " are for machines.")];
  },
};

/** @param {string} s */
function symbols(s) {
  /** @type {Record<string, string>} */
  const words = { none: "none", exported: "functions that other files may call", functions: "all functions, without lines", lines: "functions, inlined calls, files and lines" };
  return words[s] || s;
}

/** @param {{count: number, last: string, by?: {who: string, count: number}[]}} a */
function askedText(a) {
  const by = (a.by || []).map((b) => b.who + " (" + count(b.count) + ")").join(", ");
  return nameText(count(a.count) + (a.count === 1 ? " time" : " times") + (by ? ", by " + by : "") + ", last " + when(a.last) + " (UTC)");
}

let turn = 0;

async function show() {
  const p = place();
  const mine = ++turn;
  const make = Object.hasOwn(views, p.view) ? views[p.view] : views.search;
  showTabs(p);
  /** @type {(HTMLElement | null)[]} */
  let parts;
  try {
    parts = await make(p);
  } catch (e) {
    if (!(e instanceof Refusal)) throw e;
    parts = [["search", "functions", "profiles"].includes(p.view) ? searchForm(p, "Search") : null, el("p", { class: "error", role: "alert" }, e.message)];
  }
  if (mine !== turn) return;
  const hadFocus = document.activeElement?.id === "q";
  fill(byID("view"), parts);
  if (hadFocus) document.getElementById("q")?.focus();
  const tab = tabs.find(([view]) => view === p.view);
  document.title = (p.view === "binary" ? document.querySelector("#view h2 bdi")?.textContent || p.id.slice(0, 16) : tab ? tab[1] : "Hallmark") + " · Hallmark";
  document.documentElement.dataset.ready = location.hash || "#"; // for tests
}

function showTheme() {
  const old = document.getElementById("theme");
  const now = button(isDark() ? "Light" : "Dark", toggleTheme, { id: "theme" });
  if (old) old.replaceWith(now);
  else add(byID("tools"), now);
}

showTheme();
onTheme(showTheme);
addEventListener("hashchange", show);
byID("skip").addEventListener("click", (/** @type {Event} */ e) => {
  e.preventDefault();
  byID("main").focus();
});
show();
