//! The inbox of a session: notices for its agent. A notice is written in the change it is about, taken with a
//! lease, and removed once it is acknowledged.

mod fold;
mod post;
mod words;

pub use post::NewNotice;

pub(crate) use fold::{Unread, wrote};

use crate::api::answer::{self, CallAnswer};
use crate::api::clock::{Clock, SystemClock};
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::api::limits::EnforcedLimits;
use crate::api::view::CallState;
use crate::session::inner::{Inner, Runtime};
use crate::session::notices::{KeptNotice, NoticeKind, NoticeLease, NoticeWords, Urgency};
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::projection;
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store, StoredRecord};

/// A notice for the agent of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Notice {
    /// Its id, stable over deliveries.
    pub id: String,
    /// Its kind.
    pub kind: NoticeKind,
    /// Its state: `queued`, `delivered` until its lease ends, or `acknowledged`.
    pub state: &'static str,
    /// How it wants to reach the agent.
    pub urgency: Urgency,
    /// Higher ones are delivered first.
    pub priority: i8,
    /// The title of the task, or the tool of the call.
    pub title: String,
    /// The call it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The state of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<CallState>")]
    pub call_state: Option<&'static str>,
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
    /// A notice to post is invalid.
    #[error("{what}")]
    Invalid {
        /// The mistake, and what to do.
        what: String,
    },
    /// Too many notices wait for the agent.
    #[error("the inbox has {max} notices that nobody has acknowledged; post more when some are")]
    Full {
        /// The limit `notices_queued_max`.
        max: u64,
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
        Inbox::of(&self.0, session)
    }
}

impl Inbox {
    /// The inbox of a session in a store without an owner: read-only.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Inbox {
        Inbox { store, session: session.to_string(), rt: None }
    }

    /// The inbox of a session of this runtime.
    pub(crate) fn of(rt: &Arc<Inner>, session: &str) -> Inbox {
        Inbox { store: rt.store.clone(), session: session.to_string(), rt: Some(rt.clone()) }
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

    /// The acknowledged notices after this id, oldest first: they stay listed for the limit `notice_kept_ms`.
    pub async fn acknowledged(&self, after: Option<&str>, limit: u64) -> Result<Vec<Notice>, InboxError> {
        let row = self.store.session(&self.session).await.map_err(SessionError::from)?;
        let Some(row) = row else { return Ok(Vec::new()) };
        let limit = limit.min(self.limits().notices_page);
        let mut notices = Vec::new();
        for record in post::acknowledged(&*self.store, row.no, after, limit).await? {
            let found = self.with_content(post::id_of(&record.key), &kept(&record)?).await?;
            notices.extend(found.map(|notice| Notice { state: "acknowledged", ..notice }));
        }
        Ok(notices)
    }

    /// Takes the next notice, and waits for one at most `within`; `None`: none came. It stays reserved for `lease_ms`.
    pub async fn next(&self, lease_ms: u64, within: Duration) -> Result<Option<Notice>, InboxError> {
        Ok(self.take_within(1, lease_ms, within).await?.pop())
    }

    /// Takes the next notices like [`take`](Self::take), and waits at most `within` until there is one.
    pub async fn take_within(
        &self,
        most: u64,
        lease_ms: u64,
        within: Duration,
    ) -> Result<Vec<Notice>, InboxError> {
        let rt = self.rt.as_ref().ok_or(InboxError::NotOwned)?;
        let within_us = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let due_us = rt.clock.elapsed_us().saturating_add(within_us);
        // The first notice may open the session.
        let session = rt.session(&self.session).await?;
        let (inbox, wheel) = (session.slots.of::<Unread>(), rt.wheel.clone());
        loop {
            let arrived = inbox.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            // Whatever is on its way to the store is there then.
            session.lane.commit_rows(Vec::new()).await.map_err(SessionError::from)?;
            let taken = self.take(most, lease_ms).await?;
            let now_us = rt.clock.elapsed_us();
            if !taken.is_empty() || most == 0 || now_us >= due_us {
                return Ok(taken);
            }
            // What somebody else has taken may come back.
            let again_us = self.lease_end(&session).await?.unwrap_or(u64::MAX).min(due_us);
            tokio::select! {
                () = arrived => {}
                () = wheel.until(again_us) => {}
            }
        }
    }

    /// When the first lease of a delivered notice ends, by the clock that never jumps.
    async fn lease_end(&self, session: &Session) -> Result<Option<u64>, InboxError> {
        let (Some(rt), now) = (self.rt.as_deref(), self.now()) else { return Ok(None) };
        let page = self.page(session.lane.session(), None, self.limits().notices_page).await?;
        let mut first = None;
        for record in &page {
            let kept = kept(record)?;
            let until = kept.leased_us.filter(|_| kept.is_leased(Some(rt), now));
            let left_us = until.map(|until| Timestamp(until).since(now).max(1));
            first = match (first, left_us) {
                (Some(first), Some(left_us)) => Some(u64::min(first, left_us)),
                (first, left_us) => first.or(left_us),
            };
        }
        Ok(first.map(|left_us| rt.clock.elapsed_us().saturating_add(left_us)))
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

    /// Acknowledges a notice: it is delivered no more, and stays [listed](Self::acknowledged) for a while. Repeating it is fine.
    pub async fn acknowledge(&self, id: &str) -> Result<(), InboxError> {
        let session = self.open().await?.ok_or_else(|| not_found(id))?;
        let inbox = session.slots.of::<Unread>();
        let _alone = inbox.alone.lock().await;
        if let Some(record) = self.record(&session, id).await? {
            let mut rows = vec![Row::Remove { space: Space::Notice, key: id.to_string() }];
            rows.push(post::acknowledged_row(id, record.value, self.now()));
            rows.extend(
                post::outdated(&*self.store, session.lane.session(), self.now(), &self.limits()).await?,
            );
            session.lane.commit_rows(rows).await.map_err(SessionError::from)?;
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
        inbox.arrived.notify_waiters();
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
        let state = if kept.is_leased(self.rt.as_deref(), self.now()) { "delivered" } else { "queued" };
        let answer = match kept.call {
            Some(call) => match self.answer(CallId::unpacked(call)).await? {
                None => return Ok(None),
                found => found,
            },
            None => None,
        };
        Ok(Some(Notice { state, ..self.notice_of(key, kept, answer.as_ref()) }))
    }

    /// A notice as people elsewhere may read it: the secrets among the arguments of its call are masked. `None` if its call no longer
    /// exists.
    pub(crate) async fn for_people(
        &self,
        key: &str,
        kept: &KeptNotice,
    ) -> Result<Option<Notice>, SessionError> {
        let Some(call) = kept.call else { return Ok(Some(self.notice_of(key, kept, None))) };
        let found = match find_id(&*self.store, CallId::unpacked(call)).await {
            Err(SessionError::Expired { .. }) => None,
            found => found?,
        };
        let Some((_, mut call, batch_key)) = found else { return Ok(None) };
        let place = BatchPlace::new(self.session.as_str().into(), batch_key, None);
        let tool = self.rt.as_ref().and_then(|rt| rt.registry.known_for(&place, &call.opened));
        let unknown = SecretNames::default();
        let names = tool.as_ref().map_or(&unknown, |tool| &tool.secret_names);
        let redacted = RedactedArgs::of_text(&call.opened.args.text, names);
        if redacted.is_masked() {
            call.opened.args.text = redacted.value().to_string().into();
        }
        let (store, call) = (self.store.clone(), Arc::new(call));
        let id = CallId::unpacked(kept.call.unwrap_or_default());
        let answer = CallAnswer { id, store, call, recorded: true, conflict: None, parent: None };
        let notice = self.notice_of(key, kept, Some(&answer));
        Ok(Some(Notice { text: redacted.scrub(&notice.text).into_owned(), ..notice }))
    }

    /// The call of a notice; `None` if its record is gone.
    async fn answer(&self, id: CallId) -> Result<Option<CallAnswer>, InboxError> {
        let found = match find_id(&*self.store, id).await {
            Err(SessionError::Expired { .. }) => None,
            found => found?,
        };
        let store = self.store.clone();
        Ok(found.map(|(_, call, _)| {
            let call = Arc::new(call);
            CallAnswer { id, store, call, recorded: true, conflict: None, parent: None }
        }))
    }

    fn notice_of(&self, id: &str, kept: &KeptNotice, answer: Option<&CallAnswer>) -> Notice {
        let limits = self.limits();
        let handle = |call: u64| Handle::seal(self.store.secret(), HandleKind::Call, call).to_string();
        let calls: Vec<String> = kept.folded.iter().map(|call| handle(*call)).collect();
        let told = match (&kept.own, answer) {
            _ if !calls.is_empty() => words::text_of_many(kept.kind, &calls),
            (Some(own), _) => own.text.clone(),
            (None, Some(answer)) => words::text(kept, answer, &limits),
            (None, None) => String::new(),
        };
        let title = |answer: &CallAnswer| {
            let task = answer.call().task.as_ref();
            task.and_then(|task| task.title.as_deref()).unwrap_or(answer.tool()).to_string()
        };
        let task = answer.filter(|answer| answer.call().task.is_some());
        Notice {
            id: id.to_string(),
            kind: kept.kind,
            state: "queued",
            urgency: kept.urgency,
            priority: answer.map_or(kept.priority, |answer| answer.call().opened.priority),
            title: match &kept.own {
                Some(NoticeWords { title, .. }) => title.clone(),
                None => answer.map(title).unwrap_or_default(),
            },
            task: task.map(|answer| answer.handle().to_string()),
            task_state: task.map(CallAnswer::state),
            call: answer.map(|answer| answer.handle().to_string()),
            call_state: answer.map(CallAnswer::state),
            calls,
            created: Timestamp(kept.created_us),
            deliveries: kept.deliveries,
            text: projection::excerpt(&told, 1, limits.call()).into_owned(),
        }
    }
}

fn kept(record: &StoredRecord) -> Result<KeptNotice, SessionError> {
    let damaged = |error| SessionError::undecodable(format!("the notice {:?}", record.key), error);
    serde_json::from_slice(&record.value).map_err(damaged)
}

fn not_found(id: &str) -> InboxError {
    InboxError::NotFound { id: id.to_string() }
}
