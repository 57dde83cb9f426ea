// Tools: the list, one tool with a form to check and run it, and the policy.
import { Ago, Block, Decide, Empty, go, html, Link, Loaded, useAct, useLoad, useState } from "./ui.js";
import { usePages, VirtualRows } from "./lists.js";
import { get, path, query, send } from "./api.js";
import { initial, ValueEditor } from "./form.js";
import { isExact, Json } from "./json.js";
import { Text, text } from "./text.js";

export function Tools() {
  const pages = usePages((after) => (signal) => get("/v1/tools" + query({ limit: 200, after }), signal), [], { id: (tool) => tool.name, live: false });
  const row = (tool) => html`<${Link} class="row tool" to=${path`/ui/tools/${tool.name}`}>
    <span class="main"><strong>${text(tool.name)}</strong></span>
    <span class="cell">${tool.paused && html`<span class="chip off">paused</span> `}${tool.class && html`<span class="chip">${text(tool.class)}</span>`}${tool.approval && tool.approval !== "never" && html` <span class="chip you">asks</span>`}</span>
    <span class="why">${text(tool.description.split("\n")[0].slice(0, 400))}</span>
  </${Link}>`;
  return html`<h1 tabindex="-1">Tools</h1><${Loaded} from=${pages.first}>${() => pages.items.length === 0
    ? html`<${Empty} paste="windlass init">No tool is registered. Declare one in windlass.toml.</${Empty}>`
    : html`<div class="row tool head" aria-hidden="true"><span class="main">Tool</span><span class="cell">Class</span><span class="why">What it does</span></div>
      <${VirtualRows} label="Tools" ...${{ ...pages, row }} />`}</${Loaded}>`;
}

export function Tool({ tool: name, query: asked }) {
  const found = useLoad((signal) => get(path`/v1/tools/${name}`, signal), [name], { live: false });
  const from = asked.get("from");
  const given = useLoad(async (signal) => (from ? await get(path`/v1/calls/${from}`, signal) : null), [from], { live: false });
  return html`<h1 tabindex="-1">${text(name)}</h1><${Loaded} from=${found}>${(tool) => html`<${ToolAbout} tool=${tool} again=${found.again} />
    ${(!from || given.data !== undefined || given.error) && html`<${TryOut} key=${from} tool=${tool} given=${given.data?.args} session=${given.data?.session} />`}`}</${Loaded}>`;
}

function ToolAbout({ tool, again }) {
  const { act, busy, told } = useAct();
  const pause = () => act(async () => (await send(path`/v1/tools/${tool.name}` + (tool.paused ? "/resume" : "/pause")), again()), "");
  return html`<p>${tool.title !== tool.name && html`<strong>${text(tool.title)}</strong> · `}${tool.paused && html`<span class="chip off">paused</span> `}${tool.class && html`<span class="chip">${text(tool.class)}</span> ${tool.flags.map((flag) => html`<span class="chip">${text(flag)}</span> `)}`}</p>
    <p><${Text} value=${tool.description} pre=${false} /></p>
    ${tool.class && html`<${Facts} tool=${tool} />`}
    <div class="actions"><${Decide} busy=${busy} onPress=${pause}>${tool.paused ? "Resume" : "Pause"}</${Decide}>${told}</div>
    ${tool.class && html`<details><summary>Contract</summary><div class="args"><${Json} value=${tool} /></div></details>`}`;
}

/** What the classes promise. */
const CLASSES = { read: "reads, may run again", once: "takes effect once, and never runs again by itself", keyed: "may run again under its key", stepped: "goes on behind its last step" };
const ASKS = { never: "no, unless the policy does", ask: "always", by_args: "for some arguments" };

function Facts({ tool }) {
  const fact = (name, value) => value && html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`<dl class="strip">
    ${fact("Class", html`<code>${text(tool.class)}</code> ${CLASSES[tool.class] ?? ""}`)}
    ${fact("Asks first", ASKS[tool.approval] ?? text(String(tool.approval ?? "")))}
    ${fact("From", text(String(tool.source ?? "")))}
    ${fact("Claims", tool.claims ? (tool.claims.length > 0 ? tool.claims.map((claim) => html`<code>${text(claim)}</code> `) : "none") : "the whole session")}
    ${fact("Version", tool.version && text(String(tool.version)))}
  </dl>`;
}

function TryOut({ tool, given, session: before }) {
  const schema = tool.input_schema ?? { type: "object" };
  const [args, setArgs] = useState(() => (given !== undefined && typeof given !== "string" ? given : initial(schema)));
  const [session, setSession] = useState(before ?? "dashboard");
  const [check, setCheck] = useState(null);
  const { act, busy, told } = useAct();
  const [call, setCall] = useState(null);
  if (!isExact) return html`<${ValueEditor} />`;
  const ask = () => act(async () => setCheck(await send(path`/v1/tools/${tool.name}/check`, { args })), "");
  const run = () => act(async () => {
    const batch = { calls: [{ id: "from-dashboard", tool: tool.name, args }], wait: "none" };
    const answer = await send(path`/v1/sessions/${session}/batches`, batch);
    setCall(answer.calls[0]);
    go(path`/ui/calls/${answer.calls[0].call}`);
  });
  return html`<${Block} id="try" title="Call it">
    <${ValueEditor} schema=${schema} value=${args} onEdit=${(edited) => (setArgs(edited), setCheck(null))} />
    <div class="actions">
      <button disabled=${busy || args === undefined} onClick=${ask}>Check</button>
      <label class="inline">in session <input value=${session} onInput=${(event) => setSession(event.target.value)} /></label>
      <${Decide} kind="good" busy=${busy || args === undefined || !session} onPress=${run}>Run</${Decide}>
    </div>${told}
    <div aria-live="polite">${check && html`<${Checked} check=${check} />`}</div></${Block}>`;
}

function Checked({ check }) {
  const policy = check.policy;
  return html`<div class="card">
    <p>${check.valid ? html`<span class="state good">✓ the arguments fit</span>` : html`<span class="state bad">✕ the arguments do not fit</span>`} ${policy && html` · the policy says <strong>${text(policy.ruling)}</strong>${policy.by.length > 0 && html` (${text(policy.by.join(", "))})`}${policy.reason && html`: ${text(policy.reason)}`}`}</p>
    ${check.problem && html`<${Text} value=${check.problem} />`}
    ${check.repairs.length > 0 && html`<ul>${check.repairs.map((repair) => html`<li>${text(repair)}</li>`)}</ul><p>It would run with</p><div class="args"><${Json} value=${check.args} /></div>`}
  </div>`;
}

export function Policy() {
  const found = useLoad((signal) => get("/v1/policy", signal), [], { live: false });
  return html`<h1 tabindex="-1">Policy</h1><${Loaded} from=${found}>${(policy) => html`
    <p class="quiet">Version ${policy.version}, by ${text(policy.by)}, <${Ago} at=${policy.at} />. Every rule that matches counts, and the strictest wins.</p>
    ${policy.broken && html`<p class="wrong">The policy is broken, so everything is denied: ${text(policy.broken)}</p>`}
    <${Rules} title="Declared in windlass.toml" id="declared" rules=${policy.declared} />
    <${Rules} title="Set through the API" id="set" rules=${policy.rules} />
    <${Check} />`}</${Loaded}>`;
}

function Rules({ title, id, rules }) {
  return html`<${Block} id=${id} title=${title} count=${rules.length}>${rules.length === 0 ? html`<p class="quiet">None.</p>` : html`<ul class="waiting">${rules.map((rule) => html`<li class="card"><h3>${text(String(rule.name ?? "rule"))} <span class=${"chip " + ({ deny: "bad", ask: "you", allow: "good" }[rule.ruling] ?? "")}>${text(String(rule.ruling ?? ""))}</span></h3>${rule.reason && html`<p class="quiet">${text(String(rule.reason))}</p>`}<div class="args"><${Json} value=${rule.when ?? rule} /></div></li>`)}</ul>`}</${Block}>`;
}

function Check() {
  const [tool, setTool] = useState("");
  const [args, setArgs] = useState({});
  const [said, setSaid] = useState(null);
  const { act, busy, told } = useAct();
  const ask = () => act(async () => setSaid(await send("/v1/policy/check", { tool, args })), "");
  return html`<${Block} id="check" title="What would the policy say?">
    <label class="inline">Tool <input id="search" value=${tool} onInput=${(event) => setTool(event.target.value)} /></label>
    <${ValueEditor} value=${args} onEdit=${setArgs} />
    <div class="actions"><button disabled=${busy || !tool || args === undefined} onClick=${ask}>Check</button></div>${told}
    <div aria-live="polite">${said && html`<p>It says <strong>${text(said.ruling)}</strong>${said.by.length > 0 && html` (${text(said.by.join(", "))})`}${said.reason && html`: ${text(said.reason)}`}</p>
      <div class="scroll" tabindex="0" role="region" aria-label="Rules"><table class="plain"><thead><tr><th>Rule</th><th>Ruling</th><th>Matches</th><th>Conditions</th></tr></thead><tbody>${said.rules.map((rule) => html`<tr><td>${text(rule.name)}</td><td>${text(rule.ruling)}</td><td>${rule.matched ? "✓ yes" : "no"}</td><td>${rule.conditions.map((condition) => html`<div>${condition.holds ? "✓" : "✕"} ${text(condition.condition)} <span class="quiet">${text(condition.finding)}</span></div>`)}</td></tr>`)}</tbody></table></div>`}</div>
  </${Block}>`;
}
