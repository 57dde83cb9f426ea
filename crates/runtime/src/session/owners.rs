//! The seam between sessions and the process that may own them: acquire, lost, wake, knock.
//!
//! [`Embedded`] is a runtime with a store of its own; [`Leases`](crate::session::worker::Leases) is one of several workers. The
//! rest of the runtime does not know which one it has.

use crate::api::answer::wall_time;
use crate::api::clock::Clock;
use crate::api::error::{Lost, SessionError};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::plugs::Plugged;
use crate::session::worker::Worker;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{Health, Row, Store};

/// How a runtime comes to own sessions, and loses them.
pub(crate) trait Owners: Send + Sync {
    /// Starts its tasks.
    fn begin(&self, rt: &Arc<Inner>);

    /// The id under which it owns sessions now; `None` if it owns none, or if nobody else could.
    fn id(&self) -> Option<Arc<str>>;

    /// Whether other processes own sessions of the same store.
    fn has_others(&self) -> bool;

    /// The right to take a session, or to open a new one (`recorded` is `None`). Refused with [`SessionError::Owned`] while its
    /// owner is alive.
    fn acquire<'a>(
        &'a self,
        rt: &'a Inner,
        name: &'a str,
        recorded: Option<SessionNo>,
    ) -> Plugged<'a, Result<Right, SessionError>>;

    /// Registers a session that was made with a right of this id. Refused if that right is over by now.
    fn acquired(&self, session: &Arc<Session>, id: Option<&Arc<str>>) -> Result<(), Lost>;

    /// Whether no other process can have taken it for dead by now, and so gone on without asking it. Asked before every start.
    fn stands(&self, clock: &dyn Clock) -> bool;

    /// It as one of several workers, if it is one.
    fn worker(&self) -> Option<Arc<Worker>>;

    /// Has the others know soon what it has adopted.
    fn tell_soon(&self);

    /// Decides what becomes of a session that was lost for this reason.
    fn lost(&self, lost: &Lost) -> AfterLoss;

    /// Names the process that wakes the waiting calls of a session that is not used.
    fn wake(&self) -> WokenBy;

    /// The row that releases a session for other owners, if there may be any.
    fn release(&self) -> Option<Row>;

    /// Tells the owner of a session that a message waits there. Durable when this returns.
    fn knock<'a>(
        &'a self,
        rt: &'a Inner,
        worker: &'a str,
        session: SessionNo,
    ) -> Plugged<'a, Result<(), SessionError>>;

    /// Lists the workers of the store.
    fn workers<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<Vec<WorkerEntry>, SessionError>>;

    /// The owner of a session, as far as it is known without taking the session.
    fn place<'a>(&'a self, rt: &'a Inner, session: &'a str) -> Plugged<'a, Result<OwnerPlace, SessionError>>;

    /// The other workers that are alive.
    fn others<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<Vec<OtherWorker>, SessionError>>;

    /// Whether another worker was alive when it was last looked for.
    fn is_alive(&self, worker: &str) -> bool;

    /// Tells the others that this process takes no more work.
    fn begin_leaving(&self);

    /// Gives up the right to own sessions for good; the others need not wait. Durable when this returns.
    fn retire<'a>(&'a self, rt: &'a Arc<Inner>) -> Plugged<'a, Result<(), SessionError>>;

    /// Stops cleanly: the next owner of its sessions need not wait.
    fn leave(&self, store: &dyn Store);
}

/// The owner of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerPlace {
    /// This process.
    Here,
    /// Nobody, or a worker that is gone: whoever needs it takes it.
    Nobody,
    /// Another worker, which is alive.
    Other(OtherWorker),
}

/// Another worker of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherWorker {
    /// Its id.
    pub id: String,
    /// The address of its server, if it has one.
    pub address: Option<String>,
    /// Whether it takes no more work.
    pub leaving: bool,
}

/// A worker, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkerEntry {
    /// Its id.
    pub id: String,
    /// Whether it is the one that answers.
    pub this: bool,
    /// Whether it is alive.
    pub state: WorkerState,
    /// The number of sessions in its memory, as of its last heartbeat; of one that is gone those that nobody has taken yet, up to
    /// 10,000.
    pub sessions: u64,
    /// The address at which the other workers reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it began, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The version of Windlass that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A digest of the contracts of its tools: workers that differ in it have other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Whether it takes no more work, and leaves when its calls have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Whether the store takes writes: `ready`, `stalled` or `closed`; known only of the one that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// How long ago its heartbeat was last seen to change, in milliseconds; absent if that was not seen, as of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_age_ms: Option<u64>,
}

/// Whether a worker is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It is, as far as is known.
    Alive,
    /// Others declared it dead, since its heartbeat stood still.
    Dead,
    /// It has stopped cleanly.
    Left,
}

/// The right to take a session, besides its fence.
#[derive(Default)]
pub(crate) struct Right {
    /// The id under which the session is owned; `None` if nobody else could own it.
    pub(crate) id: Option<Arc<str>>,
    /// Rows of the change that takes it.
    pub(crate) rows: Vec<Row>,
    /// Whether another worker owned it, which may still write: it is taken before anything is read.
    pub(crate) at_once: bool,
    /// Whether that worker was silent, rather than having released the session: one of its calls may have killed it.
    pub(crate) died: bool,
}

/// The future of a session that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// It may be taken again: the effect of its writes is found in the store, and the new fence refuses writes still on their way.
    /// The fence must be durable before anything is read (`Inner::has_forgotten_lost`).
    TakenAgain,
    /// It stays lost.
    Over,
}

/// The process that wakes the waiting calls of a session that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WokenBy {
    /// This process, which has their alarms, and takes the session again when one is due.
    ThisProcess,
    /// Its owner alone, so it must not be released.
    ItsOwner,
}

/// A runtime whose store nobody else uses: every session is there for it, and stays.
pub(crate) struct Embedded;

impl Owners for Embedded {
    fn begin(&self, _: &Arc<Inner>) {}

    fn id(&self) -> Option<Arc<str>> {
        None
    }

    fn has_others(&self) -> bool {
        false
    }

    fn acquire<'a>(
        &'a self,
        _: &'a Inner,
        _: &'a str,
        _: Option<SessionNo>,
    ) -> Plugged<'a, Result<Right, SessionError>> {
        Box::pin(std::future::ready(Ok(Right::default())))
    }

    fn acquired(&self, _: &Arc<Session>, _: Option<&Arc<str>>) -> Result<(), Lost> {
        Ok(())
    }

    #[inline]
    fn stands(&self, _: &dyn Clock) -> bool {
        true
    }

    fn worker(&self) -> Option<Arc<Worker>> {
        None
    }

    fn tell_soon(&self) {}

    fn lost(&self, lost: &Lost) -> AfterLoss {
        match lost {
            Lost::Store(_) => AfterLoss::TakenAgain,
            Lost::Refused(_) | Lost::Lease | Lost::Removed | Lost::Broken(_) => AfterLoss::Over,
        }
    }

    fn wake(&self) -> WokenBy {
        WokenBy::ThisProcess
    }

    fn release(&self) -> Option<Row> {
        None
    }

    fn knock<'a>(
        &'a self,
        _: &'a Inner,
        worker: &'a str,
        session: SessionNo,
    ) -> Plugged<'a, Result<(), SessionError>> {
        // Its store names no other owner.
        let (session, worker) = (session.to_string(), worker.to_string());
        Box::pin(std::future::ready(Err(SessionError::Owned { session, worker })))
    }

    /// The process itself, which owns all that is in its memory.
    fn workers<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<Vec<WorkerEntry>, SessionError>> {
        let sessions = rt.owned().len() as u64;
        let this = WorkerEntry {
            id: "local".into(),
            this: true,
            state: WorkerState::Alive,
            sessions,
            address: rt.address.clone(),
            since: Some(wall_time(rt.began_at)),
            version: Some(env!("CARGO_PKG_VERSION").to_string()),
            tools: Some(rt.registry.digest()),
            leaving: false,
            store: Some(store_state(rt).to_string()),
            heartbeat_age_ms: None,
        };
        Box::pin(std::future::ready(Ok(vec![this])))
    }

    fn place<'a>(&'a self, _: &'a Inner, _: &'a str) -> Plugged<'a, Result<OwnerPlace, SessionError>> {
        Box::pin(std::future::ready(Ok(OwnerPlace::Here)))
    }

    fn others<'a>(&'a self, _: &'a Inner) -> Plugged<'a, Result<Vec<OtherWorker>, SessionError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn is_alive(&self, _: &str) -> bool {
        false
    }

    fn begin_leaving(&self) {}

    fn retire<'a>(&'a self, _: &'a Arc<Inner>) -> Plugged<'a, Result<(), SessionError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn leave(&self, _: &dyn Store) {}
}

/// Whether the store takes writes, in a word.
pub(crate) fn store_state(rt: &Inner) -> &'static str {
    match &*rt.health.borrow() {
        Health::Ready => "ready",
        Health::Stalled { .. } => "stalled",
        Health::Closed { .. } => "closed",
    }
}
