//! What may start now: the order of a session's calls, by what they read and write.
//!
//! Today every call claims its whole session: class `read` shares it, every other class has it alone. So the
//! order is a queue of groups: calls that may run together, each group waiting for all of the one before it.

use crate::ids::CallId;
use crate::tool::EffectClass;
use std::collections::VecDeque;

/// How a call holds its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Together with others that read.
    Read,
    /// Alone.
    Write,
}

impl Claim {
    /// The claim of a call that declares none.
    pub fn of(class: EffectClass) -> Claim {
        match class {
            EffectClass::Read => Claim::Read,
            EffectClass::Keyed | EffectClass::Once => Claim::Write,
        }
    }
}

/// The order of one session's unfinished calls.
#[derive(Debug, Default)]
pub struct Plan {
    /// The first group holds the session; the others wait.
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    claim: Claim,
    /// Calls of this group that have not left.
    unfinished: usize,
    /// Those to be started when the group's turn comes.
    waiting: Vec<CallId>,
}

impl Plan {
    /// Adds a call behind all earlier ones. `true`: it may start now. `false`: [`leave`](Self::leave) of an
    /// earlier call will name it.
    pub fn enter(&mut self, call: CallId, claim: Claim) -> bool {
        let joins = self.groups.back().is_some_and(|last| last.claim == claim && claim == Claim::Read);
        if !joins {
            self.groups.push_back(Group { claim, unfinished: 0, waiting: Vec::new() });
        }
        let first = self.groups.len() == 1;
        if let Some(group) = self.groups.back_mut() {
            group.unfinished += 1;
            if !first {
                group.waiting.push(call);
            }
        }
        first
    }

    /// Whether a call that entered still waits for its turn.
    pub fn waits(&self, call: CallId) -> bool {
        self.groups.iter().any(|group| group.waiting.contains(&call))
    }

    /// A call that waits gives up its place: the calls that may start because of it, in order.
    pub fn withdraw(&mut self, call: CallId) -> Vec<CallId> {
        let holds = |group: &Group| group.waiting.contains(&call);
        let Some(place) = self.groups.iter().position(holds) else { return Vec::new() };
        let group = &mut self.groups[place];
        group.waiting.retain(|waiting| *waiting != call);
        group.unfinished -= 1;
        if group.unfinished > 0 {
            return Vec::new();
        }
        self.groups.remove(place);
        let reads = |group: Option<&Group>| group.is_some_and(|group| group.claim == Claim::Read);
        if place == 0 || !reads(self.groups.get(place - 1)) || !reads(self.groups.get(place)) {
            return Vec::new();
        }
        // What stood between two groups of reads is gone: they are one.
        let Some(Group { unfinished, waiting, .. }) = self.groups.remove(place) else { return Vec::new() };
        let joined = &mut self.groups[place - 1];
        joined.unfinished += unfinished;
        if place == 1 {
            return waiting;
        }
        joined.waiting.extend(waiting);
        Vec::new()
    }

    /// A call that had started is finished: the calls that may start because of it, in order.
    pub fn leave(&mut self) -> Vec<CallId> {
        let Some(first) = self.groups.front_mut() else { return Vec::new() };
        first.unfinished = first.unfinished.saturating_sub(1);
        if first.unfinished > 0 {
            return Vec::new();
        }
        self.groups.pop_front();
        self.groups.front_mut().map(|group| std::mem::take(&mut group.waiting)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BatchNo, Ordinal};

    /// Runs `script` ("r" and "w" enter in turn, "." lets one running call leave, a number gives up its place) and tells what started when.
    fn check(script: &str) -> String {
        let mut plan = Plan::default();
        let (mut told, mut ordinal) = (Vec::new(), 0);
        for letter in script.chars() {
            let call = CallId { batch: BatchNo(1), ordinal: Ordinal(ordinal) };
            let started = match letter {
                '.' => plan.leave(),
                '0'..='9' => {
                    let ordinal = Ordinal(letter as u16 - '0' as u16);
                    plan.withdraw(CallId { batch: BatchNo(1), ordinal })
                }
                claim => {
                    ordinal += 1;
                    let claim = if claim == 'r' { Claim::Read } else { Claim::Write };
                    if plan.enter(call, claim) { vec![call] } else { vec![] }
                }
            };
            told.push(started.iter().map(|call| call.ordinal.to_string()).collect::<Vec<_>>().join("+"));
        }
        told.join(" ")
    }

    #[test]
    fn reads_share_and_writes_are_alone_in_order() {
        assert_eq!(check("rrr..."), "0 1 2   ");
        assert_eq!(check("ww.."), "0  1 ");
        assert_eq!(check("wrr.."), "0   1+2 ");
        assert_eq!(check("rwr.."), "0   1 2");
        assert_eq!(check("rrw.."), "0 1   2");
        assert_eq!(check("wrwr..."), "0    1 2 3");
        assert_eq!(check("r.w.r."), "0  1  2 ");
    }

    #[test]
    fn who_gives_up_its_place_stands_in_nobody_elses_way() {
        assert_eq!(check("rwr1.."), "0   2  ");
        assert_eq!(check("ww1."), "0   ");
        assert_eq!(check("wrwr2.."), "0     1+3 ");
        assert_eq!(check("rwrr2.."), "0     1 3");
        assert_eq!(check("w1."), "0  ", "who is not waiting has no place to give up");
    }
}
