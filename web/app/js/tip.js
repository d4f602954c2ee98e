// The box beside the pointer.

import { byID, fill } from "./dom.js";

/**
 * @param {number} x
 * @param {number} y
 * @param {import("./dom.js").Child[]} content
 */
export function showTip(x, y, content) {
  const tip = byID("tip");
  fill(tip, content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8));
  const top = y + 20 + box.height > innerHeight ? y - box.height - 10 : y + 20;
  tip.style.setProperty("left", left + "px");
  tip.style.setProperty("top", Math.max(4, top) + "px");
}

export function hideTip() {
  byID("tip").hidden = true;
}
