// The one way in which text of others reaches the page: as text. Invisible characters are shown as escapes.
import { h } from "./vendor/preact.mjs";
import { useState } from "./vendor/hooks.mjs";

/** Longer texts are cut until somebody asks for all. */
const SHOWN_MAX = 64 * 1024;

/** Controls but tab and newline, zero-width and bidi characters, tags, variation selectors, lone surrogates. */
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/**
 * Children for a string, and for nothing else: an object that looks like an element must not become one.
 * @param {unknown} value
 * @returns {any[]}
 */
export function text(value) {
  if (typeof value !== "string") throw new TypeError("text() takes strings only, and got " + typeof value);
  const parts = [];
  let from = 0;
  for (const found of value.matchAll(INVISIBLE)) {
    if (found.index > from) parts.push(value.slice(from, found.index));
    const code = /** @type {number} */ (found[0].codePointAt(0)).toString(16);
    parts.push(h("span", { class: "escape", title: "an invisible character" }, "\\u{" + code + "}"));
    from = found.index + found[0].length;
  }
  if (from < value.length) parts.push(value.slice(from));
  return parts;
}

/** A text of any length, with line breaks. */
export function Text({ value, pre = true }) {
  const [all, setAll] = useState(false);
  const whole = String(value ?? "");
  const cut = !all && whole.length > SHOWN_MAX;
  const shown = cut ? whole.slice(0, SHOWN_MAX) : whole;
  return [
    h(pre ? "pre" : "span", { class: "text", tabindex: pre && whole.length > 400 ? 0 : undefined }, text(shown)),
    cut && h("button", { onClick: () => setAll(true) }, `show all ${whole.length.toLocaleString("en")} characters`),
  ];
}
