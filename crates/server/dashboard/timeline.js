// Timelines: one row per call, one bar per span. Bars are told apart by pattern and text, not only by colour.
import { Component, h } from "./vendor/preact.mjs";
import { followLink, html, length, standing, stateOf, useRef, useState, Why } from "./ui.js";
import { useWindow } from "./lists.js";
import { clock, path } from "./api.js";
import { text } from "./text.js";

/** Idle time that is longer than this, and than this part of the whole, is folded. */
const IDLE_US = 1_000_000;
const IDLE_PART = 0.15;
const FOLD_PART = 0.04;
const NAMES = { queue: "queued", attempt: "attempt", retry: "waits to retry", wait: "waits", inside: "calls inside" };

/** While something runs, the axis grows by such a part of itself at a time: bars that are over stay where they are meanwhile. */
const GROWTH_PARTS = 16;

/** With thousands apart. By hand: there is one for every bar, and `Intl` takes ten times as long. */
function exact(us) {
  const digits = String(Math.round(us));
  let grouped = digits.slice(-3);
  for (let end = digits.length - 3; end > 0; end -= 3) grouped = `${digits.slice(Math.max(0, end - 3), end)},${grouped}`;
  return `${grouped} µs`;
}

/** What a bar is, in words. */
export function spanWords(span, now) {
  const what = [NAMES[span.kind] ?? span.kind];
  if (span.attempt) what.push(String(span.attempt));
  if (span.why) what.push("for " + span.why.replaceAll("_", " "));
  if (span.name) what.push(span.name);
  const end = span.to_us === undefined ? "so far" : (span.end ?? "");
  return `${what.join(" ")}, ${length((span.to_us ?? now) - span.from_us)} ${end}`.trim();
}

/** All calls of a batch in the order in which they are shown: nested ones behind the call that made them. */
export function rowsOf(calls) {
  const rows = [];
  const add = (call, depth, under) => {
    rows.push({ call, depth });
    under.get(call.call)?.forEach((other) => add(other, depth + 1, under));
  };
  for (const call of calls) {
    const under = new Map();
    for (const inner of call.nested ?? []) {
      if (!under.has(inner.parent)) under.set(inner.parent, []);
      under.get(inner.parent).push(inner);
    }
    add(call, 0, under);
  }
  return rows;
}

/** The first beginning and the last end, `null` of none. */
function reach(spans, now) {
  let [from, to, isOpen] = [Infinity, -Infinity, false];
  for (const span of spans) {
    from = Math.min(from, span.from_us);
    to = Math.max(to, span.to_us ?? now);
    isOpen ||= span.to_us === undefined;
  }
  to = Math.max(from + 1, to);
  const step = 2 ** Math.ceil(Math.log2(to - from)) / GROWTH_PARTS;
  return { from, to, end: isOpen ? from + Math.ceil((to - from) / step) * step : to };
}

/**
 * The scale: which part of the width a time is at. Long stretches in which nothing runs are folded.
 * @param {{from_us: number, to_us?: number, kind: string}[]} spans @param {number} now
 */
export function scaleOf(spans, now) {
  const { from, to: last, end: grown } = reach(spans, now);
  const busy = spans
    .filter((span) => span.kind === "attempt" || span.kind === "inside")
    .map((span) => [span.from_us, span.to_us ?? now])
    .sort((left, right) => left[0] - right[0]);
  const folds = [];
  let end = from;
  for (const [begin, over] of [...busy, [last, grown]]) {
    if (begin - end > Math.max(IDLE_US, (grown - from) * IDLE_PART)) folds.push([end, begin]);
    end = Math.max(end, over);
  }
  // If nothing but waiting is there, the wait is what there is to see.
  if (busy.length === 0) folds.length = 0;
  // A wait that lasts grows inside its fold, so the axis needs no room for it.
  const to = folds.at(-1)?.[1] === last ? last : grown;
  const folded = folds.reduce((sum, [begin, over]) => sum + over - begin, 0);
  const whole = to - from - folded;
  const foldWidth = whole > 0 ? FOLD_PART : 1 / Math.max(1, folds.length);
  const room = Math.max(0, 1 - folds.length * foldWidth);
  const place = (at) => {
    let time = at - from;
    let width = 0;
    for (const [begin, over] of folds) {
      if (at <= begin) break;
      const inside = Math.min(at, over) - begin;
      time -= inside;
      width += (inside / (over - begin)) * foldWidth;
    }
    return Math.min(1, (whole > 0 ? (time / whole) * room : 0) + width);
  };
  return { from, to, last, folds, place, whole };
}

/** The scale of before, if this one is the same: then the rows that show it need not be drawn. */
function useScale(spans, now) {
  const kept = useRef(null);
  const scale = scaleOf(spans, now);
  const mark = String([scale.from, scale.to, scale.folds]);
  if (kept.current?.mark !== mark) kept.current = { mark, scale };
  return { ...scale, same: kept.current.scale };
}

/** Round times for the axis, about five, none of them in a fold. */
function ticksOf({ from, to, folds, place, whole }) {
  const rough = Math.max(1, whole / 5);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough) ?? rough;
  const ticks = [];
  for (let time = 0; from + time <= to && ticks.length < 12; time += step) {
    const fold = folds.find(([begin, over]) => from + time > begin && from + time < over);
    if (fold) time = Math.floor((fold[1] - from) / step) * step;
    else if (place(from + time) <= 0.93 && length(time) !== length(ticks.at(-1) ?? -1)) ticks.push(time);
  }
  return ticks;
}

const SIGNS = { failed: "✕", lost: "☠", stopped: "■", aborted: "✕" };
const kindOf = (span) => (span.kind === "attempt" ? `bar attempt ${span.end ?? "live"}` : `bar ${span.kind}`);

/** The place of a bar; a style sheet keeps the shortest ones visible. */
function placeOf(span, scale, now) {
  const left = scale.place(span.from_us) * 100;
  return { left: `${left.toFixed(3)}%`, width: `${(scale.place(span.to_us ?? now) * 100 - left).toFixed(3)}%` };
}

/** A bar. A function and no component, without a template, and told by its place who it is: there can be thousands. */
function bar(span, place, { scale, now, call }) {
  const label = `${call.tool}: ${spanWords(span, now)}, ${exact((span.to_us ?? now) - span.from_us)}`;
  const about = { class: kindOf(span), style: placeOf(span, scale, now), tabindex: place === 0 ? 0 : -1, role: "img", "aria-label": label };
  return h("span", about, span.kind === "attempt" ? SIGNS[span.end] : undefined);
}

/** Left and right move through the bars of a row; Tab goes to the next row. */
function moveInRow(event) {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  const bars = event.target.classList.contains("bar") ? [...event.target.parentElement.querySelectorAll(".bar")] : [];
  const next = bars[bars.indexOf(event.target) + move];
  if (bars.length === 0 || !next) return;
  event.preventDefault();
  /** @type {HTMLElement} */ (next).focus();
}

/** The bar under the pointer or with the focus, to the microsecond. It draws itself, so that the rows are left alone. */
function Detail({ teller }) {
  const [shown, setShown] = useState(null);
  teller.current = setShown;
  if (!shown) return html`<p class="detail quiet">Point at a bar, or move to it with Tab and the arrows, for its exact time.</p>`;
  const { span, call, from } = shown;
  const now = clock.now() * 1_000;
  const waits = call.waiting_for && span.to_us === undefined;
  return html`<p class="detail shown" role="status"><strong>${text(String(call.id))}</strong> ${text(spanWords(span, now).split(",")[0])}:
    ${" "}<span class="number">+${exact(span.from_us - from)}</span> to ${span.to_us === undefined ? "now" : html`<span class="number">+${exact(span.to_us - from)}</span>`},
    ${" "}<span class="number">${exact((span.to_us ?? now) - span.from_us)}</span> ${text(span.end ?? "")} ${waits && html` · <${Why} told=${call.waiting_for} />`}</p>`;
}

/** One line for a whole batch. */
export function MiniTimeline({ calls }) {
  const now = clock.now() * 1_000;
  const rows = rowsOf(calls);
  const spans = rows.flatMap((row) => row.call.spans ?? []);
  if (spans.length === 0) return null;
  const scale = scaleOf(spans, now);
  const words = `${calls.length} ${calls.length === 1 ? "call" : "calls"} in ${length(scale.last - scale.from)}`;
  return html`<span class="mini" role="img" aria-label=${words} title=${words}>
    ${spans
      .filter((span) => span.kind !== "inside")
      .slice(0, 200)
      // What ran lies over what waited.
      .sort((left, right) => Number(left.kind === "attempt") - Number(right.kind === "attempt"))
      .map((span) => h("i", { class: kindOf(span), style: placeOf(span, scale, now) }))}
  </span>`;
}

/** From so many rows on, only those in sight are elements, and all are of one height. */
const ROWS_VIRTUAL = 400;
const ROW_PX = 40;

/** The timeline of a batch, or of one call. */
export function Timeline({ calls, decided }) {
  const teller = useRef(null);
  const now = clock.now() * 1_000;
  const rows = rowsOf(calls);
  const many = rows.length > ROWS_VIRTUAL;
  const { box, from, to } = useWindow(rows.length, many, ROW_PX);
  const spans = rows.flatMap((row) => row.call.spans ?? []);
  const scale = useScale(spans, now);
  if (spans.length === 0) return html`<p class="quiet">Nothing is known about its time.</p>`;
  const tell = ({ target }) => {
    if (!target.classList?.contains("bar")) return;
    const call = rows[from + target.closest("tr").sectionRowIndex - (many && from > 0 ? 1 : 0)]?.call;
    const span = [...target.parentElement.querySelectorAll(".bar")].indexOf(target);
    if (call?.spans?.[span]) teller.current?.({ call, span: call.spans[span], from: scale.from });
  };
  const place = (call) => (!decided?.winners || call.parent ? "" : decided.winners.includes(call.id) ? "winner" : call.state === "cancelled" ? "not needed" : "");
  const space = (count) => many && count > 0 && html`<tr aria-hidden="true" style=${{ height: `${count * ROW_PX}px` }}><td colspan="3"></td></tr>`;
  return html`<div class="timeline">
    <table role="table" class=${many ? "fixed" : ""}>
      <caption>${rows.length} ${rows.length === 1 ? "call" : "calls"} in ${length(scale.last - scale.from)}${scale.folds.length > 0 &&
      `; idle time is folded (${scale.folds.map(([from, to]) => length(to - from)).join(", ")})`}</caption>
      <thead role="rowgroup"><tr role="row"><th role="columnheader"><span class="hidden">Call</span></th><th role="columnheader"><span class="hidden">State</span></th><th role="columnheader" class="axis"><span class="hidden">Time</span>${ticksOf(scale).map((time) => html`<span key=${time} aria-hidden="true" style=${{ left: `${scale.place(scale.from + time) * 100}%` }}>${length(time)}</span>`)}</th></tr></thead>
      <tbody role="rowgroup" ref=${box} onPointerOver=${tell} onFocusIn=${tell} onClick=${followLink} onKeyDown=${moveInRow}>${space(from)}${rows.slice(from, to).map(({ call, depth }) => h(TimelineRow, { key: call.call, call, depth, scale: scale.same, now, mark: place(call) }))}${space(rows.length - to)}</tbody>
    </table>
    <${Detail} teller=${teller} />
    <${Legend} />
  </div>`;
}

const SPAN_FIELDS = ["kind", "from_us", "to_us", "end", "attempt", "why", "name"];
const CALL_FIELDS = ["call", "id", "tool", "state", "waiting_for"];
const isSame = (left, right, fields) => fields.every((field) => left[field] === right[field]);

/** Whether a row shows the same for both, and nothing in it grows with time. */
function isSameRow(before, after) {
  const [left, right] = [before.spans ?? [], after.spans ?? []];
  if (left.length !== right.length || !isSame(before, after, CALL_FIELDS)) return false;
  return right.every((span, place) => span.to_us !== undefined && isSame(span, left[place], SPAN_FIELDS));
}

/** A row. It is drawn again only if it would look different: most calls of a batch are over. */
class TimelineRow extends Component {
  shouldComponentUpdate({ call, depth, scale, mark }) {
    const before = this.props;
    return scale !== before.scale || depth !== before.depth || mark !== before.mark || !isSameRow(before.call, call);
  }

  render({ call, depth, scale, now, mark }) {
    const { sign, kind, words } = stateOf(standing(call));
    const folds = scale.folds.map(([from, to]) => h("span", { class: "folded", style: { left: `${scale.place(from) * 100}%`, width: `${(scale.place(to) - scale.place(from)) * 100}%` } }));
    // The roles are said, since the style sheet lays the rows out as grids.
    return h("tr", { role: "row" },
      h("th", { role: "rowheader", style: depth > 0 ? { paddingLeft: `${0.7 + depth * 1.2}rem` } : undefined },
        h("a", { href: path`/ui/calls/${call.call}` }, text(String(call.id))), " ",
        h("span", { class: "quiet" }, text(String(call.tool))),
        mark && [" ", h("span", { class: mark === "winner" ? "chip good" : "chip" }, mark)],
        call.waiting_for && h("div", null, h(Why, { told: call.waiting_for }))),
      h("td", { role: "cell" }, h("span", { class: "state " + kind }, h("span", { "aria-hidden": "true" }, sign), " ", text(words))),
      h("td", { role: "cell", class: "track" }, folds, (call.spans ?? []).map((span, place) => bar(span, place, { scale, now, call }))));
  }
}

function Legend() {
  const kinds = [
    ["queue", "queued"],
    ["attempt ok", "attempt that ended well"],
    ["attempt failed", "✕ failed, or ☠ lost"],
    ["attempt stopped", "■ stopped"],
    ["attempt live", "runs now"],
    ["retry", "waits to retry"],
    ["wait", "waits for something"],
    ["inside", "calls inside"],
  ];
  return html`<ul class="legend" aria-label="Legend">${kinds.map(([kind, words]) => html`<li><i class=${"bar " + kind}></i> ${words}</li>`)}</ul>`;
}

/** The spans of one call as a table: exact, for reading and for machines. */
export function SpanTable({ spans }) {
  const now = clock.now() * 1_000;
  const from = spans[0]?.from_us ?? 0;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Spans"><table class="plain">
    <thead><tr><th>What</th><th>From</th><th>Length</th><th>End</th></tr></thead>
    <tbody>${spans.map((span) => html`<tr>
      <td>${NAMES[span.kind] ?? text(span.kind)} ${span.attempt ?? ""} ${span.why ? text(span.why.replaceAll("_", " ")) : ""} ${span.name ? text(span.name) : ""}</td>
      <td class="number">+${exact(span.from_us - from)}</td>
      <td class="number">${exact((span.to_us ?? now) - span.from_us)}</td>
      <td>${span.to_us === undefined ? "lasts" : text(span.end ?? "")}</td>
    </tr>`)}</tbody>
  </table></div>`;
}
