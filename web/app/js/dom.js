// Elements, made without markup: text that others chose stays text.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * Makes an element. Properties named on* are listeners; dataset and style take objects;
 * aria-*, role and what has a dash are attributes; all else are properties.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(e.dataset, value);
    else if (name === "class") e.className = value;
    else if (name === "style") for (const [k, v] of Object.entries(value)) e.style.setProperty(k, String(v));
    else if (name.includes("-") || name === "role" || name === "for" || name === "scope" || name === "list") e.setAttribute(name, value);
    else /** @type {any} */ (e)[name] = value;
  }
  add(e, ...children);
  return e;
}

/**
 * Adds children: text for what is no element.
 * @param {Element} e
 * @param {...(Child | Child[])} children
 */
export function add(e, ...children) {
  for (const c of children.flat()) {
    if (c === null || c === undefined || c === false) continue;
    e.append(c instanceof Node ? c : String(c));
  }
}

/**
 * Replaces the children of an element.
 * @param {Element} e
 * @param {...(Child | Child[])} children
 */
export function fill(e, ...children) {
  const back = focusIn(e);
  e.replaceChildren();
  add(e, ...children);
  back();
}

/**
 * Remembers which control has the focus. What it returns gives the focus to the control that is in its place, if it was
 * lost: by what it says, or else by its number.
 * @param {Element} e
 * @returns {() => void}
 */
export function focusIn(e) {
  const at = document.activeElement;
  if (!at || !e.contains(at)) return () => {};
  const controls = () => /** @type {HTMLElement[]} */ ([...e.querySelectorAll("button, select, a[href], summary")]);
  const says = (/** @type {Element} */ c) => c.tagName + (c.getAttribute("aria-label") || c.textContent);
  const [was, number] = [says(at), controls().indexOf(/** @type {HTMLElement} */ (at))];
  return () => {
    if (number < 0 || document.activeElement !== document.body) return;
    const all = controls();
    (all.find((c) => says(c) === was) || all[Math.min(number, all.length - 1)])?.focus({ preventScroll: true });
  };
}

/**
 * The element of an id, which the page has.
 * @param {string} id
 * @returns {any}
 */
export function byID(id) {
  const e = document.getElementById(id);
  if (!e) throw new Error("the page has no element " + id);
  return e;
}

/**
 * A name that others chose: its direction does not change that of the text around it.
 * @param {string} text
 * @param {string} [cls]
 */
export function nameText(text, cls) {
  return el("bdi", { class: cls ? "name " + cls : "name", title: text }, text);
}

/**
 * Shows a dialog. Its button to close it comes first, so that a long one opens at its beginning.
 * @param {string} title
 * @param {...(Child | Child[])} content
 */
export function showDialog(title, ...content) {
  const dialog = /** @type {HTMLDialogElement} */ (el("dialog", { "aria-labelledby": "dialog-title" },
    el("header", null, el("h2", { id: "dialog-title" }, title), button("Close", () => dialog.close(), { autofocus: true }))));
  add(dialog, ...content);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * What opens below a word, and closes again with Escape or with a click elsewhere.
 * @param {string} text
 * @param {...(Child | Child[])} content
 * @returns {{menu: HTMLDetailsElement, box: HTMLElement}}
 */
export function makeMenu(text, ...content) {
  const box = el("div", null, ...content);
  const menu = /** @type {HTMLDetailsElement} */ (el("details", { class: "menu" }, el("summary", null, text), box));
  menu.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || !menu.open) return;
    e.stopPropagation();
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
  return { menu, box };
}

document.addEventListener("pointerdown", (e) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(/** @type {Node} */ (e.target))) /** @type {HTMLDetailsElement} */ (menu).open = false;
  }
});

/**
 * A button.
 * @param {string} text
 * @param {(e: Event) => void} onclick
 * @param {Record<string, any>} [props]
 */
export function button(text, onclick, props) {
  return el("button", { type: "button", onclick, ...props }, text);
}
