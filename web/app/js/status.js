// The line at the bottom, which screen readers read out.

import { byID, el, fill } from "./dom.js";

/** @param {string} text */
export function say(text) {
  const status = byID("status");
  if (status.textContent !== text) status.textContent = text;
}

/**
 * Shows in a place why there is nothing to show.
 * @param {Element} place
 * @param {unknown} error
 */
export function showError(place, error) {
  const text = error instanceof Error ? error.message : String(error);
  fill(place, el("p", { class: "error", role: "alert" }, text));
}
