//! Telling an observer of calls that come from others.

use super::Answering;
use crate::api::observer::{CallOrigin, NestedCall};
use crate::session::batch::OpenBatch;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::request::RecordedRequest;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;

/// Calls that came from another one, where somebody is told of those that are new.
pub(super) struct ObservedCalls {
    origin: CallOrigin,
    /// The call that they came from.
    from: CallId,
    /// The id and the tool of each.
    calls: Vec<(String, String)>,
}

/// Calls of a batch that somebody is told of.
pub(super) fn observed(
    session: &Session,
    batch: &OpenBatch,
    calls: &[RecordedRequest],
) -> Option<ObservedCalls> {
    batch.head.place.observer()?;
    let started = || calls.first()?.opened.task.as_ref()?.starter;
    let (origin, from) = match (batch.head.parent, started(), session.opener()) {
        (Some(parent), ..) => (CallOrigin::Nested, parent.call),
        (None, Some(starter), _) => (CallOrigin::Spawned, starter),
        (None, None, Some(opener)) => (CallOrigin::Child, opener),
        (None, None, None) => return None,
    };
    let calls = calls.iter().map(|call| (call.opened.id.to_string(), call.opened.tool.to_string()));
    Some(ObservedCalls { origin, from, calls: calls.collect() })
}

impl ObservedCalls {
    /// Tells the observer of calls that are new, before they begin.
    pub(super) fn tell(self, rt: &Inner, batch: &OpenBatch, answers: &[Answering]) {
        let Some(observer) = batch.head.place.observer() else { return };
        let ObservedCalls { origin, from, calls } = self;
        let handle = |call: CallId| Handle::seal(rt.store.secret(), HandleKind::Call, call.packed());
        for ((id, tool), answer) in calls.into_iter().zip(answers).filter(|(_, answer)| !answer.known) {
            let call = handle(CallId { batch: batch.head.no, ordinal: answer.ordinal });
            observer.tell(&NestedCall { origin, call, id, tool, inside: handle(from) });
        }
    }
}
