//! The loop guard of a session: fed when batches end, asked before calls start.
//!
//! A session that an earlier process recorded is guarded too: its journal is read at its first submission here.

use crate::api::error::{Lost, SessionError, chain};
use crate::api::journal::{fold, rows_of, unreadable};
use crate::api::keys::is_turn;
use crate::api::limits::EnforcedLimits;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::SubmittedCalls;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use crate::tools::request::RecordedRequest;
use std::collections::HashSet;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Fact};
use windlass_core::entry::{self, EntryEvent};
use windlass_core::ids::BatchNo;
use windlass_core::loops::{CallFingerprint, EndedFingerprint, Loop, LoopGuard, can_loop};
use windlass_store::JournalRow;

/// The guard of a session.
pub(crate) struct Loops(OrderedMutex<LoopState, { LockRank::Loops as u8 }>);

enum LoopState {
    /// The earlier record is not read yet; these ended meanwhile.
    Unread(Vec<Over>),
    Known(LoopGuard),
}

/// A batch whose calls have all ended.
struct Over {
    batch: BatchNo,
    /// Its calls that count; `None` if it had too many to be part of a loop.
    calls: Option<Vec<EndedFingerprint>>,
}

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 64;
/// The maximum number of pages read: older rows are not worth a wait.
const PAGES_MAX: usize = 8;

impl Loops {
    /// The guard of a session that is new, or was recorded before.
    pub(crate) fn new(recorded: bool) -> Loops {
        let state =
            if recorded { LoopState::Unread(Vec::new()) } else { LoopState::Known(LoopGuard::default()) };
        Loops(OrderedMutex::new(state))
    }

    /// A batch is over. These are its calls; `None` for those of tools that are exempt.
    pub(crate) fn note<'a>(
        &self,
        batch: BatchNo,
        calls: impl ExactSizeIterator<Item = Option<&'a Call>>,
        limits: &EnforcedLimits,
    ) {
        let calls = can_loop(calls.len(), limits.call()).then(|| seen(calls, limits));
        match &mut *self.0.lock() {
            LoopState::Known(guard) => tell(guard, calls, limits),
            LoopState::Unread(over) => {
                over.push(Over { batch, calls: calls.map(Iterator::collect) });
                if over.len() as u64 > limits.loop_calls_max {
                    over.remove(0);
                }
            }
        }
    }

    /// Whether the earlier record must still be [read](Self::read).
    pub(crate) fn is_unread(&self) -> bool {
        matches!(*self.0.lock(), LoopState::Unread(_))
    }

    /// Reads the record from before this process had the session. An unreadable journal is no reason to
    /// refuse new calls.
    pub(crate) async fn read(rt: &Inner, session: &Session) {
        let recorded = recorded(rt, session).await.unwrap_or_else(|error| {
            tracing::warn!(session = %session.name, error = %chain(&error), "loops begun before are not noticed");
            Vec::new()
        });
        let mut state = session.loops.0.lock();
        let LoopState::Unread(meanwhile) = &mut *state else { return };
        let read: HashSet<BatchNo> = recorded.iter().map(|over| over.batch).collect();
        let later = std::mem::take(meanwhile).into_iter().filter(|over| !read.contains(&over.batch));
        let mut guard = LoopGuard::default();
        recorded.into_iter().chain(later).for_each(|over| tell(&mut guard, over.calls, &rt.limits));
        *state = LoopState::Known(guard);
    }

    fn is_on(&self) -> bool {
        matches!(&*self.0.lock(), LoopState::Known(guard) if guard.found().is_some())
    }

    fn check(&self, calls: &[CallFingerprint]) -> Option<Loop> {
        match &*self.0.lock() {
            LoopState::Known(guard) => guard.check(calls),
            LoopState::Unread(_) => None,
        }
    }
}

/// Marks the calls of one submission if they only continue a loop: they are answered instead of run.
pub(crate) fn mark(rt: &Inner, session: &Session, new: &mut SubmittedCalls) {
    if !session.loops.is_on() {
        return;
    }
    let SubmittedCalls { on, calls, .. } = new;
    let counts = |call: &&mut RecordedRequest| !is_exempt(rt, &on.batch.head.place, &call.opened.tool);
    let mut counted: Vec<&mut RecordedRequest> = calls.iter_mut().filter(counts).collect();
    let asked: Vec<CallFingerprint> =
        counted.iter().map(|call| CallFingerprint::new(&call.opened, rt.limits.call())).collect();
    if let Some(found) = session.loops.check(&asked) {
        counted.iter_mut().for_each(|call| call.goes_on_with = Some(found));
    }
}

fn tell(
    guard: &mut LoopGuard,
    calls: Option<impl IntoIterator<Item = EndedFingerprint>>,
    limits: &EnforcedLimits,
) {
    match calls {
        Some(calls) => guard.note(calls, limits.call()),
        None => guard.lift(),
    }
}

fn seen<'a>(
    calls: impl Iterator<Item = Option<&'a Call>>,
    limits: &EnforcedLimits,
) -> impl Iterator<Item = EndedFingerprint> {
    calls.flatten().filter_map(|call| EndedFingerprint::new(call, limits.call()))
}

/// Whether the tool is meant to be polled.
fn is_exempt(rt: &Inner, place: &BatchPlace, tool: &str) -> bool {
    rt.registry.known(place, tool).is_some_and(|tool| tool.spec.flags.polls)
}

/// The last finished batches, oldest first, as far back as the guard looks.
async fn recorded(rt: &Inner, session: &Session) -> Result<Vec<Over>, SessionError> {
    let (mut over, mut looked, mut calls, mut before) = (Vec::new(), HashSet::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let rows = rt.store.history(session.lane.session(), before, ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        before = Some(last.first);
        for row in &rows {
            // The newest row with an end is the end of the batch.
            if looked.contains(&row.batch) || !has_end(row)? {
                continue;
            }
            looked.insert(row.batch);
            let folded = whole(rt, row).await?;
            if !is_turn(&folded.opening.key) || folded.calls.iter().any(|call| call.end().is_none()) {
                continue;
            }
            calls += folded.calls.len() as u64;
            over.push(counted(rt, session, row.batch, &folded));
            if calls >= rt.limits.loop_calls_max || over.last().is_some_and(|over| over.calls.is_none()) {
                over.reverse();
                return Ok(over);
            }
        }
    }
    over.reverse();
    Ok(over)
}

fn has_end(row: &JournalRow) -> Result<bool, SessionError> {
    let entries = entry::unpack(&row.data).map_err(|problem| unreadable(row, problem))?;
    Ok(entries.iter().any(|entry| matches!(entry.event, EntryEvent::Call { fact: Fact::Ended(_), .. })))
}

/// The batch of a row that is the batch's last one with an end. Most batches are one row.
async fn whole(rt: &Inner, row: &JournalRow) -> Result<Batch, SessionError> {
    if row.row == 0 {
        let folded = fold(std::slice::from_ref(row))?;
        if folded.calls.iter().all(|call| call.end().is_some()) {
            return Ok(folded);
        }
    }
    fold(&rows_of(&*rt.store, row.batch).await?.ok_or(Lost::Removed)?)
}

fn counted(rt: &Inner, session: &Session, batch: BatchNo, folded: &Batch) -> Over {
    let limits = &rt.limits;
    let calls = can_loop(folded.calls.len(), limits.call()).then(|| {
        let place = BatchPlace::new(session.name.clone(), Arc::clone(&folded.opening.key), None);
        let counts = |call: &&Call| !is_exempt(rt, &place, &call.opened.tool);
        seen(folded.calls.iter().map(|call| Some(call).filter(counts)), limits).collect()
    });
    Over { batch, calls }
}
