/** Errors of tools, of their operations, and of requests. */

/** A failure as it is reported. */
export interface FailureBody {
  message: string;
  code?: string;
  internal?: boolean;
  retry?: boolean;
  retry_after_ms?: number;
  did_not_happen?: boolean;
}

/** A failure that a tool throws on purpose. The model reads the message, so it says what to do instead. */
export class ToolFailure extends Error {
  readonly options: Omit<FailureBody, "message" | "internal">;

  constructor(message: string, options: Omit<FailureBody, "message" | "internal"> = {}) {
    super(message);
    this.options = options;
  }

  /** Any error as it is reported: one that was not thrown on purpose is hidden from the model. */
  static body(error: unknown): FailureBody {
    if (error instanceof ToolFailure) return { message: error.message, ...error.options };
    return { message: error instanceof Error ? `${error.name}: ${error.message}` : String(error), internal: true };
  }
}

/** A recorded step failed in this round of its call. */
export class StepFailed extends ToolFailure {}
/** A step that must not be repeated was started before a crash, and nobody knows whether it took effect. */
export class StepUnknown extends Error {}
/** The attempt must stop: it was cancelled, its time is up, or it is over here. */
export class Stopped extends Error {}
/** An operation is used in a way that cannot be replayed: a name twice, another input than the recorded one. */
export class Misused extends Error {}
/** The secret is not there, not named by the tool, or not allowed to the toolbox. */
export class SecretRefused extends Error {}
/** No answer came in time. */
export class CompletionTimeout extends Error {}
/** Whoever was to answer has cancelled. */
export class CompletionCancelled extends Error {}

/** Whoever was to answer says that it failed. */
export class CompletionFailed extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** A request that the server refused, with the code and the sentence it gave. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
  ) {
    super(`${code}: ${detail}`);
  }

  /** The problem that a refused request was answered with. */
  static async of(response: Response): Promise<Problem> {
    const text = await response.text();
    try {
      const body = JSON.parse(text) as { code: string; detail: string };
      return new Problem(response.status, body.code, body.detail);
    } catch {
      return new Problem(response.status, "unknown", text.slice(0, 500));
    }
  }
}
