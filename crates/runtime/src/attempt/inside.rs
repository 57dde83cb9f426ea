//! Named operations of a tool inside its call: recorded steps, sleeps that survive a restart, questions and external
//! answers.
//!
//! Operations are matched by name. A recorded one is returned and not done again; a new one is done and recorded. A
//! `stepped` tool whose body only waits is put aside, and its body runs again from the start when it is woken.

mod attach;
mod model;
mod outside;
mod secret;
mod signals;
mod typed;

pub use attach::Attachment;

use crate::api::misuse::{Misuse, StepError};
use crate::api::output::{Output, ToolError, recorded_failure};
use crate::api::pending::{Completed, CompletionKey};
use crate::api::pending::{answered_extras, answered_output};
use crate::session::adopting::adopt_now;
use crate::session::book::{Begun, Book};
use crate::session::cx::Cx;
use crate::session::notices::{NoticeKind, task_does};
use crate::session::outgoing::{PersonWait, WebhookKind, wait_rows};
use crate::session::plugs::FollowUp;
use crate::session::still;
use crate::session::vault::scrub_error;
use crate::tools::tool::ToolFuture;
use outside::OutsideWait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use windlass_args::schema::{Schema, SchemaRole};
use windlass_core::call::{Opened, Wake};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass};
use windlass_core::handle::{completion_key, step_key};
use windlass_core::operation::{Completion, Did, Question, StepResult, Until, WaitOutcome};
use windlass_core::outcome::JsonText;
use windlass_core::time::Timestamp;
use windlass_store::Row;

impl Cx {
    /// Runs a step once, whatever happens: its result is durable when this returns, and a replay gets the result
    /// instead of running it. A step that fails returns its error, and runs again when the call is retried. A crash in the
    /// middle runs it again: send its [key](Self::step_key) to a system that deduplicates, or use
    /// [`step_once`](Self::step_once).
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// # async fn ask_the_shop(order: &Value, key: &str) -> Result<String, ToolError> { Ok(key.into()) }
    /// async fn reserve(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let key = cx.step_key("reserve");
    ///     let reserved: String =
    ///         cx.step("reserve", &args["order"], |order| async move { ask_the_shop(order, &key).await }).await?;
    ///     Ok(json!({ "reserved": reserved }).into())
    /// }
    /// ```
    pub async fn step<I, O, F, Fut>(&self, name: &str, input: I, run: F) -> Result<O, StepError>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: FnOnce(I) -> Fut,
        Fut: Future<Output = Result<O, ToolError>>,
    {
        self.run_step(name, input, run, StepRepeat::Safe).await
    }

    /// Runs a step that must not be repeated: its start is durable first, and if a crash comes before its end
    /// is recorded, the body gets [`StepError::Unknown`] and decides.
    pub async fn step_once<I, O, F, Fut>(&self, name: &str, input: I, run: F) -> Result<O, StepError>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: FnOnce(I) -> Fut,
        Fut: Future<Output = Result<O, ToolError>>,
    {
        self.run_step(name, input, run, StepRepeat::Never).await
    }

    /// The value of a step that this call has recorded, without running it; `None` if there is none. Also a
    /// [`Reconcile`](crate::tool::Reconcile) can read it: what the attempt that did not return had recorded.
    pub fn recorded_step<O: DeserializeOwned>(&self, name: &str) -> Result<Option<O>, StepError> {
        let steps = self.book().done_steps();
        let Some((.., value)) = steps.into_iter().find(|(known, ..)| **known == *name) else {
            return Ok(None);
        };
        read(name, &self.unsealed(name, value)?).map(Some)
    }

    /// The idempotency key of a step: stable over attempts and restarts.
    pub fn step_key(&self, name: &str) -> String {
        step_key(&self.idempotency_key(), name)
    }

    async fn run_step<I, O, F, Fut>(
        &self,
        name: &str,
        input: I,
        run: F,
        repeat: StepRepeat,
    ) -> Result<O, StepError>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: FnOnce(I) -> Fut,
        Fut: Future<Output = Result<O, ToolError>>,
    {
        let once = repeat == StepRepeat::Never;
        let given = self.kept(name, &input)?;
        let book = self.book();
        match book.begin_step(name, &given, self.limits().operations_max)? {
            Begun::Run => {}
            Begun::Done(value) => {
                let value = self.unsealed(name, value)?;
                if windlass_core::mutant::breaks("step-again") {
                    let _again = run(input).await;
                }
                return read(name, &value);
            }
            Begun::Failed(failure) => return Err(StepError::Failed(error_of(&failure))),
            Begun::Unknown => return Err(StepError::Unknown { name: name.to_string() }),
        }
        self.look_still();
        self.come_back_inside().await;
        if once {
            book.note(self.now(), name, Did::StepStarted { input: given.clone() })?;
        }
        // After a crash, the record must show whether a body that was put aside has continued, and so may have acted.
        if once || (self.is_put_aside && book.runs_unrecorded()) {
            self.commit().await?;
        }
        let returned = run(input).await;
        self.heartbeat();
        self.record_step(name, given, returned).await
    }

    /// Records the end of a step that this attempt began under an earlier owner of its call.
    pub(crate) async fn end_step(
        &self,
        name: &str,
        input: Value,
        returned: Result<Value, ToolError>,
    ) -> Result<Value, StepError> {
        let given = self.kept(name, &input)?;
        match self.book().begin_step(name, &given, self.limits().operations_max)? {
            Begun::Run | Begun::Unknown => self.record_step(name, given, returned).await,
            Begun::Done(value) => read(name, &self.unsealed(name, value)?),
            Begun::Failed(failure) => Err(StepError::Failed(error_of(&failure))),
        }
    }

    /// The recorded steps that have a value, with their inputs; without those that hold a secret.
    pub(crate) fn done_steps(&self) -> Vec<(Arc<str>, JsonText, JsonText)> {
        if self.secrets().is_some() { Vec::new() } else { self.book().done_steps() }
    }

    async fn record_step<O: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        given: JsonText,
        returned: Result<O, ToolError>,
    ) -> Result<O, StepError> {
        let book = self.book();
        let (result, answer) = match returned {
            Ok(value) => {
                let text = self.kept(name, &value)?;
                // A replay gets what is returned now.
                let answer = read(name, &text);
                (StepResult::Ok(self.sealed(name, text)?), answer)
            }
            Err(mut error) => {
                if let Some(known) = self.secrets() {
                    scrub_error(&known, &mut error);
                }
                let failure = recorded_failure(&error, self.limits());
                (StepResult::Failed(Box::new(failure)), Err(StepError::Failed(error)))
            }
        };
        book.note(self.now(), name, Did::StepEnded { input: given, result })?;
        if !windlass_core::mutant::breaks("step-early-ack") {
            self.commit().await?;
        }
        book.settle_step(name);
        self.look_still();
        answer
    }

    /// Sleeps, by the wall clock and across restarts.
    pub async fn sleep(&self, name: &str, length: Duration) -> Result<(), StepError> {
        let (at, until) = (self.now(), self.until(length));
        let Some(until) = self.book().begin_sleep(name, at, until, self.limits().operations_max)? else {
            return Ok(());
        };
        self.wait_for(name, until).await?;
        self.book().note(self.now(), name, Did::SleepEnded)?;
        self.look_still();
        Ok(())
    }

    /// A key for an external answer, with [`Runtime::complete`](crate::Runtime::complete), over HTTP or with
    /// `windlass complete`. The same name gives the same key. An answer that comes before the wait is kept.
    pub async fn completion(&self, name: &str) -> Result<CompletionKey, StepError> {
        if self.book().take_key(name, self.now(), self.limits().operations_max)? {
            self.commit().await?;
        }
        let text = completion_key(self.store_secret(), self.call, name);
        Ok(CompletionKey { name: name.into(), text })
    }

    /// Waits for the answer to a key, until the deadline given the first time; by default for a day. `None`:
    /// no answer came in time, or whoever was to answer says so.
    pub async fn wait(
        &self,
        key: &CompletionKey,
        deadline: Option<Duration>,
    ) -> Result<Option<Completed>, StepError> {
        let length = deadline.unwrap_or(Duration::from_millis(self.limits().completion_ms));
        let told = self.activity_notice(&key.name, NoticeKind::TaskWaits);
        let until = self.book().begin_wait(&key.name, self.now(), self.until(length), told)?;
        completed(&key.name, self.answer(&key.name, until).await?)
    }

    /// Asks a person and waits for the answer, for a day at most; `None`: no answer came in time. The question is listed
    /// by [`Runtime::questions`](crate::Runtime::questions) and `windlass questions`; an answer that does not fit the
    /// schema is refused on submission, so the body sees only valid ones.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn choose(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let schema = json!({ "enum": ["red", "green"] });
    ///     match cx.ask("colour", "Which colour shall the door have?", Some(schema)).await? {
    ///         Some(colour) => Ok(json!({ "door": args["door"], "colour": colour }).into()),
    ///         None => Err(ToolError::new("Nobody chose a colour.")),
    ///     }
    /// }
    /// ```
    pub async fn ask(
        &self,
        name: &str,
        question: &str,
        schema: Option<Value>,
    ) -> Result<Option<Value>, StepError> {
        let question = self.question(name, question, schema)?;
        let at = self.now();
        let mut told = self.activity_notice(name, NoticeKind::TaskAsks);
        told.extend(self.question_rows(name, &question, at));
        let (until, is_new) =
            self.book().begin_question(name, at, question, told, self.limits().operations_max)?;
        if is_new {
            self.commit().await?;
        }
        match self.answer(name, until).await? {
            Some(Completion::Ok { value, .. }) => Ok(Some(read(name, &value)?)),
            Some(Completion::Error { .. } | Completion::Cancelled | Completion::TimedOut) | None => Ok(None),
        }
    }

    /// The rows by which webhooks hear of a question.
    fn question_rows(&self, name: &str, question: &Question, at: Timestamp) -> Vec<Row> {
        let (Some(hold), Some(asked)) = (self.hold.upgrade(), self.batch.asked_for(self.call.ordinal)) else {
            return Vec::new();
        };
        let wait = PersonWait {
            kind: WebhookKind::Question,
            call: self.call,
            tool: &asked.tool,
            name,
            what: &question.text,
            until: Some(question.until.wake_at),
            at,
        };
        wait_rows(&hold.session.lane, &wait)
    }

    /// Checks a question and makes its record.
    fn question(&self, name: &str, text: &str, schema: Option<Value>) -> Result<Question, Misuse> {
        let (limits, max) = (self.limits(), self.limits().question_chars_max);
        if text.trim().is_empty() || text.chars().count() as u64 > max {
            return Err(Misuse::unkept(name, format!("a question has 1 to {max} characters")));
        }
        if let Some(schema) = &schema {
            Schema::compile(schema, SchemaRole::Answer, name, &limits.args())
                .map_err(|refused| Misuse::unkept(name, refused))?;
        }
        let until = self.until(Duration::from_millis(limits.completion_ms));
        Ok(Question { text: text.into(), schema: schema.map(|schema| schema.to_string().into()), until })
    }

    /// The notice of an operation, if its session wants notices of activity.
    pub(crate) fn activity_notice(&self, name: &str, kind: NoticeKind) -> Vec<Row> {
        let asked = self.batch.asked_for(self.call.ordinal);
        let is_detached = self.book().is_detached() || self.batch.is_task(self.call.ordinal);
        let wake = |asked: &Opened| match &asked.task {
            Some(task) => task.wake,
            None if is_detached => self.batch.head.wake,
            None => Wake::Silent,
        };
        let told = asked.filter(|asked| wake(asked) == Wake::OnActivity);
        let row = |priority| task_does(self.call, priority, kind, name, self.now());
        let rows: Vec<Row> = told.map(|asked| row(asked.priority)).into_iter().collect();
        if let Some(hold) = self.hold.upgrade().filter(|_| !rows.is_empty()) {
            hold.rt.follow_up(&hold.session, FollowUp::Noticed(rows.len() as u64));
        }
        rows
    }

    /// Waits for an answer under this name; `None` if the deadline passes first.
    pub(crate) async fn answer(&self, name: &str, until: Until) -> Result<Option<Completion>, StepError> {
        let outside = OutsideWait::begin(self, name);
        self.wait_for(name, until).await?;
        if self.book().answer(name)?.is_none() {
            // A message posted for the owner before the deadline counts.
            let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
            adopt_now(&hold).await.map_err(StepError::Lost)?;
            self.book().hear(&self.batch, self.call.ordinal, self.now());
        }
        let answer = match self.book().end_wait(name, self.now())? {
            WaitOutcome::Given(completion) => Some(completion),
            WaitOutcome::TimedOut => None,
        };
        outside.end().await;
        Ok(answer)
    }

    /// Waits until this wait is over. If the body of a `stepped` tool does nothing else, it is put aside here.
    pub(crate) async fn wait_for(&self, name: &str, until: Until) -> Result<(), StepError> {
        if !self.is_put_aside {
            self.commit().await?;
        }
        let left_us = until.wake_at.since(self.now()).min(until.length_us);
        let due_us = self.clock().elapsed_us().saturating_add(left_us);
        let book = self.book();
        let _waits = book.waits(name);
        self.look_still();
        loop {
            let changed = book.changed();
            if book.is_over(name, self.now()) || self.clock().elapsed_us() >= due_us {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                () = self.wheel.until(due_us) => {}
            }
        }
    }

    /// It does something besides waiting for nested calls, or has done it.
    pub(crate) fn look_still(&self) {
        if self.book().is_waiting_inside()
            && let Some(hold) = self.hold.upgrade()
        {
            still::look(&hold.rt, &hold.session, self.call);
        }
    }

    pub(crate) fn book(&self) -> &Book {
        &self.signal.book
    }

    pub(crate) async fn commit(&self) -> Result<(), StepError> {
        // Another part of the body may only wait by now.
        let _writes = self.book().writes();
        self.book().commit(&self.batch, self.artifacts.lane()).await.map_err(StepError::Lost)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    pub(crate) fn until(&self, length: Duration) -> Until {
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let wake_at = self.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX));
        Until { wake_at: Timestamp(wake_at), length_us }
    }

    /// A value in recorded form.
    pub(crate) fn kept(&self, name: &str, value: &impl Serialize) -> Result<JsonText, Misuse> {
        let value = serde_json::to_value(value).map_err(|error| Misuse::unkept(name, error))?;
        windlass_args::json::measure_result(&value, &self.limits().args())
            .map_err(|problem| Misuse::unkept(name, problem))?;
        Ok(value.to_string().into())
    }
}

/// Whether a step may be run again when nobody knows whether it took effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepRepeat {
    Safe,
    Never,
}

pub(crate) fn read<O: DeserializeOwned>(name: &str, text: &str) -> Result<O, StepError> {
    serde_json::from_str(text).map_err(|error| {
        let found = format!("what is recorded is not what the body expects: {error}");
        StepError::Misused(Misuse::Diverged { name: name.to_string(), found })
    })
}

/// A recorded failure of a step, as its body got it.
fn error_of(failure: &Failure) -> ToolError {
    ToolError {
        class: failure.class,
        message: if failure.class == FailureClass::Internal {
            String::new()
        } else {
            failure.message.clone()
        },
        code: Some(failure.code).filter(|code| *code != Code::ToolFailed),
        tool_code: failure.tool_code.clone(),
        detail: failure.detail.clone(),
        retry: failure.retry,
        did_not_happen: failure.did_not_happen,
        stopped: false,
        aborted: false,
        connection: None,
        cancelled: false,
        extras: None,
    }
}

/// Polls the body of a tool until it returns, or until it only waits: `None`.
pub(crate) async fn until_it_waits(
    mut body: ToolFuture<'_>,
    book: &Book,
) -> Option<Result<Output, ToolError>> {
    std::future::poll_fn(|cx| match body.as_mut().poll(cx) {
        Poll::Ready(returned) => Poll::Ready(Some(returned)),
        Poll::Pending if book.put_aside() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// A recorded answer as a body gets it; `None`: nobody answered in time.
pub(crate) fn completed(name: &str, answer: Option<Completion>) -> Result<Option<Completed>, StepError> {
    Ok(match answer {
        Some(Completion::Ok { value, extras }) => {
            let output = answered_output(read(name, &value)?, extras).map_err(StepError::Failed)?;
            Some(Completed::ok(output))
        }
        Some(Completion::Error { code, message, extras }) => {
            let extras = answered_extras(extras).map_err(StepError::Failed)?;
            Some(Completed::Error { code, message, extras })
        }
        Some(Completion::Cancelled) => Some(Completed::Cancelled),
        Some(Completion::TimedOut) | None => None,
    })
}
