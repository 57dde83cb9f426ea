//! Waits for tasks and named events inside a call, and what a call does to tasks: each by name, recorded once.

use super::named;
use super::{AwaitSubject, AwaitTable, KeptWait, has_ended, task_is_over};
use crate::api::answer::CallAnswer;
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::api::pending::Completed;
use crate::attempt::inside::completed;
use crate::features::tasks::refusal;
use crate::mailbox::ask::{self, AskError, Signal, Target};
use crate::session::cx::Cx;
use crate::session::held::DriveContext;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;
use windlass_core::operation::{Completion, Did, Until};

impl Cx {
    /// Waits until a task of the session has ended, and returns its whole outcome; `None`: it had not by the deadline given the
    /// first time, by default a day. The body of a `stepped` tool that does nothing else is put aside meanwhile, and goes on
    /// after a restart too. The task runs on if nobody waits for it any more.
    ///
    /// ```
    /// # use windlass::tasks::NewTask; use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn compare(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let left = cx.spawn("left", "measure", &args["left"], NewTask::default()).await?;
    ///     let right = cx.spawn("right", "measure", &args["right"], NewTask::default()).await?;
    ///     let left = cx.await_task("left is done", left, None).await?;
    ///     let right = cx.await_task("right is done", right, None).await?;
    ///     let told = |task: Option<windlass::CallAnswer>| task.map(|task| task.model_text().to_string());
    ///     Ok(json!({ "left": told(left), "right": told(right) }).into())
    /// }
    /// ```
    pub async fn await_task(
        &self,
        name: &str,
        task: Handle,
        deadline: Option<Duration>,
    ) -> Result<Option<CallAnswer>, StepError> {
        let what = json!({ "task": task.to_string() }).to_string();
        let call = task.open(self.store_secret(), HandleKind::Call).map(CallId::unpacked);
        let call = call.ok_or_else(|| no_task(task))?;
        let recorded = self.book().awaited(name, &what, self.limits().operations_max)?;
        if recorded.is_none() {
            self.check_task(task, call).await?;
        }
        let until = self.begin_await(name, &what, recorded, deadline, AwaitSubject::Task(call)).await?;
        if self.book().answer(name)?.is_none()
            && has_ended(self.artifacts.lane().store(), call).await.map_err(|error| lost(name, error))?
        {
            self.book().end_awaited(name, self.now(), task_is_over())?;
        }
        match self.answer(name, until).await? {
            Some(_) => self.task_answer(name, task, call).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits for a named event of the session, which any call [fulfils](Self::fulfil), or the host or a person with
    /// [`Runtime::fulfil`](crate::Runtime::fulfil) or over HTTP; `None`: nobody did by the deadline given the first time, by
    /// default a day. An event stays fulfilled: whoever waits later gets its value at once.
    ///
    /// ```
    /// # use windlass::wait::Completed; use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn deploy(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     match cx.wait_event("window", "maintenance window open", None).await? {
    ///         Some(Completed::Ok(window)) => Ok(json!({ "deployed in": window.value }).into()),
    ///         _ => Err(ToolError::new("There is no maintenance window.")),
    ///     }
    /// }
    /// ```
    pub async fn wait_event(
        &self,
        name: &str,
        event: &str,
        deadline: Option<Duration>,
    ) -> Result<Option<Completed>, StepError> {
        self.check_event(name, event)?;
        let what = json!({ "event": event }).to_string();
        let recorded = self.book().awaited(name, &what, self.limits().operations_max)?;
        let until = self.begin_await(name, &what, recorded, deadline, AwaitSubject::Event(event)).await?;
        if self.book().answer(name)?.is_none() {
            let lane = self.artifacts.lane();
            let fulfilled = named::fulfilled(lane.store(), lane.session(), &named::key(event)).await;
            if let Some(completion) = fulfilled.map_err(|error| lost(name, error))? {
                self.book().end_awaited(name, self.now(), completion)?;
            }
        }
        completed(name, self.answer(name, until).await?)
    }

    /// Fulfils a named event of the session: every call that waits for it goes on. `false`: it was fulfilled with something
    /// else before, and that stands. Durable when this returns, and done once, however often the body runs.
    pub async fn fulfil(&self, name: &str, event: &str, value: impl Serialize) -> Result<bool, StepError> {
        self.check_event(name, event)?;
        let value = serde_json::to_value(value).map_err(|error| Misuse::unkept(name, error))?;
        let text = self.kept(name, &value)?;
        let asked = json!({ "event": event, "value": value });
        self.step(name, asked, |_| async {
            let event = event.to_string();
            let fulfilling = self.in_runtime(move |hold| async move {
                named::fulfil(&hold.rt, &hold.session, &event, Completion::ok(text)).await
            });
            match fulfilling.await {
                Ok(()) => Ok(true),
                Err(AskError::Answered) => Ok(false),
                Err(error) => Err(refusal(error)),
            }
        })
        .await
    }

    /// Sends a signal to a task whose tool [declares](windlass_core::tool::ToolSpec::signals) it, once however often the body
    /// runs. Durable when this returns. `false`: the task is over.
    pub async fn signal_task(
        &self,
        name: &str,
        task: Handle,
        signal: &str,
        payload: impl Serialize,
    ) -> Result<bool, StepError> {
        let payload = serde_json::to_value(payload).map_err(|error| Misuse::unkept(name, error))?;
        let asked = json!({ "task": task.to_string(), "signal": signal, "payload": payload });
        let key = self.step_key(name);
        self.step(name, asked, |asked: Value| async move {
            let signal = signal.to_string();
            let sending = self.in_runtime(move |hold| async move {
                let signal = Signal { name: &signal, payload: &asked["payload"], key: Some(&key) };
                ask::signal(&hold.rt, &task.to_string(), signal).await
            });
            match sending.await {
                Ok(()) => Ok(true),
                Err(AskError::Over { .. }) => Ok(false),
                Err(error) => Err(refusal(error)),
            }
        })
        .await
    }

    /// Asks a task to stop, once however often the body runs. `false`: it was over. It may still end otherwise:
    /// [wait](Self::await_task) for it to know.
    pub async fn cancel_task(
        &self,
        name: &str,
        task: Handle,
        reason: Option<&str>,
    ) -> Result<bool, StepError> {
        let asked = json!({ "task": task.to_string(), "reason": reason });
        self.step(name, asked, |_| async {
            let reason = reason.map(str::to_string);
            let asking = self.in_runtime(move |hold| async move {
                ask::cancel(&hold.rt, Target::Call(&task.to_string()), reason.as_deref()).await
            });
            asking.await.map(|reached| reached.asked > 0).map_err(refusal)
        })
        .await
    }

    /// Does something in a task of the runtime, like all work for a tool: work that has begun is finished.
    pub(crate) async fn in_runtime<T, F, Fut>(&self, work: F) -> Result<T, AskError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<DriveContext>) -> Fut,
        Fut: Future<Output = Result<T, AskError>> + Send + 'static,
    {
        let over = || AskError::Over { what: "the runtime is going away" };
        let hold = self.hold.upgrade().ok_or_else(over)?;
        let tasks = hold.rt.tasks.clone();
        let working = tasks.spawn(work(hold));
        working.await.map_err(|_| over())?
    }

    /// Begins a wait, or continues the recorded one; the session knows of it from now on.
    async fn begin_await(
        &self,
        name: &str,
        what: &str,
        recorded: Option<Until>,
        deadline: Option<Duration>,
        subject: AwaitSubject<'_>,
    ) -> Result<Until, StepError> {
        let wait = KeptWait::new(self.call, name);
        let key = wait.key(subject);
        let until = match recorded {
            Some(until) => until,
            None => {
                let until =
                    self.until(deadline.unwrap_or(Duration::from_millis(self.limits().completion_ms)));
                let did = Did::Awaited { what: what.into(), until };
                self.book().note_with(self.now(), name, did, vec![wait.row(key.clone())])?;
                until
            }
        };
        if self.book().answer(name)?.is_none() {
            // Known before anybody looks whether it is over: an end that comes in between is passed on.
            let session = self.hold.upgrade().ok_or(Misuse::Over)?.session.clone();
            session.slots.of::<AwaitTable>().add(key, wait).await;
        }
        Ok(until)
    }

    /// Refuses to wait for what is no task of this session, or is this call.
    async fn check_task(&self, task: Handle, call: CallId) -> Result<(), StepError> {
        let lane = self.artifacts.lane();
        let found = find_id(lane.store(), call).await.map_err(|error| lost("await_task", error))?;
        let own = found.filter(|(row, found, _)| row.no == lane.session() && found.task.is_some());
        if own.is_none() || call == self.call { Err(no_task(task)) } else { Ok(()) }
    }

    fn check_event(&self, name: &str, event: &str) -> Result<(), Misuse> {
        let max = self.limits().batch_key_chars_max;
        named::check_name(event, max).map_err(|what| Misuse::unkept(name, what))
    }

    /// The outcome of a task that has ended.
    async fn task_answer(&self, name: &str, task: Handle, id: CallId) -> Result<CallAnswer, StepError> {
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let store = hold.rt.store.clone();
        drop(hold);
        let found = find_id(&*store, id).await.map_err(|error| lost(name, error))?;
        let (_, call, _) = found.ok_or_else(|| no_task(task))?;
        Ok(CallAnswer { id, store, call: Arc::new(call), recorded: true, conflict: None, parent: None })
    }
}

fn no_task(task: Handle) -> StepError {
    let message = format!("There is no task {task} in this session that this call could wait for.");
    StepError::Failed(ToolError { did_not_happen: true, ..ToolError::new(message) })
}

fn lost(name: &str, error: SessionError) -> StepError {
    if let SessionError::Lost(lost) = error {
        return StepError::Lost(lost);
    }
    Misuse::unkept(name, error).into()
}
