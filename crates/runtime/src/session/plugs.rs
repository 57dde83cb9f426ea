//! Where the upper rooms plug into the engine, which calls them through this and imports none of them.

use crate::api::error::SessionError;
use crate::session::held::Held;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::principal::SessionRecords;
use crate::tools::registry::OwnTools;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::ids::CallId;

/// A future of a type that its caller must not know.
pub(crate) type Plugged<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The opening or taking of a session.
pub(crate) type Taking<'a> = Plugged<'a, Result<Arc<Session>, SessionError>>;

/// Functions that the upper rooms provide to the engine. Made in one place, by `Runtime::new`.
#[derive(Clone, Copy)]
pub(crate) struct Plugs {
    /// Opens a session or takes it over, including the work of features.
    pub(crate) open_or_take: for<'a> fn(&'a Arc<Inner>, &'a str, SessionRecords) -> Taking<'a>,
    /// Continues unfinished work of features in abandoned sessions.
    pub(crate) resume: for<'a> fn(&'a Arc<Inner>) -> Plugged<'a, Result<(), SessionError>>,
    /// Reads and adopts what holds for all workers: the policy, revoked tokens, paused tools.
    pub(crate) adopt_orders: for<'a> fn(&'a Arc<Inner>) -> Plugged<'a, Result<(), SessionError>>,
    /// Drives a parked call, in a task of its own.
    pub(crate) drive: fn(Box<Held>),
    /// Drives a parked call in the caller's task, as far as it gets at once.
    pub(crate) drive_here: fn(Box<Held>) -> Plugged<'static, ()>,
    /// Does the follow-up work of a durable change.
    pub(crate) follow_up: fn(&Arc<Inner>, &Arc<Session>, FollowUp),
    /// The built-in tools.
    pub(crate) own_tools: OwnTools,
    /// Makes the tools by which the model finds others.
    pub(crate) catalog_tools: OwnTools,
}

/// The follow-up work of a call's change, once it is durable. Most calls have none.
pub(crate) enum FollowUp {
    /// The number of notices written.
    Noticed(u64),
    /// A call that a schedule started has ended: the schedule's next time may wait for it.
    ScheduledEnded,
    /// Tasks have ended: whoever waits for them continues.
    TasksEnded(Vec<CallId>),
    /// Calls have ended that planned events for the case that they succeed.
    EventsDue(Vec<CallId>),
    /// Calls have ended whose attempts toolboxes had, under tokens with these hashes.
    HandedEnded(Vec<Arc<str>>),
    /// Child sessions are closed: their running calls must stop.
    StopChildren {
        /// Their names.
        sessions: Vec<String>,
        /// The reason.
        reason: &'static str,
    },
}

impl Inner {
    /// Does the follow-up work of a durable change.
    pub(crate) fn follow_up(self: &Arc<Inner>, session: &Arc<Session>, follow_up: FollowUp) {
        (self.plugs.follow_up)(self, session, follow_up);
    }

    /// Stops the running calls of these child sessions, if there are any.
    pub(crate) fn stop_children(
        self: &Arc<Inner>,
        session: &Arc<Session>,
        sessions: Vec<String>,
        reason: &'static str,
    ) {
        if !sessions.is_empty() {
            self.follow_up(session, FollowUp::StopChildren { sessions, reason });
        }
    }
}
