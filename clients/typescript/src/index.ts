/** Durable tools for AI agents: tools written in TypeScript, and a client of a Windlass server. */
export { Client, modelText, type Batch, type CallRequest, type CallView, type ModelPart, type Wire } from "./client.js";
export { Context, parts, pending, type Parts, type Pending } from "./context.js";
export {
  CompletionCancelled,
  CompletionFailed,
  CompletionTimeout,
  Misused,
  Problem,
  SecretRefused,
  StepFailed,
  StepUnknown,
  Stopped,
  ToolFailure,
} from "./errors.js";
export { serve, Toolbox, type ToolboxOptions } from "./serve.js";
export { tool, type EffectClass, type Parser, type Tool, type ToolOptions } from "./tool.js";
