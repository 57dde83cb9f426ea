// A toolbox with two tools: one that only reads, and one that survives crashes of everything at every step.
//
//     WINDLASS_TOKEN=$(cat .windlass/token) node orders.mjs
import { serve, StepUnknown, tool } from "windlass";
import { z } from "zod";

const PRICES = { tea: 4, cake: 7 };

const price = tool({
  name: "price",
  description: "The price of an item.",
  effect: "read",
  input: z.object({ item: z.string().describe("The name of the item, such as `tea`.") }),
  run: ({ item }) => PRICES[item],
});

const order = tool({
  name: "order",
  description: "Orders an item, waits for the payment, and sends it.",
  effect: "stepped",
  claims: ["write order:{item}"],
  input: z.object({ item: z.string(), count: z.number().int() }),
  async run({ item, count }, ctx) {
    const reserved = await ctx.step("reserve", { item, count }, ({ item, count }) => `${count} x ${item}`);
    await ctx.sleep("cool down", 200);
    const key = await ctx.completion("payment");
    await ctx.step("invoice", { reserved, key }, ({ reserved, key }) => {
      console.log(`${reserved}: windlass complete ${key} --ok true`);
    });
    const paid = await ctx.wait("payment", 3_600_000);
    const sent = await ctx.step("send", { reserved }, ({ reserved }) => `sent ${reserved}`, { once: true }).catch((error) => {
      if (!(error instanceof StepUnknown)) throw error;
      return "perhaps: this process died while it sent, and must not send twice";
    });
    return { reserved, paid, sent };
  },
});

await serve("shop", [price, order]);
