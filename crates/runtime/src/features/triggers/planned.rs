//! Events that are emitted if their calls succeed.
//!
//! The plan is an entry of its call with a row beside it. Once the call has ended the event is emitted, in the change that
//! removes the row, or the row is only removed. If a crash comes first, the next owner finds the row.

use super::occur::{EventEmitter, EventPayload, ToldEvent};
use crate::api::error::{BatchError, SessionError, chain};
use crate::api::journal::read_batch;
use crate::path::submit::Starter;
use crate::session::book::told::Unsent;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::ids::CallId;
use windlass_core::operation::Operations;
use windlass_core::outcome::Outcome;
use windlass_store::{Row, Space};

/// The prefix of the keys of plans, in the space of waits.
pub(crate) const PLANNED: &str = "p";

/// The key of a plan.
pub(super) fn key(call: CallId, name: &str) -> String {
    // A name can be long.
    format!("{PLANNED}{:016x}/{}", call.packed(), &blake3::hash(name.as_bytes()).to_hex()[..16])
}

/// Emits the planned events of a session one after the other: an end and the look at what the last owner left may find the same.
#[derive(Default)]
struct PlannedGate(tokio::sync::Mutex<()>);

/// Calls have ended that planned events.
pub(crate) fn emit_planned(rt: &Arc<Inner>, session: &Arc<Session>, calls: Vec<CallId>) {
    let (rt, session) = (rt.clone(), session.clone());
    rt.tasks.clone().spawn(async move {
        for call in calls {
            if let Err(error) = emit_one(&rt, &session, call).await {
                // The plan stays for the next owner.
                tracing::error!(session = %session.name, %call, error = %chain(&error), "planned events are not emitted");
            }
        }
    });
}

/// Emits the planned events of a call, if it has succeeded; forgets them if it ended otherwise.
pub(crate) async fn emit_one(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    call: CallId,
) -> Result<(), SessionError> {
    let gate = session.slots.of::<PlannedGate>();
    let _alone = gate.0.lock().await;
    let Some(batch) = read_batch(&*rt.store, call.batch).await? else { return Ok(()) };
    let Some(recorded) = batch.calls.get(usize::from(call.ordinal.0)) else { return Ok(()) };
    let Some(outcome) = recorded.outcome() else { return Ok(()) };
    for (name, kind, payload) in recorded.operations.as_deref().into_iter().flat_map(Operations::planned) {
        let key = key(call, name);
        let there = session.lane.store().record(Space::Awaited.of(session.lane.session()), &key).await?;
        if there.is_none() {
            continue;
        }
        let plan = Row::Remove { space: Space::Awaited, key };
        if !matches!(outcome, Outcome::Succeeded(_)) {
            session.lane.commit_rows(vec![plan]).await?;
            continue;
        }
        let value = serde_json::from_str(payload).unwrap_or_default();
        let place = BatchPlace::new(session.name.clone(), "".into(), None);
        let tool = rt.registry.known_for(&place, &recorded.opened);
        let wakes = tool.and_then(|tool| tool.kinds.as_ref()?.wake_text(kind, &value));
        let event = ToldEvent {
            rt: rt.clone(),
            session: session.clone(),
            source: EventEmitter::Planned {
                by: starter(&batch, session, call),
                name: name.to_string(),
                plan,
            },
            kind: kind.clone(),
            payload: EventPayload { text: payload.clone(), value },
            once_by: None,
            wakes,
            observer: None,
        };
        match event.tell().await {
            Ok(_) => {}
            Err(Unsent::Refused(BatchError::Session(error))) => return Err(error),
            Err(error) => {
                tracing::error!(session = %session.name, %call, ?error, "a planned event is not emitted");
            }
        }
    }
    Ok(())
}

fn starter(batch: &Batch, session: &Session, call: CallId) -> Starter {
    let opened = batch.calls.get(usize::from(call.ordinal.0)).map_or(0, |call| call.opened.depth());
    let own = batch.opening.parent.map_or(opened, |parent| parent.depth);
    Starter { call, depth: own.max(session.depth()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triggers::NewEvent;
    use crate::{BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, Tool, ToolFuture, ToolSpec};
    use serde_json::{Value, json};
    use windlass_core::handle::HandleKind;
    use windlass_store::memory::MemoryStore;

    /// Plans an event.
    struct Plans;

    impl Tool for Plans {
        fn spec(&self) -> ToolSpec {
            let (class, emits) = (Some(EffectClass::Stepped), [("seen".to_string(), json!({}))].into());
            ToolSpec { name: "plans".into(), class, emits, ..ToolSpec::default() }
        }

        fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
            Box::pin(async move {
                cx.emit_with_result("end", "seen", json!(1)).await?;
                Ok(json!(1).into())
            })
        }
    }

    /// Several looks at the plan of one call at the same moment, as an end and the look at what the last owner left are.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_plan_that_several_find_at_once_is_emitted_once() {
        const ROUNDS: u64 = 100;
        const LOOKS: usize = 4;
        let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
        runtime.register(Plans).unwrap();
        for round in 0..ROUNDS {
            let args = crate::Args::Json(json!({ "round": round }));
            let call = CallRequest { tool: "plans".into(), args, ..CallRequest::default() };
            let batch =
                BatchRequest { key: Some(format!("{round}")), calls: vec![call], ..BatchRequest::default() };
            let answer = runtime.submit("s", batch).await.unwrap().settled().await.unwrap();
            let rt = runtime.0.clone();
            let handle = answer.calls[0].handle();
            let call = CallId::unpacked(handle.open(rt.store.secret(), HandleKind::Call).unwrap());
            let session = rt.session("s").await.unwrap();
            // Behind this its plan is carried out; it is put back as a crash before that would leave it.
            emit_one(&rt, &session, call).await.unwrap();
            let plan = Row::Put { space: Space::Awaited, key: key(call, "end"), value: Default::default() };
            session.lane.commit_rows(vec![plan]).await.unwrap();
            let begin = Arc::new(tokio::sync::Barrier::new(LOOKS));
            let looks = (0..LOOKS).map(|_| {
                let (rt, session, begin) = (rt.clone(), session.clone(), begin.clone());
                tokio::spawn(async move {
                    begin.wait().await;
                    emit_one(&rt, &session, call).await
                })
            });
            for look in looks.collect::<Vec<_>>() {
                look.await.unwrap().unwrap();
            }
        }
        let next = NewEvent { kind: "seen", payload: json!(2), once_by: None };
        assert_eq!(runtime.emit("s", next).await.unwrap().number, 2 * ROUNDS + 1);
    }
}
