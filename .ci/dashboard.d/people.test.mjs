// What people answer on the page: questions, connections, changed tools, calls of which nobody knows whether they happened; and why a
// call waits. Run by .ci/dashboard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { decide, PeopleRig, pressByKey, shot, tabTo, until } from "./rig.mjs";

/** @type {PeopleRig} */
let rig;
before(async () => void (rig = await PeopleRig.start()));
after(() => rig?.stop());

const callNow = async (call) => await rig.api(`/v1/calls/${call}`);
const ended = (call, state) => until(`${call} has ${state}`, async () => {
  const now = await callNow(call);
  return now.state === state && now;
});

test("a question is answered as a form, and an answer that does not fit is told", async () => {
  const [asked] = (await rig.submit("house", [{ id: "door", tool: "paint", args: { door: "front" } }])).calls;
  const page = await rig.page();
  const card = page.getByRole("article", { name: "Question paint" });
  await card.getByText("Which colour shall the door have?").waitFor();
  await shot(page, "question");
  await card.getByRole("button", { name: "JSON" }).click();
  await card.getByLabel("Answer as JSON").fill('"blue"');
  await decide(card.getByRole("button", { name: "Answer", exact: true }));
  await card.getByRole("alert").first().waitFor();
  assert.equal((await callNow(asked.call)).state, "awaiting_input", "it is still open");
  await card.getByRole("button", { name: "Form" }).click();
  await card.getByRole("combobox").selectOption("green");
  await decide(card.getByRole("button", { name: "Answer", exact: true }));
  await card.waitFor({ state: "detached" });
  const done = await ended(asked.call, "succeeded");
  assert.match(JSON.stringify(done.outcome), /"colour":"green"/);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a connection is made, or declined; its address is a link with its host written out", async () => {
  const page = await rig.page();
  for (const [id, button, state] of [["yes", "It is connected", "succeeded"], ["no", "Decline", "failed"]]) {
    const [letter] = (await rig.submit(`post-${id}`, [{ id, tool: "send_letter", args: { to: "Ann" } }])).calls;
    const card = page.getByRole("article", { name: "Connect send_letter" });
    const link = card.getByRole("link", { name: "mail.example ↗" });
    assert.equal(await link.getAttribute("href"), "https://mail.example/connect?to=windlass");
    assert.equal(await link.getAttribute("rel"), "noopener noreferrer");
    await shot(page, "connection");
    await decide(card.getByRole("button", { name: button }));
    await card.waitFor({ state: "detached" });
    await ended(letter.call, state);
  }
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a call whose tool has changed goes on when somebody accepts that", async () => {
  const [sold] = (await rig.submit("dairy", [{ id: "brie", tool: "ripen", args: { cheese: "brie" } }])).calls;
  await until("it ripens", async () => (await callNow(sold.call)).waiting_for?.startsWith("sleep"));
  const listen = new URL(rig.url).host;
  await rig.kill();
  await rig.serve(listen, "changed");
  const page = await rig.page();
  const card = page.getByRole("article", { name: "The tool has changed ripen" });
  await card.waitFor();
  await shot(page, "changed");
  await decide(card.getByRole("button", { name: "Accept the changed tool" }));
  await card.waitFor({ state: "detached" });
  await ended(sold.call, "succeeded");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a call that waits behind another one says so, and links it", async () => {
  const lift = (id) => ({ id, tool: "lift", args: { crane: "north", ms: 60_000 } });
  const [first, second] = (await rig.submit("site", [lift("first"), lift("second")], { key: "cranes" })).calls;
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/sessions/site/batches/cranes`);
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "second" }) });
  await row.getByText("waits behind").waitFor();
  await row.getByRole("link", { name: "lift" }).click();
  await page.waitForURL(`**/ui/calls/${first.call}`);
  await page.goto(`${rig.url}/ui/calls/${second.call}`);
  await page.getByText("on write crane:north").or(page.getByText("on crane:north")).first().waitFor();
  // The bar with the focus says the same, to the microsecond.
  await tabTo(page, page.locator(".track .bar").first());
  await page.locator(".detail").getByText("µs").first().waitFor();
  await shot(page, "blocked");
  await page.locator(".detail").getByRole("link", { name: "lift" }).click();
  await page.waitForURL(`**/ui/calls/${first.call}`);
  await page.getByRole("heading", { name: "lift" }).waitFor();
  // By keyboard alone it is cancelled, and the next one begins.
  await pressByKey(page, page.getByRole("button", { name: "Cancel", exact: true }));
  await until("the second runs", async () => (await callNow(second.call)).state === "running");
  await rig.api("/v1/sessions/site/cancel", {});
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a question and a call of a tool by keyboard alone, from the login on", async () => {
  const [asked] = (await rig.submit("house", [{ id: "gate", tool: "paint", args: { door: "gate" } }])).calls;
  const page = await (await rig.context()).newPage();
  await page.goto(rig.url);
  await tabTo(page, page.getByLabel("Or paste a token"));
  await page.keyboard.insertText(rig.token);
  await page.keyboard.press("Enter");
  const card = page.getByRole("article", { name: "Question paint" });
  await card.waitFor();
  await tabTo(page, card.getByRole("combobox"));
  await page.keyboard.press("g");
  await pressByKey(page, card.getByRole("button", { name: "Answer", exact: true }));
  await card.waitFor({ state: "detached" });
  assert.match(JSON.stringify((await ended(asked.call, "succeeded")).outcome), /"colour":"green"/);
  // A tool is called from its form.
  await tabTo(page, page.getByRole("link", { name: "Tools", exact: true }));
  await page.keyboard.press("Enter");
  await page.getByRole("list", { name: "Tools" }).waitFor();
  await tabTo(page, page.getByRole("link", { name: /^say/ }));
  await page.keyboard.press("Enter");
  await page.getByLabel("message").waitFor();
  await tabTo(page, page.getByLabel("message"));
  await page.keyboard.insertText("by keys");
  await pressByKey(page, page.getByRole("button", { name: "Run" }));
  await page.waitForURL("**/ui/calls/*");
  await page.getByText("succeeded").first().waitFor();
  await page.context().close();
});

test("a call that is tried again says when, and what went wrong before", async () => {
  const [sailing] = (await rig.submit("tide", [{ id: "ebb", tool: "sail", args: { ship: "Ann" } }])).calls;
  await until("it waits for the tide", async () => (await callNow(sailing.call)).state === "retrying");
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/calls?state=retrying`);
  await page.getByRole("list", { name: "Calls" }).getByRole("link").filter({ hasText: "ebb" }).click();
  const top = page.locator("main");
  await top.getByText(/waits for its next attempt/).first().waitFor();
  await top.locator(".wrong").getByText(/attempt 1 .*The tide is out/).waitFor();
  await shot(page, "retrying");
  await decide(page.getByRole("button", { name: "Cancel", exact: true }));
  await ended(sailing.call, "cancelled");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a race names its winner, and marks whom it did not need", async () => {
  const calls = [{ id: "slow", tool: "lift", args: { crane: "east", ms: 60_000 } }, { id: "fast", tool: "lift", args: { crane: "west", ms: 50 } }];
  await rig.submit("race", calls, { key: "race", siblings: "race" });
  const page = await rig.page();
  await page.goto(`${rig.url}/ui/sessions/race/batches/race`);
  const row = (id) => page.getByRole("row").filter({ has: page.getByRole("link", { name: id }) });
  await row("fast").getByText("winner").waitFor();
  await row("slow").getByText("not needed").waitFor();
  await shot(page, "race");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("calls inside stand below the one that made them, and what it reports is shown", async () => {
  await rig.submit("port", [{ id: "ann", tool: "moor", args: { ship: "Ann", ms: 60_000 } }, { id: "word", tool: "say", args: { message: "ahoy" } }], { key: "in" });
  const page = await rig.page();
  const row = page.getByRole("list", { name: "Open calls" }).getByRole("link").filter({ hasText: "ann · port" });
  await row.getByText("towards the quay").waitFor();
  await row.getByText("12 of 30 m").waitFor();
  await shot(page, "running");
  await page.goto(`${rig.url}/ui/sessions/port/batches/in`);
  await page.getByRole("rowheader").filter({ hasText: "stern-crane" }).waitFor();
  const rows = await page.getByRole("rowheader").evaluateAll((heads) => heads.map((head) => [head.querySelector("a").textContent, parseFloat(getComputedStyle(head).paddingLeft)]));
  assert.deepEqual(rows.map(([id]) => id), ["ann", "bow-crane", "stern-crane", "word"]);
  assert.ok(rows[1][1] > rows[0][1] && rows[2][1] === rows[1][1] && rows[3][1] === rows[0][1], JSON.stringify(rows));
  // The arrows move through the bars of a row, and each is told exactly.
  const bars = page.getByRole("row").filter({ has: page.getByRole("link", { name: "bow-crane" }) }).locator(".bar");
  await bars.first().focus();
  await page.locator(".detail").filter({ hasText: /bow-crane queued: \+[\d,]+ µs to \+[\d,]+ µs/ }).waitFor();
  await page.keyboard.press("ArrowRight");
  assert.equal(await bars.nth(1).evaluate((bar) => bar === document.activeElement), true);
  await page.locator(".detail").filter({ hasText: /bow-crane attempt 1: \+[\d,]+ µs to \+[\d,]+ µs, [\d,]+ µs ok/ }).waitFor();
  await shot(page, "nested");
  await rig.api("/v1/sessions/port/cancel", {});
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

test("a form shows what a schema says, and keeps what it does not touch", async () => {
  const page = await rig.page();
  const schema = {
    type: "object",
    required: ["to", "how", "lines"],
    $defs: { place: { type: "object", required: ["city"], properties: { city: { type: "string" }, zone: { type: "integer" } } } },
    properties: {
      to: { anyOf: [{ type: "string", title: "a name" }, { $ref: "#/$defs/place" }] },
      how: { oneOf: [{ type: "object", required: ["kind"], properties: { kind: { const: "ship" } } }, { type: "object", required: ["kind", "wagons"], properties: { kind: { const: "rail" }, wagons: { type: "integer" } } }] },
      lines: { type: "array", items: { enum: ["one", "two", 3] } },
      note: { type: "string" },
    },
  };
  const given = '{"to": {"city": "Hull", "zone": 12345678901234567890}, "how": {"kind": "rail", "wagons": 4}, "lines": ["two", 3], "other": 1e400}';
  await page.evaluate(async ([schema, given]) => {
    const [{ ValueEditor }, { h, render }, { parse, print }, { useState }] = await Promise.all(["form.js", "vendor/preact.mjs", "json.js", "vendor/hooks.mjs"].map((file) => import(`/assets/${file}`)));
    const root = document.createElement("div");
    document.querySelector("main").replaceChildren(root);
    const Box = () => {
      const [value, setValue] = useState(() => parse(given));
      window.edited = print(value);
      return h(ValueEditor, { schema, value, onEdit: setValue });
    };
    render(h(Box), root);
  }, [schema, given]);
  const edited = () => page.evaluate(() => window.edited);
  assert.equal(await page.getByLabel("Kind").first().inputValue(), "1", "the choice that the value was made by");
  assert.equal(await page.getByLabel("city", { exact: true }).inputValue(), "Hull");
  const [city, wagons] = await Promise.all(["city", "wagons"].map((name) => page.getByLabel(name, { exact: true }).elementHandle()));
  await page.evaluate((edits) => {
    for (const [field, typed] of edits) {
      field.value = typed;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }, [[city, "York"], [wagons, "6"]]);
  await until("two edits between two draws are both there", async () => (await edited()).includes('"city":"York"') && (await edited()).includes('"wagons":6'));
  await page.getByLabel("city", { exact: true }).fill("Hull");
  await page.getByLabel("wagons", { exact: true }).fill("5");
  await page.getByLabel("Item 1", { exact: true }).selectOption("one");
  await page.getByRole("button", { name: "Add note" }).click();
  await page.getByLabel("note (optional)").fill("fragile");
  const whole = '{"to":{"city":"Hull","zone":12345678901234567890},"how":{"kind":"rail","wagons":5},"lines":["one",3],"other":1e400,"note":"fragile"}';
  await until("it is edited", async () => (await edited()) === whole);
  await page.getByLabel("Kind").nth(1).selectOption("0");
  await until("another choice is made", async () => (await edited()).includes('"how":{"kind":"ship"}'));
  await page.getByRole("button", { name: "Remove item 2" }).click();
  await until("it is removed", async () => (await edited()).includes('"lines":["one"]'));
  await page.getByRole("button", { name: "Leave out note" }).click();
  await until("it is left out", async () => !(await edited()).includes("note"));
  await page.getByRole("button", { name: "JSON" }).click();
  assert.equal(JSON.stringify(JSON.parse(await page.getByLabel("Arguments as JSON").inputValue()).lines), '["one"]');
  assert.ok(!(await edited()).includes("note"));
  await page.getByLabel("Arguments as JSON").fill("{");
  await page.getByRole("alert").filter({ hasText: "This is not JSON yet" }).waitFor();
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});
