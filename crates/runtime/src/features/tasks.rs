//! The tasks of a session: calls that continue, or continued, without their callers.

mod ended;
mod everywhere;
mod messages;
mod paged;
mod refusal;
mod spawn;
pub(crate) mod tools;

pub use everywhere::{SessionTask, TasksPage};
pub(crate) use messages::text_of;
pub use messages::{Direction, NewMessage, TaskMessage};
pub use paged::TaskPage;
pub(crate) use refusal::{refusal, sentence};

use crate::api::answer::{self, CallAnswer};
use crate::api::error::{Lost, SessionError};
use crate::api::journal::{cancel_asked_at, find_id};
use crate::api::keys;
use crate::api::progress::Progress;
use crate::features::schedules::{self, Schedule};
use crate::mailbox::ask::AskError;
use crate::read::waits::{self, OpenCall};
use crate::session::artifacts::{log_of, result_of};
use crate::session::batch::Used;
use crate::session::inner::{Inner, Runtime};
use crate::session::kin::opened;
use crate::session::lane::Lane;
use crate::session::log::{LogPage, LogPiece};
use crate::session::notices::{TaskWords, task_key};
use crate::session::principal::SessionStanding;
use crate::session::wheel::Wheel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::call::{Call, DetachedBy, Wake};
use windlass_core::handle::{Handle, HandleKind, question_id};
use windlass_core::ids::{CallId, Ordinal, SessionNo};
use windlass_core::outcome::{Outcome, Part};
use windlass_core::time::Timestamp;
use windlass_store::{Space, Store};

/// A task in rendered form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Task {
    /// Its id, which is its call's; a monitor's is its schedule's.
    pub task: String,
    /// Its kind.
    pub kind: TaskKind,
    /// The tool.
    pub tool: String,
    /// A title for people.
    pub title: String,
    /// The state of its call. A monitor is `watching`; `succeeded` once its single time has come; `cancelled` while it is disabled.
    pub state: &'static str,
    /// Why it continues without a caller.
    pub by: &'static str,
    /// When its session gets a notice.
    pub wake: &'static str,
    /// The number of attempts started.
    pub attempts: u32,
    /// When its call was requested.
    #[serde(serialize_with = "answer::as_wall_time")]
    #[schemars(with = "String")]
    pub opened_at: Timestamp,
    /// When it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether a cancellation was requested.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub cancel_asked: bool,
    /// When a cancellation was first requested, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_asked_at: Option<String>,
    /// Words by which programs and people find it; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub tags: Vec<String>,
    /// Its log as an artifact; absent for a monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_artifact: Option<String>,
    /// Its result as an artifact, which is empty until it has ended; absent for a monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_artifact: Option<String>,
    /// When its first attempt started, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its record or its reports last changed.
    pub updated_at: String,
    /// Its last sign of life, if it has shown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive_at: Option<String>,
    /// One line: what it does, or how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The reason of its wait, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The worker that runs it, if it runs at one of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The principal of its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Its open questions to a person; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub input_requests: Vec<TaskQuestion>,
    /// The artifacts that it attached or returned; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub artifacts: Vec<String>,
    /// Its last reported progress, kept with its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The call that started it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starter: Option<String>,
    /// The schedule that started it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The trigger that started it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// The child sessions that it opened; absent if it opened none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub children: Vec<String>,
    /// Its last reported status, kept with its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// An open question of a task to a person.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TaskQuestion {
    /// The id for answering it: with `message_task`, or as a [question](crate::Runtime::answer).
    pub id: String,
    /// The question.
    pub question: String,
    /// The schema of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
}

/// Which tasks are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter<'a> {
    /// Only tasks in this state.
    pub state: Option<&'a str>,
    /// Only tasks of this kind.
    pub kind: Option<TaskKind>,
}

impl TaskFilter<'_> {
    fn takes(&self, task: &Task) -> bool {
        self.state.is_none_or(|state| state == task.state) && self.kind.is_none_or(|kind| kind == task.kind)
    }
}

/// The kinds of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskKind {
    /// A call.
    Tool,
    /// A schedule: while it is enabled it watches the clock, and starts calls.
    Monitor,
}

/// The tasks of one session. See [`Runtime::tasks`].
///
/// ```
/// use std::time::Duration;
/// use windlass::tasks::NewTask;
/// # use windlass::{BatchRequest, CallRequest, Config, Flags, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # let flags = Flags { background: true, ..Flags::default() };
/// # runtime.register(tool_fn(ToolSpec { name: "report".into(), flags, claims: Some(vec![]), ..ToolSpec::default() }, |_, _| async {
/// #     Ok(serde_json::json!("12 pages").into())
/// # }))?;
/// // The tool has the flag `background`: the batch is answered at once, and the call continues as a task.
/// let call = CallRequest { tool: "report".into(), task: Some(NewTask::default()), ..CallRequest::default() };
/// let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
/// let answer = runtime.submit("demo", batch).await?.settled().await?;
/// let handle = answer.calls[0].handle().to_string();
///
/// let (_, ended) = runtime.tasks("demo").wait(&handle, Duration::from_secs(60)).await?;
/// assert_eq!(ended.model_text(), "12 pages");
/// # Ok(()) }
/// ```
pub struct Tasks {
    store: Arc<dyn Store>,
    session: String,
    /// The runtime that drives them, if it is known.
    rt: Option<Arc<Inner>>,
}

/// A task whose end is waited for. The runtime may go away meanwhile.
struct AwaitedTask {
    batch: Used,
    ordinal: Ordinal,
    lane: Arc<Lane>,
    wheel: Arc<Wheel>,
    due_us: u64,
}

impl AwaitedTask {
    /// Waits until it has ended, or the wait has timed out.
    async fn over(&self) -> Result<(), Lost> {
        tokio::select! {
            ended = self.batch.ended(std::iter::once(self.ordinal), &self.lane) => ended.map(drop),
            () = self.wheel.until(self.due_us) => Ok(()),
        }
    }
}

impl Runtime {
    /// The tasks of the session of this name.
    pub fn tasks(&self, session: &str) -> Tasks {
        Tasks::owned(&self.0, session)
    }
}

impl Tasks {
    /// The tasks of a session that this runtime owns, or may.
    pub(crate) fn owned(rt: &Arc<Inner>, session: &str) -> Tasks {
        Tasks { store: rt.store.clone(), session: session.to_string(), rt: Some(rt.clone()) }
    }

    /// The recorded tasks of a session, in a store without an owner.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Tasks {
        Tasks { store, session: session.to_string(), rt: None }
    }

    /// The tasks after this id: schedules, by id, then calls, newest first.
    pub async fn list(&self, after: Option<&str>, limit: u64) -> Result<Vec<Task>, AskError> {
        Ok(self.list_where(TaskFilter::default(), after, limit).await?.tasks)
    }

    /// The task of this id, and the answer of its call.
    pub async fn get(&self, task: &str) -> Result<(Task, CallAnswer), AskError> {
        let found = self.find(task).await?;
        let record = self.store.record(Space::Task.of(found.session), &task_key(found.id)).await;
        let record = record.map_err(SessionError::from)?;
        let words = record.map(|record| TaskWords::read(&record.value)).unwrap_or_default();
        let owner = SessionStanding::of(&*self.store, &self.session).await?.principal();
        let shown = self.shown(&found, self.live().get(&found.id), words, owner.as_deref());
        let FoundTask { id, call, .. } = found;
        let (store, call) = (self.store.clone(), Arc::new(call));
        Ok((shown, CallAnswer { id, store, call, recorded: true, conflict: None, parent: None }))
    }

    /// The schedule of this id, as a task. `None`: there is none.
    pub async fn monitor(&self, id: &str) -> Result<Option<Task>, AskError> {
        // A handle of ours is a call's, without reading.
        let found = if self.call(id).is_ok() { None } else { self.number().await? };
        let Some(session) = found else { return Ok(None) };
        let all = schedules::all(&*self.store, session).await?;
        Ok(all.into_iter().find(|schedule| schedule.id == id).map(monitor))
    }

    /// Its log after the piece of this number, in order, at most `limit` pieces. Missing numbers were not
    /// retained.
    pub async fn log(&self, task: &str, after: Option<u64>, limit: u64) -> Result<Vec<LogPiece>, AskError> {
        let FoundTask { session, id: call, .. } = self.find(task).await?;
        Ok(LogPage { session, call, after, limit }.pieces(&*self.store).await?)
    }

    /// Waits until it has ended, at most `within`, and returns its state then.
    pub async fn wait(&self, task: &str, within: Duration) -> Result<(Task, CallAnswer), AskError> {
        if let Some(waiting) = self.waiting(task, within).await? {
            waiting.over().await.map_err(SessionError::from)?;
        }
        self.get(task).await
    }

    /// The wait for it, if it has not ended and is driven.
    async fn waiting(&self, task: &str, within: Duration) -> Result<Option<AwaitedTask>, AskError> {
        let FoundTask { id, call, .. } = self.find(task).await?;
        let Some(rt) = self.rt.as_ref().filter(|_| call.end().is_none()) else { return Ok(None) };
        let session = rt.session(&self.session).await?;
        let Some(batch) = session.find_away(rt, id.batch).await? else { return Ok(None) };
        let within_us = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let due_us = rt.clock.elapsed_us().saturating_add(within_us);
        let (ordinal, lane, wheel) = (id.ordinal, session.lane.clone(), rt.wheel.clone());
        Ok(Some(AwaitedTask { batch, ordinal, lane, wheel, due_us }))
    }

    /// The end of its log, at most `most` pieces.
    async fn last_words(&self, task: &str, most: usize) -> Result<Vec<LogPiece>, AskError> {
        let FoundTask { session, id: call, .. } = self.find(task).await?;
        let (mut last, mut after) = (VecDeque::new(), None);
        loop {
            let page = LogPage { session, call, after, limit: u64::MAX };
            let page = page.pieces(&*self.store).await?;
            let Some(piece) = page.last() else { return Ok(last.into()) };
            after = Some(piece.no);
            last.extend(page);
            last.drain(..last.len().saturating_sub(most));
        }
    }

    async fn number(&self) -> Result<Option<SessionNo>, AskError> {
        let row = self.store.session(&self.session).await.map_err(SessionError::from)?;
        Ok(row.map(|row| row.no))
    }

    async fn find(&self, task: &str) -> Result<FoundTask, AskError> {
        let not_found = || not_found(task);
        let id = self.call(task)?;
        let session = self.number().await?.ok_or_else(not_found)?;
        self.read(session, id).await?.ok_or_else(not_found)
    }

    fn call(&self, task: &str) -> Result<CallId, AskError> {
        let opened =
            Handle::parse(task).and_then(|handle| handle.open(self.store.secret(), HandleKind::Call));
        opened.map(CallId::unpacked).ok_or_else(|| not_found(task))
    }

    /// A call of this session, if it is a task.
    async fn read(&self, session: SessionNo, id: CallId) -> Result<Option<FoundTask>, AskError> {
        let found = find_id(&*self.store, id).await?;
        let own = found.filter(|(row, call, _)| row.no == session && call.task.is_some());
        let Some((_, call, batch_key)) = own else { return Ok(None) };
        let cancel_at = match call.cancel {
            Some(_) => cancel_asked_at(&*self.store, id).await?,
            None => None,
        };
        Ok(Some(FoundTask { session, id, call, batch_key, cancel_at }))
    }

    /// The owner's knowledge of its open calls.
    fn live(&self) -> HashMap<CallId, OpenCall> {
        let live = self.rt.as_ref().map(|rt| waits::live(rt, |name| name == self.session));
        live.unwrap_or_default().into_iter().collect()
    }

    /// The schedules, by id, after this one.
    async fn monitors(&self, session: SessionNo, after: Option<&str>) -> Result<Vec<Task>, AskError> {
        let all = schedules::all(&*self.store, session).await?;
        let later = all.into_iter().filter(|schedule| after.is_none_or(|after| *schedule.id > *after));
        Ok(later.map(monitor).collect())
    }

    fn shown(
        &self,
        found: &FoundTask,
        live: Option<&OpenCall>,
        words: TaskWords,
        owner: Option<&str>,
    ) -> Task {
        let FoundTask { id, call, batch_key, cancel_at, .. } = found;
        let task = call.task.as_deref();
        let handle =
            |call: CallId| Handle::seal(self.store.secret(), HandleKind::Call, call.packed()).to_string();
        let live = live.filter(|_| call.end().is_none());
        let times = TaskTimes::of(call, live, &words);
        let progress = live.and_then(|live| live.progress.clone()).or(words.progress);
        let status = live.and_then(|live| live.status.clone()).or(words.status);
        let waiting = live.map_or_else(|| waits::recorded(call), |live| live.waiting_for.clone());
        Task {
            summary: summary(call, status.as_deref()),
            detail: waiting.filter(|_| call.end().is_none()).map(|waiting| waiting.to_string()),
            worker: live.and_then(|_| self.rt.as_ref()?.owners.id()).map(|id| id.to_string()),
            requested_by: owner.map(str::to_string),
            input_requests: self.questions(*id, call),
            artifacts: artifacts_of(call),
            started_at: times.started,
            updated_at: times.updated,
            alive_at: times.alive,
            task: handle(*id),
            kind: TaskKind::Tool,
            starter: task.and_then(|task| task.starter).map(handle),
            schedule: keys::schedule_of(batch_key).map(str::to_string),
            trigger: keys::trigger_of(batch_key).map(str::to_string),
            tool: call.opened.tool.to_string(),
            title: task.and_then(|task| task.title.as_deref()).unwrap_or(&call.opened.tool).to_string(),
            state: live.map_or(call.state.name(), |live| live.state),
            by: task.map_or(DetachedBy::Budget, |task| task.by).as_str(),
            wake: task.map_or(Wake::OnEnd, |task| task.wake).as_str(),
            attempts: call.attempts.max(live.map_or(0, |live| live.attempts)),
            opened_at: call.opened_at,
            ended_at: call.end().map(|end| answer::wall_time(end.at)),
            cancel_asked: call.cancel.is_some(),
            cancel_asked_at: cancel_at.map(answer::wall_time),
            tags: task.map(|task| task.tags.clone()).unwrap_or_default(),
            log_artifact: Some(log_of(self.store.secret(), *id).to_string()),
            result_artifact: Some(result_of(self.store.secret(), *id).to_string()),
            progress,
            children: opened(call.operations.as_deref()),
            status,
        }
    }

    /// The open questions of a call.
    fn questions(&self, id: CallId, call: &Call) -> Vec<TaskQuestion> {
        let now = self.rt.as_ref().map_or(Timestamp(i64::MIN), |rt| rt.clock.now());
        let Some(operations) = call.operations.as_deref().filter(|_| call.end().is_none()) else {
            return Vec::new();
        };
        let open = operations.questions().filter(|(name, _)| !operations.is_over(name, now));
        let shown = open.map(|(name, question)| TaskQuestion {
            id: question_id(self.store.secret(), id, name),
            question: question.text.to_string(),
            schema: question.schema.as_deref().and_then(|schema| serde_json::from_str(schema).ok()),
        });
        shown.collect()
    }
}

/// The times of a task, for people.
struct TaskTimes {
    started: Option<String>,
    updated: String,
    alive: Option<String>,
}

impl TaskTimes {
    fn of(call: &Call, live: Option<&OpenCall>, words: &TaskWords) -> TaskTimes {
        let alive = live.and_then(|live| live.alive_at);
        let alive = alive.or((words.at_us > 0).then_some(Timestamp(words.at_us)));
        let ended = call.end().map(|end| end.at);
        let all = [Some(call.opened_at), call.first_started_at, ended, alive];
        let updated = all.into_iter().flatten().max().unwrap_or(call.opened_at);
        TaskTimes {
            started: call.first_started_at.map(answer::wall_time),
            updated: answer::wall_time(updated),
            alive: alive.map(answer::wall_time),
        }
    }
}

/// The longest summary.
const SUMMARY_CHARS: usize = 120;

/// One line about a task: the beginning of its result, or its last status.
fn summary(call: &Call, status: Option<&str>) -> Option<String> {
    let text = match call.end() {
        Some(end) => end
            .model()
            .parts
            .into_iter()
            .find_map(|part| if let Part::Text(text) = part { Some(text) } else { None }),
        None => status.map(str::to_string),
    };
    let line = text?.lines().next().unwrap_or_default().trim().to_string();
    let short: String = line.chars().take(SUMMARY_CHARS).collect();
    let is_cut = short.len() < line.len();
    (!line.is_empty()).then(|| if is_cut { format!("{short}…") } else { short })
}

/// The artifacts that a call attached, and those of its result.
fn artifacts_of(call: &Call) -> Vec<String> {
    let attached = call.operations.as_deref().into_iter().flat_map(|done| done.attachments());
    let mut found: Vec<String> = attached.map(|kept| kept.artifact.to_string()).collect();
    if let Some(Outcome::Succeeded(success)) = call.outcome() {
        for part in &success.parts {
            let Part::File { kept, .. } = part else { continue };
            let artifact = kept.artifact.to_string();
            if !found.contains(&artifact) {
                found.push(artifact);
            }
        }
    }
    found
}

/// A task of the session, as its journal has it.
struct FoundTask {
    session: SessionNo,
    id: CallId,
    call: Call,
    batch_key: Arc<str>,
    /// When a cancellation was first requested.
    cancel_at: Option<Timestamp>,
}

/// Whether a cursor is a schedule's id rather than a call's.
fn is_schedule(after: Option<&str>) -> bool {
    after.is_some_and(|after| Handle::parse(after).is_none())
}

fn monitor(schedule: Schedule) -> Task {
    Task {
        task: schedule.id,
        kind: TaskKind::Monitor,
        starter: None,
        title: schedule.title.unwrap_or_else(|| schedule.tool.clone()),
        tool: schedule.tool,
        state: match (schedule.enabled, schedule.at.is_some() && schedule.count > 0) {
            (true, _) => "watching",
            (false, true) => "succeeded",
            (false, false) => "cancelled",
        },
        by: DetachedBy::Scheduled.as_str(),
        wake: Wake::parse(&schedule.wake).unwrap_or(Wake::OnEnd).as_str(),
        attempts: 0,
        opened_at: schedule.created_at,
        ended_at: if schedule.enabled { None } else { schedule.last.clone() },
        cancel_asked: false,
        cancel_asked_at: None,
        tags: Vec::new(),
        log_artifact: None,
        result_artifact: None,
        progress: None,
        children: Vec::new(),
        schedule: None,
        trigger: None,
        status: schedule.next.map(|next| format!("next at {next}")),
        started_at: None,
        updated_at: answer::wall_time(schedule.created_at),
        alive_at: None,
        summary: None,
        detail: None,
        worker: None,
        requested_by: schedule.owner,
        input_requests: Vec::new(),
        artifacts: Vec::new(),
    }
}

fn not_found(task: &str) -> AskError {
    AskError::NotFound { what: format!("task {task:?}") }
}
