//! What a batch asks of its calls together: that so many of them succeed.
//!
//! One rule: a batch needs `n` successes. A race needs one, `fail_fast` all. Once that is decided, either way, the calls
//! that have not ended are cancelled, and the decision stands whatever happens later. Whoever folds a journal and whoever
//! writes it count the same ends in the same order, so both know of the same decision.

use crate::ids::Ordinal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What becomes of the other calls of a batch when one of them ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// Nothing.
    #[default]
    Independent,
    /// They are cancelled at the first that does not succeed.
    FailFast,
    /// They are cancelled when the first has succeeded.
    Race,
    /// They are cancelled when so many have succeeded, or when too few are left for that.
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

/// How it was decided.
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

/// The ends of a batch's calls, as far as they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    siblings: Siblings,
    /// Those that succeeded, in the order in which they ended.
    won: Vec<Ordinal>,
    /// How many ended otherwise.
    failed: usize,
    decision: Option<Decision>,
}

impl Tally {
    /// Nothing has ended yet. `None`: nothing is asked of the calls together.
    pub fn of(siblings: Siblings) -> Option<Box<Tally>> {
        let asks = siblings != Siblings::Independent;
        asks.then(|| Box::new(Tally { siblings, won: Vec::new(), failed: 0, decision: None }))
    }

    /// A call ended. `calls`: how many there are, once that is known. Says what that decides; later ends decide nothing.
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

    /// It became known how many calls there are. Says what that decides.
    pub fn count(&mut self, calls: usize) -> Option<Decision> {
        if self.decision.is_some() { None } else { self.decide(Some(calls)) }
    }

    fn decide(&mut self, calls: Option<usize>) -> Option<Decision> {
        let needed = match self.siblings {
            Siblings::Independent => return None,
            // As many as there are: every call that is added is needed too, so only a failure decides.
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

    /// What is asked.
    pub fn siblings(&self) -> Siblings {
        self.siblings
    }

    /// What is decided for good.
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }

    /// What it has come to with so many calls: the decision; or, where all are needed, that all have succeeded, which
    /// stands until one is added.
    pub fn verdict(&self, calls: Option<usize>) -> Option<Decision> {
        let all = self.siblings == Siblings::FailFast && calls == Some(self.won.len());
        self.decision.or(all.then_some(Decision::Reached))
    }

    /// Those that had succeeded when it was decided, in the order in which they ended.
    pub fn won(&self) -> &[Ordinal] {
        &self.won
    }
}
