//! Batches whose calls come one after the other: opened, pushed to, closed.

use crate::api::error::{BatchError, Lost, SessionError};
use crate::api::traced::TraceParent;
use crate::path::drive;
use crate::path::grants;
use crate::path::submit::{self, Submitted};
use crate::session::batch::{OpenBatch, Sent, Used};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::request::{BatchRequest, CallRequest, ShapedBatch, check};
use crate::tools::scope::Overlay;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass_core::batch::ClosedBy;
use windlass_core::call::Wake;
use windlass_core::ids::BatchNo;
use windlass_core::siblings::Siblings;

/// A batch whose calls come one after the other.
#[derive(Clone, Debug, Default)]
pub struct StreamRequest {
    /// The idempotency key of the batch: it cannot be derived from calls that are not known yet.
    pub key: String,
    /// The turn of the conversation.
    pub turn: Option<String>,
    /// As in [`BatchRequest::siblings`]. How many calls there are is known when the batch is closed.
    pub siblings: Siblings,
    /// As in [`BatchRequest::wake`].
    pub wake: Wake,
    /// As in [`BatchRequest::inputs`].
    pub inputs: Option<Map<String, Value>>,
    /// As in [`BatchRequest::overlay`].
    pub overlay: Option<Arc<Overlay>>,
    /// As in [`BatchRequest::traceparent`]; that of the first push counts.
    pub traceparent: Option<TraceParent>,
}

/// A batch that calls can be pushed to. Dropping it neither closes the batch nor cancels anything: without a push the
/// batch closes itself after `stream_idle_ms`.
pub struct StreamedBatch {
    rt: Arc<Inner>,
    session: Arc<Session>,
    batch: Used,
    key: Arc<str>,
    /// How many calls it had when it was opened here.
    before: usize,
}

impl StreamedBatch {
    /// The key of the batch.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Takes more calls and starts them, in order. They are durable when this returns; what is returned answers for these
    /// calls alone. Each needs an id. Calls that are recorded are joined, also when the batch is closed.
    pub async fn push(&self, calls: Vec<CallRequest>) -> Result<Submitted, BatchError> {
        let StreamedBatch { rt, session, batch, key, .. } = self;
        let request = BatchRequest { key: Some(key.to_string()), calls, ..BatchRequest::default() };
        let mut checked = check(request, &rt.limits)?;
        if !checked.ids_given {
            let what =
                "a call that is pushed needs an id; without one it could not be told from the others".into();
            return Err(BatchError::Shape { what });
        }
        let admission = session.admit().await;
        admission.check_stays()?;
        session.look_closed(rt).await?;
        if let Some(lost) = session.lane.lost() {
            return Err(lost.into());
        }
        grants::name_tools(rt, session, &mut checked.calls).await?;
        if rt.secrets.is_used() {
            let submitted = submit::secrets::conceal(rt, session, key, &mut checked)?;
            submit::secrets::restore(rt, batch, &mut checked.calls, submitted);
        }
        let (answers, new) = submit::place(rt, session, batch, checked.calls)?;
        let recorded = batch.send_calls(&session.lane);
        wait_for_push(rt, session, batch);
        let on = new.on.clone();
        drive::start_all(&on, new.into_calls()).await;
        drop(admission);
        recorded.durable().await.map_err(|lost| lose(rt, session, lost))?;
        Ok(Submitted::of(rt, key, session, batch, answers))
    }

    /// Takes no more calls. What is returned answers for all its calls.
    pub async fn close(&self) -> Result<Submitted, BatchError> {
        let StreamedBatch { rt, session, batch, key, before } = self;
        let _admission = session.admit().await;
        close(rt, session, batch, ClosedBy::Caller).await?;
        let answers = submit::answering_all(batch, *before);
        Ok(Submitted::of(rt, key, session, batch, answers))
    }
}

/// Opens a batch that calls can be pushed to, or joins the one of this key.
pub(crate) async fn open(
    rt: &Arc<Inner>,
    session: &str,
    request: StreamRequest,
) -> Result<StreamedBatch, BatchError> {
    let StreamRequest { key, turn, siblings, wake, inputs, overlay, traceparent } = request;
    let request = BatchRequest {
        key: Some(key.clone()),
        turn,
        inputs,
        overlay,
        siblings,
        wake,
        traceparent,
        ..BatchRequest::default()
    };
    let mut checked = ShapedBatch { streamed: true, ..check(request, &rt.limits)? };
    let (session, key) = (rt.session(session).await?, Arc::<str>::from(key));
    if rt.secrets.is_used() {
        submit::secrets::conceal(rt, &session, &key, &mut checked)?;
    }
    let admission = session.admit().await;
    admission.check_stays()?;
    if session.look_closed(rt).await? && !session.knows(&key).await? {
        return Err(session.closed().into());
    }
    let batch = submit::find_or_make(rt, &admission, &checked, &key).await?;
    // It may have been read back only to be looked at.
    session.forget(&batch);
    if !batch.head.streamed {
        let what = format!("the batch {key:?} was submitted whole; give the streamed one a key of its own");
        return Err(BatchError::Shape { what });
    }
    rt.registry.lend(&batch.head.place, checked.overlay);
    wait_for_push(rt, &session, &batch);
    let before = batch.len();
    Ok(StreamedBatch { rt: rt.clone(), session: session.clone(), batch, key, before })
}

/// It is closed if nobody pushes for too long.
pub(crate) fn wait_for_push(rt: &Inner, session: &Arc<Session>, batch: &OpenBatch) {
    if !batch.head.streamed {
        return;
    }
    let due_us = due_us(rt.clock.elapsed_us(), rt.limits.stream_idle_ms);
    let earlier =
        batch.wait_for_push(due_us, || rt.wheel.alarm_batch(due_us, session, batch.head.no, close_idle_soon));
    earlier.into_iter().for_each(|alarm| rt.wheel.clear(alarm));
}

/// Closes a batch in a task of its own, if nobody has pushed to it for too long.
fn close_idle_soon(rt: &Arc<Inner>, session: Arc<Session>, no: BatchNo) {
    rt.tasks.spawn(close_idle(rt.clone(), session, no));
}

/// Closes a batch that nobody has pushed to for too long.
async fn close_idle(rt: Arc<Inner>, session: Arc<Session>, no: BatchNo) {
    let _admission = session.admit().await;
    let batch = session.find_no(no).filter(|batch| batch.is_push_overdue(rt.clock.elapsed_us()));
    if let Some(batch) = batch {
        // If that cannot be recorded, the next owner of the session closes it.
        let _ = close(&rt, &session, &batch, ClosedBy::Idle).await;
    }
}

/// Closes what an earlier owner left open: whoever pushed to it is gone.
pub(crate) async fn close_left(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    for batch in session.open_batches() {
        close(rt, session, &batch, ClosedBy::Restart).await?;
    }
    Ok(())
}

/// Closes a batch that is open for more; of one that is not, nothing changes.
pub(crate) async fn close(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: &Used,
    by: ClosedBy,
) -> Result<(), SessionError> {
    let (sent, alarm) = batch.close(&session.lane, rt.clock.now(), by);
    alarm.into_iter().for_each(|alarm| rt.wheel.clear(alarm));
    if let Some(Sent { commit, parked, .. }) = sent {
        session.wake_all(rt, batch, parked);
        commit.durable().await.map_err(|lost| lose(rt, session, lost))?;
    }
    session.forget(batch);
    Ok(())
}

/// Nothing more can be recorded in this session.
pub(crate) fn lose(rt: &Arc<Inner>, session: &Session, lost: Lost) -> SessionError {
    rt.closed(session.lose(rt, lost.clone()));
    lost.into()
}
