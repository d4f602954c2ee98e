// The box beside the pointer. It is about what is under the pointer: with that it goes.

import { byID, fill } from "./dom.js";

/** @type {Element | null} */
let owner = null;

/**
 * @param {Element} of   what the pointer is over
 * @param {number} x
 * @param {number} y
 * @param {import("./dom.js").Child[]} content
 */
export function showTip(of, x, y, content) {
  const tip = byID("tip");
  owner = of;
  fill(tip, content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8));
  const top = y + 20 + box.height > innerHeight ? y - box.height - 10 : y + 20;
  tip.style.setProperty("left", left + "px");
  tip.style.setProperty("top", Math.max(4, top) + "px");
}

export function hideTip() {
  owner = null;
  byID("tip").hidden = true;
}

for (const what of ["keydown", "wheel", "scroll", "blur"]) addEventListener(what, hideTip, { capture: true, passive: true });
addEventListener("pointermove", (e) => {
  if (owner && e.target !== owner) hideTip();
}, true);
new MutationObserver(() => {
  if (owner && !owner.isConnected) hideTip(); // no event says that it is gone
}).observe(document.body, { childList: true, subtree: true });
