//! Starting calls.

use super::room::Pool;
use super::slab::NONE;
use super::{PlannedCall, Planner, QueuePace, Ready};

impl Planner {
    /// Whether [`start_ready`](Self::start_ready) has nothing to do at any time: no call can start, no gate
    /// opens by itself, and there is no deadlock.
    pub fn is_quiet(&self) -> bool {
        self.alone == NONE
            && self.lines.are_shut()
            && self.lines.next_due().is_none()
            && !self.suspects_deadlock
            && self.deadlocked.is_empty()
    }

    /// Whether nobody waits for a claim or for room: so nobody could use what a call returns.
    pub fn is_idle(&self) -> bool {
        self.counts.queued == 0
    }

    /// The calls that may continue now, marked as running; fair between sessions. To be called after every
    /// change, and at [`next_due`](Self::next_due).
    pub fn start_ready(&mut self, now_us: u64, ready: &mut Ready) {
        self.lines.reopen_due(now_us);
        let mut started: u64 = 0;
        if let Some(number) = self.start_alone(now_us) {
            ready.start.push(self.calls[number].id);
            started += 1;
        }
        if !self.lines.are_shut() {
            for pool in Pool::ALL {
                while let Some(number) = self.next(now_us, pool) {
                    self.start(now_us, number);
                    ready.start.push(self.calls[number].id);
                    started += 1;
                }
            }
        }
        let pace = &mut self.pace;
        if let Some(since_us) = now_us.saturating_sub(pace.started_us).checked_div(started) {
            *pace = QueuePace { started_us: now_us, between_us: (pace.between_us * 7 + since_us) / 8 };
        }
        self.find_deadlocks();
        if !self.deadlocked.is_empty() {
            ready.refuse.append(&mut self.deadlocked);
        }
    }

    /// Puts a call with nothing before it into its line, unless it is alone. A nested call may be part of a
    /// deadlock, which is searched in the lines.
    pub(super) fn come_to_line(&mut self, number: u32) {
        if self.alone == NONE && self.calls[number].parent == NONE && self.lines.are_shut() {
            self.alone = number;
        } else {
            self.line_up(number);
        }
    }

    /// Another event: a call that is alone is put into its line first.
    pub(super) fn join_line(&mut self) {
        let number = std::mem::replace(&mut self.alone, NONE);
        if number != NONE {
            self.line_up(number);
        }
    }

    /// Starts the call that is alone, if there is room for it; otherwise it is put into its line.
    fn start_alone(&mut self, now_us: u64) -> Option<u32> {
        let number = self.alone;
        if number == NONE {
            return None;
        }
        let PlannedCall { session, pool, tool, .. } = self.calls[number];
        let has_room = self.room.running[pool as usize] < self.room.running_max[pool as usize]
            && self.has_room(session, pool)
            && self.room.fits(tool, now_us).is_ok();
        if has_room && self.lines.are_shut() {
            self.start(now_us, number);
            return Some(number);
        }
        self.join_line();
        None
    }
}
