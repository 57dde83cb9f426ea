//! Sibling rules: how many calls of a batch must succeed.
//!
//! One rule: a batch needs `n` successes. A race needs one, `fail_fast` all. Once that is decided, either
//! way, the calls that have not ended are cancelled, and the decision stands whatever happens later. Folding
//! a journal and writing it count the same ends in the same order, so both reach the same decision.

use crate::ids::Ordinal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the end of one call affects the other calls of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// Not at all.
    #[default]
    Independent,
    /// They are cancelled at the first that does not succeed.
    FailFast,
    /// They are cancelled when the first has succeeded.
    Race,
    /// They are cancelled when this many have succeeded, or when too few are left for that.
    Quorum(u32),
}

impl fmt::Display for Siblings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Siblings::Independent => f.write_str("independent"),
            Siblings::FailFast => f.write_str("fail_fast"),
            Siblings::Race => f.write_str("race"),
            Siblings::Quorum(n) => write!(f, "quorum({n})"),
        }
    }
}

/// The decision of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Enough calls have succeeded.
    Reached,
    /// Too few calls are left that could succeed.
    Unreachable,
}

impl Decision {
    /// Why the calls that have not ended are cancelled.
    pub fn reason(self) -> &'static str {
        match self {
            Decision::Reached => "enough calls of its batch have succeeded",
            Decision::Unreachable => "too few calls of its batch can still succeed",
        }
    }
}

/// The tally of a batch's ended calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    siblings: Siblings,
    /// Those that succeeded, in the order of their ends.
    won: Vec<Ordinal>,
    /// The number of other ends.
    failed: usize,
    decision: Option<Decision>,
}

impl Tally {
    /// An empty tally. `None`: there is no sibling rule.
    pub fn of(siblings: Siblings) -> Option<Box<Tally>> {
        let asks = siblings != Siblings::Independent;
        asks.then(|| Box::new(Tally { siblings, won: Vec::new(), failed: 0, decision: None }))
    }

    /// Counts an end. `calls`: their number, once it is known. Returns what that decides; later ends decide nothing.
    pub fn end(&mut self, call: Ordinal, succeeded: bool, calls: Option<usize>) -> Option<Decision> {
        if self.decision.is_some() {
            return None;
        }
        if succeeded {
            self.won.push(call);
        } else {
            self.failed += 1;
        }
        self.decide(calls)
    }

    /// The number of calls is known now. Returns what that decides.
    pub fn count(&mut self, calls: usize) -> Option<Decision> {
        if self.decision.is_some() { None } else { self.decide(Some(calls)) }
    }

    fn decide(&mut self, calls: Option<usize>) -> Option<Decision> {
        let needed = match self.siblings {
            Siblings::Independent => return None,
            // As many as there are: every added call is needed too, so only a failure decides.
            Siblings::FailFast => {
                self.decision = (self.failed > 0).then_some(Decision::Unreachable);
                return self.decision;
            }
            Siblings::Race => 1,
            Siblings::Quorum(needed) => needed as usize,
        };
        let possible = calls.map(|calls| calls.saturating_sub(self.failed));
        self.decision = if self.won.len() >= needed {
            Some(Decision::Reached)
        } else if possible.is_some_and(|possible| possible < needed) {
            Some(Decision::Unreachable)
        } else {
            None
        };
        self.decision
    }

    /// The sibling rule.
    pub fn siblings(&self) -> Siblings {
        self.siblings
    }

    /// The final decision.
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }

    /// The verdict with this number of calls: the decision; or, where all are needed, that all have
    /// succeeded, which stands until one is added.
    pub fn verdict(&self, calls: Option<usize>) -> Option<Decision> {
        let all = self.siblings == Siblings::FailFast && calls == Some(self.won.len());
        self.decision.or(all.then_some(Decision::Reached))
    }

    /// Those that had succeeded at the decision, in the order of their ends.
    pub fn won(&self) -> &[Ordinal] {
        &self.won
    }
}
