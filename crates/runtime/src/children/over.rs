//! When a child session is over, and what then becomes of what runs in it.

use super::Child;
use crate::ask::{self, AskError, Asked, Target};
use crate::error::{BatchError, Lost, chain};
use crate::held::Ended;
use crate::runtime::Inner;
use crate::scope::Narrowing;
use crate::session::{Session, Whereabouts};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::ids::{CallId, Lookup};
use windlass_core::operation::Operations;
use windlass_store::Store;

/// What is known of a child session while it is owned.
pub(crate) struct ChildOf {
    pub(crate) child: Child,
    /// The calls with which it is over, each with its session.
    openers: Vec<(Arc<str>, CallId)>,
    /// Whether it is known to be closed. It never opens again.
    closed: AtomicBool,
    _narrowing: Narrowing,
}

impl ChildOf {
    /// Of a session that is being taken.
    pub(crate) async fn take(rt: &Arc<Inner>, name: &str, child: Child) -> Result<ChildOf, BatchError> {
        let (line, openers) = child.line(&*rt.store, name).await?;
        let no = rt.registry.narrow(name, Arc::new(line));
        let narrowing = Narrowing { rt: Arc::downgrade(rt), session: name.into(), no };
        Ok(ChildOf { child, openers, closed: AtomicBool::new(false), _narrowing: narrowing })
    }

    /// Looks whether it is closed, and remembers that.
    async fn look_closed(&self, rt: &Inner) -> Result<bool, BatchError> {
        if self.is_known_closed() {
            return Ok(true);
        }
        for (session, call) in &self.openers {
            if is_over(rt, session, *call).await? {
                self.closed.store(true, Ordering::SeqCst);
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn is_known_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Whether a call has ended. If its session is here that is known without a look at its journal.
async fn is_over(rt: &Inner, session: &str, call: CallId) -> Result<bool, BatchError> {
    let owned = rt.owned_session(session).filter(|session| session.lane.lost().is_none());
    match owned.map(|session| session.whereabouts(rt, call.batch, None)) {
        Some(Whereabouts::Here(batch)) => Ok(batch.has_ended(call.ordinal)),
        Some(Whereabouts::Away) => Ok(false),
        Some(Whereabouts::Over) | None => super::has_ended(&*rt.store, call).await,
    }
}

impl Session {
    /// Looks whether it takes nothing new, because it is the child of a call that has ended, and remembers that.
    pub(crate) async fn look_closed(&self, rt: &Inner) -> Result<bool, BatchError> {
        match &self.kin {
            None => Ok(false),
            Some(kin) => Box::pin(kin.look_closed(rt)).await,
        }
    }

    /// The same, as far as somebody has looked.
    pub(crate) fn is_known_closed(&self) -> bool {
        self.kin.as_ref().is_some_and(|kin| kin.is_known_closed())
    }

    /// The call that opened it, if one did.
    pub(crate) fn opener(&self) -> Option<CallId> {
        self.kin.as_ref().and_then(|kin| kin.child.call())
    }

    /// How many calls and sessions lie between it and whoever asked first.
    pub(crate) fn depth(&self) -> u32 {
        self.kin.as_ref().map_or(0, |kin| kin.child.depth())
    }

    pub(crate) fn closed(&self) -> BatchError {
        BatchError::SessionClosed { session: self.name.to_string() }
    }

    /// Whether a batch of this key is recorded, or under way.
    pub(crate) async fn knows(&self, key: &str) -> Result<bool, BatchError> {
        let lookup = Lookup::of(self.lane.session(), key);
        Ok(self.find(lookup).is_some() || self.lane.store().batch(lookup).await?.is_some())
    }

    /// Refuses what is new in a session that is to be removed, or closed.
    pub(crate) async fn check_takes(&self, rt: &Inner) -> Result<(), BatchError> {
        self.check_stays()?;
        if self.look_closed(rt).await? { Err(self.closed()) } else { Ok(()) }
    }
}

/// The child sessions that a call has opened.
pub(crate) fn opened(operations: Option<&Operations>) -> Vec<String> {
    let opened = operations.filter(|operations| operations.has_child());
    let named = |asked: &str| {
        let asked: Value = serde_json::from_str(asked).ok()?;
        asked["session"].as_str().map(str::to_string)
    };
    opened.into_iter().flat_map(Operations::children).filter_map(|(_, asked)| named(asked)).collect()
}

/// Those that calls which have ended have opened.
pub(crate) fn of_ended(ended: &[Ended]) -> Vec<String> {
    ended.iter().flat_map(|ended| opened(ended.call.operations.as_deref())).collect()
}

/// Asks what runs in child sessions to stop, in a task of its own. If this process dies before that, the next owner of each
/// finds that it is closed.
pub(crate) fn stop_soon(rt: &Arc<Inner>, sessions: Vec<String>, reason: &'static str) {
    if sessions.is_empty() {
        return;
    }
    let weak = Arc::downgrade(rt);
    rt.tasks.spawn(async move {
        for session in sessions {
            let Some(rt) = weak.upgrade() else { return };
            if let Err(error) = stop(&rt, &session, Some(reason)).await {
                let error = chain(&error);
                tracing::error!(%session, %error, "what runs in a child session was not told to stop; its next owner does");
            }
        }
    });
}

/// Asks what runs in a child session to stop, and in its children.
pub(crate) async fn stop(rt: &Arc<Inner>, name: &str, reason: Option<&str>) -> Result<Asked, AskError> {
    if let Some(session) = rt.owned_session(name) {
        // What is being submitted now is submitted then, and told to stop; what comes later finds that it is closed.
        let _admission = session.admission.lock().await;
        session.look_closed(rt).await?;
    }
    match ask::cancel(rt, Target::Session(name), reason).await {
        // Nothing was ever done there, or nothing is left of it.
        Err(AskError::NotFound { .. } | AskError::Batch(BatchError::Lost(Lost::Removed))) => {
            Ok(Asked::default())
        }
        asked => asked,
    }
}

/// Leaves for the calls of a session that is closed, before they go on, that they are to stop.
pub(crate) async fn leave_word(store: &dyn Store, session: &Session) -> Result<(), BatchError> {
    let reason = Some("the call that opened the session has ended");
    match ask::post_cancel(store, Target::Session(&session.name), reason).await {
        Ok(_) | Err(AskError::NotFound { .. }) => Ok(()),
        Err(AskError::Batch(error)) => Err(error),
        Err(error) => Err(BatchError::Shape { what: error.to_string() }),
    }
}
