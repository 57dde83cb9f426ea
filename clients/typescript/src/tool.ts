/** Functions as tools. */
import type { Context } from "./context.js";

export type EffectClass = "read" | "keyed" | "stepped" | "once";

/** A schema that checks and types a value, such as one of zod. */
export interface Parser<T> {
  parse(value: unknown): T;
}

/** The declaration of a tool, in the words of every other tool. */
export interface ToolOptions<T> {
  name: string;
  description?: string;
  /** A schema of zod, or a JSON Schema. */
  input?: Parser<T> | Record<string, unknown>;
  /** By default `once`. */
  effect?: EffectClass;
  /** A stable id, kept when the name changes; by default the name. */
  id?: string;
  title?: string;
  /** A JSON Schema of the result. */
  output?: Record<string, unknown>;
  background?: boolean;
  /** Whether it is called only from outside: never from another tool, and never as a task. */
  staysDirect?: boolean;
  claims?: readonly string[];
  deadlines?: Readonly<Record<string, number>>;
  graceMs?: number;
  retry?: { attempts?: number; base_ms?: number; cap_ms?: number };
  runningMax?: number;
  approval?: "never" | "ask";
  /** Whether the model sees it at once in a session with many tools. */
  deferral?: "auto" | "never" | "always";
  secrets?: readonly string[];
  hints?: Readonly<Record<string, boolean>>;
  version?: string;
  category?: string;
  tags?: readonly string[];
  run: (args: T, ctx: Context) => unknown;
}

/** A tool of a toolbox. */
export interface Tool {
  readonly name: string;
  manifest(): Promise<Record<string, unknown>>;
  run(args: unknown, ctx: Context): Promise<unknown>;
}

/** Makes a function a tool. */
export function tool<T = Record<string, unknown>>(options: ToolOptions<T>): Tool {
  const { run, input, effect, graceMs, runningMax, staysDirect, ...rest } = options;
  const parser = isParser<T>(input) ? input : undefined;
  return {
    name: options.name,
    async manifest() {
      const manifest: Record<string, unknown> = { ...rest };
      if (input !== undefined) manifest["input"] = parser === undefined ? input : await schemaOf(parser);
      if (effect !== undefined) manifest["class"] = effect;
      if (graceMs !== undefined) manifest["grace_ms"] = graceMs;
      if (runningMax !== undefined) manifest["running_max"] = runningMax;
      if (staysDirect !== undefined) manifest["stays_direct"] = staysDirect;
      return manifest;
    },
    async run(args, ctx) {
      return await run(parser === undefined ? (args as T) : parser.parse(args), ctx);
    },
  };
}

function isParser<T>(input: unknown): input is Parser<T> {
  return typeof (input as { parse?: unknown } | undefined)?.parse === "function";
}

/** The JSON Schema of a schema of zod. */
async function schemaOf(parser: unknown): Promise<Record<string, unknown>> {
  const zod = (await import("zod")) as unknown as { toJSONSchema(schema: unknown): Record<string, unknown> };
  const { $schema: _, ...schema } = zod.toJSONSchema(parser);
  return schema;
}
