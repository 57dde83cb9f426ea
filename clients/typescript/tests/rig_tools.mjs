// The tools of the kill rig in TypeScript's package. Each effect is a line in a ledger, written before anything else happens.
import { closeSync, fsyncSync, openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { serve, tool } from "windlass";

function wrote(...words) {
  const ledger = openSync(process.env.LEDGER, "a");
  try {
    writeSync(ledger, `${words.join(" ")}\n`);
    fsyncSync(ledger);
  } finally {
    closeSync(ledger);
  }
}

const input = { type: "object", properties: { order: { type: "string" }, ms: { type: "integer" } }, required: ["order", "ms"] };
const retry = { attempts: 50, base_ms: 20, cap_ms: 50 };

const pay = tool({
  name: "pay_ts",
  effect: "once",
  claims: [],
  input,
  async run({ order, ms }, ctx) {
    wrote("pay", order, ctx.idempotencyKey);
    await sleep(ms);
    return `paid ${order}`;
  },
});

const book = tool({
  name: "book_ts",
  effect: "keyed",
  claims: [],
  retry,
  input,
  async run({ order, ms }, ctx) {
    wrote("book", order, ctx.idempotencyKey);
    await sleep(ms);
    return `booked ${order}`;
  },
});

const ship = tool({
  name: "ship_ts",
  effect: "stepped",
  claims: [],
  retry,
  input,
  async run({ order, ms }, ctx) {
    const step = async (name) => {
      wrote("step", order, name);
      await sleep(ms / 3);
      return `${name} of ${order}`;
    };
    const first = await ctx.step("pick", "pick", step);
    wrote("recorded", order, "pick");
    await ctx.sleep("rest", ms);
    const second = await ctx.step("pack", "pack", step);
    wrote("recorded", order, "pack");
    return `${first}, ${second}`;
  },
});

await serve("rigts", [pay, book, ship], { slots: 8 });
