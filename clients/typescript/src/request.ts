/** Requests that are repeated until they are answered. */
import { Problem } from "./errors.js";

const RETRY_MS = 20;
/** A server that starts again waits for its processes. */
const RETRY_MS_MAX = 500;
const BUSY = [429, 502, 503, 504];

export interface Asked {
  method: string;
  token: string;
  /** JSON. */
  body?: unknown;
  /** A text of any media type. */
  bytes?: { mediaType: string; text: string };
  /** How long lost connections and busy servers are tried again. */
  giveUpMs: number;
  /** Whether it is still worth trying again. */
  isWanted?: () => boolean;
  /** Told of each lost connection. */
  away?: (why: string) => void;
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export async function ask(url: string, { method, token, body, bytes, giveUpMs, isWanted = () => true, away }: Asked): Promise<unknown> {
  const headers: Record<string, string> = { authorization: `Bearer ${token}` };
  const content = bytes?.text ?? (body === undefined ? undefined : JSON.stringify(body));
  if (content !== undefined) headers["content-type"] = bytes?.mediaType ?? "application/json";
  const until = Date.now() + giveUpMs;
  for (let delay = RETRY_MS; ; delay = Math.min(delay * 2, RETRY_MS_MAX)) {
    let response: Response;
    try {
      response = await fetch(url, { method, headers, ...(content === undefined ? {} : { body: content }) });
      if (response.ok) return await response.json();
    } catch (lost) {
      if (!isWanted()) throw new Problem(410, "not_wanted", "it is not wanted any more");
      away?.(String((lost as Error).cause ?? lost));
      if (Date.now() > until) throw lost;
      await pause(spread(delay));
      continue;
    }
    if (!BUSY.includes(response.status) || Date.now() > until) throw await Problem.of(response);
    await pause(spread(Math.min(await waitOf(response, delay), RETRY_MS_MAX)));
  }
}

/** How long a busy server asks to wait; the header knows only whole seconds. */
async function waitOf(response: Response, usual: number): Promise<number> {
  try {
    const told = ((await response.json()) as { retry_after_ms?: unknown }).retry_after_ms;
    return typeof told === "number" ? told : usual;
  } catch {
    return usual;
  }
}

/** Not all processes at the same moment. */
function spread(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}
