//! Removing a session permanently: its calls are cancelled and waited for, then all its data is removed, in pieces.
//!
//! The removal is recorded first. The next owner of the session finds the mark and continues: no piece needs to know
//! how far the last one came. A name is never free in between: the session's row has it until the last piece, with which the
//! store writes the hash that reserves the name.

use crate::api::error::{Lost, SessionError, chain};
use crate::features::children::ChildCount;
use crate::features::files;
use crate::features::schedules;
use crate::mailbox::ask::{self, AskError, Target};
use crate::path::stream;
use crate::session::batch::Used;
use crate::session::inner::{Inner, Runtime};
use crate::session::kin::Child;
use crate::session::owner::Session;
use crate::session::principal::SessionStanding;
use crate::session::removing;
use crate::tools::request::check_session_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::batch::ClosedBy;
use windlass_core::ids::{BatchNo, Ordinal};
use windlass_store::{Removal, Removed, Space};

/// The reason of the cancellation.
const REASON: &str = "the session is removed";
/// The page size for reading such records.
const PAGE: u64 = 100;

/// Held while removing a session.
#[derive(Default)]
struct RemovalLock(tokio::sync::Mutex<()>);

/// The number of removed sessions.
#[derive(Default)]
struct Removals(AtomicU64);

impl Runtime {
    /// Removes a session permanently: its calls are cancelled and waited for; then its journal, messages,
    /// key-value pairs, files and artifacts are removed, and its children. The mark of the removal is durable
    /// first: if the process dies, the next owner of the session continues. Handles of its calls lead nowhere
    /// afterwards, and its name is not used again: [`SessionError::Gone`](crate::error::SessionError::Gone). Only hashes of its name and
    /// its principal stay. `false`: there was no such session, or it was removed before.
    pub async fn remove_session(&self, session: &str) -> Result<bool, AskError> {
        remove(&self.0, session).await
    }

    /// The number of sessions removed since this runtime was made: caches of sessions are stale when it
    /// changes.
    pub fn removals(&self) -> u64 {
        self.0.slots.of::<Removals>().0.load(Ordering::Relaxed)
    }
}

/// Removes a session. `false`: there was none, or another task has removed it meanwhile.
pub(crate) async fn remove(rt: &Arc<Inner>, name: &str) -> Result<bool, AskError> {
    check_session_name(name)?;
    if rt.owned_session(name).is_none() && !is_there(rt, name).await? {
        return Ok(false);
    }
    let session = match rt.session(name).await {
        Err(SessionError::Gone { .. }) => return Ok(false),
        session => session?,
    };
    let alone = session.slots.of::<RemovalLock>();
    let _alone = alone.0.lock().await;
    if matches!(session.lane.lost(), Some(Lost::Removed)) {
        return Ok(false);
    }
    {
        // Calls admitted before are cancelled, and later ones are not admitted.
        let _admission = session.admit().await;
        session.begin_removal();
    }
    // Earlier openings of children are done; later ones are refused.
    drop(session.slots.of::<ChildCount>().0.lock().await);
    session.lane.commit_rows(vec![removing::mark()]).await.map_err(SessionError::from)?;
    // Cancelled first: a caller that waits for a child must not take its end for an answer.
    ask::cancel(rt, Target::Session(name), Some(REASON)).await?;
    remove_children(rt, &session).await?;
    end_all(rt, &session).await?;
    files::remove_session(rt, &session).await.map_err(|error| AskError::FilesLeft { what: chain(&error) })?;
    // Nothing may be sent any more; everything sent comes before the following writes.
    session.lane.lose(Lost::Removed);
    remove_rows(rt, &session).await?;
    rt.slots.of::<Removals>().0.fetch_add(1, Ordering::Relaxed);
    if let Some(kin) = &session.kin {
        unlist(rt, &kin.child.parent, name).await;
    }
    schedules::forget(rt, name);
    rt.let_go_of(name, &session);
    rt.turns.forget_session(session.lane.session());
    rt.feeds.remove(name);
    Ok(true)
}

/// Whether there is something to remove under this name.
async fn is_there(rt: &Arc<Inner>, name: &str) -> Result<bool, AskError> {
    match SessionStanding::of(&*rt.store, name).await? {
        SessionStanding::Present { .. } => Ok(true),
        SessionStanding::Gone(_) => Ok(false),
        // Older versions wrote files without a record of the session.
        SessionStanding::Unused => Ok(files::has_folder(rt, name)),
    }
}

/// Removes the children of a session, each with its own. They are listed until they are gone, so the next owner finds the rest.
async fn remove_children(rt: &Arc<Inner>, session: &Session) -> Result<(), AskError> {
    for child in Child::all(&*rt.store, &session.name).await? {
        let kin = Child::of(&*rt.store, &child).await?;
        if kin.is_some_and(|kin| *kin.parent == *session.name) {
            Box::pin(remove(rt, &child)).await?;
        }
        // The opener may have been cut off after it listed the child and before it opened it.
        let unlisted = session.lane.commit_rows(vec![Child::unlisted(&child)]).await;
        unlisted.map_err(SessionError::from)?;
    }
    Ok(())
}

/// A session that is gone is no child any more. Where its parent is another worker's, or cannot be written to, its name stays listed:
/// whoever reads the list looks at the session.
async fn unlist(rt: &Arc<Inner>, parent: &str, child: &str) {
    let Ok(Some(_)) = rt.store.session(parent).await else { return };
    let Ok(parent) = rt.session(parent).await else { return };
    let _unlisted = parent.lane.commit_rows(vec![Child::unlisted(child)]).await;
    // Counted again when the next child is opened.
    *parent.slots.of::<ChildCount>().0.lock().await = None;
}

/// Whether an earlier owner began to remove the session of this name.
pub(crate) async fn is_begun(rt: &Arc<Inner>, name: &str) -> Result<bool, SessionError> {
    match rt.store.session(name).await? {
        Some(row) => removing::is_marked(&*rt.store, row.no).await,
        None => Ok(false),
    }
}

/// Continues an earlier owner's removal, in the background.
pub(crate) fn go_on(rt: &Arc<Inner>, session: &str) {
    let (weak, name) = (Arc::downgrade(rt), session.to_string());
    rt.tasks.spawn(async move {
        let Some(rt) = weak.upgrade() else { return };
        if let Err(error) = remove(&rt, &name).await {
            let error = chain(&error);
            tracing::error!(session = %name, %error, "a session could not be removed; its next owner continues");
        }
    });
}

/// Continues all removals that earlier owners began. A session whose journal cannot be read stands still.
pub(crate) async fn go_on_with_all(rt: &Arc<Inner>) -> Result<(), SessionError> {
    for name in begun(rt).await? {
        if is_begun(rt, &name).await? {
            // Taking it continues the removal.
            rt.left_session(&name).await?;
        }
    }
    Ok(())
}

/// The sessions that an earlier owner began to remove.
async fn begun(rt: &Arc<Inner>) -> Result<Vec<String>, SessionError> {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let found = rt.store.sessions_with(Space::Removing, after, PAGE).await?;
        let Some(last) = found.last() else { return Ok(names) };
        after = Some(last.no);
        names.extend(found.into_iter().map(|row| row.name));
    }
}

/// Cancels all calls and waits until they have ended.
async fn end_all(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), AskError> {
    loop {
        let here = session.open_batches();
        for batch in &here {
            let _admission = session.admit().await;
            stream::close(rt, session, batch, ClosedBy::Caller).await?;
        }
        // Again in every round: calls made inside a call meanwhile have not received it.
        ask::cancel(rt, Target::Session(&session.name), Some(REASON)).await?;
        let listed = rt.store.open_batches(Some(session.lane.session())).await.map_err(SessionError::from)?;
        let mut open: BTreeMap<BatchNo, Option<Used>> = listed.iter().map(|row| (row.no, None)).collect();
        open.extend(here.into_iter().map(|batch| (batch.head.no, Some(batch))));
        if open.is_empty() && session.open_batches().is_empty() {
            return Ok(());
        }
        for (no, batch) in open {
            let batch = match batch {
                Some(batch) => Some(batch),
                None => session.find_away(rt, no).await?,
            };
            let Some(batch) = batch else { continue };
            let all = (0..batch.len() as u16).map(Ordinal);
            batch.ended(all, &session.lane).await.map_err(SessionError::from)?;
        }
        tokio::task::yield_now().await;
    }
}

/// Removes its rows from the store, in pieces between which others write.
async fn remove_rows(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    rt.feeds.remove(&session.name);
    let (no, fence, most) = (session.lane.session(), session.lane.fence(), rt.limits.removed_rows_max);
    loop {
        let removed = rt.store.remove(Removal { session: no, fence, most }).await?;
        match removed.map_err(Lost::Refused)? {
            Removed::Piece => {}
            Removed::All => return Ok(()),
        }
    }
}
