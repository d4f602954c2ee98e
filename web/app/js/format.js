// Values with their units, for people.

/**
 * Writes a value with its unit: "1.38 s", "12.3 MiB", "1,234".
 * @param {number} value
 * @param {string} unit of pprof: nanoseconds, bytes, count …
 */
export function quantity(value, unit) {
  const scale = scales[unit];
  if (!scale) return grouped(value) + (unit && unit !== "count" ? " " + unit : "");
  const size = Math.abs(value);
  let [name, factor] = scale[0];
  for (const [n, f] of scale) {
    if (size >= (n === "min" ? 10 * f : 0.9995 * f)) [name, factor] = [n, f]; // 103 s and no 1.72 min, beside 4.01 s; 1.00 s and no 1,000 ms
  }
  return digits(value / factor) + " " + name;
}

/** @type {Record<string, [string, number][]>} */
const scales = {
  nanoseconds: [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 60e9], ["h", 3600e9]],
  microseconds: [["µs", 1], ["ms", 1e3], ["s", 1e6], ["min", 60e6], ["h", 3600e6]],
  milliseconds: [["ms", 1], ["s", 1e3], ["min", 60e3], ["h", 3600e3]],
  seconds: [["s", 1], ["min", 60], ["h", 3600]],
  bytes: [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]],
};

/**
 * Three digits that count.
 * @param {number} n
 */
function digits(n) {
  const size = Math.abs(n);
  if (n === Math.round(n) && size < 1e6) return grouped(n);
  if (size >= 100) return grouped(Math.round(n));
  return n.toFixed(size >= 10 ? 1 : 2);
}

/**
 * Round places on an axis, in the unit that suits its end.
 * @param {number} length  nanoseconds
 * @returns {{at: number, text: string}[]}
 */
export function ticks(length) {
  if (!(length > 0)) return [];
  const [name, factor] = scales.nanoseconds.filter(([n, f]) => n !== "min" && n !== "h" && length >= f).pop() || scales.nanoseconds[0];
  const rough = length / factor / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((n) => n * power >= rough) || 10);
  const list = [];
  for (let n = 0; n * step * factor <= length; n++) {
    list.push({ at: n * step * factor, text: n ? grouped(+(n * step).toPrecision(6)) + " " + name : "0" });
  }
  return list;
}

/**
 * Thousands in groups.
 * @param {number} n
 */
export function grouped(n) {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/**
 * The share of a whole: "84.1%", as 'hallmark report' writes it.
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  if (!whole) return part ? "?" : "0%";
  const p = 100 * part / whole;
  if (p === 0) return "0%";
  if (part === whole) return "100%";
  const size = Math.abs(p);
  if (size < 0.01) return p > 0 ? "<0.01%" : ">−0.01%";
  if (size < 1) return sign(p) + size.toFixed(2) + "%";
  if (size >= 99.95 && size < 100) return sign(p) + "99.9%";
  return sign(p) + size.toFixed(1) + "%";
}

/** @param {number} n */
function sign(n) {
  return n < 0 ? "−" : "";
}

/**
 * A difference with its sign.
 * @param {number} value
 * @param {string} unit
 */
export function difference(value, unit) {
  if (value === 0) return "0";
  return (value > 0 ? "+" : "−") + quantity(Math.abs(value), unit);
}

/**
 * A count of things: "1 frame", "2,000 frames".
 * @param {number} n
 * @param {string} thing
 */
export function plural(n, thing) {
  return grouped(n) + " " + thing + (n === 1 ? "" : "s");
}

/**
 * The beginning of an identity, which is what people compare.
 * @param {string} id
 */
export function shortID(id) {
  const at = id.indexOf(":") + 1;
  return id.length - at > 14 ? id.slice(0, at + 12) + "…" : id;
}

/**
 * The last part of a path.
 * @param {string} path
 */
export function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}
