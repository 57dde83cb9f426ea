//! The sessions that a runtime owns.

use crate::api::error::{Lost, SessionError, chain};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::owners::{AfterLoss, WokenBy};
use crate::session::principal::SessionRecords;
use crate::tools::request::check_session_name;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::OnceCell;
use windlass_core::ids::SessionNo;

/// The sessions of a runtime, by name, including those being taken.
pub(crate) type OwnedSessions = HashMap<String, Arc<OnceCell<Arc<Session>>>>;

impl Inner {
    /// The session of this name, opened or taken over by its first use.
    pub(crate) async fn session(self: &Arc<Inner>, name: &str) -> Result<Arc<Session>, SessionError> {
        check_session_name(name)?;
        let cell = self.cell(name);
        if let Some(session) = cell.get() {
            let Some(lost) = session.lane.lost().filter(|lost| self.may_take_again(lost)) else {
                return Ok(session.clone());
            };
            // A lost session may be taken again once nothing of it is left in memory.
            if !self.forget_lost(name, session) {
                return Err(lost.into());
            }
            drop(cell);
            return Box::pin(self.session(name)).await;
        }
        // Boxed, so that calls of an owned session need no space for it.
        let session =
            Box::pin(cell.get_or_try_init(|| (self.plugs.open_or_take)(self, name, SessionRecords::local())))
                .await?;
        // Its lease may have ended while it was taken.
        match session.lane.lost().filter(|lost| self.may_take_again(lost)) {
            Some(lost) => Err(lost.into()),
            None => Ok(session.clone()),
        }
    }

    /// A session with unfinished work, taken unless another worker has it or somebody removed it. One that cannot be read stands
    /// still: `None` too.
    pub(crate) async fn left_session(
        self: &Arc<Inner>,
        name: &str,
    ) -> Result<Option<Arc<Session>>, SessionError> {
        loop {
            match self.session(name).await {
                Ok(session) => return Ok(Some(session)),
                Err(error @ SessionError::Unreadable { .. }) => {
                    tracing::error!(session = %name, error = %chain(&error), "a session stands still");
                    return Ok(None);
                }
                Err(SessionError::Owned { .. } | SessionError::Gone { .. }) => return Ok(None),
                Err(SessionError::Lost(Lost::Removed | Lost::Refused(_))) if self.owners.has_others() => {
                    return Ok(None);
                }
                // It is tried for again under the next lease.
                Err(SessionError::Lost(Lost::Lease)) => {
                    let pause_us = self.limits.knock_ms.saturating_mul(1_000);
                    self.wheel.until(self.clock.elapsed_us().saturating_add(pause_us)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The session of this name, recorded when this returns; a new one with this opening, after `before`. No
    /// other task takes it in between. Returns whether it is new.
    pub(crate) async fn open_session<E: From<SessionError>>(
        self: &Arc<Inner>,
        name: &str,
        opening: SessionRecords,
        before: impl Future<Output = Result<(), E>>,
    ) -> Result<(Arc<Session>, bool), E> {
        check_session_name(name)?;
        if self.store.session(name).await.map_err(SessionError::from)?.is_some() {
            let session = self.session(name).await?;
            session.check_stays().map_err(SessionError::from)?;
            return Ok((session, false));
        }
        let cell = self.cell(name);
        let mut is_new = false;
        let taking = cell.get_or_try_init(|| async {
            before.await?;
            let session = (self.plugs.open_or_take)(self, name, opening).await?;
            if session.is_new {
                session.lane.commit_rows(Vec::new()).await.map_err(SessionError::from)?;
                is_new = true;
            }
            Ok::<_, E>(session)
        });
        let session = Box::pin(taking).await?.clone();
        session.check_stays().map_err(SessionError::from)?;
        if session.is_new && !is_new {
            // It may have been used here without a record yet.
            session.lane.commit_rows(Vec::new()).await.map_err(SessionError::from)?;
        }
        Ok((session, is_new))
    }

    /// The cell of the session of this name.
    fn cell(&self, name: &str) -> Arc<OnceCell<Arc<Session>>> {
        let mut sessions = self.sessions.lock();
        if let Some(cell) = sessions.get(name) {
            return cell.clone();
        }
        if sessions.len() as u64 >= self.limits.sessions_owned_max {
            self.let_go_of_idle(&mut sessions);
        }
        sessions.entry(name.to_string()).or_default().clone()
    }

    /// Releases the sessions that nobody uses, for other workers.
    pub(crate) fn release_idle(&self) {
        self.let_go_of_idle(&mut self.sessions.lock());
    }

    /// Releases the sessions that nobody uses.
    fn let_go_of_idle(&self, sessions: &mut OwnedSessions) {
        let can_go = |session: &Session| match session.lane.lost() {
            Some(lost) if self.may_take_again(&lost) => {
                self.has_forgotten_lost.store(true, Ordering::SeqCst);
                true
            }
            Some(_) | None => session.can_go(self),
        };
        let alone = |session: &Arc<Session>| Arc::strong_count(session) == 1 && can_go(session);
        let waiting = match self.owners.wake() {
            WokenBy::ThisProcess => BTreeSet::new(),
            WokenBy::ItsOwner => self.away.sessions(),
        };
        sessions.retain(|_, cell| {
            // One that is not there and that nobody is taking could not be had.
            let is_used = Arc::strong_count(cell) > 1 || cell.get().is_some_and(|session| !alone(session));
            if let (false, Some(release), Some(session)) = (is_used, self.owners.release(), cell.get())
                && !waiting.contains(&session.lane.session())
            {
                // Sending is enough: it comes after everything written here, and a new taking comes after it.
                drop(session.lane.send(Vec::new(), vec![release]));
            }
            is_used
        });
    }

    fn may_take_again(&self, lost: &Lost) -> bool {
        self.owners.lost(lost) == AfterLoss::TakenAgain
    }

    /// Whether somebody else may write to a session that is being taken: another worker, or a session that was lost here.
    pub(crate) fn may_meet_others(&self) -> bool {
        self.owners.has_others() || self.has_forgotten_lost.load(Ordering::SeqCst)
    }

    /// Forgets a lost session, unless something here holds it.
    fn forget_lost(&self, name: &str, lost: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock();
        match sessions.get(name).and_then(|cell| cell.get()) {
            Some(session) if Arc::ptr_eq(session, lost) && Arc::strong_count(session) > 1 => return false,
            Some(session) if Arc::ptr_eq(session, lost) => {
                self.has_forgotten_lost.store(true, Ordering::SeqCst);
                sessions.remove(name);
            }
            Some(_) | None => {}
        }
        true
    }

    /// The session of this number.
    pub(crate) async fn session_by_no(
        self: &Arc<Inner>,
        no: SessionNo,
    ) -> Result<Arc<Session>, SessionError> {
        let row = self.store.session_by_no(no).await?;
        let unknown = || SessionError::NotFound { session: no.to_string() };
        self.session(&row.ok_or_else(unknown)?.name).await
    }

    /// The sessions that this runtime owns, by name.
    pub(crate) fn owned(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock();
        let mut owned: Vec<_> = sessions.values().filter_map(|cell| cell.get().cloned()).collect();
        owned.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        owned
    }

    /// How many sessions are in memory.
    pub(crate) fn sessions_in_memory(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Forgets a removed session.
    pub(crate) fn let_go_of(&self, name: &str, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock();
        let is_it =
            |cell: &Arc<OnceCell<Arc<Session>>>| cell.get().is_some_and(|kept| Arc::ptr_eq(kept, session));
        if sessions.get(name).is_some_and(is_it) {
            sessions.remove(name);
        }
    }

    /// The session of this name, if this runtime owns it.
    pub(crate) fn owned_session(&self, name: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        sessions.get(name).and_then(|cell| cell.get().cloned())
    }
}
