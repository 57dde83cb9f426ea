//! Decides whether a batch may expire, and what goes with it.

use crate::api::error::{SessionError, chain};
use crate::api::journal::{entries, fold};
use crate::session::artifacts;
use crate::session::inner::Inner;
use crate::session::log;
use crate::session::notices::{KeptNotice, no_task_row};
use crate::session::owner::Session;
use std::collections::HashSet;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::call::Call;
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_store::{Guard, RecordPage, Row, Space, StoreError};

/// The page size for reading notices.
const PAGE: u64 = 256;

/// The fate of a batch.
pub(super) enum ExpiryVerdict {
    /// It expires, with these rows beside its own.
    Due {
        /// The rows that remove what belongs to its calls.
        with: Vec<Row>,
        /// Conditions on them.
        guard: Vec<Guard>,
    },
    /// It is due, and must stay for now.
    Held,
    /// It is not due; it was opened so long ago.
    Young {
        /// The time since it was opened.
        age_us: u64,
    },
}

/// Judges the batches of a session. The caller holds the session's admission, so none of them changes meanwhile.
pub(super) struct ExpiryJudge<'a> {
    rt: &'a Arc<Inner>,
    session: &'a Arc<Session>,
    /// The batches about which the session still has notices.
    noticed: HashSet<BatchNo>,
    /// Whether the call that opened this child session is open: it may be replayed, and ask for all of them again.
    is_opener_open: bool,
}

impl<'a> ExpiryJudge<'a> {
    pub(super) async fn new(
        rt: &'a Arc<Inner>,
        session: &'a Arc<Session>,
    ) -> Result<ExpiryJudge<'a>, SessionError> {
        let is_opener_open = match session.opener() {
            Some(opener) => is_open(rt, opener).await?,
            None => false,
        };
        Ok(ExpiryJudge { rt, session, noticed: noticed(rt, session).await?, is_opener_open })
    }

    /// Judges a batch by its age, or because its session is too large.
    pub(super) async fn batch(
        &self,
        no: BatchNo,
        age_us: Option<u64>,
        by_size: bool,
    ) -> Result<ExpiryVerdict, SessionError> {
        let (rt, session) = (self.rt, self.session);
        let row = rt.store.batch_by_no(no).await?;
        let is_closed = row.is_some_and(|row| !row.open && row.session == session.lane.session());
        if !is_closed || session.find_no(no).is_some() || rt.away.has(no) {
            return Ok(ExpiryVerdict::Held);
        }
        let rows = match rt.store.journal(no).await {
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(session = %session.name, error = %chain(&error), "a damaged batch does not expire");
                return Ok(ExpiryVerdict::Held);
            }
            rows => rows?,
        };
        let (folded, last) = (fold(&rows)?, entries(&rows)?.last().map(|entry| entry.at).unwrap_or_default());
        if !by_size && age_us.is_none_or(|age_us| rt.wheel.age_us(last) < age_us) {
            return Ok(ExpiryVerdict::Young { age_us: rt.wheel.age_us(folded.opened_at) });
        }
        if self.is_opener_open || self.noticed.contains(&no) || self.is_needed(&folded).await? {
            return Ok(ExpiryVerdict::Held);
        }
        self.due(no, &folded).await
    }

    /// Whether somebody still needs its record.
    async fn is_needed(&self, batch: &Batch) -> Result<bool, SessionError> {
        if batch.is_open() {
            return Ok(true);
        }
        if !self.rt.retention.unknown_too
            && batch.calls.iter().any(|call| call.end().is_some_and(|end| end.is_unknown()))
        {
            return Ok(true);
        }
        // Its duplicates get its answer.
        let within = |call: &Call| {
            let same = call.dedupe.as_ref().map(|dedupe| dedupe.same);
            let window_us = same.and_then(|same| same.for_ms).map(|ms| ms.saturating_mul(1_000));
            window_us.is_some_and(|window_us| self.rt.wheel.age_us(call.opened_at) < window_us)
        };
        if batch.calls.iter().any(within) {
            return Ok(true);
        }
        // A call that is open may be replayed, and ask again for what it called or started.
        let started = batch.calls.iter().filter_map(|call| call.task.as_ref()?.starter);
        for around in batch.opening.parent.map(|parent| parent.call).into_iter().chain(started) {
            if is_open(self.rt, around).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rows that go with a batch.
    async fn due(&self, no: BatchNo, batch: &Batch) -> Result<ExpiryVerdict, SessionError> {
        let (store, of) = (&*self.rt.store, self.session.lane.session());
        let (mut with, mut guard) = (Vec::new(), Vec::new());
        for (call, place) in batch.calls.iter().zip(0..) {
            let id = CallId { batch: no, ordinal: Ordinal(place) };
            if call.task.is_some() {
                with.push(no_task_row(id));
                with.extend(log::gone_rows(store, of, id).await?);
            }
            if let Some(same) = call.dedupe.as_ref().map(|dedupe| dedupe.same)
                && store.marked(same.mark).await? == Some(id)
                && (same.for_ms.is_some() || call.end().is_none_or(|end| !end.stands()))
            {
                // The next call of this key runs: the mark is at no call. Where this one stands for others for ever, the mark stays,
                // and they are answered `expired`.
                with.push(Row::Mark { mark: same.mark, call: NO_CALL });
            }
        }
        let loosened = artifacts::loosen(self.rt, &self.session.lane, no, batch).await;
        let (rows, guards) =
            loosened.map_err(|error| SessionError::undecodable("an artifact of a batch", error))?;
        with.extend(rows);
        guard.extend(guards);
        Ok(ExpiryVerdict::Due { with, guard })
    }
}

/// Batches are numbered from 1.
const NO_CALL: CallId = CallId { batch: BatchNo(0), ordinal: Ordinal(0) };

/// Whether a call's batch is not over.
async fn is_open(rt: &Inner, call: CallId) -> Result<bool, SessionError> {
    Ok(rt.store.batch_by_no(call.batch).await?.is_some_and(|row| row.open))
}

/// The batches about which a session has notices that nobody has acknowledged.
async fn noticed(rt: &Inner, session: &Session) -> Result<HashSet<BatchNo>, SessionError> {
    let (mut found, mut after) = (HashSet::new(), None);
    loop {
        let (of, space) = (session.lane.session(), Space::Notice);
        let page = RecordPage { shelf: space.of(of), prefix: "", after: after.as_deref(), limit: PAGE };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        for record in &records {
            let kept: KeptNotice = serde_json::from_slice(&record.value)
                .map_err(|error| SessionError::undecodable(format!("the notice {:?}", record.key), error))?;
            let calls = kept.call.into_iter().chain(kept.folded);
            found.extend(calls.map(|call| CallId::unpacked(call).batch));
        }
        after = Some(last.key.clone());
    }
}
