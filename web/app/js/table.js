// Tables of rows that the server sorts and sends in pages.

import { add, button, el, fill } from "./dom.js";
import { difference, grouped, percent, quantity } from "./format.js";
import { info } from "./info.js";

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {string} [sort]    what the server sorts by
 * @property {boolean} [num]
 * @property {(row: any) => (Node | string | number | null)} cell
 * @property {(row: any) => number} [part]   share of the whole, drawn as a bar
 * @property {string} [hint]
 * @property {string} [class]    of its cells
 * @property {boolean} [first]   beside the name, where there is little room
 */

/**
 * Makes a table.
 * @param {string} caption
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {{sort?: string, onSort?: (by: string) => void, isSelected?: (row: any) => boolean}} [o]
 */
export function makeTable(caption, columns, rows, o) {
  const options = o || {};
  if (matchMedia("(max-width: 760px)").matches) { // the name first: the figures beside it may be out of sight
    const name = columns.find((c) => !c.num);
    const rank = (/** @type {Column} */ c) => (c === name ? 0 : c.first ? 1 : 2);
    columns = columns.toSorted((a, b) => rank(a) - rank(b));
  }
  const head = el("tr", null, columns.map((c) => {
    const th = el("th", { scope: "col", class: c.num ? "num" : "", title: c.hint });
    const by = c.sort;
    if (by && options.onSort) {
      if (by === options.sort) th.setAttribute("aria-sort", "descending");
      add(th, button(c.title, () => /** @type {any} */ (options.onSort)(by)));
    } else {
      add(th, c.title);
    }
    return th;
  }));
  const body = el("tbody", null);
  const table = el("table", null, el("caption", { class: "sr" }, caption), el("thead", null, head), body);
  const append = (/** @type {any[]} */ more) => {
    for (const row of more) {
      const tr = el("tr", options.isSelected && options.isSelected(row) ? { "aria-selected": "true" } : null);
      for (const c of columns) {
        const td = el("td", { class: [c.num ? "num" : "text", c.part ? "bar" : "", c.class || ""].filter(Boolean).join(" ") }, c.cell(row));
        if (c.part) td.style.setProperty("--part", Math.min(100, Math.abs(100 * c.part(row))) + "%");
        add(tr, td);
      }
      add(body, tr);
    }
  };
  append(rows);
  body.addEventListener("click", openRow);
  return { table, append };
}

/**
 * Columns of a value and its share, and with a base those of the change.
 * @param {string} title
 * @param {string} key     flat or cum
 * @param {{unit: string, total: number, baseTotal: number, scale: number}} of
 * @param {string} hint
 * @returns {Column[]}
 */
export function valueColumns(title, key, of, hint) {
  const before = "base" + key[0].toUpperCase() + key.slice(1);
  const value = { title, sort: key, num: true, hint };
  const part = (/** @type {any} */ r) => r[key] / (of.total || 1);
  if (!info().base) {
    return [{ ...value, cell: (r) => quantity(r[key], of.unit) }, { title: "%", num: true, cell: (r) => percent(r[key], of.total), part }];
  }
  return [
    { ...value, cell: (r) => el("span", { title: percent(r[key], of.total) }, quantity(r[key], of.unit)), part },
    { title: title + " before", num: true, hint: "as it was", cell: (r) => el("span", { title: percent(r[before] || 0, of.baseTotal) }, quantity(r[before] || 0, of.unit)) },
    {
      title: "change", sort: key === "flat" ? "change" : "", num: true, first: key === "flat", hint: of.scale === 1 ? "values as they are" : "after the totals were made equal",
      cell: (r) => change(r[key] - (r[before] || 0) * of.scale, of.unit),
    },
  ];
}

/**
 * @param {number} by
 * @param {string} unit
 */
export function change(by, unit) {
  const n = Math.round(by);
  return el("span", { class: n > 0 ? "more" : n < 0 ? "less" : "" }, difference(n, unit));
}

/**
 * A click on a row, and not on a button in it, opens what its name does.
 * @param {MouseEvent} e
 */
function openRow(e) {
  const at = /** @type {Element} */ (e.target);
  if (at.closest("button, a") || String(getSelection())) return; // text that was selected is to be copied
  /** @type {HTMLElement | null | undefined} */ (at.closest("tr")?.querySelector("button.linklike"))?.click();
}

/**
 * A place for a table that is sent in pages.
 * @param {Element} place
 * @param {{table: HTMLElement, append: (rows: any[]) => void}} t
 * @param {number} shown
 * @param {number} count
 * @param {(offset: number) => Promise<any[]>} next
 */
export function withMore(place, t, shown, count, next) {
  add(place, t.table);
  if (shown >= count) return;
  const more = el("p", null);
  const draw = () => fill(more, shown < count ? button("Show more", load) : null, " " + grouped(shown) + " of " + grouped(count));
  const load = async () => {
    const rows = await next(shown);
    t.append(rows);
    shown += rows.length;
    draw();
  };
  draw();
  add(place, more);
}
