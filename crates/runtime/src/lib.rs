//! A durable tool runtime for AI agents.
//!
//! A model asks for tool calls in a batch; [`Runtime::submit`] checks them, runs them in the order of their
//! effects, records everything, and answers. A crash loses nothing that was acknowledged and repeats nothing
//! that was recorded.
//!
//! The root has the names that nearly every program needs; the rest is in modules by topic. Each name has one path.
//!
//! ```
//! use windlass::store::memory::MemoryStore;
//! use windlass::{Args, BatchRequest, CallRequest, Config, EffectClass, Runtime, ToolSpec, tool_fn};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::new(Config::new(MemoryStore::new()?));
//! let spec = ToolSpec { name: "add".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
//! runtime.register(tool_fn(spec, |args, _cx| async move {
//!     let sum = args["a"].as_i64().unwrap_or(0) + args["b"].as_i64().unwrap_or(0);
//!     Ok(serde_json::json!(sum).into())
//! }))?;
//!
//! let args = Args::Json(serde_json::json!({ "a": 2, "b": 3 }));
//! let call = CallRequest { id: Some("c1".into()), tool: "add".into(), args, ..CallRequest::default() };
//! let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
//! let answer = runtime.submit("chat-7", batch).await?.settled().await?;
//! assert_eq!(answer.calls[0].model_text(), "5");
//! # Ok(())
//! # }
//! ```
//!
//! Contributors: `public-names.txt` beside this crate's manifest lists every public path, and a test compares it.
//! Read `path::drive` first: it is the path of every call.
#![warn(missing_docs)]
#![deny(clippy::await_holding_invalid_type)]

#[doc(hidden)]
#[macro_use]
pub mod points;

mod api;
mod attempt;
mod features;
mod mailbox;
mod path;
mod read;
mod runtime;
mod session;
mod tools;

pub use api::answer::{BatchAnswer, CallAnswer};
pub use api::error::BatchError;
pub use api::limits::Limits;
pub use api::output::{Output, ToolError};
pub use path::submit::Submitted;
pub use session::cx::Cx;
pub use session::inner::{Config, Runtime};
pub use tools::request::{Args, BatchRequest, CallRequest};
pub use tools::tool::{Tool, ToolFuture, tool_fn};
pub use tools::typed_fn::typed_fn;
pub use windlass_core::attempt::{Deadlines, RetryRule};
pub use windlass_core::projection::AnswerBudget;
/// The declaration that a tool is registered with:
///
/// ```
/// use windlass::{Deadlines, EffectClass, RetryRule, ToolSpec};
///
/// let spec = ToolSpec {
///     name: "send_mail".into(),
///     description: "Sends a mail to one address. Use it only after the user has seen the text.".into(),
///     input_schema: Some(serde_json::json!({
///         "type": "object",
///         "properties": { "to": { "type": "string" }, "text": { "type": "string" } },
///         "required": ["to", "text"],
///     })),
///     class: Some(EffectClass::Keyed),
///     claims: Some(vec!["write mailbox:{to}".into()]),
///     deadlines: Deadlines { attempt_ms: Some(10_000), ..Deadlines::default() },
///     retry: RetryRule { attempts: Some(5), ..RetryRule::default() },
///     ..ToolSpec::default()
/// };
/// assert_eq!(spec.stable_id(), "send_mail");
/// ```
pub use windlass_core::tool::ToolSpec;
pub use windlass_core::tool::{EffectClass, Flags};
/// Makes a tool of an async function. The function's name then makes the tool: `runtime.register(charge())`.
///
/// The doc comment is the description that the model reads. Either one parameter named `args` has the type of all
/// arguments, which derives `Deserialize` and `JsonSchema`; or each plain parameter is a property of its own. `cx: &Cx` is
/// the [context](Cx). Whatever the tool holds is `#[state] name: &Type`; the tool is then made with it: `charge(db)`. The
/// value's type gives the output schema, unless it is [`Output`] or `serde_json::Value`, or `output_schema = false`. An ordinary error
/// that `?` returns is internal: hidden from the model, and logged whole.
///
/// ```
/// use windlass::{Cx, ToolError, tool};
///
/// /// Charges the customer's card. Use it only after the order is confirmed.
/// #[tool(class = "keyed", claims = ["write customer:{customer}"], timeout_ms = 10_000, retry(attempts = 5))]
/// async fn charge(
///     /// The customer's number.
///     customer: u64,
///     cents: u32,
///     #[state] refused: &Vec<u64>,
///     cx: &Cx,
/// ) -> Result<String, ToolError> {
///     if refused.contains(&customer) {
///         return Err(ToolError::new("The card was refused. Ask the customer for another one."));
///     }
///     // The same key over attempts and restarts: the payment provider deduplicates by it.
///     Ok(format!("charged {cents} cents under {}", cx.idempotency_key()))
/// }
///
/// # fn register(runtime: &windlass::Runtime) -> Result<(), windlass::error::RegisterError> {
/// runtime.register(charge(vec![7]))?;
/// # Ok(())
/// # }
/// ```
///
/// | options | |
/// |---|---|
/// | `class = "read"`, `"keyed"`, `"stepped"`, `"once"` | the [effect class](EffectClass); `once` unless hints say otherwise |
/// | `name`, `id`, `title`, `version` | texts of the [specification](ToolSpec); the name is the function's |
/// | `claims = ["write file:{path}"]`, `dedupe = "{order}"` | what a call reads and writes, and which calls are the same |
/// | `timeout_ms`, `queue_ms`, `silence_ms`, `total_ms`, `grace_ms`, `inline_ms` | [deadlines](Deadlines); `timeout_ms` is for one attempt |
/// | `answer_bytes_max`, `answer_lines_max` | [how long an answer may be](AnswerBudget) |
/// | `retry(attempts = 3, base_ms = 200, cap_ms = 30_000)` | the [retry rule](RetryRule) |
/// | `running_max`, `per_minute`, `groups = ["…"]` | limits |
/// | `approval = "never"`, `"ask"` | whether each call waits for the approval of a person, see [policy] |
/// | `deferral = "auto"`, `"never"`, `"always"` | whether the model sees the tool at once where there are [many](catalog) |
/// | `background`, `background_only`, `cpu_bound`, `quick`, `persist_output`, `polls`, `stays_direct` | [flags](Flags) |
/// | `read_only`, `destructive`, `idempotent`, `open_world`, … | [hints](tool::Hints), also `= false` |
/// | `emits(kind: Payload)`, `signals(name: Payload)` | kinds of events and signals, with the types of their payloads |
pub use windlass_macros::tool;
pub use windlass_store as store;

/// Tools: claims, hints and dedupe keys of their specifications, hooks, providers, overlays, preparation,
/// reconciliation, and tools that the caller runs.
pub mod tool {
    pub use crate::api::output::{ErrorExtras, Prepared, RawOutput, Reconciled};
    pub use crate::api::progress::Progress;
    pub use crate::session::log::Stream;
    pub use crate::tools::client::{client_tool, client_tool_within};
    pub use crate::tools::hooks::{After, AfterFuture, Before, BeforeFuture, Hook, HookCx};
    pub use crate::tools::projector::{ProjectedCall, Projector};
    pub use crate::tools::provider::{LoadFuture, Provider, Summary};
    pub use crate::tools::registry::{Listed, Registered};
    pub use crate::tools::scope::{Overlay, OverlayGuard};
    pub use crate::tools::tool::{
        BoundContent, BoundFuture, PrepareCx, PrepareFuture, Reconcile, ReconcileFuture, with_reconcile,
    };
    pub use windlass_args::json::parse_result;
    pub use windlass_args::names::{folded_name, nearest_name};
    pub use windlass_core::claim::{Claim, ClaimTemplate, Claims};
    pub use windlass_core::dedupe::{Dedupe, KeyTemplate};
    pub use windlass_core::tool::{Hints, Need, ToolSource, check_name};
}

/// The catalog of a session: the tools its model sees, and the search that reveals more.
pub mod catalog {
    pub use crate::features::catalog::{Catalog, CatalogTool};
    pub use windlass_core::tool::Deferral;
}

/// The policy: rules that allow, ask about or deny calls, their versions, and the ruling on one call.
pub mod policy {
    pub use crate::features::policy::{
        CallCheck, CheckedCondition, CheckedRule, NewPolicy, PolicyCheck, PolicyQuestion, PolicyVersion,
    };
    pub use windlass_core::policy::{Policy, PolicyMistake, PolicyProblem, Ruling};
    pub use windlass_core::tool::ApprovalRule;
}

/// Batches: streams of calls, batches inside calls, siblings that decide about each other, and views of
/// answers.
pub mod batch {
    pub use crate::api::decided::Decided;
    pub use crate::api::keys::fresh_key;
    pub use crate::api::observer::{CallOrigin, NestedCall, Observer};
    pub use crate::api::view::{CallState, CallView, ModelView};
    pub use crate::path::nested::NestedBatch;
    pub use crate::path::stream::{StreamRequest, StreamedBatch};
    pub use crate::tools::request::ProviderData;
    pub use windlass_core::siblings::{Decision, Siblings};
}

/// Outcomes of calls as they are recorded, and the answer that the model gets.
pub mod outcome {
    pub use windlass_core::outcome::{
        Effect, Form, JsonText, KeptBytes, ModelAnswer, Outcome, Part, SideOutput, Success, Value,
    };
}

/// Events of a session: followed live, or read from any entry on.
pub mod events {
    pub use crate::session::events::{
        ChangedSessions, Changes, Event, Events, News, Outline, Page, Record, RunningAttempt, Subject, Words,
    };
    pub use windlass_core::call::Kind;
}

/// Tasks (calls that outlive their batch), their messages and logs, and the inbox of notices about them.
pub mod tasks {
    pub use crate::features::inbox::{Inbox, NewNotice, Notice};
    pub use crate::features::tasks::{
        Direction, NewMessage, SessionTask, Task, TaskFilter, TaskKind, TaskMessage, TaskPage, TaskQuestion,
        Tasks, TasksPage,
    };
    pub use crate::session::log::LogPiece;
    pub use crate::session::notices::{NoticeKind, Urgency};
    pub use crate::tools::request::NewTask;
    pub use windlass_core::call::Wake;
}

/// Schedules: calls at times in a time zone.
pub mod schedules {
    pub use crate::features::schedules::{
        NewSchedule, Schedule, ScheduleEdit, Schedules, SessionSchedule, preview,
    };
    pub use windlass_core::schedule::{CatchUp, Overlap, WrittenTimes};
}

/// Triggers: calls started by events that tools emit.
pub mod triggers {
    pub use crate::features::triggers::{Emission, NewEvent, NewTrigger, Trigger, Triggers};
}

/// Webhooks: notices, and waits for a person, posted to URLs, signed.
pub mod webhooks {
    pub use crate::features::webhooks::{
        AddedWebhook, ID_HEADER, NewWebhook, SIGNATURE_HEADER, TIMESTAMP_HEADER, Webhook, WebhookFailure,
        WebhookState, WebhookTrial, Webhooks, signature,
    };
    pub use crate::session::outgoing::WebhookKind;
    pub use crate::tools::transport::{WebhookFuture, WebhookPost, WebhookReply, WebhookTransport};
}

/// Toolboxes: tools that processes in any language run.
pub mod toolboxes {
    pub use crate::features::toolboxes::{
        AttemptNews, AttemptReport, AttemptStanding, ManifestDeadlines, ManifestRetry, OperationAnswer,
        OperationRefusal, StepRecord, TakeRequest, TakenAttempt, ToolManifest, Toolbox, ToolboxEnd,
        ToolboxOperation, ToolboxWorker, Toolboxes,
    };
    pub use windlass_core::call::Cause;
}

/// Sessions: their principals and settings, child sessions, pairs, files, and artifacts.
pub mod sessions {
    pub use crate::api::content::{ContentHash, FileExpectation};
    pub use crate::attempt::inside::Attachment;
    pub use crate::features::children::{ChildSession, ChildSpec, SettingsFuture};
    pub use crate::features::deliveries::Deliveries;
    pub use crate::features::files::{
        FileEntry, FileKind, FilePage, FileStat, SessionFiles, SessionFolder, WrittenFile,
    };
    pub use crate::features::pairs::{Pair, PairKey, PairList, Pairs, SessionPairs};
    pub use crate::features::state::SessionState;
    pub use crate::features::uploads::UploadFor;
    pub use crate::runtime::JudgedCopy;
    pub use crate::session::artifacts::{Artifact, ArtifactInfo, ArtifactWriter};
    pub use crate::session::kin::Child;
    pub use crate::session::principal::{
        ABOUT, GoneSession, LOCAL, OpenedSession, SessionOpening, SessionStanding, Settings,
    };
    pub use crate::tools::overlay::{ClientToolSpec, SessionOverlay};
    pub use crate::tools::request::check_session_name;
}

/// Secrets: values that tools use and that appear nowhere.
pub mod secrets {
    pub use crate::api::secret::{SecretKey, SecretKeySource, SecretValue};
    pub use crate::features::secrets::{FolderSecrets, SecretEntry, SessionSecrets};
    pub use crate::session::vault::SecretScrubber;
}

/// Reasons why a call waits, and completions: external answers to a call.
pub mod wait {
    pub use crate::api::answer::standing_sentence;
    pub use crate::api::output::Connection;
    pub use crate::api::pending::{Completed, CompletionKey, Pending};
    pub use crate::read::waits::WaitingFor;
    pub use windlass_core::wait::Wait;
}

/// Requests to calls from outside: cancel, resolve, complete, answer, signal. The functions post them to a
/// store that another process may own.
pub mod ask {
    pub use crate::api::answer::Asked;
    pub use crate::mailbox::ask::{AnswerRules, check_reason, completion};
    pub use crate::mailbox::ask::{Connecting, Resolution, Signal, Target};
    pub use crate::mailbox::ask::{
        post_accept, post_answer, post_cancel, post_client_result, post_complete, post_connected,
        post_resolve,
    };
}

/// Approvals of calls by people, and answers that are remembered.
pub mod approvals {
    pub use crate::features::approvals::{ApprovalPreview, remembered};
    pub use crate::mailbox::approve::{ApprovalDecision, Approver, Remember, RememberedArgs, post_decision};
    pub use crate::session::permission::Remembered;
    pub use windlass_core::call::{ApprovalAnswer, ApprovalAnswered, ApprovalAsked, JudgedCall, Permission};
}

/// Grants: standing permissions of a session to call one tool, by token.
pub mod grants {
    pub use crate::features::grants::{GrantPage, Grants, IssuedGrant, NewGrantCopy};
    pub use crate::session::grants::{Grant, GrantCopy};
    pub use windlass_core::grant::{GrantId, GrantNarrowing, GrantProblem, GrantTerms, GrantToken};
}

/// The workers of a shared store.
pub mod workers {
    pub use crate::session::owners::{OtherWorker, OwnerPlace, WorkerEntry, WorkerState};
}

/// Recorded calls, batches and questions, read from a store with or without an owner.
pub mod inspect {
    pub use crate::read::inspect::{BatchTimeline, BatchesPage, CallFilter, CallsPage, Line, OpenQuestion};
    pub use crate::read::inspect::{ListedBatch, RecordedCall};
    pub use crate::read::inspect::{WaitingCall, WaitingKind, WaitingPart, WaitingPlace, WaitingSearch};
    pub use crate::read::inspect::{
        batch, batches, call, call_with_tools, calls, page, questions, session_of, timeline, waiting,
        waiting_for,
    };
    pub use crate::read::waits::OpenCall;
    pub use windlass_core::call::{Call, End, LiveAttempt, SpanEnd, SpanKind, TimeSpan};
}

/// Spans of ended calls, and the names of all metrics.
pub mod trace {
    pub use crate::api::traced::TraceParent;
    pub use crate::read::trace::{AttemptSpan, CallSpan, METRICS, TraceSpan};
}

/// Sentences about calls for people, in their language.
pub mod narration {
    pub use windlass_core::narration::{
        KNOWN, Locale, NarratedCall, Narration, Narrative, Narrator, Phase, names,
    };
}

/// Language models that tools may ask, through a client of the host.
pub mod model {
    pub use crate::tools::model::{
        CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, ModelRole, OfferedTool,
        ProviderMessage, TokenUsage, WantedCall,
    };
}

/// Limits of sessions and groups of tools, and the counts that they bound.
pub mod limits {
    pub use crate::api::limits::{RunningLimits, SessionLimits};
    pub use crate::api::retention::Retention;
    pub use crate::features::retention::{ExpiryReport, RetentionOutlook};
    pub use windlass_args::limits::NamedLimit;
    pub use windlass_core::plan::{Cap, Counts};
    pub use windlass_core::rate::Rate;
}

/// Errors of the library, and failures of calls.
pub mod error {
    pub use crate::api::data_error::{ArtifactError, FileError};
    pub use crate::api::error::{DamageCause, LimitError, Lost, SessionError, chain};
    pub use crate::api::limits::{SessionBoundError, ZeroLimit};
    pub use crate::api::misuse::{Misuse, StepError};
    pub use crate::api::secret::SecretError;
    pub use crate::features::children::ChildError;
    pub use crate::features::grants::GrantError;
    pub use crate::features::inbox::InboxError;
    pub use crate::features::pairs::PairError;
    pub use crate::features::pauses::PauseError;
    pub use crate::features::policy::{CheckError, PolicyError};
    pub use crate::features::schedules::ScheduleError;
    pub use crate::features::toolboxes::ToolboxError;
    pub use crate::features::triggers::{EmitError, TriggerError};
    pub use crate::features::webhooks::WebhookError;
    pub use crate::mailbox::ask::AskError;
    pub use crate::session::events::EventsError;
    pub use crate::tools::registry::{NoSuchTool, RegisterError};
    pub use windlass_core::claim::BadClaim;
    pub use windlass_core::code::Code;
    pub use windlass_core::failure::{Failure, FailureClass, Retry, Source};
    pub use windlass_core::projection::BudgetError;
}

/// Handles that callers see, and numbers of sessions, batches, calls and entries.
pub mod ids {
    pub use windlass_core::handle::Handle;
    pub use windlass_core::ids::{AttemptNo, BatchNo, CallId, EntryNo, Fence, Ordinal, SessionNo};
}

/// Clocks and timestamps.
pub mod time {
    pub use crate::api::answer::wall_time;
    pub use crate::api::clock::{Clock, SystemClock};
    pub use windlass_core::time::Timestamp;
}

/// For the code that `#[tool]` writes.
#[doc(hidden)]
pub mod __private {
    pub use crate::tools::typed::{
        ToolArguments, ToolFailure, ToolValue, arguments, failure, input_schema, output, output_schema,
        schema,
    };
    pub use schemars;
    pub use serde;
    pub use serde_json::Value;
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs in the page on batches compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/batches.md")]
struct Batches;

/// The program in the page on workers compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/workers.md")]
struct Workers;

/// The programs in the page on attempts compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/attempts.md")]
struct Attempts;

/// The programs in the page on dedupe keys compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/dedupe.md")]
struct Dedupes;

/// The program in the page on events compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct EventsPage;

/// The program in the page on triggers compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/triggers.md")]
struct TriggersPage;

/// The program in the page on child sessions compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/children.md")]
struct Children;

/// The programs in the page on what tools do inside a call compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/inside.md")]
struct InsidePage;

/// The program in the page on the context of a call compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/context.md")]
struct ContextPage;
/// The program in the page on results compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/results.md")]
struct ResultsPage;

/// The program in the page on typed tools compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/typed-tools.md")]
struct TypedTools;

/// The program in the page on the catalog compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/catalog.md")]
struct CatalogPage;
