// A server of its own, a browser, and what the tests of the dashboard share.
import { chromium } from "playwright-core";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const WINDLASS = process.env.WINDLASS;
const DATA = ".windlass-dev";
const HERE = new URL(".", import.meta.url).pathname;

export class Rig {
  static async start() {
    const rig = new Rig();
    rig.folder = mkdtempSync(join(tmpdir(), "windlass-dashboard-"));
    rig.data = join(rig.folder, DATA);
    mkdirSync(rig.data, { mode: 0o700 });
    const tools = [join(process.env.ROOT, "crates/cli/src/dev/windlass.toml"), join(HERE, "windlass.toml")];
    writeFileSync(join(rig.data, "windlass.toml"), tools.map((file) => readFileSync(file, "utf8")).join(""));
    await rig.serve("127.0.0.1:0");
    rig.browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
    return rig;
  }

  /** Starts the server, or starts it again. The link is the one that it prints. */
  async serve(listen) {
    this.server = spawn(WINDLASS, ["dev", "--data", DATA, "--listen", listen], { cwd: this.folder, stdio: ["ignore", "pipe", "ignore"] });
    for await (const line of createInterface({ input: this.server.stdout })) {
      this.link = /http:\S+#login=[0-9a-f]+/.exec(line)?.[0] ?? this.link;
      if (line.includes("Ctrl-C stops this")) break;
    }
    this.server.stdout.resume();
    this.url = new URL(this.link).origin;
    this.token = readFileSync(join(this.data, "token"), "utf8").trim();
  }

  async kill() {
    const ended = new Promise((done) => this.server.once("exit", done));
    this.server.kill("SIGKILL");
    await ended;
  }

  async stop() {
    await this.browser?.close();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A link that logs in, as `windlass open` prints it. */
  open() {
    return execFileSync(WINDLASS, ["open", "--data", this.data], { stdio: ["ignore", "pipe", "ignore"] }).toString().trim();
  }

  async api(path, body, method = body === undefined ? "GET" : "POST") {
    const headers = { Authorization: `Bearer ${this.token}` };
    const sent = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
    const answer = await fetch(this.url + path, { method, headers, body: sent });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  submit(session, calls, more = {}) {
    return this.api(`/v1/sessions/${session}/batches`, { calls, wait: "none", ...more });
  }

  /** A page that is logged in. What goes wrong in it is kept in `page.wrong`. */
  async page(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
    const page = await context.newPage();
    watch(page);
    await page.goto(this.open());
    await page.getByRole("heading", { name: "Now" }).waitFor();
    return page;
  }
}

export function watch(page) {
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => (page.wrong.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("console", (message) => /content.security|trusted/i.test(message.text()) && page.wrong.push(message.text()));
}

/** Asks until it is so. */
export async function until(what, ask) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const found = await ask();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not within 20 s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** The screens with work in them. */
export function screens({ call, task }) {
  return {
    now: "/",
    waiting: "/ui/waiting",
    sessions: "/ui/sessions",
    session: "/ui/sessions/demo",
    calls: "/ui/calls",
    call: `/ui/calls/${call}`,
    batch: "/ui/sessions/demo/batches/demo",
    tasks: "/ui/tasks",
    task: `/ui/sessions/work/tasks/${task}`,
    schedules: "/ui/schedules",
    tools: "/ui/tools",
    tool: "/ui/tools/order_parts",
    policy: "/ui/policy",
    workers: "/ui/workers",
  };
}
