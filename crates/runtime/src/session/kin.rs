//! Child sessions: their records, and whether one is closed.
//!
//! A record in the change that opens a session makes it a child. That a child is closed is not recorded: it
//! is closed once the call that opened it has ended, or one further up, and those ends are recorded.

use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::session::bounds::Bounds;
use crate::session::held::EndedCall;
use crate::session::inner::Inner;
use crate::session::owner::{Session, Whereabouts};
use crate::tools::overlay::SessionOverlay;
use crate::tools::scope::{Layer, Narrowing, ScopeLine, ScopeLink};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{CallId, Lookup};
use windlass_core::operation::Operations;
use windlass_store::{RecordPage, Row, Space, Store};

/// The page size for reading them.
const PAGE: u64 = 500;

/// The relation of a child session to its parent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Child {
    /// Its parent.
    pub parent: String,
    /// The tools it has of its parent's, by name; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The call that opened it, as one number; `None` if its host did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<u64>,
    /// The number of calls and sessions between it and the outermost caller.
    pub(crate) depth: u32,
}

impl Child {
    /// The relation of this session to its parent, if it is a child.
    pub async fn of(store: &dyn Store, session: &str) -> Result<Option<Child>, SessionError> {
        Bounds::of(store, session).await.map(|bounds| bounds.child)
    }

    /// A page of the names of a session's children, in order.
    pub async fn page(
        store: &dyn Store,
        parent: &str,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<String>, SessionError> {
        let Some(row) = store.session(parent).await? else { return Ok(Vec::new()) };
        let page = RecordPage { shelf: Space::Child.of(row.no), prefix: "", after, limit };
        Ok(store.records(page).await?.into_iter().map(|record| record.key).collect())
    }

    /// The names of all children of a session.
    pub(crate) async fn all(store: &dyn Store, parent: &str) -> Result<Vec<String>, SessionError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let page = Child::page(store, parent, names.last().map(String::as_str), PAGE).await?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page);
        }
    }

    /// Whether it takes no new calls by the record: the call that opened it has ended, or one further up.
    pub async fn is_closed(&self, store: &dyn Store) -> Result<bool, SessionError> {
        let openers = self.line(store, "").await?.openers;
        for (_, call) in openers {
            if has_ended(store, call).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The handle of the call that opened it, if one did.
    pub fn opener(&self, secret: &Secret) -> Option<Handle> {
        self.call.map(|call| Handle::seal(secret, HandleKind::Call, call))
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// The call that opened it, if one did.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.map(CallId::unpacked)
    }

    /// The row by which a session lists a child.
    pub(crate) fn listed(child: &str) -> Row {
        Row::Put { space: Space::Child, key: child.to_string(), value: Arc::default() }
    }

    /// The row by which a session lists a child no longer.
    pub(crate) fn unlisted(child: &str) -> Row {
        Row::Remove { space: Space::Child, key: child.to_string() }
    }

    /// The ancestry of this session.
    pub(crate) async fn line(&self, store: &dyn Store, session: &str) -> Result<Lineage, SessionError> {
        let (mut links, mut openers) = (Vec::new(), Vec::new());
        let mut at = (Arc::<str>::from(session), self.clone());
        loop {
            let (session, child) = at;
            let parent = Arc::<str>::from(child.parent.as_str());
            let only = child.tools.as_ref().map(|tools| Layer::only(tools.iter().map(String::as_str)));
            links.push(ScopeLink { session, only, own: None });
            openers.extend(child.call().map(|call| (parent.clone(), call)));
            let around = Bounds::of(store, &parent).await?;
            match around.child {
                Some(child) => at = (parent, child),
                None => {
                    links.push(ScopeLink::whole(parent, None));
                    return Ok(Lineage { line: ScopeLine(links), openers, overlay: around.overlay });
                }
            }
        }
    }
}

/// The ancestry of a child session.
pub(crate) struct Lineage {
    /// The chain of scopes for its tools, without those of the overlay.
    pub(crate) line: ScopeLine,
    /// The calls whose end closes it, each with its session.
    openers: Vec<(Arc<str>, CallId)>,
    /// The overlay that the root was opened with.
    pub(crate) overlay: SessionOverlay,
}

/// Whether a call has ended by the record; a missing call has.
async fn has_ended(store: &dyn Store, call: CallId) -> Result<bool, SessionError> {
    Ok(find_id(store, call).await?.is_none_or(|(_, call, _)| call.end().is_some()))
}

/// The state of a child session while it is owned.
pub(crate) struct ChildOf {
    pub(crate) child: Child,
    /// The calls whose end closes it, each with its session.
    openers: Vec<(Arc<str>, CallId)>,
    /// Whether it is known to be closed. It never opens again.
    closed: AtomicBool,
    _narrowing: Narrowing,
}

impl ChildOf {
    /// The state of a session that is being taken.
    pub(crate) async fn take(rt: &Arc<Inner>, name: &str, child: Child) -> Result<ChildOf, SessionError> {
        let Lineage { line, openers, overlay } = child.line(&*rt.store, name).await?;
        let narrowing = Narrowing::begin(&rt.registry, name, line.with(&overlay, &rt.registry));
        let closed = AtomicBool::new(is_closed_early(&*rt.store, name).await?);
        Ok(ChildOf { child, openers, closed, _narrowing: narrowing })
    }

    /// It was closed before the call that opened it has ended. The record is durable.
    pub(crate) fn close_early(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Checks whether it is closed, and caches that.
    async fn look_closed(&self, rt: &Inner) -> Result<bool, SessionError> {
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

/// The key in [`Space::About`] of a child session that its opener closed early.
pub(crate) const CLOSED: &str = "closed";

/// Whether a child session was closed early.
async fn is_closed_early(store: &dyn Store, name: &str) -> Result<bool, SessionError> {
    match store.session(name).await? {
        Some(row) => Ok(store.record(Space::About.of(row.no), CLOSED).await?.is_some()),
        None => Ok(false),
    }
}

/// Whether a call has ended. If its session is here that is known without reading its journal.
async fn is_over(rt: &Inner, session: &str, call: CallId) -> Result<bool, SessionError> {
    let owned = rt.owned_session(session).filter(|session| session.lane.lost().is_none());
    match owned.map(|session| session.whereabouts(rt, call.batch, None)) {
        Some(Whereabouts::Here(batch)) => Ok(batch.has_ended(call.ordinal)),
        Some(Whereabouts::Away) => Ok(false),
        Some(Whereabouts::Over) | None => has_ended(&*rt.store, call).await,
    }
}

impl Session {
    /// Checks whether it takes no new calls, because the call that opened it has ended, and caches that.
    pub(crate) async fn look_closed(&self, rt: &Inner) -> Result<bool, SessionError> {
        match &self.kin {
            None => Ok(false),
            Some(kin) => Box::pin(kin.look_closed(rt)).await,
        }
    }

    /// Whether it is known to be closed.
    pub(crate) fn is_known_closed(&self) -> bool {
        self.kin.as_ref().is_some_and(|kin| kin.is_known_closed())
    }

    /// The call that opened it, if one did.
    pub(crate) fn opener(&self) -> Option<CallId> {
        self.kin.as_ref().and_then(|kin| kin.child.call())
    }

    /// The number of calls and sessions between it and the outermost caller.
    pub(crate) fn depth(&self) -> u32 {
        self.kin.as_ref().map_or(0, |kin| kin.child.depth())
    }

    pub(crate) fn closed(&self) -> SessionError {
        SessionError::Closed { session: self.name.to_string() }
    }

    /// Whether a batch of this key is recorded, or under way.
    pub(crate) async fn knows(&self, key: &str) -> Result<bool, SessionError> {
        let lookup = Lookup::of(self.lane.session(), key);
        Ok(self.find(lookup).is_some() || self.lane.store().batch(lookup).await?.is_some())
    }

    /// Refuses new calls in a session that is closed or being removed.
    pub(crate) async fn check_takes(&self, rt: &Inner) -> Result<(), SessionError> {
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

/// The child sessions that these ended calls have opened.
pub(crate) fn of_ended(ended: &[EndedCall]) -> Vec<String> {
    ended.iter().flat_map(|ended| opened(ended.call.operations.as_deref())).collect()
}
