/** The context of an attempt: what a tool can do besides computing. Every operation has a name, by which it is found again. */
import {
  CompletionCancelled,
  CompletionFailed,
  CompletionTimeout,
  type FailureBody,
  Misused,
  SecretRefused,
  StepFailed,
  StepUnknown,
  Stopped,
  ToolFailure,
} from "./errors.js";

/** An attempt as the server gives it. */
export interface TakenAttempt {
  attempt: string;
  call: string;
  id: string;
  tool: string;
  /** Absent if they are too large to come with the attempt. */
  args?: unknown;
  session: string;
  number: number;
  redrive: boolean;
  idempotency_key: string;
  left_ms: number;
  steps: { name: string; input: unknown; value: unknown }[];
}

/** The answer to an operation. */
export type Answer =
  | { type: "run" | "unknown" }
  | { type: "value"; value: unknown }
  | { type: "failure"; failure: FailureBody }
  | { type: "refused"; code: string; message: string };

/** The part of a running attempt that its context uses. */
export interface Reporting {
  readonly taken: TakenAttempt;
  readonly signal: AbortSignal;
  operate(operation: Record<string, unknown>): Promise<Answer>;
  say(words: Record<string, unknown>): void;
}

/** Returned by a tool that has done its part: the answer to the key of this name is the result of the call. */
export interface Pending {
  readonly kind: "windlass.pending";
  readonly name: string;
  readonly deadlineMs?: number;
}

/** A result with parts for the model behind its value. */
export interface Parts {
  readonly kind: "windlass.parts";
  readonly value: unknown;
  readonly parts: readonly Record<string, unknown>[];
}

export function pending(name: string, deadlineMs?: number): Pending {
  return { kind: "windlass.pending", name, ...(deadlineMs === undefined ? {} : { deadlineMs }) };
}

export function parts(value: unknown, ...all: Record<string, unknown>[]): Parts {
  return { kind: "windlass.parts", value, parts: all };
}

/** The context of an attempt. */
export class Context {
  readonly #attempt: Reporting;
  readonly #used = new Set<string>();

  constructor(attempt: Reporting) {
    this.#attempt = attempt;
  }

  /** The handle of the call. */
  get handle(): string {
    return this.#attempt.taken.call;
  }
  get session(): string {
    return this.#attempt.taken.session;
  }
  /** The number of the attempt, from 1. */
  get number(): number {
    return this.#attempt.taken.number;
  }
  /** Whether an earlier attempt was running when its owner died. */
  get isRedrive(): boolean {
    return this.#attempt.taken.redrive;
  }
  /** A key that is the same in every attempt: send it to systems that deduplicate. */
  get idempotencyKey(): string {
    return this.#attempt.taken.idempotency_key;
  }
  /** Aborted when the attempt must stop. */
  get signal(): AbortSignal {
    return this.#attempt.signal;
  }

  /**
   * Runs a function once: its result is recorded, and returned when the tool runs again. `input` is recorded with it. A step that
   * must not be repeated is marked `once`: if a crash leaves its outcome open, `StepUnknown` is thrown.
   */
  async step<I, O>(name: string, input: I, run: (input: I) => O | Promise<O>, options: { once?: boolean } = {}): Promise<O> {
    if (this.#used.has(name)) throw new Misused(`the name ${JSON.stringify(name)} is used twice; each step has a name of its own`);
    this.#used.add(name);
    const known = this.#attempt.taken.steps.find((step) => step.name === name && same(step.input, input ?? null));
    if (known !== undefined) return known.value as O;
    const given = { name, input: input ?? null };
    const answer = await this.#attempt.operate({ type: "step", ...given, once: options.once ?? false });
    if (answer.type !== "run") return valueOf(answer) as O;
    let value: O;
    try {
      value = await run(input);
    } catch (error) {
      await this.#attempt.operate({ type: "step_end", ...given, failure: ToolFailure.body(error) });
      throw error;
    }
    const recorded = JSON.parse(JSON.stringify(value ?? null)) as O;
    valueOf(await this.#attempt.operate({ type: "step_end", ...given, value: recorded }));
    return recorded;
  }

  /** Sleeps by the wall clock, across restarts. A `stepped` tool leaves its process meanwhile, and runs again afterwards. */
  async sleep(name: string, ms: number): Promise<void> {
    valueOf(await this.#attempt.operate({ type: "sleep", name, ms }));
  }

  /** A key by which somebody outside answers. The same name gives the same key. */
  async completion(name: string): Promise<string> {
    return valueOf(await this.#attempt.operate({ type: "completion", name })) as string;
  }

  /** Waits for the answer to the key of this name. */
  async wait(name: string, deadlineMs?: number): Promise<unknown> {
    const deadline = deadlineMs === undefined ? {} : { deadline_ms: deadlineMs };
    const answer = valueOf(await this.#attempt.operate({ type: "wait", name, ...deadline })) as {
      ok?: unknown;
      error?: { code: string; message: string };
      cancelled?: boolean;
    };
    if (answer.error !== undefined) throw new CompletionFailed(answer.error.code, answer.error.message);
    if (answer.cancelled === true) throw new CompletionCancelled("whoever was to answer has cancelled");
    if (!("ok" in answer)) throw new CompletionTimeout("no answer came in time");
    return answer.ok;
  }

  /** Calls another tool, and returns the call as the API shows it. */
  async call(name: string, tool: string, args: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    return valueOf(await this.#attempt.operate({ type: "call", name, tool, args })) as Record<string, unknown>;
  }

  /** Asks a person; `null` if nobody answered in time. */
  async ask(name: string, question: string, schema?: Record<string, unknown>): Promise<unknown> {
    const wanted = schema === undefined ? {} : { schema };
    return (valueOf(await this.#attempt.operate({ type: "ask", name, question, ...wanted })) as { answer: unknown }).answer;
  }

  /** The value of a secret that the tool names and the operator allowed to the toolbox. */
  async secret(name: string): Promise<string> {
    return valueOf(await this.#attempt.operate({ type: "secret", name })) as string;
  }

  progress(progress: { current?: number; total?: number; unit?: string; label?: string }): void {
    this.#attempt.say({ progress });
  }
  status(text: string): void {
    this.#attempt.say({ status: text });
  }
  log(text: string, options: { err?: boolean } = {}): void {
    this.#attempt.say({ log: { text, err: options.err ?? false } });
  }
  /** A sign of life, for the silence deadline of the tool. */
  heartbeat(): void {
    this.#attempt.say({ alive: true });
  }
}

/** The value of an answer; throws the error that it is. */
function valueOf(answer: Answer): unknown {
  switch (answer.type) {
    case "value":
      return answer.value;
    case "failure":
      throw new StepFailed(answer.failure.message, answer.failure.code === undefined ? {} : { code: answer.failure.code });
    case "refused":
      if (answer.code === "stopped") throw new Stopped(answer.message);
      if (answer.code === "secret") throw new SecretRefused(answer.message);
      throw new Misused(answer.message);
    default:
      throw new StepUnknown("the step was started before a crash, and nobody knows whether it took effect");
  }
}

function same(one: unknown, other: unknown): boolean {
  return canonical(one) === canonical(other);
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    one !== null && typeof one === "object" && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}
