//! The sessions that a runtime owns.

use super::{Bounds, Inner, SessionLimits, check_session_name};
use crate::ask;
use crate::children;
use crate::drive;
use crate::error::BatchError;
use crate::removal;
use crate::schedules;
use crate::session::Session;
use crate::stream;
use crate::turns::Turns;
use crate::worker;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use tokio::sync::OnceCell;
use windlass_core::ids::SessionNo;

/// The sessions of a runtime, by name, and those that are being taken.
pub(super) type Sessions = HashMap<String, Arc<OnceCell<Arc<Session>>>>;

impl Inner {
    /// The session of this name, opened or taken over by its first use.
    pub(crate) async fn session(self: &Arc<Inner>, name: &str) -> Result<Arc<Session>, BatchError> {
        check_session_name(name)?;
        let cell = self.cell(name);
        if let Some(session) = cell.get() {
            let Some(lost) = self.worker.as_ref().and_then(|_| session.lane.lost()) else {
                return Ok(session.clone());
            };
            // A worker may take again what it lost, once nothing of that is left.
            if !self.forget_lost(name, session) {
                return Err(lost.into());
            }
            drop(cell);
            return Box::pin(self.session(name)).await;
        }
        // Boxed, so that those of a session that is owned need no room for it.
        let session = Box::pin(cell.get_or_try_init(|| self.take_over(name))).await?;
        Ok(session.clone())
    }

    /// The same for a session that is opened with something that comes `before` it: nobody takes it in between.
    pub(crate) async fn session_once<E: From<BatchError>>(
        self: &Arc<Inner>,
        name: &str,
        before: impl Future<Output = Result<(), E>>,
    ) -> Result<Arc<Session>, E> {
        let cell = self.cell(name);
        let taking = cell.get_or_try_init(|| async {
            before.await?;
            Ok::<_, E>(self.take_over(name).await?)
        });
        Ok(Box::pin(taking).await?.clone())
    }

    /// Where the session of this name is, or will be.
    fn cell(&self, name: &str) -> Arc<OnceCell<Arc<Session>>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = sessions.get(name) {
            return cell.clone();
        }
        if sessions.len() as u64 >= self.limits.sessions_owned_max {
            self.let_go_of_idle(&mut sessions);
        }
        sessions.entry(name.to_string()).or_default().clone()
    }

    /// Lets go of the sessions that nobody uses.
    fn let_go_of_idle(&self, sessions: &mut Sessions) {
        // With calls that wait for the world outside it stays a worker's own.
        let waiting = self.worker.as_ref().map(|_| self.away.sessions());
        sessions.retain(|_, cell| {
            let is_used = self.is_in_use(cell);
            if let (false, Some(waiting), Some(session)) = (is_used, &waiting, cell.get())
                && !waiting.contains(&session.lane.session())
            {
                // Sent is enough: its place is behind all that was written here, and what is taken again comes behind it.
                drop(session.lane.send(Vec::new(), vec![worker::release()]));
            }
            is_used
        });
    }

    /// Forgets a session that was lost, unless something here holds on to it.
    fn forget_lost(&self, name: &str, lost: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match sessions.get(name).and_then(|cell| cell.get()) {
            Some(session) if Arc::ptr_eq(session, lost) && Arc::strong_count(session) > 1 => return false,
            Some(session) if Arc::ptr_eq(session, lost) => _ = sessions.remove(name),
            Some(_) | None => {}
        }
        true
    }

    /// Whether somebody else holds the session, or something of it must be in memory. Asked under the lock of the map, so
    /// nobody can begin to hold it in between.
    fn is_in_use(&self, cell: &Arc<OnceCell<Arc<Session>>>) -> bool {
        let can_go = |session: &Session| {
            let is_lost = self.worker.is_some() && session.lane.lost().is_some();
            is_lost || session.can_go(self)
        };
        let alone = |session: &Arc<Session>| Arc::strong_count(session) == 1 && can_go(session);
        // One that is not there and that nobody is taking could not be had.
        Arc::strong_count(cell) > 1 || cell.get().is_some_and(|session| !alone(session))
    }

    /// The session of this number.
    pub(crate) async fn session_by_no(self: &Arc<Inner>, no: SessionNo) -> Result<Arc<Session>, BatchError> {
        let row = self.store.session_by_no(no).await?;
        let unknown = || BatchError::Unreadable { what: format!("there is no session {no}") };
        self.session(&row.ok_or_else(unknown)?.name).await
    }

    /// Takes what was asked of a session's calls while nobody owned them: they hear it before they go on.
    async fn hear(self: &Arc<Inner>, session: &Arc<Session>) -> Result<(), BatchError> {
        if session.look_closed(self).await? {
            children::leave_word(&*self.store, session).await?;
        }
        ask::adopt(self, session).await?;
        stream::close_left(self, session).await
    }

    async fn take_over(self: &Arc<Inner>, name: &str) -> Result<Arc<Session>, BatchError> {
        let removing = removal::is_begun(self, name).await?;
        let bounds = Bounds::of(&*self.store, name).await?;
        let is_scheduled = schedules::is_scheduled(self, name).await?;
        let (session, mut left) = Session::acquire(self, name, bounds.child.as_ref()).await?;
        let limits = bounds.limits();
        if limits != SessionLimits::default() {
            self.turns.set_session(self, session.lane.session(), limits);
        }
        if let Some(settings) = removing {
            session.leave();
            removal::go_on(self, name, settings);
        }
        self.take_over_calls(left.len() as u64);
        // Before any call of the session goes on: what started holds what it claims, and nothing passes what was asked
        // before it.
        Turns::take_over(&mut left);
        if let Err(error) = self.hear(&session).await {
            let count = left.len() as u64;
            self.turns.leave(self, left.iter().map(|held| (held.id, false)));
            drop(left);
            self.closed(count + session.abandon(self));
            return Err(error);
        }
        let mut batches = left.into_iter().peekable();
        while let Some(first) = batches.next() {
            let (on, batch) = (first.on.clone(), first.id.batch);
            let mut calls = vec![first];
            while let Some(next) = batches.next_if(|next| next.id.batch == batch) {
                calls.push(next);
            }
            drive::start_all(&on, calls.into_iter()).await;
        }
        if is_scheduled {
            schedules::look_soon(self, &session.name);
        }
        Ok(session)
    }

    /// The sessions that this runtime owns, by name.
    pub(crate) fn owned(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut owned: Vec<_> = sessions.values().filter_map(|cell| cell.get().cloned()).collect();
        owned.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        owned
    }

    /// Forgets a session that was removed: the next use of its name opens another.
    pub(crate) fn let_go_of(&self, name: &str, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |cell: &Arc<OnceCell<Arc<Session>>>| cell.get().is_some_and(|kept| Arc::ptr_eq(kept, session));
        if sessions.get(name).is_some_and(is_it) {
            sessions.remove(name);
        }
    }

    /// The session of this name, if this runtime owns it.
    pub(crate) fn owned_session(&self, name: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(name).and_then(|cell| cell.get().cloned())
    }
}
