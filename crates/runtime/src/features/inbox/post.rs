//! Notices that hosts and tools post, and acknowledged ones, which stay listed for a while.

use super::{Inbox, InboxError, Unread};
use crate::api::error::SessionError;
use crate::api::keys::fresh_key;
use crate::api::limits::Limits;
use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::features::standing::check_title;
use crate::session::cx::Cx;
use crate::session::inner::Inner;
use crate::session::notices::{self, KeptNotice, NoticeWords, Urgency};
use crate::session::owner::Session;
use crate::session::plugs::FollowUp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store, StoredRecord};

/// A notice to post. See [`Inbox::post`] and [`Cx::notify`](crate::Cx::notify).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNotice {
    /// Its title for people.
    pub title: String,
    /// The text for the model.
    pub text: String,
    /// How it wants to reach the agent.
    #[serde(default)]
    pub urgency: Urgency,
    /// Higher ones are delivered first; 0 by default.
    #[serde(default)]
    pub priority: i8,
    /// Notices with the same key are posted once; `None`: it is a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Inbox {
    /// Posts a notice of your own for the agent of the session, and returns its id. Durable when this returns.
    ///
    /// ```
    /// use windlass::tasks::{NewNotice, Urgency};
    /// # use windlass::{Config, Runtime, store::memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let notice = NewNotice {
    ///     title: "Deployment".into(),
    ///     text: "The deployment of door-service has begun.".into(),
    ///     urgency: Urgency::Interrupt,
    ///     ..NewNotice::default()
    /// };
    /// let id = runtime.inbox("demo").post(notice).await?;
    /// assert_eq!(runtime.inbox("demo").take(1, 60_000).await?[0].id, id);
    /// # Ok(()) }
    /// ```
    pub async fn post(&self, notice: NewNotice) -> Result<String, InboxError> {
        let rt = self.rt.as_ref().ok_or(InboxError::NotOwned)?;
        let session = rt.session(&self.session).await?;
        post(rt, &session, notice).await
    }
}

impl Cx {
    /// Posts a notice for the agent of the session, once however often the body runs. Durable when this returns.
    pub async fn notify(&self, name: &str, notice: NewNotice) -> Result<(), StepError> {
        check(&notice, self.limits()).map_err(|error| Misuse::unkept(name, error))?;
        let key = Some(self.step_key(name));
        self.step(name, notice, |notice| async move {
            let hold = self.hold.upgrade().ok_or_else(going)?;
            let notice = NewNotice { key, ..notice };
            let tasks = hold.rt.tasks.clone();
            // In a task of the runtime, like all work for a tool: work that has begun is finished.
            let posting = tasks.spawn(async move { post(&hold.rt, &hold.session, notice).await.map(drop) });
            match posting.await.map_err(|_| going())? {
                Ok(()) => Ok(()),
                Err(error @ InboxError::Full { .. }) => {
                    Err(ToolError::new(error.to_string()).did_not_happen())
                }
                Err(error) => Err(ToolError::internal(crate::api::error::chain(&error))),
            }
        })
        .await
    }
}

fn going() -> ToolError {
    ToolError::new("The runtime is going away; ask again.").safe_to_retry()
}

fn check(notice: &NewNotice, limits: &Limits) -> Result<(), InboxError> {
    let invalid = |what: String| InboxError::Invalid { what };
    check_title(Some(&notice.title), limits).map_err(invalid)?;
    let max = limits.notice_chars_max;
    if notice.text.trim().is_empty() || notice.text.chars().count() as u64 > max {
        return Err(invalid(format!("the text of a notice has 1 to {max} characters, and is not blank")));
    }
    let max = limits.batch_key_chars_max;
    let fits = |key: &String| !key.trim().is_empty() && key.chars().count() as u64 <= max;
    if !notice.key.as_ref().is_none_or(fits) {
        return Err(invalid(format!("the key of a notice has 1 to {max} characters; leave it out for none")));
    }
    Ok(())
}

async fn post(rt: &Arc<Inner>, session: &Arc<Session>, notice: NewNotice) -> Result<String, InboxError> {
    check(&notice, &rt.limits)?;
    session.check_takes(rt).await?;
    let inbox = session.slots.of::<Unread>();
    let _alone = inbox.alone.lock().await;
    let NewNotice { title, text, urgency, priority, key } = notice;
    let marked = key.map(|key| format!("notice.{}", &blake3::hash(key.as_bytes()).to_hex()[..32]));
    let (store, no) = (session.lane.store(), session.lane.session());
    if let Some(marked) = &marked {
        let posted = store.record(Space::Event.of(no), marked).await.map_err(SessionError::from)?;
        if let Some(posted) = posted {
            return Ok(String::from_utf8_lossy(&posted.value).into_owned());
        }
    }
    let max = rt.limits.notices_queued_max;
    if inbox.is_full(max) {
        return Err(InboxError::Full { max });
    }
    let (at, unique) = (rt.clock.now(), fresh_key()?);
    let id = notices::key(CallId::unpacked(0), priority, at, &unique[..16]);
    let kept = KeptNotice::posted(NoticeWords { title, text }, urgency, priority, at);
    let mut rows = vec![kept.row(&id)];
    rows.extend(marked.map(|key| {
        let value: Arc<[u8]> = id.clone().into_bytes().into();
        Row::Put { space: Space::Event, key, value }
    }));
    session.lane.commit_rows(rows).await.map_err(SessionError::from)?;
    rt.follow_up(session, FollowUp::Noticed(1));
    Ok(id)
}

/// The row of an acknowledged notice: oldest first.
pub(super) fn acknowledged_row(id: &str, value: Vec<u8>, at: Timestamp) -> Row {
    Row::Put { space: Space::Acknowledged, key: format!("{:016x}-{id}", at.0), value: value.into() }
}

/// The id of an acknowledged notice.
pub(super) fn id_of(key: &str) -> &str {
    key.split_once('-').map_or(key, |(_, id)| id)
}

/// The acknowledged notices after this id.
pub(super) async fn acknowledged(
    store: &dyn Store,
    session: SessionNo,
    after: Option<&str>,
    limit: u64,
) -> Result<Vec<StoredRecord>, SessionError> {
    let mut found: Vec<StoredRecord> = Vec::new();
    let (mut from, mut is_after) = (None::<String>, after.is_none());
    loop {
        let (space, prefix) = (Space::Acknowledged, "");
        let page = RecordPage { shelf: space.of(session), prefix, after: from.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        from = Some(last.key.clone());
        for record in records {
            if is_after {
                found.push(record);
            } else {
                is_after = after == Some(id_of(&record.key));
            }
            if found.len() as u64 >= limit {
                return Ok(found);
            }
        }
    }
}

/// The page size for reading acknowledged notices.
const PAGE: u64 = 256;

/// Removes acknowledged notices that were listed long enough: a few with each that is acknowledged, so none piles up.
pub(super) async fn outdated(
    store: &dyn Store,
    session: SessionNo,
    now: Timestamp,
    limits: &Limits,
) -> Result<Vec<Row>, SessionError> {
    let (space, prefix) = (Space::Acknowledged, "");
    let page = RecordPage { shelf: space.of(session), prefix, after: None, limit: OUTDATED_MAX };
    let records = store.records(page).await?;
    let kept_us = i64::try_from(limits.notice_kept_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
    let oldest = format!("{:016x}", now.0.saturating_sub(kept_us).max(0));
    let old = records.into_iter().map(|record| record.key).filter(|key| **key < *oldest);
    Ok(old.map(|key| Row::Remove { space: Space::Acknowledged, key }).collect())
}

/// Acknowledged notices that are removed with one that is acknowledged.
const OUTDATED_MAX: u64 = 4;
