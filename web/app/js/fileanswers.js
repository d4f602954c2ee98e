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
  if (name === "search") return search(treeFrom(answers, "tree"), params.get("q") || "");
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
 * What a pattern matches, as on the server: the text itself too, since names have signs of regular expressions.
 * @param {string} pattern
 * @returns {(text: string) => boolean}
 */
function matcher(pattern) {
  try {
    const re = new RegExp(pattern);
    return (text) => re.test(text) || text.includes(pattern);
  } catch {
    return (text) => text.includes(pattern);
  }
}

/**
 * Finds the functions of a tree that match, and the value of the stacks with any of them: of those
 * that are in the tree.
 * @param {Tree | undefined} tree
 * @param {string} pattern
 */
function search(tree, pattern) {
  const matches = matcher(pattern);
  const found = { frames: /** @type {number[]} */ ([]), total: 0, base: 0, whole: 0 };
  if (!tree) return found;
  found.whole = tree.head.total;
  const match = tree.head.frames.map((f) => {
    const binary = tree.head.binaries[f.bin];
    return f.id >= 0 && (matches(f.name) || (binary !== undefined && matches(binary.name)));
  });
  found.frames = [...new Set(tree.head.frames.filter((_, i) => match[i]).map((f) => f.id))];
  for (let i = 0; i < tree.n;) {
    if (match[tree.frame[i]]) {
      found.total += tree.value[i];
      i = tree.end[i];
    } else {
      i++;
    }
  }
  return found;
}
