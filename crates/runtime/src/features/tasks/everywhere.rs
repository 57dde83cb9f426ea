//! The tasks of several sessions in one list.

use super::{Task, TaskFilter, Tasks, not_found};
use crate::api::error::SessionError;
use crate::mailbox::ask::AskError;
use crate::read::waits;
use crate::session::inner::Runtime;
use crate::session::notices::{TaskWords, call_of, task_key};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;
use windlass_store::{RecordPage, SessionRow, Space};

/// So many sessions with tasks are read.
const SESSIONS_MAX: usize = 1_000;
/// The page size for finding them.
const SESSIONS_PAGE: u64 = 200;
/// So many tasks are compared with the filter for one page.
const EXAMINED_MAX: usize = 200;

/// A task and its session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionTask {
    /// The session's name.
    pub session: String,
    /// The task.
    #[serde(flatten)]
    pub task: Task,
}

/// A page of tasks.
#[derive(Clone, Debug, Default)]
pub struct TasksPage {
    /// The tasks, newest first. There may be fewer than wanted though `next` is there: the filter took no more of those examined.
    pub tasks: Vec<SessionTask>,
    /// The cursor of the next page. `None`: there is no more.
    pub next: Option<String>,
    /// Whether sessions were left out, since there are too many with tasks.
    pub left_out: bool,
}

/// The position of a task among all.
struct TaskPosition {
    key: String,
    session: usize,
    words: TaskWords,
}

impl Runtime {
    /// Tasks that are calls, of all sessions for which `is_wanted`, newest first; at most `limit` after the task `after`.
    pub async fn all_tasks(
        &self,
        is_wanted: impl Fn(&SessionRow) -> bool,
        filter: TaskFilter<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<TasksPage, AskError> {
        let store = &*self.0.store;
        let open = |task: &str| Handle::parse(task)?.open(store.secret(), HandleKind::Call);
        let after = after.map(|task| open(task).ok_or_else(|| not_found(task))).transpose()?;
        let after = after.map(|packed| task_key(CallId::unpacked(packed)));
        let (sessions, left_out) = self.sessions_with_tasks(&is_wanted).await?;
        let mut found: Vec<TaskPosition> = Vec::new();
        for (session, row) in sessions.iter().enumerate() {
            let (shelf, limit) = (Space::Task.of(row.no), EXAMINED_MAX as u64 + 1);
            let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit };
            let records = store.records(page).await.map_err(SessionError::from)?;
            found.extend(records.into_iter().map(|record| {
                let words = TaskWords::read(&record.value);
                TaskPosition { key: record.key, session, words }
            }));
        }
        found.sort_by(|left, right| left.key.cmp(&right.key));
        let is_more = found.len() > EXAMINED_MAX;
        found.truncate(EXAMINED_MAX);
        self.page_of_tasks(&sessions, found, filter, limit).await.map(|page| page.finished(is_more, left_out))
    }

    /// The sessions that have tasks; `true` if some were left out.
    async fn sessions_with_tasks(
        &self,
        is_wanted: &impl Fn(&SessionRow) -> bool,
    ) -> Result<(Vec<SessionRow>, bool), SessionError> {
        let (mut sessions, mut after, mut left_out) = (Vec::new(), None, false);
        loop {
            let rows = self.0.store.sessions_with(Space::Task, after, SESSIONS_PAGE).await?;
            let Some(last) = rows.last() else { return Ok((sessions, left_out)) };
            after = Some(last.no);
            sessions.extend(rows.into_iter().filter(|row| is_wanted(row)));
            // The newest sessions are the ones that somebody looks for.
            let excess = sessions.len().saturating_sub(SESSIONS_MAX);
            left_out |= excess > 0;
            sessions.drain(..excess);
        }
    }

    async fn page_of_tasks(
        &self,
        sessions: &[SessionRow],
        found: Vec<TaskPosition>,
        filter: TaskFilter<'_>,
        limit: usize,
    ) -> Result<ExaminedTasks, AskError> {
        let live: HashMap<CallId, _> = waits::live(&self.0, |_| true).into_iter().collect();
        let mut examined = ExaminedTasks::default();
        let mut found = found.into_iter();
        for TaskPosition { key, session, words } in found.by_ref() {
            if examined.tasks.len() >= limit {
                examined.is_cut = true;
                break;
            }
            let Some(row) = sessions.get(session) else { continue };
            let Some(call) = call_of(&key) else { continue };
            let tasks = Tasks::owned(&self.0, &row.name);
            let handle = Handle::seal(self.0.store.secret(), HandleKind::Call, call.packed());
            examined.last = Some(handle.to_string());
            let Some(read) = tasks.read(row.no, call).await? else { continue };
            let task = tasks.shown(&read, live.get(&call), words, row.principal.as_deref());
            if filter.takes(&task) {
                examined.tasks.push(SessionTask { session: row.name.clone(), task });
            }
        }
        Ok(examined)
    }
}

/// The tasks of a page, and where it ended.
#[derive(Default)]
struct ExaminedTasks {
    tasks: Vec<SessionTask>,
    /// The last one that was examined.
    last: Option<String>,
    /// Whether some found ones were not examined.
    is_cut: bool,
}

impl ExaminedTasks {
    fn finished(self, is_more: bool, left_out: bool) -> TasksPage {
        let next = self.last.filter(|_| is_more || self.is_cut);
        TasksPage { tasks: self.tasks, next, left_out }
    }
}
