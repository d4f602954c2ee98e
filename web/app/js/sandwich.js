// Callers and callees of one function, over all stacks that it is in.

import { add, el, fill } from "./dom.js";
import { FlamePane } from "./flameview.js";
import { percent, quantity } from "./format.js";
import { selectsOther, state } from "./state.js";
import { isDark } from "./theme.js";

/** @typedef {import("./state.js").State} State */

export class SandwichView {
  /**
   * @param {Element} place
   * @param {import("./flameview.js").Select} select
   */
  constructor(place, select) {
    this.above = el("h2", null, "Callers");
    this.below = el("h2", null, "Callees");
    const box = el("div", { class: "sandwich" });
    const half = () => el("div", { class: "sandwich" });
    const [upper, lower] = [half(), half()];
    add(upper, this.above);
    add(lower, this.below);
    add(box, upper, lower);
    add(place, box);
    this.callers = new FlamePane(upper, { kind: "callers", select });
    this.callees = new FlamePane(lower, { kind: "callees", select });
  }

  /** @param {State} s */
  async show(s) {
    const colour = s.colour || "kind";
    for (const pane of [this.callers, this.callees]) pane.graph.setColour(colour);
    this.callers.graph.setUp(true);
    await Promise.all([this.callers.load(s), this.callees.load(s)]);
    const t = this.callees.tree;
    if (!t || !t.n) return;
    const name = t.frameOf(0).name;
    const value = quantity(t.value[0], t.head.unit) + ", " + percent(t.value[0], t.head.total);
    fill(this.above, "Callers of ", el("bdi", null, name));
    fill(this.below, "Callees of ", el("bdi", null, name), " (" + value + ")");
  }

  /**
   * @param {State} s
   * @param {State} before
   */
  update(s, before) {
    if (selectsOther(s, before) || s.fn !== before.fn || s.colour !== before.colour) return this.show(s);
    return Promise.resolve();
  }

  found() {
    this.callers.mark();
    this.callees.mark();
  }

  theme() {
    this.callers.graph.setTheme(isDark());
    this.callees.graph.setTheme(isDark());
    return this.show(state());
  }
}
