//! Reading journals: the rows of a batch, and the state they fold to.

use crate::api::error::SessionError;
use std::error::Error;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Fact};
use windlass_core::entry::{self, Entry, EntryEvent};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::time::Timestamp;
use windlass_store::{JournalRow, SessionRow, Store};

/// Folds the rows of a batch's journal.
pub(crate) fn fold(rows: &[JournalRow]) -> Result<Batch, SessionError> {
    Batch::fold(&entries(rows)?).map_err(|broken| match rows.first() {
        Some(row) => unreadable(row, broken),
        None => SessionError::unreadable("a batch has no entries"),
    })
}

/// The rows of a batch that was found in the record. `None`: its session was removed meanwhile.
pub(crate) async fn rows_of(
    store: &dyn Store,
    batch: BatchNo,
) -> Result<Option<Vec<JournalRow>>, SessionError> {
    let rows = store.journal(batch).await?;
    if !rows.is_empty() {
        return Ok(Some(rows));
    }
    check_kept(store, CallId { batch, ordinal: Ordinal(0) }).await?;
    match store.batch_by_no(batch).await? {
        Some(_) => Err(SessionError::unreadable("a batch has no entries")),
        None => Ok(None),
    }
}

/// The entries of a journal.
pub(crate) fn entries(rows: &[JournalRow]) -> Result<Vec<Entry>, SessionError> {
    let mut entries = Vec::new();
    for row in rows {
        entries.extend(entry::unpack(&row.data).map_err(|problem| unreadable(row, problem))?);
    }
    Ok(entries)
}

/// Damage in this row of a journal.
pub(crate) fn unreadable(row: &JournalRow, cause: impl Error + Send + Sync + 'static) -> SessionError {
    SessionError::undecodable(format!("entry {} of session {}", row.first, row.session), cause)
}

/// A call by its number, as recorded, and the key of its batch.
pub(crate) async fn find_id(
    store: &dyn Store,
    id: CallId,
) -> Result<Option<(SessionRow, Call, Arc<str>)>, SessionError> {
    let rows = store.journal(id.batch).await?;
    let Some(first) = rows.first() else {
        check_kept(store, id).await?;
        return Ok(None);
    };
    let session = store.session_by_no(first.session).await?;
    let mut batch = fold(&rows)?;
    let place = usize::from(id.ordinal.0);
    let call = (place < batch.calls.len()).then(|| batch.calls.swap_remove(place));
    Ok(session.zip(call).map(|(session, call)| (session, call, batch.opening.key)))
}

/// When a cancellation of a call was first requested. Few are asked for, so no call keeps this in memory.
pub(crate) async fn cancel_asked_at(
    store: &dyn Store,
    id: CallId,
) -> Result<Option<Timestamp>, SessionError> {
    let all = entries(&store.journal(id.batch).await?)?;
    let asked = all.iter().find(|entry| match &entry.event {
        EntryEvent::Call { ordinal, fact } => *ordinal == id.ordinal && matches!(fact, Fact::CancelAsked(_)),
        EntryEvent::Batch(_)
        | EntryEvent::Closed(_)
        | EntryEvent::Answered(_)
        | EntryEvent::ClockMoved(_) => false,
    });
    Ok(asked.map(|entry| entry.at))
}

/// Folds the batch of this number, if there is one.
pub(crate) async fn read_batch(store: &dyn Store, batch: BatchNo) -> Result<Option<Batch>, SessionError> {
    let rows = store.journal(batch).await?;
    if rows.is_empty() {
        check_kept(store, CallId { batch, ordinal: Ordinal(0) }).await?;
        return Ok(None);
    }
    Ok(Some(fold(&rows)?))
}

/// Refuses a call without rows whose batch has expired. One that never was, or whose session is gone, passes.
pub(crate) async fn check_kept(store: &dyn Store, call: CallId) -> Result<(), SessionError> {
    match store.batch_by_no(call.batch).await? {
        Some(row) if row.expired => {
            let handle = Handle::seal(store.secret(), HandleKind::Call, call.packed());
            Err(SessionError::Expired { what: format!("call {handle}") })
        }
        Some(_) | None => Ok(()),
    }
}
