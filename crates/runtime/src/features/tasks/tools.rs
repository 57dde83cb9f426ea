//! The model's tools for tasks: available wherever a tool with the flag `background` is.

use super::{NewMessage, Task, TaskFilter, TaskKind, Tasks, refusal as refused, sentence};
use crate::api::answer::CallAnswer;
use crate::api::output::{Output, ToolError};
use crate::features::schedules::{NewSchedule, ScheduleEdit, ScheduleError, Schedules};
use crate::mailbox::ask::{self, AskError, Target};
use crate::path::background;
use crate::session::cx::Cx;
use crate::tools::request::NewTask;
use crate::tools::tool::{Tool, ToolFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::attempt::Deadlines;
use windlass_core::call::Wake;
use windlass_core::outcome::Outcome;
use windlass_core::schedule::{CatchUp, Overlap};
use windlass_core::tool::{EffectClass, Flags, Hints, ToolSource, ToolSpec};

/// The number of log pieces that `get_task` shows.
const LOG_PIECES: usize = 20;
/// The default and the maximum wait of `wait_task`, in seconds.
const WAIT_S: (u64, u64) = (60, 600);
/// The default and the maximum number of tasks in `list_tasks`.
const LISTED: (u64, u64) = (20, 100);

/// All of them.
pub(crate) fn all() -> [Arc<dyn Tool>; 6] {
    use Own::{Cancel, Get, List, Message, Spawn, Wait};
    [Spawn, List, Get, Wait, Cancel, Message].map(|own| Arc::new(own) as Arc<dyn Tool>)
}

/// One of them.
#[derive(Clone, Copy)]
enum Own {
    Spawn,
    List,
    Get,
    Wait,
    Cancel,
    Message,
}

#[derive(Deserialize)]
struct Spawned {
    tool: String,
    #[serde(default)]
    args: Value,
    title: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    signal_on_completion: Option<bool>,
    schedule: Option<ScheduleRequest>,
}

/// The times at which a call is started.
#[derive(Deserialize)]
struct ScheduleRequest {
    cron: Option<String>,
    at: Option<String>,
    zone: Option<String>,
    catch_up: Option<String>,
    overlap: Option<String>,
}

#[derive(Deserialize)]
struct TaskListRequest {
    limit: Option<u64>,
    after: Option<String>,
    state: Option<String>,
    kind: Option<TaskKind>,
}

#[derive(Deserialize)]
struct TaskRequest {
    task: String,
    /// The number of the last log piece that was seen.
    log_after: Option<u64>,
    timeout_s: Option<u64>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct TaskMessageRequest {
    task: String,
    text: String,
    in_reply_to: Option<String>,
}

impl Tool for Own {
    fn spec(&self) -> ToolSpec {
        let (name, title, description, class) = self.words();
        let properties = self.properties();
        let required: Vec<&str> = match self {
            Own::Spawn => vec!["tool"],
            Own::List => vec![],
            Own::Get | Own::Wait | Own::Cancel => vec!["task"],
            Own::Message => vec!["task", "text"],
        };
        ToolSpec {
            name: name.to_string(),
            title: title.to_string(),
            description: description.to_string(),
            input_schema: Some(json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            })),
            class: Some(class),
            // Whatever a task reads or sends is counted where its own tool runs; a message may be sent on by a task that runs.
            hints: Hints {
                read_only: Some(class == EffectClass::Read),
                destructive: Some(false),
                reads_private: Some(false),
                ingests_untrusted: Some(false),
                sends_out: (!matches!(self, Own::Message)).then_some(false),
                ..Hints::default()
            },
            flags: Flags { polls: class == EffectClass::Read, ..Flags::default() },
            claims: Some(Vec::new()),
            deadlines: self.deadlines(),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            match self {
                Own::Spawn => spawn(read(args)?, cx).await,
                Own::List => list(read(args)?, cx).await,
                Own::Get => get(read(args)?, cx).await,
                Own::Wait => wait(read(args)?, cx).await,
                Own::Cancel => cancel(read(args)?, cx).await,
                Own::Message => message(read(args)?, cx).await,
            }
        })
    }
}

impl Own {
    fn words(self) -> (&'static str, &'static str, &'static str, EffectClass) {
        match self {
            Own::Spawn => (
                "spawn_background",
                "Start a task",
                "Starts a call of another tool in the background and returns its task at once. Only tools that can run in \
                 the background can be started so. You are told when it ends, unless you do not want to be. Its log and its \
                 result are artifacts. With a schedule \
                 it starts at those times instead, and the schedule is returned.",
                EffectClass::Keyed,
            ),
            Own::List => (
                "list_tasks",
                "List tasks",
                "Lists the tasks of this session, newest first, with their states.",
                EffectClass::Read,
            ),
            Own::Get => (
                "get_task",
                "Look at a task",
                "Shows a task: its state, its progress, what it last wrote, what was said, and its result once it has \
                 ended.",
                EffectClass::Read,
            ),
            Own::Wait => (
                "wait_task",
                "Wait for a task",
                "Waits until a task has ended, and shows it. If that takes too long, it shows how the task stands.",
                EffectClass::Read,
            ),
            Own::Cancel => (
                "cancel_task",
                "Cancel a task",
                "Asks a task to stop. It may still end otherwise: look at it afterwards. A schedule is disabled: it \
                 starts nothing more, and the tasks it has started go on.",
                EffectClass::Keyed,
            ),
            Own::Message => (
                "message_task",
                "Message a task",
                "Says something to a running task, if its tool takes messages; in reply to a question of the task, it answers it.",
                EffectClass::Keyed,
            ),
        }
    }

    /// A wait must not run into its own deadline.
    fn deadlines(self) -> Deadlines {
        let longest = matches!(self, Own::Wait).then_some((WAIT_S.1 + 60) * 1_000);
        Deadlines { attempt_ms: longest, silence_ms: longest, total_ms: longest, ..Deadlines::default() }
    }

    fn properties(self) -> Value {
        let task = json!({ "type": "string", "description": "The id of the task." });
        match self {
            Own::Spawn => json!({
                "tool": { "type": "string", "description": "The tool to call." },
                "args": { "type": "object", "description": "Its arguments." },
                "title": { "type": "string", "minLength": 1, "maxLength": 200, "description": "What people call the task." },
                "tags": { "type": "array", "items": { "type": "string", "minLength": 1 }, "description": "Words by which people find the task." },
                "signal_on_completion": { "type": "boolean", "description": "Whether you are told when it ends. Default: true." },
                "schedule": when(),
            }),
            Own::List => json!({
                "limit": { "type": "integer", "minimum": 1, "maximum": LISTED.1, "description": format!("How many at most. Default: {}.", LISTED.0) },
                "after": { "type": "string", "description": "The id of the last task that you have seen." },
                "state": { "type": "string", "description": "Only tasks in this state, such as running or succeeded." },
                "kind": { "enum": ["tool", "monitor"], "description": "Only calls, or only schedules." },
            }),
            Own::Get => json!({
                "task": task,
                "log_after": { "type": "integer", "minimum": 0, "description": "Shows the log behind the piece of this number, and not its end." },
            }),
            Own::Wait => json!({
                "task": task,
                "timeout_s": { "type": "integer", "minimum": 1, "maximum": WAIT_S.1, "description": format!("For how many seconds at most. Default: {}.", WAIT_S.0) },
            }),
            Own::Cancel => json!({
                "task": task,
                "reason": { "type": "string", "maxLength": ask::REASON_CHARS_MAX, "description": "Why." },
            }),
            Own::Message => json!({
                "task": task,
                "text": { "type": "string", "minLength": 1, "maxLength": 10000, "description": "What to say." },
                "in_reply_to": { "type": "string", "description": "The id of the message or of the question that this answers." },
            }),
        }
    }
}

/// The schema of a schedule's times.
fn when() -> Value {
    let words = |named: &[&str]| json!({ "enum": named });
    let catch_up: Vec<&str> = CatchUp::ALL.iter().map(|rule| rule.as_str()).collect();
    let overlap: Vec<&str> = Overlap::ALL.iter().map(|rule| rule.as_str()).collect();
    json!({
        "type": "object",
        "description": "Starts it at these times instead of now: either cron or at.",
        "properties": {
            "cron": { "type": "string", "description": "Five fields: minute, hour, day of the month, month, day of the week." },
            "at": { "type": "string", "description": "One time: RFC 3339, or a time by the clocks of the zone." },
            "zone": { "type": "string", "description": "An IANA zone. Default: UTC." },
            "catch_up": words(&catch_up),
            "overlap": words(&overlap),
        },
        "additionalProperties": false,
    })
}

/// Arguments that fit the schema.
fn read<T: serde::de::DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args)
        .map_err(|error| ToolError::new(format!("The arguments cannot be read: {error}.")))
}

async fn spawn(asked: Spawned, cx: &Cx) -> Result<Output, ToolError> {
    let (tool, args) = {
        let hold = cx.hold.upgrade().ok_or_else(gone)?;
        let place = &hold.batch.head.place;
        let target = background::target(&hold.rt, place, &asked.tool, asked.args).await;
        target.map_err(|failure| ToolError::refused(&failure))?
    };
    let wake = Wake::signals(asked.signal_on_completion);
    let own = Some(&tool.spec.title).filter(|title| !title.is_empty()).cloned();
    let title = asked.title.or(own);
    if let Some(when) = asked.schedule {
        // Only the host knows the session's principal; the calling call's handle leads to everything known.
        let owner = Some(format!("call {}", cx.handle()));
        let new = NewSchedule { tool: asked.tool, args, title, wake, owner, ..when.schedule() };
        return schedule(new, cx).await;
    }
    let new = NewTask { title, wake, tags: asked.tags };
    let id = cx.spawn("task", &asked.tool, &args, new).await?.to_string();
    let started = tasks(cx)?.get(&id).await.map_err(refused)?.0;
    let Task { task, tool, title, state, log_artifact, result_artifact, .. } = started;
    // Both can be read from now on: the log grows, and the result is empty until the task has ended.
    let answer = json!({
        "task": task, "tool": tool, "title": title, "state": state, "signal_on_completion": wake != Wake::Silent,
        "log": log_artifact, "result": result_artifact,
    });
    Ok(answer.into())
}

impl ScheduleRequest {
    fn schedule(self) -> NewSchedule {
        let ScheduleRequest { cron, at, zone, catch_up, overlap } = self;
        let usual = NewSchedule::default();
        NewSchedule {
            cron,
            at,
            zone,
            catch_up: catch_up.and_then(|rule| CatchUp::parse(&rule)).unwrap_or(usual.catch_up),
            overlap: overlap.and_then(|rule| Overlap::parse(&rule)).unwrap_or(usual.overlap),
            ..usual
        }
    }
}

/// Creates a schedule, once for each call: its id follows from the call, so a repetition finds it.
async fn schedule(new: NewSchedule, cx: &Cx) -> Result<Output, ToolError> {
    let id = blake3::hash(cx.idempotency_key().as_bytes()).to_hex()[..16].to_string();
    let (schedules, tasks) = {
        let hold = cx.hold.upgrade().ok_or_else(gone)?;
        (Schedules::owned(&hold.rt, &hold.session.name), hold.rt.tasks.clone())
    };
    let making = async move {
        match schedules.get(&id).await {
            Err(ScheduleError::NotFound { .. }) => {
                let new = NewSchedule { id: Some(id), ..new };
                schedules.create(new).await.map(|(made, _)| made)
            }
            // Its single time may be over by now.
            found => found,
        }
    };
    // In a task of the runtime, like all work for a tool: work that has begun is finished.
    match tasks.spawn(making).await.map_err(|_| gone())? {
        Ok(made) => Ok(json!(made).into()),
        Err(error @ (ScheduleError::Session(_) | ScheduleError::Batch(_))) => {
            Err(ToolError::internal(crate::api::error::chain(&error)))
        }
        Err(ScheduleError::Refused(failure)) => Err(ToolError::refused(&failure)),
        Err(error) => Err(ToolError { did_not_happen: true, ..ToolError::new(sentence(&error.to_string())) }),
    }
}

async fn list(asked: TaskListRequest, cx: &Cx) -> Result<Output, ToolError> {
    let limit = asked.limit.unwrap_or(LISTED.0);
    let filter = TaskFilter { state: asked.state.as_deref(), kind: asked.kind };
    let found = tasks(cx)?.list_where(filter, asked.after.as_deref(), limit).await.map_err(refused)?;
    let mut listed = json!({ "tasks": found.tasks });
    // A model that wants more asks after this one; a page that the filter left empty is not the last one.
    if let Some(next) = found.next {
        listed["next"] = json!(next);
    }
    Ok(listed.into())
}

async fn get(asked: TaskRequest, cx: &Cx) -> Result<Output, ToolError> {
    let tasks = tasks(cx)?;
    if let Some(monitor) = tasks.monitor(&asked.task).await.map_err(refused)? {
        return Ok(json!(monitor).into());
    }
    let (task, answer) = tasks.get(&asked.task).await.map_err(refused)?;
    shown(&tasks, &asked, task, answer).await
}

async fn wait(asked: TaskRequest, cx: &Cx) -> Result<Output, ToolError> {
    // A schedule does not end by waiting.
    if tasks(cx)?.monitor(&asked.task).await.map_err(refused)?.is_some() {
        return get(asked, cx).await;
    }
    let within = Duration::from_secs(asked.timeout_s.unwrap_or(WAIT_S.0));
    let waiting = tasks(cx)?.waiting(&asked.task, within).await.map_err(refused)?;
    // Nothing here owns the runtime while it waits.
    if let Some(waiting) = waiting {
        waiting.over().await.map_err(|lost| refused(AskError::Session(lost.into())))?;
    }
    get(asked, cx).await
}

async fn cancel(asked: TaskRequest, cx: &Cx) -> Result<Output, ToolError> {
    let tasks = tasks(cx)?;
    if let Some(disabled) = disable(&asked.task, cx).await? {
        return Ok(disabled);
    }
    tasks.get(&asked.task).await.map_err(refused)?;
    let hold = cx.hold.upgrade().ok_or_else(gone)?;
    let reached =
        ask::cancel(&hold.rt, Target::Call(&asked.task), asked.reason.as_deref()).await.map_err(refused)?;
    Ok(json!({ "task": asked.task, "asked_to_stop": reached.asked > 0, "was_over": reached.over > 0 }).into())
}

/// Disables the schedule of this id, if there is one: it starts no more tasks, and those it has started continue.
async fn disable(id: &str, cx: &Cx) -> Result<Option<Output>, ToolError> {
    let (schedules, tasks) = {
        let hold = cx.hold.upgrade().ok_or_else(gone)?;
        (Schedules::owned(&hold.rt, &hold.session.name), hold.rt.tasks.clone())
    };
    let wanted = id.to_string();
    let disabling = async move {
        let was_over = !schedules.get(&wanted).await?.enabled;
        if !was_over {
            let edit = ScheduleEdit { enabled: Some(false), ..ScheduleEdit::default() };
            schedules.edit(&wanted, edit).await?;
        }
        Ok(was_over)
    };
    // In a task of the runtime, like all work for a tool: work that has begun is finished.
    match tasks.spawn(disabling).await.map_err(|_| gone())? {
        Ok(was_over) => Ok(Some(json!({ "task": id, "disabled": true, "was_over": was_over }).into())),
        Err(ScheduleError::NotFound { .. }) => Ok(None),
        Err(error @ (ScheduleError::Session(_) | ScheduleError::Batch(_))) => {
            Err(ToolError::internal(crate::api::error::chain(&error)))
        }
        Err(error) => Err(ToolError::new(sentence(&error.to_string()))),
    }
}

async fn message(said: TaskMessageRequest, cx: &Cx) -> Result<Output, ToolError> {
    let key = cx.idempotency_key();
    if let Some(question) = said.in_reply_to.as_deref() {
        let (task, _) = tasks(cx)?.get(&said.task).await.map_err(refused)?;
        if task.input_requests.iter().any(|asked| asked.id == question) {
            return answer(question, said.text, said.task, cx).await;
        }
    }
    let message = NewMessage { text: &said.text, in_reply_to: said.in_reply_to.as_deref(), key: Some(&key) };
    tasks(cx)?.say(&said.task, message).await.map_err(refused)?;
    Ok(json!({ "task": said.task, "said": true }).into())
}

/// Answers a question of a task: with the JSON that the text is, or with the text.
async fn answer(question: &str, text: String, task: String, cx: &Cx) -> Result<Output, ToolError> {
    let hold = cx.hold.upgrade().ok_or_else(gone)?;
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    ask::answer(&hold.rt, question, &value).await.map_err(refused)?;
    Ok(json!({ "task": task, "answered": question }).into())
}

/// A task with its details.
async fn shown(
    tasks: &Tasks,
    asked: &TaskRequest,
    task: Task,
    answer: CallAnswer,
) -> Result<Output, ToolError> {
    let (mut shown, id) = (json!(task), &asked.task);
    let last = match asked.log_after {
        Some(after) => tasks.log(id, Some(after), LOG_PIECES as u64).await.map_err(refused)?,
        None => tasks.last_words(id, LOG_PIECES).await.map_err(refused)?,
    };
    let messages = tasks.messages(id).await.map_err(refused)?;
    if !last.is_empty() {
        shown["log"] = json!(last);
    }
    if !messages.is_empty() {
        shown["messages"] = json!(messages);
    }
    if task.ended_at.is_some() {
        shown["result"] = answer.model_text().into();
    }
    // Images and files of its result reach the model as those of its own call would.
    let parts = match answer.call().outcome() {
        Some(Outcome::Succeeded(success)) => success.parts.clone(),
        _ => Vec::new(),
    };
    Ok(Output { value: shown, parts, ..Output::default() })
}

fn tasks(cx: &Cx) -> Result<Tasks, ToolError> {
    let hold = cx.hold.upgrade().ok_or_else(gone)?;
    Ok(Tasks::owned(&hold.rt, &hold.session.name))
}

fn gone() -> ToolError {
    ToolError::new("The runtime is going away; ask again.").safe_to_retry()
}
