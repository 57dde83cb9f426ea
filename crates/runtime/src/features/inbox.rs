//! The inbox of a session: notices for its agent. A notice is written in the change it is about, taken with a
//! lease, and removed once it is acknowledged.

mod fold;

pub(crate) use fold::{Unread, wrote};

use crate::api::answer::{self, CallAnswer};
use crate::api::clock::{Clock, SystemClock};
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::api::limits::EnforcedLimits;
use crate::api::view::CallState;
use crate::features::tasks;
use crate::session::inner::{Inner, Runtime};
use crate::session::notices::{KeptNotice, NoticeKind, NoticeLease};
use crate::session::owner::Session;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::projection;
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store, StoredRecord};

/// A notice for the agent of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Notice {
    /// Its id, stable over deliveries.
    pub id: String,
    /// Its kind.
    pub kind: NoticeKind,
    /// Its state: `queued`, or `delivered` until its lease ends.
    pub state: &'static str,
    /// Higher ones are delivered first.
    pub priority: i8,
    /// The title of the task, or the tool of the call.
    pub title: String,
    /// The call it is about.
    pub call: String,
    /// The state of that call.
    #[schemars(with = "CallState")]
    pub call_state: &'static str,
    /// The task, if the call is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The state of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CallState>")]
    pub task_state: Option<&'static str>,
    /// All calls it is about, where it combines several notices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub calls: Vec<String>,
    /// When it was written.
    #[serde(serialize_with = "answer::as_wall_time")]
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// How often it was delivered.
    pub deliveries: u32,
    /// The text for the model: the call with its arguments, and its outcome.
    pub text: String,
}

/// A failed operation on an inbox.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// There is none of that id.
    #[error("there is no notice {id:?} in this inbox; `windlass inbox` lists all notices")]
    NotFound {
        /// The id.
        id: String,
    },
    /// A lease of zero, or one that is too long.
    #[error("a notice is taken for 1 ms to {max_ms} ms; choose a lease in that range")]
    Lease {
        /// The limit `notice_lease_ms_max`.
        max_ms: u64,
    },
    /// Only the owner of the session changes its inbox.
    #[error("the session has no owner, so its inbox cannot change; start its owner first")]
    NotOwned,
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The inbox of one session. See [`Runtime::inbox`].
pub struct Inbox {
    store: Arc<dyn Store>,
    session: String,
    /// The runtime that owns the session, or may.
    rt: Option<Arc<Inner>>,
}

impl Runtime {
    /// The inbox of the session of this name.
    pub fn inbox(&self, session: &str) -> Inbox {
        Inbox { store: self.0.store.clone(), session: session.to_string(), rt: Some(self.0.clone()) }
    }
}

impl Inbox {
    /// The inbox of a session in a store without an owner: read-only.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Inbox {
        Inbox { store, session: session.to_string(), rt: None }
    }

    /// The notices after this id, in order of delivery; at most `limit`, or the limit `notices_page`. Nothing
    /// is taken.
    pub async fn list(&self, after: Option<&str>, limit: u64) -> Result<Vec<Notice>, InboxError> {
        let row = self.store.session(&self.session).await.map_err(SessionError::from)?;
        let Some(row) = row else { return Ok(Vec::new()) };
        let limit = limit.min(self.limits().notices_page);
        let mut notices = Vec::new();
        for record in self.page(row.no, after, limit).await? {
            notices.extend(self.notice(&record).await?);
        }
        Ok(notices)
    }

    /// Takes the next notices, at most `most`: they stay reserved for `lease_ms`. Notices that are not
    /// acknowledged by then are delivered again.
    pub async fn take(&self, most: u64, lease_ms: u64) -> Result<Vec<Notice>, InboxError> {
        let max_ms = self.limits().notice_lease_ms_max;
        if !(1..=max_ms).contains(&lease_ms) {
            return Err(InboxError::Lease { max_ms });
        }
        let Some(session) = self.open().await? else { return Ok(Vec::new()) };
        let inbox = session.slots.of::<Unread>();
        let _alone = inbox.alone.lock().await;
        let (no, most) = (session.lane.session(), most.min(self.limits().notices_page));
        let now = self.now();
        let length_us = lease_ms.saturating_mul(1_000);
        let leased_us = Some(now.0.saturating_add_unsigned(length_us));
        let rt = self.rt.as_deref();
        let lease = rt.map(|rt| NoticeLease { length_us, life: rt.life, at_us: rt.clock.elapsed_us() });
        let (mut taken, mut rows, mut after) = (Vec::new(), Vec::new(), None::<String>);
        while (taken.len() as u64) < most {
            let page = self.page(no, after.as_deref(), self.limits().notices_page).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for record in page {
                let kept = kept(&record)?;
                if kept.is_leased(rt, now) || taken.len() as u64 >= most {
                    continue;
                }
                let kept =
                    KeptNotice { leased_us, lease, deliveries: kept.deliveries.saturating_add(1), ..kept };
                let row = kept.row(&record.key);
                if let Some(notice) = self.with_content(&record.key, &kept).await? {
                    taken.push(notice);
                    rows.push(row);
                }
            }
        }
        if !rows.is_empty() {
            session.lane.commit_rows(rows).await.map_err(SessionError::from)?;
        }
        Ok(taken)
    }

    /// Acknowledges a notice and removes it. A removed one is fine.
    pub async fn acknowledge(&self, id: &str) -> Result<(), InboxError> {
        let session = self.open().await?.ok_or_else(|| not_found(id))?;
        let inbox = session.slots.of::<Unread>();
        let _alone = inbox.alone.lock().await;
        if self.record(&session, id).await?.is_some() {
            let row = Row::Remove { space: Space::Notice, key: id.to_string() };
            session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
            session.slots.of::<Unread>().read(1);
        }
        Ok(())
    }

    /// Returns a notice to the inbox, for the next reader.
    pub async fn requeue(&self, id: &str) -> Result<(), InboxError> {
        let session = self.open().await?.ok_or_else(|| not_found(id))?;
        let inbox = session.slots.of::<Unread>();
        let _alone = inbox.alone.lock().await;
        let record = self.record(&session, id).await?.ok_or_else(|| not_found(id))?;
        let row = KeptNotice { leased_us: None, lease: None, ..kept(&record)? }.row(id);
        session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
        Ok(())
    }

    /// The session, owned here; `None` if it was never used.
    async fn open(&self) -> Result<Option<Arc<Session>>, InboxError> {
        match self.store.session(&self.session).await.map_err(SessionError::from)? {
            Some(_) => {
                let rt = self.rt.as_ref().ok_or(InboxError::NotOwned)?;
                Ok(Some(rt.session(&self.session).await?))
            }
            None => Ok(None),
        }
    }

    fn limits(&self) -> Arc<EnforcedLimits> {
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
    ) -> Result<Vec<StoredRecord>, InboxError> {
        let page = RecordPage { shelf: Space::Notice.of(session), prefix: "", after, limit };
        Ok(self.store.records(page).await.map_err(SessionError::from)?)
    }

    async fn record(&self, session: &Session, id: &str) -> Result<Option<StoredRecord>, InboxError> {
        let found = self.store.record(Space::Notice.of(session.lane.session()), id).await;
        Ok(found.map_err(SessionError::from)?)
    }

    async fn notice(&self, record: &StoredRecord) -> Result<Option<Notice>, InboxError> {
        self.with_content(&record.key, &kept(record)?).await
    }

    /// A notice with its content; `None` if its call no longer exists.
    async fn with_content(&self, key: &str, kept: &KeptNotice) -> Result<Option<Notice>, InboxError> {
        let id = CallId::unpacked(kept.call);
        let found = find_id(&*self.store, id).await?;
        let Some((_, call, _)) = found else { return Ok(None) };
        let (call, parent) = (Arc::new(call), None);
        let store = self.store.clone();
        let answer = CallAnswer { id, store, call, recorded: true, conflict: None, parent };
        let is_leased = kept.is_leased(self.rt.as_deref(), self.now());
        Ok(Some(notice(key, kept, &answer, is_leased, &self.limits())))
    }
}

fn notice(
    id: &str,
    kept: &KeptNotice,
    answer: &CallAnswer,
    is_leased: bool,
    limits: &EnforcedLimits,
) -> Notice {
    let call = answer.call();
    let handle = |call: u64| Handle::seal(answer.store.secret(), HandleKind::Call, call).to_string();
    let title = call.task.as_ref().and_then(|task| task.title.as_deref()).unwrap_or(answer.tool());
    let calls: Vec<String> = kept.folded.iter().map(|call| handle(*call)).collect();
    let handle = handle(kept.call);
    let told = if calls.is_empty() { text(kept, answer, limits) } else { text_of_many(kept.kind, &calls) };
    let is_task = call.task.is_some();
    Notice {
        id: id.to_string(),
        kind: kept.kind,
        state: if is_leased { "delivered" } else { "queued" },
        priority: call.opened.priority,
        title: title.to_string(),
        task: is_task.then(|| handle.clone()),
        task_state: is_task.then(|| answer.state()),
        call: handle,
        call_state: answer.state(),
        calls,
        created: Timestamp(kept.created_us),
        deliveries: kept.deliveries,
        text: projection::excerpt(&told, 1, limits.call()).into_owned(),
    }
}

/// The fraction of a notice's text that arguments may take.
const ARGUMENTS_SHARE: usize = 4;

/// The text for the model.
fn text(kept: &KeptNotice, answer: &CallAnswer, limits: &EnforcedLimits) -> String {
    let (task, tool, call) = (answer.handle(), answer.tool(), answer.call());
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
        (NoticeKind::TaskWaits, Some((name, operations))) if operations.has_key(name) == Ok(true) => {
            format!("The task {task}, a call of {tool:?}, waits for an answer from outside to {name:?}.")
        }
        (NoticeKind::TaskWaits, _) => {
            let what = kept.name.as_deref().unwrap_or_default();
            format!("The task {task}, a call of {tool:?}, waits until its session is connected to {what:?}.")
        }
        (NoticeKind::CallEnded, _) => format!(
            "The call {:?} has ended, which was answered before it had: {}.\nIt was the call {task} of {tool:?} with \
             {}\n{}",
            answer.id(),
            answer.state(),
            projection::excerpt(&call.opened.args.text, ARGUMENTS_SHARE, limits.call()),
            answer.model_text()
        ),
        (NoticeKind::TaskEnded | NoticeKind::TaskMessage | NoticeKind::TaskAsks, _) => format!(
            "The task {task} has ended: {}.\nIt was the call of {tool:?} with {}\n{}",
            answer.state(),
            projection::excerpt(&call.opened.args.text, ARGUMENTS_SHARE, limits.call()),
            answer.model_text()
        ),
    }
}

/// The text for the model, where one notice combines many.
fn text_of_many(kind: NoticeKind, calls: &[String]) -> String {
    let what = match kind {
        NoticeKind::TaskEnded => "tasks have ended",
        NoticeKind::CallEnded => "calls have ended, which were answered before they had",
        NoticeKind::TaskMessage => "messages of tasks were not read",
        NoticeKind::TaskAsks => "questions of tasks were not read",
        NoticeKind::TaskWaits => "waits of tasks were not read",
    };
    format!(
        "{} {what}. Nobody read of them in time, so they are listed only; look each up by its handle:\n{}",
        calls.len(),
        calls.join("\n")
    )
}

fn kept(record: &StoredRecord) -> Result<KeptNotice, SessionError> {
    let damaged = |error| SessionError::undecodable(format!("the notice {:?}", record.key), error);
    serde_json::from_slice(&record.value).map_err(damaged)
}

fn not_found(id: &str) -> InboxError {
    InboxError::NotFound { id: id.to_string() }
}
