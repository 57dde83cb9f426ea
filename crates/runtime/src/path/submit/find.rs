//! Finds the batch under a key, in memory or in the record, or makes a new one.

use crate::api::error::{BatchError, SessionError};
use crate::session::admission::Admission;
use crate::session::batch::{BatchHead, OpenBatch, Used};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use crate::tools::request::ShapedBatch;
use std::sync::Arc;
use windlass_core::ids::{BatchNo, Lookup};
use windlass_store::{BatchRow, Sequence};

/// The batch under this key, from memory or from its journal, or a new one.
pub(crate) async fn find_or_make(
    rt: &Arc<Inner>,
    admission: &Admission<'_>,
    checked: &ShapedBatch,
    key: &Arc<str>,
) -> Result<Used, BatchError> {
    let session = admission.session();
    if let Some(lost) = session.lane.lost() {
        return Err(lost.into());
    }
    let lookup = Lookup::of(session.lane.session(), key);
    match session.find(lookup) {
        Some(open) => Ok(open),
        None => load_or_make(rt, admission, lookup, checked, key).await,
    }
}

/// The recorded batch under this look-up, or a new one.
async fn load_or_make(
    rt: &Arc<Inner>,
    admission: &Admission<'_>,
    lookup: Lookup,
    checked: &ShapedBatch,
    key: &Arc<str>,
) -> Result<Used, BatchError> {
    let session = admission.session();
    let (no, fence) = (session.lane.session(), session.lane.fence());
    let recorded = if rt.store.is_new(no, fence, lookup) { None } else { rt.store.batch(lookup).await? };
    let batch = match recorded {
        Some(row) if row.expired => {
            return Err(SessionError::Expired { what: format!("the batch {key:?}") }.into());
        }
        // Nobody waited for it any more, and it left memory.
        Some(row) if let Some(fetched) = Box::pin(Session::fetch(admission, rt, row.no)).await? => {
            return Ok(fetched);
        }
        Some(row) => Box::pin(load(rt, session, row)).await?,
        None => {
            checked.check_quorum(&rt.limits)?;
            let head = BatchHead {
                no: BatchNo(rt.store.reserve(Sequence::Batch, 1).await?),
                lookup,
                place: Arc::new(BatchPlace::new(session.name.clone(), key.clone(), checked.inputs.clone())),
                turn: checked.turn.clone(),
                siblings: checked.siblings,
                streamed: checked.streamed,
                parent: checked.parent,
                wake: checked.wake,
                trace: checked.trace.clone(),
                task_deadlines: checked.task_deadlines,
                opened_at: rt.wheel.look(),
            };
            OpenBatch::new(head, checked.calls.len(), &rt.wheel)
        }
    };
    Ok(session.insert(batch))
}

/// A batch that is recorded, and over.
async fn load(rt: &Inner, session: &Session, row: BatchRow) -> Result<OpenBatch, SessionError> {
    let (folded, rows) = session.read(&row).await?;
    // Open batches were taken over with the session; nobody would ever end this one.
    if folded.is_open() {
        let what = format!("session {}: an open batch is not listed as open", session.lane.session());
        return Err(SessionError::unreadable(what));
    }
    Ok(OpenBatch::recorded(session.head(&row, &folded)?, &folded, rows, &rt.wheel))
}
