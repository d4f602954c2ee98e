// What is known of the profile, asked for once.

import { selection, state } from "./state.js";

/**
 * @typedef {object} SampleType
 * @property {string} type
 * @property {string} name   by which a question names it
 * @property {string} unit
 */

/**
 * @typedef {object} LabelKey
 * @property {string} key
 * @property {number} values
 */

/**
 * @typedef {object} Info
 * @property {string} title
 * @property {string} base      title of the profile that it is compared with, empty for none
 * @property {SampleType[]} types
 * @property {number} type      index of the default sample type
 * @property {string} time      when it began, as in RFC 3339; empty where not known
 * @property {number} duration  nanoseconds, 0 where not known
 * @property {number} [baseDuration]
 * @property {string[]} notes
 * @property {LabelKey[]} labels
 * @property {number} [moreLabels] that are not in this file
 * @property {boolean} times    whether it has the time of each sample
 * @property {boolean} texts    whether sources can be shown
 * @property {boolean} code     whether instructions can be shown
 * @property {boolean} download whether the profile can be had
 * @property {number} stacks    distinct stacks
 * @property {string} [version] of the numbers of functions and binaries, where they may change
 */

/** @type {Info} */
let known;

/** @param {Info} i */
export function setInfo(i) {
  known = i;
}

/** @returns {Info} */
export function info() {
  return known;
}

/**
 * The type of samples that is shown.
 * @param {string} name   of a question, empty for the profile's default
 * @returns {SampleType | undefined}
 */
export function typeOf(name) {
  return known.types.find((t) => t.name === name) || known.types[known.type];
}

/** The unit of what is shown. */
export function unitOf(/** @type {string} */ name) {
  return typeOf(name)?.unit || "count";
}

/** Why there is nothing to show. */
export function emptyText() {
  const s = state();
  if (!known.stacks) return "The profile is empty: it has no samples.";
  if (selection({ ...s, type: "" }).toString()) return "There is nothing to show: no sample passes the filters.";
  return "There is nothing to show: no sample has a value of " + (typeOf(s.type)?.type || "this type") + ".";
}
