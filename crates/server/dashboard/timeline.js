// Timelines: one row per call, one bar per span. Bars are told apart by pattern and text, not only by colour.
import { html, length, Link, State, useRef, useState, Why } from "./ui.js";
import { useWindow } from "./lists.js";
import { path } from "./api.js";
import { text } from "./text.js";

/** Idle time that is longer than this, and than this part of the whole, is folded. */
const IDLE_US = 1_000_000;
const IDLE_PART = 0.15;
const FOLD_PART = 0.04;
const NAMES = { queue: "queued", attempt: "attempt", retry: "waits to retry", wait: "waits", inside: "calls inside" };

const grouped = new Intl.NumberFormat("en");
const exact = (us) => `${grouped.format(us)} µs`;

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
  const add = (call, depth, all) => {
    rows.push({ call, depth });
    all.filter((other) => other.parent === call.call).forEach((other) => add(other, depth + 1, all));
  };
  calls.forEach((call) => add(call, 0, call.nested ?? []));
  return rows;
}

/**
 * The scale: which part of the width a time is at. Long stretches in which nothing runs are folded.
 * @param {{from_us: number, to_us?: number, kind: string}[]} spans @param {number} now
 */
export function scaleOf(spans, now) {
  const from = Math.min(...spans.map((span) => span.from_us));
  const to = Math.max(from + 1, ...spans.map((span) => span.to_us ?? now));
  const busy = spans
    .filter((span) => span.kind === "attempt" || span.kind === "inside")
    .map((span) => [span.from_us, span.to_us ?? now])
    .sort((left, right) => left[0] - right[0]);
  const folds = [];
  let end = from;
  for (const [begin, over] of [...busy, [to, to]]) {
    if (begin - end > Math.max(IDLE_US, (to - from) * IDLE_PART)) folds.push([end, begin]);
    end = Math.max(end, over);
  }
  // If nothing but waiting is there, the wait is what there is to see.
  if (busy.length === 0) folds.length = 0;
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
  return { from, to, folds, place, whole };
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
    else if (place(from + time) <= 0.93) ticks.push(time);
  }
  return ticks;
}

/** A bar. A function and no component, and told by its place who it is: there can be thousands. */
function bar(span, place, { scale, now, call, row }) {
  const left = scale.place(span.from_us) * 100;
  const right = scale.place(span.to_us ?? now) * 100;
  const kind = span.kind === "attempt" ? `attempt ${span.end ?? "live"}` : span.kind;
  const words = spanWords(span, now);
  const sign = span.kind === "attempt" ? ({ failed: "✕", lost: "☠", stopped: "■", aborted: "✕" }[span.end] ?? "") : "";
  return html`<span
    key=${place}
    class=${"bar " + kind}
    style=${{ left: `${left}%`, width: `max(3px, ${right - left}%)` }}
    tabindex=${place === 0 ? 0 : -1}
    data-row=${row}
    data-span=${place}
    role="img"
    aria-label=${`${call.tool}: ${words}, ${exact((span.to_us ?? now) - span.from_us)}`}
  >${sign}</span>`;
}

/** Left and right move through the bars of a row; Tab goes to the next row. */
function moveInRow(event) {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!move) return;
  const bars = [...event.currentTarget.querySelectorAll(".bar")];
  const next = bars[bars.indexOf(event.target) + move];
  if (!next) return;
  event.preventDefault();
  /** @type {HTMLElement} */ (next).focus();
}

/** The bar under the pointer or with the focus, to the microsecond. It draws itself, so that the rows are left alone. */
function Detail({ teller }) {
  const [shown, setShown] = useState(null);
  teller.current = setShown;
  if (!shown) return html`<p class="detail quiet">Point at a bar, or move to it with Tab and the arrows, for its exact time.</p>`;
  const { span, call, from } = shown;
  const now = Date.now() * 1_000;
  const waits = call.waiting_for && span.to_us === undefined;
  return html`<p class="detail" role="status"><strong>${text(String(call.id))}</strong> ${text(spanWords(span, now).split(",")[0])}:
    ${" "}<span class="number">+${exact(span.from_us - from)}</span> to ${span.to_us === undefined ? "now" : html`<span class="number">+${exact(span.to_us - from)}</span>`},
    ${" "}<span class="number">${exact((span.to_us ?? now) - span.from_us)}</span> ${text(span.end ?? "")} ${waits && html` · <${Why} told=${call.waiting_for} />`}</p>`;
}

/** One line for a whole batch. */
export function MiniTimeline({ calls }) {
  const now = Date.now() * 1_000;
  const rows = rowsOf(calls);
  const spans = rows.flatMap((row) => row.call.spans ?? []);
  if (spans.length === 0) return null;
  const scale = scaleOf(spans, now);
  const words = `${calls.length} calls in ${length(scale.to - scale.from)}`;
  return html`<span class="mini" role="img" aria-label=${words} title=${words}>
    ${spans
      .filter((span) => span.kind !== "inside")
      .slice(0, 200)
      // What ran lies over what waited.
      .sort((left, right) => Number(left.kind === "attempt") - Number(right.kind === "attempt"))
      .map((span, place) => {
        const left = scale.place(span.from_us) * 100;
        const width = scale.place(span.to_us ?? now) * 100 - left;
        const kind = span.kind === "attempt" ? `attempt ${span.end ?? "live"}` : span.kind;
        return html`<i key=${place} class=${"bar " + kind} style=${{ left: `${left}%`, width: `max(2px, ${width}%)` }}></i>`;
      })}
  </span>`;
}

/** From so many rows on, only those in sight are elements, and all are of one height. */
const ROWS_VIRTUAL = 400;
const ROW_PX = 40;

/** The timeline of a batch, or of one call. */
export function Timeline({ calls, decided }) {
  const teller = useRef(null);
  const now = Date.now() * 1_000;
  const rows = rowsOf(calls);
  const many = rows.length > ROWS_VIRTUAL;
  const { box, from, to } = useWindow(rows.length, many, ROW_PX);
  const spans = rows.flatMap((row) => row.call.spans ?? []);
  if (spans.length === 0) return html`<p class="quiet">Nothing is known about its time.</p>`;
  const scale = scaleOf(spans, now);
  const tell = ({ target }) => {
    const { row, span } = target.dataset;
    const call = rows[row]?.call;
    if (span !== undefined && call) teller.current?.({ call, span: call.spans[span], from: scale.from });
  };
  const place = (call) => (!decided?.winners || call.parent ? "" : decided.winners.includes(call.id) ? "winner" : call.state === "cancelled" ? "not needed" : "");
  const space = (count) => many && count > 0 && html`<tr aria-hidden="true" style=${{ height: `${count * ROW_PX}px` }}><td colspan="3"></td></tr>`;
  return html`<div class="timeline">
    <table class=${many ? "fixed" : ""}>
      <caption>${rows.length} ${rows.length === 1 ? "call" : "calls"} in ${length(scale.to - scale.from)}${scale.folds.length > 0 &&
      `; idle time is folded (${scale.folds.map(([from, to]) => length(to - from)).join(", ")})`}</caption>
      <colgroup><col class="name" /><col class="state-col" /><col /></colgroup>
      <thead><tr><th><span class="hidden">Call</span></th><th><span class="hidden">State</span></th><th class="axis"><span class="hidden">Time</span>${ticksOf(scale).map((time) => html`<span key=${time} aria-hidden="true" style=${{ left: `${scale.place(scale.from + time) * 100}%` }}>${length(time)}</span>`)}</th></tr></thead>
      <tbody ref=${box} onPointerOver=${tell} onFocusIn=${tell}>${space(from)}${rows.slice(from, to).map(({ call, depth }, nth) => html`<${TimelineRow} key=${call.call} ...${{ call, depth, scale, now, row: from + nth, mark: place(call) }} />`)}${space(rows.length - to)}</tbody>
    </table>
    <${Detail} teller=${teller} />
    <${Legend} />
  </div>`;
}

function TimelineRow({ call, depth, scale, now, mark, row }) {
  const spans = call.spans ?? [];
  return html`<tr>
    <th scope="row" style=${{ paddingLeft: `${0.7 + depth * 1.2}rem` }}>
      <${Link} to=${path`/ui/calls/${call.call}`}>${text(String(call.id))}</${Link}>
      <span class="quiet"> ${text(String(call.tool))}</span>
      ${mark && html` <span class=${mark === "winner" ? "chip good" : "chip"}>${mark}</span>`}
      ${call.waiting_for && html`<div><${Why} told=${call.waiting_for} /></div>`}
    </th>
    <td><${State} state=${call.state} /></td>
    <td class="track" onKeyDown=${moveInRow}>
      ${scale.folds.map(([from, to], place) => html`<span key=${"fold" + place} class="folded" style=${{ left: `${scale.place(from) * 100}%`, width: `${(scale.place(to) - scale.place(from)) * 100}%` }}></span>`)}
      ${spans.map((span, place) => bar(span, place, { scale, now, call, row }))}
    </td>
  </tr>`;
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
  const now = Date.now() * 1_000;
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
