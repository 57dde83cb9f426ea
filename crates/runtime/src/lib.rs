//! A durable tool runtime for AI agents.
//!
//! A model asks for tool calls in a batch; [`Runtime::submit`] checks them, runs them in the order of their
//! effects, records everything, and answers. A crash loses nothing that was acknowledged and repeats nothing
//! that was recorded. Read `drive` first: it is the path of every call.
#![warn(missing_docs)]

#[macro_use]
pub mod points;

mod answer;
mod artifacts;
pub mod ask;
mod away;
mod background;
mod batch;
mod children;
mod client;
mod clock;
mod drive;
mod error;
pub mod events;
mod files;
mod gate;
mod held;
mod hooks;
mod inbox;
mod inside;
pub mod inspect;
mod lane;
mod log;
mod loops;
mod observer;
mod pairs;
mod progress;
mod provider;
mod registry;
mod removal;
mod request;
mod runtime;
mod same;
mod schedules;
mod scope;
mod session;
mod signal;
mod stage;
mod standing;
mod story;
mod stream;
mod submit;
mod tasks;
mod threads;
mod tool;
pub mod trace;
mod triggers;
mod turns;
mod waits;
mod wheel;
mod worker;

pub use answer::{BatchAnswer, CallAnswer, wall_time};
pub use artifacts::{Artifact, ArtifactError, ArtifactInfo, ArtifactWriter};
pub use ask::{AskError, Asked, Connecting, Resolution, Signal, Target};
pub use batch::Decided;
pub use children::{Child, ChildError, ChildSpec, Settings, SettingsFuture};
pub use client::client_tool;
pub use clock::{Clock, SystemClock};
pub use error::{BatchError, LimitError, Lost, chain};
pub use events::{Event, Events, EventsError, News, Page, Words};
pub use files::{FileEntry, FileError, FileKind, SessionFiles};
pub use hooks::{After, AfterFuture, Before, BeforeFuture, Hook, HookCx};
pub use inbox::{Inbox, InboxError, Notice, NoticeKind};
pub use inside::{
    Attachment, ChildSession, Completed, CompletionKey, Misuse, NestedBatch, Pairs, Pending, StepError,
};
pub use log::{LogPiece, Stream};
pub use observer::{NestedCall, Observer};
pub use pairs::{Pair, PairError, PairKey, PairList, SessionPairs};
pub use progress::Progress;
pub use provider::{LoadFuture, Provider, Summary};
pub use registry::{Listed, NoSuchTool, RegisterError, Registered};
pub use request::{Args, BatchRequest, CallRequest, NewTask};
pub use runtime::{Config, RunningLimits, Runtime, SessionLimits, ZeroLimit, check_session_name};
pub use schedules::{NewSchedule, Schedule, ScheduleEdit, ScheduleError, Schedules, preview};
pub use scope::{Overlay, OverlayGuard};
pub use stream::{StreamRequest, StreamedBatch};
pub use submit::{Submitted, fresh_key};
pub use tasks::{Direction, Task, TaskKind, TaskMessage, Tasks};
pub use tool::{
    Connection, Cx, Output, PrepareCx, PrepareFuture, Prepared, Reconcile, ReconcileFuture, Reconciled, Tool,
    ToolError, ToolFuture, tool_fn, with_reconcile,
};
pub use triggers::{NewTrigger, Trigger, TriggerError, Triggers};
pub use waits::OpenCall;
pub use windlass_core as core;
pub use windlass_core::attempt::{Deadlines, RetryRule};
pub use windlass_core::call::Wake;
pub use windlass_core::claim::{Claim, Claims};
pub use windlass_core::dedupe::Dedupe;
pub use windlass_core::plan::{Cap, Counts};
pub use windlass_core::rate::Rate;
pub use windlass_core::siblings::{Decision, Siblings};
pub use windlass_core::tool::{EffectClass, Flags, Hints, Need, ToolSpec};
pub use windlass_store as store;

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
struct Inside;
