// The dashboard in a real browser. Run by .ci/dashboard.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { payloads } from "./payloads.mjs";
import { Rig, screens, until, watch } from "./rig.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const ASSETS = new URL("../../crates/server/dashboard/", import.meta.url);
const SHOTS = process.env.SHOTS;

/** @type {Rig} */
let rig;
let work;

before(async () => {
  rig = await Rig.start();
  const [built] = (await rig.submit("work", [{ id: "b", tool: "build" }], { wait: "settled" })).calls;
  await rig.submit("work", [{ id: "f", tool: "flaky" }, { id: "s", tool: "sleep", args: { ms: 50 } }], { key: "retried" });
  await rig.api("/v1/sessions/work/schedules", { cron: "0 9 * * 1-5", zone: "Europe/Berlin", tool: "build", title: "Nightly build" });
  await rig.api("/v1/policy", { rules: [{ name: "no deletions", ruling: "deny", when: { tool: "delete_*" }, reason: "ask an operator" }] }, "PUT");
  const failed = await until("a call has failed", async () => (await rig.api("/v1/calls?state=failed")).items[0]);
  work = { call: failed.call, task: built.call };
});

after(() => rig?.stop());

/** Waits until nothing is being loaded. */
const loaded = (page) => page.waitForFunction(() => document.querySelector("main h1") && !document.querySelector("[aria-busy=true]"));

/** Waits until a button that decides can be pressed, and presses it. */
async function decide(button) {
  await button.and(button.page().locator("[aria-disabled=false]")).click();
}

test("from the printed link to an approved call, with edited arguments and big integers unchanged", async () => {
  const page = await (await rig.browser.newContext({ reducedMotion: "reduce" })).newPage();
  watch(page);
  await page.goto(rig.link);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  assert.equal(new URL(page.url()).hash, "", "the code is gone from the address");
  const card = page.getByRole("article", { name: "Approve? order_parts" });
  await card.getByText("12345678901234567890").waitFor();
  await card.getByRole("button", { name: "Edit" }).click();
  await card.getByLabel("count", { exact: true }).fill("3");
  const row = card.getByRole("row").filter({ hasText: "/count" });
  await row.waitFor();
  assert.deepEqual(await row.getByRole("cell").allInnerTexts(), ["/count", "12", "3"]);
  assert.equal(await card.getByRole("row").count(), 2, "nothing else differs");
  await decide(card.getByRole("button", { name: "Approve with these arguments" }));
  await card.waitFor({ state: "detached" });
  const call = await until("the call ends", async () => (await rig.api("/v1/sessions/shop/calls")).items.find((one) => one.state === "succeeded"));
  assert.match(JSON.stringify(call.outcome), /ordered 3 × left-handed winch on account 12345678901234567890/);
  await page.goto(`${rig.url}/ui/calls/${call.call}`);
  await page.getByText("succeeded").first().waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a used code, half a login and pages of others are refused", async () => {
  const page = await rig.page();
  const context = page.context();
  const used = await (await rig.browser.newContext()).newPage();
  await used.goto(rig.link);
  await used.getByText("it was used or is too old").waitFor();
  const asked = (headers) => page.evaluate(async (headers) => (await fetch("/v1/overview", { headers })).status, headers);
  assert.equal(await asked({}), 401, "the cookie alone");
  const [cookie] = await context.cookies(`${rig.url}/v1`);
  const key = await page.evaluate(() => localStorage.getItem("windlass-page-key"));
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.path === "/v1");
  await context.clearCookies();
  assert.equal(await asked({ "X-Windlass-Page": key }), 401, "the page key alone");
  await context.addCookies([cookie]);
  assert.equal(await asked({ "X-Windlass-Page": key }), 200, "both");
  // A page of another port of this host: the browser sends the cookie along.
  const other = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<h1>other</h1><iframe></iframe>")).listen(0, "127.0.0.1");
  const stranger = await context.newPage();
  await stranger.goto(`http://127.0.0.1:${other.address().port}/`);
  const seen = [];
  stranger.on("response", (answer) => answer.url().startsWith(rig.url) && seen.push(answer.status()));
  await stranger.evaluate(async (url) => {
    await fetch(url + "/v1/overview", { credentials: "include", mode: "no-cors" }).catch(() => {});
    await fetch(url + "/v1/sessions", { method: "POST", credentials: "include", mode: "no-cors", body: '{"id":"stolen"}' }).catch(() => {});
    await new Promise((done) => {
      const frame = document.querySelector("iframe");
      frame.onload = done;
      frame.src = url + "/";
    });
  }, rig.url);
  assert.deepEqual(seen, [403, 403, 403]);
  assert.equal((await rig.api("/v1/sessions?limit=200")).items.some((session) => session.id === "stolen"), false);
  other.close();
  await used.context().close();
  await context.close();
});

test("kill -9 of the server: the page says so, and catches up by itself", async () => {
  const page = await rig.page();
  await page.getByText("● live").waitFor();
  const listen = new URL(rig.url).host;
  await rig.kill();
  await page.getByText("not connected").waitFor();
  await rig.serve(listen);
  await page.getByText("● live").waitFor({ timeout: 20_000 });
  await rig.submit("after", [{ id: "s", tool: "sleep", args: { ms: 20_000 } }]);
  await page.getByRole("list", { name: "Open calls" }).getByText("s · after").waitFor();
  await rig.api("/v1/sessions/after/cancel", {});
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a running call of class read is visible at once, also in the eighth tab", async () => {
  const page = await rig.page();
  const tabs = [page];
  for (let tab = 1; tab < 8; tab += 1) {
    const next = await page.context().newPage();
    await next.goto(rig.url);
    await next.getByRole("heading", { name: "Now" }).waitFor();
    tabs.push(next);
  }
  await tabs[7].getByText("● live").waitFor();
  await rig.submit("reading", [{ id: "slow-read", tool: "sleep", args: { ms: 30_000 } }]);
  const began = Date.now();
  for (const tab of [tabs[7], tabs[0]]) await tab.getByRole("list", { name: "Open calls" }).getByText("slow-read · reading").waitFor();
  console.log(`# a running read call was visible after ${Date.now() - began} ms`);
  await rig.api("/v1/sessions/reading/cancel", {});
  const readers = async () => Number(/^windlass_event_readers (\d+)/m.exec(await (await fetch(rig.url + "/metrics", { headers: { Authorization: `Bearer ${rig.token}` } })).text())[1]);
  await page.context().close();
  await until("no stream is left", async () => (await readers()) === 0);
});

test("hidden pages hold no stream", async () => {
  const page = await rig.page();
  await page.getByText("● live").waitFor();
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  const readers = async () => Number(/^windlass_event_readers (\d+)/m.exec(await (await fetch(rig.url + "/metrics", { headers: { Authorization: `Bearer ${rig.token}` } })).text())[1]);
  await until("it reads", async () => (await readers()) === 1);
  await hide(true);
  await until("it stops", async () => (await readers()) === 0);
  await hide(false);
  await until("it reads again", async () => (await readers()) === 1);
  await page.context().close();
});

test("text of others stays text, on every screen", async () => {
  const all = payloads();
  assert.ok(all.length >= 100);
  for (const [place, payload] of all.entries()) {
    await rig.api("/v1/sessions", { id: `x${place}`, title: payload.slice(0, 190), labels: { [payload.slice(0, 60)]: payload.slice(0, 60) } });
  }
  const calls = all.map((payload, place) => ({ id: `p${place}`, tool: "echo", args: { message: payload, [payload.slice(0, 100)]: 1 } }));
  await rig.submit("xss", calls.slice(0, 200), { key: "xss" });
  const echoed = all.map((payload, place) => ({ id: payload.slice(0, 60).replace(/[\u0000-\u001f\u007f]/g, "") + place, tool: "echo", args: { message: payload } }));
  await rig.submit("xss", echoed.slice(0, 200), { key: "echoed" });
  await rig.submit("xss", all.slice(0, 50).map((payload, place) => ({ id: `n${place}`, tool: payload.slice(0, 60) || "x", args: {} })), { key: "names" });
  await rig.submit("xss", [{ id: "o", tool: "order_parts", args: { part: all[0].slice(0, 80), count: 1, account: 1 } }]);
  for (const payload of all.slice(0, 20)) await rig.api("/v1/sessions/xss/inbox", { title: payload.slice(0, 100) || "x", text: payload || "x" });
  await rig.api("/v1/sessions/xss/schedules", { cron: "0 9 * * *", tool: "build", title: all[1].slice(0, 100) });
  const [first] = (await until("they ended", async () => {
    const page = await rig.api("/v1/sessions/xss/calls?limit=200");
    return page.items.every((call) => !["queued", "running"].includes(call.state)) && page;
  })).items;
  const page = await rig.page();
  await page.addInitScript(() => {
    window.hits = [];
    window.alert = window.hit = (what) => window.hits.push(String(what));
    document.addEventListener("securitypolicyviolation", (event) => window.hits.push(`policy: ${event.violatedDirective} ${event.sample}`));
  });
  const visited = { ...screens(work), session: "/ui/sessions/xss", xss: "/ui/sessions/xss/batches/xss", echoed: "/ui/sessions/xss/batches/echoed", names: "/ui/sessions/xss/batches/names", one: `/ui/calls/${first.call}` };
  for (const [name, path] of Object.entries(visited)) {
    await page.goto(rig.url + path);
    await page.locator("main h1").waitFor();
    await loaded(page);
    assert.deepEqual(await page.evaluate(() => window.hits), [], name);
    assert.equal(await page.locator("main script, main iframe, main img, main object, main embed, main form[action], main a[href^='javascript']").count(), 0, name);
  }
  const shown = (await rig.api("/v1/sessions/xss/batches/xss")).calls;
  for (const place of [0, 17, 42]) {
    await page.goto(`${rig.url}/ui/calls/${shown[place].call}`);
    await page.locator("#args ~ .args").first().waitFor();
    const told = (await page.locator("#args ~ .args").first().innerText()).replace(/\s+/g, "");
    const visible = all[place].replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff]/g, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
    assert.ok(told.includes(visible.replace(/\s+/g, "")), `${JSON.stringify(all[place])} is shown as it is: ${told}`);
  }
  assert.deepEqual(page.wrong, []);
  await page.context().close();
  await rig.api("/v1/sessions/xss", undefined, "DELETE");
  for (const place of all.keys()) await rig.api(`/v1/sessions/x${place}`, undefined, "DELETE");
});

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing on any screen, ${colorScheme}`, async () => {
    await rig.submit("shop", [{ id: "again", tool: "order_parts", args: { part: "rope", count: 2, account: 7 } }], { key: "axe" });
    const page = await rig.page({ colorScheme });
    for (const [name, path] of Object.entries(screens(work))) {
      await page.goto(rig.url + path);
      await page.locator("main h1").waitFor();
      await loaded(page);
      await page.waitForFunction(() => !document.querySelector("button[aria-disabled=true]"));
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}-${colorScheme}.png`, fullPage: true });
      // Evaluated, not added as a script: the page's policy stays in force.
      const found = await page.evaluate(`${AXE}; axe.run(document, { resultTypes: ["violations"] })`);
      const told = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`);
      assert.deepEqual(told, [], name);
    }
    assert.deepEqual(page.wrong, []);
    await page.context().close();
  });
}

test("every screen fits into 320 pixels", async () => {
  const page = await rig.page({ viewport: { width: 320, height: 640 } });
  for (const [name, path] of Object.entries(screens(work))) {
    await page.goto(rig.url + path);
    await loaded(page);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 320, `${name} is ${width} pixels wide`);
  }
  await page.context().close();
});

test("the main tasks by keyboard alone", async () => {
  await rig.submit("shop", [{ id: "keys", tool: "order_parts", args: { part: "hook", count: 1, account: 7 } }], { key: "keys" });
  const page = await rig.page();
  const card = page.getByRole("article").filter({ hasText: "call keys" });
  await card.waitFor();
  await card.getByRole("button", { name: "Approve" }).and(page.locator("[aria-disabled=false]")).waitFor();
  for (let presses = 0; presses < 80; presses += 1) {
    await page.keyboard.press("Tab");
    if (await card.getByRole("button", { name: "Approve" }).evaluate((button) => button === document.activeElement)) break;
  }
  await page.keyboard.press("Enter");
  await card.waitFor({ state: "detached" });
  await until("it ends", async () => (await rig.api("/v1/sessions/shop/calls?state=succeeded")).items.some((call) => call.id === "keys"));
  await page.getByRole("link", { name: "Calls", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Calls" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main", "the focus is on the new screen");
  await page.getByRole("list", { name: "Calls" }).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.locator("#journal").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("heading", { name: "Calls" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("slow?");
  assert.equal(await page.locator("#search").inputValue(), "slow?", "keys are text in a field");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("of two who approve the same, one wins, and who was late is told", async () => {
  await rig.submit("shop", [{ id: "race", tool: "order_parts", args: { part: "bolt", count: 1, account: 7 } }], { key: "race" });
  const page = await rig.page();
  const card = page.getByRole("article").filter({ hasText: "call race" });
  const approve = card.getByRole("button", { name: "Approve" }).and(page.locator("[aria-disabled=false]"));
  await approve.waitFor();
  const waits = (await rig.api("/v1/waiting?kind=approval")).items.find((item) => item.call_id === "race");
  const stale = await fetch(`${rig.url}/v1/approvals/${waits.id}`, { method: "POST", headers: { Authorization: `Bearer ${rig.token}` }, body: JSON.stringify({ decision: "approve", digest: "00" }) });
  assert.equal(stale.status, 409, "another digest than the one that was shown");
  // The page does not hear of the first answer before it gives its own.
  await page.route("**/v1/waiting*", (route) => route.abort());
  await rig.api(`/v1/approvals/${waits.id}`, { decision: "deny", digest: waits.digest });
  await approve.click();
  await card.getByRole("alert").first().waitFor();
  await until("it was denied", async () => (await rig.api("/v1/sessions/shop/calls?state=denied")).items.some((call) => call.id === "race"));
  await page.context().close();
});

test("a tool is checked and called from its form", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/tools/divide`);
  await page.getByLabel("a", { exact: true }).fill("1");
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByText("the arguments fit").waitFor();
  await page.getByRole("button", { name: "JSON" }).click();
  await page.getByLabel("Arguments as JSON").fill('{"a": 12345678901234567890, "b": 0}');
  await decide(page.getByRole("button", { name: "Run" }));
  await page.getByText("division by zero").first().waitFor();
  await page.getByText("12345678901234567890").first().waitFor();
  await page.getByRole("link", { name: "Call again with these arguments" }).click();
  await page.getByLabel("a", { exact: true }).waitFor();
  assert.equal(await page.getByLabel("a", { exact: true }).inputValue(), "12345678901234567890");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a task shows its log by stream, and can be looked at while it runs", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/sessions/work/tasks/${work.task}`);
  await page.getByText("step 4 of 4").waitFor();
  assert.ok((await page.locator(".piece.err").count()) > 0);
  await page.context().close();
});

test("budgets: sizes, requests, draws, elements", async () => {
  const files = readdirSync(ASSETS).concat(readdirSync(new URL("vendor/", ASSETS)).map((file) => `vendor/${file}`)).filter((file) => /\.(m?js|css|html|svg)$/.test(file));
  const size = files.reduce((sum, file) => sum + gzipSync(readFileSync(new URL(file, ASSETS))).length, 0);
  console.log(`# assets: ${files.length} files, ${size} bytes with gzip`);
  assert.ok(size <= 60 * 1024, `${size} bytes`);
  const readme = readFileSync(new URL("vendor/README.md", ASSETS), "utf8");
  for (const file of files.filter((file) => file.startsWith("vendor/"))) {
    const hash = createHash("sha256").update(readFileSync(new URL(file, ASSETS))).digest("hex");
    assert.ok(readme.includes(hash), `${file} is not what vendor/README.md says: ${hash}`);
  }
  const page = await rig.page();
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  await page.goto(rig.url);
  await page.getByText("● live").waitFor();
  const first = requests.filter((url) => !url.includes("/v1/")).length;
  assert.ok(first <= 25, `${first} requests`);
  assert.ok(requests.every((url) => url.startsWith(rig.url)), "nothing from elsewhere");
  requests.length = 0;
  const began = Date.now();
  for (let batch = 0; batch < 300; batch += 1) await rig.submit("busy", [{ id: `b${batch}`, tool: "echo", args: { message: "x" } }]);
  const seconds = (Date.now() - began) / 1_000;
  const asked = requests.filter((url) => url.endsWith("/v1/overview")).length;
  console.log(`# 300 batches in ${seconds.toFixed(1)} s, the overview was asked for ${asked} times`);
  assert.ok(asked <= 5 * seconds + 3, `${asked} in ${seconds} s`);
  await page.goto(`${rig.url}/ui/calls?session=busy`);
  for (let more = 0; more < 2; more += 1) {
    await page.getByRole("button", { name: "Load more" }).click();
    await page.waitForFunction((count) => document.querySelector("[role=status].quiet")?.textContent.startsWith(String(count)), (more + 2) * 100);
  }
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements <= 1_500, `${elements} elements for 300 calls`);
  await page.context().close();
});
