// Tasks, schedules and workers.
import { Ago, Block, Decide, Empty, go, Heading, html, length, Link, Loaded, Progress, State, useAct, useEffect, useLoad, useState, why, Wrong } from "./ui.js";
import { usePages, VirtualRows } from "./lists.js";
import { get, path, query, send } from "./api.js";
import { ValueEditor } from "./form.js";
import { isExact } from "./json.js";
import { Text, text } from "./text.js";
import { Timeline } from "./timeline.js";

/** Why a call goes on without its caller. */
const BY = { budget: "outlived its batch", queue: "waited longer than its caller", spawned: "started as a task", scheduled: "started by a schedule", triggered: "started by an event" };

/** What a task does or waits for; of one that has ended, what came of it. */
const told = (task) => (task.ended_at && !task.detail && task.summary ? ["result: ", ...text(task.summary)] : why(task.detail ?? task.summary ?? task.status ?? ""));

export function TaskRow({ task, here = false }) {
  const to = task.kind === "monitor" ? "/ui/schedules" : path`/ui/sessions/${task.session}/tasks/${task.task}`;
  return html`<${Link} class="row" to=${to}>
    <span class="main"><strong>${text(task.title)}</strong> ${!here && html`<span class="quiet">${text(task.session)}</span>`}</span>
    <span class="cell"><${State} state=${task.state} /></span>
    <span class="why">${told(task)} <${Progress} progress=${task.progress} /></span>
    <span class="quiet end"><${Ago} at=${task.updated_at} /></span>
  </${Link}>`;
}

const STATES = ["", "running", "retrying", "awaiting_approval", "awaiting_input", "awaiting_completion", "succeeded", "failed", "cancelled", "unknown"];

export function Tasks({ query: asked }) {
  const state = asked.get("state") ?? "";
  const pages = usePages((after) => (signal) => get("/v1/tasks" + query({ state, limit: 100, after }), signal), [state], { id: (task) => task.task });
  return html`<h1 tabindex="-1">Tasks</h1>
    <form class="filters"><label>State <select id="search" value=${state} onChange=${(event) => go("/ui/tasks" + query({ state: event.target.value }), { replace: true })}>${STATES.map((name) => html`<option value=${name}>${name ? name.replaceAll("_", " ") : "all"}</option>`)}</select></label></form>
    <${Loaded} from=${pages.first}>${() => html`${pages.items.length === 0 && html`<${Empty} paste="windlass tasks --help">No task. A call becomes one when it outlives its batch, or is started as one.</${Empty}>`}
      <${VirtualRows} label="Tasks" row=${(task) => html`<${TaskRow} task=${task} />`} ...${pages} />`}</${Loaded}>`;
}

export function Task({ session, task }) {
  const at = path`/v1/sessions/${session}/tasks/${task}`;
  const found = useLoad((signal) => get(at, signal), [session, task], { session });
  const log = useLog(at, session);
  const call = useLoad((signal) => get(path`/v1/calls/${task}` + "?spans=true", signal), [task], { session });
  const messages = useLoad((signal) => get(at + "/messages?limit=100", signal), [at], { session });
  const { act, busy, told: said } = useAct();
  const [words, setWords] = useState("");
  const say = () => act(async () => (await send(at + "/messages", { text: words }), setWords(""), messages.again()), "Sent.");
  const cancel = () => act(async () => (await send(at + "/cancel"), found.again()), "Asked to cancel.");
  return html`<h1 tabindex="-1">${text(found.data?.title ?? "Task")}</h1><${Loaded} from=${found}>${(task) => html`
    <p><${State} state=${task.state} /> <${Progress} progress=${task.progress} /> <span class="why">${told(task)}</span></p>
    <p class="quiet">task in <${Link} to=${path`/ui/sessions/${session}`}>${text(session)}</${Link}> · <${Link} to=${path`/ui/calls/${task.task}`}>its call</${Link}> · ${text(BY[task.by] ?? task.by)} · ${task.attempts} ${task.attempts === 1 ? "attempt" : "attempts"} · asked <${Ago} at=${task.opened_at} /></p>
    ${!task.ended_at && html`<div class="actions"><${Decide} kind="bad" busy=${busy} onPress=${cancel}>Cancel</${Decide}></div>`}${said}
    ${call.data?.spans?.length > 0 && html`<${Block} id="time" title="Time"><${Timeline} calls=${[call.data]} /></${Block}>`}
    <${Block} id="log" title="Log" count=${log.pieces.length}>${log.busy ? html`<p class="quiet" aria-busy="true">Loading…</p>` : log.pieces.length === 0 ? html`<p class="quiet">It has written nothing.</p>` : html`<${Log} pieces=${log.pieces} spans=${call.data?.spans ?? []} />`}</${Block}>
    <${Block} id="messages" title="Messages"><${Loaded} from=${messages}>${(page) => page.items.length === 0 ? html`<p class="quiet">No message was sent to it or by it.</p>` : html`<ul class="rows">${page.items.map((message) => html`<li class="card"><span class="quiet">${text(message.direction)} · <${Ago} at=${message.at} /></span><${Text} value=${message.text} /></li>`)}</ul>`}</${Loaded}>
      ${!task.ended_at && html`<div class="actions"><label class="inline">Message <input value=${words} onInput=${(event) => setWords(event.target.value)} /></label><button disabled=${busy || !words} onClick=${say}>Send</button></div>`}</${Block}>`}</${Loaded}>`;
}

/** The log, by attempt and stream. A piece belongs to the last attempt that had begun when it was written. */
function Log({ pieces, spans }) {
  const attempts = spans.filter((span) => span.kind === "attempt");
  const numbers = new Set(attempts.map((span) => span.attempt));
  const of = (piece) => attempts.findLast((span) => span.from_us <= Date.parse(piece.at) * 1_000 + 999)?.attempt ?? attempts[0]?.attempt;
  let before = undefined;
  const head = (piece) => {
    const attempt = of(piece);
    if (numbers.size < 2 || attempt === before) return null;
    before = attempt;
    return html`<h3 key=${"attempt" + piece.no}>Attempt ${attempt}</h3>`;
  };
  return html`<div class="log scroll" tabindex="0" role="log" aria-label="Log">${pieces.map((piece) => [head(piece), html`<div key=${piece.no} class=${"piece " + piece.stream}><span class="quiet">${text(piece.stream)}</span><${Text} value=${piece.text} /></div>`])}</div>`;
}

/** The log as far as it is written, and then what comes. */
function useLog(at, session) {
  const [pieces, setPieces] = useState([]);
  const last = pieces.at(-1)?.no;
  const more = useLoad((signal) => get(at + "/log" + query({ limit: 200, after: last }), signal), [at, last], { session });
  useEffect(() => {
    const fresh = (more.data?.items ?? []).filter((piece) => piece.no > (last ?? 0));
    if (fresh.length > 0) setPieces([...pieces, ...fresh].slice(-2_000));
  }, [more.data]);
  // Until the first piece is in its place, nobody knows whether there is one.
  return { pieces, busy: pieces.length === 0 && (more.busy || more.data?.items.length > 0) };
}

export function Schedules() {
  const found = useLoad((signal) => get("/v1/schedules?limit=200", signal), []);
  return html`<h1 tabindex="-1">Schedules</h1><${Loaded} from=${found}>${(page) => page.items.length === 0
    ? html`<${Empty} paste=${`windlass schedules create demo --cron '0 9 * * 1-5' --zone Europe/Berlin --tool sleep --args '{"ms": 10}'`}>No schedule. One starts a call at its times, as a task.</${Empty}>`
    : html`<ul class="waiting" aria-label="Schedules">${page.items.map((schedule) => html`<li key=${schedule.session + "/" + schedule.id}><${ScheduleCard} schedule=${schedule} again=${found.again} level=${2} /></li>`)}</ul>`}</${Loaded}>
    <${NewSchedule} again=${found.again} />`;
}

/** The next times that the server computes, each in the zone of its schedule. */
const Fires = ({ page }) => html`<ol class="fires" aria-label="Next times">${page.items.slice(0, 5).map((fire) => html`<li>${text(fireTime(fire.local))} <span class="quiet">(<${Ago} at=${fire.at} until=${true} />)</span></li>`)}</ol>`;

/** A schedule that does not exist yet: its times are shown while it is written, and it is made when somebody says so. */
function NewSchedule({ again }) {
  const [wanted, setWanted] = useState({ session: "dashboard", cron: "0 9 * * 1-5", zone: Intl.DateTimeFormat().resolvedOptions().timeZone, tool: "", title: "" });
  const [args, setArgs] = useState({});
  const { act, busy, told } = useAct();
  const { session, cron, zone, tool, title } = wanted;
  const settled = useSettled(JSON.stringify({ session, cron, zone }));
  const times = JSON.parse(settled);
  const fires = useLoad(() => send(path`/v1/sessions/${times.session}/schedules/preview`, { cron: times.cron, zone: times.zone }), [settled], { live: false });
  const make = () => act(async () => {
    await send(path`/v1/sessions/${session}/schedules`, { cron, zone, tool, args, title: title || undefined });
    again();
  }, "Made.");
  const isWhole = tool && session && args !== undefined && !fires.error;
  const field = (name, label, hint = "") => html`<label>${label}<input value=${wanted[name]} placeholder=${hint} spellcheck=${false} onInput=${({ target: { value } }) => setWanted((before) => ({ ...before, [name]: value }))} /></label>`;
  return html`<${Block} id="new" title="A new schedule"><div class="card">
    <div class="fields">${field("cron", "Times (cron)", "minute hour day month weekday")}${field("zone", "Zone", "Europe/Berlin")}${field("session", "Session")}${field("tool", "Tool", "its name")}${field("title", "Title", "optional")}</div>
    <div aria-live="polite">${fires.error ? html`<${Wrong} error=${fires.error} />` : fires.data && html`<p>It would run at</p><${Fires} page=${fires.data} />`}</div>
    ${isExact && html`<details><summary>Arguments</summary><${ValueEditor} value=${args} onEdit=${setArgs} /></details>`}
    <div class="actions">${isWhole ? html`<${Decide} kind="good" busy=${busy} onPress=${make}>Make it</${Decide}>` : html`<button disabled>Make it</button>`}${told}</div>
  </div></${Block}>`;
}

/** A text once nobody has changed it for a moment. */
function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 300);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** `2026-11-18T09:00:00+01:00` for people: the time of its own zone, whatever that of the reader is. */
function fireTime(local) {
  const found = /^(\d+-\d+-\d+)T(\d+:\d+)(:\d+)(.*)$/.exec(local);
  if (!found) return local;
  const day = new Date(found[1] + "T12:00:00Z").toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  return `${day}, ${found[2]}${found[3] === ":00" ? "" : found[3]} (UTC${/^(Z|\+00:00)$/.test(found[4]) ? "" : found[4]})`;
}

export function ScheduleCard({ schedule, again, level = 3, here = false }) {
  const { act, busy, told } = useAct();
  const times = { cron: schedule.cron, at: schedule.at, zone: schedule.zone };
  const fires = useLoad(() => send(path`/v1/sessions/${schedule.session}/schedules/preview`, times), [schedule.generation, schedule.enabled], { live: false });
  const set = () => act(async () => (await send(path`/v1/sessions/${schedule.session}/schedules/${schedule.id}`, { enabled: !schedule.enabled }, "PATCH"), again()), "");
  return html`<article class="card" aria-label=${"Schedule " + (schedule.title ?? schedule.tool)}>
    <${Heading} level=${level}>${text(schedule.title ?? schedule.tool)} <span class=${schedule.enabled ? "chip" : "chip off"}>${schedule.enabled ? "on" : "off"}</span></${Heading}>
    <p class="quiet"><code>${text(schedule.cron ?? schedule.at ?? "")}</code> in ${text(schedule.zone)} · calls <code>${text(schedule.tool)}</code>${!here && html` in <${Link} to=${path`/ui/sessions/${schedule.session}`}>${text(schedule.session)}</${Link}>`} · ran ${schedule.count}, skipped ${schedule.skipped}
      ${schedule.last && html` · last <${Ago} at=${schedule.last} />`}${schedule.last_task && html` · <${Link} to=${path`/ui/calls/${schedule.last_task}`}>last run</${Link}>`}</p>
    ${schedule.enabled && html`<${Loaded} from=${fires}>${(page) => html`<${Fires} page=${page} />`}</${Loaded}>`}
    <div class="actions"><button disabled=${busy} onClick=${set}>${schedule.enabled ? "Turn off" : "Turn on"}</button>${told}</div>
  </article>`;
}

export function Workers() {
  const found = useLoad((signal) => get("/v1/workers", signal), []);
  return html`<h1 tabindex="-1">Workers</h1><p class="quiet">The processes that drive calls on this store. A worker whose heartbeat stands still is declared dead, and others take its sessions.</p>
    <${Loaded} from=${found}>${(page) => html`<div class="scroll" tabindex="0" role="region" aria-label="Workers"><table class="plain"><thead><tr><th>Worker</th><th>State</th><th>Sessions</th><th>Heartbeat seen</th></tr></thead>
      <tbody>${page.items.map((worker) => html`<tr key=${worker.id}><td><code>${text(worker.id)}</code>${worker.this && html` <span class="chip">this one</span>`}</td><td><${State} state=${worker.state} /></td><td class="number">${worker.sessions}</td><td class="number">${worker.heartbeat_age_ms === undefined ? (worker.this ? "it answers" : "–") : `${length(worker.heartbeat_age_ms * 1_000)} ago`}</td></tr>`)}</tbody></table></div>`}</${Loaded}>`;
}
