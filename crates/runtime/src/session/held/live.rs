//! The call of its driver, which changes only as its journal does.

use std::ops::Deref;
use std::sync::Arc;
use windlass_core::call::{Call, Detached, Fact, Illegal};
use windlass_core::operation::Operations;
use windlass_core::siblings::Decision;
use windlass_core::time::Timestamp;

/// A call that somebody drives. It can be read as a [`Call`], and changed in no other way than by its journal: by facts, by the
/// entries of its batch that are recorded elsewhere, and by the operations of its running attempt. Debug builds fold the journal
/// beside it and compare.
///
/// Nobody else has it before it has ended: then it is shared as it is, and not moved.
#[derive(Debug)]
pub(crate) struct LiveCall(Arc<Call>);

impl Deref for LiveCall {
    type Target = Call;

    #[inline]
    fn deref(&self) -> &Call {
        &self.0
    }
}

impl LiveCall {
    pub(crate) fn new(call: Arc<Call>) -> LiveCall {
        LiveCall(call)
    }

    /// Shares the call, which has ended.
    pub(crate) fn into_shared(self) -> Arc<Call> {
        self.0
    }

    /// Adds a fact that is recorded for this call.
    #[inline]
    pub(super) fn apply(&mut self, at: Timestamp, fact: &Fact) -> Result<(), Illegal> {
        Arc::make_mut(&mut self.0).apply(at, fact)
    }

    /// Adds a move of the wall clock, which its batch records before anything else of it.
    pub(super) fn clock_moved(&mut self, by_us: i64) {
        Arc::make_mut(&mut self.0).clock_moved(by_us);
    }

    /// Adds the cancel that its batch has recorded with the decision, before all that the driver has noted.
    pub(crate) fn dismissed(&mut self, decision: Decision) {
        Arc::make_mut(&mut self.0).dismissed(crate::session::batch::cancel(decision));
    }

    /// Gives its operations to a running attempt, which records more of them.
    pub(crate) fn lend_operations(&mut self) -> Option<Box<Operations>> {
        self.0.operations.is_some().then(|| Arc::make_mut(&mut self.0).operations.take()).flatten()
    }

    /// Takes back what the attempt recorded: its operations, and that the call became a task.
    pub(crate) fn take_back(&mut self, operations: Option<Box<Operations>>, detached: Option<Box<Detached>>) {
        // Names that were begun and never recorded leave none.
        let operations = operations.filter(|operations| !operations.is_empty());
        if operations.is_none() && detached.is_none() {
            return;
        }
        let call = Arc::make_mut(&mut self.0);
        call.operations = operations;
        call.task = detached.or(call.task.take());
    }
}
