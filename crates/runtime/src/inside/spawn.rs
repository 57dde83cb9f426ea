//! Tasks that a call starts, and what it says to its session.

use super::{Misuse, StepError, nested};
use crate::error::BatchError;
use crate::held::Hold;
use crate::inbox;
use crate::request::{Args, BatchRequest, CallRequest, NewTask};
use crate::submit::{self, Starter};
use crate::tool::Cx;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::CallId;
use windlass_core::operation::Did;
use windlass_store::Row;

impl Cx {
    /// Starts a call of a tool with the flag `background` as a task, which goes on whatever becomes of this call: its id, once
    /// it is durable. All rules of its tool hold. A body that runs again starts nothing twice.
    ///
    /// ```
    /// # use windlass::{Cx, NewTask, Output, ToolError}; use serde_json::{Value, json};
    /// async fn order(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let title = Some(format!("Deliver {}", args["item"]));
    ///     let task = cx.spawn("deliver", ("deliver", &args), NewTask { title, ..NewTask::default() }).await?;
    ///     Ok(json!({ "delivery": task.to_string() }).into())
    /// }
    /// ```
    pub async fn spawn(
        &self,
        name: &str,
        (tool, args): (&str, &Value),
        task: NewTask,
    ) -> Result<Handle, StepError> {
        let asked = json!({ "tool": tool, "args": args, "title": task.title, "wake": task.wake.as_str() });
        let (asked, max) = (asked.to_string(), self.limits().operations_max);
        if !self.book().has_spawned(name, &asked, max)? {
            self.book().note(self.now(), name, Did::Spawned { asked: asked.into() })?;
            // The task commits behind it, so whoever finds that finds this too.
            self.book().send(&self.batch, self.artifacts.lane());
        }
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let (id, args) = (Some("task".to_string()), Args::Json(args.clone()));
        let call =
            CallRequest { id, tool: tool.to_string(), args, task: Some(task), ..CallRequest::default() };
        let key = nested::key(self.handle(), name, 1).into();
        let starter = Starter { call: self.call, depth: self.depth() };
        let starting = start(hold.clone(), (starter, key), call);
        // In a task of the runtime's, as whatever else a tool has it do: what has begun is finished.
        let started = hold.rt.tasks.clone().spawn(starting);
        drop(hold);
        match started.await.map_err(|_| Misuse::Over)? {
            Ok(call) => Ok(Handle::seal(self.secret(), Kind::Call, call.packed())),
            Err(BatchError::Lost(lost)) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept(name, error).into()),
        }
    }

    /// Says something to the agent of the session, once however often the body runs. It is durable when this returns, and is
    /// listed among the messages of the task; of one that was started to tell of its [activity](Wake::OnActivity), the
    /// inbox tells at once.
    pub async fn say(&self, name: &str, text: &str, in_reply_to: Option<&str>) -> Result<(), StepError> {
        let max = self.limits().question_chars_max;
        if text.trim().is_empty() || text.chars().count() as u64 > max {
            return Err(Misuse::unkept(name, format!("a message has 1 to {max} characters")).into());
        }
        let message = json!({ "text": text, "in_reply_to": in_reply_to }).to_string();
        if self.book().has_said(name, &message, self.limits().operations_max)? {
            return Ok(());
        }
        let did = Did::Said { message: message.into() };
        self.book().note_with(self.now(), (name, did), self.told_of(name, inbox::NoticeKind::TaskMessage))?;
        self.commit().await
    }

    /// The rows by which the inbox tells of what the call does, if its session wants to know.
    pub(super) fn told_of(&self, name: &str, kind: inbox::NoticeKind) -> Vec<Row> {
        let asked = self.batch.asked_for(self.call.ordinal);
        let told =
            asked.filter(|asked| asked.task.as_ref().is_some_and(|task| task.wake == Wake::OnActivity));
        let row = |priority| inbox::task_does((self.call, priority), (kind, name), self.now());
        told.map(|asked| row(asked.priority)).into_iter().collect()
    }
}

async fn start(
    hold: Arc<Hold>,
    (starter, key): (Starter, Arc<str>),
    call: CallRequest,
) -> Result<CallId, BatchError> {
    let place = &hold.batch.head.place;
    let (inputs, overlay) = (place.inputs.clone(), place.shared_overlay());
    let request = BatchRequest { calls: vec![call], inputs, overlay, ..BatchRequest::default() };
    submit::submit_task(&hold, (starter, key), request).await
}
