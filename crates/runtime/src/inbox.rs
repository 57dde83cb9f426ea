//! The inbox of a session: what its agent is to be told. A notice is written in the change that it tells of, taken with a
//! lease, and gone once it is acknowledged.

use crate::answer::{self, CallAnswer};
use crate::ask;
use crate::clock::{Clock, SystemClock};
use crate::error::BatchError;
use crate::runtime::{Inner, Runtime};
use crate::session::Session;
use crate::tasks;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::call::Call;
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::limits::Limits;
use windlass_core::time::Timestamp;
use windlass_store::{Record, RecordPage, Row, Space, Store};

/// What the agent of a session is to be told.
#[derive(Clone, Debug, Serialize)]
pub struct Notice {
    /// Stays the same however often it is delivered.
    pub id: String,
    /// What it tells of.
    pub kind: NoticeKind,
    /// Where it stands: `queued`, or `delivered` until its lease is over.
    pub state: &'static str,
    /// Higher ones are taken first.
    pub priority: i8,
    /// What people call the task.
    pub title: String,
    /// The task, which is its call.
    pub task: String,
    /// The state of the task.
    pub task_state: &'static str,
    /// When it was written.
    #[serde(serialize_with = "answer::as_wall_time")]
    pub created: Timestamp,
    /// How often it was taken.
    pub deliveries: u32,
    /// What the model is told: the call with its arguments, and its outcome.
    pub text: String,
}

/// What a notice tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A task has ended.
    TaskEnded,
    /// A task said something.
    TaskMessage,
    /// A task asks a person something.
    TaskAsks,
}

/// Why something was not done with a notice.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InboxError {
    /// There is none of that id.
    #[error("there is no notice {id:?} in this inbox; `windlass inbox` lists those there are")]
    NotFound {
        /// The id.
        id: String,
    },
    /// A lease of no time, or one that is too long.
    #[error("a notice is taken for 1 ms to {max_ms} ms; say how long its reader needs")]
    Lease {
        /// The limit `notice_lease_ms_max`.
        max_ms: u64,
    },
    /// Only whoever owns the session changes its inbox.
    #[error("nobody owns the session, so nothing is taken from its inbox; start its owner first")]
    NotOwned,
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// A notice as it is kept. What it tells is in the journal of its call.
#[derive(Serialize, Deserialize)]
struct Kept {
    kind: NoticeKind,
    /// The call, as one number.
    call: u64,
    /// By what name the call did what it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    created_us: i64,
    /// Until when it is somebody's, in microseconds by the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leased_us: Option<i64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    deliveries: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Kept {
    fn is_leased(&self, now: Timestamp) -> bool {
        self.leased_us.is_some_and(|until| now.0 < until)
    }

    fn row(&self, key: &str) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Notice, key: key.to_string(), value }
    }
}

/// The row by which the inbox of a task's session tells of its end; written with that end.
pub(crate) fn task_ended((id, call): (CallId, &Call), at: Timestamp) -> Row {
    let kept = Kept {
        kind: NoticeKind::TaskEnded,
        call: id.packed(),
        name: None,
        created_us: at.0,
        leased_us: None,
        deliveries: 0,
    };
    // A call ends once, so no other has this key.
    kept.row(&key((id, call.opened.priority), at, "end"))
}

/// The row by which the inbox of a task's session tells of what it does under a name; written with that.
pub(crate) fn task_does(
    (id, priority): (CallId, i8),
    (kind, name): (NoticeKind, &str),
    at: Timestamp,
) -> Row {
    let (call, created_us) = (id.packed(), at.0);
    let kept = Kept { kind, call, name: Some(name.to_string()), created_us, leased_us: None, deliveries: 0 };
    // A name is used once in a call. It can be long.
    let name = &blake3::hash(name.as_bytes()).to_hex()[..16];
    kept.row(&key((id, priority), at, name))
}

/// In the order in which they are taken.
fn key((id, priority): (CallId, i8), at: Timestamp, what: &str) -> String {
    let rank = 127 - i16::from(priority);
    format!("{rank:03}-{:016x}-{:012x}-{what}", at.0, id.packed())
}

/// The inbox of one session. See [`Runtime::inbox`].
pub struct Inbox {
    store: Arc<dyn Store>,
    session: String,
    /// Whoever owns the session, or may.
    rt: Option<Arc<Inner>>,
}

impl Runtime {
    /// The inbox of the session of this name.
    pub fn inbox(&self, session: &str) -> Inbox {
        Inbox { store: self.0.store.clone(), session: session.to_string(), rt: Some(self.0.clone()) }
    }
}

impl Inbox {
    /// The inbox of a session of a store that nobody drives: it can be looked at.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Inbox {
        Inbox { store, session: session.to_string(), rt: None }
    }

    /// What is in it after the notice of this id, in the order in which it is taken; at most so much, or the limit
    /// `notices_page`. Nothing is taken.
    pub async fn list(&self, after: Option<&str>, limit: u64) -> Result<Vec<Notice>, InboxError> {
        let row = self.store.session(&self.session).await.map_err(BatchError::from)?;
        let Some(row) = row else { return Ok(Vec::new()) };
        let limit = limit.min(self.limits().notices_page);
        let mut notices = Vec::new();
        for record in self.page(row.no, after, limit).await? {
            notices.extend(self.notice(&record).await?);
        }
        Ok(notices)
    }

    /// Takes the next ones, at most so many: for `lease_ms` nobody else gets them. Those that are not acknowledged until then
    /// are taken again.
    pub async fn take(&self, most: u64, lease_ms: u64) -> Result<Vec<Notice>, InboxError> {
        let max_ms = self.limits().notice_lease_ms_max;
        if !(1..=max_ms).contains(&lease_ms) {
            return Err(InboxError::Lease { max_ms });
        }
        let Some(session) = self.open().await? else { return Ok(Vec::new()) };
        let _alone = session.inbox.lock().await;
        let (no, most) = (session.lane.session(), most.min(self.limits().notices_page));
        let now = self.now();
        let leased_us = Some(now.0.saturating_add_unsigned(lease_ms.saturating_mul(1_000)));
        let (mut taken, mut rows, mut after) = (Vec::new(), Vec::new(), None::<String>);
        while (taken.len() as u64) < most {
            let page = self.page(no, after.as_deref(), self.limits().notices_page).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for record in page {
                let kept = kept(&record)?;
                if kept.is_leased(now) || taken.len() as u64 >= most {
                    continue;
                }
                let kept = Kept { leased_us, deliveries: kept.deliveries.saturating_add(1), ..kept };
                let row = kept.row(&record.key);
                if let Some(notice) = self.told(&record.key, &kept).await? {
                    taken.push(notice);
                    rows.push(row);
                }
            }
        }
        if !rows.is_empty() {
            session.lane.commit_rows(rows).await.map_err(BatchError::from)?;
        }
        Ok(taken)
    }

    /// A notice was heard: it is gone. One that is gone already is fine.
    pub async fn acknowledge(&self, id: &str) -> Result<(), InboxError> {
        let session = self.open().await?.ok_or_else(|| not_found(id))?;
        let _alone = session.inbox.lock().await;
        if self.record(&session, id).await?.is_some() {
            let row = Row::Remove { space: Space::Notice, key: id.to_string() };
            session.lane.commit_rows(vec![row]).await.map_err(BatchError::from)?;
        }
        Ok(())
    }

    /// A notice was not heard: whoever takes next gets it.
    pub async fn requeue(&self, id: &str) -> Result<(), InboxError> {
        let session = self.open().await?.ok_or_else(|| not_found(id))?;
        let _alone = session.inbox.lock().await;
        let record = self.record(&session, id).await?.ok_or_else(|| not_found(id))?;
        let row = Kept { leased_us: None, ..kept(&record)? }.row(id);
        session.lane.commit_rows(vec![row]).await.map_err(BatchError::from)?;
        Ok(())
    }

    /// The session, owned here; `None` if nobody has used it.
    async fn open(&self) -> Result<Option<Arc<Session>>, InboxError> {
        match self.store.session(&self.session).await.map_err(BatchError::from)? {
            Some(_) => {
                let rt = self.rt.as_ref().ok_or(InboxError::NotOwned)?;
                Ok(Some(rt.session(&self.session).await?))
            }
            None => Ok(None),
        }
    }

    fn limits(&self) -> Arc<Limits> {
        self.rt.as_ref().map_or_else(Arc::default, |rt| rt.limits.clone())
    }

    fn now(&self) -> Timestamp {
        self.rt.as_ref().map_or_else(|| SystemClock::default().now(), |rt| rt.clock.now())
    }

    async fn page(
        &self,
        session: SessionNo,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Record>, InboxError> {
        let page = RecordPage { session, space: Space::Notice, prefix: "", after, limit };
        Ok(self.store.records(page).await.map_err(BatchError::from)?)
    }

    async fn record(&self, session: &Session, id: &str) -> Result<Option<Record>, InboxError> {
        let found = self.store.record(session.lane.session(), Space::Notice, id).await;
        Ok(found.map_err(BatchError::from)?)
    }

    async fn notice(&self, record: &Record) -> Result<Option<Notice>, InboxError> {
        self.told(&record.key, &kept(record)?).await
    }

    /// A notice with what it tells; `None` if its call is no more.
    async fn told(&self, key: &str, kept: &Kept) -> Result<Option<Notice>, InboxError> {
        let id = CallId::unpacked(kept.call);
        let found = ask::find_id(&*self.store, id).await?;
        let Some((_, call, _)) = found else { return Ok(None) };
        let (call, parent) = (Arc::new(call), None);
        let store = self.store.clone();
        let answer = CallAnswer { id, store, call, recorded: true, conflict: None, parent };
        Ok(Some(notice(key, kept, &answer, self.now())))
    }
}

fn notice(key: &str, kept: &Kept, answer: &CallAnswer, now: Timestamp) -> Notice {
    let call = answer.call();
    let task = Handle::seal(answer.store.secret(), Kind::Call, kept.call).to_string();
    let title = call.task.as_ref().and_then(|task| task.title.as_deref()).unwrap_or(answer.tool());
    let text = text(kept, &task, answer);
    Notice {
        id: key.to_string(),
        kind: kept.kind,
        state: if kept.is_leased(now) { "delivered" } else { "queued" },
        priority: call.opened.priority,
        title: title.to_string(),
        task,
        task_state: answer.state(),
        created: Timestamp(kept.created_us),
        deliveries: kept.deliveries,
        text,
    }
}

/// What the model is told.
fn text(kept: &Kept, task: &str, answer: &CallAnswer) -> String {
    let (tool, call) = (answer.tool(), answer.call());
    let done = kept.name.as_deref().zip(call.operations.as_deref());
    match (kept.kind, done) {
        (NoticeKind::TaskMessage, Some((name, operations))) => {
            let said =
                operations.said().find(|(said, _)| *said == name).map(|(_, message)| tasks::text_of(message));
            let said = said.unwrap_or_default();
            format!("The task {task}, a call of {tool:?}, says: {said}")
        }
        (NoticeKind::TaskAsks, Some((name, operations))) => {
            let asked = operations.questions().find(|(asked, _)| ***asked == *name);
            let question = asked.map_or("", |(_, question)| &question.text);
            format!("The task {task}, a call of {tool:?}, asks: {question}")
        }
        (NoticeKind::TaskEnded | NoticeKind::TaskMessage | NoticeKind::TaskAsks, _) => format!(
            "The task {task} has ended: {}.\nIt was the call of {tool:?} with {}\n{}",
            answer.state(),
            call.opened.args.text,
            answer.model_text()
        ),
    }
}

fn kept(record: &Record) -> Result<Kept, InboxError> {
    serde_json::from_slice(&record.value).map_err(|error| {
        let what = format!("the notice {:?} cannot be read: {error}", record.key);
        InboxError::Batch(BatchError::Unreadable { what })
    })
}

fn not_found(id: &str) -> InboxError {
    InboxError::NotFound { id: id.to_string() }
}
