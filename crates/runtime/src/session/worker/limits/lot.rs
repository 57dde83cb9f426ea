//! The permits or starts of a limit: how many each worker has, and who waits for more.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The shares of a limit, and the workers that wait for more. Fields may be added; those that are here never change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Lot {
    shares: BTreeMap<String, u32>,
    /// The workers that want more, the first one first.
    waiting: Vec<String>,
}

/// A worker's need of a lot.
#[derive(Clone, Copy, Debug)]
pub(super) struct LotNeed {
    /// All that there is.
    pub(super) total: u32,
    /// As much is in use here.
    pub(super) used: u32,
    /// As much could be used beside that, if there were more here.
    pub(super) wants: u32,
    /// Whether anything waits for it here.
    pub(super) is_waited_for: bool,
    /// The least that is taken while nobody else is interested.
    pub(super) block: u32,
}

impl Lot {
    pub(super) fn own(&self, worker: &str) -> u32 {
        self.shares.get(worker).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, worker: &str, share: u32) {
        match share {
            0 => _ = self.shares.remove(worker),
            share => _ = self.shares.insert(worker.to_string(), share),
        }
    }

    /// The part that nobody has.
    pub(super) fn free(&self, total: u32) -> u32 {
        let had: u64 = self.shares.values().copied().map(u64::from).sum();
        u32::try_from(u64::from(total).saturating_sub(had)).unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.waiting.is_empty()
    }

    /// Whether this worker has something of it, or waits.
    pub(super) fn concerns(&self, worker: &str) -> bool {
        self.shares.contains_key(worker) || self.waiting.iter().any(|waits| waits == worker)
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &String> {
        self.shares.keys().chain(&self.waiting)
    }

    pub(super) fn forget(&mut self, worker: &str) {
        self.shares.remove(worker);
        self.wait_no_more(worker);
    }

    pub(super) fn wait_no_more(&mut self, worker: &str) {
        self.waiting.retain(|waits| waits != worker);
    }

    /// Takes what a worker may have, lists it as waiting if that is not enough, and returns the share that it may use from now on: less than it
    /// has if others are to have some of it. What is in use it keeps until then.
    ///
    /// Unused parts go to those that wait. Of what is in use, they get a fair part: each of those that are interested as much,
    /// and if there is not one for each, one after the other in the order in which they asked.
    pub(super) fn settle(&mut self, own: &str, need: LotNeed) -> u32 {
        let LotNeed { total, used, wants, is_waited_for, block } = need;
        let mut interested: BTreeSet<&str> = self.workers().map(String::as_str).collect();
        if is_waited_for {
            interested.insert(own);
        }
        let fair = total.checked_div(u32::try_from(interested.len()).unwrap_or(u32::MAX)).unwrap_or(total);
        let is_alone = interested.iter().all(|worker| *worker == own);
        let (mut mine, mut taken) = (self.own(own).min(total), 0);
        if wants > 0 {
            let ahead = self.waiting.iter().take_while(|waits| *waits != own).count();
            // One for each of those that asked before.
            let offered = self.free(total).saturating_sub(u32::try_from(ahead).unwrap_or(u32::MAX));
            let asked = if is_alone { wants.max(block) } else { wants.min(fair.saturating_sub(mine).max(1)) };
            taken = asked.min(offered);
            mine += taken;
            if taken > 0 || mine >= total {
                self.waiting.retain(|waits| waits != own);
            }
            if taken < wants && mine < total && !self.waiting.iter().any(|waits| waits == own) {
                self.waiting.push(own.to_string());
            }
        } else {
            self.waiting.retain(|waits| waits != own);
        }
        let others: Vec<&String> = self.waiting.iter().filter(|waits| *waits != own).collect();
        let is_needed = others.iter().any(|waits| self.own(waits) < fair.max(1));
        let may_use = match (others.is_empty(), is_waited_for, is_needed) {
            (true, ..) => mine,
            (false, false, _) => mine.min(used),
            // What was just taken is used first.
            (false, true, true) => mine.min(fair.max(taken)),
            (false, true, false) => mine,
        };
        self.set(own, mine);
        may_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers that want so much of a lot at once, and settle in turn: what each may use after each round.
    fn check(total: u32, wants: &[u32], rounds: usize) -> Vec<Vec<u32>> {
        let mut lot = Lot::default();
        let mut seen = Vec::new();
        for _ in 0..rounds {
            for (no, wants) in wants.iter().enumerate() {
                let own = format!("w{no}");
                let used = lot.own(&own);
                let missing = wants.saturating_sub(used);
                let need = LotNeed {
                    total,
                    used: used.min(*wants),
                    wants: missing.min(total - used),
                    is_waited_for: missing > 0,
                    block: total.div_ceil(2),
                };
                let may_use = lot.settle(&own, need);
                // What runs ends before the next round.
                lot.set(&own, may_use);
                assert!(lot.free(total) <= total && lot.shares.values().sum::<u32>() <= total, "{lot:?}");
            }
            seen.push((0..wants.len()).map(|no| lot.own(&format!("w{no}"))).collect());
        }
        seen
    }

    #[test]
    fn one_that_is_alone_takes_a_block_and_more_if_it_needs_more() {
        assert_eq!(check(8, &[1], 1), [[4]]);
        assert_eq!(check(8, &[7], 1), [[7]]);
        assert_eq!(check(8, &[20], 2), [[8], [8]]);
    }

    #[test]
    fn what_is_not_used_goes_to_whoever_waits() {
        // The first one has a block, of which it uses one.
        let seen = check(8, &[1, 8], 4);
        assert_eq!(seen.last().unwrap(), &[1, 7], "{seen:?}");
    }

    #[test]
    fn those_that_want_all_have_equal_parts() {
        let seen = check(9, &[20, 20, 20], 6);
        assert_eq!(seen.last().unwrap(), &[3, 3, 3], "{seen:?}");
    }

    #[test]
    fn of_fewer_than_there_are_workers_each_has_one_in_turn() {
        for total in [1, 2] {
            let seen = check(total, &[5, 5, 5], 12);
            for worker in 0..3 {
                let times = seen.iter().filter(|shares| shares[worker] > 0).count();
                assert!(times >= 2, "worker {worker} of {total}: {seen:?}");
            }
        }
    }

    #[test]
    fn one_that_is_over_leaves_all_it_had() {
        let mut lot = Lot::default();
        let need = LotNeed { total: 3, used: 0, wants: 3, is_waited_for: true, block: 3 };
        assert_eq!(lot.settle("a", need), 3);
        assert_eq!(lot.settle("b", need), 0);
        assert!(lot.concerns("b"));
        lot.forget("a");
        assert_eq!(lot.settle("b", need), 3);
        lot.forget("b");
        assert!(lot.is_empty());
    }
}
