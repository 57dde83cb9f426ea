// A client whose types openapi-typescript made of docs/openapi.json drives a batch.
import createClient from "openapi-fetch";
import type { paths } from "./api.d.ts";

const client = createClient<paths>({
  baseUrl: process.env.WINDLASS_URL,
  headers: { Authorization: `Bearer ${process.env.WINDLASS_TOKEN}` },
});
const { data, error } = await client.POST("/v1/sessions/{session}/batches", {
  params: { path: { session: "generated-typescript" } },
  body: { key: "generated", calls: [{ id: "c1", tool: "add", args: { a: 19, b: 23 } }] },
});
if (error || !data || !("key" in data) || "messages" in data) throw new Error(JSON.stringify(error ?? data));
const [call] = data.calls;
const outcome = call && "outcome" in call ? call.outcome : undefined;
if (call?.state !== "succeeded" || !outcome || !("value" in outcome) || JSON.stringify(outcome.value) !== `{"result":42}`) throw new Error(JSON.stringify(call));
for (const part of call.model.parts) {
  // The tag tells the parts apart: `text` is known to be there.
  if (part.type === "text") console.log("openapi-typescript: the model is told", part.text);
}
