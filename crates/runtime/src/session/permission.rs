//! The permission of calls, as the owner of their session knows it: what was remembered, and what its calls have read.

use crate::api::error::SessionError;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::Held;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::principal::ABOUT;
use crate::tools::registry::Registered;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::OnceCell;
use windlass_args::canonical;
use windlass_core::call::Permit;
use windlass_core::policy::{DecidedBy, Exposure, Judgement};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, Origin};
use windlass_store::{RecordPage, Row, Space};

/// The finding of the policy about a call in somebody's hands.
#[derive(Default)]
pub(crate) struct HeldPermit {
    pub(crate) permit: Permit,
    /// The stamp of the policy that it was judged by; `None` if nobody asked.
    judged: Option<u64>,
    /// The question to put to a person.
    pub(crate) ask: Option<Box<PendingAsk>>,
    /// The start that a person approved, if that is why it may run.
    approved: Option<Box<ApprovedStart>>,
}

/// A start that a person approved. It is one start: the next one is judged again.
pub(crate) struct ApprovedStart {
    /// The tool as it was when the digest was compared.
    pub(crate) tool: Arc<Registered>,
    /// The tool's hold on the content that was approved.
    pub(crate) content: Option<ApprovedContent>,
}

/// A tool's hold on the content that was approved.
pub(crate) type ApprovedContent = Arc<dyn Any + Send + Sync>;

/// A question to a person that is not recorded yet.
pub(crate) struct PendingAsk {
    pub(crate) digest: Digest,
    /// The digest of all but the arguments.
    pub(crate) frame: Digest,
    pub(crate) policy: u64,
    pub(crate) judgement: Judgement,
}

impl HeldPermit {
    /// The call must be judged before it acts.
    pub(crate) fn unjudged() -> HeldPermit {
        HeldPermit { permit: Permit::Unjudged, ..HeldPermit::default() }
    }

    /// A finding that makes the call wait for a person is not to be relied on any more. Before it acts, any call is checked anyway.
    pub(crate) fn rejudge(&mut self) {
        if matches!(self.permit, Permit::Asks | Permit::Asked) {
            *self = HeldPermit::unjudged();
        }
    }

    /// The call was judged by the policy of this stamp.
    pub(crate) fn judged(permit: Permit, stamp: u64) -> HeldPermit {
        HeldPermit { permit, judged: Some(stamp), ..HeldPermit::default() }
    }

    /// This finding, because a person approved the start.
    pub(crate) fn approving(self, approved: Option<Box<ApprovedStart>>) -> HeldPermit {
        HeldPermit { approved, ..self }
    }

    /// The approved start is made: the next one must be judged before it acts. Returns the tool's hold on what was approved.
    pub(crate) fn use_approval(&mut self) -> Option<ApprovedContent> {
        let approved = self.approved.take()?;
        *self = HeldPermit::unjudged();
        approved.content
    }

    /// This finding, with the question to put to a person.
    pub(crate) fn asking(self, ask: Box<PendingAsk>) -> HeldPermit {
        HeldPermit { ask: Some(ask), ..self }
    }
}

impl Held {
    /// Whether the call may act with this tool under the policy as it is now. Most runtimes have none, and most tools ask nobody.
    #[inline]
    pub(crate) fn is_permitted(&self, tool: &Registered) -> bool {
        let stamp = self.on.rt.policy.stamp();
        let granted = self.permit.permit == Permit::Granted;
        let is_judged = self.permit.judged == Some(stamp) || windlass_core::mutant::breaks("judged-once");
        granted && ((stamp == 0 && !tool.asks) || (is_judged && self.is_approved(tool)))
    }

    /// Whether this is the tool that a person approved, if one did. Another one of the same contract may do something else.
    fn is_approved(&self, tool: &Registered) -> bool {
        self.permit.approved.as_ref().is_none_or(|approved| std::ptr::eq(&*approved.tool, tool))
    }
}

/// The kinds of content that a session's calls have brought into it, as far as this owner has recorded it.
#[derive(Default)]
pub(crate) struct ExposureRecord(AtomicU8);

const PRIVATE: u8 = 1;
const UNTRUSTED: u8 = 2;

/// The keys in [`Space::About`] by which a session is known to have read private data, or content of strangers.
const EXPOSED: [(u8, &str); 2] = [(PRIVATE, "exposed_private"), (UNTRUSTED, "exposed_untrusted")];

impl ExposureRecord {
    /// A call of this origin runs: the rows to write with its next commit, if that is news.
    #[inline]
    pub(crate) fn add(&self, origin: Origin) -> Vec<Row> {
        let brings = u8::from(origin.is_private()) | u8::from(origin.is_untrusted()) << 1;
        let known = self.0.load(Ordering::Relaxed);
        if known & brings == brings { Vec::new() } else { self.note(brings) }
    }

    #[cold]
    fn note(&self, brings: u8) -> Vec<Row> {
        let known = self.0.fetch_or(brings, Ordering::Relaxed);
        let news = EXPOSED.into_iter().filter(|(bit, _)| brings & !known & bit != 0);
        news.map(|(_, key)| Row::Put { space: Space::About, key: key.to_string(), value: Arc::from([1]) })
            .collect()
    }

    fn now(&self) -> Exposure {
        let known = self.0.load(Ordering::Relaxed);
        Exposure { private: known & PRIVATE != 0, untrusted: known & UNTRUSTED != 0 }
    }
}

/// The records of a session that its calls are judged by, read at the first use.
#[derive(Default)]
pub(crate) struct SessionPermission {
    labels: OnceCell<BTreeMap<String, String>>,
    exposure: OnceCell<Exposure>,
    remembered: RememberedAnswers,
    /// Set once those that are stored are among them.
    has_read: OnceCell<()>,
}

type RememberedAnswers = OrderedMutex<Vec<Remembered>, { LockRank::Remembered as u8 }>;

/// An answer that a person wants to be given again, for calls of the same kind in this session. It is no rule of the policy: it
/// never answers where the policy denies, where four eyes are asked for, or because of untrusted content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Its id.
    pub id: String,
    /// The principal whose calls it is about.
    pub principal: Option<String>,
    /// The tool.
    pub tool: String,
    /// The contract of the tool, in hexadecimal digits.
    pub contract: String,
    /// The sources of the question it answers, as digests of rules.
    pub rules: Vec<String>,
    /// The arguments that a call must have: each JSON pointer with the canonical text of its value, `null` if there is none.
    pub args: BTreeMap<String, Option<String>>,
    /// Until when, in microseconds since 1970; `None` as long as the session is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// The principal that approved.
    pub by: String,
    /// When, in microseconds since 1970.
    pub at: i64,
}

/// A call that an answer may have been remembered for.
pub(crate) struct AskedCall<'a> {
    pub(crate) principal: Option<&'a str>,
    pub(crate) contract: &'a Digest,
    pub(crate) judgement: &'a Judgement,
    pub(crate) args: &'a Value,
    pub(crate) now: Timestamp,
}

impl Remembered {
    fn answers(&self, call: &AskedCall<'_>) -> bool {
        let Judgement { four_eyes, untrusted, by, .. } = call.judgement;
        let is_known = |by: &DecidedBy| self.rules.contains(&source_of(by));
        let fits = |(pointer, text): (&String, &Option<String>)| argument(call.args, pointer) == *text;
        !four_eyes
            && !untrusted
            && self.principal.as_deref() == call.principal
            && self.contract == call.contract.whole()
            && self.expires_at.is_none_or(|until| call.now.0 < until)
            && by.iter().all(is_known)
            && self.args.iter().all(fits)
    }
}

/// The canonical text of an argument, if there is one.
pub(crate) fn argument(args: &Value, pointer: &str) -> Option<String> {
    args.pointer(pointer).map(canonical::text)
}

/// The source of a ruling, as it is remembered: another rule of the same name is another source.
pub(crate) fn source_of(by: &DecidedBy) -> String {
    match by {
        DecidedBy::Rule { digest, .. } => digest.whole(),
        DecidedBy::Tool | DecidedBy::Default | DecidedBy::Broken => by.to_string(),
    }
}

impl Session {
    /// The labels of the session, and the kinds of content that its calls have read, also under earlier owners.
    pub(crate) async fn judged_by<'a>(
        &self,
        rt: &Inner,
        known: &'a SessionPermission,
    ) -> Result<(&'a BTreeMap<String, String>, Exposure), SessionError> {
        let (labels, before) = match (known.labels.get(), known.exposure.get()) {
            (Some(labels), Some(before)) => (labels, before),
            // Only the first call reads them, and every later one is spared the larger future.
            (None, _) | (_, None) => Box::pin(self.read_permission(rt, known)).await?,
        };
        let here = self.exposure.now();
        let (private, untrusted) = (before.private || here.private, before.untrusted || here.untrusted);
        Ok((labels, Exposure { private, untrusted }))
    }

    async fn read_permission<'a>(
        &self,
        rt: &Inner,
        known: &'a SessionPermission,
    ) -> Result<(&'a BTreeMap<String, String>, &'a Exposure), SessionError> {
        Ok((self.read_labels(rt, known).await?, self.read_exposure(rt, known).await?))
    }

    async fn read_labels<'a>(
        &self,
        rt: &Inner,
        known: &'a SessionPermission,
    ) -> Result<&'a BTreeMap<String, String>, SessionError> {
        /// The part of a session's settings that rules look at.
        #[derive(Default, Deserialize)]
        struct Labelled {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        let read = async || {
            let about = rt.store.record(Space::About.of(self.lane.session()), ABOUT).await?;
            let about = about.and_then(|record| serde_json::from_slice::<Labelled>(&record.value).ok());
            Ok::<_, SessionError>(about.unwrap_or_default().labels)
        };
        known.labels.get_or_try_init(read).await
    }

    /// The kinds of content that its calls have read under earlier owners.
    async fn read_exposure<'a>(
        &self,
        rt: &Inner,
        known: &'a SessionPermission,
    ) -> Result<&'a Exposure, SessionError> {
        let read = async || {
            let shelf = Space::About.of(self.lane.session());
            let mut found = Exposure::default();
            for (bit, key) in EXPOSED {
                let is_there = rt.store.record(shelf, key).await?.is_some();
                found.private |= is_there && bit == PRIVATE;
                found.untrusted |= is_there && bit == UNTRUSTED;
            }
            Ok::<_, SessionError>(found)
        };
        known.exposure.get_or_try_init(read).await
    }

    /// The remembered answer to a question, if there is one.
    pub(crate) async fn remembered_for(
        &self,
        rt: &Inner,
        call: &AskedCall<'_>,
    ) -> Result<Option<Arc<str>>, SessionError> {
        let known = self.slots.of::<SessionPermission>();
        self.read_remembered(rt, &known).await?;
        let remembered = known.remembered.lock();
        let found = remembered.iter().find(|remembered| remembered.answers(call));
        Ok(found.map(|remembered| remembered.id.as_str().into()))
    }

    async fn read_remembered(&self, rt: &Inner, known: &SessionPermission) -> Result<(), SessionError> {
        let read = async || {
            let (shelf, limit) = (Space::Remembered.of(self.lane.session()), rt.limits.remembered_max);
            let page = RecordPage { shelf, after: None, limit, prefix: "" };
            let records = rt.store.records(page).await?;
            let read = |record: &windlass_store::StoredRecord| serde_json::from_slice(&record.value).ok();
            let stored: Vec<Remembered> = records.iter().filter_map(read).collect();
            let mut remembered = known.remembered.lock();
            let here: Vec<Remembered> = std::mem::take(&mut *remembered);
            let is_here = |stored: &Remembered| here.iter().any(|here| here.id == stored.id);
            remembered.extend(stored.into_iter().filter(|stored| !is_here(stored)));
            remembered.extend(here);
            Ok::<_, SessionError>(())
        };
        known.has_read.get_or_try_init(read).await.copied()
    }

    /// An answer is remembered from now on; the caller writes its row.
    pub(crate) fn remember(&self, remembered: Remembered) {
        self.slots.of::<SessionPermission>().remembered.lock().push(remembered);
    }

    /// An answer is not remembered any more; the caller removes its row.
    pub(crate) async fn forget_remembered(&self, rt: &Inner, id: &str) -> Result<(), SessionError> {
        let known = self.slots.of::<SessionPermission>();
        // Else it might be read again before its row is gone.
        self.read_remembered(rt, &known).await?;
        known.remembered.lock().retain(|remembered| remembered.id != id);
        Ok(())
    }
}
