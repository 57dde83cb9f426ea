//! Deadlocks: calls that would wait for each other forever, because one waits for a nested call that needs its tool's room.
//!
//! Claims and room in process and session cannot deadlock: claims are taken in order, and room is lent while a call waits for
//! nested calls. Limits of tools and groups are not lent, since the resource they protect is in use. A nested call that runs
//! under the same such limit is refused at once. Longer circles (A inside B, B inside A, in two sessions) are searched when a
//! limit is held only by calls that lend, and the youngest in the circle is refused.

use super::room::Full;
use super::slab::NONE;
use super::{Doing, Limit, PlannedCall, Planner, TurnRefusal};
use std::collections::BTreeMap;

/// Calls that wait for nested calls, with these.
type WaitingCalls = BTreeMap<u32, Vec<u32>>;

impl Planner {
    /// Refuses a nested call that needs room under a limit that a call around it holds.
    pub(super) fn check_ancestors(&self, parent: u32, tool: u32) -> Result<(), TurnRefusal> {
        let wanted = &self.room.tools[tool];
        let mut ancestor = parent;
        while ancestor != NONE {
            let call = &self.calls[ancestor];
            if matches!(call.doing, Doing::Running | Doing::Lending | Doing::Returning) {
                let held_by = call.id;
                if call.tool == tool
                    && let Some(max) = wanted.held.running_max()
                {
                    return Err(TurnRefusal::WouldDeadlock { limit: self.tool_limit(tool, max), held_by });
                }
                for &group in &self.room.tools[call.tool].groups {
                    if wanted.groups.contains(&group)
                        && let Some(max) = self.room.groups[group].held.running_max()
                    {
                        let limit = self.group_limit(group, max);
                        return Err(TurnRefusal::WouldDeadlock { limit, held_by });
                    }
                }
            }
            ancestor = call.parent;
        }
        Ok(())
    }

    /// A call of this tool waits inside another or lends, or a nested call left: there may be a deadlock now,
    /// if a limit on the tool is held by lending calls only, or one on any tool is, and a call waits for it.
    pub(super) fn suspect(&mut self, tool: u32) {
        let tool = &self.room.tools[tool];
        let groups = tool.groups.iter().map(|&group| &self.room.groups[group].held);
        let lent = groups.chain([&tool.held]).any(|held| held.is_all_lent());
        self.suspects_deadlock |= lent || self.watches_deadlock;
    }

    /// Refuses one call of every deadlock.
    pub(super) fn find_deadlocks(&mut self) {
        while std::mem::take(&mut self.suspects_deadlock) {
            let numbers = self.call_nos.all();
            let blocked: Vec<u32> = numbers.filter(|&number| self.is_blocked(number)).collect();
            self.watches_deadlock = !blocked.is_empty();
            if blocked.is_empty() {
                return;
            }
            let waiting = self.waiting();
            let alive = self.alive(&waiting);
            let is_stuck = |parent: &u32| waiting.contains_key(parent) && !alive.contains(parent);
            let stuck = blocked.into_iter().filter(|&number| is_stuck(&self.calls[number].parent));
            let Some(youngest) = stuck.max_by_key(|&number| self.calls[number].age) else { return };
            self.refuse(youngest);
            // There may be other circles.
            self.suspects_deadlock = true;
        }
    }

    /// Whether a nested call waits for room that only lending calls hold.
    fn is_blocked(&self, number: u32) -> bool {
        let PlannedCall { parent, doing, tool, .. } = self.calls[number];
        parent != NONE && doing == Doing::Lined && self.lent_out(tool).is_some()
    }

    /// The calls that only wait for nested calls, with these.
    fn waiting(&self) -> WaitingCalls {
        let mut waiting = WaitingCalls::new();
        for number in self.call_nos.all() {
            let parent = self.calls[number].parent;
            if parent != NONE && matches!(self.calls[parent].doing, Doing::Lending | Doing::Left) {
                waiting.entry(parent).or_default().push(number);
            }
        }
        waiting
    }

    /// Those of them that can continue: a nested call runs, or will.
    fn alive(&self, waiting: &WaitingCalls) -> Vec<u32> {
        let mut alive: Vec<u32> = Vec::new();
        loop {
            let before = alive.len();
            for (&parent, inside) in waiting {
                let goes_on = |&number: &u32| self.goes_on(number, &alive, waiting);
                if !alive.contains(&parent) && inside.iter().any(goes_on) {
                    alive.push(parent);
                }
            }
            if alive.len() == before {
                return alive;
            }
        }
    }

    /// Whether a call can continue, given those for which it is known.
    fn goes_on(&self, number: u32, alive: &[u32], waiting: &WaitingCalls) -> bool {
        let PlannedCall { doing, tool, flags, .. } = self.calls[number];
        match doing {
            _ if flags.parked => true,
            Doing::Running | Doing::Returning | Doing::Refused => true,
            // Without nested calls it is about to continue.
            Doing::Lending | Doing::Left => alive.contains(&number) || !waiting.contains_key(&number),
            // It waits for a neighbour, which is checked by itself.
            Doing::Nothing => flags.unprepared,
            Doing::Lined => match self.holders(tool) {
                None => true,
                Some((_, holders)) => {
                    holders.iter().any(|holder| alive.contains(holder) || !waiting.contains_key(holder))
                }
            },
        }
    }

    /// The limit that keeps this tool's calls from starting, if only lending calls hold it; and its group.
    fn lent_out(&self, tool: u32) -> Option<(Limit, Option<u32>)> {
        let (held, limit, group) = match self.room.fits(tool, 0).err()? {
            Full::Tool { max } => (&self.room.tools[tool].held, self.tool_limit(tool, max), None),
            Full::Group { group, max } => {
                (&self.room.groups[group].held, self.group_limit(group, max), Some(group))
            }
            Full::Gone | Full::Rate { .. } => return None,
        };
        held.is_all_lent().then_some((limit, group))
    }

    /// That limit, with its holders.
    fn holders(&self, tool: u32) -> Option<(Limit, Vec<u32>)> {
        let (limit, group) = self.lent_out(tool)?;
        let holds = |number: &u32| {
            let call = &self.calls[*number];
            let same = match group {
                Some(group) => self.room.tools[call.tool].groups.contains(&group),
                None => call.tool == tool,
            };
            same && call.doing == Doing::Lending
        };
        Some((limit, self.call_nos.all().filter(holds).collect()))
    }

    fn refuse(&mut self, number: u32) {
        let Some((limit, holders)) = self.holders(self.calls[number].tool) else { return };
        self.leave_line(number);
        self.calls[number].doing = Doing::Refused;
        let id = self.calls[number].id;
        let held_by = holders.first().map_or(id, |&holder| self.calls[holder].id);
        self.deadlocked.push((id, TurnRefusal::WouldDeadlock { limit, held_by }));
    }
}
