// The providers' own npm clients read what we write, and write what we read: the fixtures go through the clients' types, and
// what Windlass answers satisfies their types for requests (checked by tsc) and their parsers (checked here).
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI, type Content, type GenerateContentResponse } from "@google/genai";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";

type Report<Message> = { calls: { id: string; tool: string; args: string }[]; messages: Message[]; notice: Message[]; tools: unknown[] };

const program = process.argv[2] ?? "";
const read = (wire: string) => readFileSync(new URL(`./fixtures/${wire}.json`, import.meta.url), "utf8");

function answer<Message>(wire: string, response: string): Report<Message> {
  return JSON.parse(execFileSync(program, [wire], { input: response, encoding: "utf8" }));
}

// A provider that answers every request with the fixture of its wire, and remembers what it was sent.
let sent: unknown;
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (piece) => (body += piece));
  request.on("end", () => {
    sent = JSON.parse(body);
    const path = request.url ?? "";
    const wire = path.includes("generateContent") ? "gemini" : path.endsWith("/messages") ? "anthropic" : path.endsWith("/responses") ? "openai_responses" : "openai_chat";
    response.writeHead(200, { "content-type": "application/json" }).end(read(wire));
  });
});
await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

function same<Message>(wire: string, again: unknown): Report<Message> {
  const ours = answer<Message>(wire, read(wire));
  const theirs = answer<Message>(wire, JSON.stringify(again));
  const parsed = (report: Report<Message>) => JSON.stringify(report.calls.map((call) => [call.id, call.tool, JSON.parse(call.args || "{}")]));
  if (parsed(ours) !== parsed(theirs)) throw new Error(`${wire}: calls differ after a round through the client`);
  return ours;
}

// The order of keys means nothing.
const sorted = (_: string, value: unknown) =>
  value && typeof value === "object" && !Array.isArray(value) ? Object.fromEntries(Object.entries(value).sort()) : value;

function arrived(wire: string, key: string, messages: unknown[]) {
  const got = JSON.stringify((sent as Record<string, unknown>)[key], sorted);
  if (got !== JSON.stringify(messages, sorted)) throw new Error(`${wire}: the client sent other messages: ${got}`);
  console.log(`${wire}: ${messages.length} messages`);
}

const openai = new OpenAI({ baseURL: url, apiKey: "none" });
const chat = same<OpenAI.ChatCompletionMessageParam>("openai_chat", await openai.chat.completions.create({ model: "m", messages: [] }));
const chatMessages = [...chat.messages, ...chat.notice];
await openai.chat.completions.create({ model: "m", messages: chatMessages, tools: chat.tools as OpenAI.ChatCompletionTool[] });
arrived("openai_chat", "messages", chatMessages);

const responses = same<OpenAI.Responses.ResponseInputItem>("openai_responses", await openai.responses.create({ model: "m", input: "" }));
const input = [...responses.messages, ...responses.notice];
await openai.responses.create({ model: "m", input, tools: responses.tools as OpenAI.Responses.Tool[] });
arrived("openai_responses", "input", input);

const anthropic = new Anthropic({ baseURL: url, apiKey: "none" });
const message = same<Anthropic.MessageParam>("anthropic", await anthropic.messages.create({ model: "m", max_tokens: 1, messages: [] }));
const messages = [...message.messages, ...message.notice];
await anthropic.messages.create({ model: "m", max_tokens: 1, messages, tools: message.tools as Anthropic.Tool[] });
arrived("anthropic", "messages", messages);

const google = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: url } });
const generated: GenerateContentResponse = await google.models.generateContent({ model: "m", contents: "x" });
const { candidates, responseId } = generated;
const gemini = same<Content>("gemini", { candidates, responseId });
const contents = [...gemini.messages, ...gemini.notice];
await google.models.generateContent({ model: "m", contents });
arrived("gemini", "contents", contents);
server.close();
console.log("4 passed, 0 failed");
