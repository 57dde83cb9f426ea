// Calls: the list with its filters, one call, and one batch.
import { Ago, Block, Decide, doing, Empty, ending, go, html, isOver, Link, Loaded, ms, Progress, short, standing, State, useAct, useLoad, useState, Why } from "./ui.js";
import { usePages, VirtualRows } from "./lists.js";
import { get, path, query, send } from "./api.js";
import { SpanTable, Timeline } from "./timeline.js";
import { Json } from "./json.js";
import { Text, text } from "./text.js";
import { Unknown } from "./people.js";

const FILTERS = ["", "open", "queued", "running", "retrying", "awaiting_approval", "awaiting_input", "awaiting_connection", "awaiting_completion", "awaiting_client", "succeeded", "failed", "denied", "cancelled", "unknown"];

/** The names of the columns, for the eye; each row says what it is by itself. */
export const CallsHead = () => html`<div class="row head" aria-hidden="true"><span class="main">Tool, call, session</span><span class="cell">State</span><span class="why">Why</span><span class="end">Ran</span><span class="end">Asked</span></div>`;

/** @param {{call: any, here?: boolean}} props `here`: on the screen of its session. */
export function CallRow({ call, here = false }) {
  return html`<${Link} class="row" to=${path`/ui/calls/${call.call}`}>
    <span class="main"><strong>${text(call.tool)}</strong> <span class="quiet">${text(call.id)}${!here && html` · ${text(call.session ?? "")}`}</span></span>
    <span class="cell"><${State} state=${standing(call)} /></span>
    <span class="why">${isOver(call.state) ? ending(call) : doing(call)}</span>
    <span class="number quiet end">${isOver(call.state) && ms(call.ran_ms)}</span>
    <span class="quiet end"><${Ago} at=${call.opened_at} /></span>
  </${Link}>`;
}

export function Calls({ query: asked }) {
  const filter = { state: asked.get("state") ?? "", tool: asked.get("tool") ?? "", session: asked.get("session") ?? "" };
  const base = filter.session ? path`/v1/sessions/${filter.session}/calls` : "/v1/calls";
  const wanted = { state: filter.state, tool: filter.tool };
  const pages = usePages((after) => (signal) => get(base + query({ ...wanted, limit: 100, after }), signal), [base, filter.state, filter.tool], { id: (call) => call.call, session: filter.session || undefined });
  const set = (change) => go("/ui/calls" + query({ ...filter, ...change }), { replace: true });
  return html`<h1 tabindex="-1">Calls</h1>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>State <select value=${filter.state} onChange=${(event) => set({ state: event.target.value })}>${FILTERS.map((state) => html`<option value=${state}>${state ? state.replaceAll("_", " ") : "all"}</option>`)}</select></label>
      <label>Tool <${FilterInput} id="search" value=${filter.tool} onSet=${(tool) => set({ tool })} placeholder="exact name" /></label>
      <label>Session <${FilterInput} value=${filter.session} onSet=${(session) => set({ session })} placeholder="all" /></label>
      <button type="button" aria-pressed=${filter.state === "failed"} onClick=${() => set({ state: filter.state === "failed" ? "" : "failed" })}>Only failed</button>
    </form>
    <${Loaded} from=${pages.first}>${(first) => html`
      ${first.left_out && html`<p class="quiet">${text(first.left_out)}</p>`}
      ${pages.items.length === 0
        ? html`<${Empty} paste=${`windlass call echo '{"message": "hello"}'`}>No call fits${pages.next ? " among the latest ones; there are older ones" : ""}.</${Empty}>`
        : html`<p class="quiet" role="status">${pages.items.length}${pages.next && "+"} calls, newest first</p>`}
      ${pages.items.length > 0 && html`<${CallsHead} />`}
      <${VirtualRows} label="Calls" row=${(call) => html`<${CallRow} call=${call} />`} ...${pages} moreWords=${filter.state || filter.tool ? "Look further back" : undefined} />${pages.told}`}</${Loaded}>`;
}

/** A field whose draft stays while the list below is drawn again; it counts once it is left or Enter is pressed. */
function FilterInput({ value, onSet, ...rest }) {
  const [draft, setDraft] = useState({ of: value, words: value });
  const words = draft.of === value ? draft.words : value;
  return html`<input ...${rest} value=${words} onInput=${(event) => setDraft({ of: value, words: event.target.value })} onChange=${(event) => onSet(event.target.value.trim())} />`;
}

export function Batch({ session, batch }) {
  const found = useLoad((signal) => get(path`/v1/sessions/${session}/batches/${batch}` + "?spans=true", signal), [session, batch], { session });
  const { act, busy, told } = useAct();
  const cancel = () => act(async () => (await send(path`/v1/sessions/${session}/batches/${batch}/cancel`), found.again()), "Asked to cancel.");
  return html`<h1 tabindex="-1" title=${batch}>Batch ${text(short(batch))}</h1>
    <p class="quiet">in <${Link} to=${path`/ui/sessions/${session}`}>${text(session)}</${Link}></p>
    <${Loaded} from=${found}>${(whole) => html`
      ${whole.decided && html`<${Decided} decided=${whole.decided} />`}
      <${Timeline} calls=${whole.calls} decided=${whole.decided} />
      ${whole.calls.some((call) => !isOver(call.state)) && html`<div class="actions"><${Decide} kind="bad" busy=${busy} onPress=${cancel}>Cancel the open calls</${Decide}></div>`}${told}`}</${Loaded}>`;
}

const NEEDS = { race: "A race, in which the first success counts", fail_fast: "All calls must succeed" };

/** The rule by which the calls of a batch need each other, and what came of it. */
function Decided({ decided }) {
  const winners = decided.winners ?? [];
  return html`<p>${NEEDS[decided.siblings] ?? `${decided.siblings?.quorum ?? "Some"} of the calls must succeed`}: <strong>${text(String(decided.decision ?? "not decided yet").replaceAll("_", " "))}</strong>${winners.length > 0 && html` · ${winners.length === 1 ? "winner" : "winners"}: ${winners.map((id) => html`<code>${text(String(id))}</code> `)}`}</p>`;
}

export function Call({ call }) {
  const [session, setSession] = useState(undefined);
  const found = useLoad(async (signal) => {
    const whole = await get(path`/v1/calls/${call}` + "?journal=true&spans=true", signal);
    setSession(whole.session);
    return whole;
  }, [call], { session });
  const title = found.data ? html`${text(found.data.tool)} <span class="quiet">${text(found.data.id)}</span>` : "Call";
  return html`<h1 tabindex="-1">${title}</h1><${Loaded} from=${found}>${(whole) => html`<${WholeCall} call=${whole} again=${found.again} />`}</${Loaded}>`;
}

function WholeCall({ call, again }) {
  const { act, busy, told } = useAct();
  const failure = call.outcome?.failure;
  const cancel = () => act(async () => (await send(path`/v1/calls/${call.call}/cancel`), again()), "Asked to cancel.");
  const accept = () => act(async () => (await send(path`/v1/calls/${call.call}/accept`), again()), "Accepted.");
  const over = isOver(call.state);
  // The failure that is behind a wait for the next attempt.
  const last = call.state === "retrying" && call.journal?.findLast((line) => /^(returned|stopped|aborted|lost)$/.test(line.kind));
  const repeat = `/ui/tools/${encodeURIComponent(call.tool)}` + query({ from: call.call });
  return html`<p><${State} state=${standing(call)} /> ${call.waiting_for && html`<${Why} told=${call.waiting_for} />`} ${!over && !call.waiting_for && html`<span class="why">${doing(call)}</span>`} <${Progress} progress=${call.progress} /></p>
    <p class="quiet">in <${Link} to=${path`/ui/sessions/${call.session}`}>${text(call.session ?? "")}</${Link}>,
      ${" "}batch <${Link} to=${path`/ui/sessions/${call.session}/batches/${call.batch}`}>${text(short(call.batch ?? ""))}</${Link}> · asked <${Ago} at=${call.opened_at} /> · ${call.attempts} ${call.attempts === 1 ? "attempt" : "attempts"}
      ${over && call.ran_ms !== undefined && html` · queued ${ms(call.queued_ms)}, waited ${ms(call.waited_ms)}, ran ${ms(call.ran_ms)}`}
      ${call.parent && html` · made by <${Link} to=${path`/ui/calls/${call.parent}`}>another call</${Link}>`}${call.task && html` · <${Link} to=${path`/ui/sessions/${call.session}/tasks/${call.call}`}>task</${Link}>`}</p>
    ${last && html`<div class="wrong"><strong>Last failure:</strong> ${text(last.text)}</div>`}
    ${failure && html`<div class="wrong"><strong>${text(failure.code)}</strong> (${text(failure.class)}, from ${text(failure.source)})<${Text} value=${failure.message} />${failure.detail && html`<${Text} value=${failure.detail} />`}</div>`}
    ${call.state === "unknown" && html`<${Block} id="unknown" title="Did it happen?"><${Unknown} item=${{ call: call.call }} again=${again} /></${Block}>`}
    <div class="actions">
      ${!over && html`<${Decide} kind="bad" busy=${busy} onPress=${cancel}>Cancel</${Decide}>`}
      ${String(call.waiting_for ?? "").startsWith("tool_changed") && html`<${Decide} kind="good" busy=${busy} onPress=${accept}>Accept the changed tool</${Decide}>`}
      <${Link} class="button" to=${repeat}>Call again with these arguments</${Link}>${told}
    </div>
    <${Block} id="args" title=${call.edited_args === undefined ? "Arguments" : "Arguments, as they were given"}>${call.args === undefined ? html`<p class="quiet">They are recorded with the call's first entry.</p>` : typeof call.args === "string" ? html`<${Text} value=${call.args} />` : html`<div class="args"><${Json} value=${call.args} /></div>`}
      ${call.repairs?.length > 0 && html`<p>Repaired: ${call.repairs.map((repair) => html`<code>${text(typeof repair === "string" ? repair : JSON.stringify(repair))}</code> `)}</p>`}</${Block}>
    ${call.edited_args !== undefined && html`<${Block} id="edited" title="Arguments, as they run: a person has edited them"><div class="args"><${Json} value=${call.edited_args} /></div></${Block}>`}
    ${call.outcome && !failure && html`<${Block} id="outcome" title="Outcome"><div class="args"><${Json} value=${call.outcome} /></div></${Block}>`}
    <${Block} id="model" title="What the model is told">${(call.model?.parts ?? []).map((part) => (part.type === "text" ? html`<${Text} value=${part.text} />` : html`<${Json} value=${part} />`))}</${Block}>
    <${Block} id="spans" title="Time"><${Timeline} calls=${[call]} /><details><summary>In microseconds</summary><${SpanTable} spans=${call.spans ?? []} /></details></${Block}>
    <${Block} id="journal" title="Journal" count=${call.journal?.length}><${Journal} lines=${call.journal ?? []} /></${Block}>`;
}

function Journal({ lines }) {
  if (lines.length === 0) return html`<p class="quiet">Nothing is recorded yet: a call of class read is written with its result.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Journal"><table class="plain"><thead><tr><th>After</th><th>Kind</th><th>What happened</th></tr></thead><tbody>
    ${lines.slice(0, 500).map((line) => html`<tr key=${line.entry}><td class="number" title=${line.at}>${text(line.after)}</td><td class="number"><code>${text(line.kind)}</code></td><td style=${{ paddingLeft: `${(line.depth ?? 0) + 0.5}rem` }}>${text(line.text)}</td></tr>`)}
  </tbody></table></div>${lines.length > 500 && html`<p class="quiet">${lines.length - 500} more lines: <code>windlass calls CALL</code> shows them.</p>`}`;
}
