// Everything that waits for a person, and the answers.
import { Ago, Decide, Empty, Heading, html, Link, Loaded, Outside, useAct, useEffect, useLoad, useRef, useState } from "./ui.js";
import { at, ExactNumber, isExact, Json, parse, print } from "./json.js";
import { get, path, query, send } from "./api.js";
import { initial, ValueEditor } from "./form.js";
import { Text, text } from "./text.js";

const KINDS = { approval: "Approve?", question: "Question", connection: "Connect", tool_changed: "The tool has changed", unknown: "Did it happen?" };

/** So many are shown at first, and so many more each time. */
const WAITING_PAGE = 100;
const WAITING_PAGES_MAX = 10;

/** What waits, the nearest deadline first, as the server orders it. @param {number} [pages] */
export const loadWaiting = (pages = 1) => async (signal) => {
  let page = await get("/v1/waiting" + query({ limit: WAITING_PAGE }), signal);
  for (let more = 1; more < pages && page.next; more += 1) {
    const { items, next } = await get("/v1/waiting" + query({ limit: WAITING_PAGE, after: page.next }), signal);
    page = { items: [...page.items, ...items], next };
  }
  return page;
};

export function Waiting() {
  const [pages, setPages] = useState(1);
  const waiting = useLoad(loadWaiting(pages), [pages]);
  return html`<h1 tabindex="-1">Waits for you</h1><${Loaded} from=${waiting}>${(page) => html`<${WaitingList} items=${page.items} again=${waiting.again} level=${2} />
    ${page.next && html`<p>These have the nearest deadlines; more wait. ${pages < WAITING_PAGES_MAX ? html`<button onClick=${() => setPages(pages + 1)}>Show ${WAITING_PAGE} more</button>` : "They come here as these are answered."}</p>`}`}</${Loaded}>`;
}

/** An approval stays the same card if its call is asked for anew: then the card says what has changed. */
const keyOf = (item) => (item.kind === "approval" ? `approval of ${item.call}` : item.id);

/** The list does not move under the pointer: while the pointer is over it, what is new comes at the end. */
export function WaitingList({ items, again, level = 3 }) {
  const order = useRef([]);
  const over = useRef(false);
  const ids = items.map((item) => item.id);
  if (over.current) {
    const known = order.current.filter((id) => ids.includes(id));
    order.current = [...known, ...ids.filter((id) => !known.includes(id))];
  } else {
    order.current = ids;
  }
  const sorted = order.current.map((id) => items[ids.indexOf(id)]);
  if (sorted.length === 0) {
    return html`<${Empty} paste="windlass waiting">Nothing waits for a person. Approvals, questions, missing connections, changed tools and calls with an unknown outcome come here.</${Empty}>`;
  }
  return html`<ul class="waiting" aria-label="Waits for you" onPointerEnter=${() => (over.current = true)} onPointerLeave=${() => (over.current = false)}>
    ${sorted.map((item) => html`<li key=${keyOf(item)}><${WaitingItem} item=${item} again=${again} level=${level} /></li>`)}
  </ul>`;
}

function WaitingItem({ item, again, level }) {
  const answer = { approval: Approval, question: Question, connection: Connection, tool_changed: Changed, unknown: Unknown }[item.kind];
  return html`<article class="card you" aria-label=${`${KINDS[item.kind] ?? item.kind} ${item.tool}`}>
    <header>
      <${Heading} level=${level}>${KINDS[item.kind] ?? text(item.kind)} <code>${text(item.tool)}</code></${Heading}>
      <p class="quiet">
        <${Link} to=${path`/ui/calls/${item.call}`}>call ${text(item.call_id)}</${Link}> in
        ${" "}<${Link} to=${path`/ui/sessions/${item.session}`}>${text(item.session)}</${Link}>${item.principal && html`, of ${text(item.principal)}`},
        asked <${Ago} at=${item.since} />${item.until && html`, expires <${Ago} at=${item.until} until=${true} />`}
      </p>
    </header>
    ${answer && html`<${answer} item=${item} again=${again} />`}
  </article>`;
}

function Approval({ item, again }) {
  const { act, busy, error, told, reset } = useAct();
  const [edited, setEdited] = useState(undefined);
  const [editing, setEditing] = useState(false);
  const [reason, setReason] = useState("");
  const [remember, setRemember] = useState(false);
  const schema = useLoad(async (signal) => (await get(path`/v1/tools/${item.tool}`, signal)).input_schema ?? null, [item.tool], { live: false });
  // Nobody approves what was not on the screen: of an item that has changed, the difference is shown first.
  const [shown, setShown] = useState(item);
  const isStale = error?.code === "stale_digest" || shown.digest !== item.digest;
  const decide = (body, done) => act(async () => {
    try {
      await send(path`/v1/approvals/${item.id}`, { digest: shown.digest, ...body });
    } finally {
      again();
    }
  }, done);
  const approve = () => decide({ decision: "approve", args: editing ? edited : undefined, remember: remember ? {} : undefined }, "Approved.");
  const look = () => {
    setShown(item);
    setEditing(false);
    setEdited(undefined);
    reset();
  };
  if (isStale) return html`<${Stale} shown=${shown} item=${item} look=${look} />`;
  return html`<div>
    <p class="why">${askers(item.rules)}${item.reason && html`: ${text(item.reason)}`}${item.four_eyes && " Another person than the caller must approve."}</p>
    ${editing
      ? html`<${ValueEditor} schema=${schema.data} value=${edited} onEdit=${setEdited} /><${Difference} id=${item.id} asked=${edited} before=${item.args} after=${edited} />`
      : html`<div class="args"><${Json} value=${item.args} /></div>`}
    <div class="actions">
      <${Decide} kind="good" busy=${busy || (editing && edited === undefined)} onPress=${approve}>${editing ? "Approve with these arguments" : "Approve"}</${Decide}>
      ${isExact && html`<button aria-pressed=${editing} onClick=${() => (setEdited(editing ? undefined : item.args), setEditing(!editing))}>${editing ? "Do not edit" : "Edit"}</button>`}
      <label class="check"><input type="checkbox" checked=${remember} onChange=${(event) => setRemember(event.target.checked)} /> remember for this session</label>
      <label class="inline reason">Reason <input value=${reason} onInput=${(event) => setReason(event.target.value)} placeholder="for the model" /></label>
      <${Decide} kind="bad" busy=${busy} onPress=${() => decide({ decision: "deny", reason: reason || undefined }, "Denied.")}>Deny</${Decide}>
    </div>
    ${told}
  </div>`;
}

/** Who asks: rules of the policy by name, or the tool. */
function askers(rules) {
  const named = (rules ?? []).filter((rule) => rule !== "the tool asks");
  if (named.length === 0) return "The tool asks for it";
  return html`Asked by ${named.length === 1 ? "the rule" : "the rules"} ${named.map((rule, place) => html`${place > 0 && ", "}<code>${text(rule)}</code>`)}`;
}

/** What would run is not what was shown: the difference, before anybody decides again. */
function Stale({ shown, item, look }) {
  const isNew = shown.digest !== item.digest;
  return html`<div><p class="wrong" role="alert">What would run has changed since it was shown here. Nothing was decided.</p>
    ${isNew
      ? html`<${Difference} id=${item.id} asked=${shown.args} before=${shown.args} after=${item.args} words=${["What has changed", "Was shown", "Would run now"]} same="The arguments are the same: the tool has changed, or the rule that asks." />
          <div class="actions"><button onClick=${look}>Go on with what would run now</button></div>`
      : html`<p class="quiet" aria-busy="true">Loading what would run now…</p>`}</div>`;
}

/** What an edit changes. */
const EDIT = ["Differences", "Before", "After"];

/** Where arguments that are `asked` about differ from those that would run, as the server sees it. */
function Difference({ id, asked, before, after, words = EDIT, same = "Nothing is changed." }) {
  const [preview, setPreview] = useState(null);
  const source = asked === undefined ? "" : print(asked);
  useEffect(() => {
    if (!source) return;
    let over = false;
    const timer = setTimeout(async () => {
      try {
        const told = await send(path`/v1/approvals/${id}/preview`, { args: parse(source) });
        if (!over) setPreview({ ...told, of: source });
      } catch (error) {
        if (!over) setPreview({ valid: false, problem: error.message, differences: [], of: source });
      }
    }, 200);
    return () => ((over = true), clearTimeout(timer));
  }, [id, source]);
  if (!preview || preview.of !== source) return html`<p class="quiet" aria-live="polite">${source && "Comparing…"}</p>`;
  const value = (value) => (value === undefined ? html`<em>nothing</em>` : typeof value === "object" && value !== null && !(value instanceof ExactNumber) ? html`<${Json} value=${value} />` : html`<code>${text(print(value))}</code>`);
  return html`<div class="difference" aria-live="polite">
    ${preview.problem && html`<p class="wrong"><${Text} value=${preview.problem} /></p>`}
    ${preview.differences.length === 0
      ? !preview.problem && html`<p class="quiet">${same}</p>`
      : html`<table class="plain"><caption>${words[0]}</caption><thead><tr><th>Where</th><th>${words[1]}</th><th>${words[2]}</th></tr></thead>
          <tbody>${preview.differences.map((pointer) => html`<tr key=${pointer}><td><code>${text(pointer || "(all)")}</code></td><td class="before">${value(at(before, pointer))}</td><td class="after">${value(at(after, pointer))}</td></tr>`)}</tbody></table>`}
  </div>`;
}

function Question({ item, again }) {
  const { act, busy, told } = useAct();
  const [answer, setAnswer] = useState(() => (item.schema ? initial(item.schema) : ""));
  return html`<div><${Text} value=${item.text} />
    <${ValueEditor} schema=${item.schema ?? { type: "string" }} value=${answer} onEdit=${setAnswer} label="Answer" />
    <div class="actions"><${Decide} kind="good" busy=${busy || answer === undefined} onPress=${() => act(async () => (await send(path`/v1/questions/${item.id}`, { answer }), again()), "Answered.")}>Answer</${Decide}></div>${told}</div>`;
}

function Connection({ item, again }) {
  const { act, busy, told } = useAct();
  const say = (connected) => act(async () => (await send(path`/v1/sessions/${item.session}/connections/${item.provider}`, { connected }), again()));
  const address = /https?:\/\/\S+/.exec(item.text)?.[0];
  return html`<div><${Text} value=${item.text} />${address && html`<p><${Outside} url=${address} /></p>`}
    <div class="actions"><${Decide} kind="good" busy=${busy} onPress=${() => say(true)}>It is connected</${Decide}><${Decide} kind="bad" busy=${busy} onPress=${() => say(false)}>Decline</${Decide}></div>${told}</div>`;
}

function Changed({ item, again }) {
  const { act, busy, told } = useAct();
  return html`<div><${Text} value=${item.text} />
    <div class="actions"><${Decide} kind="good" busy=${busy} onPress=${() => act(async () => (await send(path`/v1/calls/${item.call}/accept`), again()), "Accepted.")}>Accept the changed tool</${Decide}></div>${told}</div>`;
}

/** Says whether a call with an unknown outcome took effect. */
export function Unknown({ item, again }) {
  const { act, busy, told } = useAct();
  const [landed, setLanded] = useState(null);
  const resolve = (body) => act(async () => (await send(path`/v1/calls/${item.call}/resolve`, body), again()), "Resolved.");
  return html`<div>${item.text && html`<${Text} value=${item.text} />`}
    <details><summary>It took effect, with this result</summary>
      <${ValueEditor} value=${landed} onEdit=${setLanded} label="Result" />
      <${Decide} kind="good" busy=${busy || landed === undefined} onPress=${() => resolve({ landed })}>It took effect</${Decide}></details>
    <div class="actions"><${Decide} busy=${busy} onPress=${() => resolve({ did_not_happen: true })}>It did not happen</${Decide}>
      <${Decide} busy=${busy} onPress=${() => resolve({ ask_tool: true })}>Ask the tool</${Decide}></div>${told}</div>`;
}
