//! Calls that wait for external answers: they give up their default claims meanwhile, and the wait does not
//! count against the deadlines of calls behind them.

use super::slab::NONE;
use super::{CallFlags, ClaimStage, Doing, PlannedCall, Planner};
use crate::ids::{BatchNo, CallId};
use std::collections::BTreeSet;

/// How long a call has waited for others whose clocks stand still.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StillTime {
    /// The time of the last check.
    pub(super) looked_us: u64,
    /// The total until then.
    pub(super) total_us: u64,
}

impl Planner {
    /// A batch was answered, or nobody waits for that: its parked calls that never started give up their
    /// places, and so do those that are parked later. Its calls that wait for external answers no longer hold
    /// up the others by their default claims.
    pub fn answered(&mut self, batch: BatchNo) {
        for number in self.call_nos.of_batch(batch) {
            let call = &mut self.calls[number];
            call.flags.answered = true;
            let waits = call.flags.parked && !call.flags.started && !call.flags.prepares;
            if waits && call.stage == ClaimStage::Own {
                self.go_away(number);
            }
        }
        self.advance_batch(batch);
    }

    /// A started call that is parked, or that runs, waits for an external answer until it [comes
    /// back](Self::come_back_inside) or is [woken](Self::wake). It keeps its tool's declared claims; its
    /// default claims hold up only younger calls of its own batch, and those only until the batch is
    /// [answered](Self::answered).
    pub fn step_outside(&mut self, now_us: u64, call: CallId) -> bool {
        let waits = |call: &PlannedCall| {
            let CallFlags { started, outside, parked, .. } = call.flags;
            started && !outside && (parked || call.doing == Doing::Running)
        };
        let Some(number) = self.find(call).filter(|&number| waits(&self.calls[number])) else { return false };
        self.calls[number].flags.outside = true;
        self.stands_still(now_us, number);
        self.give_way(number);
        true
    }

    /// A running call has waited for an external answer, and wants to continue. `true`: it gave up its claims, and must
    /// wait until it has them again and room to run; [`start_ready`](Self::start_ready) names it then.
    pub fn come_back_inside(&mut self, now_us: u64, call: CallId) -> bool {
        let runs = |call: &PlannedCall| call.flags.outside && call.doing == Doing::Running;
        let Some(number) = self.find(call).filter(|&number| runs(&self.calls[number])) else { return false };
        let gave_way = self.calls[number].stage == ClaimStage::Away;
        if gave_way {
            // The holder of its claims may need its room.
            self.uncount(number);
            self.stop(number);
            self.count(number);
        }
        self.come_inside(now_us, number);
        gave_way
    }

    /// Sets whether a running call only waits for nested calls that wait for external answers.
    pub fn wait_inside(&mut self, now_us: u64, call: CallId, waits: bool) {
        let Some(number) = self.find(call).filter(|&number| self.calls[number].flags.waits_inside != waits)
        else {
            return;
        };
        match waits {
            true => {
                self.calls[number].flags.waits_inside = true;
                self.stands_still(now_us, number);
            }
            false => self.resume_clocks(now_us, number),
        }
    }

    /// Whether the clocks of any call stand still.
    pub fn has_still(&self) -> bool {
        self.still > 0
    }

    /// A call is about to [leave](Self::leave): the time until now counts for those that wait behind it.
    pub fn pass_time(&mut self, now_us: u64, call: CallId) {
        if let Some(number) = self.find(call).filter(|&number| self.calls[number].is_still()) {
            self.look_at_those_behind(now_us, number);
        }
    }

    /// How long a call has waited behind others whose clocks stand still.
    pub fn stood_us(&mut self, now_us: u64, call: CallId) -> u64 {
        let Some(number) = self.find(call) else { return 0 };
        self.look_behind(now_us, number);
        self.calls[number].stood.total_us
    }

    /// A call no longer waits for an external answer: it takes the claims it gave up again, and so do the
    /// calls of its batch that it held up, behind it.
    pub(super) fn come_inside(&mut self, now_us: u64, number: u32) {
        if self.calls[number].is_still() {
            self.resume_clocks(now_us, number);
        }
        if self.calls[number].stage == ClaimStage::Away {
            let flags = self.calls[number].flags;
            self.queue_anew(now_us, number);
            if flags.started && !flags.answered {
                self.queue_behind(now_us, number);
            }
        }
        self.advance(number);
    }

    /// Calls of a batch that wait for an older one of it queue behind that one again, in their order.
    fn queue_behind(&mut self, now_us: u64, number: u32) {
        let older = self.calls[number].id;
        let is_behind = |call: &PlannedCall| {
            let waits = !call.flags.started && call.stage == ClaimStage::Own;
            waits && call.is_beside(&self.calls[number]) && call.id.ordinal > older.ordinal
        };
        let numbers = self.call_nos.of_batch(older.batch).into_iter();
        let behind: Vec<u32> = numbers.filter(|&number| is_behind(&self.calls[number])).collect();
        // All leave before one comes back: none of them may overtake another in between.
        let mut cleared = std::mem::take(&mut self.cleared);
        for &number in &behind {
            let own = std::mem::replace(&mut self.calls[number].own, NONE);
            self.trie.leave(own, &mut cleared);
        }
        for &number in &behind {
            self.queue_anew(now_us, number);
        }
        self.advance_all(cleared);
        for number in behind {
            self.advance(number);
        }
    }

    /// Gives up a call's default claims while it waits for an external answer. Nested calls need them.
    pub(super) fn give_way(&mut self, number: u32) {
        let call = &self.calls[number];
        let CallFlags { outside, defaulted, .. } = call.flags;
        if outside && defaulted && call.inside.is_none() && call.stage != ClaimStage::Away {
            self.go_away(number);
        }
    }

    /// The older call of the same batch that waits for an external answer and still holds up this one, since
    /// a caller waits for the batch.
    pub(super) fn sibling_before(&self, number: u32) -> Option<u32> {
        if self.still == 0 {
            return None;
        }
        let call = &self.calls[number];
        let holds_up = |older: &PlannedCall| {
            let CallFlags { outside, answered, .. } = older.flags;
            let is_before = older.id.ordinal < call.id.ordinal && older.is_beside(call);
            outside && !answered && older.stage == ClaimStage::Away && is_before
        };
        let numbers = self.call_nos.of_batch(call.id.batch).into_iter();
        let mut holders = numbers.filter(|&older| holds_up(&self.calls[older]));
        holders.find(|&older| call.flags.unprepared || self.calls[older].claims.conflict(&call.claims))
    }

    /// Calls of a batch may continue that an older one of it held up.
    pub(super) fn advance_batch(&mut self, batch: BatchNo) {
        for number in self.call_nos.of_batch(batch) {
            if self.calls[number].doing != Doing::Left {
                self.advance(number);
            }
        }
    }

    /// The clocks of a call stand still from now on.
    fn stands_still(&mut self, now_us: u64, number: u32) {
        // There may be two reasons, one after the other.
        if self.calls[number].reasons() == 1 {
            self.still += 1;
        }
        self.look_at_those_behind(now_us, number);
    }

    /// The clocks of a call run again.
    pub(super) fn resume_clocks(&mut self, now_us: u64, number: u32) {
        self.look_at_those_behind(now_us, number);
        let flags = &mut self.calls[number].flags;
        (flags.outside, flags.waits_inside) = (false, false);
        self.still -= 1;
        self.look_at_those_behind(now_us, number);
    }

    /// Checks the calls that may wait for a call: of its session, and of all others if it claims a global name.
    fn look_at_those_behind(&mut self, now_us: u64, number: u32) {
        let PlannedCall { session, flags, .. } = self.calls[number];
        let behind: Vec<u32> = match flags.claims_global {
            true => {
                let sessions = self.session_nos.values();
                sessions.flat_map(|&session| self.sessions[session].blocked.iter().copied()).collect()
            }
            false => self.sessions[session].blocked.iter().copied().collect(),
        };
        for number in behind {
            self.look_behind(now_us, number);
        }
    }

    /// Counts the time since the last check if the call waited behind one whose clocks stand still, and checks again.
    pub(super) fn look_behind(&mut self, now_us: u64, number: u32) {
        let call = &mut self.calls[number];
        if call.flags.behind {
            call.stood.total_us += now_us.saturating_sub(call.stood.looked_us);
        } else if self.still == 0 {
            call.stood.looked_us = now_us;
            return;
        }
        let call = &mut self.calls[number];
        call.stood.looked_us = call.stood.looked_us.max(now_us);
        self.calls[number].flags.behind = self.still > 0 && self.is_behind(number);
    }

    /// Whether a call waits for one whose clocks stand still, directly or not.
    fn is_behind(&self, number: u32) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([number]), vec![number]);
        while let Some(number) = next.pop() {
            let call = &self.calls[number];
            let waits = !call.flags.parked && call.doing == Doing::Nothing;
            if !waits {
                continue;
            }
            if self.sibling_before(number).is_some() {
                return true;
            }
            let place = if call.stage == ClaimStage::Global { call.global } else { call.own };
            let found = self.trie.any_before(place, |older| {
                if seen.insert(older) {
                    next.push(older);
                }
                self.calls[older].is_still()
            });
            if found {
                return true;
            }
        }
        false
    }

    /// A call waits for others because of its claims.
    pub(super) fn block(&mut self, number: u32) {
        let session = self.calls[number].session;
        self.sessions[session].blocked.insert(number);
    }

    /// It no longer does.
    pub(super) fn unblock(&mut self, number: u32) {
        let session = self.calls[number].session;
        if !self.sessions[session].blocked.is_empty() {
            self.sessions[session].blocked.remove(&number);
        }
    }
}

impl PlannedCall {
    /// Whether its clocks stand still.
    pub(super) fn is_still(&self) -> bool {
        self.flags.outside || self.flags.waits_inside
    }

    /// Whether they are in the same queues: those of a session, or those inside one call.
    fn is_beside(&self, other: &PlannedCall) -> bool {
        self.session == other.session && self.parent == other.parent
    }

    fn reasons(&self) -> u8 {
        u8::from(self.flags.outside) + u8::from(self.flags.waits_inside)
    }
}
