/** A process that serves a toolbox: it takes attempts, runs them, and reports what they do. */
import { randomBytes } from "node:crypto";
import { type Answer, Context, type Parts, type Pending, type Reporting, type TakenAttempt } from "./context.js";
import { Problem, Stopped, ToolFailure } from "./errors.js";
import { ask, type Asked, pause } from "./request.js";
import type { Tool } from "./tool.js";

/** How long a request for work waits: less than the silence of the server, so that the next one is in time. */
const TAKE_WAIT_MS = 4_000;
/** How long a heartbeat waits for news. */
const BEAT_MS = 1_000;
/** The largest report, and about the most that one request has: the server takes 8 MiB. Larger operations have requests of their own. */
const REPORT_BYTES_MAX = 7 << 20;
/** The largest operation: the server takes 32 MiB. */
const OPERATION_BYTES_MAX = 31 << 20;
/** The largest result: the server takes artifacts of 64 MiB. */
const UPLOAD_BYTES_MAX = 64 << 20;
/** How long a process that stops tries to say so. */
const LEAVE_MS = 2_000;
/** The most of a log that one report has; the rest follows in the next ones. */
const LOG_CHARS_MAX = 1 << 18;
/** How many requests with news are under way at once at most. */
const SENDS_MAX = 4;
/** How long news wait for the answer to the request before, so that what comes meanwhile travels with them. */
const TOGETHER_MS = 10;
/** An end that is under way for longer needs heartbeats beside it. */
const ENDS_MS = 2_000;
/** The statuses of requests whose content is at fault: sent again, they are refused again. */
const CONTENT_STATUSES = [400, 413, 422];

export interface ToolboxOptions {
  /** By default `WINDLASS_URL`, else the server of this machine. */
  url?: string;
  /** By default `WINDLASS_TOKEN`. */
  token?: string;
  /** How many calls run here at once; by default 16. */
  slots?: number;
}

interface AttemptNews {
  attempt: string;
  state: "running" | "unheard" | "over";
  stop?: string;
  answers: { n: number; answer: Answer }[];
}

/** The tools of one process, under the name of a toolbox. Several processes may serve one, if they have the same tools. */
export class Toolbox {
  readonly #tools: Map<string, Tool>;
  readonly #slots: number;
  readonly #url: string;
  readonly #token: string;
  readonly #worker = `ts-${process.pid}-${randomBytes(4).toString("hex")}`;
  readonly #attempts = new Map<string, RunningAttempt>();
  #manifest = "";
  #running = 0;
  #stopping = false;
  #flushing = false;
  #isAway = false;
  #sends = 0;
  #sentAt = 0;
  #later: NodeJS.Timeout | undefined;
  #wake: () => void = () => undefined;

  constructor(
    readonly name: string,
    tools: readonly Tool[],
    options: ToolboxOptions = {},
  ) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#slots = options.slots ?? 16;
    this.#url = options.url ?? process.env["WINDLASS_URL"] ?? "http://127.0.0.1:7420";
    this.#token = options.token ?? process.env["WINDLASS_TOKEN"] ?? "";
    if (this.#token === "") {
      throw new Error("there is no token; set WINDLASS_TOKEN, or give `token`: `windlass token create NAME --scope tools` makes one");
    }
  }

  /** Serves until `stop`, then until the running attempts have ended. */
  async serve(): Promise<void> {
    try {
      await this.#put();
    } catch (error) {
      if (this.#stopping) return;
      throw error;
    }
    console.error(`serving the toolbox ${this.name} with ${this.#tools.size} tools`);
    let serving = true;
    const beats = this.#beat(() => serving);
    try {
      await this.#take();
      while (this.#attempts.size > 0) await pause(20);
      await this.#leave();
    } finally {
      serving = false;
      await beats;
    }
  }

  get isStopping(): boolean {
    return this.#stopping;
  }

  /** Takes no more attempts; `serve` returns once the running ones have ended. */
  stop(): void {
    this.#stopping = true;
    this.#wake();
    void this.#leave();
  }

  /** Says that it takes no more attempts: a request that waits for some returns. */
  async #leave(): Promise<void> {
    const body = { worker: this.#worker, manifest: this.#manifest, max: 0 };
    await this.#ask("POST", "/take", body, { giveUpMs: LEAVE_MS }).catch(() => undefined);
  }

  async #put(): Promise<void> {
    const tools = await Promise.all([...this.#tools.values()].map((tool) => tool.manifest()));
    const put = (await this.#ask("PUT", "", { tools }, { isWanted: () => !this.#stopping })) as { manifest: string };
    this.#manifest = put.manifest;
  }

  async #take(): Promise<void> {
    while (!this.#stopping) {
      const free = this.#slots - this.#running;
      if (free <= 0) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      const body = { worker: this.#worker, manifest: this.#manifest, max: free, slots: this.#slots, wait_ms: TAKE_WAIT_MS };
      try {
        const taken = (await this.#ask("POST", "/take", body, { isWanted: () => !this.#stopping })) as { attempts: TakenAttempt[] };
        for (const attempt of taken.attempts) this.#begin(attempt);
        // Those that need no time are over then, and the next request is not for the few slots that are left.
        await pause(0);
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        if (error.code === "manifest_changed" || error.code === "not_wanted") return;
        if (error.code !== "not_found") throw error;
        await this.#put();
      }
    }
  }

  #begin(taken: TakenAttempt): void {
    const attempt = new RunningAttempt(taken, {
      flush: () => this.#flush(),
      lend: (slots) => this.#free(slots),
    });
    this.#attempts.set(taken.attempt, attempt);
    this.#running += 1;
    void this.#run(attempt);
  }

  async #run(attempt: RunningAttempt): Promise<void> {
    const tool = this.#tools.get(attempt.taken.tool);
    try {
      const args = "args" in attempt.taken ? attempt.taken.args : await this.#arguments(attempt);
      attempt.end = endOf(await tool?.run(args, new Context(attempt)));
    } catch (error) {
      const isStop = error instanceof Stopped || attempt.signal.aborted;
      attempt.end = isStop ? { type: "stopped" } : { type: "failure", failure: ToolFailure.body(error) };
    }
    this.#free(1);
    this.#flush();
  }

  /** Arguments that are too large to come with the attempt. */
  async #arguments(attempt: RunningAttempt): Promise<unknown> {
    try {
      return await this.#ask("GET", `/attempts/${attempt.taken.attempt}/arguments`);
    } catch (error) {
      throw error instanceof Problem ? new Stopped(error.message) : error;
    }
  }

  /** Uploads the value of an end that is too large for a report: the end then names the artifact. */
  async #upload(attempt: RunningAttempt, { value, ...end }: Record<string, unknown>): Promise<void> {
    const isText = typeof value === "string";
    const [mediaType, text] = isText ? ["text/plain; charset=utf-8", value] : ["application/json", JSON.stringify(value)];
    try {
      const path = `/attempts/${attempt.taken.attempt}/artifacts`;
      const { artifact } = (await this.#askFor(attempt, path, { mediaType, text }, UPLOAD_BYTES_MAX)) as { artifact: string };
      attempt.ends({ ...end, artifact });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      attempt.notTaken(error.message);
    } finally {
      attempt.isUploading = false;
    }
  }

  #free(slots: number): void {
    this.#running -= slots;
    if (slots > 0) this.#wake();
  }

  /** Sends what is new, of all attempts together: at once if nothing is under way, else with what comes meanwhile. */
  #flush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    // What one turn of the loop makes travels together.
    setImmediate(() => {
      this.#flushing = false;
      if (this.#sends >= SENDS_MAX) return;
      const wait = this.#sends === 0 ? 0 : this.#sentAt + TOGETHER_MS - Date.now();
      if (wait > 0) {
        this.#later ??= setTimeout(() => {
          this.#later = undefined;
          this.#flush();
        }, wait);
        return;
      }
      const reports = [...this.#attempts.values()].map((attempt) => attempt.news()).filter((report) => report !== undefined);
      if (reports.length === 0) return;
      this.#sends += 1;
      this.#sentAt = Date.now();
      void this.#send(reports, 0).finally(() => {
        this.#sends -= 1;
        this.#flush();
      });
    });
  }

  /** Says that the process lives, and asks for what is still missing. */
  async #beat(isServing: () => boolean): Promise<void> {
    while (isServing()) {
      // An end that is just under way needs no heartbeat: its request is sent until it is answered.
      const running = [...this.#attempts.values()].filter((attempt) => !attempt.isEnding);
      if (running.length > 0) await this.#send(running.map((attempt) => attempt.whole()), BEAT_MS);
      await pause(50);
    }
  }

  /** Sends reports, in several requests if they are large. */
  async #send(reports: Record<string, unknown>[], waitMs: number): Promise<void> {
    let group: Record<string, unknown>[] = [];
    let bytesInGroup = 0;
    for (const report of reports) {
      const bytes = Buffer.byteLength(JSON.stringify(report));
      if (bytes > REPORT_BYTES_MAX) {
        await this.#sendApart(report);
        continue;
      }
      if (group.length > 0 && bytesInGroup + bytes > REPORT_BYTES_MAX) {
        await this.#sendGroup(group, 0);
        [group, bytesInGroup] = [[], 0];
      }
      group.push(report);
      bytesInGroup += bytes;
    }
    if (group.length > 0) await this.#sendGroup(group, waitMs);
  }

  async #sendGroup(reports: Record<string, unknown>[], waitMs: number): Promise<void> {
    const body = { worker: this.#worker, wait_ms: waitMs, reports };
    const about = reports.map((report) => [report, this.#attempts.get(report["attempt"] as string)] as const);
    for (const [report, attempt] of about) attempt?.underWay(report, 1);
    try {
      const news = (await this.#ask("POST", "/reports", body)) as { attempts: AttemptNews[] };
      for (const one of news.attempts) this.#hear(one);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      await this.#refused(reports, error);
    } finally {
      for (const [report, attempt] of about) attempt?.underWay(report, -1);
    }
  }

  /** The server does not take a request. Of several reports one may be at fault; the attempt of that one must not hang. */
  async #refused(reports: Record<string, unknown>[], problem: Problem): Promise<void> {
    console.error(`a report is refused: ${problem.message}`);
    if (!CONTENT_STATUSES.includes(problem.status)) return;
    if (reports.length > 1) {
      for (const report of reports) await this.#sendGroup([report], 0);
      return;
    }
    for (const report of reports) this.#fail(report, problem.message);
  }

  /** A report that is too large: its operations have requests of their own, and the value of its end is uploaded. */
  async #sendApart({ operations, ...report }: Record<string, unknown>): Promise<void> {
    const attempt = this.#attempts.get(report["attempt"] as string);
    if (attempt === undefined) return;
    for (const operation of (operations ?? []) as { n: number }[]) {
      attempt.alone.add(operation.n);
      void this.#operate(attempt, operation);
    }
    const bytes = Buffer.byteLength(JSON.stringify(report));
    const end = report["end"] as Record<string, unknown> | undefined;
    if (bytes <= REPORT_BYTES_MAX) {
      await this.#sendGroup([report], 0);
    } else if (end?.["type"] === "value" && end["artifact"] === undefined) {
      attempt.isUploading = true;
      void this.#upload(attempt, end);
    } else {
      this.#fail(report, `it has ${bytes} bytes as JSON, and may have ${REPORT_BYTES_MAX}`);
    }
  }

  /** Does one operation that is too large to travel with others. */
  async #operate(attempt: RunningAttempt, operation: { n: number }): Promise<void> {
    try {
      const text = JSON.stringify({ worker: this.#worker, ...operation });
      const path = `/attempts/${attempt.taken.attempt}/operations`;
      this.#hear((await this.#askFor(attempt, path, { mediaType: "application/json", text }, OPERATION_BYTES_MAX)) as AttemptNews);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      attempt.refused({ operations: [operation] }, error.message);
    } finally {
      attempt.alone.delete(operation.n);
    }
  }

  #hear(news: AttemptNews): void {
    this.#attempts.get(news.attempt)?.hear(news);
    if (news.state === "over") this.#attempts.delete(news.attempt);
  }

  #fail(report: Record<string, unknown>, why: string): void {
    this.#attempts.get(report["attempt"] as string)?.refused(report, why);
  }

  /**
   * Sends a large request for an attempt, until it is answered or the attempt is over. A server that does not take so much may close
   * the connection before it has read all, and its answer is lost then.
   */
  async #askFor(attempt: RunningAttempt, path: string, bytes: { mediaType: string; text: string }, bytesMax: number): Promise<unknown> {
    const size = Buffer.byteLength(bytes.text);
    if (size > bytesMax) throw new Problem(413, "too_large", `it has ${size} bytes, and may have ${bytesMax}`);
    return await this.#ask("POST", path, undefined, { bytes, isWanted: () => this.#attempts.has(attempt.taken.attempt) });
  }

  /** Sends a request until it is answered: everything in it may be sent again. */
  #ask(method: string, path: string, body?: unknown, options: Partial<Asked> = {}): Promise<unknown> {
    const url = `${this.#url}/v1/toolboxes/${this.name}${path}`;
    const away = (why: string): void => {
      if (!this.#isAway) console.error(`the server at ${this.#url} is away (${why}); trying again`);
      this.#isAway = true;
    };
    return ask(url, { method, token: this.#token, body, giveUpMs: Infinity, away, ...options }).finally(() => (this.#isAway = false));
  }
}

interface Hooks {
  flush(): void;
  lend(slots: number): void;
}

interface OpenOperation {
  operation: Record<string, unknown>;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
}

/** An attempt that runs here. */
class RunningAttempt implements Reporting {
  end: Record<string, unknown> | undefined;
  isUploading = false;
  /** The operations that are under way in requests of their own. */
  readonly alone = new Set<number>();
  /** How many requests with its end are not answered. */
  #endsUnderWay = 0;
  #endsSince = 0;
  #isLogging = false;
  readonly #stop = new AbortController();
  readonly #open = new Map<number, OpenOperation>();
  readonly #hooks: Hooks;
  #number = 0;
  #unsent: number[] = [];
  #words: Record<string, unknown> = {};
  #log: { text: string; err: boolean }[] = [];
  #endSent = false;

  constructor(
    readonly taken: TakenAttempt,
    hooks: Hooks,
  ) {
    this.#hooks = hooks;
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  async operate(operation: Record<string, unknown>): Promise<Answer> {
    if (this.signal.aborted) throw new Stopped("the attempt must stop");
    const number = ++this.#number;
    const answer = new Promise<Answer>((resolve, reject) => this.#open.set(number, { operation, resolve, reject }));
    this.#unsent.push(number);
    this.#hooks.flush();
    if (operation["type"] !== "call") return await answer;
    // A nested call may need the slot.
    this.#hooks.lend(1);
    try {
      return await answer;
    } finally {
      this.#hooks.lend(-1);
    }
  }

  say({ log, ...words }: Record<string, unknown>): void {
    const { text, err } = (log ?? { text: "", err: false }) as { text: string; err: boolean };
    for (let at = 0; at < text.length; at += LOG_CHARS_MAX) this.#log.push({ text: text.slice(at, at + LOG_CHARS_MAX), err });
    Object.assign(this.#words, words);
    this.#hooks.flush();
  }

  /** What was not reported yet. */
  news(): Record<string, unknown> | undefined {
    const report: Record<string, unknown> = { attempt: this.taken.attempt, ...this.#words };
    this.#words = {};
    const log = this.#logNow();
    if (log.length > 0) report["log"] = log;
    const operations = this.#operations(this.#unsent.splice(0));
    if (operations.length > 0) report["operations"] = operations;
    // Nothing can be said after the end.
    if (this.end !== undefined && !this.#endSent && this.#log.length === 0) {
      report["end"] = this.end;
      this.#endSent = true;
    }
    return Object.keys(report).length > 1 ? report : undefined;
  }

  /** Everything that is not answered: after a restart the server knows none of it. */
  whole(): Record<string, unknown> {
    const report: Record<string, unknown> = { attempt: this.taken.attempt };
    const operations = this.#operations([...this.#open.keys()].filter((n) => !this.alone.has(n)));
    if (operations.length > 0) report["operations"] = operations;
    if (this.#endSent && this.#endsUnderWay === 0 && !this.isUploading) report["end"] = this.end;
    return report;
  }

  /** The next pieces of the log. None while others are under way: two requests have no order. */
  #logNow(): { text: string; err: boolean }[] {
    if (this.#isLogging) return [];
    let [chars, count] = [0, 0];
    for (const { text } of this.#log) {
      chars += text.length;
      if (count > 0 && chars > LOG_CHARS_MAX) break;
      count += 1;
    }
    return this.#log.splice(0, count);
  }

  /** A report of it is under way, or is not any more. */
  underWay(report: Record<string, unknown>, more: 1 | -1): void {
    if (report["log"] !== undefined) {
      this.#isLogging = more > 0;
      if (this.#log.length > 0) this.#hooks.flush();
    }
    if (report["end"] !== undefined) {
      this.#endsUnderWay += more;
      this.#endsSince = Date.now();
    }
  }

  #operations(numbers: number[]): Record<string, unknown>[] {
    return numbers.flatMap((n) => {
      const open = this.#open.get(n);
      return open === undefined ? [] : [{ n, do: open.operation }];
    });
  }

  /** Whether its end was sent just now. */
  get isEnding(): boolean {
    return this.#endsUnderWay > 0 && Date.now() < this.#endsSince + ENDS_MS;
  }

  ends(end: Record<string, unknown>): void {
    this.end = end;
    this.#endSent = false;
    this.#hooks.flush();
  }

  notTaken(why: string): void {
    this.ends({ type: "failure", failure: { message: `The result was not taken: ${why}`, internal: true } });
  }

  /** The server does not take this report, such as one that is too large: its operations and its end have failed. */
  refused(report: Record<string, unknown>, why: string): void {
    for (const { n } of (report["operations"] ?? []) as { n: number }[]) {
      this.#open.get(n)?.resolve({ type: "refused", code: "misused", message: why });
      this.#open.delete(n);
    }
    if (report["end"] !== undefined && report["end"] === this.end) {
      this.notTaken(why);
    }
  }

  hear(news: AttemptNews): void {
    for (const { n, answer } of news.answers) {
      this.#open.get(n)?.resolve(answer);
      this.#open.delete(n);
    }
    if (news.state !== "over" && news.stop === undefined) return;
    this.#stop.abort(new Stopped(news.stop ?? "the attempt is over"));
    for (const open of this.#open.values()) open.reject(new Stopped(news.stop ?? "the attempt is over"));
    this.#open.clear();
  }
}

function endOf(returned: unknown): Record<string, unknown> {
  const kind = (returned as { kind?: unknown } | null | undefined)?.kind;
  if (kind === "windlass.pending") {
    const { name, deadlineMs } = returned as Pending;
    return { type: "pending", name, ...(deadlineMs === undefined ? {} : { deadline_ms: deadlineMs }) };
  }
  if (kind === "windlass.parts") {
    const { value, parts } = returned as Parts;
    return { type: "value", value: value ?? null, parts };
  }
  return { type: "value", value: returned ?? null };
}

/** Serves tools until SIGINT or SIGTERM, then lets the running ones end; a second signal ends the process at once. */
export async function serve(toolbox: string, tools: readonly Tool[], options: ToolboxOptions = {}): Promise<void> {
  const serving = new Toolbox(toolbox, tools, options);
  const stop = (): void => {
    if (serving.isStopping) process.exit(130);
    serving.stop();
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    await serving.serve();
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}
