//! Approvals: what waits for a person, their answers, and the answers that are remembered.

use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::mailbox::approve::{self, ApprovalDecision};
use crate::mailbox::ask::AskError;
use crate::path::grants;
use crate::path::stage::prepare;
use crate::read::inspect::{
    WaitingCall, WaitingIndex, WaitingPart, WaitingPlace, WaitingReader, WaitingSearch,
};
use crate::session::adopting;
use crate::session::inner::{Inner, Runtime};
use crate::session::permission::Remembered;
use crate::tools::place::BatchPlace;
use crate::tools::registry::ToolLookup;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use windlass_args::canonical;
use windlass_core::handle::open_approval_id;
use windlass_store::{RecordPage, Row, Space, Store};

/// An approval with edited arguments, before it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalPreview {
    /// The mistakes in the edited arguments, for the approver; `None` if they fit the tool.
    pub problem: Option<String>,
    /// The JSON pointers at which they differ from those that were shown, the first few.
    pub differences: Vec<String>,
}

/// The most differences that a preview lists.
const DIFFERENCES_MAX: usize = 32;

impl Runtime {
    /// Everything that waits for a person, the nearest deadline first: approvals, questions, connections, changed tools and calls of
    /// which nobody knows whether they took effect.
    pub async fn waiting(&self) -> Result<Vec<(WaitingPlace, WaitingCall)>, SessionError> {
        Ok(self.waiting_part(&WaitingSearch::default(), usize::MAX, |_| true).await?.calls)
    }

    /// The first so many of them that the search finds and whose principals `is_shown` takes. Only these are read, and batches that were
    /// written since somebody asked before.
    pub async fn waiting_part(
        &self,
        search: &WaitingSearch<'_>,
        limit: usize,
        is_shown: impl Fn(Option<&str>) -> bool,
    ) -> Result<WaitingPart, SessionError> {
        let reader = self.waiting_reader();
        self.waiting_index(&reader).await?.part(&reader, search, limit, is_shown).await
    }

    /// The number of waits whose principals `is_shown` takes.
    pub async fn count_waiting(&self, is_shown: impl Fn(Option<&str>) -> bool) -> Result<u64, SessionError> {
        let reader = self.waiting_reader();
        Ok(self.waiting_index(&reader).await?.count(reader.now, is_shown))
    }

    fn waiting_reader(&self) -> WaitingReader<'_> {
        WaitingReader { store: &*self.0.store, now: self.0.clock.now(), tools: Some(&self.0.registry) }
    }

    /// The index of waits, as they are recorded now. Whoever asks at the same time waits for the same reading.
    async fn waiting_index(
        &self,
        reader: &WaitingReader<'_>,
    ) -> Result<OwnedMutexGuard<WaitingIndex>, SessionError> {
        let mut index = self.0.slots.of::<tokio::sync::Mutex<WaitingIndex>>().lock_owned().await;
        index.refresh(reader).await?;
        Ok(index)
    }

    /// Answers an approval for a principal. Durable when this returns. The first answer counts, and repeating it is fine.
    ///
    /// ```
    /// # use windlass::approvals::ApprovalDecision;
    /// # use windlass::policy::ApprovalRule;
    /// # use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let spec = ToolSpec { name: "pay".into(), approval: ApprovalRule::Ask, ..ToolSpec::default() };
    /// runtime.register(tool_fn(spec, |_, _| async { Ok(serde_json::json!("paid").into()) }))?;
    /// let call = CallRequest { id: Some("c1".into()), tool: "pay".into(), ..CallRequest::default() };
    /// let submitted = runtime.submit("demo", BatchRequest { calls: vec![call], ..BatchRequest::default() }).await?;
    /// submitted.stands_still().await?;
    /// let (_, waits) = runtime.waiting().await?.remove(0);
    /// let digest = waits.digest.unwrap_or_default();
    /// runtime.decide(&waits.id, &ApprovalDecision { approve: true, digest, ..ApprovalDecision::default() }, "ann").await?;
    /// assert_eq!(submitted.settled().await?.calls[0].model_text(), "paid");
    /// # Ok(()) }
    /// ```
    pub async fn decide(&self, id: &str, decision: &ApprovalDecision, by: &str) -> Result<(), AskError> {
        if let Some(args) = decision.args.as_ref().filter(|_| decision.approve)
            && let Some(problem) = self.preview_approval(id, args).await?.problem
        {
            return Err(AskError::Invalid { what: problem });
        }
        approve::decide(&self.0, id, decision, by).await.map(drop)
    }

    /// Checks edited arguments of an approval against its tool, without answering.
    pub async fn preview_approval(&self, id: &str, args: &Value) -> Result<ApprovalPreview, AskError> {
        let store = &*self.0.store;
        let (call, _) = open_approval_id(store.secret(), id).ok_or(AskError::NoApproval)?;
        let (session, call, key) = find_id(store, call).await?.ok_or(AskError::NoApproval)?;
        let shown = approve::ran(&call, &self.0.limits)?;
        let differences = canonical::differences(&shown, args, DIFFERENCES_MAX);
        let place = BatchPlace::new(session.name.as_str().into(), key, None);
        let problem = match grants::look_up_recorded(&self.0, &session.name, &place, &call.opened).await? {
            ToolLookup::Tool(tool) => {
                prepare::checked(&tool, args.clone(), &self.0.limits).err().map(|failure| failure.message)
            }
            ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => {
                Some("the tool is not there now, so the arguments cannot be checked; try again later".into())
            }
        };
        Ok(ApprovalPreview { problem, differences })
    }

    /// The answers that a session remembers, by id.
    pub async fn remembered(&self, session: &str) -> Result<Vec<Remembered>, SessionError> {
        remembered(&*self.0.store, session, self.0.limits.remembered_max).await
    }

    /// Forgets a remembered answer: from now on a person is asked again. `false`: there is none of this id.
    pub async fn forget_remembered(&self, session: &str, id: &str) -> Result<bool, SessionError> {
        let is_there = self.remembered(session).await?.iter().any(|remembered| remembered.id == id);
        if is_there {
            let session = self.0.session(session).await?;
            let row = Row::Remove { space: Space::Remembered, key: id.to_string() };
            // In this order: an answer that is acknowledged as forgotten is never given again.
            session.forget_remembered(&self.0, id).await?;
            session.lane.commit_rows(vec![row]).await?;
        }
        Ok(is_there)
    }
}

/// The answers that a session remembers, in a store with or without an owner.
pub async fn remembered(store: &dyn Store, session: &str, max: u64) -> Result<Vec<Remembered>, SessionError> {
    let Some(row) = store.session(session).await? else {
        return Err(SessionError::NotFound { session: session.to_string() });
    };
    let page = RecordPage { shelf: Space::Remembered.of(row.no), prefix: "", after: None, limit: max };
    let records = store.records(page).await?;
    Ok(records.iter().filter_map(|record| serde_json::from_slice(&record.value).ok()).collect())
}

/// The policy has changed: calls that wait for an approval are judged again.
pub(crate) async fn policy_changed(rt: &Arc<Inner>) {
    for session in rt.owned() {
        match adopting::judge_again(rt, &session).await {
            Ok(()) | Err(SessionError::Lost(_)) => {}
            Err(error) => {
                let error = crate::api::error::chain(&error);
                tracing::error!(session = %session.name, error, "calls that wait for an approval are not judged again");
            }
        }
    }
}
