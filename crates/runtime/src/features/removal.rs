//! Removing a session permanently: its calls are cancelled and waited for, then all its data is removed, in pieces.
//!
//! The removal is recorded first. The next owner of the session finds the mark and continues: no piece needs to know
//! how far the last one came. A name is never free in between: the session's row has it until the last piece, then the
//! mark, and the change that removes the mark writes the hash that reserves the name.

use crate::api::error::{Lost, SessionError, chain};
use crate::features::children::ChildCount;
use crate::features::files;
use crate::features::schedules;
use crate::mailbox::ask::{self, AskError, Target};
use crate::path::stream;
use crate::session::artifacts;
use crate::session::batch::Used;
use crate::session::bounds::Bounds;
use crate::session::inner::{Inner, Runtime};
use crate::session::kin::Child;
use crate::session::owner::Session;
use crate::session::principal::{self, SessionStanding};
use crate::session::removing::{REMOVING, RemovalMark, key};
use crate::tools::request::check_session_name;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::batch::ClosedBy;
use windlass_core::ids::{BatchNo, Ordinal, SessionNo};
use windlass_store::{Change, Hold, RecordPage, Removal, Removed, Row, STORE, Space, gone_key, gone_value};

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
    let mark = mark(rt, &session);
    let value = serde_json::to_vec(&mark).unwrap_or_default().into();
    let row = Row::Put { space: Space::Setting, key: key(name), value };
    session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
    // Cancelled first: a caller that waits for a child must not take its end for an answer.
    ask::cancel(rt, Target::Session(name), Some(REASON)).await?;
    remove_children(rt, name).await?;
    end_all(rt, &session).await?;
    files::remove_session(rt, &session).await.map_err(|error| AskError::FilesLeft { what: chain(&error) })?;
    // Nothing may be sent any more; everything sent comes before the following writes.
    session.lane.lose(Lost::Removed);
    artifacts::forget_session(rt, &session.lane).await?;
    remove_rows(rt, &session).await?;
    forget(rt, name, mark).await?;
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
        SessionStanding::Gone(_) => {
            // The last owner may have been cut off before it removed the mark.
            is_begun(rt, name).await?;
            Ok(false)
        }
        // Older versions wrote files and opened children without a record of the session.
        SessionStanding::Unused => {
            let has_children = !Child::page(&*rt.store, name, None, 1).await?.is_empty();
            Ok(has_children || files::has_folder(rt, name))
        }
    }
}

/// The removal mark of a session.
fn mark(rt: &Inner, session: &Session) -> RemovalMark {
    let (name, principal) = (&*session.name, session.principal.as_deref());
    RemovalMark {
        session: session.lane.session().0,
        settings: Vec::new(),
        gone: Some(gone_value(rt.store.secret(), name, principal)),
        parent: session.kin.as_ref().map(|kin| kin.child.parent.clone()),
    }
}

/// Removes the children of a session, each with its own. They are listed until they are gone, so the next owner finds the rest.
async fn remove_children(rt: &Arc<Inner>, name: &str) -> Result<(), AskError> {
    for child in Child::all(&*rt.store, name).await? {
        let kin = Child::of(&*rt.store, &child).await?;
        if kin.is_some_and(|kin| kin.parent == name) {
            Box::pin(remove(rt, &child)).await?;
        }
        // The opener may have been cut off after it listed the child and before it opened it.
        let row = Row::Remove { space: Space::Setting, key: Child::listed_as(name, &child) };
        write(rt, vec![row]).await?;
    }
    Ok(())
}

/// Whether an earlier owner began to remove the session of this name. Remains of a finished removal are cleaned up here.
pub(crate) async fn is_begun(rt: &Arc<Inner>, name: &str) -> Result<bool, SessionError> {
    let Some(mark) = RemovalMark::of(&*rt.store, name).await? else { return Ok(false) };
    let row = rt.store.session(name).await?;
    if row.is_some_and(|row| row.no == SessionNo(mark.session)) {
        return Ok(true);
    }
    forget(rt, name, mark).await?;
    Ok(false)
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
        match take(rt, &name).await {
            Err(error @ SessionError::Unreadable { .. }) => {
                tracing::error!(session = %name, error = %chain(&error), "a session cannot be removed");
            }
            Err(SessionError::Owned { .. }) => {}
            taken => taken?,
        }
    }
    Ok(())
}

/// Takes a session that is being removed, which continues the removal.
async fn take(rt: &Arc<Inner>, name: &str) -> Result<(), SessionError> {
    if is_begun(rt, name).await? {
        rt.session(name).await?;
    }
    Ok(())
}

/// The sessions that an earlier owner began to remove.
async fn begun(rt: &Arc<Inner>) -> Result<Vec<String>, SessionError> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().map(|name| key(name));
        let (session, space, prefix) = (STORE, Space::Setting, REMOVING);
        let page = RecordPage { session, space, prefix, after: after.as_deref(), limit: PAGE };
        let found = rt.store.records(page).await?;
        if found.is_empty() {
            return Ok(names);
        }
        names.extend(found.iter().filter_map(|record| record.key.strip_prefix(REMOVING)).map(str::to_string));
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

/// Removes the store-wide records of a session and its mark, and reserves its name.
async fn forget(rt: &Arc<Inner>, name: &str, mark: RemovalMark) -> Result<(), SessionError> {
    let value = mark.hash(&*rt.store, name).await?.as_slice().into();
    let gone = Row::Put { space: Space::Gone, key: gone_key(rt.store.secret(), name), value };
    let older = Bounds::kept(&*rt.store, None, name).await?.child;
    let put_with_it = older.iter().flat_map(|child| child.settings().iter().cloned());
    let own = [Bounds::older_key(name), schedules::older_marker(name), key(name)];
    let parent = mark.parent.or_else(|| older.as_ref().map(|child| child.parent.clone()));
    let listed = parent.as_ref().map(|parent| Child::listed_as(parent, name));
    let apart = principal::older_keys(&*rt.store, name).await?;
    let keys = mark.settings.iter().cloned().chain(apart).chain(put_with_it).chain(listed).chain(own);
    let gone = (!windlass_core::mutant::breaks("name-reused")).then_some(gone);
    let rows = keys.map(|key| Row::Remove { space: Space::Setting, key }).chain(gone).collect();
    write(rt, rows).await?;
    rt.slots.of::<Removals>().0.fetch_add(1, Ordering::Relaxed);
    if let Some(parent) = parent.and_then(|parent| rt.owned_session(&parent)) {
        // Counted again when the next child is opened.
        *parent.slots.of::<ChildCount>().0.lock().await = None;
    }
    Ok(())
}

/// Writes records of the whole store.
async fn write(rt: &Inner, rows: Vec<Row>) -> Result<(), SessionError> {
    let change = Change { session: STORE, hold: Hold::Store, guards: Vec::new(), rows };
    let answers = rt.store.commit(vec![change]).await?;
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(Lost::Refused)?;
    Ok(())
}
