//! The limits that can be changed while calls run.

use super::{Runtime, check_session_name};
use crate::children::Child;
use crate::error::{BatchError, LimitError, Lost};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::limits::Limits;
use windlass_core::plan::Cap;
use windlass_store::{Change, Guard, Hold, Refused, Row, STORE, Space, Store};

impl Runtime {
    /// Bounds all tools that declare this group together, from now on; what runs beyond that goes on.
    pub fn limit_group(&self, group: &str, cap: Cap) {
        self.0.turns.set_group(&self.0, group, cap);
    }

    /// The limits of what runs and waits, as they are now.
    pub fn running_limits(&self) -> RunningLimits {
        self.0.turns.limits()
    }

    /// Changes the limits of what runs and waits. What may start now does; what runs beyond a lower limit ends in its own
    /// time. Those of a tool change with [`replace`](Self::replace), those of a group with
    /// [`limit_group`](Self::limit_group).
    pub fn set_limits(&self, limits: RunningLimits) -> Result<(), ZeroLimit> {
        limits.check()?;
        self.0.turns.set_limits(&self.0, limits);
        Ok(())
    }

    /// Bounds one session from now on, for good: the limits are kept, and hold for every owner of the session.
    pub async fn limit_session(&self, session: &str, limits: SessionLimits) -> Result<(), LimitError> {
        check_session_name(session)?;
        limits.check()?;
        while !Bounds::bound(&self.0.store, session, limits).await? {}
        if let Some(session) = self.0.owned_session(session) {
            self.0.turns.set_session(&self.0, session.lane.session(), limits);
        }
        Ok(())
    }

    /// The limits it was made with; [`running_limits`](Self::running_limits) may be others by now.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }
}

/// The limits that can be changed while calls run, named as in [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLimits {
    /// Calls that run at once in the process.
    pub calls_running_max: u64,
    /// Calls of one session that run at once.
    pub session_calls_running_max: u64,
    /// Calls that wait for their start; beyond that batches are refused.
    pub calls_queued_max: u64,
    /// Calls that are parked; beyond that batches are refused.
    pub calls_parked_max: u64,
}

/// A limit of nothing, with which nothing could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` is 0, and with that nothing could be done; set at least 1, or pause the tools")]
pub struct ZeroLimit {
    /// Which.
    pub limit: &'static str,
}

impl RunningLimits {
    pub(crate) fn of(limits: &Limits) -> RunningLimits {
        RunningLimits {
            calls_running_max: limits.calls_running_max,
            session_calls_running_max: limits.session_calls_running_max,
            calls_queued_max: limits.calls_queued_max,
            calls_parked_max: limits.calls_parked_max,
        }
    }

    pub(crate) fn put_into(self, limits: &mut Limits) {
        limits.calls_running_max = self.calls_running_max;
        limits.session_calls_running_max = self.session_calls_running_max;
        limits.calls_queued_max = self.calls_queued_max;
        limits.calls_parked_max = self.calls_parked_max;
    }

    pub(super) fn check(self) -> Result<(), ZeroLimit> {
        let named = [
            ("calls_running_max", self.calls_running_max),
            ("session_calls_running_max", self.session_calls_running_max),
            ("calls_queued_max", self.calls_queued_max),
            ("calls_parked_max", self.calls_parked_max),
        ];
        let zero = named.into_iter().find(|(_, max)| *max == 0);
        zero.map_or(Ok(()), |(limit, _)| Err(ZeroLimit { limit }))
    }
}

/// What bounds one session more tightly than every session is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Calls of it that run at once; above `session_calls_running_max` it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_running_max: Option<u64>,
}

/// What bounds a session, in one record: how many of its calls run, and what it is a child of. So whoever takes a session reads
/// no more than it would if there were no children.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls_running_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) child: Option<Child>,
}

impl Bounds {
    pub(crate) fn new(limits: SessionLimits, child: Option<Child>) -> Bounds {
        Bounds { calls_running_max: limits.calls_running_max, child }
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        SessionLimits { calls_running_max: self.calls_running_max }
    }

    /// The row that keeps them for the session of this name.
    pub(crate) fn row(&self, session: &str) -> Row {
        let (space, key) = (Space::Setting, Bounds::key(session));
        if *self == Bounds::default() {
            return Row::Remove { space, key };
        }
        Row::Put { space, key, value: serde_json::to_vec(self).unwrap_or_default().into() }
    }

    /// Those that are kept for the session of this name.
    pub(crate) async fn of(store: &dyn Store, session: &str) -> Result<Bounds, BatchError> {
        Bounds::read(store, session).await.map(|(bounds, _)| bounds)
    }

    /// The same, and the generation of their record.
    async fn read(store: &dyn Store, session: &str) -> Result<(Bounds, u64), BatchError> {
        let key = Bounds::key(session);
        let Some(kept) = store.record(STORE, Space::Setting, &key).await? else {
            return Ok((Bounds::default(), 0));
        };
        let bounds = serde_json::from_slice(&kept.value).map_err(|error| BatchError::Unreadable {
            what: format!("the record {key:?} says nothing: {error}"),
        })?;
        Ok((bounds, kept.generation))
    }

    /// Changes the limits and leaves the rest. `false`: somebody else wrote meanwhile.
    async fn bound(store: &Arc<dyn Store>, session: &str, limits: SessionLimits) -> Result<bool, BatchError> {
        let (kept, is) = Bounds::read(&**store, session).await?;
        let rows = vec![Bounds::new(limits, kept.child).row(session)];
        let guards = vec![Guard::Generation { space: Space::Setting, key: Bounds::key(session), is }];
        let change = Change { session: STORE, hold: Hold::Store, guards, rows };
        match store.commit(vec![change]).await?.pop() {
            Some(Err(Refused::Changed { .. })) => Ok(false),
            Some(Err(refused)) => Err(Lost::Refused(refused).into()),
            Some(Ok(_)) | None => Ok(true),
        }
    }

    pub(crate) fn key(session: &str) -> String {
        format!("limits/{session}")
    }
}

impl SessionLimits {
    /// The row that keeps them for a session of this name that is new, for a change that writes more about it; there is none
    /// if nothing is bounded. They hold from when the session is next taken;
    /// [`Runtime::limit_session`](crate::Runtime::limit_session) sets them at once.
    pub fn row(&self, session: &str) -> Option<Row> {
        (*self != SessionLimits::default()).then(|| Bounds::new(*self, None).row(session))
    }

    /// Those that are kept for the session of this name.
    pub async fn of(store: &Arc<dyn Store>, session: &str) -> Result<SessionLimits, BatchError> {
        Ok(Bounds::of(&**store, session).await?.limits())
    }

    pub(crate) fn check(self) -> Result<(), ZeroLimit> {
        match self.calls_running_max {
            Some(0) => Err(ZeroLimit { limit: "calls_running_max" }),
            Some(_) | None => Ok(()),
        }
    }
}
