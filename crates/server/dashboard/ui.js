// What all screens share: markup, the router, loading, buttons, states, times.
import { h, options } from "./vendor/preact.mjs";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { changes, clock } from "./api.js";
import { ExactNumber } from "./json.js";
import { text } from "./text.js";

export const html = htm.bind(h);
export { useCallback, useEffect, useLayoutEffect, useRef, useState };

/** Draws come at most so often. */
const DRAW_MS = 100;
/** A button that decides something is inert for so long after it has appeared or moved. */
const INERT_MS = 500;

// However often something changes, the page is drawn at most ten times a second: the first change at once, those behind it together.
let drawnAt = -DRAW_MS;
/** @type {(() => void) | null} */
let undrawn = null;
let drawTimer = 0;
const drawNow = () => {
  const draw = undrawn;
  if (!draw) return;
  clearTimeout(drawTimer);
  undrawn = null;
  // What changes while it is drawn waits as well, and the pause begins when all is there.
  drawnAt = performance.now();
  draw();
  drawnAt = performance.now();
};
options.debounceRendering = (draw) => {
  undrawn = draw;
  const wait = Math.ceil(drawnAt + DRAW_MS - performance.now());
  if (wait <= 0) queueMicrotask(drawNow);
  else drawTimer = setTimeout(drawNow, wait);
};
// Whoever presses something means it as it is now, with what was typed a moment ago: nothing waits to be drawn then. Not with the click,
// at which a box is already checked and would be drawn as it was before.
for (const press of ["pointerdown", "keydown"]) addEventListener(press, drawNow, { capture: true });

// ---- Router: the screen is the path, the filters are the query.

const routed = new Set();

/** @param {string} to @param {{replace?: boolean}} [options] */
export function go(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  routed.forEach((listener) => listener(replace));
}
addEventListener("popstate", () => routed.forEach((listener) => listener(false)));

export function useRoute() {
  const [, draw] = useState(0);
  useLayoutEffect(() => {
    const listener = () => draw((count) => count + 1);
    routed.add(listener);
    return () => routed.delete(listener);
  }, []);
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** Follows a click on a link inside the dashboard; one listener is enough for a table full of them. */
export function followLink(event) {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || link.target || link.origin !== location.origin) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

/** A link inside the dashboard. `to` is made by the page, never by data. */
export const Link = ({ to, children, ...rest }) => h("a", { href: to, onClick: followLink, ...rest }, children);

/** A link to somewhere else, only if it is one that a browser may follow; the host is written out. */
export function Outside({ url }) {
  let parsed = null;
  try {
    parsed = new URL(url);
  } catch {
    // Not an address.
  }
  if (!parsed || !["http:", "https:"].includes(parsed.protocol)) return text(String(url));
  return html`<a href=${parsed.href} target="_blank" rel="noopener noreferrer">${text(parsed.host)} ↗</a>`;
}

// ---- Loading: once at first, and again when the stream says that something has changed.

/**
 * @param {(signal: AbortSignal) => Promise<any>} load @param {any[]} inputs
 * @param {{session?: string, live?: boolean, off?: boolean}} [options] `off`: somebody else loads it.
 */
export function useLoad(load, inputs, { session, live = true, off = false } = {}) {
  const [state, setState] = useState({ data: undefined, error: undefined, busy: true });
  const again = useRef(() => {});
  useEffect(() => {
    if (off) return;
    const stop = new AbortController();
    let running = false;
    let wanted = false;
    let timer = 0;
    let ranAt = 0;
    const run = async () => {
      if (running) return void (wanted = true);
      running = true;
      ranAt = performance.now();
      do {
        wanted = false;
        try {
          const data = await load(stop.signal);
          if (!stop.signal.aborted) setState({ data, error: undefined, busy: false });
        } catch (error) {
          if (!stop.signal.aborted) setState((before) => ({ ...before, error, busy: false }));
        }
      } while (wanted && !stop.signal.aborted);
      running = false;
    };
    // The first change is looked at once, those behind it together.
    const soon = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        run();
      }, Math.max(0, ranAt + DRAW_MS - performance.now()));
    };
    const listener = (sessions, all) => {
      if (all || !session || sessions.has(session)) soon();
    };
    again.current = run;
    if (live) changes.listeners.add(listener);
    setState((before) => ({ ...before, busy: true }));
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
      changes.listeners.delete(listener);
    };
  }, inputs);
  return { ...state, again: () => again.current() };
}

/** Shows what was loaded, or why it was not. Old data stays while it is loaded again. */
export function Loaded({ from, children }) {
  if (from.data !== undefined) return html`${from.error && html`<${Wrong} error=${from.error} />`}${children(from.data)}`;
  if (from.error) return html`<${Wrong} error=${from.error} />`;
  return html`<p class="quiet" aria-busy="true">Loading…</p>`;
}

export function Wrong({ error }) {
  const code = error.code ? html` <code>${text(error.code)}</code>` : null;
  return html`<p class="wrong" role="alert">${text(String(error.message))}${code}</p>`;
}

/** Runs something that can be refused, and says so. */
export function useAct() {
  const [state, setState] = useState({ busy: false, error: null, done: "" });
  const act = async (work, done = "Done.") => {
    setState({ busy: true, error: null, done: "" });
    try {
      await work();
      setState({ busy: false, error: null, done });
      return true;
    } catch (error) {
      setState({ busy: false, error, done: "" });
      return false;
    }
  };
  const told = html`<span role="status" class="quiet">${state.done}</span>${state.error && html`<${Wrong} error=${state.error} />`}`;
  const reset = () => setState({ busy: false, error: null, done: "" });
  return { act, busy: state.busy, error: state.error, told, reset };
}

// ---- Buttons

/** A button that decides: inert just after it appeared or moved, so that nobody presses what was not there a moment ago. */
export function Decide({ onPress, kind = "", busy = false, children }) {
  const box = useRef(null);
  const [ready, setReady] = useState(false);
  const seen = useRef({ top: NaN, left: NaN, since: 0 });
  /** Whether it has stood at its place for long enough. */
  const look = () => {
    const { top, left } = box.current.getBoundingClientRect();
    const place = { top: top + scrollY, left: left + scrollX };
    const stays = Math.abs(place.top - seen.current.top) <= 2 && Math.abs(place.left - seen.current.left) <= 2;
    if (!stays) seen.current = { ...place, since: performance.now() };
    const isReady = stays && performance.now() - seen.current.since >= INERT_MS;
    setReady(isReady);
    return isReady;
  };
  useLayoutEffect(() => {
    look();
    const timer = setInterval(look, DRAW_MS);
    return () => clearInterval(timer);
  }, []);
  // Looked at once more: it may have moved since the last look. A press that is not taken is refused, for whoever listens behind it.
  const press = (event) => {
    const isTaken = ready && !busy && look();
    if (isTaken) onPress();
    else event.preventDefault();
  };
  return html`<button ref=${box} class=${kind} aria-disabled=${!ready || busy} onClick=${press}>${children}</button>`;
}

// ---- States and times

const STATES = {
  queued: ["○", "open"],
  running: ["▶", "run"],
  retrying: ["↻", "warn"],
  awaiting_approval: ["◆", "you"],
  awaiting_input: ["?", "you"],
  awaiting_connection: ["↔", "you"],
  awaiting_acceptance: ["◆", "you"],
  awaiting_completion: ["…", "open"],
  awaiting_client: ["…", "open"],
  succeeded: ["✓", "good"],
  failed: ["✕", "bad"],
  denied: ["⊘", "bad"],
  cancelled: ["–", "off"],
  unknown: ["‽", "warn"],
  watching: ["◷", "open"],
  alive: ["✓", "good"],
  dead: ["✕", "bad"],
  left: ["–", "off"],
};

/** What a state looks like: its sign, its colour, its words. */
export function stateOf(state) {
  const [sign, kind] = Object.hasOwn(STATES, state) ? STATES[state] : ["·", "open"];
  return { sign, kind, words: WORDS[state] ?? state.replaceAll("_", " ").replace(/^awaiting /, "waits: ") };
}

const WORDS = { awaiting_input: "waits: answer", awaiting_client: "waits: caller" };

/** The state of a call: one whose tool has changed waits for a person, whatever it did before. */
export const standing = ({ state, waiting_for }) => (String(waiting_for ?? "").startsWith("tool_changed") ? "awaiting_acceptance" : state);

/** How a call ended, if there is more to say than its state. */
export function ending({ state, outcome }) {
  if (state === "unknown") return "nobody knows whether it took effect";
  const said = outcome?.failure?.message ?? (state === "denied" ? outcome?.reason : undefined);
  return said ? text(String(said).split("\n")[0].slice(0, 120)) : "";
}

/** A state by sign, word and colour. */
export function State({ state, count }) {
  const { sign, kind, words } = stateOf(state);
  return html`<span class=${"state " + kind}><span aria-hidden="true">${sign}</span> ${text(words)}${count > 1 && ` × ${count}`}</span>`;
}

export const isOver = (state) => ["succeeded", "failed", "denied", "cancelled", "unknown"].includes(state);

/** A length in microseconds, short. */
export function length(us) {
  if (us === 0) return "0 s";
  if (us < 1_000) return `${us} µs`;
  if (us < 1_000_000) return `${(us / 1_000).toFixed(us < 10_000 ? 1 : 0)} ms`;
  if (us < 60_000_000) return us % 1e6 === 0 ? `${us / 1e6} s` : `${(us / 1e6).toFixed(us < 10_000_000 ? 2 : 1)} s`;
  const minutes = Math.floor(us / 60_000_000);
  const and = (rest, unit) => (rest > 0 ? ` ${rest} ${unit}` : "");
  if (minutes < 60) return `${minutes} min${and(Math.floor((us % 60_000_000) / 1e6), "s")}`;
  if (minutes < 60 * 48) return `${Math.floor(minutes / 60)} h${and(minutes % 60, "min")}`;
  return `${Math.floor(minutes / 60 / 24)} days`;
}

/** A recorded time in milliseconds. */
export const ms = (value) => (value === undefined ? "" : value < 1 ? "< 1 ms" : length(value * 1_000));

/** A wait for another call names its handle, and behind it the tool. */
const BEHIND = { "claim of": "waits behind", same_as: "is the same as" };
const BLOCKED = /^(claim of|same_as) ([0-9a-z]{26})(?: \(([^)]*)\))?/;

/** The first word of why a call waits, for people. */
const WAITS = {
  approval: "somebody must approve it, asked",
  input: "somebody must answer a question,",
  connection: "somebody must make a connection",
  completion: "waits for an answer from outside",
  client: "waits for its caller, who runs the tool",
  tool_changed: "its tool has changed: somebody must accept that",
  tool_paused: "its tool is paused: somebody must resume it",
  no_such_tool: "waits for its tool, which is not there",
  no_worker: "waits for a process that serves its tool",
  owner: "waits for a process that drives its session",
  limit: "waits until fewer calls run",
  rate: "waits, since its tool may only be started so often",
  retry: "waits for its next attempt",
  nested: "waits for the calls that it made",
  sleep: "sleeps",
};

/** Why a call waits, with times as this place writes them. */
export function why(given) {
  const blocked = BLOCKED.exec(given);
  const word = /^[a-z_]+/.exec(given)?.[0] ?? "";
  const asked = /^approval by (.+) until (\S+)$/.exec(given);
  if (asked) given = `needs an approval until ${asked[2]}, asked by ${asked[1]}`;
  else if (!blocked && Object.hasOwn(WAITS, word)) given = WAITS[word] + String(given).slice(word.length);
  const told = blocked ? `${BEHIND[blocked[1]]} ${blocked[3] ?? "another call"}${String(given).slice(blocked[0].length)}` : given;
  const local = (time) => {
    const [at, day] = [new Date(time), /** @type {const} */ ({ day: "numeric", month: "short" })];
    const isToday = at.toDateString() === new Date().toDateString();
    return at.toLocaleString("en-GB", { ...(isToday ? {} : day), hour: "2-digit", minute: "2-digit", second: "2-digit" });
  };
  return text(String(told).replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, local));
}

/** What an open call does, in its tool's words, or why it waits. */
export function doing({ narration, status, waiting_for }) {
  if (waiting_for) return why(waiting_for);
  return [narration, status].filter(Boolean).map((said, place) => [place > 0 && " · ", ...text(String(said))]);
}

/** Why a call waits, with a link to the call that it waits for. */
export function Why({ told }) {
  const found = BLOCKED.exec(told);
  if (!found) return html`<span class="why">${why(told)}</span>`;
  const [all, word, call, tool] = found;
  return html`<span class="why">${BEHIND[word]} <${Link} to=${"/ui/calls/" + call}>${tool ? text(tool) : "another call"}</${Link}>${text(told.slice(all.length))}</span>`;
}

/** Keys that nobody chose are long; their beginning is enough for the eye. */
export const short = (key) => (/^[0-9a-f]{32}$/.test(key) ? key.slice(0, 8) + "…" : key);

/** One clock for all who show a time, so that they are drawn together. */
const ticked = new Set();
setInterval(() => document.hidden || ticked.forEach((tick) => tick(clock.now())), 1_000);

/** The time of the server by that clock. */
export function useNow() {
  const [now, setNow] = useState(clock.now());
  useEffect(() => {
    ticked.add(setNow);
    return () => ticked.delete(setNow);
  }, []);
  return now;
}

/** How long ago, or how long until then. */
export function Ago({ at, until = false }) {
  const now = useNow();
  if (!at) return null;
  const time = Date.parse(at);
  // Whole seconds: what changes with every draw is not read by anybody.
  const away = Math.max(1, Math.round(Math.abs(now - time) / 1_000)) * 1_000_000;
  const rough = away < 60_000_000 || until ? length(away) : length(away).split(" ").slice(0, 2).join(" ");
  const words = until && time > now ? `in ${rough}` : Math.abs(now - time) < 1_000 ? "just now" : `${rough} ago`;
  return html`<time datetime=${at} title=${at}>${words}</time>`;
}

/** How long something has lasted by now. */
export function Elapsed({ since }) {
  const now = useNow();
  return html`<span class="number" title=${since}>${length(Math.max(0, Math.round((now - Date.parse(since)) / 1_000)) * 1_000_000)}</span>`;
}

export function Progress({ progress }) {
  if (!progress) return null;
  const { unit, label } = progress;
  // An amount such as 12.0 is kept as it was written; for a bar its value is enough.
  const [current, total] = [progress.current, progress.total].map((amount) => (amount instanceof ExactNumber ? Number(amount.source) : amount));
  const bar = typeof current === "number" && typeof total === "number" && total > 0;
  const numbers = current === undefined || current === null ? "" : bar ? `${current} of ${total}` : String(current);
  return html`<span class="progress">
    ${bar && html`<progress value=${current} max=${total} aria-label="Progress"></progress>`}
    <span>${numbers} ${text(String(unit ?? ""))} ${text(String(label ?? ""))}</span>
  </span>`;
}

/** An empty block says why, and what to paste. */
export function Empty({ children, paste }) {
  return html`<div class="empty"><p>${children}</p>${paste && html`<${Paste} line=${paste} />`}</div>`;
}

/** The data folder, once the server has said where it is: commands to paste name it. */
export const folder = { data: "" };

export function Paste({ line: command }) {
  const { act, told } = useAct();
  const line = folder.data && command.startsWith("windlass ") ? `${command} --data ${folder.data}` : command;
  return html`<div class="paste"><code>${text(line)}</code>
    <button onClick=${() => act(() => navigator.clipboard.writeText(line), "Copied.")}>Copy</button>${told}</div>`;
}

/** A heading of a card, one level below what it stands under. */
export const Heading = ({ level, children }) => h(`h${level}`, { class: "card-title" }, children);

/** A block with a heading. */
export function Block({ title, count, more, children, id }) {
  return html`<section class="block" aria-labelledby=${id}>
    <h2 id=${id}>${title}${count !== undefined && html` <span class="count">${count}</span>`}${more}</h2>
    ${children}
  </section>`;
}
