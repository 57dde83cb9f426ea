// Sessions, and one session with all that belongs to it.
import { Ago, Block, Empty, html, Link, Loaded, useLoad } from "./ui.js";
import { usePages, VirtualRows } from "./lists.js";
import { get, path, query } from "./api.js";
import { BatchRow } from "./now.js";
import { CallRow } from "./calls.js";
import { ScheduleCard, TaskRow } from "./tasks.js";
import { Text, text } from "./text.js";

const Labels = ({ of }) => Object.entries(of.labels ?? {}).map(([name, value]) => html`<span class="chip">${text(name)}=${text(value)}</span> `);

export function Sessions() {
  const pages = usePages((after) => (signal) => get("/v1/sessions" + query({ limit: 100, after }), signal), [], { id: (session) => session.id });
  const row = (session) => html`<${Link} class="row" to=${path`/ui/sessions/${session.id}`}>
    <span class="main"><strong>${text(session.title ?? session.id)}</strong> ${session.title && html`<span class="quiet">${text(session.id)}</span>`}</span>
    <span class="labels"><${Labels} of=${session} /></span>
    <span class="end open">${session.open_batches > 0 && html`<span class="chip run">${session.open_batches} open</span>`}</span>
    <span class="quiet end">${session.principal && text(session.principal)}</span>
    <span class="quiet end">${(session.active_at ?? session.created_at) && html`<${Ago} at=${session.active_at ?? session.created_at} />`}</span>
  </${Link}>`;
  return html`<h1 tabindex="-1">Sessions</h1><${Loaded} from=${pages.first}>${() => pages.items.length === 0
    ? html`<${Empty} paste="windlass sessions">There is no session yet. The first call in one opens it.</${Empty}>`
    : html`<div class="row head" aria-hidden="true"><span class="main">Session</span><span class="labels">Labels</span><span class="end open">Batches</span><span class="end">Of</span><span class="end">Last used</span></div>
      <${VirtualRows} label="Sessions" ...${{ ...pages, row }} />`}</${Loaded}>`;
}

export function Session({ session }) {
  const only = { session };
  const found = useLoad((signal) => get(path`/v1/sessions/${session}`, signal), [session], only);
  const part = (name) => useLoad((signal) => get(path`/v1/sessions/${session}` + `/${name}?limit=20`, signal), [session], only);
  const [batches, calls, tasks] = [part("batches"), part("calls"), part("tasks")];
  const [schedules, triggers, inbox, files] = [part("schedules"), part("triggers"), part("inbox"), part("files")];
  const none = [];
  const list = (id, title, from, row, all = "") => {
    if (from.data?.items.length === 0 && !from.data.next) return void none.push(title.toLowerCase());
    return html`<${Block} id=${id} title=${title}><${Loaded} from=${from}>${(page) => html`<ul class="rows" aria-label=${title}>${page.items.map((item) => html`<li>${row(item)}</li>`)}</ul>
      ${page.next && html`<p class="quiet">${all ? html`<${Link} to=${all}>all ${title.toLowerCase()}</${Link}>` : html`There are more: <code>windlass ${id}</code> lists them.`}</p>`}`}</${Loaded}></${Block}>`;
  };
  const title = found.data?.title;
  return html`<h1 tabindex="-1">${title ? html`${text(title)} <span class="quiet">${text(session)}</span>` : html`Session ${text(session)}`}</h1>
    <${Loaded} from=${found}>${(about) => html`<p class="quiet"><${Labels} of=${about} />of ${text(about.principal ?? "nobody")} · ${about.entries} entries · ${about.open_batches > 0 ? `${about.open_batches} open ${about.open_batches === 1 ? "batch" : "batches"}` : "nothing open"}
      ${about.parent && html` · child of <${Link} to=${path`/ui/sessions/${about.parent}`}>${text(about.parent)}</${Link}>`}${about.folder && html` · files in <code>${text(about.folder)}</code>`}</p>`}</${Loaded}>
    ${list("batches", "Batches", batches, (batch) => html`<${BatchRow} batch=${batch} here=${true} />`)}
    ${list("calls", "Calls", calls, (call) => html`<${CallRow} call=${call} here=${true} />`, "/ui/calls" + query({ session }))}
    ${list("tasks", "Tasks", tasks, (task) => html`<${TaskRow} task=${{ ...task, session }} here=${true} />`)}
    ${list("schedules", "Schedules", schedules, (schedule) => html`<${ScheduleCard} schedule=${{ ...schedule, session }} again=${schedules.again} here=${true} />`)}
    ${list("triggers", "Triggers", triggers, (trigger) => html`<div class="row"><span class="main"><strong>${text(trigger.event)}</strong> → ${text(trigger.tool)}</span><span class="quiet">${text(trigger.id)}</span></div>`)}
    ${list("inbox", "Inbox", inbox, (notice) => html`<details class="notice"><summary><strong>${text(notice.title ?? notice.kind ?? "notice")}</strong> <span class="quiet">${text(String(notice.text ?? "").split("\n")[0].slice(0, 160))}</span></summary><${Text} value=${notice.text} /></details>`)}
    ${list("files", "Files", files, (file) => html`<div class="row"><span class="main"><code>${text(file.path ?? file.name)}</code></span><span class="quiet number">${file.bytes !== undefined && `${file.bytes} bytes`}</span></div>`)}
    ${none.length > 0 && html`<p class="quiet">It has no ${none.join(", ")}.</p>`}`;
}
