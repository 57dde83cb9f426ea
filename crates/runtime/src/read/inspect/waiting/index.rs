//! The places of everything that waits for a person, kept between two looks: only batches that were written since are read again.

use super::{WaitingCall, WaitingKind, WaitingPart, WaitingPlace, WaitingReader};
use crate::api::error::SessionError;
use crate::session::notices::unknown_call;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::ids::{BatchNo, CallId, EntryNo, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, SessionRow, Space};

/// Rows of a session that are read to learn which of its batches were written. Of more, all its open batches are read again.
const WRITTEN_MAX: u64 = 1_000;
/// Records of calls that ended as unknown that are read at once.
const UNKNOWN_PAGE: u64 = 256;
/// After so many batches other tasks get their turn: a store on this machine answers without waiting.
const BATCHES_AT_ONCE: usize = 32;

/// Which of the calls that wait for a person are listed.
#[derive(Clone, Debug, Default)]
pub struct WaitingSearch<'a> {
    /// Only those that wait for this kind of answer.
    pub kind: Option<WaitingKind>,
    /// Only those of this session.
    pub session: Option<&'a str>,
    /// Only those behind this place.
    pub after: Option<WaitingPlace>,
}

/// The waits for people, by session and batch. The index holds nothing that is not in the journals.
#[derive(Default)]
pub(crate) struct WaitingIndex {
    sessions: BTreeMap<SessionNo, IndexedSession>,
}

#[derive(Default)]
struct IndexedSession {
    name: String,
    principal: Option<String>,
    /// The last entry when its batches were read. `None`: they were not.
    head: Option<EntryNo>,
    /// The waits of its open batches, and of those with a call that ended as unknown.
    batches: BTreeMap<BatchNo, Vec<IndexedWait>>,
}

struct IndexedWait {
    place: WaitingPlace,
    kind: WaitingKind,
    call: CallId,
}

/// The batches of a session that may hold waits.
#[derive(Default)]
struct SessionBatches {
    batches: BTreeSet<BatchNo>,
    unknown: BTreeSet<CallId>,
}

/// A wait of the index, and where its batch is.
#[derive(Clone, Copy)]
pub(super) struct ListedWait<'a> {
    pub(super) place: &'a WaitingPlace,
    pub(super) call: CallId,
    pub(super) session: &'a str,
    pub(super) principal: Option<&'a str>,
}

impl WaitingIndex {
    /// Brings the index up to the store. Sessions whose journals cannot be read are left out, and that is logged.
    pub(crate) async fn refresh(&mut self, reader: &WaitingReader<'_>) -> Result<(), SessionError> {
        let mut all: BTreeMap<SessionNo, SessionBatches> = BTreeMap::new();
        for row in reader.store.open_batches(None).await? {
            all.entry(row.session).or_default().batches.insert(row.no);
        }
        let mut last = None;
        loop {
            let sessions = reader.store.sessions_with(Space::Unknown, last, UNKNOWN_PAGE).await?;
            let Some(row) = sessions.last() else { break };
            last = Some(row.no);
            for session in &sessions {
                let unknown = unknown_calls(reader, session).await?;
                let found = all.entry(session.no).or_default();
                found.batches.extend(unknown.iter().map(|call| call.batch));
                found.unknown.extend(unknown);
            }
        }
        self.sessions.retain(|session, _| all.contains_key(session));
        let mut read = 0;
        for (session, found) in all {
            // Before its journals, which may have more by then: those entries are read again the next time.
            match reader.store.session_by_no(session).await? {
                Some(row) => {
                    self.sessions.entry(session).or_default().refresh(reader, row, found, &mut read).await?;
                }
                None => drop(self.sessions.remove(&session)),
            }
        }
        Ok(())
    }

    /// The first so many waits that the search and `is_shown` let through. A principal's waits are shown together.
    pub(crate) async fn part(
        &self,
        reader: &WaitingReader<'_>,
        search: &WaitingSearch<'_>,
        limit: usize,
        is_shown: impl Fn(Option<&str>) -> bool,
    ) -> Result<WaitingPart, SessionError> {
        reader.part(self.listed(search, reader.now, is_shown), limit).await
    }

    /// The waits that the search and `is_shown` let through, in the order of their places.
    fn listed<'a>(
        &'a self,
        search: &WaitingSearch<'_>,
        now: Timestamp,
        is_shown: impl Fn(Option<&str>) -> bool,
    ) -> Vec<ListedWait<'a>> {
        let is_session = |kept: &&IndexedSession| {
            search.session.is_none_or(|name| name == kept.name) && is_shown(kept.principal.as_deref())
        };
        let is_wanted = |wait: &&IndexedWait| {
            search.kind.is_none_or(|kind| kind == wait.kind)
                && search.after.as_ref().is_none_or(|after| wait.place > *after)
                && !wait.is_over(now)
        };
        let mut found = Vec::new();
        for kept in self.sessions.values().filter(is_session) {
            found.extend(kept.batches.values().flatten().filter(is_wanted).map(|wait| ListedWait {
                place: &wait.place,
                call: wait.call,
                session: &kept.name,
                principal: kept.principal.as_deref(),
            }));
        }
        found.sort_unstable_by_key(|wait| wait.place);
        found
    }

    /// The number of waits that `is_shown` lets through.
    pub(crate) fn count(&self, now: Timestamp, is_shown: impl Fn(Option<&str>) -> bool) -> u64 {
        let shown = self.sessions.values().filter(|kept| is_shown(kept.principal.as_deref()));
        let waits = shown.flat_map(|kept| kept.batches.values().flatten());
        waits.filter(|wait| !wait.is_over(now)).count() as u64
    }
}

impl IndexedWait {
    /// A question ends with its deadline, whether that is recorded by then or not.
    fn is_over(&self, now: Timestamp) -> bool {
        self.kind == WaitingKind::Question && now >= self.place.until
    }
}

impl IndexedSession {
    async fn refresh(
        &mut self,
        reader: &WaitingReader<'_>,
        row: SessionRow,
        found: SessionBatches,
        read: &mut usize,
    ) -> Result<(), SessionError> {
        if let Some(head) = self.head.filter(|head| *head != row.head) {
            let written = reader.store.journal_after(row.no, head, WRITTEN_MAX).await?;
            match (written.len() as u64) < WRITTEN_MAX {
                true => written.iter().for_each(|row| drop(self.batches.remove(&row.batch))),
                false => self.batches.clear(),
            }
        }
        (self.name, self.principal, self.head) = (row.name, row.principal, Some(row.head));
        self.batches.retain(|batch, _| found.batches.contains(batch));
        for batch in &found.batches {
            if !self.batches.contains_key(batch) {
                self.batches.insert(*batch, waits_in(reader, *batch).await?);
                *read += 1;
                if read.is_multiple_of(BATCHES_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
        }
        let is_listed =
            |wait: &IndexedWait| wait.kind != WaitingKind::Unknown || found.unknown.contains(&wait.call);
        self.batches.values_mut().for_each(|waits| waits.retain(is_listed));
        Ok(())
    }
}

/// The waits of one batch.
async fn waits_in(reader: &WaitingReader<'_>, no: BatchNo) -> Result<Vec<IndexedWait>, SessionError> {
    let Some(batch) = reader.folded(no).await? else { return Ok(Vec::new()) };
    let wait =
        |(call, wait): (CallId, WaitingCall)| IndexedWait { place: wait.place(), kind: wait.kind, call };
    Ok(reader.waits(no, &batch).into_iter().map(wait).collect())
}

/// The calls of a session that ended as unknown.
async fn unknown_calls(
    reader: &WaitingReader<'_>,
    session: &SessionRow,
) -> Result<Vec<CallId>, SessionError> {
    let (mut after, mut found) = (None::<String>, Vec::new());
    loop {
        let shelf = Space::Unknown.of(session.no);
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: UNKNOWN_PAGE };
        let records = reader.store.records(page).await?;
        let Some(record) = records.last() else { return Ok(found) };
        found.extend(records.iter().filter_map(|record| unknown_call(&record.key)));
        after = Some(record.key.clone());
    }
}
