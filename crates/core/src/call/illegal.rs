//! Facts that contradict what is recorded.

use super::fact::Fact;
use super::fold::{Call, State, is_open};
use super::kind::Kind;

/// A fact that cannot follow what is recorded: the journal is damaged, or the code that wrote it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot have {fact} (attempt {attempts})")]
pub struct Illegal {
    /// Where the call stood.
    pub state: &'static str,
    /// The fact that could not be applied.
    pub fact: Kind,
    /// How many attempts it had.
    pub attempts: u32,
}

impl Call {
    /// Sets an open call aside whose journal has a fact that cannot follow: all that is left to do is to record that.
    pub fn contradicted(&mut self, illegal: &Illegal) {
        if is_open(&self.state) && !matches!(self.state, State::SetAside { .. }) {
            self.state = State::SetAside { why: illegal.to_string().into(), recorded: false };
        }
    }

    pub(super) fn illegal(&self, fact: &Fact) -> Illegal {
        Illegal { state: self.state.name(), fact: fact.kind(), attempts: self.attempts }
    }
}
