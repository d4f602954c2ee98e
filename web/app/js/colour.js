// Colours of frames. Text on each of them has a contrast of at least 4.5 to 1, in light and in
// dark, which a test of the pages checks.

/** @typedef {import("./tree.js").Tree} Tree */

/** Kinds of code, with their hue and saturation, and words for the legend. */
export const kinds = {
  kernel: { hue: 20, sat: 75, text: "kernel" },
  native: { hue: 45, sat: 80, text: "native" },
  go: { hue: 190, sat: 60, text: "Go" },
  interpreted: { hue: 100, sat: 50, text: "interpreted" },
  generated: { hue: 275, sat: 50, text: "generated" },
  unknown: { hue: 0, sat: 0, text: "no identity" },
  note: { hue: 330, sat: 65, text: "frames are missing" },
  label: { hue: 220, sat: 25, text: "label" },
};

/** @param {boolean} dark */
export function palette(dark) {
  const light = dark ? 24 : 74;
  return {
    dark,
    text: dark ? "#f4f4f6" : "#15161a",
    page: dark ? "#16171b" : "#ffffff",
    line: dark ? "#16171b" : "#ffffff",
    match: dark ? "#8a1f86" : "#f6a5f2",
    dim: dark ? "#2a2c33" : "#ececf0",
    dimText: dark ? "#a9abb5" : "#5c5f68",
    hatch: dark ? "#565963" : "#b9bcc6",
    outline: dark ? "#ffffff" : "#000000",
    /**
     * @param {number} hue
     * @param {number} sat
     * @param {number} shade -1 to 1
     */
    fill: (hue, sat, shade) => `hsl(${Math.round(hue)} ${Math.round(sat * (dark ? 0.75 : 1))}% ${Math.round((light + shade * (dark ? 2.5 : 4)) * 2) / 2}%)`,
    /**
     * Red for more, blue for less.
     * @param {number} change -1 to 1
     */
    change: (change) => {
      const strength = Math.min(1, Math.abs(change));
      const hue = change > 0 ? 5 : 220;
      return dark
        ? `hsl(${hue} ${Math.round(10 + 60 * strength)}% ${Math.round(26 + 8 * strength)}%)`
        : `hsl(${hue} ${Math.round(15 + 70 * strength)}% ${Math.round(90 - 18 * strength)}%)`;
    },
  };
}

/** @typedef {ReturnType<typeof palette>} Palette */

/**
 * A number that depends on a text alone.
 * @param {string} s
 */
export function hash(s) {
  let h = 2166136261;
  for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 16777619);
  return (h ^ h >>> 15) >>> 0;
}

/** The hue of a binary, by its identity or, without one, by its name. */
export function hueOf(/** @type {import("./tree.js").Binary | undefined} */ b) {
  return b ? hash(b.identity || b.name) % 360 : 0;
}

/**
 * Chooses the colour of each frame of a tree, and says how it does for nodes.
 * @param {Tree} tree
 * @param {string} by   kind, identity or change
 * @param {Palette} p
 * @returns {(node: number) => string}
 */
export function colours(tree, by, p) {
  if (by === "change" && tree.base) {
    const { value, base } = tree;
    return (i) => p.change(changeOf(value[i], base[i] * tree.head.scale));
  }
  const list = tree.head.frames.map((f) => {
    const shade = (hash(f.name) % 200) / 100 - 1;
    const binary = tree.head.binaries[f.bin];
    if (by === "identity" && binary) return binary.identity ? p.fill(hueOf(binary), 55, shade) : p.fill(0, 0, shade);
    const kind = kinds[/** @type {keyof typeof kinds} */ (f.kind)] || kinds.unknown;
    return p.fill(kind.hue + shade * 6, f.inlined ? kind.sat * 0.6 : kind.sat, shade + (f.inlined ? 1 : 0));
  });
  const { frame } = tree;
  return (i) => list[frame[i]];
}

/**
 * How much of two values changed, from -1 (gone) to 1 (new).
 * @param {number} now
 * @param {number} before
 */
export function changeOf(now, before) {
  const sum = Math.abs(now) + Math.abs(before);
  return sum ? (now - before) / sum : 0;
}
