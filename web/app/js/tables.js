// The views that are tables: functions, changes, binaries, processes, labels.

import { ask, isFile, latest } from "./api.js";
import { add, button, el, fill, focusIn, nameText } from "./dom.js";
import { filterBy } from "./filters.js";
import { grouped, percent, plural, quantity } from "./format.js";
import { emptyText, info } from "./info.js";
import { selection, selectsOther, setState, state } from "./state.js";
import { say, showError } from "./status.js";
import { makeTable, valueColumns, withMore } from "./table.js";

/** @typedef {import("./state.js").State} State */

/** What the tables have in common. */
class TableView {
  /**
   * @param {Element} place
   * @param {{open: (fn: string) => void}} options
   */
  constructor(place, options) {
    this.options = options;
    this.place = place;
    this.bar = el("div", { class: "tablebar" });
    this.wrap = el("div", { class: "tablewrap", tabIndex: 0, role: "region", "aria-label": "Table" });
    add(place, this.bar, this.wrap);
    this.one = latest();
  }

  /** @param {State} s */
  show(s) {
    return this.one(async (signal) => {
      this.place.classList.add("busy");
      const back = focusIn(this.place);
      try {
        await this.fill(s, signal);
        back();
      } catch (e) {
        if (signal.aborted) throw e;
        fill(this.bar);
        showError(this.wrap, e);
      } finally {
        if (!signal.aborted) this.place.classList.remove("busy");
      }
    });
  }

  /**
   * @param {State} s
   * @param {State} before
   */
  update(s, before) {
    if (selectsOther(s, before) || ["q", "sort", "bin", "scale", "split", "view"].some((k) => /** @type {any} */ (s)[k] !== /** @type {any} */ (before)[k])) {
      return this.show(s);
    }
    return Promise.resolve();
  }

  /**
   * @param {State} _s
   * @param {AbortSignal} _signal
   */
  async fill(_s, _signal) {}

  found() {}

  theme() {}
}

/** @param {State} s */
function question(s) {
  const params = selection(s);
  if (info().base && s.scale) params.set("scale", s.scale);
  return params;
}

/** @param {{rows: any[], total: number, baseTotal: number}} a */
function nothing(a) {
  return a.rows.length || a.total || a.baseTotal ? null : el("p", { class: "notice" }, emptyText());
}

/** Functions, by what they cost or by what changed. */
export class FunctionsView extends TableView {
  /**
   * @param {State} s
   * @param {AbortSignal} signal
   */
  async fill(s, signal) {
    const changes = s.view === "changes";
    const params = question(s);
    if (s.q && !isFile) params.set("q", s.q);
    if (s.bin) params.set("bin", s.bin);
    const sort = s.sort || (changes ? "change" : "flat");
    params.set("sort", sort);
    const a = await ask("functions", params, signal);
    const of = { unit: a.unit, total: a.total, baseTotal: a.baseTotal, scale: a.scale };
    /** @type {import("./table.js").Column[]} */
    const columns = [
      ...valueColumns("flat", "flat", of, "the function itself"),
      ...valueColumns("cum", "cum", of, "with what it calls"),
      { title: "function", sort: "name", cell: (r) => this.nameOf(r) },
      { title: "binary", cell: (r) => (r.file ? el("span", null, nameText(r.file), " ", r.identity ? el("code", { class: "soft" }, r.identity.slice(0, 12)) : null) : "") },
    ];
    const t = makeTable(changes ? "Functions by what changed most" : "Functions", columns, a.rows,
      { sort, onSort: (by) => setState({ sort: by }, { replace: true }) });
    fill(this.bar, legend(of),
      s.bin ? button("All binaries", () => setState({ bin: "" })) : null,
      el("span", { class: "soft" }, plural(a.count, "function") + (s.q && !isFile ? (a.count === 1 ? " matches the search" : " match the search") : "") + ", " + quantity(a.total, a.unit)));
    fill(this.wrap, nothing(a));
    if (a.rows.length) withMore(this.wrap, t, a.rows.length, a.count, async (offset) => {
      params.set("offset", String(offset));
      return (await ask("functions", params)).rows;
    });
    say(plural(a.count, "function"));
  }

  /** @param {any} r */
  nameOf(r) {
    return el("span", null,
      button(r.name, () => this.options.open(r.key), { class: "linklike name" }),
      r.reason ? el("span", { class: "soft" }, " " + r.reason) : null);
  }
}

/** @param {{unit: string, total: number, baseTotal: number, scale: number}} of */
function legend(of) {
  if (!info().base) return null;
  return el("span", { class: "legend" }, el("span", { class: "more" }, "+ more than before"), el("span", { class: "less" }, "− less"),
    state().scale === "total" ? "the base counts " + of.scale.toFixed(3) + " times, so that both totals are the same" : "values as they are" + lengths(),
    button(state().scale === "total" ? "As they are" : "Same total", () => setState({ scale: state().scale === "total" ? "" : "total" })));
}

/** For how long two profiles were recorded, where that differs. */
function lengths() {
  const { duration, baseDuration } = info();
  if (!duration || !baseDuration || Math.abs(duration - baseDuration) <= 0.1 * Math.max(duration, baseDuration)) return "";
  return ", of " + quantity(duration, "nanoseconds") + " and before of " + quantity(baseDuration, "nanoseconds");
}

/** Binaries by identity. */
export class BinariesView extends TableView {
  /**
   * @param {State} s
   * @param {AbortSignal} signal
   */
  async fill(s, signal) {
    const a = await ask("binaries", question(s), signal);
    const of = { unit: a.unit, total: a.total, baseTotal: a.baseTotal, scale: a.scale };
    /** @type {import("./table.js").Column[]} */
    const columns = [
      ...valueColumns("flat", "flat", of, "the code of the binary itself"),
      ...valueColumns("cum", "cum", of, "with what it calls"),
      { title: "binary, identity", class: "identity", cell: (r) => el("div", null, binaryCell(r), el("div", null, identityCell(r))) },
      { title: "named", num: true, hint: "share of its frames whose function is known", cell: (r) => (r.frames ? percent(r.symbolized, r.frames) : "") },
      { title: "why not all, and what helps", cell: gapsCell },
    ];
    const t = makeTable("Binaries", columns, a.rows, { isSelected: (r) => String(r.binary) === s.bin });
    fill(this.bar, legend(of), el("span", { class: "soft" }, (a.rows.length === 1 ? "1 binary, " : grouped(a.rows.length) + " binaries, ") + quantity(a.total, a.unit)));
    fill(this.wrap, nothing(a) || t.table);
    this.wrap.querySelector("[aria-selected]")?.scrollIntoView({ block: "center" });
    say(a.rows.length === 1 ? "1 binary" : grouped(a.rows.length) + " binaries");
  }
}

/** @param {any} r */
function binaryCell(r) {
  const name = r.file || "[unknown]";
  return el("span", null,
    isFile ? nameText(name) : button(name, () => setState({ view: "functions", bin: String(r.binary), sort: "" }), { class: "linklike name", title: "Its functions" }),
    (r.paths || []).map((/** @type {string} */ p) => el("div", { class: "soft" }, "also ", nameText(p))),
    r.package ? el("span", { class: "tag" }, r.package) : null);
}

/** @param {any} r */
function identityCell(r) {
  if (!r.identity) return el("span", { class: "soft" }, r.reason || "none");
  return el("span", null, el("code", { class: "name" }, r.identity),
    r.baseIdentity ? el("div", null, el("span", { class: "tag" }, r.baseFile ? "compared by function" : "another build"), " before ", r.baseFile ? nameText(r.baseFile) : null, " ", el("code", { class: "name" }, r.baseIdentity)) : null,
    r.claims ? el("div", { class: "soft" }, "claims ", el("code", null, r.claims)) : null,
    r.claimant ? el("span", { class: "tag warn" }, "claimed by " + r.claimant) : null,
    r.contested ? el("span", { class: "tag warn" }, "same build ID, different content") : null);
}

/** @param {any} r */
function gapsCell(r) {
  return el("span", null, (r.gaps || []).map((/** @type {any} */ g) => el("div", null,
    percent(g.count, r.frames) + " no " + g.lacks + ": " + g.reason, g.advice ? el("div", { class: "soft" }, "→ " + g.advice) : null)));
}

/** Processes, and the values of any other label. */
export class LabelsView extends TableView {
  /**
   * @param {State} s
   * @param {AbortSignal} signal
   */
  async fill(s, signal) {
    const keys = info().labels.map((l) => l.key);
    const key = s.split && keys.includes(s.split) ? s.split : keys.includes("process") ? "process" : keys[0];
    if (!key) {
      fill(this.bar);
      fill(this.wrap, el("p", { class: "notice" }, "The profile has no labels: it names no processes."));
      return;
    }
    const params = question(s);
    params.set("key", key);
    const a = await ask("labels", params, signal);
    const of = { unit: a.unit, total: a.total, baseTotal: a.baseTotal, scale: a.scale };
    const name = (/** @type {any} */ r) => (r.missing ? "(none)" : r.value);
    /** @type {import("./table.js").Column[]} */
    const columns = [
      ...valueColumns("value", "flat", of, "of all samples with this label"),
      ...(key === "process" ? [{ title: "pids", num: true, cell: (/** @type {any} */ r) => (r.pids ? grouped(r.pids) : "") }] : []),
      { title: key, cell: (/** @type {any} */ r) => nameText(name(r)) },
    ];
    if (!isFile) {
      columns.push({
        title: "show", cell: (r) => (r.filter ? el("span", { class: "group" },
          button("Only", () => filterBy(r.filter), { "aria-label": "Only " + name(r) }),
          button("Not", () => filterBy(r.filter, true), { "aria-label": "Not " + name(r) })) : null),
      });
    }
    fill(this.bar, el("span", { class: "group", role: "group", "aria-label": "Label" },
      keys.map((k) => button(k, () => setState({ split: k }), { "aria-pressed": String(k === key) }))),
    info().moreLabels ? el("span", { class: "soft" }, plural(info().moreLabels || 0, "other label") + ": see 'hallmark view'") : null,
    legend(of), el("span", { class: "soft" }, plural(a.count, "value")));
    const t = makeTable("Values of " + key, columns, a.rows);
    fill(this.wrap);
    withMore(this.wrap, t, a.rows.length, a.count, async (offset) => {
      params.set("offset", String(offset));
      return (await ask("labels", params)).rows;
    });
    say(plural(a.count, "value") + " of " + key);
  }
}

/** Lines of the functions' sources, with their text where the user named a directory that has it. */
export class LinesView extends TableView {
  /**
   * @param {State} s
   * @param {AbortSignal} signal
   */
  async fill(s, signal) {
    const params = question(s);
    params.set("fn", s.fn);
    const a = await ask("lines", params, signal);
    fill(this.bar, el("h2", null, nameText(a.name)), el("span", { class: "soft" }, nameText(a.source || (a.files.length > 1 ? "functions of this name are in " + a.files.length + " files" : "no source file is known"))),
      s.fn ? button("Callers and callees", () => setState({ view: "sandwich" })) : null);
    fill(this.wrap);
    for (const f of a.files) add(this.wrap, fileOf(f, a));
    if (!a.files.length) add(this.wrap, el("p", { class: "notice" }, "No lines of this function are known."));
    say("lines of " + a.name);
  }
}

/**
 * @param {any} f
 * @param {any} a
 */
function fileOf(f, a) {
  const rows = f.lines.map((/** @type {any} */ l) => el("tr", { class: (l.gap ? "gap" : "") + (l.cum > 0.1 * a.cum ? " hot" : "") },
    el("td", { class: "num" }, l.line || "?"),
    el("td", { class: "num" }, l.flat ? quantity(l.flat, a.unit) : ""), el("td", { class: "num" }, l.cum ? quantity(l.cum, a.unit) : ""),
    el("td", { class: "text" }, l.text || "")));
  const note = f.shown ? "Text from " + f.shown + " in the directory of --source; nothing proves that this was compiled" : f.why || "";
  return el("section", null, el("h3", null, nameText(f.source || "unknown file")), note ? el("p", { class: "soft" }, note) : null,
    el("table", { class: "source" }, el("thead", null, el("tr", null, ["line", "flat", "cum", "text"].map((t) => el("th", { scope: "col" }, t)))), el("tbody", null, rows)));
}

/** Instructions at an identity. */
export class CodeView extends TableView {
  /**
   * @param {State} s
   * @param {AbortSignal} signal
   */
  async fill(s, signal) {
    const params = question(s);
    params.set("fn", s.fn);
    const a = await ask("code", params, signal);
    fill(this.bar, el("h2", null, nameText(a.name)), el("span", { class: "soft" }, nameText(a.file || "")), el("code", null, a.identity || ""),
      button("Lines", () => setState({ view: "lines" })));
    fill(this.wrap);
    if (a.other) {
      add(this.wrap, el("p", { class: "notice" }, "The instructions that were measured before are of another build, ", el("code", null, a.other), ", and are not shown here."));
    }
    if (a.why) {
      add(this.wrap, el("p", { class: "notice" }, a.why), a.advice ? el("p", { class: "notice" }, "→ " + a.advice) : null);
    }
    const rows = a.instructions.map((/** @type {any} */ i) => el("tr", { class: (i.gap ? "gap" : "") + (i.flat > 0.05 * a.cum ? " hot" : "") },
      el("td", { class: "num" }, i.flat ? quantity(i.flat, a.unit) : ""), el("td", { class: "num" }, i.cum ? quantity(i.cum, a.unit) : ""),
      el("td", null, i.offset), el("td", null, i.virt), el("td", { class: "text" }, i.text),
      el("td", { class: "soft" }, i.line ? nameText(i.source + ":" + i.line) : "")));
    add(this.wrap, el("table", { class: "source" }, el("thead", null, el("tr", null,
      ["flat", "cum", "file offset", "address", "instruction", "line"].map((t) => el("th", { scope: "col" }, t)))), el("tbody", null, rows)));
    say("instructions of " + a.name);
  }
}
