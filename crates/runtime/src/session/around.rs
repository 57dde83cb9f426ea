//! Calls inside other calls: the calls around a batch, and the rules for those inside.

use crate::session::batch::{BatchHead, OpenBatch};
use crate::session::held::Held;
use crate::session::owner::Session;
use windlass_core::batch::Parent;
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::operation::Operations;

impl Session {
    /// Whether the calls of a batch run inside this call, directly or not.
    pub(crate) fn is_around(&self, call: CallId, batch: &OpenBatch) -> bool {
        let mut parent = batch.head.parent;
        while let Some(around) = parent {
            if around.call == call {
                return true;
            }
            parent = self.find_no(around.call.batch).and_then(|batch| batch.head.parent);
        }
        false
    }

    /// Whether a call, or one around it, is a task or has the deadlines of one.
    pub(crate) fn is_in_task(&self, call: Parent) -> bool {
        let mut around = Some(call);
        while let Some(Parent { call, .. }) = around {
            let Some(batch) = self.find_no(call.batch) else { return false };
            if batch.head.task_deadlines || batch.is_task(call.ordinal) {
                return true;
            }
            around = batch.head.parent;
        }
        false
    }

    /// Makes the attempts inside a call check their deadlines.
    pub(crate) fn ring_inside(&self, call: CallId) {
        for batch in self.inside(call) {
            for ordinal in (0..batch.len() as u16).map(Ordinal) {
                if let Some(signal) = batch.signal_of(ordinal) {
                    signal.book.ring();
                    self.ring_inside(CallId { batch: batch.head.no, ordinal });
                }
            }
        }
    }

    /// The outermost batch around a batch, as far as it is open.
    pub(crate) fn outermost(&self, head: &BatchHead) -> BatchNo {
        let (mut no, mut parent) = (head.no, head.parent);
        while let Some(around) = parent {
            no = around.call.batch;
            parent = self.find_no(no).and_then(|batch| batch.head.parent);
        }
        no
    }
}

impl Held {
    /// Whether it has made nested calls.
    pub(crate) fn has_called(&self) -> bool {
        self.call.operations.as_deref().is_some_and(Operations::has_call)
    }
}
