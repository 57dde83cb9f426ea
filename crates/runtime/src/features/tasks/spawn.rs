//! Tasks that a call starts, and its messages to its session.

use crate::api::error::{BatchError, SessionError};
use crate::api::keys;
use crate::api::misuse::{Misuse, StepError};
use crate::api::observer::Observer;
use crate::api::output::ToolError;
use crate::path::submit::{self, Starter, TaskStart};
use crate::session::cx::Cx;
use crate::session::held::DriveContext;
use crate::session::notices::NoticeKind;
use crate::tools::request::{Args, BatchRequest, CallRequest, NewTask};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::operation::Did;

/// Whether a task ends with the call that starts it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskBond {
    Attached,
    Detached,
}

impl Cx {
    /// Starts a call of a tool with the flag `background` as a task, which goes on whatever becomes of this call: its id, once
    /// it is durable. All rules of its tool hold, and whatever can be known at once is refused at once, with its own code: an
    /// unknown tool, one without the flag, bad arguments. A body that runs again starts nothing twice.
    ///
    /// ```
    /// # use windlass::tasks::NewTask; use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn order(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let title = Some(format!("Deliver {}", args["item"]));
    ///     let task = cx.spawn("deliver", "deliver", &args, NewTask { title, ..NewTask::default() }).await?;
    ///     Ok(json!({ "delivery": task.to_string() }).into())
    /// }
    /// ```
    pub async fn spawn(
        &self,
        name: &str,
        tool: &str,
        args: &Value,
        task: NewTask,
    ) -> Result<Handle, StepError> {
        self.start_task(name, tool, args, task, TaskBond::Detached).await
    }

    /// Starts a task that ends with this call: when the call ends, in any way, the task is asked to stop, and the call ends
    /// after it. Otherwise like [`spawn`](Self::spawn).
    pub async fn spawn_attached(
        &self,
        name: &str,
        tool: &str,
        args: &Value,
        task: NewTask,
    ) -> Result<Handle, StepError> {
        self.start_task(name, tool, args, task, TaskBond::Attached).await
    }

    async fn start_task(
        &self,
        name: &str,
        tool: &str,
        args: &Value,
        task: NewTask,
        bond: TaskBond,
    ) -> Result<Handle, StepError> {
        let mut asked =
            json!({ "tool": tool, "args": args, "title": task.title, "wake": task.wake.as_str() });
        if bond == TaskBond::Attached {
            asked["attached"] = true.into();
        }
        if !task.tags.is_empty() {
            asked["tags"] = json!(task.tags);
        }
        let (asked, max) = (asked.to_string(), self.limits().operations_max);
        if !self.book().has_spawned(name, &asked, max)? {
            self.book().note(self.now(), name, Did::Spawned { asked: asked.into() })?;
            // The task commits after it, so a reader that finds the task finds this too.
            self.book().send(&self.batch, self.artifacts.lane());
        }
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let (id, args) = (Some("task".to_string()), Args::Json(args.clone()));
        let call =
            CallRequest { id, tool: tool.to_string(), args, task: Some(task), ..CallRequest::default() };
        let key = keys::nested(self.handle(), name, 1).into();
        let starter = Starter { call: self.call, depth: self.depth() };
        let starting = start(hold.clone(), starter, key, call, self.observer());
        // In a task of the runtime, like all work for a tool: work that has begun is finished.
        let started = hold.rt.tasks.clone().spawn(starting);
        drop(hold);
        match started.await.map_err(|_| Misuse::Over)? {
            Ok(TaskStart::Started(call)) => {
                Ok(Handle::seal(self.store_secret(), HandleKind::Call, call.packed()))
            }
            Ok(TaskStart::Refused(failure)) => Err(StepError::Failed(ToolError::refused(&failure))),
            Err(BatchError::Session(SessionError::Lost(lost))) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept(name, error).into()),
        }
    }

    /// Sends a message to the agent of the session, once however often the body runs. Durable when this
    /// returns, and listed among the messages of the task; for a task started with notices of its
    /// [activity](crate::tasks::Wake::OnActivity), the inbox gets it at once.
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
        self.book().note_with(self.now(), name, did, self.activity_notice(name, NoticeKind::TaskMessage))?;
        self.commit().await
    }
}

async fn start(
    hold: Arc<DriveContext>,
    starter: Starter,
    key: Arc<str>,
    call: CallRequest,
    observer: Option<Observer>,
) -> Result<TaskStart, BatchError> {
    let place = &hold.batch.head.place;
    let (inputs, overlay) = (place.inputs.clone(), place.shared_overlay());
    let request = BatchRequest { calls: vec![call], inputs, overlay, observer, ..BatchRequest::default() };
    submit::submit_task(&hold, starter, key, request).await
}
