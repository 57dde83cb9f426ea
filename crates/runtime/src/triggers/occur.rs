//! What an event starts: one call for each trigger that takes it, recorded in the change that records the event.
//!
//! The batch of such a call is known by the event and the trigger, and the event is told once over all attempts of its call. So
//! whoever was cut off finds the event with all it started, or neither.

use super::kept::Kept;
use super::key;
use crate::batch::{Used, With};
use crate::drive;
use crate::error::BatchError;
use crate::held::{Hold, Submitted};
use crate::inside::told::Unsent;
use crate::lane::Commit;
use crate::request::{Args, BatchRequest, CallRequest, Checked, check};
use crate::session::Session;
use crate::signal::Signal;
use crate::submit::{self, Starter};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::{Detached, DetachedBy};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::operation::{Did, Triggered};
use windlass_core::outcome::JsonText;

/// An event that a running call tells of.
pub(crate) struct Event {
    pub(crate) hold: Arc<Hold>,
    /// Of the attempt that tells of it.
    pub(crate) signal: Arc<Signal>,
    pub(crate) by: Starter,
    pub(crate) name: String,
    pub(crate) kind: Arc<str>,
    /// The payload as it is kept, and as it is.
    pub(crate) payload: (JsonText, Value),
}

/// Whether a trigger of the session looks at events of this kind.
pub(crate) async fn is_awaited(session: &Session, kind: &str) -> Result<bool, BatchError> {
    let mut armed = session.triggers.lock().await;
    Ok(armed.read(session).await?.iter().any(|(_, kept)| kept.event == *kind))
}

/// A batch that is to be started, and what stands in it.
struct Due<'a> {
    trigger: &'a mut (Arc<str>, Kept),
    batch: Used,
    checked: Checked,
}

impl Event {
    /// Records it with all that it starts, and starts that.
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
                    new.calls.iter().for_each(|call| drive::give_up(&new.on, (call.id, true), lost.clone()));
                }
                Err(Unsent::Refused(lost.into()))
            }
        }
    }

    /// Sends the event, and the calls that are to be started.
    async fn send(&self) -> Result<(Commit<'_>, Vec<Submitted>), Unsent> {
        let Hold { rt, session, batch } = &*self.hold;
        let mut armed = session.triggers.lock().await;
        let all = armed.read(session).await?;
        let _admission = session.admission.lock().await;
        session.check_stays().map_err(BatchError::from)?;
        let mut due = Vec::new();
        for trigger in all.iter_mut().filter(|(_, kept)| kept.takes(&self.kind, &self.payload.1)) {
            match self.due(trigger).await {
                Ok(found) => due.push(found),
                Err(error) => {
                    forget(session, &due);
                    return Err(error.into());
                }
            }
        }
        let at = rt.clock.now();
        let batches: Vec<Used> = due.iter().map(|due| due.batch.clone()).collect();
        let sent = self.signal.book.send_event((batch, &session.lane), (at, &self.name), || self.start(due));
        // Those that were not sent are empty.
        sent.inspect_err(|_| batches.iter().for_each(|batch| session.forget(batch)))
    }

    /// What a trigger makes of it.
    async fn due<'a>(&self, trigger: &'a mut (Arc<str>, Kept)) -> Result<Due<'a>, BatchError> {
        let Hold { rt, session, .. } = &*self.hold;
        let (id, kept) = trigger;
        let call = CallRequest {
            id: Some("run".to_string()),
            tool: kept.tool.clone(),
            args: Args::Json(kept.given.with(&self.payload.1)),
            ..CallRequest::default()
        };
        let mut checked = check(BatchRequest { calls: vec![call], ..BatchRequest::default() }, &rt.limits)?;
        let task = Detached {
            by: DetachedBy::Triggered,
            wake: kept.wake(),
            title: kept.title.as_deref().map(Arc::from),
            starter: Some(self.by.call),
            depth: self.by.depth + 1,
        };
        checked.calls.iter_mut().for_each(|asked| asked.opened.task = Some(Box::new(task.clone())));
        let emitter = Handle::seal(rt.store.secret(), Kind::Call, self.by.call.packed());
        let key: Arc<str> = key(emitter, &self.name, id).into();
        let batch = submit::find_or_make(rt, session, (&checked, &key)).await?;
        Ok(Due { trigger, batch, checked })
    }

    /// Places the calls: what is recorded of the event, what is written behind it, and what is then to be driven.
    fn start(&self, due: Vec<Due<'_>>) -> Result<(Did, With, Vec<Submitted>), BatchError> {
        let Hold { rt, session, .. } = &*self.hold;
        let (mut triggered, mut with, mut started) = (Vec::new(), With::default(), Vec::new());
        for Due { trigger: (id, kept), batch, checked } in due {
            let call = CallId { batch: batch.head.no, ordinal: Ordinal(0) };
            started.push(submit::place(rt, session, &batch, checked.calls)?.1);
            let With { guards, rows } = batch.take_unsent();
            with.guards.extend(guards);
            with.rows.extend(rows);
            kept.started(rt.clock.now(), call);
            with.rows.push(kept.row(id));
            triggered.push(Triggered { trigger: id.clone(), call });
        }
        let (event, payload) = (self.kind.clone(), self.payload.0.clone());
        Ok((Did::Emitted { event, payload, triggered: triggered.into() }, with, started))
    }
}

fn forget(session: &Session, due: &[Due<'_>]) {
    due.iter().for_each(|due| session.forget(&due.batch));
}
