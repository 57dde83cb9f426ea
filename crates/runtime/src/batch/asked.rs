//! What is asked of calls by those who do not drive them.

use crate::held::Ack;
use crate::same::Answer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::call::Call;
use windlass_core::operation::Completion;
use windlass_core::outcome::JsonText;
use windlass_core::siblings::Decision;
use windlass_store::Row;

/// What is asked of a call by somebody who does not drive it.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// To stop.
    Cancel(Option<Arc<str>>),
    /// To stop, because its batch was decided without it. That is recorded.
    Decided(Decision),
    /// To go on under what its tool has become.
    Accept,
    /// To end like the call that it is the same as.
    Same(Arc<Answer>),
    /// To look again: the call that it is the same as is over, and now it may be the first.
    Look,
    /// To go on with what the world outside has answered.
    Complete {
        /// Under which name it is waited for.
        name: Arc<str>,
        completion: Completion,
    },
    /// To receive a signal.
    Signal(Arc<Signalled>),
    /// To go on if it waits until its session is connected to this, or to end if somebody declined.
    Connect { provider: Arc<str>, connected: bool },
}

impl Asked {
    /// Whether it changes something for a call that waits.
    pub(super) fn concerns(&self, call: &Call) -> bool {
        match self {
            Asked::Connect { provider, .. } => {
                call.unconnected().is_some_and(|said| said.provider == *provider)
            }
            Asked::Cancel(_)
            | Asked::Decided(_)
            | Asked::Accept
            | Asked::Same(_)
            | Asked::Look
            | Asked::Complete { .. }
            | Asked::Signal(_) => true,
        }
    }

    /// The signal that it is, if it is one.
    pub(crate) fn signal(&self) -> Option<Arc<Signalled>> {
        if let Asked::Signal(signal) = self { Some(signal.clone()) } else { None }
    }

    /// Whether it comes from the world outside, for what the call does by name.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Asked::Complete { .. } | Asked::Signal(_))
    }
}

/// A signal on its way to its call. It is recorded and adopted in one change, so that it is never received twice.
#[derive(Debug)]
pub(crate) struct Signalled {
    pub(crate) name: Arc<str>,
    pub(crate) payload: JsonText,
    /// The key of its message.
    pub(crate) key: String,
    /// Whether somebody has the row by which it is adopted.
    is_adopted: AtomicBool,
}

impl Signalled {
    pub(crate) fn new(name: Arc<str>, payload: JsonText, key: String) -> Signalled {
        Signalled { name, payload, key, is_adopted: AtomicBool::new(false) }
    }

    /// The row by which it is adopted; whoever asks for it writes it.
    pub(crate) fn adopt(&self) -> Option<Row> {
        if windlass_core::mutant::breaks("signal-apart") {
            return None;
        }
        self.is_adopted.store(true, Ordering::SeqCst);
        Some(Row::Adopt { key: self.key.clone() })
    }

    /// Whether somebody has that row.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Ordering::SeqCst)
    }
}

/// What was asked, and who waits until it is recorded.
pub(crate) struct Heard {
    pub(crate) what: Asked,
    pub(crate) ack: Option<Ack>,
}

/// Where something that is asked of a call has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Driven: its driver hears of it.
    Driven,
    /// Parked: it must be woken.
    Parked,
    /// Over, or it waits for something else: nothing changes.
    Over,
}
