// The Vercel AI SDK with the tools of a Windlass session.
//
//     WINDLASS_TOKEN=$(cat .windlass/token) OPENAI_API_KEY=… node with_ai_sdk.mjs "What does tea cost?"
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { Client, modelText } from "windlass";

/** The tools of the session, executed through Windlass. The model's id of a call is its key: asked again, it is answered again. */
async function windlassTools(client) {
  const described = (await client.tools({ wire: "openai_chat" })).tools.map((one) => one.function);
  const entry = ({ name, description, parameters }) => {
    const execute = async (args, { toolCallId }) => modelText(await client.call(name, args, { key: toolCallId }));
    return [name, tool({ description, inputSchema: jsonSchema(parameters), execute })];
  };
  return Object.fromEntries(described.map(entry));
}

const client = new Client(process.env.SESSION ?? "ai-sdk");
const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const { text } = await generateText({
  model: openai.chat(process.env.MODEL ?? "gpt-5-mini"),
  tools: await windlassTools(client),
  stopWhen: stepCountIs(5),
  prompt: process.argv[2],
});
console.log(text);
