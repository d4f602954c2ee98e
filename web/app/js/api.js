// Questions to the server, or to the answers that a file of its own has in it.

import { answerFrom, treeFrom } from "./fileanswers.js";
import { numbersVersion } from "./state.js";
import { Tree } from "./tree.js";

/** Answers that this file has in it: it was written by 'hallmark convert', and no server is asked. */
const embedded = readEmbedded();

export const isFile = embedded !== null;

/** @returns {Record<string, any> | null} */
function readEmbedded() {
  const data = document.getElementById("answers");
  return data && JSON.parse(data.textContent || "null");
}

/** An answer that is no success, in words for people. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} text
   */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/**
 * Asks for values.
 * @param {string} name
 * @param {URLSearchParams} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(name, params, signal) {
  if (embedded) return fromFile(name, params || new URLSearchParams());
  return (await request(name, params, signal)).json();
}

/**
 * Asks for a tree.
 * @param {string} name
 * @param {URLSearchParams} params
 * @param {AbortSignal} [signal]
 * @returns {Promise<Tree>}
 */
export async function askTree(name, params, signal) {
  if (embedded) {
    const query = params.toString();
    const tree = treeFrom(embedded, name + (query ? "?" + query : ""));
    if (!tree) throw noAnswer();
    return tree;
  }
  return new Tree(await (await request(name, params, signal)).arrayBuffer());
}

/**
 * @param {string} name
 * @param {URLSearchParams | undefined} params
 * @param {AbortSignal | undefined} signal
 */
async function request(name, params, signal) {
  const all = new URLSearchParams(params);
  if (numbersVersion()) all.set("v", numbersVersion());
  const query = all.toString();
  let response;
  try {
    response = await fetch("api/" + name + (query ? "?" + query : ""), { signal, credentials: "same-origin", redirect: "error" });
  } catch (e) {
    if (signal && signal.aborted) throw e;
    throw new Refusal(0, "The server does not answer. It ends with the command that started it.");
  }
  if (!response.ok) throw new Refusal(response.status, (await response.text()).trim() || "The server answers " + response.status);
  return response;
}

/**
 * @param {string} name
 * @param {URLSearchParams} params
 */
function fromFile(name, params) {
  let answer;
  try {
    answer = answerFrom(/** @type {any} */ (embedded), name, params);
  } catch (e) {
    throw new Refusal(400, /** @type {Error} */ (e).message);
  }
  if (answer === undefined) throw noAnswer();
  return answer;
}

function noAnswer() {
  return new Refusal(404, "This file has no answer to that: look at the profile with 'hallmark view'.");
}

/**
 * Runs one question of a kind at a time: a later one ends the one before it.
 * @returns {(f: (signal: AbortSignal) => Promise<void>) => Promise<void>}
 */
export function latest() {
  /** @type {AbortController | null} */
  let running = null;
  return async (f) => {
    if (running) running.abort();
    const mine = new AbortController();
    running = mine;
    try {
      await f(mine.signal);
    } catch (e) {
      if (!mine.signal.aborted) throw e;
    }
  };
}
