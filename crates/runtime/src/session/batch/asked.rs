//! Messages to calls from tasks that do not drive them.

use crate::session::held::Ack;
use crate::session::same::SharedEnd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::ask::Decide;
use windlass_core::call::Call;
use windlass_core::operation::Completion;
use windlass_core::outcome::JsonText;
use windlass_core::siblings::Decision;
use windlass_store::Row;

/// A message to a call from a task that does not drive it.
#[derive(Clone, Debug)]
pub(crate) enum CallDemand {
    /// Stop.
    Cancel(Option<Arc<str>>),
    /// Stop, because its batch was decided without it. That is recorded.
    Decided(Decision),
    /// A person approved or denied it.
    Approval(Arc<Decide>),
    /// Be judged again, if it waits for an approval.
    Rejudge,
    /// Continue with the changed tool.
    Accept,
    /// End like the call that it duplicates.
    Same(Arc<SharedEnd>),
    /// Check again: the call that it duplicates is over, and now it may be the first.
    Look,
    /// Continue with an external answer.
    Complete {
        /// The name of the wait.
        name: Arc<str>,
        completion: Completion,
    },
    /// Receive a signal.
    Signal(Arc<SignalDelivery>),
    /// Continue if it waits until its session is connected to this provider, or end if that was declined.
    Connect { provider: Arc<str>, connected: bool },
}

impl CallDemand {
    /// Whether it affects a waiting call.
    pub(super) fn concerns(&self, call: &Call) -> bool {
        match self {
            CallDemand::Connect { provider, .. } => {
                call.unconnected().is_some_and(|said| said.provider == *provider)
            }
            CallDemand::Rejudge => call.open_approval().is_some(),
            CallDemand::Cancel(_)
            | CallDemand::Approval(_)
            | CallDemand::Decided(_)
            | CallDemand::Accept
            | CallDemand::Same(_)
            | CallDemand::Look
            | CallDemand::Complete { .. }
            | CallDemand::Signal(_) => true,
        }
    }

    /// The signal, if it is one.
    pub(crate) fn signal(&self) -> Option<Arc<SignalDelivery>> {
        if let CallDemand::Signal(signal) = self { Some(signal.clone()) } else { None }
    }

    /// Whether it is an external answer to a named operation.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, CallDemand::Complete { .. } | CallDemand::Signal(_))
    }
}

/// A signal on its way to its call. It is recorded and adopted in one change, so that it is never received twice.
#[derive(Debug)]
pub(crate) struct SignalDelivery {
    pub(crate) name: Arc<str>,
    pub(crate) payload: JsonText,
    /// The key of its message.
    pub(crate) key: String,
    /// Whether the row that adopts it was taken.
    is_adopted: AtomicBool,
}

impl SignalDelivery {
    pub(crate) fn new(name: Arc<str>, payload: JsonText, key: String) -> SignalDelivery {
        SignalDelivery { name, payload, key, is_adopted: AtomicBool::new(false) }
    }

    /// Takes the row that adopts it; the caller writes it.
    pub(crate) fn adopt(&self) -> Option<Row> {
        if windlass_core::mutant::breaks("signal-apart") {
            return None;
        }
        self.is_adopted.store(true, Ordering::SeqCst);
        Some(Row::Adopt { key: self.key.clone() })
    }

    /// Whether that row was taken.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Ordering::SeqCst)
    }
}

/// A message, and the acknowledgement for its sender.
pub(crate) struct HeardDemand {
    pub(crate) what: CallDemand,
    pub(crate) ack: Option<Ack>,
}

/// The state in which a message found its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemandReach {
    /// Driven: its driver receives it.
    Driven,
    /// Parked: it must be woken.
    Parked,
    /// Over, or waiting for something else: nothing changes.
    Over,
}
