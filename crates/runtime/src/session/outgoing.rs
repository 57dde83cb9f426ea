//! Messages for webhooks: rows written in the change they are about. A feature delivers and removes them.
//!
//! Every change passes through [`Lane::send`](super::lane::Lane::send), so that is where a notice gets its rows: no code that writes a
//! notice can forget them. Waits for a person have no record of their own, so whoever records such a wait adds [`wait_rows`].

use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::lane::Lane;
use crate::session::notices::{KeptNotice, NoticeKind, NoticeWords};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;
use windlass_core::handle::Secret;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{RECORD_VALUE_BYTES_MAX, Row, Space};

/// The kind of a message to a webhook: a kind of notice, or of a wait for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WebhookKind {
    /// A task has ended.
    TaskEnded,
    /// A call has ended whose caller was answered before.
    CallEnded,
    /// A task has sent a message.
    TaskMessage,
    /// A task asks a person a question.
    TaskAsks,
    /// A task waits for an external answer, or for a connection.
    TaskWaits,
    /// An event of a kind that wakes the agent.
    Event,
    /// A notice that the host or a tool posted.
    Posted,
    /// A call waits for an approval.
    Approval,
    /// A call waits for the answer to a question.
    Question,
    /// A call waits until its session is connected to a provider.
    Connection,
    /// A call may have taken effect, and a person must find out.
    Unknown,
    /// A call waits because its tool has changed.
    ToolChanged,
}

impl WebhookKind {
    /// All kinds.
    pub const ALL: [WebhookKind; 12] = [
        WebhookKind::TaskEnded,
        WebhookKind::CallEnded,
        WebhookKind::TaskMessage,
        WebhookKind::TaskAsks,
        WebhookKind::TaskWaits,
        WebhookKind::Event,
        WebhookKind::Posted,
        WebhookKind::Approval,
        WebhookKind::Question,
        WebhookKind::Connection,
        WebhookKind::Unknown,
        WebhookKind::ToolChanged,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            WebhookKind::TaskEnded => "task_ended",
            WebhookKind::CallEnded => "call_ended",
            WebhookKind::TaskMessage => "task_message",
            WebhookKind::TaskAsks => "task_asks",
            WebhookKind::TaskWaits => "task_waits",
            WebhookKind::Event => "event",
            WebhookKind::Posted => "posted",
            WebhookKind::Approval => "approval",
            WebhookKind::Question => "question",
            WebhookKind::Connection => "connection",
            WebhookKind::Unknown => "unknown",
            WebhookKind::ToolChanged => "tool_changed",
        }
    }
}

impl From<NoticeKind> for WebhookKind {
    fn from(kind: NoticeKind) -> WebhookKind {
        match kind {
            NoticeKind::TaskEnded => WebhookKind::TaskEnded,
            NoticeKind::CallEnded => WebhookKind::CallEnded,
            NoticeKind::TaskMessage => WebhookKind::TaskMessage,
            NoticeKind::TaskAsks => WebhookKind::TaskAsks,
            NoticeKind::TaskWaits => WebhookKind::TaskWaits,
            NoticeKind::Event => WebhookKind::Event,
            NoticeKind::Posted => WebhookKind::Posted,
        }
    }
}

/// The part of a webhook that decides which messages it gets. A disabled webhook has none.
pub(crate) struct Subscription {
    pub(crate) id: Arc<str>,
    /// The principals whose sessions it hears of; empty: all.
    pub(crate) principals: Vec<String>,
    /// The only session it hears of, if there is one.
    pub(crate) session: Option<String>,
    /// The kinds it gets; empty: all.
    pub(crate) kinds: Vec<WebhookKind>,
}

impl Subscription {
    fn wants(&self, kind: WebhookKind, outbox: &Outbox) -> bool {
        let principal = outbox.principal.as_deref();
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.session.as_deref().is_none_or(|session| session == &*outbox.session)
            && (self.principals.is_empty()
                || self.principals.iter().any(|named| Some(named.as_str()) == principal))
    }
}

/// The webhooks that a runtime knows, shared by all its lanes.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Whether there is a subscription: asked for every change.
    is_any: AtomicBool,
    is_loaded: AtomicBool,
    /// Whether somebody here delivers messages.
    has_courier: AtomicBool,
    is_over: AtomicBool,
    known: OrderedMutex<KnownSubscriptions, { LockRank::Outgoing as u8 }>,
    /// Notified when the courier has something to do.
    pub(crate) arrived: Notify,
}

#[derive(Default)]
struct KnownSubscriptions {
    all: Arc<[Subscription]>,
    /// The sessions with rows that the courier has not looked at.
    due: BTreeSet<Arc<str>>,
    /// Messages for which there was no room, by webhook.
    dropped: BTreeMap<Arc<str>, u64>,
}

impl Outgoing {
    /// Sets the subscriptions.
    pub(crate) fn set(&self, all: Vec<Subscription>) {
        let is_any = !all.is_empty();
        self.known.lock().all = all.into();
        self.is_any.store(is_any, Ordering::SeqCst);
        self.is_loaded.store(true, Ordering::SeqCst);
    }

    /// Whether the subscriptions were read.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::SeqCst)
    }

    /// Whether there is a subscription.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Somebody delivers messages from now on.
    pub(crate) fn has_courier(&self) {
        self.has_courier.store(true, Ordering::SeqCst);
    }

    /// Has the rows of a session looked at.
    pub(crate) fn look_at(&self, session: &Arc<str>) {
        if self.has_courier.load(Ordering::SeqCst) {
            self.known.lock().due.insert(session.clone());
            self.arrived.notify_one();
        }
    }

    /// The sessions whose rows are to be looked at.
    pub(crate) fn take_due(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.known.lock().due)
    }

    /// The messages dropped since the last time, by webhook.
    pub(crate) fn take_dropped(&self) -> BTreeMap<Arc<str>, u64> {
        std::mem::take(&mut self.known.lock().dropped)
    }

    /// The runtime is going away.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    /// Whether the runtime is going away.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// The messages of one session to webhooks.
pub(crate) struct Outbox {
    shared: Arc<Outgoing>,
    session: Arc<str>,
    principal: Option<Arc<str>>,
    /// Messages that are not delivered yet, as far as this process counted them.
    queued: AtomicU64,
    queued_max: u64,
}

impl Outbox {
    pub(crate) fn new(
        shared: &Arc<Outgoing>,
        session: &str,
        principal: Option<Arc<str>>,
        queued_max: u64,
    ) -> Outbox {
        let (shared, session) = (shared.clone(), session.into());
        Outbox { shared, session, principal, queued: AtomicU64::new(0), queued_max }
    }

    /// Whether any webhook may want to hear of a change.
    pub(crate) fn is_needed(&self) -> bool {
        self.shared.is_any()
    }

    /// Sets the number of messages that are not delivered yet.
    pub(crate) fn count(&self, queued: u64) {
        self.queued.store(queued, Ordering::SeqCst);
    }

    /// Adds the messages about new notices to a change that is about to be sent. `true`: the courier must [look](Self::look) at them
    /// once it is sent.
    #[cold]
    pub(super) fn add(&self, secret: &Secret, no: SessionNo, rows: &mut Vec<Row>) -> bool {
        let mut messages = Vec::new();
        for row in rows.iter() {
            if let Row::Put { space: Space::Notice, key, value } = row {
                messages.extend(self.about_notice(secret, no, key, value));
            }
        }
        rows.append(&mut messages);
        // Counted here, not where they are made: rows that a replay makes again are not sent.
        let is_put = |row: &&Row| matches!(row, Row::Put { space: Space::Outgoing, .. });
        let is_removed = |row: &&Row| matches!(row, Row::Remove { space: Space::Outgoing, .. });
        let put = rows.iter().filter(is_put).count() as u64;
        let removed = rows.iter().filter(is_removed).count() as u64;
        let change = |queued: u64| Some((queued + put).saturating_sub(removed));
        let _always_set = self.queued.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
        put > 0
    }

    /// Has the courier look at the messages that were sent.
    #[cold]
    pub(super) fn look(&self) {
        self.shared.look_at(&self.session);
    }

    /// The rows about a notice; none if it was written before, and is only taken, returned or folded now.
    fn about_notice(&self, secret: &Secret, no: SessionNo, key: &str, value: &[u8]) -> Vec<Row> {
        let Ok(kept) = serde_json::from_slice::<KeptNotice>(value) else { return Vec::new() };
        if kept.deliveries > 0 || !kept.folded.is_empty() {
            return Vec::new();
        }
        let (kind, created) = (kept.kind.into(), Timestamp(kept.created_us));
        let notice = Some(NoticeCopy { id: key.to_string(), kept });
        let post = OutgoingPost { kind, created_us: created.0, notice, wait: None, tries: 0 };
        self.rows(&event_id(secret, no, key), post)
    }

    /// One row for each webhook that wants the message, as far as there is room.
    fn rows(&self, event: &str, post: OutgoingPost) -> Vec<Row> {
        let all = self.shared.known.lock().all.clone();
        let kind = post.kind;
        let mut wanted = all.iter().filter(|hook| hook.wants(kind, self)).peekable();
        if wanted.peek().is_none() {
            return Vec::new();
        }
        let at = Timestamp(post.created_us);
        let (value, mut rows) = (post.encoded(), Vec::new());
        for hook in wanted {
            if self.queued.load(Ordering::SeqCst) >= self.queued_max {
                *self.shared.known.lock().dropped.entry(hook.id.clone()).or_default() += 1;
                self.shared.arrived.notify_one();
                continue;
            }
            let key = post_key(&hook.id, at, event);
            rows.push(Row::Put { space: Space::Outgoing, key, value: value.clone() });
        }
        rows
    }
}

/// A call begins to wait for a person.
pub(crate) struct PersonWait<'a> {
    pub(crate) kind: WebhookKind,
    pub(crate) call: CallId,
    pub(crate) tool: &'a str,
    /// The name that tells its waits apart: of a question, a provider, an approval.
    pub(crate) name: &'a str,
    /// The text for the person: the question, the address where to connect, the reason.
    pub(crate) what: &'a str,
    /// The end of the wait, if it has one.
    pub(crate) until: Option<Timestamp>,
    pub(crate) at: Timestamp,
}

/// The rows by which webhooks hear of a wait, to be written in the change that records it. None if there is no webhook.
pub(crate) fn wait_rows(lane: &Lane, wait: &PersonWait<'_>) -> Vec<Row> {
    let outbox = lane.outbox();
    if !outbox.is_needed() {
        return Vec::new();
    }
    let PersonWait { kind, call, tool, name, what, until, at } = *wait;
    let subject = format!("{}/{:x}/{name}/{:x}", kind.as_str(), call.packed(), at.0);
    let wait = WaitCopy {
        call: call.packed(),
        tool: tool.to_string(),
        name: name.to_string(),
        what: what.to_string(),
        until_us: until.map(|until| until.0),
    };
    let post = OutgoingPost { kind, created_us: at.0, notice: None, wait: Some(wait), tries: 0 };
    outbox.rows(&event_id(lane.store().secret(), lane.session(), &subject), post)
}

/// A stored message. Its body is made when it is sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct OutgoingPost {
    pub(crate) kind: WebhookKind,
    pub(crate) created_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notice: Option<NoticeCopy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<WaitCopy>,
    /// Failed deliveries.
    #[serde(default)]
    pub(crate) tries: u32,
}

/// A notice as it was written: the agent may acknowledge it before it is sent.
#[derive(Serialize, Deserialize)]
pub(crate) struct NoticeCopy {
    pub(crate) id: String,
    pub(crate) kept: KeptNotice,
}

/// A wait as it began.
#[derive(Serialize, Deserialize)]
pub(crate) struct WaitCopy {
    pub(crate) call: u64,
    pub(crate) tool: String,
    pub(crate) name: String,
    pub(crate) what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until_us: Option<i64>,
}

/// The characters that are left of a text which is too long for a row: no text may keep its change from being written.
const LONG_TEXT_CHARS: usize = 2_000;

impl OutgoingPost {
    /// The value of its row.
    pub(crate) fn encoded(mut self) -> Arc<[u8]> {
        let value = serde_json::to_vec(&self).unwrap_or_default();
        if value.len() <= RECORD_VALUE_BYTES_MAX {
            return value.into();
        }
        let cut = |text: &mut String| *text = text.chars().take(LONG_TEXT_CHARS).chain(['…']).collect();
        if let Some(NoticeWords { title, text }) =
            self.notice.as_mut().and_then(|notice| notice.kept.own.as_mut())
        {
            cut(title);
            cut(text);
        }
        if let Some(name) = self.notice.as_mut().and_then(|notice| notice.kept.name.as_mut()) {
            cut(name);
        }
        if let Some(WaitCopy { what, name, tool, .. }) = &mut self.wait {
            cut(what);
            cut(name);
            cut(tool);
        }
        serde_json::to_vec(&self).unwrap_or_default().into()
    }
}

/// The id by which receivers know a message, however often it is sent.
fn event_id(secret: &Secret, session: SessionNo, subject: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"webhook message").update(&session.0.to_le_bytes()).update(subject.as_bytes());
    hasher.finalize().to_hex()[..32].to_string()
}

/// The key of a row: the webhook, the time of the next delivery, the message.
pub(crate) fn post_key(hook: &str, next: Timestamp, event: &str) -> String {
    format!("{hook}/{:016x}-{event}", next.0.max(0))
}

/// The time of the next delivery and the message of a key.
pub(crate) fn read_key(key: &str) -> Option<(Timestamp, &str)> {
    let (next, event) = key.split_once('/')?.1.split_once('-')?;
    Some((Timestamp(i64::from_str_radix(next, 16).ok()?), event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::notices::Urgency;

    #[test]
    fn no_text_is_too_long_for_a_row() {
        let words = NoticeWords { title: "\u{1}".repeat(20_000), text: "\u{1}".repeat(20_000) };
        let kept = KeptNotice::posted(words, Urgency::Silent, 0, Timestamp(1));
        let notice = Some(NoticeCopy { id: "n".into(), kept });
        let wait = Some(WaitCopy {
            call: 1,
            tool: "t".repeat(70_000),
            name: "n".repeat(70_000),
            what: "\u{1}".repeat(20_000),
            until_us: None,
        });
        let post = OutgoingPost { kind: WebhookKind::Posted, created_us: 1, notice, wait, tries: 0 };
        let value = post.encoded();
        assert!(value.len() <= RECORD_VALUE_BYTES_MAX, "{}", value.len());
        let read: OutgoingPost = serde_json::from_slice(&value).unwrap();
        assert_eq!(read.wait.unwrap().what.chars().count(), LONG_TEXT_CHARS + 1);
    }

    #[test]
    fn keys_sort_by_the_time_of_the_next_delivery() {
        let (early, late) = (post_key("h", Timestamp(9), "b"), post_key("h", Timestamp(1_000), "a"));
        assert!(early < late);
        assert_eq!(read_key(&late), Some((Timestamp(1_000), "a")));
        assert_eq!(read_key("h/zz-a"), None);
    }

    #[test]
    fn every_kind_has_the_name_that_it_is_written_with() {
        for kind in WebhookKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
