// Lists: pages by cursor, and rows of which only those in sight are elements.
import { html, useAct, useLayoutEffect, useLoad, useRef, useState } from "./ui.js";

/** More items than this are not kept in the page; the farthest ones go. */
const KEPT_MAX = 10_000;
/** So many empty pages are loaded before somebody must ask again. */
const EMPTY_MAX = 20;
const ROW_PX = 44;
const ROWS_VIRTUAL = 200;
/** So many rows more than fit are drawn on either side. */
const ROWS_AROUND = 10;

/**
 * Pages of a list by cursor. The first page is live; once somebody has asked for more, nothing moves under their eyes: what is new is
 * counted, and shown when they ask.
 * @param {(after: string | undefined) => (signal: AbortSignal) => Promise<any>} load @param {any[]} inputs
 * @param {{id: (item: any) => string, session?: string, live?: boolean}} options
 */
export function usePages(load, inputs, { id, ...options }) {
  const first = useLoad(load(undefined), inputs, options);
  // What was loaded for other inputs counts no longer.
  const of = JSON.stringify(inputs);
  const [kept, setKept] = useState({ of, page: null });
  const held = kept.of === of ? kept.page : null;
  const setHeld = (page) => setKept({ of, page });
  const { act, busy, told } = useAct();
  const page = held ?? first.data ?? { items: [], next: null };
  const more = () =>
    act(async () => {
      let got = await load(page.next)(new AbortController().signal);
      // The server looks at so many for an answer; of a rare kind, several answers may hold none.
      for (let tries = 1; got.items.length === 0 && got.next && tries < EMPTY_MAX; tries += 1) got = await load(got.next)(new AbortController().signal);
      const all = [...page.items, ...got.items];
      setHeld({ items: all.slice(-KEPT_MAX), next: got.next, dropped: (page.dropped ?? 0) + Math.max(0, all.length - KEPT_MAX) });
    }, "");
  const known = new Map((first.data?.items ?? []).map((item) => [id(item), item]));
  const items = held ? page.items.map((item) => known.get(id(item)) ?? item) : page.items;
  const ids = new Set(held ? page.items.map(id) : []);
  const fresh = held ? [...known.keys()].filter((one) => !ids.has(one)).length : 0;
  return { first, items, id, next: page.next, more, busy, told, fresh, dropped: page.dropped ?? 0, anew: () => setHeld(null) };
}

/**
 * Which of many rows of one height are in sight.
 * @param {number} count @param {boolean} many @param {number} [rowPx]
 */
export function useWindow(count, many, rowPx = ROW_PX) {
  const box = useRef(null);
  const [sight, setSight] = useState({ top: 0, height: 800 });
  useLayoutEffect(() => {
    if (!many) return;
    const look = () => setSight({ top: Math.max(0, -box.current.getBoundingClientRect().top), height: innerHeight });
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => (removeEventListener("scroll", look), removeEventListener("resize", look));
  }, [many]);
  if (!many) return { box, from: 0, to: count };
  const from = Math.min(count, Math.max(0, Math.floor(sight.top / rowPx) - ROWS_AROUND));
  return { box, from, to: Math.min(count, Math.ceil((sight.top + sight.height) / rowPx) + ROWS_AROUND) };
}

/** Rows of one height, of which only those in sight are elements. */
export function VirtualRows({ items, row, label, id, next, more, moreWords = "Load more", busy, fresh, dropped, anew }) {
  const many = items.length > ROWS_VIRTUAL;
  const { box, from, to } = useWindow(items.length, many);
  const space = (rows) => many && rows > 0 && html`<li class="space" aria-hidden="true" style=${{ height: `${rows * ROW_PX}px` }}></li>`;
  return html`${fresh > 0 && html`<p role="status"><button onClick=${anew}>${fresh} new: show the newest</button></p>`}
    ${dropped > 0 && html`<p class="quiet">The first ${dropped.toLocaleString("en")} are no longer kept here. <button onClick=${anew}>Show the newest</button></p>`}
    <ul class=${many ? "rows fixed" : "rows"} aria-label=${label} ref=${box}>
      ${space(from)}
      ${items.slice(from, to).map((item) => html`<li key=${id(item)}>${row(item)}</li>`)}
      ${space(items.length - to)}
    </ul>
    ${next && html`<p><button onClick=${more} disabled=${busy}>${busy ? "Loading…" : moreWords}</button></p>`}`;
}
