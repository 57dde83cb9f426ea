//! Calls started by an event: one for each matching trigger, recorded in the change that records the event.
//!
//! The batch of such a call is identified by the event and the trigger, and the event is emitted once over all attempts
//! of its call. So after an interruption either the event with all its calls is there, or neither.

use super::kept::{Armed, ArmedTrigger};
use super::ledger::{self, EventLedger};
use crate::api::error::{BatchError, SessionError};
use crate::api::keys;
use crate::api::observer::{CallOrigin, NestedCall, Observer};
use crate::path::drive;
use crate::path::submit::{self, Starter};
use crate::session::admission::Admission;
use crate::session::batch::Used;
use crate::session::book::told::Unsent;
use crate::session::held::{DriveContext, SubmittedCalls};
use crate::session::inner::Inner;
use crate::session::lane::Commit;
use crate::session::notices;
use crate::session::owner::Session;
use crate::session::plugs::FollowUp;
use crate::session::signal::AttemptSignal;
use crate::session::turns::DrivenCall;
use crate::session::vault::Vault;
use crate::tools::request::{Args, BatchRequest, CallRequest, ShapedBatch, check};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::{Detached, DetachedBy};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::operation::{Did, EventNumber, Triggered};
use windlass_core::outcome::JsonText;
use windlass_store::Row;

/// An emitted event. See [`Cx::emit`](crate::Cx::emit).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Emission {
    /// Its number among the events of the session, from 1.
    pub number: u64,
    /// The tasks that it started through triggers, in the order of the triggers.
    #[serde(serialize_with = "as_texts")]
    pub tasks: Vec<Handle>,
    /// Whether it is new. `false`: an event with its key was emitted before and has this number; nothing was started.
    pub is_new: bool,
}

fn as_texts<S: serde::Serializer>(handles: &[Handle], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(handles.iter().map(Handle::to_string))
}

/// An event that is being emitted.
pub(super) struct ToldEvent {
    pub(super) rt: Arc<Inner>,
    pub(super) session: Arc<Session>,
    pub(super) source: EventEmitter,
    pub(super) kind: Arc<str>,
    pub(super) payload: EventPayload,
    /// The key by which it is unique in the session.
    pub(super) once_by: Option<String>,
    /// The text of the notice by which it wakes the agent.
    pub(super) wakes: Option<String>,
    /// The observer of the emitting call.
    pub(super) observer: Option<Observer>,
}

/// The source of an event.
pub(super) enum EventEmitter {
    /// A running call, under a name.
    Call { hold: Arc<DriveContext>, signal: Arc<AttemptSignal>, by: Starter, name: String },
    /// A call that has succeeded, and planned it under a name: the row of the plan goes with the event.
    Planned { by: Starter, name: String, plan: Row },
    /// The host.
    Host,
}

impl EventEmitter {
    fn starter(&self) -> Option<Starter> {
        match self {
            EventEmitter::Call { by, .. } | EventEmitter::Planned { by, .. } => Some(*by),
            EventEmitter::Host => None,
        }
    }
}

/// The payload of an event.
pub(super) struct EventPayload {
    /// As it is recorded.
    pub(super) text: JsonText,
    pub(super) value: Value,
}

impl EventPayload {
    /// The payload with a marker for each secret.
    pub(super) fn without_secrets(mut self, vault: &Vault) -> EventPayload {
        if vault.guards()
            && let Some(known) = vault.known()
            && known.scrub_value(&mut self.value)
        {
            self.text = self.value.to_string().into();
        }
        self
    }
}

/// A batch to start, with its content.
struct DueBatch<'a> {
    trigger: &'a mut ArmedTrigger,
    batch: Used,
    checked: ShapedBatch,
}

/// The records of an event, and the calls to start.
struct StartedByEvent {
    triggered: Vec<Triggered>,
    rows: Vec<Row>,
    calls: Vec<SubmittedCalls>,
}

/// An event on its way to the store.
struct SentEvent<'a> {
    commit: Commit<'a>,
    triggered: Vec<Triggered>,
    calls: Vec<SubmittedCalls>,
}

impl ToldEvent {
    /// Records the event with all its calls, and starts them.
    pub(super) async fn tell(self) -> Result<Emission, Unsent> {
        let ledger = self.session.slots.of::<tokio::sync::Mutex<EventLedger>>();
        let mut ledger = ledger.lock().await;
        let unique = self.once_by.as_deref().map(|key| ledger::unique(&self.kind, key));
        if let Some(key) = unique.as_ref().filter(|_| !windlass_core::mutant::breaks("event-key-forgotten"))
            && let Some(number) = EventLedger::first(&self.session, key).await?
        {
            drop(ledger);
            return self.tell_again(number).await;
        }
        let number = ledger.next(&self.session).await?;
        let SentEvent { commit, triggered, calls } = self.send(number, unique.as_deref()).await?;
        ledger.used(number);
        // The next event with the same key must find this one.
        let durable = if unique.is_some() {
            let durable = commit.durable().await;
            drop(ledger);
            durable
        } else {
            drop(ledger);
            commit.durable().await
        };
        if let Err(lost) = durable {
            for new in &calls {
                for call in &new.calls {
                    drive::give_up(&new.on, DrivenCall { id: new.id_of(call), fresh: true }, lost.clone());
                }
            }
            return Err(Unsent::Refused(lost.into()));
        }
        self.tell_observer(&calls, &triggered);
        for new in calls {
            let on = new.on.clone();
            drive::start_all(&on, new.into_calls()).await;
        }
        if self.wakes.is_some() {
            self.rt.follow_up(&self.session, FollowUp::Noticed(1));
        }
        let secret = self.rt.store.secret();
        let task = |one: &Triggered| Handle::seal(secret, HandleKind::Call, one.call.packed());
        Ok(Emission { number, tasks: triggered.iter().map(task).collect(), is_new: true })
    }

    /// Tells the observer of the emitting call of the tasks, before they begin.
    fn tell_observer(&self, started: &[SubmittedCalls], triggered: &[Triggered]) {
        let (Some(observer), Some(by)) = (&self.observer, self.source.starter()) else { return };
        let handle = |call: CallId| Handle::seal(self.rt.store.secret(), HandleKind::Call, call.packed());
        for (new, one) in started.iter().zip(triggered) {
            new.on.batch.head.place.observe(observer.clone());
            for call in &new.calls {
                let (id, tool) = (one.trigger.to_string(), call.opened.tool.to_string());
                let (origin, inside) = (CallOrigin::Triggered, handle(by.call));
                observer.tell(&NestedCall { origin, call: handle(new.id_of(call)), id, tool, inside });
            }
        }
    }

    /// An event with its key was emitted before: the call records that, and nothing is started.
    async fn tell_again(&self, number: u64) -> Result<Emission, Unsent> {
        if let EventEmitter::Call { hold, signal, name, .. } = &self.source {
            let numbered = EventNumber { number, is_again: true };
            let did = self.did(Arc::default(), numbered);
            let (lane, at) = (&self.session.lane, self.rt.clock.now());
            let sent = signal.book.send_event(&hold.batch, lane, at, name, || Ok((did, Vec::new(), ())));
            let (commit, ()) = sent?;
            commit.durable().await.map_err(SessionError::from)?;
        }
        if let EventEmitter::Planned { plan, .. } = &self.source {
            self.session.lane.commit_rows(vec![plan.clone()]).await.map_err(SessionError::from)?;
        }
        Ok(Emission { number, tasks: Vec::new(), is_new: false })
    }

    /// Sends the event, and the calls to start.
    async fn send(&self, number: u64, unique: Option<&str>) -> Result<SentEvent<'_>, Unsent> {
        let session = &self.session;
        let armed = session.slots.of::<tokio::sync::Mutex<Armed>>();
        let mut armed = armed.lock().await;
        let all = armed.read(session).await?;
        let takes = |trigger: &ArmedTrigger| trigger.kept.takes(&self.kind, &self.payload.value);
        let admission = if all.iter().any(takes) { Some(session.admit().await) } else { None };
        session.check_stays().map_err(SessionError::from)?;
        let mut due = Vec::new();
        for trigger in all.iter_mut().filter(|trigger| takes(trigger)) {
            let Some(admission) = &admission else { break };
            match self.due(admission, trigger, number).await {
                Ok(found) => due.push(found),
                Err(error) => {
                    forget(session, &due);
                    return Err(error.into());
                }
            }
        }
        let batches: Vec<Used> = due.iter().map(|due| due.batch.clone()).collect();
        let sent = self.record(due, number, unique);
        // Unsent batches are empty.
        sent.inspect_err(|_| batches.iter().for_each(|batch| session.forget(batch)))
    }

    /// Sends the record of the event with everything that it starts, in one change.
    fn record(
        &self,
        due: Vec<DueBatch<'_>>,
        number: u64,
        unique: Option<&str>,
    ) -> Result<SentEvent<'_>, Unsent> {
        let (lane, at) = (&self.session.lane, self.rt.clock.now());
        let own = ledger::rows(number, unique).chain(self.notice(number));
        match &self.source {
            EventEmitter::Call { hold, signal, name, .. } => {
                let started = || {
                    let StartedByEvent { triggered, mut rows, calls } = self.start(due)?;
                    rows.extend(own);
                    let did = self.did(triggered.clone().into(), EventNumber { number, is_again: false });
                    Ok((did, rows, (triggered, calls)))
                };
                let (commit, (triggered, calls)) =
                    signal.book.send_event(&hold.batch, lane, at, name, started)?;
                Ok(SentEvent { commit, triggered, calls })
            }
            EventEmitter::Planned { .. } | EventEmitter::Host => {
                let StartedByEvent { triggered, mut rows, calls } = self.start(due)?;
                rows.extend(own);
                if let EventEmitter::Planned { plan, .. } = &self.source {
                    rows.push(plan.clone());
                }
                Ok(SentEvent { commit: lane.send(Vec::new(), rows), triggered, calls })
            }
        }
    }

    fn did(&self, triggered: Arc<[Triggered]>, numbered: EventNumber) -> Did {
        let (event, payload) = (self.kind.clone(), self.payload.text.clone());
        Did::Emitted { event, payload, triggered, numbered }
    }

    /// The notice by which it wakes the agent.
    fn notice(&self, number: u64) -> Option<Row> {
        let text = self.wakes.clone()?;
        let (call, at) = (self.source.starter().map(|by| by.call), self.rt.clock.now());
        Some(notices::of_event(call, &self.kind, number, text, at))
    }

    /// The batch that a trigger makes of it.
    async fn due<'a>(
        &self,
        admission: &Admission<'_>,
        trigger: &'a mut ArmedTrigger,
        number: u64,
    ) -> Result<DueBatch<'a>, BatchError> {
        let rt = &self.rt;
        let ArmedTrigger { id, kept } = trigger;
        let call = CallRequest {
            id: Some("run".to_string()),
            tool: kept.tool.clone(),
            args: Args::Json(kept.given.with(&self.payload.value)),
            ..CallRequest::default()
        };
        let mut checked = check(BatchRequest { calls: vec![call], ..BatchRequest::default() }, &rt.limits)?;
        let starter = self.source.starter();
        if let (EventEmitter::Call { hold, .. }, Some(by)) = (&self.source, starter) {
            checked.trace = hold.trace_link(by.call);
        }
        let task = Detached {
            by: DetachedBy::Triggered,
            wake: kept.wake(),
            title: kept.title.as_deref().map(Arc::from),
            starter: starter.map(|by| by.call),
            depth: starter.map_or(0, |by| by.depth) + 1,
            budget_ms: None,
            tags: Vec::new(),
        };
        checked.calls.iter_mut().for_each(|asked| asked.opened.task = Some(Box::new(task.clone())));
        let key: Arc<str> = match &self.source {
            EventEmitter::Call { by, name, .. } | EventEmitter::Planned { by, name, .. } => {
                let emitter = Handle::seal(rt.store.secret(), HandleKind::Call, by.call.packed());
                keys::triggered(emitter, name, id).into()
            }
            EventEmitter::Host => keys::triggered_by_host(number, id).into(),
        };
        let batch = submit::find_or_make(rt, admission, &checked, &key).await?;
        Ok(DueBatch { trigger, batch, checked })
    }

    /// Places the calls: returns the rows behind the event's record, and the calls to drive.
    fn start(&self, due: Vec<DueBatch<'_>>) -> Result<StartedByEvent, BatchError> {
        let (rt, session) = (&self.rt, &self.session);
        let mut started = StartedByEvent { triggered: Vec::new(), rows: Vec::new(), calls: Vec::new() };
        for DueBatch { trigger: ArmedTrigger { id, kept }, batch, checked } in due {
            let call = CallId { batch: batch.head.no, ordinal: Ordinal(0) };
            started.calls.push(submit::place(rt, session, &batch, checked.calls)?.1);
            started.rows.extend(batch.take_unsent());
            kept.started(rt.clock.now(), call);
            if let Some(by) = self.source.starter() {
                rt.meters.started(by.call, call);
            }
            started.rows.push(kept.row(id));
            started.triggered.push(Triggered { trigger: id.clone(), call });
        }
        Ok(started)
    }
}

fn forget(session: &Session, due: &[DueBatch<'_>]) {
    due.iter().for_each(|due| session.forget(&due.batch));
}
