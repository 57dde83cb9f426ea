//! Batches that somebody may wait for.

use crate::session::batch::{OpenBatch, Used};
use crate::session::inner::Inner;
use std::ops::Deref;
use std::sync::Arc;

/// A batch that somebody may wait for, until this is dropped.
pub(super) struct Attended {
    rt: Arc<Inner>,
    batch: Used,
}

impl Attended {
    pub(super) fn new(rt: &Arc<Inner>, batch: &Used) -> Attended {
        batch.attend();
        Attended { rt: rt.clone(), batch: batch.clone() }
    }
}

impl Deref for Attended {
    type Target = OpenBatch;

    fn deref(&self) -> &OpenBatch {
        &self.batch
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.batch.leave_alone() {
            self.rt.turns.answered(&self.rt, self.batch.head.no);
        }
    }
}
