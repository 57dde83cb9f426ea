//! The wire format of toolboxes: manifests, attempts, reports and their answers.

use super::{PartBody, even_null, is_false, parts};
use crate::problem::{Problem, ProblemCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use windlass::error::{FailureClass, Retry};
use windlass::time::wall_time;
use windlass::tool::{Progress, Stream};
use windlass::toolboxes::{
    AttemptNews, AttemptReport, AttemptStanding, OperationAnswer, OperationRefusal, TakeRequest,
    TakenAttempt, ToolManifest, ToolboxEnd, ToolboxOperation,
};
use windlass::{Output, ToolError};
use windlass_core::time::Timestamp;

/// The manifest of a toolbox.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolboxRequest")]
pub struct ToolboxBody {
    /// Its tools.
    pub tools: Vec<ToolManifest>,
}

/// A process that asks for work.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TakeAttemptsRequest")]
pub struct TakeBody {
    /// A name of the process that no other process of the toolbox has: 1 to 64 of `[a-zA-Z0-9_.-]`.
    pub worker: String,
    /// The digest of the manifest that the process has put.
    pub manifest: String,
    /// How many attempts it can take now; 0: it takes none any more.
    pub max: u32,
    /// How many attempts it runs at once in all: as many calls may start. Without it that is what it has and what it can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How long it waits for the first one, in milliseconds; at most `toolbox_wait_ms_max`.
    #[serde(default)]
    pub wait_ms: u64,
}

impl From<TakeBody> for TakeRequest {
    fn from(body: TakeBody) -> TakeRequest {
        let TakeBody { worker, manifest, max, slots, wait_ms } = body;
        TakeRequest { worker, manifest, max, slots, wait: Duration::from_millis(wait_ms) }
    }
}

/// Attempts for a process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "TakenAttempts")]
pub struct TakenView {
    /// The attempts; none if none came in time.
    pub attempts: Vec<AttemptView>,
}

/// An attempt for a process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "TakenAttempt")]
pub struct AttemptView {
    /// The token of the attempt, by which the process reports. It is a secret of the process.
    pub attempt: String,
    /// The handle of the call.
    pub call: String,
    /// The model's id of the call.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments; absent if they are larger than `toolbox_args_bytes_max`: then `GET …/attempts/{attempt}/arguments` answers with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// The bytes of arguments that are absent here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_bytes: Option<u64>,
    /// The session.
    pub session: String,
    /// The principal of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// Whether an earlier attempt was running when its owner died.
    pub redrive: bool,
    /// The key by which other systems deduplicate: the same in every attempt.
    pub idempotency_key: String,
    /// When the attempt must be over, by the clock of the server.
    pub deadline: String,
    /// How long it may still take, in milliseconds.
    pub left_ms: u64,
    /// The recorded steps that have a value, as far as they are small; the others are answered when they are reported.
    pub steps: Vec<StepView>,
}

/// A recorded step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RecordedStep")]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: Value,
    /// Its value.
    pub value: Value,
}

impl AttemptView {
    /// The attempt, at this time, with its arguments if they have at most so many bytes.
    pub fn of(taken: TakenAttempt, now: Timestamp, args_bytes_max: u64) -> AttemptView {
        let args_bytes = serde_json::to_string(&*taken.args).map_or(0, |text| text.len() as u64);
        let is_large = args_bytes > args_bytes_max;
        let left_us = i64::try_from(taken.left.as_micros()).unwrap_or(i64::MAX);
        let step = |step: windlass::toolboxes::StepRecord| StepView {
            name: step.name,
            input: step.input,
            value: step.value,
        };
        AttemptView {
            attempt: taken.token,
            call: taken.call,
            id: taken.id,
            tool: taken.tool,
            args: (!is_large).then(|| Value::clone(&taken.args)),
            args_bytes: is_large.then_some(args_bytes),
            session: taken.session,
            principal: taken.principal,
            number: taken.number.0,
            attempts_max: taken.attempts_max,
            redrive: taken.redrive,
            idempotency_key: taken.idempotency_key,
            deadline: wall_time(Timestamp(now.0.saturating_add(left_us))),
            left_ms: u64::try_from(taken.left.as_millis()).unwrap_or(u64::MAX),
            steps: taken.steps.into_iter().map(step).collect(),
        }
    }
}

/// Reports of a process about its attempts.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReportsRequest")]
pub struct ReportsBody {
    /// The name of the process, as it takes work.
    pub worker: String,
    /// How long the answer waits for news if there is none, in milliseconds; at most `toolbox_wait_ms_max`.
    #[serde(default)]
    pub wait_ms: u64,
    /// A report for each attempt that the process has: one without content says that the process lives.
    pub reports: Vec<ReportBody>,
}

/// A report about one attempt. Everything in it may be sent again until it is answered.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttemptReport")]
pub struct ReportBody {
    /// The token of the attempt.
    pub attempt: String,
    /// Whether the tool itself gives a sign of life, for its silence deadline.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alive: bool,
    /// How far the tool is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The current activity of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Output for the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<OutputBody>,
    /// Operations of the tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationBody>,
    /// The numbers of earlier operations whose answers are still missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<u64>,
    /// The end of the attempt. It is durable when the answer says that the attempt is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndBody>,
}

/// A piece of output.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttemptOutput")]
pub struct OutputBody {
    /// Whether it belongs to the results of the tool (`false`), or is an error or a remark (`true`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub err: bool,
    /// The text.
    pub text: String,
}

/// An operation, with a number of its own in the attempt.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttemptOperation")]
pub struct OperationBody {
    /// Its number.
    pub n: u64,
    /// The operation.
    #[serde(rename = "do")]
    pub what: OperationKind,
}

/// One operation in a request of its own.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AttemptOperationRequest")]
pub struct LoneOperationBody {
    /// The name of the process, as it takes work.
    pub worker: String,
    /// The number of the operation.
    pub n: u64,
    /// The operation.
    #[serde(rename = "do")]
    pub what: OperationKind,
}

impl LoneOperationBody {
    /// The process, and its report.
    pub fn read(self, attempt: String) -> (String, AttemptReport) {
        let operations = vec![(self.n, self.what.read())];
        (self.worker, AttemptReport { token: attempt, operations, ..AttemptReport::default() })
    }
}

/// The kinds of operations.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "AttemptOperationKind")]
pub enum OperationKind {
    /// A step is about to run: it runs once the answer says so.
    Step {
        /// Its name.
        name: String,
        /// Its input.
        #[serde(default)]
        input: Value,
        /// Whether it must not be repeated.
        #[serde(default)]
        once: bool,
    },
    /// A step ran: it has a value, or it failed.
    StepEnd {
        /// Its name.
        name: String,
        /// Its input.
        #[serde(default)]
        input: Value,
        /// Its value.
        #[serde(default)]
        value: Value,
        /// Its failure.
        #[serde(default)]
        failure: Option<FailureBody>,
    },
    /// A sleep.
    Sleep {
        /// Its name.
        name: String,
        /// Its length in milliseconds.
        ms: u64,
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
        /// How long, in milliseconds.
        #[serde(default)]
        deadline_ms: Option<u64>,
    },
    /// A call of another tool.
    Call {
        /// Its name.
        name: String,
        /// The tool.
        tool: String,
        /// The arguments.
        #[serde(default)]
        args: Value,
    },
    /// A question to a person.
    Ask {
        /// Its name.
        name: String,
        /// The question.
        question: String,
        /// The schema of the answer.
        #[serde(default)]
        schema: Option<Value>,
    },
    /// The value of a secret that the manifest names and the operator allowed.
    Secret {
        /// The name of the secret.
        name: String,
    },
}

/// A failure of a tool or a step.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AttemptFailure")]
pub struct FailureBody {
    /// Written for the model: the failure and what to do instead.
    pub message: String,
    /// A code of the tool's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether the message is for operators only: the model is told that the tool failed internally.
    #[serde(skip_serializing_if = "is_false")]
    pub internal: bool,
    /// Whether a retry is safe.
    #[serde(skip_serializing_if = "is_false")]
    pub retry: bool,
    /// How long to wait before that, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Whether it certainly had no effect.
    #[serde(skip_serializing_if = "is_false")]
    pub did_not_happen: bool,
}

impl FailureBody {
    fn read(self) -> ToolError {
        let FailureBody { message, code, internal, retry, retry_after_ms, did_not_happen } = self;
        let mut error = if internal { ToolError::internal(message) } else { ToolError::new(message) };
        error.tool_code = code;
        if retry || retry_after_ms.is_some() {
            error.retry = Retry::Safe { after_ms: retry_after_ms };
        }
        error.did_not_happen = did_not_happen;
        error
    }

    fn of(error: ToolError) -> FailureBody {
        let retry_after_ms = match error.retry {
            Retry::Safe { after_ms } => after_ms,
            Retry::Never | Retry::Exhausted { .. } => None,
        };
        let internal = error.class == FailureClass::Internal;
        let message = if internal { error.detail.unwrap_or(error.message) } else { error.message };
        FailureBody {
            message,
            code: error.tool_code,
            internal,
            retry: matches!(error.retry, Retry::Safe { .. }),
            retry_after_ms,
            did_not_happen: error.did_not_happen,
        }
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "AttemptEnd")]
pub enum EndBody {
    /// It returned a value.
    Value {
        /// The value.
        #[serde(default)]
        value: Value,
        /// The id of the artifact with the text of the value, if that is too large to be sent: `value` is then ignored.
        #[serde(default)]
        artifact: Option<String>,
        /// Parts for the model behind the value, in order.
        #[serde(default)]
        parts: Vec<PartBody>,
        /// A word to the host; recorded and shown, never acted on.
        #[serde(default, deserialize_with = "even_null")]
        control: Option<Value>,
    },
    /// It failed.
    Failure {
        /// The failure.
        failure: FailureBody,
    },
    /// It has done its part; the answer to the key of this name is the result.
    Pending {
        /// The name of the key.
        name: String,
        /// How long the answer is waited for, in milliseconds.
        #[serde(default)]
        deadline_ms: Option<u64>,
    },
    /// It stopped because it was asked to.
    Stopped {
        /// Whether it certainly had no effect.
        #[serde(default)]
        did_not_happen: bool,
    },
}

impl EndBody {
    fn read(self) -> Result<ToolboxEnd, Problem> {
        Ok(match self {
            EndBody::Value { value, artifact, parts, control } => {
                let kept = artifact.map(|artifact| parts::kept(&artifact)).transpose();
                let kept = kept.map_err(|what| Problem::new(ProblemCode::BadBody, what))?;
                let (parts, control) = (parts::read(parts)?, control.map(Box::new));
                ToolboxEnd::Value(Box::new(Output { value, kept, parts, control, ..Output::default() }))
            }
            EndBody::Failure { failure } => ToolboxEnd::Failed(Box::new(failure.read())),
            EndBody::Pending { name, deadline_ms } => {
                ToolboxEnd::Pending { name, deadline: deadline_ms.map(Duration::from_millis) }
            }
            EndBody::Stopped { did_not_happen } => ToolboxEnd::Stopped { did_not_happen },
        })
    }
}

impl OperationKind {
    fn read(self) -> ToolboxOperation {
        match self {
            OperationKind::Step { name, input, once } => ToolboxOperation::Step { name, input, once },
            OperationKind::StepEnd { name, input, value, failure } => {
                let result = failure.map_or(Ok(value), |failure| Err(failure.read()));
                ToolboxOperation::StepEnded { name, input, result }
            }
            OperationKind::Sleep { name, ms } => {
                ToolboxOperation::Sleep { name, length: Duration::from_millis(ms) }
            }
            OperationKind::Completion { name } => ToolboxOperation::Completion { name },
            OperationKind::Wait { name, deadline_ms } => {
                ToolboxOperation::Wait { name, deadline: deadline_ms.map(Duration::from_millis) }
            }
            OperationKind::Call { name, tool, args } => ToolboxOperation::Call { name, tool, args },
            OperationKind::Ask { name, question, schema } => ToolboxOperation::Ask { name, question, schema },
            OperationKind::Secret { name } => ToolboxOperation::Secret { name },
        }
    }
}

impl ReportBody {
    /// Converts the body to the runtime's report.
    pub fn read(self) -> Result<AttemptReport, Problem> {
        let ReportBody { attempt, alive, progress, status, log, operations, open, end } = self;
        let output = |piece: OutputBody| (if piece.err { Stream::Err } else { Stream::Out }, piece.text);
        Ok(AttemptReport {
            token: attempt,
            is_alive: alive,
            progress,
            status,
            output: log.into_iter().map(output).collect(),
            operations: operations
                .into_iter()
                .map(|operation| (operation.n, operation.what.read()))
                .collect(),
            open,
            end: end.map(EndBody::read).transpose()?,
        })
    }
}

/// The answers to reports.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReportsAnswer")]
pub struct NewsView {
    /// The news of each attempt, in the order of the reports.
    pub attempts: Vec<AttemptNewsView>,
}

/// The news of one attempt.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "AttemptNews")]
pub struct AttemptNewsView {
    /// The token of the attempt.
    pub attempt: String,
    /// `running`; `unheard`: its session has no owner yet, so the report must be sent again; `over`: it has ended, is put aside
    /// while it only waits, or was given to another process, and nothing that it says counts any more.
    pub state: &'static str,
    /// Why it must stop: `cancel`, `attempt`, `total` or `silence`; absent if it need not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<&'static str>,
    /// How long it may still take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// The answers to the operations that were named, as far as they are there.
    pub answers: Vec<AnswerView>,
}

/// The answer to an operation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OperationAnswer")]
pub struct AnswerView {
    /// The number of the operation.
    pub n: u64,
    /// The answer.
    pub answer: OperationAnswerKind,
}

/// The kinds of answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "OperationAnswerKind")]
pub enum OperationAnswerKind {
    /// The step must run now.
    Run,
    /// It is done, with this value.
    Value {
        /// The value.
        value: Value,
    },
    /// It failed.
    Failure {
        /// The failure.
        failure: FailureBody,
    },
    /// The step was started before a crash and must not be repeated: its outcome is not known.
    Unknown,
    /// It is refused.
    Refused {
        /// `stopped`, `misused` or `secret`.
        code: &'static str,
        /// For the author of the tool.
        message: String,
    },
}

impl AttemptNewsView {
    /// The news as JSON.
    pub fn of(news: AttemptNews) -> AttemptNewsView {
        let state = match news.standing {
            AttemptStanding::Running => "running",
            AttemptStanding::Unheard => "unheard",
            AttemptStanding::Over => "over",
        };
        let answer =
            |(n, answer): (u64, OperationAnswer)| AnswerView { n, answer: OperationAnswerKind::of(answer) };
        AttemptNewsView {
            attempt: news.token,
            state,
            stop: news.stop.map(|cause| cause.as_str()),
            left_ms: news.left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            answers: news.answers.into_iter().map(answer).collect(),
        }
    }
}

impl OperationAnswerKind {
    fn of(answer: OperationAnswer) -> OperationAnswerKind {
        match answer {
            OperationAnswer::Run => OperationAnswerKind::Run,
            OperationAnswer::Value(value) => OperationAnswerKind::Value { value },
            OperationAnswer::Failed(error) => {
                OperationAnswerKind::Failure { failure: FailureBody::of(error) }
            }
            OperationAnswer::Unknown => OperationAnswerKind::Unknown,
            OperationAnswer::Refused { code, message } => {
                let code = match code {
                    OperationRefusal::Stopped => "stopped",
                    OperationRefusal::Misused => "misused",
                    OperationRefusal::Secret => "secret",
                };
                OperationAnswerKind::Refused { code, message }
            }
        }
    }
}
