/** A client of a Windlass server. Requests are repeated until they are answered: the same key is the same batch. */
import { randomBytes } from "node:crypto";
import { Problem } from "./errors.js";
import { ask, pause } from "./request.js";

export type Wire = "openai_chat" | "openai_responses" | "anthropic" | "gemini";

export interface CallRequest {
  id?: string;
  tool: string;
  args?: unknown;
}

export interface Batch {
  key?: string;
  wait?: "settled" | "inline" | "none";
  timeoutMs?: number;
}

/** A call as the API shows it. */
export interface CallView {
  id: string;
  call: string;
  tool: string;
  state: string;
  outcome?: Record<string, unknown> & { value?: unknown };
  model: { parts: ModelPart[]; is_error?: boolean };
}

/** A part of the answer for the model. */
export interface ModelPart {
  type: string;
  text?: string;
  json?: unknown;
}

/** The answer of a call for the model, as text: its texts and JSON values, a line for each. */
export function modelText(call: CallView): string {
  const text = (part: ModelPart) => (part.type === "text" ? [part.text ?? ""] : part.type === "json" ? [JSON.stringify(part.json)] : []);
  return call.model.parts.flatMap(text).join("\n");
}

/** A client of one session. */
export class Client {
  readonly #url: string;
  readonly #token: string;
  readonly #giveUpMs: number;

  constructor(
    readonly session: string,
    options: { url?: string; token?: string; giveUpMs?: number } = {},
  ) {
    this.#url = options.url ?? process.env["WINDLASS_URL"] ?? "http://127.0.0.1:7420";
    this.#token = options.token ?? process.env["WINDLASS_TOKEN"] ?? "";
    this.#giveUpMs = options.giveUpMs ?? 90_000;
  }

  /** Submits a batch and returns its calls. It is sent again under its key until it is answered. */
  async batch(calls: readonly CallRequest[], options: Batch = {}): Promise<CallView[]> {
    const body = {
      key: options.key ?? randomBytes(16).toString("hex"),
      calls,
      wait: options.wait ?? "settled",
      ...(options.timeoutMs === undefined ? {} : { timeout_ms: options.timeoutMs }),
    };
    return ((await this.#ask("POST", `/v1/sessions/${this.session}/batches`, body)) as { calls: CallView[] }).calls;
  }

  /** Makes one call. */
  async call(tool: string, args: Record<string, unknown> = {}, options: Batch = {}): Promise<CallView> {
    const [call] = await this.batch([{ id: "call", tool, args }], options);
    if (call === undefined) throw new Problem(500, "unknown", "the batch has no call");
    return call;
  }

  /** Runs the tool calls of a model's response, and returns the messages for its next request in the provider's own shape. */
  async turn(response: unknown, options: { wire: Wire }): Promise<unknown> {
    return await this.#ask("POST", `/v1/sessions/${this.session}/batches?wire=${options.wire}`, response);
  }

  /** The tools of the session in the provider's own shape. Opens the session if it is new. */
  async tools(options: { wire: Wire }): Promise<{ tools: unknown }> {
    const path = `/v1/sessions/${this.session}/tools?wire=${options.wire}`;
    const listed = await this.#ask("GET", path).catch(async (error: unknown) => {
      if (!(error instanceof Problem) || error.code !== "not_found") throw error;
      await this.#ask("POST", "/v1/sessions", { id: this.session });
      return await this.#ask("GET", path);
    });
    return listed as { tools: unknown };
  }

  /** The events of the session, each once, also through restarts of the server. */
  async *events(after = 0): AsyncGenerator<Record<string, unknown>> {
    let cursor = after;
    for (;;) {
      try {
        const url = `${this.#url}/v1/sessions/${this.session}/events?after=${cursor}`;
        const response = await fetch(url, { headers: { authorization: `Bearer ${this.#token}` } });
        if (!response.ok && ![429, 502, 503, 504].includes(response.status)) throw await Problem.of(response);
        if (response.ok && response.body !== null) {
          let text = "";
          for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
            const lines = (text + piece).split("\n");
            text = lines.pop() ?? "";
            for (const line of lines.filter((line) => line.startsWith("data:"))) {
              const event = JSON.parse(line.slice("data:".length)) as Record<string, unknown>;
              if (typeof event["cursor"] === "number") cursor = event["cursor"];
              yield event;
            }
          }
        }
      } catch (error) {
        if (error instanceof Problem) throw error;
      }
      await pause(100);
    }
  }

  /** Everything that waits for a person, in this session unless the filters say otherwise. */
  async waiting(filters: Record<string, string> = {}): Promise<Record<string, unknown>[]> {
    const query = new URLSearchParams({ session: this.session, ...filters }).toString();
    return ((await this.#ask("GET", `/v1/waiting?${query}`)) as { items: Record<string, unknown>[] }).items;
  }

  /** Approves what `waiting` showed, with other arguments if they are given. */
  async approve(approval: Record<string, unknown>, args?: Record<string, unknown>): Promise<unknown> {
    const body = { decision: "approve", digest: approval["digest"], ...(args === undefined ? {} : { args }) };
    return await this.#ask("POST", `/v1/approvals/${String(approval["id"])}`, body);
  }

  /** Denies what `waiting` showed. */
  async deny(approval: Record<string, unknown>, reason: string): Promise<unknown> {
    const body = { decision: "deny", digest: approval["digest"], reason };
    return await this.#ask("POST", `/v1/approvals/${String(approval["id"])}`, body);
  }

  #ask(method: string, path: string, body?: unknown): Promise<unknown> {
    return ask(`${this.#url}${path}`, { method, token: this.#token, body, giveUpMs: this.#giveUpMs });
  }
}
