//! Child sessions that a call opens: for an agent of its own, with fewer tools, closed with the call.

use crate::api::answer::BatchAnswer;
use crate::api::error::{BatchError, SessionError};
use crate::api::keys;
use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::features::children::{self, ChildError, ChildSpec, Opener, OpeningCall};
use crate::features::tasks::refusal;
use crate::path::nested::{self, LentRoom, NestedBatch};
use crate::path::submit;
use crate::session::cx::Cx;
use crate::session::held::DriveContext;
use crate::tools::request::BatchRequest;
use serde_json::json;
use std::sync::Arc;
use windlass_core::ids::CallId;
use windlass_core::operation::Did;

/// A child session that a call has opened. See [`Cx::child`].
pub struct ChildSession<'a> {
    cx: &'a Cx,
    name: Arc<str>,
}

impl Cx {
    /// Opens a child of this session, or finds the one that was opened under this name: a session of its own with at most the
    /// tools of this one. It is closed when this call ends, in any way: then its running calls are cancelled, and it takes no
    /// new ones. A later attempt finds the child as the last one left it.
    ///
    /// ```
    /// # use windlass::batch::NestedBatch; use windlass::sessions::ChildSpec; use windlass::{Args, CallRequest, Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn research(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let tools = Some(vec!["web_search".to_string(), "read_page".to_string()]);
    ///     let agent = cx.child("agent", ChildSpec { tools, ..ChildSpec::default() }).await?;
    ///     let search = CallRequest { tool: "web_search".into(), args: Args::Json(args), ..CallRequest::default() };
    ///     let found = agent.batch("turn 1", NestedBatch { calls: vec![search], ..NestedBatch::default() }).await?;
    ///     Ok(json!({ "agent": agent.session(), "found": found.calls[0].model_text() }).into())
    /// }
    /// ```
    pub async fn child(&self, name: &str, spec: ChildSpec) -> Result<ChildSession<'_>, StepError> {
        if self.is_stopping() {
            return Err(StepError::Stopped);
        }
        let session: Arc<str> = session_name(&keys::nested(self.handle(), name, 1)).into();
        let asked = json!({ "session": &*session, "tools": spec.tools }).to_string();
        if !self.book().has_opened(name, &asked, self.limits().operations_max)? {
            self.check_child(&spec).map_err(|error| Misuse::unkept(name, error))?;
            self.book().note(self.now(), name, Did::ChildOpened { asked: asked.into() })?;
            // The end of the call must know of the child before it exists.
            self.commit().await?;
        }
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let opening = open(hold.clone(), self.call, self.depth(), session.clone(), spec);
        // In a task of the runtime, like all work for a tool: work that has begun is finished.
        let opened = hold.rt.tasks.clone().spawn(opening);
        drop(hold);
        match opened.await.map_err(|_| Misuse::Over)? {
            Ok(()) => Ok(ChildSession { cx: self, name: session }),
            Err(ChildError::Session(SessionError::Lost(lost))) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept(name, error).into()),
        }
    }

    /// Refuses a child that could not be opened, before it is recorded.
    fn check_child(&self, spec: &ChildSpec) -> Result<(), ChildError> {
        // A runtime that is going away opens nothing.
        let Some(hold) = self.hold.upgrade() else { return Ok(()) };
        children::check(&hold.rt, &hold.session, &opener(&hold, self.call, self.depth()), spec)
    }
}

async fn open(
    hold: Arc<DriveContext>,
    call: CallId,
    depth: u32,
    session: Arc<str>,
    spec: ChildSpec,
) -> Result<(), ChildError> {
    children::open(&hold.rt, opener(&hold, call, depth), &session, spec).await.map(drop)
}

fn opener(hold: &DriveContext, id: CallId, depth: u32) -> Opener<'_> {
    let call = OpeningCall { id, depth, place: &hold.batch.head.place };
    Opener { parent: &hold.session.name, call: Some(call) }
}

/// The name of the session for this key: nobody else can guess it.
fn session_name(key: &str) -> String {
    format!("child.{}", &blake3::hash(key.as_bytes()).to_hex()[..32])
}

impl ChildSession<'_> {
    /// Its name.
    pub fn session(&self) -> &str {
        &self.name
    }

    /// The context of the call that opened it.
    pub(crate) fn opener(&self) -> &Cx {
        self.cx
    }

    /// Submits a batch in the child session and waits until all its calls have ended, or continue as tasks.
    /// This call chooses the key, one for each turn: a body that runs again gets recorded answers, joins open
    /// calls, and runs nothing twice. The calls have the time that this call has left.
    pub async fn batch(&self, key: &str, batch: NestedBatch) -> Result<BatchAnswer, StepError> {
        let cx = self.cx;
        if cx.is_stopping() {
            return Err(StepError::Stopped);
        }
        let hold = cx.hold.upgrade().ok_or(Misuse::Over)?;
        let place = &cx.batch.head.place;
        let request = BatchRequest {
            key: Some(key.to_string()),
            calls: nested::named(batch.calls).into_iter().map(|call| cx.in_time(call)).collect(),
            siblings: batch.siblings,
            inputs: place.inputs.clone(),
            overlay: place.shared_overlay(),
            observer: cx.observer(),
            ..BatchRequest::default()
        };
        let tasks = hold.rt.tasks.clone();
        // They may use its room meanwhile.
        let lent = LentRoom::begin(cx);
        let running = tasks.spawn(run(hold, self.name.clone(), cx.call, request));
        let answered = running.await;
        lent.end().await;
        cx.heartbeat();
        self.answer_of(key, answered.map_err(|_| Misuse::Over)?)
    }

    /// Closes the child before this call ends, once however often the body runs: its running calls are cancelled, and it takes
    /// no new ones. Durable when this returns.
    pub async fn close(&self, name: &str) -> Result<(), StepError> {
        let session = self.name.clone();
        let asked = json!({ "close": &*session });
        self.cx
            .step(name, asked, |_| async {
                let gone = || ToolError::new("The runtime is going away; ask again.").safe_to_retry();
                let hold = self.cx.hold.upgrade().ok_or_else(gone)?;
                let tasks = hold.rt.tasks.clone();
                // In a task of the runtime, like all work for a tool: work that has begun is finished.
                let closing = tasks.spawn(async move { children::close(&hold.rt, &session).await });
                closing.await.map_err(|_| gone())?.map_err(refusal)
            })
            .await
    }

    fn answer_of(
        &self,
        key: &str,
        answered: Result<Result<BatchAnswer, String>, BatchError>,
    ) -> Result<BatchAnswer, StepError> {
        match answered {
            Ok(Ok(answer)) if self.cx.is_stopping() && answer.calls.iter().any(nested::is_cancelled) => {
                Err(StepError::Stopped)
            }
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(what)) => {
                let found = format!("the batch is recorded in {:?} with {what}", self.name);
                Err(Misuse::Diverged { name: key.to_string(), found }.into())
            }
            Err(BatchError::Session(SessionError::Lost(lost))) => Err(StepError::Lost(lost)),
            Err(error @ (BatchError::Overloaded { .. } | BatchError::Stalled { .. })) => {
                Err(StepError::Failed(ToolError::new(error.to_string()).safe_to_retry()))
            }
            Err(error) => Err(Misuse::unkept(key, error).into()),
        }
    }
}

/// Submits a batch in the child session; returns its answers, or how a recorded one differs.
async fn run(
    hold: Arc<DriveContext>,
    session: Arc<str>,
    opener: CallId,
    request: BatchRequest,
) -> Result<Result<BatchAnswer, String>, BatchError> {
    let submitted = submit::submit_to_child(&hold.rt, &session, opener, request).await?;
    match submitted.difference() {
        Some(what) => Ok(Err(what)),
        None => submitted.settled().await.map(Ok),
    }
}
