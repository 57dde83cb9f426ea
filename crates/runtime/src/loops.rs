//! The loop guard of a session: fed when batches end, asked before calls start.
//!
//! A session that an earlier process recorded is guarded too: what its journal says is read at its first submission here.

use crate::error::{BatchError, chain};
use crate::held::{Fresh, Submitted};
use crate::inside::nested;
use crate::runtime::Inner;
use crate::schedules::schedule_of;
use crate::session::{Session, fold};
use crate::tool::Place;
use crate::triggers::trigger_of;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Fact};
use windlass_core::entry::{self, Event};
use windlass_core::ids::BatchNo;
use windlass_core::limits::Limits;
use windlass_core::loops::{Asked, Guard, Loop, Seen, can_loop};
use windlass_store::JournalRow;

/// The guard of a session.
pub(crate) struct Loops(Mutex<State>);

enum State {
    /// What was recorded before is not read yet; these ended meanwhile.
    Unread(Vec<Over>),
    Known(Guard),
}

/// A batch whose calls all ended.
struct Over {
    batch: BatchNo,
    /// Its calls that count; `None` if it had too many to be part of a loop.
    calls: Option<Vec<Seen>>,
}

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 64;
/// So many pages are read at most: what lies further back is not worth a wait.
const PAGES_MAX: usize = 8;

impl Loops {
    /// The guard of a session that is new, or was recorded before.
    pub(crate) fn new(recorded: bool) -> Loops {
        let state = if recorded { State::Unread(Vec::new()) } else { State::Known(Guard::default()) };
        Loops(Mutex::new(state))
    }

    /// A batch is over. These are its calls; `None` for those of tools that are exempt.
    pub(crate) fn note<'a>(
        &self,
        batch: BatchNo,
        calls: impl ExactSizeIterator<Item = Option<&'a Call>>,
        limits: &Limits,
    ) {
        let calls = can_loop(calls.len(), limits).then(|| seen(calls, limits));
        match &mut *self.lock() {
            State::Known(guard) => tell(guard, calls, limits),
            State::Unread(over) => {
                over.push(Over { batch, calls });
                if over.len() as u64 > limits.loop_calls_max {
                    over.remove(0);
                }
            }
        }
    }

    /// Whether what was recorded before this process had the session is still to be [read](Self::read).
    pub(crate) fn is_unread(&self) -> bool {
        matches!(*self.lock(), State::Unread(_))
    }

    /// Reads what was recorded before this process had the session. A journal that cannot be read
    /// is no reason to refuse what is new.
    pub(crate) async fn read(rt: &Inner, session: &Session) {
        let recorded = recorded(rt, session).await.unwrap_or_else(|error| {
            tracing::warn!(session = %session.name, error = %chain(&error), "loops begun before are not noticed");
            Vec::new()
        });
        let mut state = session.loops.lock();
        let State::Unread(meanwhile) = &mut *state else { return };
        let read: HashSet<BatchNo> = recorded.iter().map(|over| over.batch).collect();
        let later = std::mem::take(meanwhile).into_iter().filter(|over| !read.contains(&over.batch));
        let mut guard = Guard::default();
        recorded.into_iter().chain(later).for_each(|over| tell(&mut guard, over.calls, &rt.limits));
        *state = State::Known(guard);
    }

    fn is_on(&self) -> bool {
        matches!(&*self.lock(), State::Known(guard) if guard.found().is_some())
    }

    fn check(&self, calls: &[Asked]) -> Option<Loop> {
        match &*self.lock() {
            State::Known(guard) => guard.check(calls),
            State::Unread(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a batch of this key is a turn of a model. What tools call or start is none, nor is what schedules and events start.
pub(crate) fn is_turn(key: &str) -> bool {
    !key.starts_with(nested::KEY_PREFIX) && schedule_of(key).is_none() && trigger_of(key).is_none()
}

/// Marks the calls of one submission if they only go on with a loop: they are answered instead of run.
pub(crate) fn mark(rt: &Inner, session: &Session, new: &mut Submitted) {
    if !session.loops.is_on() {
        return;
    }
    let Submitted { on, calls, .. } = new;
    let counts = |call: &&mut Fresh| !is_exempt(rt, &on.batch.head.place, &call.opened.tool);
    let mut counted: Vec<&mut Fresh> = calls.iter_mut().filter(counts).collect();
    let asked: Vec<Asked> = counted.iter().map(|call| Asked::new(&call.opened, &rt.limits)).collect();
    if let Some(found) = session.loops.check(&asked) {
        counted.iter_mut().for_each(|call| call.goes_on_with = Some(found));
    }
}

fn tell(guard: &mut Guard, calls: Option<Vec<Seen>>, limits: &Limits) {
    match calls {
        Some(calls) => guard.note(calls, limits),
        None => guard.lift(),
    }
}

fn seen<'a>(calls: impl ExactSizeIterator<Item = Option<&'a Call>>, limits: &Limits) -> Vec<Seen> {
    let mut seen = Vec::with_capacity(calls.len());
    seen.extend(calls.flatten().filter_map(|call| Seen::new(call, limits)));
    seen
}

/// Whether the tool is meant to be asked again and again.
fn is_exempt(rt: &Inner, place: &Place, tool: &str) -> bool {
    rt.registry.known(place, tool).is_some_and(|tool| tool.spec.flags.polls)
}

/// The last batches that are over, oldest first, as far back as the guard looks.
async fn recorded(rt: &Inner, session: &Session) -> Result<Vec<Over>, BatchError> {
    let (mut over, mut looked, mut calls, mut before) = (Vec::new(), HashSet::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let rows = rt.store.history(session.lane.session(), before, ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        before = Some(last.first);
        for row in &rows {
            // The newest row with an end says when the batch was over.
            if looked.contains(&row.batch) || !has_end(row)? {
                continue;
            }
            looked.insert(row.batch);
            let folded = whole(rt, row).await?;
            if !is_turn(&folded.opening.key) || folded.calls.iter().any(|call| call.end().is_none()) {
                continue;
            }
            calls += folded.calls.len() as u64;
            over.push(counted(rt, session, (row.batch, &folded)));
            if calls >= rt.limits.loop_calls_max || over.last().is_some_and(|over| over.calls.is_none()) {
                over.reverse();
                return Ok(over);
            }
        }
    }
    over.reverse();
    Ok(over)
}

fn has_end(row: &JournalRow) -> Result<bool, BatchError> {
    let what = |problem: entry::Unreadable| BatchError::Unreadable { what: problem.to_string() };
    let entries = entry::unpack(&row.data).map_err(what)?;
    Ok(entries.iter().any(|entry| matches!(entry.event, Event::Call { fact: Fact::Ended(_), .. })))
}

/// The batch of a row that no later row of the batch ends anything in. Most batches are one row.
async fn whole(rt: &Inner, row: &JournalRow) -> Result<Batch, BatchError> {
    if row.row == 0 {
        let folded = fold(std::slice::from_ref(row))?;
        if folded.calls.iter().all(|call| call.end().is_some()) {
            return Ok(folded);
        }
    }
    fold(&rt.store.journal(row.batch).await?)
}

fn counted(rt: &Inner, session: &Session, (batch, folded): (BatchNo, &Batch)) -> Over {
    let limits = &rt.limits;
    let calls = can_loop(folded.calls.len(), limits).then(|| {
        let place = Place::new(session.name.clone(), Arc::clone(&folded.opening.key), None);
        let counts = |call: &&Call| !is_exempt(rt, &place, &call.opened.tool);
        seen(folded.calls.iter().map(|call| Some(call).filter(counts)), limits)
    });
    Over { batch, calls }
}
