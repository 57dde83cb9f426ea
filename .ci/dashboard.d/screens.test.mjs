// Each screen with real work in it: what it shows is what the server says, and what it offers works. Run by .ci/dashboard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { decide, loaded, ready, Rig, until, workIn } from "./rig.mjs";

/** @type {Rig} */
let rig;
let work;
before(async () => {
  rig = await Rig.start();
  work = await workIn(rig);
});
after(() => rig?.stop());

const stateOf = async (call) => (await rig.api(`/v1/calls/${call}`)).state;

test("filters of calls filter, and stay in the address", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/calls`);
  const rows = page.getByRole("list", { name: "Calls" }).getByRole("listitem");
  await rows.filter({ hasText: "succeeded" }).first().waitFor();
  await page.getByRole("combobox", { name: "State" }).selectOption("failed");
  await until("only failed ones are left", async () => (await rows.count()) > 0 && (await rows.filter({ hasNotText: "failed" }).count()) === 0);
  assert.equal(new URL(page.url()).search, "?state=failed");
  await page.reload();
  await rows.first().waitFor();
  assert.equal(await page.getByRole("combobox", { name: "State" }).inputValue(), "failed");
  assert.equal(await rows.filter({ hasNotText: "failed" }).count(), 0);
  await page.getByRole("button", { name: "Only failed", pressed: true }).click();
  await rows.filter({ hasText: "succeeded" }).first().waitFor();
  await page.getByLabel("Tool", { exact: true }).fill("divide");
  await page.keyboard.press("Enter");
  await page.getByLabel("Session", { exact: true }).fill("work");
  await page.keyboard.press("Enter");
  await until("only those are left", async () => (await rows.count()) === 2 && (await rows.filter({ hasText: "divide" }).count()) === 2);
  assert.equal(new URL(page.url()).search, "?tool=divide&session=work");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("an answer that is to be remembered is given to the next call by itself", async () => {
  const order = { tool: "order_parts", args: { part: "paint", count: 1, account: 7 } };
  await rig.submit("yard", [{ id: "one", ...order }], { key: "one" });
  const page = await rig.page();
  const card = page.getByRole("article").filter({ hasText: "call one" });
  await card.getByLabel("remember for this session").check();
  await decide(card.getByRole("button", { name: "Approve" }));
  await card.waitFor({ state: "detached" });
  const [next] = (await rig.submit("yard", [{ id: "two", ...order }], { key: "two", wait: "settled" })).calls;
  assert.equal(next.state, "succeeded");
  const [other] = (await rig.submit("shed", [{ id: "three", ...order }], { key: "three" })).calls;
  await page.getByRole("article").filter({ hasText: "call three" }).waitFor();
  assert.equal(await stateOf(other.call), "awaiting_approval", "another session is asked");
  await rig.api("/v1/sessions/shed/cancel", {});
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a task is followed while it runs, and cancelled", async () => {
  const [tailed] = (await rig.submit("pier", [{ id: "t", tool: "tail" }], { wait: "settled" })).calls;
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/tasks`);
  await page.getByRole("list", { name: "Tasks" }).getByRole("link").filter({ hasText: "pier" }).click();
  const log = page.getByRole("log");
  await log.getByText("line 1").waitFor();
  const lines = (await log.locator(".piece").count());
  await until("more is written", async () => (await log.locator(".piece").count()) > lines);
  assert.equal(await stateOf(tailed.call), "running");
  await decide(page.getByRole("button", { name: "Cancel" }));
  await page.locator("main p .state").filter({ hasText: "cancelled" }).waitFor();
  assert.equal(await stateOf(tailed.call), "cancelled");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a tool is paused and resumed; its calls say that they wait for it", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/tools/echo`);
  await decide(page.getByRole("button", { name: "Pause" }));
  await page.locator(".chip").getByText("paused", { exact: true }).waitFor();
  const [held] = (await rig.submit("held", [{ id: "h", tool: "echo", args: { message: "m" } }])).calls;
  await page.goto(`${rig.url}/ui/calls/${held.call}`);
  await page.getByText("its tool is paused: somebody must resume it").first().waitFor();
  await page.goto(`${rig.url}/ui/tools/echo`);
  await decide(page.getByRole("button", { name: "Resume" }));
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await until("it runs", async () => (await stateOf(held.call)) === "succeeded");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("the policy says what it would say, and by which rule", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/policy`);
  const rule = page.getByRole("listitem").filter({ hasText: "no deletions" });
  await rule.getByText("deny").waitFor();
  for (const [tool, said] of [["delete_file", /It says deny \(no deletions\): ask an operator/], ["echo", /It says allow/]]) {
    await page.getByLabel("Tool", { exact: true }).fill(tool);
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText(said).waitFor();
  }
  const row = page.getByRole("region", { name: "Rules" }).getByRole("row").filter({ hasText: "no deletions" });
  await row.getByText("no", { exact: true }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("the workers are those of the store", async () => {
  const { items } = await rig.api("/v1/workers");
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/workers`);
  await loaded(page);
  const rows = page.getByRole("region", { name: "Workers" }).getByRole("row");
  assert.equal(await rows.count(), items.length + 1);
  const own = rows.filter({ hasText: "this one" });
  assert.match(await own.innerText(), /alive/);
  assert.equal(await own.getByRole("cell").nth(2).innerText(), String(items.find((worker) => worker.this).sessions));
  await page.context().close();
});

test("the bars of a batch are its recorded times, to the microsecond and at their places", async () => {
  const { calls } = await rig.api("/v1/sessions/work/batches/retried?spans=true");
  const all = calls.flatMap((call) => call.spans);
  const [first, last] = [Math.min(...all.map((span) => span.from_us)), Math.max(...all.map((span) => span.to_us))];
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/sessions/work/batches/retried`);
  await loaded(page);
  for (const call of calls) {
    const track = page.getByRole("row").filter({ has: page.getByRole("link", { name: call.id, exact: true }) }).locator(".track");
    const bars = await track.locator(".bar").evaluateAll((bars) => bars.map((bar) => ({ words: bar.ariaLabel, left: parseFloat(bar.style.left), width: parseFloat(bar.style.width) })));
    assert.equal(bars.length, call.spans.length, call.id);
    for (const [place, span] of call.spans.entries()) {
      const { words, left, width } = bars[place];
      assert.ok(words.endsWith(`, ${(span.to_us - span.from_us).toLocaleString("en")} µs`), words);
      const at = (time) => ((time - first) / (last - first)) * 100;
      assert.ok(Math.abs(left - at(span.from_us)) < 0.01 && Math.abs(left + width - at(span.to_us)) < 0.01, JSON.stringify({ span, left, width }));
    }
  }
  // They agree with what is recorded about the call as a whole.
  const whole = await rig.api(`/v1/calls/${calls[0].call}?spans=true`);
  const sum = (kinds) => whole.spans.filter((span) => kinds.includes(span.kind)).reduce((sum, span) => sum + span.to_us - span.from_us, 0) / 1_000;
  assert.ok(Math.abs(sum(["attempt"]) - whole.ran_ms) <= 2, `${sum(["attempt"])} and ${whole.ran_ms}`);
  assert.ok(Math.abs(sum(["queue"]) - whole.queued_ms) <= 2, `${sum(["queue"])} and ${whole.queued_ms}`);
  await page.context().close();
});

test("idle time is folded, and nothing else", async () => {
  const page = await rig.page();
  const told = await page.evaluate(async () => {
    const [{ Timeline, scaleOf }, { h, render }] = await Promise.all([import("/assets/timeline.js"), import("/assets/vendor/preact.mjs")]);
    const second = 1_000_000;
    const spans = [
      { kind: "attempt", attempt: 1, from_us: 0, to_us: second, end: "suspended" },
      { kind: "wait", why: "approval", from_us: second, to_us: 3_600 * second },
      { kind: "attempt", attempt: 2, from_us: 3_600 * second, to_us: 3_601 * second, end: "ok" },
    ];
    const { folds, place } = scaleOf(spans, 0);
    const waiting = scaleOf([spans[0], { kind: "retry", from_us: second }], 3_600 * second);
    const busy = scaleOf([{ kind: "attempt", from_us: 0, to_us: 3_600 * second }], 0);
    const root = document.createElement("div");
    document.querySelector("main").replaceChildren(root);
    render(h(Timeline, { calls: [{ call: "c", id: "c", tool: "t", state: "succeeded", spans }] }), root);
    return { folds, places: [0, 1, 1_800, 3_600, 3_601].map((time) => place(time * second)), busy: busy.folds, live: waiting.place(second), caption: root.querySelector("caption").textContent };
  });
  assert.deepEqual(told.folds, [[1_000_000, 3_600_000_000]]);
  assert.deepEqual(told.busy, []);
  assert.ok(told.live > 0.9, `a wait that lasts takes no room of its own: ${told.live}`);
  const [from, begun, middle, again, to] = told.places;
  assert.ok(from === 0 && to === 1 && begun > 0.45 && again - begun < 0.05 && middle > begun && middle < again, JSON.stringify(told.places));
  assert.match(told.caption, /^1 call in 1 h; idle time is folded \(59 min 59 s\)$/);
  await page.context().close();
});

test("at most 10,000 calls are kept in the page, and the farthest ones go", async () => {
  const page = await rig.page();
  const item = (place) => ({ call: `c${place}`, id: `call-${place}`, tool: "echo", session: "s", state: "succeeded", opened_at: "2026-01-01T00:00:00Z", ran_ms: 1 });
  await page.route("**/v1/calls?*", (route) => {
    const from = Number(new URL(route.request().url()).searchParams.get("after") ?? 0);
    return route.fulfill({ contentType: "application/json", body: JSON.stringify({ items: Array.from({ length: 4_000 }, (_, place) => item(from + place)), next: String(from + 4_000) }) });
  });
  await page.goto(`${rig.url}/ui/calls`);
  for (const count of [8_000, 10_000]) {
    await page.getByRole("button", { name: "Load more" }).click();
    await page.getByText(`${count}+ calls, newest first`).waitFor();
  }
  await page.getByText("The first 2,000 are no longer kept here.").waitFor();
  await page.evaluate(() => scrollTo(0, 0));
  await page.getByText("call-2000 · s").waitFor();
  assert.ok((await page.evaluate(() => document.querySelectorAll("*").length)) <= 1_500);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("what was typed a moment before a press is what is sent", async () => {
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/tools/divide`);
  await page.getByLabel("a", { exact: true }).waitFor();
  const asked = page.waitForRequest("**/v1/tools/divide/check");
  // All in one go, before anything can be drawn.
  await page.getByLabel("a", { exact: true }).evaluate((field) => {
    field.value = "41";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    const check = [...document.querySelectorAll("button")].find((button) => button.textContent === "Check");
    check.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    check.click();
  });
  assert.equal(JSON.parse((await asked).postData()).args.a, 41);
  await page.context().close();
});

test("a button that has moved since it was last looked at takes no press", async () => {
  await rig.submit("quick", [{ id: "moved", tool: "order_parts", args: { part: "bell", count: 1, account: 7 } }], { key: "moved" });
  const page = await rig.page();
  const approve = page.getByRole("article").filter({ hasText: "call moved" }).getByRole("button", { name: "Approve" });
  await ready(approve);
  const sent = [];
  page.on("request", (request) => request.method() === "POST" && sent.push(request.url()));
  const isRefused = await approve.evaluate((button) => {
    // Something comes above it, and somebody presses where another button was.
    button.closest("ul").before(Object.assign(document.createElement("p"), { textContent: "news" }));
    const press = new MouseEvent("click", { bubbles: true, cancelable: true });
    return !button.dispatchEvent(press);
  });
  assert.equal(isRefused, true);
  assert.equal((await rig.api("/v1/waiting?session=quick")).items.length, 1);
  assert.deepEqual(sent, []);
  await rig.api("/v1/sessions/quick/cancel", {});
  await page.context().close();
});
