//! The tasks of a session: calls that go on without their callers, or did.

mod messages;
pub(crate) mod tools;

pub(crate) use messages::text_of;
pub use messages::{Direction, TaskMessage};

use crate::answer::{self, CallAnswer};
use crate::ask::{self, AskError};
use crate::batch::Used;
use crate::children;
use crate::error::{BatchError, Lost};
use crate::lane::Lane;
use crate::log::{self, LogPiece};
use crate::progress::Progress;
use crate::runtime::{Inner, Runtime};
use crate::schedules::{self, Schedule};
use crate::triggers;
use crate::waits::{self, OpenCall};
use crate::wheel::Wheel;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::call::{Call, DetachedBy, Wake};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{CallId, Ordinal, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store};

/// A task, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// Its id, which is its call's; of a monitor its schedule's.
    pub task: String,
    /// What kind of task it is.
    pub kind: TaskKind,
    /// The tool.
    pub tool: String,
    /// What people call it.
    pub title: String,
    /// The state of its call; a monitor is `watching`.
    pub state: &'static str,
    /// Why it goes on without a caller.
    pub by: &'static str,
    /// When its session is told of it.
    pub wake: &'static str,
    /// How many attempts were started.
    pub attempts: u32,
    /// When its call was asked for.
    #[serde(serialize_with = "answer::as_wall_time")]
    pub opened_at: Timestamp,
    /// When it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether somebody asked to cancel it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancel_asked: bool,
    /// How far it last said that it is, while it runs.
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
    /// The child sessions that it opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// What it last said that it does, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// What kinds of tasks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// A call.
    Tool,
    /// A schedule that is enabled: it looks at the clock, and starts calls.
    Monitor,
}

/// The row by which a task is found among those of its session; written with what makes it one.
pub(crate) fn row(call: CallId) -> Row {
    Row::Put { space: Space::Task, key: key(call), value: Arc::default() }
}

/// Newest first.
fn key(call: CallId) -> String {
    format!("{:016x}", u64::MAX - call.packed())
}

fn call_of(key: &str) -> Option<CallId> {
    u64::from_str_radix(key, 16).ok().map(|number| CallId::unpacked(u64::MAX - number))
}

/// The tasks of one session. See [`Runtime::tasks`].
pub struct Tasks {
    store: Arc<dyn Store>,
    session: String,
    /// Whoever drives them, if it is known.
    rt: Option<Arc<Inner>>,
}

/// A task whose end is waited for. The runtime may go away meanwhile.
struct Waiting {
    batch: Used,
    ordinal: Ordinal,
    lane: Arc<Lane>,
    wheel: Arc<Wheel>,
    due_us: u64,
}

impl Waiting {
    /// Until it has ended, or that took too long.
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
        Tasks { store: self.0.store.clone(), session: session.to_string(), rt: Some(self.0.clone()) }
    }
}

impl Tasks {
    /// The tasks of a session as they are recorded, for a store that nobody drives.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Tasks {
        Tasks { store, session: session.to_string(), rt: None }
    }

    /// Its tasks after the one of this id: schedules that are enabled, by id, then calls, newest first.
    pub async fn list(&self, after: Option<&str>, limit: u64) -> Result<Vec<Task>, AskError> {
        let Some(session) = self.number().await? else { return Ok(Vec::new()) };
        let call = after.map(|task| self.call(task)).transpose();
        let mut tasks = match &call {
            Ok(Some(_)) => Vec::new(),
            Ok(None) | Err(_) => self.monitors(session, after).await?,
        };
        // The page may begin behind a schedule that is there no more.
        let after = call.or_else(|error| if is_schedule(after) { Ok(None) } else { Err(error) })?.map(key);
        tasks.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let limit = limit - tasks.len() as u64;
        let page = RecordPage { session, space: Space::Task, prefix: "", after: after.as_deref(), limit };
        let live = self.live();
        for record in self.store.records(page).await.map_err(BatchError::from)? {
            if let Some(call) = call_of(&record.key) {
                let found = self.read(session, call).await?;
                tasks.extend(found.map(|found| self.shown((call, &found.0), &found.1, live.get(&call))));
            }
        }
        Ok(tasks)
    }

    /// The task of this id, and the answer of its call.
    pub async fn get(&self, task: &str) -> Result<(Task, CallAnswer), AskError> {
        let (_, id, (call, key)) = self.find(task).await?;
        let shown = self.shown((id, &call), &key, self.live().get(&id));
        let (store, call) = (self.store.clone(), Arc::new(call));
        Ok((shown, CallAnswer { id, store, call, recorded: true, conflict: None, parent: None }))
    }

    /// The schedule of this id that is enabled, as it is listed among the tasks. `None`: there is none.
    pub async fn monitor(&self, id: &str) -> Result<Option<Task>, AskError> {
        // A handle of ours is a call's, without a look.
        let found = if self.call(id).is_ok() { None } else { self.number().await? };
        let Some(session) = found else { return Ok(None) };
        let enabled = schedules::enabled(&*self.store, session).await?;
        Ok(enabled.into_iter().find(|schedule| schedule.id == id).map(monitor))
    }

    /// What it has said after the piece of this number, in order, at most so many pieces. A number that is missing was there
    /// and is not kept.
    pub async fn log(&self, task: &str, after: Option<u64>, limit: u64) -> Result<Vec<LogPiece>, AskError> {
        let (session, call, _) = self.find(task).await?;
        Ok(log::pieces(&*self.store, (session, call), (after, limit)).await?)
    }

    /// Waits until it has ended, at most so long: how it stands then.
    pub async fn wait(&self, task: &str, within: Duration) -> Result<(Task, CallAnswer), AskError> {
        if let Some(waiting) = self.waiting(task, within).await? {
            waiting.over().await.map_err(BatchError::from)?;
        }
        self.get(task).await
    }

    /// What is waited for, if it has not ended and somebody drives it.
    async fn waiting(&self, task: &str, within: Duration) -> Result<Option<Waiting>, AskError> {
        let (_, id, (call, _)) = self.find(task).await?;
        let Some(rt) = self.rt.as_ref().filter(|_| call.end().is_none()) else { return Ok(None) };
        let session = rt.session(&self.session).await?;
        let Some(batch) = session.find_away(rt, id.batch).await? else { return Ok(None) };
        let within_us = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let due_us = rt.clock.elapsed_us().saturating_add(within_us);
        let (ordinal, lane, wheel) = (id.ordinal, session.lane.clone(), rt.wheel.clone());
        Ok(Some(Waiting { batch, ordinal, lane, wheel, due_us }))
    }

    /// The last that it has said, at most so many pieces.
    async fn last_words(&self, task: &str, most: usize) -> Result<Vec<LogPiece>, AskError> {
        let (session, call, _) = self.find(task).await?;
        let (mut last, mut after) = (VecDeque::new(), None);
        loop {
            let page = log::pieces(&*self.store, (session, call), (after, u64::MAX)).await?;
            let Some(piece) = page.last() else { return Ok(last.into()) };
            after = Some(piece.no);
            last.extend(page);
            last.drain(..last.len().saturating_sub(most));
        }
    }

    async fn number(&self) -> Result<Option<SessionNo>, AskError> {
        let row = self.store.session(&self.session).await.map_err(BatchError::from)?;
        Ok(row.map(|row| row.no))
    }

    async fn find(&self, task: &str) -> Result<(SessionNo, CallId, Found), AskError> {
        let not_found = || not_found(task);
        let id = self.call(task)?;
        let session = self.number().await?.ok_or_else(not_found)?;
        let call = self.read(session, id).await?.ok_or_else(not_found)?;
        Ok((session, id, call))
    }

    fn call(&self, task: &str) -> Result<CallId, AskError> {
        let opened = Handle::parse(task).and_then(|handle| handle.open(self.store.secret(), Kind::Call));
        opened.map(CallId::unpacked).ok_or_else(|| not_found(task))
    }

    /// A call of this session that is a task, and the key of its batch.
    async fn read(&self, session: SessionNo, id: CallId) -> Result<Option<Found>, AskError> {
        let found = ask::find_id(&*self.store, id).await?;
        let own = found.filter(|(row, call, _)| row.no == session && call.task.is_some());
        Ok(own.map(|(_, call, key)| (call, key)))
    }

    /// What its owner knows of its open calls.
    fn live(&self) -> HashMap<CallId, OpenCall> {
        let live = self.rt.as_ref().map(|rt| waits::live(rt, |name| name == self.session));
        live.unwrap_or_default().into_iter().collect()
    }

    /// The schedules that are enabled, by id, after this one.
    async fn monitors(&self, session: SessionNo, after: Option<&str>) -> Result<Vec<Task>, AskError> {
        let enabled = schedules::enabled(&*self.store, session).await?;
        let later = enabled.into_iter().filter(|schedule| after.is_none_or(|after| *schedule.id > *after));
        Ok(later.map(monitor).collect())
    }

    fn shown(&self, (id, call): (CallId, &Call), batch: &str, live: Option<&OpenCall>) -> Task {
        let task = call.task.as_deref();
        let handle = |call: CallId| Handle::seal(self.store.secret(), Kind::Call, call.packed()).to_string();
        let live = live.filter(|_| call.end().is_none());
        Task {
            task: handle(id),
            kind: TaskKind::Tool,
            starter: task.and_then(|task| task.starter).map(handle),
            schedule: schedules::schedule_of(batch).map(str::to_string),
            trigger: triggers::trigger_of(batch).map(str::to_string),
            tool: call.opened.tool.to_string(),
            title: task.and_then(|task| task.title.as_deref()).unwrap_or(&call.opened.tool).to_string(),
            state: live.map_or(call.state.name(), |live| live.state),
            by: task.map_or(DetachedBy::Budget, |task| task.by).as_str(),
            wake: task.map_or(Wake::OnEnd, |task| task.wake).as_str(),
            attempts: call.attempts,
            opened_at: call.opened_at,
            ended_at: call.end().map(|end| answer::wall_time(end.at)),
            cancel_asked: call.cancel.is_some(),
            progress: live.and_then(|live| live.progress.clone()),
            children: children::opened(call.operations.as_deref()),
            status: live.and_then(|live| live.status.clone()),
        }
    }
}

/// A task that was found, and the key of its batch.
type Found = (Call, Arc<str>);

/// Whether a page may begin behind this because it is a schedule's id rather than a call's.
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
        state: "watching",
        by: DetachedBy::Scheduled.as_str(),
        wake: Wake::parse(&schedule.wake).unwrap_or(Wake::OnEnd).as_str(),
        attempts: 0,
        opened_at: schedule.created_at,
        ended_at: None,
        cancel_asked: false,
        progress: None,
        children: Vec::new(),
        schedule: None,
        trigger: None,
        status: schedule.next.map(|next| format!("next at {next}")),
    }
}

fn not_found(task: &str) -> AskError {
    AskError::NotFound { what: format!("task {task:?}") }
}
