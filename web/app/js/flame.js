// The flame graph on a canvas. The canvas is as large as what can be seen; a taller element
// around it makes room to scroll. Nothing that is narrower than a part of a pixel is drawn.

import { colours, kinds, palette } from "./colour.js";
import { endParts } from "./tree.js";

/** @typedef {import("./tree.js").Tree} Tree */

/**
 * @typedef {object} FlameOptions
 * @property {(node: number, at: {x: number, y: number}) => void} select  a node was chosen, -1 for none; and where it is in the window
 * @property {() => boolean} shows               whether what is known of the chosen node is shown
 * @property {(node: number) => void} zoom       a node shall fill the width
 * @property {(node: number, x: number, y: number) => void} hover   -1 for none
 * @property {(node: number) => void} detail     what can be seen has parts that were cut
 * @property {(node: number) => string} label
 */

const minWidth = 0.4; // pixels
const minEnd = 3; // of the widest place of missing callers
const minMark = 1.5; // of a place of frames that are narrower
const textWidth = 28; // pixels that a name needs
const charWidth = 6.65; // pixels at 11px of the monospaced font, measured below

export class FlameGraph {
  /**
   * @param {HTMLElement} scroller has the canvas and what makes room
   * @param {HTMLCanvasElement} canvas
   * @param {HTMLElement} room
   * @param {FlameOptions} options
   */
  constructor(scroller, canvas, room, options) {
    this.scroller = scroller;
    this.canvas = canvas;
    this.room = room;
    this.options = options;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    /** @type {Tree | null} */
    this.tree = null;
    this.up = false;
    this.by = "kind";
    this.selected = -1;
    /** @type {Uint8Array | null} whether each frame matches the search */
    this.matches = null;
    this.from = 0; // the part of the width that is shown, in values
    this.to = 1;
    this.row = 20;
    this.width = 0;
    this.height = 0;
    this.drawn = 0; // pictures, for tests and measurements
    this.boxes = 0; // of the last picture
    this.frameAsked = 0;
    /** @type {{depth: number, left: number, right: number} | null} a place of frames that are too narrow to be drawn */
    this.narrow = null;
    this.char = charWidth;
    this.palette = palette(false);
    /** @type {(node: number) => string} */
    this.colourOf = () => "";
    new ResizeObserver(() => this.resize()).observe(scroller);
    scroller.addEventListener("scroll", () => this.ask(), { passive: true });
    this.listen();
  }

  /** @param {boolean} dark */
  setTheme(dark) {
    this.palette = palette(dark);
    this.recolour();
  }

  /**
   * Shows a tree. The part of the width that is shown stays if keep is given.
   * @param {Tree} tree
   * @param {{keep?: boolean}} [o]
   */
  setTree(tree, o) {
    this.tree = tree;
    this.selected = -1;
    this.options.hover(-1, 0, 0); // another node may be under the pointer
    if (!o || !o.keep) {
      this.from = 0;
      this.to = tree.full || 1;
    }
    this.recolour();
    this.makeRoom();
    if (this.up) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.scroller.scrollTop = 0;
    this.ask();
  }

  /** Shows nothing. */
  clear() {
    this.tree = null;
    this.ask();
  }

  /** @param {string} by kind, identity, change */
  setColour(by) {
    this.by = by;
    this.recolour();
  }

  /** @param {boolean} up */
  setUp(up) {
    if (this.up === up) return;
    this.up = up;
    this.scroller.scrollTop = up ? this.scroller.scrollHeight : 0;
    this.ask();
  }

  recolour() {
    if (this.tree) this.colourOf = colours(this.tree, this.by, this.palette);
    this.ask();
  }

  /** @param {Uint8Array | null} matches */
  setMatches(matches) {
    this.matches = matches;
    this.ask();
  }

  makeRoom() {
    const rows = this.tree ? this.tree.depths + 1 + this.extra : 1;
    this.room.style.setProperty("height", rows * this.row + "px");
  }

  resize() {
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (width === 0 || height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.row = matchMedia("(pointer: coarse)").matches ? 26 : 20;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.setProperty("width", width + "px");
    this.canvas.style.setProperty("height", height + "px");
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.ctx.font = "11px ui-monospace, monospace";
    this.char = this.ctx.measureText("mmmmmmmmmm").width / 10 || charWidth;
    this.makeRoom();
    this.draw(); // at once: a canvas that changed its size is empty
  }

  ask() {
    if (!this.frameAsked) this.frameAsked = requestAnimationFrame(() => this.draw());
  }

  /** Rows above the outermost frames, for what is missing there. */
  get extra() {
    const tree = this.tree;
    return tree && tree.endDepth && tree.widestEnd / tree.full * this.width >= minEnd ? 1 : 0;
  }

  /** @returns {number} where a row is drawn, in pixels of the canvas */
  rowTop(/** @type {number} */ level) {
    const depth = this.tree && level >= this.tree.endDepth ? level + this.extra : level;
    const y = depth * this.row - this.scroller.scrollTop;
    if (!this.up) return y;
    const all = Math.max(this.room.clientHeight, this.height);
    return all - (depth + 1) * this.row - this.scroller.scrollTop;
  }

  draw() {
    if (this.frameAsked) cancelAnimationFrame(this.frameAsked);
    this.frameAsked = 0;
    const { ctx, tree, width, height } = this;
    const p = this.palette;
    if (!width) return;
    ctx.fillStyle = p.page;
    ctx.fillRect(0, 0, width, height);
    this.boxes = 0;
    if (!tree || !tree.n) return;
    const { x, end } = tree;
    const scale = width / (this.to - this.from);
    const textUp = this.row / 2 + 4;
    ctx.textBaseline = "alphabetic";
    for (let i = 0; i < tree.n;) {
      const w = tree.span(i) * scale;
      const left = (x[i] - this.from) * scale;
      if (w < minWidth || left > width || left + w < 0) {
        if (w < minWidth) this.leaveOut(tree.depth[i], left, w);
        i = end[i];
        continue;
      }
      const top = this.rowTop(tree.depth[i]);
      const above = top + this.row < 0;
      const below = top > height;
      if (this.up ? above : below) {
        i = end[i];
        continue;
      }
      if (!above && !below) this.box(i, left, top, w, textUp);
      i++;
    }
    this.markNarrow();
    this.drawn++;
  }

  /**
   * Notes a frame that is too narrow to be drawn. Those beside each other are marked together.
   * @param {number} depth
   * @param {number} left
   * @param {number} w
   */
  leaveOut(depth, left, w) {
    if (this.narrow && (this.narrow.depth !== depth || Math.abs(this.narrow.right - left) > 0.05)) this.markNarrow();
    this.narrow = { depth, left: this.narrow ? this.narrow.left : left, right: left + w };
  }

  /** Marks the place of frames that are too narrow to be drawn. */
  markNarrow() {
    const n = this.narrow;
    this.narrow = null;
    if (!n) return;
    const left = Math.max(n.left, 0);
    const right = Math.min(n.right, this.width);
    if (right - left >= minMark) this.hatch(left, this.rowTop(n.depth), right - left);
  }

  /**
   * Draws one frame.
   * @param {number} i
   * @param {number} left
   * @param {number} top
   * @param {number} w
   * @param {number} textUp
   */
  box(i, left, top, w, textUp) {
    const { ctx, row } = this;
    const p = this.palette;
    const tree = /** @type {Tree} */ (this.tree);
    const gap = w > 3 ? 1 : 0;
    const x0 = Math.max(left, -2);
    const x1 = Math.min(left + w, this.width + 2);
    const match = this.matches ? this.matches[tree.frame[i]] : 0;
    const dim = this.matches && !match;
    this.boxes++;
    ctx.fillStyle = match ? p.match : dim ? p.dim : this.colourOf(i);
    ctx.fillRect(x0, top, Math.max(x1 - x0 - gap, minWidth), row - 1);
    const frame = tree.frameOf(i);
    if (frame.kind === "note" && w > 6) this.hatch(x0, top, x1 - x0 - gap);
    if (frame.inlined && w > 8) {
      ctx.fillStyle = p.text;
      ctx.fillRect(x0 + 1, top + row - 3, Math.min(x1 - x0 - gap - 2, 10), 1);
    }
    if (this.extra && tree.depth[i] === tree.endDepth) this.endMark(i, left, top, w);
    if (tree.cut[i] && w > 6 && i >= tree.top) this.cutMark(i);
    if (i === this.selected) {
      ctx.strokeStyle = p.outline;
      ctx.lineWidth = 2;
      ctx.strokeRect(x0 + 1, top + 1, Math.max(x1 - x0 - gap - 2, 1), row - 3);
    }
    if (w < textWidth) return;
    const room = Math.floor((x1 - Math.max(x0, 0) - 8) / this.char);
    if (room < 2) return;
    const text = this.options.label(i);
    const shown = text.length <= room ? text : text.slice(0, room - 1) + "…";
    ctx.fillStyle = dim ? p.dimText : p.text;
    if (isNarrow(shown)) {
      ctx.fillText(shown, Math.max(x0, 0) + 4, top + textUp);
      return;
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(x0, top, x1 - x0 - gap, row);
    ctx.clip();
    ctx.fillText(shown, Math.max(x0, 0) + 4, top + textUp);
    ctx.restore();
  }

  /** Marks the place of callees that were left out: each of them is narrower than can be seen. */
  cutMark(/** @type {number} */ i) {
    const tree = /** @type {Tree} */ (this.tree);
    const scale = this.width / (this.to - this.from);
    let end = tree.x[i];
    for (const c of tree.children(i)) end += tree.width(c);
    const left = (end - this.from) * scale;
    const w = (tree.x[i] + tree.width(i) - tree.selfWidth(i) - end) * scale;
    if (w >= minMark) this.hatch(Math.max(left, 0), this.rowTop(tree.depth[i] + 1), Math.min(w, this.width - left));
  }

  /** Marks that callers of an outermost frame are missing, or may be, over their share of its width. */
  endMark(/** @type {number} */ i, /** @type {number} */ left, /** @type {number} */ top, /** @type {number} */ w) {
    const { ctx, row } = this;
    const p = this.palette;
    const tree = /** @type {Tree} */ (this.tree);
    const end = tree.ends.get(i);
    if (!end) return;
    const y = this.up ? top + row : top - row;
    let at = left;
    for (const part of endParts(end)) {
      const x0 = Math.max(at, 0);
      at = Math.min(at + w * part.value / tree.width(i), left + w);
      const x1 = Math.min(at, this.width);
      if (x1 - x0 < 1) continue;
      const kind = part.unsure ? kinds.unknown : kinds.note;
      ctx.fillStyle = p.fill(kind.hue, kind.sat, 0);
      ctx.fillRect(x0, y, x1 - x0, row - 1);
      const text = (part.unsure ? "completeness unknown: " : "callers missing: ") + part.reasons.map((r) => r.reason).join("; ");
      const fits = Math.floor((x1 - x0 - 8) / this.char);
      if (fits < 6) {
        this.hatch(x0, y, x1 - x0);
        continue;
      }
      ctx.fillStyle = p.text;
      ctx.fillText(text.length <= fits ? text : text.slice(0, fits - 1) + "…", x0 + 4, y + row / 2 + 4);
    }
  }

  hatch(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w) {
    const { ctx, row } = this;
    const p = this.palette;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, w, row - 1);
    ctx.clip();
    ctx.strokeStyle = p.hatch;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let at = x - row; at < x + w; at += 6) {
      ctx.moveTo(at, y + row);
      ctx.lineTo(at + row, y);
    }
    ctx.stroke();
    ctx.restore();
  }

  /**
   * The node at a place of the canvas, -1 for none.
   * @param {number} px
   * @param {number} py
   */
  at(px, py) {
    const tree = this.tree;
    if (!tree || !tree.n) return -1;
    const value = this.from + px * (this.to - this.from) / this.width;
    let node = 0;
    for (;;) {
      const top = this.rowTop(tree.depth[node]);
      if (py >= top && py < top + this.row) return node;
      if (this.extra && tree.depth[node] === tree.endDepth && tree.ends.has(node)) {
        const mark = this.up ? top + this.row : top - this.row;
        if (py >= mark && py < mark + this.row) return node;
      }
      let found = -1;
      for (const c of tree.children(node)) {
        const x = tree.x[c];
        if (value >= x && value < x + tree.span(c)) {
          found = c;
          break;
        }
      }
      if (found < 0) return -1;
      node = found;
    }
  }

  /**
   * Chooses a node. With the pointer nothing moves, as the next click may be the second of two; else its row comes in
   * sight.
   * @param {number} node -1 for none
   * @param {{x: number, y: number}} [at] where the pointer is
   */
  select(node, at) {
    this.selected = node;
    if (node >= 0 && this.tree && !at) {
      const top = this.rowTop(this.tree.depth[node]);
      if (top < 0) this.scroller.scrollTop += top - this.row;
      else if (top + this.row > this.height) this.scroller.scrollTop += top + 2 * this.row - this.height;
      const x = this.tree.x[node];
      const w = this.tree.span(node);
      const part = this.to - this.from;
      if (x >= this.to || x + w <= this.from) {
        this.from = Math.max(0, Math.min(x + w / 2 - part / 2, this.tree.full - part));
        this.to = this.from + part;
      }
    }
    this.options.select(node, at || this.placeOf(node));
    this.ask();
  }

  /** Where the name of a node is in the window. */
  placeOf(/** @type {number} */ node) {
    const box = this.canvas.getBoundingClientRect();
    if (!this.tree || node < 0) return { x: box.left, y: box.top };
    const left = (this.tree.x[node] - this.from) * this.width / (this.to - this.from);
    return { x: box.left + Math.max(left, 0), y: box.top + this.rowTop(this.tree.depth[node]) };
  }

  /**
   * Moves to a part of the width, in a fifth of a second if the user wants to see motion.
   * @param {number} from
   * @param {number} to
   * @param {() => void} [then]
   */
  moveTo(from, to, then) {
    const start = performance.now();
    const [a, b] = [this.from, this.to];
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const step = (/** @type {number} */ now) => {
      const t = still ? 1 : Math.max(0, Math.min(1, (now - start) / 180));
      const eased = 1 - (1 - t) ** 3;
      this.from = a + (from - a) * eased;
      this.to = b + (to - b) * eased;
      this.draw();
      if (t < 1) requestAnimationFrame(step);
      else if (then) then();
    };
    requestAnimationFrame(step);
  }

  /** Moves until a node fills the width. */
  zoomTo(/** @type {number} */ node, /** @type {() => void} */ then) {
    const tree = /** @type {Tree} */ (this.tree);
    const x = tree.x[node];
    this.moveTo(x, x + tree.span(node), then);
  }

  /**
   * Widens a part of the width around a place.
   * @param {number} factor
   * @param {number} px
   */
  scaleAt(factor, px) {
    if (!this.tree) return;
    const full = this.tree.full;
    const part = Math.min(full, Math.max((this.to - this.from) * factor, full / 1e5));
    const fixed = this.from + px / this.width * (this.to - this.from);
    this.from = Math.max(0, Math.min(fixed - px / this.width * part, full - part));
    this.to = this.from + part;
    this.ask();
    this.wantDetail();
  }

  /** Moves sideways, by pixels. */
  pan(/** @type {number} */ px) {
    if (!this.tree) return;
    const part = this.to - this.from;
    this.from = Math.max(0, Math.min(this.from + px * part / this.width, this.tree.full - part));
    this.to = this.from + part;
    this.ask();
  }

  /** Asks for the part that is shown, if that is far narrower than what was cut for. */
  wantDetail() {
    clearTimeout(this.detailTimer);
    this.detailTimer = setTimeout(() => {
      const tree = this.tree;
      if (!tree || (this.to - this.from) * 1.5 > tree.full) return;
      let node = tree.top;
      for (;;) {
        let inside = -1;
        for (const c of tree.children(node)) {
          const x = tree.x[c];
          if (x <= this.from && x + tree.span(c) >= this.to) inside = c;
        }
        if (inside < 0) break;
        node = inside;
      }
      if (node > tree.top) this.options.detail(node);
    }, 250);
  }

  listen() {
    const { canvas, scroller, options } = this;
    /** @type {{x: number, moved: boolean} | null} */
    let press = null;
    const place = (/** @type {MouseEvent} */ e) => {
      const box = canvas.getBoundingClientRect();
      return { x: e.clientX - box.left, y: e.clientY - box.top };
    };
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button === 0 && e.pointerType === "mouse") press = { x: e.clientX, moved: false };
    });
    window.addEventListener("pointerup", () => setTimeout(() => { press = null; }, 0));
    canvas.addEventListener("pointermove", (e) => {
      const at = place(e);
      if (press) {
        const by = press.x - e.clientX;
        if (Math.abs(by) > 3 || press.moved) {
          press.moved = true;
          this.pan(by);
          press.x = e.clientX;
        }
        return;
      }
      if (e.pointerType === "mouse") options.hover(this.at(at.x, at.y), e.clientX, e.clientY);
    });
    canvas.addEventListener("pointerleave", () => options.hover(-1, 0, 0));
    canvas.addEventListener("click", (e) => {
      if (press && press.moved || e.detail > 1) return;
      const at = place(e);
      const node = this.at(at.x, at.y);
      const again = node >= 0 && node === this.selected && options.shows() && performance.now() - (this.selectedAt || 0) > 500;
      this.selectedAt = performance.now();
      if (again) options.zoom(node);
      else this.select(node, { x: e.clientX, y: e.clientY });
    });
    canvas.addEventListener("dblclick", () => {
      if (this.selected >= 0) options.zoom(this.selected); // what the first click chose
    });
    scroller.addEventListener("wheel", (e) => {
      if (e.ctrlKey || e.metaKey) {
        e.preventDefault();
        this.scaleAt(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 200))), place(e).x);
      } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
        e.preventDefault();
        this.pan(e.deltaX || e.deltaY);
      }
    }, { passive: false });
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  /** Moves by keys, as in a tree: down is to callees. */
  key(/** @type {KeyboardEvent} */ e) {
    const tree = this.tree;
    if (!tree || !tree.n || e.ctrlKey || e.altKey || e.metaKey) return;
    const at = Math.max(this.selected, 0);
    const deeper = this.up ? "ArrowUp" : "ArrowDown";
    const back = this.up ? "ArrowDown" : "ArrowUp";
    let next = at;
    switch (e.key) {
      case deeper: next = this.selected < 0 ? tree.top : widest(tree, at); break;
      case back: next = at > 0 ? tree.parent[at] : at; break;
      case "ArrowLeft": next = sibling(tree, at, -1); break;
      case "ArrowRight": next = sibling(tree, at, 1); break;
      case "Home": next = tree.top; break;
      case "Enter": case " ": if (this.selected >= 0) this.options.zoom(this.selected); e.preventDefault(); return;
      case "+": case "=": this.scaleAt(0.7, this.width / 2); e.preventDefault(); return;
      case "-": this.scaleAt(1.4, this.width / 2); e.preventDefault(); return;
      default: return;
    }
    e.preventDefault();
    this.select(next);
  }
}

/**
 * The widest child of a node, or the node itself.
 * @param {Tree} tree
 * @param {number} node
 */
function widest(tree, node) {
  let best = node;
  let width = 0;
  for (const c of tree.children(node)) {
    if (tree.width(c) > width) [best, width] = [c, tree.width(c)];
  }
  return best;
}

/**
 * The node beside one, or the node itself.
 * @param {Tree} tree
 * @param {number} node
 * @param {number} by
 */
function sibling(tree, node, by) {
  const parent = tree.parent[node];
  if (parent < 0) return node;
  const all = [...tree.children(parent)];
  return all[all.indexOf(node) + by] ?? node;
}

/** Whether each character of a text takes the place of one. */
function isNarrow(/** @type {string} */ text) {
  for (let i = 0; i < text.length; i++) {
    if (text.charCodeAt(i) > 0x24f && text[i] !== "…") return false;
  }
  return true;
}
