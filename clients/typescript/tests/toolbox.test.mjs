// A toolbox in this process against a server of its own.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, modelText, Stopped, Toolbox, ToolFailure, parts, pending, tool } from "windlass";
import { z } from "zod";

let folder, server, url, token;

async function until(found, what) {
  for (let tries = 0; tries < 3000; tries += 1) {
    const value = await found();
    if (value) return value;
    await sleep(10);
  }
  throw new Error(`${what} did not come`);
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "windlass-"));
  writeFileSync(join(folder, "windlass.toml"), "[limits]\ntoolbox_silence_ms = 3000\ntoolbox_wait_ms_max = 1000\n");
  const port = await new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
  url = `http://127.0.0.1:${port}`;
  server = spawn(process.env.WINDLASS_BIN ?? "windlass", ["serve", "--data", folder, "--listen", `127.0.0.1:${port}`], { stdio: "ignore" });
  await until(() => fetch(`${url}/readyz`).then((response) => response.ok, () => false), "the server");
  token = readFileSync(join(folder, "token"), "utf8").trim();
});

after(async () => {
  const ended = new Promise((resolve) => server.on("exit", resolve));
  server.kill("SIGKILL");
  await ended;
  rmSync(folder, { recursive: true, force: true });
});

async function served(tools, run) {
  const toolbox = new Toolbox("here", tools, { url, token, slots: 4 });
  const serving = toolbox.serve();
  const headers = { authorization: `Bearer ${token}` };
  const shown = () => fetch(`${url}/v1/toolboxes/here`, { headers }).then((response) => response.json());
  const names = tools.map((tool) => tool.name).sort().join();
  await until(async () => {
    const { served, tools } = await shown();
    return served && tools.toSorted().join() === names;
  }, "the toolbox");
  try {
    await run(new Client(`s${Math.random()}`.replace(".", ""), { url, token }));
  } finally {
    toolbox.stop();
    await serving;
  }
}

test("values, schemas of zod, failures, parts, nested calls and steps", async () => {
  const twice = tool({ name: "twice", effect: "read", claims: [], input: z.object({ n: z.number() }), run: ({ n }) => 2 * n });
  const outer = tool({
    name: "outer",
    effect: "stepped",
    claims: [],
    input: z.object({ n: z.number() }),
    async run({ n }, ctx) {
      const three = await ctx.step("add", { n }, ({ n }) => n + 1);
      await ctx.sleep("nap", 50);
      const call = await ctx.call("inner", "twice", { n: three });
      return parts(call.outcome.value, { type: "text", text: "that is all" });
    },
  });
  const refuses = tool({
    name: "refuses",
    claims: [],
    run() {
      throw new ToolFailure("There is none. Ask for another.", { code: "none_left" });
    },
  });
  const breaks = tool({ name: "breaks", claims: [], run: () => undefined.hidden });
  await served([twice, outer, refuses, breaks], async (client) => {
    assert.equal((await client.call("outer", { n: 2 })).outcome.value, 6);
    const bad = await client.call("twice", { n: "x" });
    assert.equal(bad.outcome.failure.code, "invalid_args");
    const refused = await client.call("refuses");
    assert.equal(refused.outcome.failure.message, "There is none. Ask for another.");
    const broken = await client.call("breaks");
    assert.equal(broken.outcome.failure.class, "internal");
    assert.doesNotMatch(JSON.stringify(broken.model), /hidden/);
  });
});

test("a cancel aborts the signal, an answer from outside is a result", async () => {
  let begun = false;
  const hang = tool({
    name: "hang",
    effect: "keyed",
    claims: [],
    async run(_, ctx) {
      begun = true;
      await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(new Stopped("stopped"))));
    },
  });
  let key;
  const sign = tool({
    name: "sign",
    effect: "keyed",
    claims: [],
    async run(_, ctx) {
      key = await ctx.completion("ann");
      return pending("ann");
    },
  });
  await served([hang, sign], async (client) => {
    const [call] = await client.batch([{ id: "h", tool: "hang" }], { wait: "none" });
    await until(() => begun, "the call");
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    await fetch(`${url}/v1/calls/${call.call}/cancel`, { method: "POST", headers, body: "{}" });
    const state = async () => (await (await fetch(`${url}/v1/calls/${call.call}`, { headers })).json()).state;
    await until(async () => (await state()) === "cancelled", "the cancel");
    const signing = client.call("sign");
    await until(() => key, "the key");
    await fetch(`${url}/v1/completions/${key}`, { method: "POST", headers, body: JSON.stringify({ ok: "signed" }) });
    assert.equal((await signing).outcome.value, "signed");
  });
});

test("events resume, and what waits is approved", async () => {
  const risky = tool({ name: "risky", claims: [], approval: "ask", run: () => "done" });
  await served([risky], async (client) => {
    await client.batch([{ id: "r", tool: "risky" }], { key: "k", wait: "none" });
    const [waiting] = await until(async () => {
      const items = await client.waiting({ kind: "approval" });
      return items.length > 0 ? items : undefined;
    }, "the approval");
    await client.approve(waiting);
    const [call] = await client.batch([{ id: "r", tool: "risky" }], { key: "k" });
    assert.equal(call.outcome.value, "done");
    for await (const event of client.events()) if (event.kind === "ended") break;
  });
});

test("the documented toolbox survives a kill of its process while it waits", async () => {
  const environment = { ...process.env, WINDLASS_URL: url, WINDLASS_TOKEN: token };
  let said = "";
  const start = () => {
    const started = spawn(process.execPath, [new URL("orders.mjs", import.meta.url).pathname], { env: environment });
    started.stdout.on("data", (piece) => (said += piece));
    return started;
  };
  let box = start();
  const killed = async () => {
    const ended = new Promise((resolve) => box.on("exit", resolve));
    box.kill("SIGKILL");
    await ended;
  };
  try {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const shown = () => fetch(`${url}/v1/toolboxes/shop`, { headers }).then((response) => response.json());
    await until(async () => (await shown()).served, "the toolbox");
    const client = new Client("documented", { url, token });
    assert.equal(modelText(await client.call("price", { item: "tea" })), "4");
    const order = [{ id: "o", tool: "order", args: { item: "tea", count: 2 } }];
    await client.batch(order, { key: "k", wait: "none" });
    const key = await until(() => /windlass complete (\S+)/.exec(said)?.[1], "the invoice");
    // A step whose end is not recorded would run again.
    const waiting = () => fetch(`${url}/v1/sessions/documented/calls?state=awaiting_completion`, { headers }).then((response) => response.json());
    await until(async () => (await waiting()).items.length === 1, "the wait for the payment");
    await killed();
    box = start();
    await fetch(`${url}/v1/completions/${key}`, { method: "POST", headers, body: JSON.stringify({ ok: true }) });
    const [call] = await client.batch(order, { key: "k" });
    assert.deepEqual(call.outcome.value, { reserved: "2 x tea", paid: true, sent: "sent 2 x tea" });
    assert.equal(said.match(/windlass complete/g).length, 1);
  } finally {
    await killed();
  }
});

test("large values go by artifact", async () => {
  const grow = tool({
    name: "grow_ts",
    effect: "read",
    claims: [],
    input: z.object({ text: z.string(), times: z.number().int() }),
    run: ({ text, times }) => text.repeat(times),
  });
  await served([grow], async (client) => {
    // The arguments do not come with the attempt, and the result fits into no report.
    const call = await client.call("grow_ts", { text: "y".repeat(500_000), times: 20 });
    assert.equal(call.state, "succeeded", JSON.stringify(call).slice(0, 500));
    const [, artifact] = /"artifact":"(\w+)"/.exec(JSON.stringify(call.outcome));
    const response = await fetch(`${url}/v1/artifacts/${artifact}`, { headers: { authorization: `Bearer ${token}` } });
    assert.equal(await response.text(), "y".repeat(10_000_000));
  });
});

test("large steps are recorded, and returned when the tool runs again", async () => {
  const ran = [];
  const dump = tool({
    name: "dump_ts",
    effect: "stepped",
    claims: [],
    input: z.object({ megabytes: z.number().int() }),
    async run({ megabytes }, ctx) {
      const read = (megabytes) => (ran.push("read"), "x".repeat(megabytes << 20));
      const measure = (text) => (ran.push("measure"), text.length);
      const rows = await ctx.step("read", megabytes, read);
      const length = await ctx.step("measure", rows, measure);
      // It leaves its process, and runs again.
      await ctx.sleep("rest", 100);
      return [rows.length, length];
    },
  });
  const tooMuch = tool({
    name: "too_much_ts",
    effect: "stepped",
    claims: [],
    run: async (_, ctx) => await ctx.step("read", null, () => "x".repeat(40 << 20)).catch((error) => error.message),
  });
  await served([dump, tooMuch], async (client) => {
    const call = await client.call("dump_ts", { megabytes: 9 });
    assert.deepEqual(call.outcome?.value, [9 << 20, 9 << 20], JSON.stringify(call).slice(0, 500));
    assert.deepEqual(ran, ["read", "measure"]);
    assert.match((await client.call("too_much_ts")).outcome.value, /may have/);
  });
});
