//! Answers of batches whose records have expired.

use crate::api::answer::CallAnswer;
use crate::api::error::BatchError;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::request::RecordedRequest;
use std::sync::Arc;
use windlass_core::call::Call;
use windlass_core::failure::Failure;
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};

/// The answers of a batch whose record has expired: each of its calls was answered before, and none is run. Places in the batch are
/// those of this submission, since the recorded ones are gone; every handle of the batch is answered in the same way.
pub(super) async fn expired(
    rt: &Arc<Inner>,
    session: &Session,
    key: &str,
    calls: Vec<RecordedRequest>,
) -> Result<Vec<CallAnswer>, BatchError> {
    let row = rt.store.batch(Lookup::of(session.lane.session(), key)).await?;
    let (batch, at) = (row.map_or(BatchNo(0), |row| row.no), rt.clock.now());
    let answer = |(asked, place): (RecordedRequest, u16)| CallAnswer {
        id: CallId { batch, ordinal: Ordinal(place) },
        store: rt.store.clone(),
        call: Arc::new(Call::new(asked.opened, at)),
        recorded: true,
        conflict: Some(Box::new(Failure::expired())),
        parent: None,
    };
    Ok(calls.into_iter().zip(0..).map(answer).collect())
}
