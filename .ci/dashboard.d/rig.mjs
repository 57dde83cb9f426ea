// A server of its own, a browser, and what the tests of the dashboard share.
import { chromium } from "playwright-core";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { proxied } from "./without.mjs";

const WINDLASS = process.env.WINDLASS;
const PEOPLE = process.env.PEOPLE;
const DATA = ".windlass-dev";
const HERE = new URL(".", import.meta.url).pathname;
/** Names that the browser finds on this machine: a foreign site, and a name that was bound to this server. */
export const FOREIGN = "foreign.example";
export const REBOUND = "rebound.example";

const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", `--host-resolver-rules=MAP ${FOREIGN} 127.0.0.1, MAP ${REBOUND} 127.0.0.1`] });

/**
 * A request over a connection of its own: one that is kept may be closed by the server just when it is used again, and whether that happens
 * is chance. For the same reason what goes through a page's route is tried again (`AGAIN`).
 * @param {string} url @param {{method?: string, token?: string, headers?: Record<string, string>, body?: any}} options
 * @returns {Promise<{status: number, headers: Record<string, any>, text: string}>}
 */
export function ask(url, { method = "GET", token, headers = {}, body } = {}) {
  const sent = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
  return new Promise((done, failed) => {
    const asked = request(url, { method, agent: false, headers: { ...headers, ...(token && { Authorization: `Bearer ${token}` }) } }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part)).on("error", failed);
      answer.on("end", () => done({ status: answer.statusCode ?? 0, headers: answer.headers, text: Buffer.concat(parts).toString() }));
    });
    asked.on("error", failed).end(sent);
  });
}
export const AGAIN = { maxRetries: 3 };

/** A server of `windlass dev`, and a browser. */
export class Rig {
  static async start() {
    const rig = new Rig();
    rig.folder = mkdtempSync(join(tmpdir(), "windlass-dashboard-"));
    rig.data = join(rig.folder, DATA);
    mkdirSync(rig.data, { mode: 0o700 });
    const tools = [join(process.env.ROOT, "crates/cli/src/dev/windlass.toml"), join(HERE, "windlass.toml")];
    writeFileSync(join(rig.data, "windlass.toml"), tools.map((file) => readFileSync(file, "utf8")).join(""));
    await rig.serve("127.0.0.1:0");
    rig.browser = await launch();
    return rig;
  }

  /** How many pages hold a stream. */
  async readers() {
    const { text } = await ask(this.url + "/metrics", { token: this.token });
    return Number(/^windlass_event_readers (\d+)/m.exec(text)[1]);
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
    if (process.env.WITHOUT) {
      this.proxy = await proxied(this.url, process.env.WITHOUT);
      this.link = this.link.replace(this.url, this.proxy.url);
      this.url = this.proxy.url;
    }
    this.token = readFileSync(join(this.data, "token"), "utf8").trim();
  }

  async kill() {
    const ended = new Promise((done) => this.server.once("exit", done));
    this.server.kill("SIGKILL");
    await ended;
  }

  async stop() {
    await this.browser?.close();
    this.proxy?.close();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A link that logs in, as `windlass open` prints it. */
  open() {
    const link = execFileSync(WINDLASS, ["open", "--data", this.data], { stdio: ["ignore", "pipe", "ignore"] }).toString().trim();
    return this.url + link.slice(new URL(link).origin.length);
  }

  async api(path, body, method = body === undefined ? "GET" : "POST") {
    const { status, text } = await ask(this.url + path, { method, body, token: this.token });
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`);
    return JSON.parse(text);
  }

  submit(session, calls, more = {}) {
    return this.api(`/v1/sessions/${session}/batches`, { calls, wait: "none", ...more });
  }

  /** The pages of one person, who is not logged in yet. */
  async context(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(HANGS_MS);
    return context;
  }

  /** A page that is logged in. What goes wrong in it is kept in `page.wrong`. */
  async page(options = {}) {
    const context = await this.context(options);
    const page = await context.newPage();
    watch(page);
    await page.goto(this.open());
    await page.getByRole("heading", { name: "Now" }).waitFor();
    return page;
  }
}

/** A server whose tools ask people, need connections and change; and a browser. `calls` are made before it listens. */
export class PeopleRig extends Rig {
  static async start(calls = 0) {
    const rig = new PeopleRig();
    rig.folder = mkdtempSync(join(tmpdir(), "windlass-people-"));
    rig.data = rig.folder;
    rig.calls = calls;
    await rig.serve("127.0.0.1:0");
    rig.browser = await launch();
    return rig;
  }

  /** @param {string} listen @param {string} [tools] `changed`: one of them has another contract. */
  async serve(listen, tools = "first") {
    this.server = spawn(PEOPLE, [this.folder, listen, tools, String(this.calls)], { stdio: ["ignore", "pipe", "inherit"] });
    this.calls = 0;
    for await (const line of createInterface({ input: this.server.stdout })) {
      this.url = line.trim();
      break;
    }
    this.server.stdout.resume();
    this.token = readFileSync(join(this.folder, "token"), "utf8").trim();
  }
}

/** Waits until nothing is being loaded. */
export const loaded = (page) => page.waitForFunction(() => document.querySelector("main h1") && !document.querySelector("[aria-busy=true]"));

/** Waits until a button that decides can be pressed, and stays so while what is around it settles. */
export const ready = (button) => button.evaluate((one) => new Promise((done) => {
  let looks = 0;
  const timer = setInterval(() => {
    looks = one.getAttribute("aria-disabled") === "false" ? looks + 1 : 0;
    if (looks > 4 || !one.isConnected) done(clearInterval(timer));
  }, 50);
}));

/** Presses a button that decides until it has taken the press: what has just moved refuses it, and the page may move it at any time. */
async function pressed(button, press) {
  const page = button.page();
  for (let taken = false; !taken; ) {
    await ready(button);
    await button.evaluate((one) => {
      window.pressed = false;
      // Behind the page's own handler, which says whether it has taken the press.
      const note = (event) => event.composedPath().includes(one) && (window.pressed = !event.defaultPrevented);
      window.addEventListener("click", note, { once: true });
    });
    await press();
    taken = await page.evaluate(() => window.pressed);
  }
}

/** Presses a button that decides. */
export const decide = (button) => pressed(button, () => button.click());

/** Moves the focus with Tab alone. */
export async function tabTo(page, element, most = 120) {
  for (let presses = 0; presses < most; presses += 1) {
    if (await element.evaluate((one) => one === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error("Tab does not reach it");
}

/** Presses a button that decides by keyboard. */
export const pressByKey = (page, button) =>
  pressed(button, async () => {
    await tabTo(page, button);
    await page.keyboard.press("Enter");
  });

/** Pictures in both colours, for whoever wants to look. */
export async function shot(page, name) {
  if (!process.env.SHOTS) return;
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.screenshot({ path: `${process.env.SHOTS}/${name}-${colorScheme}.png`, fullPage: true });
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
}

export function watch(page) {
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => (page.wrong.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("console", (message) => /content.security|trusted/i.test(message.text()) && page.wrong.push(message.text()));
}

/** A test that hangs fails after so long; nothing that works takes it, also on a machine that does much else. */
const HANGS_MS = 60_000;

/** Asks until it is so. */
export async function until(what, ask) {
  const deadline = Date.now() + HANGS_MS;
  for (;;) {
    const found = await ask();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not within ${HANGS_MS / 1_000} s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Work of all kinds in the sessions of a rig: a task, retries, a failure, waits, a schedule, a rule. */
export async function workIn(rig) {
  await rig.api("/v1/sessions", { id: "work", title: "Harbour works", labels: { team: "cranes", year: "2026" } });
  const [built] = (await rig.submit("work", [{ id: "b", tool: "build" }], { wait: "settled" })).calls;
  await rig.submit("work", [{ id: "f", tool: "flaky" }, { id: "s", tool: "sleep", args: { ms: 50 } }], { key: "retried" });
  await rig.submit("work", [{ id: "wrong", tool: "divide", args: { a: 1, b: 0 } }, { id: "right", tool: "divide", args: { a: 84, b: 2 } }], { key: "divided" });
  await rig.submit("work", [1, 2, 3].map((nth) => ({ id: `berth-${nth}`, tool: "berth", args: { ship: `ship ${nth}` } })), { key: "berths" });
  await rig.api("/v1/sessions/work/schedules", { cron: "0 9 * * 1-5", zone: "Europe/Berlin", tool: "build", title: "Nightly build" });
  await rig.api("/v1/policy", { rules: [{ name: "no deletions", ruling: "deny", when: { tool: "delete_*" }, reason: "ask an operator" }] }, "PUT");
  await until("the flaky one was tried again", async () => (await rig.api("/v1/sessions/work/calls?state=succeeded")).items.some((call) => call.id === "f"));
  const failed = await until("a call has failed", async () => (await rig.api("/v1/sessions/work/calls?state=failed")).items[0]);
  return { call: failed.call, task: built.call };
}

/** The screens with work in them. */
export function screens({ call, task }) {
  return {
    now: "/",
    waiting: "/ui/waiting",
    sessions: "/ui/sessions",
    session: "/ui/sessions/work",
    calls: "/ui/calls",
    call: `/ui/calls/${call}`,
    batch: "/ui/sessions/work/batches/retried",
    tasks: "/ui/tasks",
    task: `/ui/sessions/work/tasks/${task}`,
    schedules: "/ui/schedules",
    tools: "/ui/tools",
    tool: "/ui/tools/order_parts",
    policy: "/ui/policy",
    workers: "/ui/workers",
  };
}
