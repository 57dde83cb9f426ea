// The first screen: what waits for you, what runs, and the latest batches.
import { Ago, Block, Elapsed, Empty, doing, folder, html, isOver, Link, Loaded, Progress, short, standing, State, useLoad, useState, useEffect } from "./ui.js";
import { get, path } from "./api.js";
import { loadWaiting, WaitingList } from "./people.js";
import { MiniTimeline } from "./timeline.js";
import { text } from "./text.js";

const WAITING_SHOWN = 5;

const OPEN_SHOWN = 50;

/** Tools of a batch that are named in its row. */
const TOOLS_SHOWN = 3;

/** The overview. The frame loads it for the menu, and gives it to the first screen. @param {boolean} [off] */
export const useOverview = (off) => useLoad(async (signal) => {
  const found = await get("/v1/overview", signal);
  folder.data = found.data ?? "";
  return found;
}, [], { off });

export function Now({ overview: given }) {
  const own = useOverview(!!given);
  const overview = given ?? own;
  const waiting = useLoad(loadWaiting(), []);
  const open = useLoad((signal) => get(`/v1/calls?state=open&limit=${OPEN_SHOWN}`, signal), []);
  const waits = Math.max(overview.data?.waiting ?? 0, waiting.data?.items.length ?? 0);
  const opened = Math.max(Object.values(overview.data?.open ?? {}).reduce((sum, count) => sum + count, 0), open.data?.items.length ?? 0);
  return html`<h1 tabindex="-1">Now</h1>
    <${Loaded} from=${overview}>${(now) => html`<${Strip} now=${now} />`}</${Loaded}>
    <${Block} id="waits" title="Waits for you" count=${waiting.data && waits}>
      <${Loaded} from=${waiting}>${(page) => html`<${WaitingList} items=${page.items.slice(0, WAITING_SHOWN)} again=${waiting.again} />
        ${page.items.length > WAITING_SHOWN && html`<p><${Link} to="/ui/waiting">all ${waits.toLocaleString("en")} that wait</${Link}></p>`}`}</${Loaded}>
    </${Block}>
    <${Block} id="open" title="Open calls" count=${open.data && opened}>
      <${Loaded} from=${open}>${(page) => html`<${OpenCalls} calls=${page.items} />
        ${page.next && html`<p><${Link} to="/ui/calls?state=open">all ${opened.toLocaleString("en")} open calls</${Link}></p>`}`}</${Loaded}>
    </${Block}>
    <${Block} id="latest" title="Latest batches">
      <${Loaded} from=${overview}>${(now) => html`<${Latest} batches=${now.latest} />`}</${Loaded}>
    </${Block}>`;
}

function Strip({ now }) {
  const fact = (name, value) => value && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  const counts = Object.entries(now.open);
  return html`<dl class="strip">
    ${fact("Open", counts.length ? counts.map(([state, count]) => html`<${State} state=${state} count=${count} /> `) : "nothing")}
    ${fact("Durability", html`<span title="What an acknowledged call survives">${text(now.durability)}</span>`)}
    ${fact("Data", now.data && html`<code>${text(now.data)}</code>`)}
    ${fact("Worker", now.worker && html`<code>${text(now.worker.slice(0, 8))}</code>`)}
    ${fact("Version", text(now.version))}
    ${fact("You", html`${text(now.principal)}`)}
    ${now.draining && fact("Server", html`<strong>is stopping</strong>`)}
    ${fact("Left out", now.left_out && text(now.left_out))}
  </dl>`;
}

function OpenCalls({ calls }) {
  if (calls.length === 0) {
    return html`<${Empty} paste=${`windlass call sleep '{"ms": 5000}'`}>No call is open. What runs or waits is shown here, with what it does and for how long.</${Empty}>`;
  }
  return html`<ul class="rows" aria-label="Open calls">${calls.map((call) => html`<li key=${call.call}><${OpenCall} call=${call} /></li>`)}</ul>`;
}

function OpenCall({ call }) {
  return html`<${Link} class="row" to=${path`/ui/calls/${call.call}`}>
    <span class="main"><strong>${text(call.tool)}</strong> <span class="quiet">${text(call.id)} · ${text(call.session ?? "")}</span></span>
    <span class="cell"><${State} state=${standing(call)} /></span>
    <span class="why">${doing(call)} <${Progress} progress=${call.progress} /></span>
    <span class="end"><${Elapsed} since=${call.opened_at} /></span>
  </${Link}>`;
}

export function Latest({ batches }) {
  if (batches.length === 0) {
    return html`<${Empty} paste=${`windlass call add '{"a": 19, "b": 23}'`}>No batch was submitted yet. Each is shown here as one line of time.</${Empty}>`;
  }
  return html`<ul class="rows" aria-label="Latest batches">${batches.map((batch) => html`<li key=${batch.session + "/" + batch.key}><${BatchRow} batch=${batch} /></li>`)}</ul>`;
}

/** A batch as one line. What is over does not change, so it is loaded once. */
export function BatchRow({ batch, here = false }) {
  const over = Object.keys(batch.states).every(isOver);
  const [calls, setCalls] = useState(null);
  const states = Object.entries(batch.states);
  const mark = over ? "over" : JSON.stringify(batch);
  useEffect(() => {
    const stop = new AbortController();
    get(path`/v1/sessions/${batch.session}/batches/${batch.key}` + "?spans=true", stop.signal)
      .then((found) => stop.signal.aborted || setCalls(found.calls))
      .catch(() => {});
    return () => stop.abort();
  }, [batch.session, batch.key, mark]);
  return html`<${Link} class="row batch" to=${path`/ui/sessions/${batch.session}/batches/${batch.key}`}>
    <span class="main"><strong>${batch.tools.slice(0, TOOLS_SHOWN).map((tool, place) => [place > 0 && ", ", ...text(tool)])}</strong>${batch.tools.length > TOOLS_SHOWN && ` and ${batch.tools.length - TOOLS_SHOWN} more`} <span class="quiet">${text(here ? short(batch.key) : batch.session)}</span></span>
    <span class="states">${states.map(([state, count]) => html`<${State} state=${state} count=${count} /> `)}</span>
    ${calls ? html`<${MiniTimeline} calls=${calls} />` : html`<span class="mini"></span>`}
    <span class="quiet end"><${Ago} at=${batch.opened_at} /></span>
  </${Link}>`;
}
