//! The clocks of a call: which deadlines hold for it now, and what the wall clock did meanwhile.

use super::{DeadlineColumn, Held};
use crate::api::locks;
use crate::session::ages::ClockPair;
use windlass_core::attempt::Rules;
use windlass_core::call::{LatestEnd, Moment, Parked, Step, Waited};

impl Held {
    /// Looks which deadlines it has now, and whether the wall clock jumped while it was parked. `true`: it was parked.
    pub(crate) fn look_at_clocks(&mut self) -> bool {
        self.look_around();
        if self.past.waited {
            self.on.rt.wheel.look();
            self.begin_stage();
        }
        self.past.waited
    }

    /// Checks the clocks after an attempt, which has ended now by the clock that never jumps.
    pub(crate) fn look_at_clocks_after(&mut self, ended_us: u64) {
        self.look_around();
        let now = self.on.rt.clock.now();
        self.on.rt.wheel.look_at(ClockPair { now, now_us: ended_us });
        self.begin_stage_at(Some(now));
    }

    /// The wall clock has jumped since the call was last looked at. The batch records that before anything else of it.
    #[cold]
    pub(super) fn clock_moved(&mut self) {
        let moved_us = self.on.rt.wheel.moved_us();
        let by_us = moved_us.saturating_sub(self.past.moved_us);
        self.past.moved_us = moved_us;
        self.call.clock_moved(by_us);
    }

    /// The moment at which it is asked what is to be done with it.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        let waited = self.past.waited.then(|| self.waited());
        Moment { at: self.now(), waited, tool: self.tool_search, permit: self.permit.permit }
    }

    fn waited(&self) -> Waited {
        let now_us = self.on.rt.clock.elapsed_us();
        let (mut clock, rules) = (self.past.clock, self.rules());
        if now_us >= self.call.deadline(&clock, &rules).1 {
            // It may still wait behind a call whose clocks stand still.
            clock.stood_us = self.on.rt.turns.stood_us(now_us, self.id).max(clock.stood_us);
        }
        Waited { clock, now_us, rules, is_answered: self.answer.is_some() }
    }

    /// The next step of the call.
    #[inline]
    pub(crate) fn next(&self) -> Step<'_> {
        self.call.next(&self.moment())
    }

    /// Until when it waits, if all that is to be done with it now is to wait.
    pub(crate) fn only_waits(&self) -> Option<Parked> {
        let Step::Park(parked) = self.next() else { return None };
        Some(parked)
    }

    /// When a deadline ends it while it does not run, by the clock that never jumps.
    pub(crate) fn due_us(&self) -> u64 {
        self.call.deadline(&self.past.clock, &self.rules()).1
    }

    /// When it is too late for a call whose tool is not there, or is another.
    pub(crate) fn tool_due_us(&self) -> u64 {
        self.call.tool_due_us(&self.past.clock, &self.rules(), self.now())
    }

    /// How long the call may still take, in microseconds.
    pub(crate) fn left_us(&self) -> u64 {
        let due_us = self.call.total_due_us(&self.past.clock, &self.rules());
        due_us.saturating_sub(self.on.rt.clock.elapsed_us())
    }

    /// When an attempt that began then, and the call, must be over by these rules.
    pub(crate) fn latest_end(&self, began_us: u64, rules: &Rules) -> LatestEnd {
        self.call.latest_end(&self.past.clock, rules, began_us)
    }

    /// How its attempts are made now: by the deadlines of a task, if it is one or lies inside one.
    pub(crate) fn rules(&self) -> Rules {
        let rules = self.own_rules();
        if self.call.task.is_some() || self.around == DeadlineColumn::Task { rules.for_task() } else { rules }
    }

    /// How its attempts are made while somebody waits for it; before it is prepared, as the limits and its caller say.
    pub(crate) fn own_rules(&self) -> Rules {
        if self.call.pin.is_some() {
            return self.call.own_rules();
        }
        let rules = *self.on.rt.limits.unprepared();
        self.call.opened.deadlines.as_deref().map_or(rules, |asked| rules.shortened(asked))
    }

    /// Looks whether it lies inside a task: the call around it may have become one.
    fn look_around(&mut self) {
        locks::assert_none_held();
        if let Some(parent) = self.on.batch.head.parent {
            let is_task = self.on.session.is_in_task(parent);
            self.around = if is_task { DeadlineColumn::Task } else { DeadlineColumn::Inline };
        }
    }
}
