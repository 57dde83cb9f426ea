//! A session's tasks, page by page.

use super::{Task, TaskFilter, Tasks, is_schedule};
use crate::api::error::SessionError;
use crate::mailbox::ask::AskError;
use crate::session::notices::{TaskWords, call_of, task_key};
use crate::session::principal::SessionStanding;
use windlass_core::handle::{Handle, HandleKind};
use windlass_store::{RecordPage, Space};

/// The page size for reading tasks.
const TASKS_PAGE: u64 = 100;
/// So many tasks are compared with the filter for one page: more than a page holds, so that only a filter makes a short one.
const EXAMINED_MAX: u64 = 500;

/// Tasks of a session that a filter takes.
#[derive(Clone, Debug, Default)]
pub struct TaskPage {
    /// The tasks: schedules, by id, then calls, newest first.
    pub tasks: Vec<Task>,
    /// The next page is after this id, whether or not this one is full. `None`: there is no more.
    pub next: Option<String>,
}

impl Tasks {
    /// Those of the tasks after this id that the filter takes, at most `limit`; and of all that do not fit it, a bounded number is
    /// read.
    pub async fn list_where(
        &self,
        filter: TaskFilter<'_>,
        after: Option<&str>,
        limit: u64,
    ) -> Result<TaskPage, AskError> {
        let Some(session) = self.number().await? else { return Ok(TaskPage::default()) };
        let call = after.map(|task| self.call(task)).transpose();
        let mut tasks = match &call {
            Ok(Some(_)) => Vec::new(),
            Ok(None) | Err(_) => self.monitors(session, after).await?,
        };
        // The page may begin after a schedule that no longer exists.
        let after =
            call.or_else(|error| if is_schedule(after) { Ok(None) } else { Err(error) })?.map(task_key);
        tasks.retain(|task| filter.takes(task));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let live = self.live();
        let owner = SessionStanding::of(&*self.store, &self.session).await?.principal();
        let (mut after, mut examined, mut last) = (after, 0, None);
        while tasks.len() <= limit {
            if examined >= EXAMINED_MAX {
                return Ok(TaskPage { tasks, next: last });
            }
            let wanted = (limit - tasks.len()) as u64;
            let most = TASKS_PAGE.min(wanted.saturating_add(1)).min(EXAMINED_MAX - examined);
            let (shelf, after_key) = (Space::Task.of(session), after.as_deref());
            let page = RecordPage { shelf, prefix: "", after: after_key, limit: most };
            let records = self.store.records(page).await.map_err(SessionError::from)?;
            let Some(end) = records.last().map(|record| record.key.clone()) else { break };
            examined += records.len() as u64;
            for record in records {
                let Some(call) = call_of(&record.key) else { continue };
                last = Some(Handle::seal(self.store.secret(), HandleKind::Call, call.packed()).to_string());
                let Some(found) = self.read(session, call).await? else { continue };
                let (live, words) = (live.get(&call), TaskWords::read(&record.value));
                let shown = self.shown(&found, live, words, owner.as_deref());
                tasks.extend(Some(shown).filter(|task| filter.takes(task)));
            }
            after = Some(end);
        }
        Ok(TaskPage::cut(tasks, limit))
    }
}

impl TaskPage {
    /// The first of these, and where the others begin.
    fn cut(mut tasks: Vec<Task>, limit: usize) -> TaskPage {
        let is_more = tasks.len() > limit;
        tasks.truncate(limit);
        let next = tasks.last().filter(|_| is_more).map(|task| task.task.clone());
        TaskPage { tasks, next }
    }
}
