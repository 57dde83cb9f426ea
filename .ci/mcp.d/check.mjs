// The TypeScript SDK as a client of `windlass mcp`, in both eras: list, call, error, approval by a form, and the owner killed in the middle of a call.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { strict as assert } from "node:assert";
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";

const [windlass, work] = process.argv.slice(2);
const data = `${work}/data`;
const count = (word) => (existsSync(`${work}/log`) ? readFileSync(`${work}/log`, "utf8").split(/\s+/).filter((said) => said === word).length : 0);
const text = (result) => result.content.map((block) => block.text ?? "").join("\n");

async function until(what, isSo) {
  for (let tries = 0; tries < 600; tries++) {
    if (isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`not in time: ${what}`);
}

function owner() {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      if (words.includes("serve") && words.includes(data)) return Number(pid);
    } catch {}
  }
  throw new Error("nobody serves the folder");
}

for (const mode of ["auto", "legacy"]) {
  const transport = new StdioClientTransport({ command: windlass, args: ["--data", data, "mcp", "--approve", "--session", `typescript-${mode}`], cwd: work, env: process.env });
  const client = new Client({ name: "check", version: "1" }, { versionNegotiation: { mode }, capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler("elicitation/create", async (request) => {
    assert.match(request.params.message, /ask_first/);
    return { action: "accept", content: { approve: true } };
  });
  await client.connect(transport);
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  assert.deepEqual(names, [...names].sort());
  assert(names.includes("work") && names.includes("wait_task"), names.join());
  assert.match(text(await client.callTool({ name: "echo", arguments: { message: mode } })), new RegExp(mode));
  assert.equal((await client.callTool({ name: "broken", arguments: {} })).isError, true);
  const allowed = count("allowed");
  assert.match(text(await client.callTool({ name: "ask_first", arguments: {} })), /allowed/);
  assert.equal(count("allowed"), allowed + 1);
  rmSync(`${work}/go`, { force: true });
  const [begun, effects] = [count("begin"), count("effect")];
  const running = client.callTool({ name: "work", arguments: {} }, { onprogress: () => {} });
  await until("it has begun", () => count("begin") === begun + 1);
  process.kill(owner(), "SIGKILL");
  const ended = await running;
  writeFileSync(`${work}/go`, "");
  assert.equal(ended.isError, true);
  assert.match(text(ended), /not known/);
  assert.deepEqual([count("begin"), count("effect")], [begun + 1, effects]);
  await client.close();
  console.log(`typescript, stdio, ${mode}: list, call, error, form, kill`);
}
