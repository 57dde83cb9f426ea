//! Who starts now.

use super::room::Pool;
use super::slab::NONE;
use super::{Call, Pace, Planner, Ready};

impl Planner {
    /// Whether [`start_ready`](Self::start_ready) has nothing to do, at whatever time it is asked: nobody can start, no gate
    /// opens by itself, and nobody waits in a circle.
    pub fn is_quiet(&self) -> bool {
        self.alone == NONE
            && self.lines.are_shut()
            && self.lines.next_due().is_none()
            && !self.suspects_deadlock
            && self.deadlocked.is_empty()
    }

    /// Whether nobody waits for a claim or for room: so nobody could use what a call gives back.
    pub fn is_idle(&self) -> bool {
        self.counts.queued == 0
    }

    /// What may go on now, marked as running; fair between sessions. To be asked after every change, and when
    /// [`next_due`](Self::next_due) has come.
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
            *pace = Pace { started_us: now_us, between_us: (pace.between_us * 7 + since_us) / 8 };
        }
        self.find_deadlocks();
        if !self.deadlocked.is_empty() {
            ready.refuse.append(&mut self.deadlocked);
        }
    }

    /// Puts a call that nothing stands before into its line, unless it is alone. One inside another may be part of a circle,
    /// and is looked for in lines.
    pub(super) fn come_to_line(&mut self, number: u32) {
        if self.alone == NONE && self.calls[number].parent == NONE && self.lines.are_shut() {
            self.alone = number;
        } else {
            self.line_up(number);
        }
    }

    /// Something else happens: whoever is alone stands in its line before that.
    pub(super) fn join_line(&mut self) {
        let number = std::mem::replace(&mut self.alone, NONE);
        if number != NONE {
            self.line_up(number);
        }
    }

    /// Starts the call that is alone, if there is room for it; if not, it stands in its line from now on.
    fn start_alone(&mut self, now_us: u64) -> Option<u32> {
        let number = self.alone;
        if number == NONE {
            return None;
        }
        let Call { session, pool, tool, .. } = self.calls[number];
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
