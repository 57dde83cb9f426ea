//! The words between a runtime and the processes of a toolbox.

use crate::api::output::{Output, ToolError};
use crate::api::progress::Progress;
use crate::session::log::Stream;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::call::Cause;
use windlass_core::ids::AttemptNo;

/// A process that asks for work. See [`Toolboxes::take`](super::Toolboxes::take).
#[derive(Clone, Debug, Default)]
pub struct TakeRequest {
    /// The process, by a name of its own choice that no other process of the toolbox has.
    pub worker: String,
    /// The digest of the manifest that the process has.
    pub manifest: String,
    /// How many attempts it can take now; 0: it takes none any more.
    pub max: u32,
    /// How many attempts it runs at once in all: as many calls may start. Otherwise that is what it has and what it can take, which is
    /// too few while its last reports are under way.
    pub slots: Option<u32>,
    /// How long it waits for the first one.
    pub wait: Duration,
}

/// An attempt for a process of a toolbox.
#[derive(Clone, Debug)]
pub struct TakenAttempt {
    /// The token of the attempt: whoever has it reports for the attempt, and nobody else.
    pub token: String,
    /// The handle of the call.
    pub call: String,
    /// The model's id of the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments.
    pub args: Arc<Value>,
    /// The session.
    pub session: String,
    /// The principal of the session, if it has one.
    pub principal: Option<String>,
    /// The number of the attempt, from 1.
    pub number: AttemptNo,
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// Whether an earlier attempt was running when its owner died.
    pub redrive: bool,
    /// The key by which other systems deduplicate: the same in every attempt.
    pub idempotency_key: String,
    /// How long the attempt may still take.
    pub left: Duration,
    /// The recorded steps that have a value, as far as they are small.
    pub steps: Vec<StepRecord>,
}

/// A recorded step, for a body that runs again.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: Value,
    /// Its value.
    pub value: Value,
}

/// A report of one attempt. Everything in it may be sent again until it is answered.
#[derive(Clone, Debug, Default)]
pub struct AttemptReport {
    /// The token of the attempt.
    pub token: String,
    /// Whether the tool itself gives a sign of life; the report as such is one of its process only.
    pub is_alive: bool,
    /// How far the tool is.
    pub progress: Option<Progress>,
    /// The current activity of the tool.
    pub status: Option<String>,
    /// Output for the log.
    pub output: Vec<(Stream, String)>,
    /// Operations of the tool, each with a number of its own in the attempt.
    pub operations: Vec<(u64, ToolboxOperation)>,
    /// The numbers of earlier operations whose answers are still missing.
    pub open: Vec<u64>,
    /// The end of the attempt.
    pub end: Option<ToolboxEnd>,
}

/// An operation of a tool, as the methods of [`Cx`](crate::Cx).
#[derive(Clone, Debug)]
pub enum ToolboxOperation {
    /// A step is about to run: it runs once the answer says so.
    Step {
        /// Its name.
        name: String,
        /// Its input.
        input: Value,
        /// Whether it must not be repeated.
        once: bool,
    },
    /// A step ran.
    StepEnded {
        /// Its name.
        name: String,
        /// Its input.
        input: Value,
        /// Its result.
        result: Result<Value, ToolError>,
    },
    /// A sleep.
    Sleep {
        /// Its name.
        name: String,
        /// Its length.
        length: Duration,
    },
    /// A key for an external answer.
    Completion {
        /// Its name.
        name: String,
    },
    /// A wait for the answer to a key.
    Wait {
        /// The name of the key.
        name: String,
        /// How long; `None`: the default.
        deadline: Option<Duration>,
    },
    /// A call of another tool.
    Call {
        /// Its name.
        name: String,
        /// The tool.
        tool: String,
        /// The arguments.
        args: Value,
    },
    /// A question to a person.
    Ask {
        /// Its name.
        name: String,
        /// The question.
        question: String,
        /// The schema of the answer.
        schema: Option<Value>,
    },
    /// The value of a secret.
    Secret {
        /// The name of the secret.
        name: String,
    },
}

impl ToolboxOperation {
    /// Whether its answer comes as soon as it is recorded, and not after a wait.
    pub(super) fn is_quick(&self) -> bool {
        match self {
            ToolboxOperation::Step { .. }
            | ToolboxOperation::StepEnded { .. }
            | ToolboxOperation::Completion { .. }
            | ToolboxOperation::Secret { .. } => true,
            ToolboxOperation::Sleep { .. }
            | ToolboxOperation::Wait { .. }
            | ToolboxOperation::Call { .. }
            | ToolboxOperation::Ask { .. } => false,
        }
    }
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationAnswer {
    /// The step must run now.
    Run,
    /// It is done, with this value.
    Value(Value),
    /// It failed.
    Failed(ToolError),
    /// The step was started before a crash and must not be repeated: its outcome is not known.
    Unknown,
    /// It is refused.
    Refused {
        /// Whether the attempt must stop, the body differs from its record, or it does something that a body must not do.
        code: OperationRefusal,
        /// For the author of the tool.
        message: String,
    },
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationRefusal {
    /// The attempt must stop.
    Stopped,
    /// The tool uses the operation in a wrong way.
    Misused,
    /// The secret is not there, or not for this tool.
    Secret,
}

/// The end of an attempt.
#[derive(Clone, Debug)]
pub enum ToolboxEnd {
    /// It returned.
    Value(Box<Output>),
    /// It failed.
    Failed(Box<ToolError>),
    /// It has done its part; the answer to the key of this name is the result.
    Pending {
        /// The name of the key.
        name: String,
        /// How long the answer is waited for; `None`: the default.
        deadline: Option<Duration>,
    },
    /// It stopped because it was asked to.
    Stopped {
        /// Whether it certainly had no effect.
        did_not_happen: bool,
    },
}

/// The news for a process about one attempt.
#[derive(Clone, Debug)]
pub struct AttemptNews {
    /// The token of the attempt.
    pub token: String,
    /// Where the attempt stands.
    pub standing: AttemptStanding,
    /// Why it must stop, if it must.
    pub stop: Option<Cause>,
    /// How long it may still take.
    pub left: Option<Duration>,
    /// The answers to the operations that were named, as far as they are there.
    pub answers: Vec<(u64, OperationAnswer)>,
}

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStanding {
    /// It runs.
    Running,
    /// It is the current one by the record, and its session is not driven here yet: the report must be sent again.
    Unheard,
    /// It is over: ended, put aside while it only waits, or given to another process. Nothing that it says counts any more.
    Over,
}
