// An agent in TypeScript: Anthropic's client asks the model, Windlass runs the tools.
//
//     WINDLASS_TOKEN=… npx tsx anthropic_agent.mts "Write a greeting."
//
// Needs `npm install @anthropic-ai/sdk`. A lost connection or a killed server changes nothing: a response that is posted
// again runs nothing twice.
import Anthropic from "@anthropic-ai/sdk";

const session = process.env.SESSION ?? "anthropic-agent";
const url = process.env.WINDLASS_URL ?? "http://127.0.0.1:7420";
const headers = { Authorization: `Bearer ${process.env.WINDLASS_TOKEN}` };

async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  for (;;) {
    try {
      const answer = await fetch(`${url}/v1/sessions${path}`, { method, headers, body: JSON.stringify(body) });
      if (answer.ok) return (await answer.json()) as T;
      if (answer.status !== 503) throw new Error(await answer.text(), { cause: "refused" });
    } catch (lost) {
      if ((lost as Error).cause === "refused") throw lost;
      console.error(`${lost}; trying again`);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const model = new Anthropic();
const messages: Anthropic.MessageParam[] = [{ role: "user", content: process.argv[2] ?? "Hello." }];
await ask("POST", "", { id: session });
for (let over = false; !over; ) {
  const { tools } = await ask<{ tools: Anthropic.Tool[] }>("GET", `/${session}/tools?wire=anthropic`);
  const response = await model.messages.create({ model: "claude-opus-4-5", max_tokens: 4096, messages, tools });
  const path = `/${session}/batches?wire=anthropic`;
  const turn = await ask<{ messages: Anthropic.MessageParam[]; over: boolean }>("POST", path, response);
  messages.push(...turn.messages);
  over = turn.over;
}
console.log(JSON.stringify(messages.at(-1)?.content));
