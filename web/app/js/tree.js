// A tree of frames as the server cuts it: what is too narrow to be seen is left out, and its
// place is known.

/**
 * @typedef {object} Frame   a function as it is shown
 * @property {number} id     number of the function in the profile
 * @property {string} name
 * @property {string} [label]  whose value the name is: it is no function then
 * @property {string} kind   kernel, native, go, interpreted, generated, unknown, note
 * @property {number} bin    number of the binary in the answer, -1 for none
 * @property {boolean} [inlined]
 * @property {boolean} [unnamed]
 * @property {string} [why]  the reason why it has no name, or why frames are missing
 */

/**
 * @typedef {object} Binary
 * @property {number} id
 * @property {string} name   last part of the path
 * @property {string} [identity]
 */

/**
 * @typedef {object} TreeHead
 * @property {number} nodes
 * @property {boolean} diff
 * @property {boolean} [signed]  values have signs: what they add up to is no width
 * @property {number} chain     so many nodes at the start lead to the one that fills the width
 * @property {Frame[]} frames
 * @property {Binary[]} binaries
 * @property {string} unit
 * @property {number} total     value of the whole selection
 * @property {number} baseTotal value of the base's, if there is one
 * @property {number} scale     by what values of the base are multiplied
 * @property {number} left      nodes that were left out
 * @property {[number, number][]} [folded] nodes, and how many calls of themselves are in them
 * @property {End[]} [ends]     outermost frames of stacks that have callers which are missing
 */

/**
 * @typedef {object} End
 * @property {number} node
 * @property {number} value
 * @property {EndReason[]} reasons
 */

/**
 * @typedef {object} EndReason
 * @property {string} reason
 * @property {string} [advice]
 * @property {number} value
 * @property {boolean} [unsure]  nobody knows whether callers are missing
 */

/**
 * What is known of the callers of an outermost frame, and for what value: those of one part are missing, and of another
 * part nobody knows.
 * @param {End} end
 * @returns {{unsure: boolean, value: number, reasons: EndReason[]}[]}
 */
export function endParts(end) {
  return [false, true].map((unsure) => {
    const reasons = end.reasons.filter((r) => Boolean(r.unsure) === unsure);
    return { unsure, reasons, value: reasons.reduce((sum, r) => sum + r.value, 0) };
  }).filter((part) => part.reasons.length);
}

const magic = 0x31544d48; // "HMT1"

export class Tree {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < 8 || view.getUint32(0, true) !== magic) throw new Error("the server's answer is no tree");
    const length = view.getUint32(4, true);
    /** @type {TreeHead} */
    this.head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    this.n = this.head.nodes;
    let at = 8 + length;
    at += (8 - at % 8) % 8;
    const doubles = () => {
      const a = new Float64Array(buffer, at, this.n);
      at += 8 * this.n;
      return a;
    };
    /** Values with callees, in preorder. */
    this.value = doubles();
    this.self = doubles();
    this.base = this.head.diff ? doubles() : null;
    this.baseSelf = this.head.diff ? doubles() : null;
    this.size = this.head.signed ? doubles() : null;
    this.selfSize = this.head.signed ? doubles() : null;
    this.frame = new Uint32Array(buffer, at, this.n);
    at += 4 * this.n;
    this.depth = new Uint32Array(buffer, at, this.n);
    /** @type {Map<number, End>} */
    this.ends = new Map((this.head.ends || []).map((e) => [e.node, e]));
    this.folded = new Map(this.head.folded || []);
    this.parent = new Int32Array(this.n);
    this.end = new Int32Array(this.n); // behind the subtree of a node
    this.x = new Float64Array(this.n); // where a node begins, in values
    this.cut = new Uint8Array(this.n); // whether callees of a node were left out
    this.depths = 0;
    /** The depth of the outermost frames, 0 if none has an end: with a split they are below its values. */
    this.endDepth = this.head.ends && this.head.ends.length ? this.depth[this.head.ends[0].node] : 0;
    this.widestEnd = Math.max(0, ...(this.head.ends || []).map((e) => e.value));
    this.layOut();
  }

  /**
   * The width of a node: in a difference that of both profiles together, so that what is gone is
   * seen too.
   * @param {number} i
   */
  width(i) {
    if (this.size) return this.size[i];
    return this.base ? this.value[i] + this.base[i] * this.head.scale : this.value[i];
  }

  /**
   * The width of a node's own part.
   * @param {number} i
   */
  selfWidth(i) {
    if (this.selfSize) return this.selfSize[i];
    return this.baseSelf ? this.self[i] + this.baseSelf[i] * this.head.scale : this.self[i];
  }

  /** Finds parents, ends of subtrees, and places from left to right. */
  layOut() {
    const n = this.n;
    const cursor = new Float64Array(n);
    /** @type {number[]} */
    const open = [];
    for (let i = 0; i < n; i++) {
      const d = this.depth[i];
      this.depths = Math.max(this.depths, d + 1);
      while (open.length > d) this.end[/** @type {number} */ (open.pop())] = i;
      const p = d > 0 ? open[d - 1] : -1;
      this.parent[i] = p;
      if (i < this.head.chain) {
        this.x[i] = 0;
      } else {
        this.x[i] = p < 0 ? 0 : cursor[p];
        if (p >= 0) cursor[p] += this.width(i);
      }
      cursor[i] = this.x[i];
      open.push(i);
    }
    while (open.length) this.end[/** @type {number} */ (open.pop())] = n;
    for (let i = 0; i < n; i++) {
      const shown = cursor[i] - this.x[i] + this.selfWidth(i);
      if (i >= this.head.chain - 1 && this.width(i) - shown > 1e-9 * this.width(i)) this.cut[i] = 1;
    }
  }

  /** The node that fills the width. */
  get top() {
    return Math.max(0, this.head.chain - 1);
  }

  /** What fills the width. */
  get full() {
    return this.n ? this.width(this.top) : 0;
  }

  /**
   * How wide a node is drawn.
   * @param {number} i
   */
  span(i) {
    return i < this.head.chain ? this.full : this.width(i);
  }

  /**
   * @param {number} i
   * @returns {Frame}
   */
  frameOf(i) {
    return this.head.frames[this.frame[i]];
  }

  /**
   * The binary of a node, if it has one.
   * @param {number} i
   * @returns {Binary | undefined}
   */
  binaryOf(i) {
    return this.head.binaries[this.frameOf(i).bin];
  }

  /**
   * The path of a node, by the functions' numbers: what the server finds it by.
   * @param {number} i
   */
  path(i) {
    const words = [];
    for (; i > 0; i = this.parent[i]) words.push(this.frameOf(i).id);
    return words.reverse().join(".");
  }

  /**
   * The children of a node.
   * @param {number} i
   */
  *children(i) {
    for (let c = i + 1; c < this.end[i]; c = this.end[c]) yield c;
  }
}
