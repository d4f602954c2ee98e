// A file of its own has its answers in it. What depends on what is typed is made of its trees.

import { Tree } from "./tree.js";

/** @type {Map<string, Tree>} */
const trees = new Map();

/**
 * Answers a question from a file's answers; undefined if there is none.
 * @param {Record<string, any>} answers
 * @param {string} name
 * @param {URLSearchParams} params
 */
export function answerFrom(answers, name, params) {
  if (name === "search") return search(treeFrom(answers, "tree"), tables(answers), params.get("q") || "");
  const query = params.toString();
  return answers[name + (query ? "?" + query : "")];
}

/**
 * The tree of a question.
 * @param {Record<string, any>} answers
 * @param {string} key
 * @returns {Tree | undefined}
 */
export function treeFrom(answers, key) {
  const known = trees.get(key);
  if (known || answers[key] === undefined) return known;
  const text = atob(answers[key]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const tree = new Tree(bytes.buffer);
  trees.set(key, tree);
  return tree;
}

/**
 * @typedef {object} Tables
 * @property {Map<number, Row>} functions  by number
 * @property {boolean} all                 no function is left out
 * @property {Map<number, string>} paths   of binaries, by number
 */

/** @typedef {{frame: number, name: string, bin: number, file?: string, source?: string, cum: number}} Row */

/** @type {Tables | null} */
let known = null;

/**
 * The functions that this file has, of the tables in all their orders.
 * @param {Record<string, any>} answers
 * @returns {Tables}
 */
function tables(answers) {
  if (known) return known;
  /** @type {Map<number, Row>} */
  const functions = new Map();
  let count = 0;
  for (const sort of ["flat", "cum", "name"]) {
    const table = answers["functions?sort=" + sort] || { rows: [], count: 0 };
    for (const r of table.rows) functions.set(r.frame, r);
    count = Math.max(count, table.count);
  }
  const paths = new Map((answers.binaries || { rows: [] }).rows.map((/** @type {any} */ b) => [b.binary, b.file]));
  known = { functions, all: functions.size >= count, paths };
  return known;
}

/**
 * What a pattern matches, as on the server: the text itself too, since names have signs of regular expressions.
 * @param {string} pattern
 * @returns {(text: string) => boolean}
 */
function matcher(pattern) {
  const [, flags, rest] = /^(?:\(\?([ims]+)\))?(.*)$/s.exec(pattern) || [];
  try {
    const re = new RegExp(rest, flags || "");
    return (text) => re.test(text) || text.includes(pattern);
  } catch {
    return (text) => text.includes(pattern);
  }
}

/**
 * Finds the functions that match, and the value of the stacks with any of them. A large profile has more functions and
 * stacks than its file: then both are what it is at least.
 * @param {Tree | undefined} tree
 * @param {Tables} t
 * @param {string} pattern
 */
function search(tree, t, pattern) {
  const matches = matcher(pattern);
  const found = { frames: /** @type {number[]} */ ([]), total: 0, base: 0, whole: 0, moreFrames: !t.all, more: false };
  if (!tree) return found;
  found.whole = tree.head.total;
  /** @type {Set<number>} */
  const ids = new Set();
  for (const f of tree.head.frames) {
    const binary = tree.head.binaries[f.bin];
    if (f.id >= 0 && (matches(f.name) || (binary !== undefined && matches(t.paths.get(binary.id) || binary.name)))) ids.add(f.id);
  }
  for (const [id, r] of t.functions) {
    if (matches(r.name) || matches(t.paths.get(r.bin) || r.file || "") || (r.source !== undefined && matches(r.source))) ids.add(id);
  }
  for (let i = 0; i < tree.n;) {
    if (ids.has(tree.frameOf(i).id)) {
      found.total += tree.value[i];
      i = tree.end[i];
    } else {
      i++;
    }
  }
  for (const id of ids) found.total = Math.max(found.total, t.functions.get(id)?.cum || 0);
  found.frames = [...ids];
  found.more = found.total !== found.whole && tree.head.left > 0 && (!t.all || ids.size > 1);
  return found;
}
