// JSON that keeps its numbers: a number that JavaScript would round is kept as it was written.
import { h } from "./vendor/preact.mjs";
import { useState } from "./vendor/hooks.mjs";
import { Text, text } from "./text.js";

/** A number as it was written, where JavaScript's own would differ. */
export class ExactNumber {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }
}

/** Whether this browser can read and write numbers without rounding; without it nothing is edited. */
export const isExact = (() => {
  try {
    let source = "";
    JSON.parse("12345678901234567890", (_, value, context) => ((source = context?.source ?? ""), value));
    return source === "12345678901234567890" && typeof (/** @type {any} */ (JSON).rawJSON) === "function";
  } catch {
    return false;
  }
})();

/** @param {string} source */
export function parse(source) {
  return JSON.parse(source, (_, value, context) => {
    if (typeof value !== "number" || !context || String(value) === context.source) return value;
    return new ExactNumber(context.source);
  });
}

/** @param {unknown} value @param {number} [indent] */
export function print(value, indent) {
  const raw = (_, given) => (given instanceof ExactNumber ? /** @type {any} */ (JSON).rawJSON(given.source) : given);
  return JSON.stringify(value, raw, indent);
}

/** The value at a JSON pointer; undefined if there is none. */
export function at(value, pointer) {
  let found = value;
  for (const part of pointer.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    found = found !== null && typeof found === "object" && Object.hasOwn(found, key) ? found[key] : undefined;
  }
  return found;
}

const OPEN_DEPTH = 2;
const CHILDREN_MAX = 200;

/** A value as a tree that folds. */
export function Json({ value, depth = 0, name = undefined }) {
  const isBranch = value !== null && typeof value === "object" && !(value instanceof ExactNumber);
  const keys = isBranch ? Object.keys(value) : [];
  const [open, setOpen] = useState(depth < OPEN_DEPTH && keys.length <= 40);
  const [most, setMost] = useState(CHILDREN_MAX);
  const label = name === undefined ? null : [h("span", { class: "json-key" }, text(String(name))), ": "];
  if (!isBranch) return h("div", { class: "json" }, label, h(Scalar, { value }));
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (keys.length === 0) return h("div", { class: "json" }, label, left + right);
  const toggle = h(
    "button",
    { class: "fold", "aria-expanded": open, onClick: () => setOpen(!open) },
    open ? "▾ " : "▸ ",
    label ?? "",
    open ? left : `${left} ${keys.length} ${right}`,
  );
  if (!open) return h("div", { class: "json" }, toggle);
  const children = keys.slice(0, most).map((key) => h(Json, { key, value: value[key], name: key, depth: depth + 1 }));
  const rest = keys.length - most;
  const more = rest > 0 && h("button", { onClick: () => setMost(most + CHILDREN_MAX) }, `${rest} more`);
  return h("div", { class: "json" }, toggle, h("div", { class: "json-inner" }, children, more), right);
}

function Scalar({ value }) {
  if (value instanceof ExactNumber) return h("span", { class: "json-number" }, text(value.source));
  if (typeof value === "string") {
    return value.length > 200 || value.includes("\n") ? h(Text, { value }) : h("span", { class: "json-string" }, '"', text(value), '"');
  }
  return h("span", { class: typeof value === "number" ? "json-number" : "json-word" }, text(String(value)));
}
