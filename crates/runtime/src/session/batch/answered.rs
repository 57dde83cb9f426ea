//! Provisional answers: recorded before they are given, so that a notice follows each.

use super::{BatchState, OpenBatch, Slot, Stage};
use crate::session::held::{EndedCall, Going};
use crate::session::lane::{Commit, Lane};
use crate::session::notices;
use std::sync::atomic::Ordering;
use windlass_core::batch::ProvisionalAnswer;
use windlass_core::call::Wake;
use windlass_core::entry::Packer;
use windlass_core::ids::Ordinal;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// A provisional answer on its way to the store.
#[must_use = "an answer is given once it is durable"]
pub(crate) struct AnswerNote<'a> {
    pub(crate) commit: Commit<'a>,
    /// The calls whose ends are not in the answer.
    pub(crate) open: Vec<Ordinal>,
}

impl OpenBatch {
    /// Records that these calls are answered before they have ended, with everything that must be recorded before that.
    /// A call whose end was sent is in the answer; one whose end comes later gets a notice. Nothing is recorded of
    /// calls that were answered so before, that are tasks, or that run inside another call, which waits for them.
    pub(crate) fn answer<'a>(
        &self,
        lane: &'a Lane,
        at: Timestamp,
        ordinals: impl Iterator<Item = Ordinal>,
    ) -> AnswerNote<'a> {
        self.answered.store(true, Ordering::SeqCst);
        let mut state = self.lock();
        let is_open = |state: &BatchState, ordinal: &Ordinal| {
            state.slots.get(usize::from(ordinal.0)).is_some_and(Slot::may_be_provisional)
        };
        let mut open: Vec<Ordinal> = ordinals.filter(|ordinal| is_open(&state, ordinal)).collect();
        open.sort_unstable();
        open.dedup();
        let mut calls = Vec::new();
        let is_recorded = self.head.parent.is_none() && !windlass_core::mutant::breaks("answer-unrecorded");
        for ordinal in open.iter().filter(|_| is_recorded) {
            let slot = &mut state.slots[usize::from(ordinal.0)];
            if !slot.is_provisional {
                slot.is_provisional = true;
                calls.push(*ordinal);
            }
        }
        let (mut packer, mut rows) = (Packer::default(), Vec::new());
        if state.written.calls < state.slots.len() {
            self.admit(&mut state, &mut packer, &mut rows);
        }
        if !calls.is_empty() {
            packer.answered(at, &ProvisionalAnswer { calls });
        }
        if !packer.is_empty() {
            rows.push(self.journal(&mut state, packer));
        }
        // If there is nothing to record, this still comes after everything sent before.
        AnswerNote { commit: lane.send(Vec::new(), rows), open }
    }
}

impl OpenBatch {
    /// Counts a holder of its answers.
    pub(crate) fn attend(&self) {
        self.attended.fetch_add(1, Ordering::SeqCst);
    }

    /// Uncounts a holder. `true`: it was the last, and calls of the batch may have to give way because of that.
    pub(crate) fn leave_alone(&self) -> bool {
        let last = self.attended.fetch_sub(1, Ordering::SeqCst) == 1;
        last && self.may_give_way.load(Ordering::SeqCst)
    }

    /// Whether it was answered, or nobody waits for that: then its waiting calls do not hold up others. A
    /// caller that asks has such a call, and is notified if this changes.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.may_give_way.store(true, Ordering::SeqCst);
        self.answered.load(Ordering::SeqCst) || self.attended.load(Ordering::SeqCst) == 0
    }

    /// Writes notices separately from the ends they report, as a mutant that the proofs must find.
    pub(super) fn tell_later(&self, notices: Vec<Row>) {
        if let Some(session) = self.session().filter(|_| !notices.is_empty()) {
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                session.lane.commit_rows(notices).await
            });
        }
    }
}

impl Slot {
    fn may_be_provisional(&self) -> bool {
        !self.ended && !self.is_task && !matches!(self.stage, Stage::Ended(_))
    }
}

impl BatchState {
    /// Marks calls whose ends are being sent. Returns the notices of those ends: for tasks, and for calls
    /// whose callers were answered before.
    pub(super) fn end_sent(&mut self, going: &Going, wake: Wake) -> Vec<Row> {
        let mut notices = Vec::new();
        for ended in &going.ended {
            let Some(slot) = self.slots.get_mut(usize::from(ended.id.ordinal.0)) else { continue };
            slot.ended = true;
            if slot.is_provisional || ended.call.task.is_some() {
                notices.extend(notice(ended, wake));
            }
        }
        notices
    }
}

/// The notice of an end, unless the task or the batch is silent.
fn notice(ended: &EndedCall, wake: Wake) -> Option<Row> {
    let wake = ended.call.task.as_ref().map_or(wake, |task| task.wake);
    (wake != Wake::Silent).then(|| notices::ended(ended.id, &ended.call, ended.at))
}
