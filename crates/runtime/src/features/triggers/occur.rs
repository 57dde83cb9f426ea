//! Calls started by an event: one for each matching trigger, recorded in the change that records the event.
//!
//! The batch of such a call is identified by the event and the trigger, and the event is emitted once over all attempts
//! of its call. So after an interruption either the event with all its calls is there, or neither.

use super::kept::{Armed, ArmedTrigger};
use crate::api::error::{BatchError, SessionError};
use crate::api::keys;
use crate::path::drive;
use crate::path::submit::{self, Starter};
use crate::session::admission::Admission;
use crate::session::batch::Used;
use crate::session::book::told::Unsent;
use crate::session::held::{DriveContext, SubmittedCalls};
use crate::session::lane::Commit;
use crate::session::owner::Session;
use crate::session::signal::AttemptSignal;
use crate::session::turns::DrivenCall;
use crate::tools::request::{Args, BatchRequest, CallRequest, ShapedBatch, check};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::{Detached, DetachedBy};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::operation::{Did, Triggered};
use windlass_core::outcome::JsonText;
use windlass_store::Row;

/// An event emitted by a running call.
pub(crate) struct ToldEvent {
    pub(crate) hold: Arc<DriveContext>,
    /// The signal of the emitting attempt.
    pub(crate) signal: Arc<AttemptSignal>,
    pub(crate) by: Starter,
    pub(crate) name: String,
    pub(crate) kind: Arc<str>,
    pub(crate) payload: EventPayload,
}

/// The payload of an event.
pub(crate) struct EventPayload {
    /// As it is recorded.
    pub(crate) text: JsonText,
    pub(crate) value: Value,
}

/// Whether a trigger of the session matches events of this kind.
pub(crate) async fn is_awaited(session: &Session, kind: &str) -> Result<bool, SessionError> {
    let armed = session.slots.of::<tokio::sync::Mutex<Armed>>();
    let mut armed = armed.lock().await;
    Ok(armed.read(session).await?.iter().any(|trigger| trigger.kept.event == *kind))
}

/// A batch to start, with its content.
struct DueBatch<'a> {
    trigger: &'a mut ArmedTrigger,
    batch: Used,
    checked: ShapedBatch,
}

impl ToldEvent {
    /// Records the event with all its calls, and starts them.
    pub(crate) async fn tell(self) -> Result<(), Unsent> {
        let (commit, started) = self.send().await?;
        match commit.durable().await {
            Ok(()) => {
                for new in started {
                    let on = new.on.clone();
                    drive::start_all(&on, new.into_calls()).await;
                }
                Ok(())
            }
            Err(lost) => {
                for new in &started {
                    for call in &new.calls {
                        drive::give_up(&new.on, DrivenCall { id: call.id, fresh: true }, lost.clone());
                    }
                }
                Err(Unsent::Refused(lost.into()))
            }
        }
    }

    /// Sends the event, and the calls to start.
    async fn send(&self) -> Result<(Commit<'_>, Vec<SubmittedCalls>), Unsent> {
        let DriveContext { rt, session, batch } = &*self.hold;
        let armed = session.slots.of::<tokio::sync::Mutex<Armed>>();
        let mut armed = armed.lock().await;
        let all = armed.read(session).await?;
        let admission = session.admit().await;
        admission.check_stays().map_err(SessionError::from)?;
        let mut due = Vec::new();
        for trigger in all.iter_mut().filter(|trigger| trigger.kept.takes(&self.kind, &self.payload.value)) {
            match self.due(&admission, trigger).await {
                Ok(found) => due.push(found),
                Err(error) => {
                    forget(session, &due);
                    return Err(error.into());
                }
            }
        }
        let at = rt.clock.now();
        let batches: Vec<Used> = due.iter().map(|due| due.batch.clone()).collect();
        let sent = self.signal.book.send_event(batch, &session.lane, at, &self.name, || self.start(due));
        // Unsent batches are empty.
        sent.inspect_err(|_| batches.iter().for_each(|batch| session.forget(batch)))
    }

    /// The batch that a trigger makes of it.
    async fn due<'a>(
        &self,
        admission: &Admission<'_>,
        trigger: &'a mut ArmedTrigger,
    ) -> Result<DueBatch<'a>, BatchError> {
        let rt = &self.hold.rt;
        let ArmedTrigger { id, kept } = trigger;
        let call = CallRequest {
            id: Some("run".to_string()),
            tool: kept.tool.clone(),
            args: Args::Json(kept.given.with(&self.payload.value)),
            ..CallRequest::default()
        };
        let mut checked = check(BatchRequest { calls: vec![call], ..BatchRequest::default() }, &rt.limits)?;
        checked.trace = self.hold.trace_link(self.by.call);
        let task = Detached {
            by: DetachedBy::Triggered,
            wake: kept.wake(),
            title: kept.title.as_deref().map(Arc::from),
            starter: Some(self.by.call),
            depth: self.by.depth + 1,
        };
        checked.calls.iter_mut().for_each(|asked| asked.opened.task = Some(Box::new(task.clone())));
        let emitter = Handle::seal(rt.store.secret(), HandleKind::Call, self.by.call.packed());
        let key: Arc<str> = keys::triggered(emitter, &self.name, id).into();
        let batch = submit::find_or_make(rt, admission, &checked, &key).await?;
        Ok(DueBatch { trigger, batch, checked })
    }

    /// Places the calls: returns the event's record, the rows after it, and the calls to drive.
    fn start(&self, due: Vec<DueBatch<'_>>) -> Result<(Did, Vec<Row>, Vec<SubmittedCalls>), BatchError> {
        let DriveContext { rt, session, .. } = &*self.hold;
        let (mut triggered, mut rows, mut started) = (Vec::new(), Vec::new(), Vec::new());
        for DueBatch { trigger: ArmedTrigger { id, kept }, batch, checked } in due {
            let call = CallId { batch: batch.head.no, ordinal: Ordinal(0) };
            started.push(submit::place(rt, session, &batch, checked.calls)?.1);
            rows.extend(batch.take_unsent());
            kept.started(rt.clock.now(), call);
            rows.push(kept.row(id));
            triggered.push(Triggered { trigger: id.clone(), call });
        }
        let (event, payload) = (self.kind.clone(), self.payload.text.clone());
        Ok((Did::Emitted { event, payload, triggered: triggered.into() }, rows, started))
    }
}

fn forget(session: &Session, due: &[DueBatch<'_>]) {
    due.iter().for_each(|due| session.forget(&due.batch));
}
