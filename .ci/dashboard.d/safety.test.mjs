// Texts of others, and pages of others. Run by .ci/dashboard.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { payloads } from "./payloads.mjs";
import { proxied } from "./without.mjs";
import { AGAIN, ask, FOREIGN, loaded, REBOUND, Rig, screens, until, workIn } from "./rig.mjs";

/** @type {Rig} */
let rig;
let work;
before(async () => {
  rig = await Rig.start();
  work = await workIn(rig);
});
after(() => rig?.stop());

const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/** A page of somebody else, under a name and a port of its own. */
async function strangerAt(context, name, t, asks = rig.url) {
  const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<h1>other</h1><iframe></iframe>"));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  // Also if the test fails: a server that listens keeps this process alive.
  t.after(() => (server.closeAllConnections(), server.close()));
  const page = await context.newPage();
  page.statuses = [];
  page.on("response", (answer) => answer.url().startsWith(asks) && page.statuses.push(answer.status()));
  await page.goto(`http://${name}:${server.address().port}/`);
  return page;
}

test("a used code, half a login, and both halves", async () => {
  const page = await rig.page();
  const context = page.context();
  const used = await (await rig.context()).newPage();
  await used.goto(rig.link);
  await used.getByRole("heading", { name: "Now" }).waitFor();
  const again = await (await rig.context()).newPage();
  await again.goto(rig.link);
  await again.getByText("it was used or is too old").waitFor();
  const asked = (headers) => page.evaluate(async (headers) => (await fetch("/v1/overview", { headers })).status, headers);
  assert.equal(await asked({}), 401, "the cookie alone");
  const [cookie] = await context.cookies(`${rig.url}/v1`);
  const key = await page.evaluate(() => localStorage.getItem("windlass-page-key"));
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.path === "/v1");
  assert.equal(cookie.name, `windlass-${new URL(rig.url).port}`);
  await context.clearCookies();
  assert.equal(await asked({ "X-Windlass-Page": key }), 401, "the page key alone");
  await context.addCookies([cookie]);
  assert.equal(await asked({ "X-Windlass-Page": key }), 200, "both");
  await used.context().close();
  await again.context().close();
  await context.close();
});

for (const name of ["127.0.0.1", FOREIGN]) {
  test(`a page of ${name === FOREIGN ? "a foreign site" : "another port of this host"} reads and changes nothing, and frames nothing`, async (t) => {
    const page = await rig.page();
    const stranger = await strangerAt(page.context(), name, t);
    await stranger.evaluate(async (url) => {
      const json = { "content-type": "application/json" };
      const tries = [
        ["/v1/overview", { credentials: "include", mode: "no-cors" }],
        ["/v1/changes", { credentials: "include", mode: "no-cors" }],
        ["/v1/sessions", { method: "POST", credentials: "include", mode: "no-cors", body: '{"id":"stolen"}' }],
        ["/v1/logout", { method: "POST", credentials: "include", mode: "no-cors", body: "{}" }],
        ["/login", { method: "POST", mode: "no-cors", body: '{"code":"00"}' }],
        // The header of the page needs leave, which nobody gives.
        ["/v1/sessions", { method: "POST", credentials: "include", headers: { ...json, "X-Windlass-Page": "00" }, body: '{"id":"stolen"}' }],
        ["/v1/overview", { credentials: "include" }],
      ];
      for (const [path, options] of tries) await fetch(url + path, options).then((answer) => answer.type === "opaque" || Promise.reject(new Error("it could be read"))).catch((error) => error.message === "it could be read" && (document.title = "read"));
      await new Promise((done) => {
        const frame = document.querySelector("iframe");
        frame.onload = done;
        frame.src = url + "/";
      });
      // A form of its own.
      const form = Object.assign(document.createElement("form"), { method: "post", action: url + "/v1/sessions", enctype: "text/plain", target: "_blank" });
      form.append(Object.assign(document.createElement("input"), { name: '{"id":"stolen', value: '"}' }));
      document.body.append(form);
    }, rig.url);
    const [opened] = await Promise.all([page.context().waitForEvent("page"), stranger.evaluate(() => document.querySelector("form").submit())]);
    await opened.getByText("origin_not_allowed").waitFor();
    assert.notEqual(await stranger.title(), "read");
    assert.ok(stranger.statuses.length >= 6 && stranger.statuses.every((status) => status === 403), String(stranger.statuses));
    assert.equal((await rig.api("/v1/sessions?limit=200")).items.some((session) => session.id === "stolen"), false);
    assert.equal(await page.evaluate(async () => (await fetch("/v1/overview", { headers: { "X-Windlass-Page": localStorage.getItem("windlass-page-key") } })).status), 200, "nobody was logged out");
    await page.context().close();
  });
}

test("where a browser does not say which site asks, the origin decides", async (t) => {
  const page = await rig.page();
  // As from an older browser: what it says about the site is taken away on the way.
  const older = await proxied(rig.url, "site");
  t.after(() => older.close());
  for (const name of ["127.0.0.1", FOREIGN]) {
    const stranger = await strangerAt(page.context(), name, t, older.url);
    const link = rig.open();
    await stranger.evaluate(async ([url, code]) => {
      const post = (path, body) => fetch(url + path, { method: "POST", credentials: "include", mode: "no-cors", body });
      // Somebody else's login, which this browser would then work under; and work in the person's name.
      await post("/login", JSON.stringify({ code }));
      await post("/v1/sessions", '{"id":"stolen"}');
      await post("/v1/logout", "{}");
    }, [older.url, link.split("#login=")[1]]);
    assert.deepEqual(stranger.statuses, [403, 403, 403], name);
    const other = await (await rig.context()).newPage();
    await other.goto(link);
    await other.getByRole("heading", { name: "Now" }).waitFor();
    await other.context().close();
  }
  await page.context().close();
});

test("where a browser does not say which site asks, nobody frames the page", async (t) => {
  const page = await rig.page();
  const older = await proxied(rig.url, "site");
  t.after(() => older.close());
  for (const name of ["127.0.0.1", FOREIGN]) {
    const stranger = await strangerAt(page.context(), name, t, older.url);
    await stranger.evaluate((url) => new Promise((done) => {
      const frame = document.querySelector("iframe");
      frame.onload = done;
      frame.src = url + "/";
    }), older.url);
    assert.deepEqual(stranger.statuses.slice(0, 1), [200], "the page is given");
    const framed = await stranger.frames()[1].evaluate(() => location.href);
    assert.equal(framed, "chrome-error://chromewebdata/", `${name}: and not shown`);
  }
  await page.context().close();
});

test("a text that became a script all the same would do nothing", async () => {
  const page = await rig.page();
  const done = await page.evaluate(async (elsewhere) => {
    const done = [];
    const note = (/** @type {string} */ what) => done.push(what);
    Object.assign(window, { note });
    const tries = {
      markup: () => (document.body.insertAdjacentHTML("beforeend", "<i></i>"), note("markup")),
      "a script in the page": () => document.body.append(Object.assign(document.createElement("script"), { text: "note('a script in the page')" })),
      "a script from elsewhere": () => document.body.append(Object.assign(document.createElement("script"), { src: elsewhere })),
      "a handler": () => {
        const box = document.createElement("div");
        box.setAttribute("onclick", "note('a handler')");
        document.body.append(box);
        box.click();
      },
      "a link": () => Object.assign(document.createElement("a"), { href: "javascript:note('a link')" }).click(),
      // Later, since what is evaluated for a test may do more than the page.
      evaluation: () => new Promise((done, refused) => setTimeout(() => {
        try {
          (0, eval)("note('evaluation')");
          done(undefined);
        } catch (error) {
          refused(error);
        }
      })),
      "a style": () => document.body.append(Object.assign(document.createElement("style"), { textContent: "body { color: rgb(1, 2, 3) }" })),
      "a request elsewhere": () => fetch(elsewhere, { mode: "no-cors" }).then(() => note("a request elsewhere")),
    };
    for (const attempt of Object.values(tries)) {
      try {
        await attempt();
      } catch {
        // Refused, as it should be.
      }
    }
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    if (getComputedStyle(document.body).color === "rgb(1, 2, 3)") note("a style");
    return done;
  }, `${rig.url.replace("127.0.0.1", FOREIGN)}/assets/app.js`);
  assert.deepEqual(done, []);
  await page.context().close();
});

test("a foreign name that was bound to this server gets nothing, not even the page", async () => {
  const context = await rig.context();
  const page = await context.newPage();
  const at = `http://${REBOUND}:${new URL(rig.url).port}`;
  for (const path of ["/", "/ui/calls", "/assets/app.js", "/v1/overview", "/openapi.json", "/metrics"]) {
    const answer = await page.goto(at + path);
    assert.equal(answer.status(), 403, path);
    assert.match(await answer.text(), /host_not_allowed/, path);
  }
  // From such a page, as its own origin, with a token that somebody has leaked to it.
  const status = await page.evaluate(async (token) => (await fetch("/v1/sessions", { method: "POST", headers: { Authorization: `Bearer ${token}` }, body: '{"id":"stolen"}' })).status, rig.token);
  assert.equal(status, 403);
  await context.close();
});

test("the headers are the strict ones, on the page and on every asset", async () => {
  for (const path of ["/", "/ui/calls", "/assets/app.js", "/assets/style.css", "/assets/vendor/preact.mjs"]) {
    const { headers } = await ask(rig.url + path);
    const found = ["content-security-policy", "x-frame-options", "x-content-type-options", "referrer-policy", "cross-origin-opener-policy", "cross-origin-resource-policy", "access-control-allow-origin"].map((name) => headers[name] ?? null);
    assert.deepEqual(found, [POLICY, "DENY", "nosniff", "no-referrer", "same-origin", "same-origin", null], path);
    assert.equal((await ask(rig.url + path, { headers: { "If-None-Match": headers.etag } })).status, 304, path);
  }
});

/** Words that programs go by: every second copy of a screen leaves them as they are, so that what depends on them is drawn. */
const WORDS = new Set(["kind", "state", "type", "format", "$ref", "stream", "ruling", "direction", "class", "by", "decision", "siblings"]);
/** What must stay, or nothing is loaded. */
const KEPT = new Set(["call", "next"]);

/** Plants a text in every string of an answer, and in the names of arguments and labels. */
function planted(value, text, spare, name = "") {
  if (typeof value === "string") return KEPT.has(name) || (spare && WORDS.has(name)) ? value : value + text;
  if (Array.isArray(value)) return value.slice(0, 2).map((one) => planted(one, text, spare, name));
  if (value === null || typeof value !== "object") return value;
  const isNamed = name === "args" || name === "labels";
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [isNamed ? key + text : key, planted(one, text, spare, key)]));
}

/** Answers to what people ask on the page. */
const SAID = {
  "/preview": { valid: false, problem: "it does not fit", differences: ["/count", "/part"] },
  "/v1/policy/check": { ruling: "ask", by: ["a rule"], reason: "why", rules: [{ name: "a rule", ruling: "ask", matched: true, conditions: [{ holds: true, condition: "the tool is", finding: "it is" }] }] },
  "/check": { valid: false, problem: "it does not fit", repairs: ["a text became a number"], args: { part: "rope" }, policy: { ruling: "ask", by: ["a rule"], reason: "why" } },
};

test("100 texts that would do something, in every field of every screen: none does", async () => {
  const all = payloads();
  assert.ok(all.length >= 100);
  const page = await rig.page();
  // Kept here and not in the page: what happens may lead away from it.
  const hits = [];
  await page.exposeFunction("hit", (what) => void hits.push(String(what)));
  await page.addInitScript(() => {
    window.alert = window.hit;
    document.addEventListener("securitypolicyviolation", (event) => window.hit(`policy: ${event.violatedDirective} ${event.sample}`));
  });
  // Each answer has the next text in all its strings.
  const answered = new Map();
  let fields = 0;
  const answers = new Map();
  await page.route("**/v1/**", async (route) => {
    const url = route.request().url();
    if (url.endsWith("/v1/changes")) return route.abort();
    const count = answered.get(url) ?? 0;
    answered.set(url, count + 1);
    // Names are planted, too, so that the server knows none of them: what it would say is said here.
    const said = Object.entries(SAID).find(([end]) => url.endsWith(end) && !url.includes("/schedules/"))?.[1];
    if (said) return await route.fulfill({ contentType: "application/json", body: JSON.stringify(planted(said, ` [${count % all.length}] ${all[(url.length + count) % all.length]}`, false)) }).catch(() => {});
    if (!answers.has(url)) answers.set(url, route.fetch(AGAIN).then(async (answer) => ({ status: answer.status(), text: await answer.text() })));
    const { status, text } = await answers.get(url);
    // Refusals are shown, too.
    const body = count % 31 === 30 ? { code: "internal", detail: "refused" } : JSON.parse(text);
    const number = count % all.length;
    const mark = ` [${number}] ${all[number]}`;
    const spare = Math.floor(count / all.length) % 2 === 0 ? number % 2 === 0 : number % 2 === 1;
    fields += 1;
    await route.fulfill({ status: count % 31 === 30 ? 500 : status, contentType: "application/json", body: JSON.stringify(planted(body, mark, spare)) }).catch(() => {});
  });
  // One that runs has a sentence about itself.
  await rig.submit("quay", [{ id: "u", tool: "unload", args: { ship: "the Cutty Sark" } }]);
  await until("it runs", async () => (await rig.api("/v1/sessions/quay/calls?state=running")).items[0]?.narration);
  const { visited } = await screensWithWork();
  for (const [name, [module, screen, props]] of Object.entries(visited)) {
    await page.goto(`${rig.url}/ui/nowhere`);
    await page.locator("main h1").waitFor();
    const leaves = (frame) => hits.push(`the page was led to ${frame.url()}`);
    page.on("framenavigated", leaves);
    await page.evaluate(async ([module, screen, props, copies]) => {
      const [{ [screen]: Screen }, { h, render }] = await Promise.all([import(`/assets/${module}`), import("/assets/vendor/preact.mjs")]);
      const query = new URLSearchParams();
      const root = document.createElement("div");
      root.id = "copies";
      document.querySelector("main").append(root);
      render(Array.from({ length: copies }, (_, key) => h("div", { key, class: "copy" }, h(Screen, { ...props, query }))), root);
    }, [module, screen, props, all.length]);
    const seen = () => page.evaluate(() => [...new Set([...document.querySelector("#copies").textContent.matchAll(/\[(\d+)\]/g)].map((found) => Number(found[1])))].length);
    await until(`${name} shows all texts`, async () => hits.length > 0 || (await seen()) >= all.length);
    assert.deepEqual(hits.slice(0, 5), [], name);
    await page.waitForFunction(() => !document.querySelector("#copies [aria-busy=true]"));
    // What is drawn when somebody asks for it: differences, and what a check says.
    await page.evaluate(() => document.querySelectorAll("#copies #search").forEach((field) => field.dispatchEvent(Object.assign(new Event("input", { bubbles: true }), { value: (/** @type {any} */ (field).value = "any") }))));
    const asking = page.locator("#copies button").filter({ hasText: /^(Edit|Check)$/ });
    await until(`${name} can be asked`, () => asking.evaluateAll((buttons) => buttons.every((button) => !button.matches(":disabled"))));
    const asked = await asking.evaluateAll((buttons) => (buttons.slice(0, 60).forEach((button) => /** @type {HTMLElement} */ (button).click()), buttons.length));
    if (asked > 0) await until(`${name} answers`, async () => hits.length > 0 || (await page.locator("#copies :is(.difference table, [aria-live] .card, [aria-live] table)").count()) > 20);
    assert.deepEqual(hits, [], name);
    const made = await page.evaluate(() => {
      const links = [...document.querySelectorAll("main a")].filter((link) => !["http:", "https:"].includes(link.protocol));
      return document.querySelectorAll("main :is(script, iframe, img, object, embed, form[action], video, audio, svg, math, style, link, base, meta, marquee)").length + links.length;
    });
    assert.equal(made, 0, `${name}: no text became an element`);
    assert.equal(await page.getByText("could not be drawn").count(), 0, `${name} is drawn`);
    page.off("framenavigated", leaves);
  }
  console.log(`# ${all.length} texts in ${fields} answers of ${Object.keys(visited).length} screens`);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
});

/** Every screen as a component, with work behind it. */
async function screensWithWork() {
  const waits = await rig.api("/v1/waiting");
  assert.ok(waits.items.length > 0, "something waits");
  return {
    visited: {
      now: ["now.js", "Now", {}],
      waiting: ["people.js", "Waiting", {}],
      sessions: ["sessions.js", "Sessions", {}],
      session: ["sessions.js", "Session", { session: "work" }],
      calls: ["calls.js", "Calls", {}],
      call: ["calls.js", "Call", { call: work.call }],
      batch: ["calls.js", "Batch", { session: "work", batch: "retried" }],
      tasks: ["tasks.js", "Tasks", {}],
      task: ["tasks.js", "Task", { session: "work", task: work.task }],
      schedules: ["tasks.js", "Schedules", {}],
      tools: ["tools.js", "Tools", {}],
      tool: ["tools.js", "Tool", { tool: "order_parts" }],
      policy: ["tools.js", "Policy", {}],
      workers: ["tasks.js", "Workers", {}],
    },
  };
}

test("texts are shown as they are, and invisible characters as escapes", async () => {
  const all = payloads().filter((payload) => payload.length < 1_000);
  const calls = all.map((payload, place) => ({ id: `p${place}`, tool: "echo", args: { message: payload } }));
  const { calls: made } = await rig.submit("xss", calls, { key: "xss", wait: "settled" });
  const page = await rig.page();
  for (const place of [0, 17, 42, ...all.keys()].slice(0, 3).concat(all.findIndex((payload) => payload.includes("\u202e")), all.findIndex((payload) => payload.includes("\u200b")))) {
    await page.goto(`${rig.url}/ui/calls/${made[place].call}`);
    await loaded(page);
    const told = (await page.locator("#args ~ .args").first().innerText()).replace(/\s+/g, "");
    const visible = all[place].replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff]/g, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
    assert.ok(told.includes(visible.replace(/\s+/g, "")), `${JSON.stringify(all[place])} is shown as it is: ${told}`);
  }
  // A long one is cut until somebody asks.
  const [long] = (await rig.submit("xss", [{ id: "long", tool: "echo", args: { message: "y".repeat(70_000) } }], { key: "long", wait: "settled" })).calls;
  await page.goto(`${rig.url}/ui/calls/${long.call}`);
  const shown = () => page.locator("#args ~ .args").first().evaluate((box) => box.textContent.match(/y+/)?.[0].length);
  await page.getByRole("button", { name: "show all 70,000 characters" }).first().waitFor();
  assert.equal(await shown(), 65_536);
  await page.getByRole("button", { name: "show all 70,000 characters" }).first().click();
  await until("all of it is there", async () => (await shown()) === 70_000);
  assert.deepEqual(page.wrong, []);
  await page.context().close();
  await rig.api("/v1/sessions/xss", undefined, "DELETE");
});

test("every screen is listed here", () => assert.equal(Object.keys(screens(work)).length, 14));
