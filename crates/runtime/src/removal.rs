//! Removing a session for good: its calls are cancelled and waited for, then everything it had goes, in pieces.
//!
//! That it is to be removed is recorded first. Whoever owns the session next finds that and goes on: no piece needs to know
//! how far the last one came.

use crate::artifacts;
use crate::ask::{self, AskError, Target};
use crate::batch::Used;
use crate::children::Child;
use crate::error::{BatchError, Lost, chain};
use crate::files;
use crate::runtime::{Bounds, Inner, Runtime, check_session_name};
use crate::schedules;
use crate::session::Session;
use crate::stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::batch::ClosedBy;
use windlass_core::ids::{BatchNo, Ordinal, SessionNo};
use windlass_store::{Change, Hold, RecordPage, Removal, Removed, Row, STORE, Space};

/// How keys of records about sessions begin that are to be removed.
const REMOVING: &str = "removing/";
/// Why calls are cancelled.
const REASON: &str = "the session is removed";
/// Such records are looked through in pages of this size.
const PAGE: u64 = 100;

/// A session that is to be removed.
#[derive(Debug, Deserialize, Serialize)]
struct Mark {
    /// Its number: its name may be another's by the time somebody looks.
    session: u64,
    /// What is set for it, by keys of [`Space::Setting`]: it goes with it.
    settings: Vec<String>,
}

impl Runtime {
    /// Removes a session for good: its calls are cancelled and waited for; then its journal, messages, key-value pairs and
    /// artifacts go, and the records of [`Space::Setting`](windlass_store::Space::Setting) with these keys. That it is to be removed is durable before anything
    /// is: if the process dies, whoever owns the session next goes on. Handles of its calls lead nowhere afterwards, and its name
    /// can be used for a new one. `false`: there was no such session.
    pub async fn remove_session(&self, session: &str, settings: Vec<String>) -> Result<bool, AskError> {
        remove(&self.0, session, settings).await
    }

    /// How often what is set for a session was removed since this runtime was made: whoever remembers such records looks
    /// again when this has changed.
    pub fn removals(&self) -> u64 {
        self.0.removals.load(Ordering::Relaxed)
    }
}

/// Removes a session. `false`: there was none, or somebody else has removed it meanwhile.
pub(crate) async fn remove(rt: &Arc<Inner>, name: &str, settings: Vec<String>) -> Result<bool, AskError> {
    check_session_name(name)?;
    let is_known = rt.store.session(name).await.map_err(BatchError::from)?.is_some();
    if !is_known && rt.owned_session(name).is_none() {
        remove_children(rt, name).await?;
        forget(rt, name, settings).await?;
        return Ok(false);
    }
    let session = rt.session(name).await?;
    let _alone = session.removal.lock().await;
    if matches!(session.lane.lost(), Some(Lost::Removed)) {
        return Ok(false);
    }
    {
        // Whoever was admitted before is cancelled, and whoever comes now is not admitted.
        let _admission = session.admission.lock().await;
        session.leave();
    }
    // Whoever was opening a child has; whoever comes now does not.
    drop(session.children.lock().await);
    let mark = Mark { session: session.lane.session().0, settings };
    let value = serde_json::to_vec(&mark).unwrap_or_default().into();
    let row = Row::Put { space: Space::Setting, key: key(name), value };
    session.lane.commit_rows(vec![row]).await.map_err(BatchError::from)?;
    // Told first: whoever waits for a child must not take its end for an answer.
    ask::cancel(rt, Target::Session(name), Some(REASON)).await?;
    remove_children(rt, name).await?;
    end_all(rt, &session).await?;
    files::remove_session(rt, name).await.map_err(|error| AskError::Invalid { what: error.to_string() })?;
    artifacts::forget_session(rt, &session.lane).await?;
    remove_rows(rt, &session).await?;
    forget(rt, name, mark.settings).await?;
    schedules::forget(rt, name);
    rt.let_go_of(name, &session);
    rt.turns.forget_session(session.lane.session());
    rt.feeds.remove(name);
    Ok(true)
}

/// Removes the children of a session, each with its own. They are listed until they are gone, so whoever goes on finds the rest.
async fn remove_children(rt: &Arc<Inner>, name: &str) -> Result<(), AskError> {
    for child in Child::all(&*rt.store, name).await? {
        Box::pin(remove(rt, &child, Vec::new())).await?;
    }
    Ok(())
}

/// Whether an earlier owner began to remove the session of this name. What it finished is tidied up here.
pub(crate) async fn is_begun(rt: &Arc<Inner>, name: &str) -> Result<Option<Vec<String>>, BatchError> {
    let Some(record) = rt.store.record(STORE, Space::Setting, &key(name)).await? else { return Ok(None) };
    let mark: Mark = serde_json::from_slice(&record.value).map_err(|error| BatchError::Unreadable {
        what: format!("the record {:?} says nothing: {error}", record.key),
    })?;
    let row = rt.store.session(name).await?;
    if row.is_some_and(|row| row.no == SessionNo(mark.session)) {
        return Ok(Some(mark.settings));
    }
    forget(rt, name, mark.settings).await?;
    Ok(None)
}

/// Goes on with what an earlier owner began to remove, beside whatever else there is to do.
pub(crate) fn go_on(rt: &Arc<Inner>, session: &str, settings: Vec<String>) {
    let (weak, name) = (Arc::downgrade(rt), session.to_string());
    rt.tasks.spawn(async move {
        let Some(rt) = weak.upgrade() else { return };
        if let Err(error) = remove(&rt, &name, settings).await {
            let error = chain(&error);
            tracing::error!(session = %name, %error, "a session that is to be removed is still there; its next owner goes on");
        }
    });
}

/// Goes on with all that earlier owners began to remove. A session whose journal cannot be read stands still.
pub(crate) async fn go_on_with_all(rt: &Arc<Inner>) -> Result<(), BatchError> {
    for name in begun(rt).await? {
        match take(rt, &name).await {
            Err(error @ BatchError::Unreadable { .. }) => {
                tracing::error!(session = %name, error = %chain(&error), "a session cannot be removed");
            }
            Err(BatchError::Owned { .. }) => {}
            taken => taken?,
        }
    }
    Ok(())
}

/// Takes a session that is to be removed: whoever does goes on with that.
async fn take(rt: &Arc<Inner>, name: &str) -> Result<(), BatchError> {
    if is_begun(rt, name).await?.is_some() {
        rt.session(name).await?;
    }
    Ok(())
}

/// The sessions that an earlier owner began to remove.
async fn begun(rt: &Arc<Inner>) -> Result<Vec<String>, BatchError> {
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
            let _admission = session.admission.lock().await;
            stream::close(rt, session, batch, ClosedBy::Caller).await?;
        }
        // Again in every round: what was called from inside a call meanwhile has not heard it.
        ask::cancel(rt, Target::Session(&session.name), Some(REASON)).await?;
        let listed = rt.store.open_batches(Some(session.lane.session())).await.map_err(BatchError::from)?;
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
            batch.ended(all, &session.lane).await.map_err(BatchError::from)?;
        }
        tokio::task::yield_now().await;
    }
}

/// Removes what the store has of it, in pieces between which others write.
async fn remove_rows(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), BatchError> {
    // Nothing may be sent any more; what was is before the first piece.
    session.lane.lose(Lost::Removed);
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

/// Forgets what is set for a session, and that it was to be removed.
async fn forget(rt: &Arc<Inner>, name: &str, settings: Vec<String>) -> Result<(), BatchError> {
    let own = [Bounds::key(name), schedules::marker(name), key(name)];
    let child = Child::of(&*rt.store, name).await?;
    let of_child =
        child.iter().flat_map(|child| child.settings().iter().cloned().chain([child.listed_as(name)]));
    let keys = settings.into_iter().chain(of_child).chain(own);
    let rows = keys.map(|key| Row::Remove { space: Space::Setting, key }).collect();
    let change = Change { session: STORE, hold: Hold::Store, guards: Vec::new(), rows };
    let answers = rt.store.commit(vec![change]).await?;
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(Lost::Refused)?;
    rt.removals.fetch_add(1, Ordering::Relaxed);
    if let Some(parent) = child.and_then(|child| rt.owned_session(&child.parent)) {
        // Counted anew when the next is opened.
        *parent.children.lock().await = None;
    }
    Ok(())
}

fn key(name: &str) -> String {
    format!("{REMOVING}{name}")
}
