// What goes wrong around the page: clocks, updates, revoked logins, strange names, and too much of everything. Run by .ci/dashboard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { loaded, Rig, until } from "./rig.mjs";

const MANY = process.env.BENCH ? 10_000 : 250;

/** @type {Rig} */
let rig;
before(async () => void (rig = await Rig.start()));
after(() => rig?.stop());

test("times are those of the server, however wrong the browser's clock is", async () => {
  await rig.submit("clock", [{ id: "u", tool: "unload", args: { ship: "the Endurance" } }], { key: "clock" });
  for (const hours of [3, -3]) {
    const page = await rig.page();
    await page.addInitScript((hours) => {
      localStorage.removeItem("windlass-clock");
      const now = Date.now;
      Date.now = () => now() + hours * 3_600_000;
    }, hours);
    await page.goto(rig.url);
    await page.getByText("● live").waitFor();
    const row = page.getByRole("list", { name: "Open calls" }).getByRole("link").filter({ hasText: "u · clock" });
    await row.getByText(/^([1-9]\d? s|\d+ min.*)$/).waitFor();
    await page.getByRole("article").filter({ hasText: "order_parts" }).getByText(/expires in 1[0-4] min/).waitFor();
    await page.goto(`${rig.url}/ui/sessions/clock/batches/clock`);
    await page.getByText(/^1 call in [\d.]+ (ms|s|min.*)$/).waitFor();
    assert.deepEqual(page.wrong, []);
    await page.context().close();
  }
  await rig.api("/v1/sessions/clock/cancel", {});
});

test("a page that is older than its server says so", async () => {
  const page = await rig.page();
  await page.getByText("● live").waitFor();
  assert.equal(await page.getByRole("button", { name: "Updated: reload" }).count(), 0);
  let told = 0;
  let update = () => {};
  const updated = new Promise((done) => void (update = () => done(undefined)));
  await page.route("**/v1/changes", async (route) => {
    told += 1;
    const build = told > 2 ? "newer" : "older";
    if (told > 2) await updated;
    return route.fulfill({ contentType: "text/event-stream", body: `event: begun\ndata: {"now":"${new Date().toISOString()}","build":"${build}"}\n\n` });
  });
  await page.reload();
  await until("it was told twice of the same, and asks again", async () => told === 3);
  assert.equal(await page.getByRole("button", { name: "Updated: reload" }).count(), 0, "the same build is no update");
  update();
  await page.getByRole("button", { name: "Updated: reload" }).waitFor();
  await page.unroute("**/v1/changes");
  await page.getByRole("button", { name: "Updated: reload" }).click();
  await page.getByText("● live").waitFor();
  assert.equal(await page.getByRole("button", { name: "Updated: reload" }).count(), 0);
  await page.context().close();
});

test("a revoked login ends in every tab, also in those that ask nothing", async () => {
  const known = new Set((await rig.api("/v1/tokens?limit=200")).items.map((token) => token.id));
  const page = await rig.page();
  const tabs = [page];
  for (let tab = 1; tab < 3; tab += 1) {
    const next = await page.context().newPage();
    await next.goto(`${rig.url}/ui/policy`);
    await next.getByText("● live").waitFor();
    tabs.push(next);
  }
  const made = (await rig.api("/v1/tokens?limit=200")).items.filter((token) => !known.has(token.id));
  assert.equal(made.length, 1, JSON.stringify(made));
  await rig.api(`/v1/tokens/${made[0].id}`, undefined, "DELETE");
  for (const tab of tabs) await tab.getByLabel("Or paste a token").waitFor();
  // And a new one holds in every tab: the link is opened in one of them.
  await page.goto(rig.open());
  for (const tab of tabs) await tab.getByText("● live").waitFor();
  await page.context().close();
});

test("names with all that they may have, and addresses that name nothing", async () => {
  const page = await rig.page();
  const [session, key] = ["-._A", `ключ/ä?#%&"<>'+ 100%25`];
  await rig.submit(session, [{ id: `<b>&"?#/`, tool: "echo", args: { message: "m" } }], { key, wait: "settled" });
  await page.goto(rig.url);
  await page.getByRole("link", { name: "Sessions", exact: true }).click();
  await page.getByRole("list", { name: "Sessions" }).getByRole("link").filter({ hasText: session }).click();
  await page.getByRole("list", { name: "Batches" }).getByText(key).click();
  await page.getByRole("heading", { name: `Batch ${key}` }).waitFor();
  await page.reload();
  await page.getByRole("link", { name: `<b>&"?#/` }).click();
  await page.locator("#journal").waitFor();
  for (const path of ["/ui/sessions/%E0%A4%A", "/ui/sessions/nobody", "/ui/calls/%00", "/ui/nowhere", "/ui/sessions//batches/", "/ui/tools/%F0%9F%92%A9"]) {
    await page.goto(rig.url + path);
    await page.locator("main :is([role=alert], h1:has-text('no such screen'))").first().waitFor();
  }
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("huge arguments are shown in part, until somebody asks", async () => {
  const wide = { message: "m".repeat(500_000), items: Array.from({ length: 20_000 }, (_, place) => place), deep: JSON.parse("[".repeat(60) + "]".repeat(60)) };
  const [call] = (await rig.submit("huge", [{ id: "h", tool: "echo", args: wide }], { wait: "settled" })).calls;
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/calls/${call.call}`);
  await page.getByRole("button", { name: "show all 500,000 characters" }).first().waitFor();
  await page.getByRole("button", { name: /items/ }).first().click();
  await page.getByRole("button", { name: "19800 more" }).waitFor();
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements <= 1_500, `${elements} elements`);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test(`${MANY} that wait: the nearest deadlines first, all counted, and the rest on demand`, async () => {
  const ask = (place) => ({ id: `w${place}`, tool: "order_parts", args: { part: "rope", count: 1, account: 7 } });
  const waits = (await rig.api("/v1/overview")).waiting + MANY;
  for (let made = 0; made < MANY; made += 250) await rig.submit("crowd", Array.from({ length: 250 }, (_, place) => ask(made + place)), { key: `crowd${made}` });
  await until("all wait", async () => (await rig.api("/v1/overview")).waiting === waits);
  const page = await rig.page();
  const began = performance.now();
  await page.goto(rig.url);
  await page.getByRole("link", { name: `all ${waits.toLocaleString("en")} that wait` }).waitFor();
  console.log(`# ${MANY} that wait: the first screen is ready after ${(performance.now() - began).toFixed(0)} ms`);
  await page.getByRole("link", { name: `Waits for you ${waits.toLocaleString("en")}` }).waitFor();
  assert.equal(await page.title(), `(${waits}) Now · Windlass`);
  assert.equal(await page.getByRole("article").count(), 5);
  await page.goto(`${rig.url}/ui/waiting`);
  await loaded(page);
  assert.equal(await page.getByRole("article").count(), 100);
  assert.match(await page.getByRole("article").first().innerText(), /call order in shop/, "it was asked first, and is due first");
  await page.getByRole("button", { name: "Show 100 more" }).click();
  await until("there are more", async () => (await page.getByRole("article").count()) === 200);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
  await rig.api("/v1/sessions/crowd/cancel", {});
});
