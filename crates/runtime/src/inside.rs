//! What a tool does by name inside its call: steps that are recorded, sleeps that survive a restart, questions and
//! answers from the world outside.
//!
//! Everything here is matched by its name. What is recorded is returned and not done again; what is not is done and
//! recorded. A `stepped` tool whose body only waits is put aside, and its body runs again from the start when it is woken.

mod attach;
mod book;
mod child;
pub(crate) mod nested;
mod pairs;
mod spawn;
pub(crate) mod still;
mod tell;

pub use attach::Attachment;
pub(crate) use book::{Book, Left, told};
pub use child::ChildSession;
pub use nested::NestedBatch;
pub use pairs::Pairs;

use crate::ask;
use crate::error::{Lost, chain};
use crate::inbox::NoticeKind;
use crate::stage::result;
use crate::tool::{Cx, Output, ToolError, ToolFuture};
use book::Begun;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use windlass_core::failure::{Failure, FailureClass};
use windlass_core::handle::{completion_key, step_key};
use windlass_core::operation::{Answer, Completion, Did, Mismatch, Question, StepResult, Until};
use windlass_core::outcome::JsonText;
use windlass_core::schema::{Role, Schema};
use windlass_core::time::Timestamp;

/// Why an operation did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StepError {
    /// The step ran and failed.
    #[error("{}", .0.message)]
    Failed(ToolError),
    /// The step must not be repeated, was started before a crash, and nobody knows what came of it.
    #[error("it is not known whether the step {name:?} took effect")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// The body does not do what is recorded of it, or not what a body may do.
    #[error(transparent)]
    Misused(#[from] Misuse),
    /// The attempt is to stop, so it calls nothing more, or what it called was told to stop too.
    #[error("the attempt is to stop")]
    Stopped,
    /// Nothing can be recorded any more: the call goes on elsewhere.
    #[error("nothing can be recorded any more")]
    Lost(#[source] Lost),
}

/// What a body must not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// An operation without a name.
    #[error("an operation has a blank name; what is recorded is found again by its name, so give it one")]
    Blank,
    /// The same name twice in one run of the body.
    #[error("the name {name:?} is used twice; each step and each sleep of a call has a name of its own")]
    Repeated {
        /// The name.
        name: String,
    },
    /// A name that is ours.
    #[error("the name {name:?} begins with `windlass.`, as ours do; choose another")]
    Reserved {
        /// The name.
        name: String,
    },
    /// Something that the tool does not declare.
    #[error("the tool declares no {what} {kind:?}{hint}; add it to `{place}` of its spec")]
    Undeclared {
        /// An event or a signal.
        what: &'static str,
        /// Which.
        kind: String,
        /// What was perhaps meant.
        hint: String,
        /// Where it is declared.
        place: &'static str,
    },
    /// More operations than a call may have.
    #[error("a call may record {max} operations, and has; do more in each, or in nested calls")]
    TooMany {
        /// The limit `operations_max`.
        max: u64,
    },
    /// Not what is recorded.
    #[error(
        "the body diverges from its record at {name:?}: {found}; a changed body needs a new version of its tool"
    )]
    Diverged {
        /// The operation's name.
        name: String,
        /// How.
        found: String,
    },
    /// Not now: what is recorded of the operation does not allow it.
    #[error("the operation {name:?} cannot be done now; what is recorded of it does not allow it")]
    Unfit {
        /// The operation's name.
        name: String,
    },
    /// A value that cannot be kept.
    #[error("what was given to or returned by {name:?} cannot be kept: {why}")]
    Unkept {
        /// The operation's name.
        name: String,
        /// Why not.
        why: String,
    },
    /// The attempt is over.
    #[error("the attempt is over; nothing is recorded for it any more")]
    Over,
}

impl Misuse {
    fn of(name: &str, found: Mismatch) -> Misuse {
        Misuse::Diverged { name: name.to_string(), found: found.to_string() }
    }

    fn undeclared(
        (what, place): (&'static str, &'static str),
        kind: &str,
        nearest: Option<String>,
    ) -> Misuse {
        let hint = nearest.map(|near| format!(", but {near:?}")).unwrap_or_default();
        Misuse::Undeclared { what, kind: kind.to_string(), hint, place }
    }

    fn unkept(name: &str, why: impl ToString) -> Misuse {
        Misuse::Unkept { name: name.to_string(), why: why.to_string() }
    }
}

impl From<StepError> for ToolError {
    fn from(error: StepError) -> ToolError {
        match error {
            StepError::Failed(error) => error,
            StepError::Unknown { name } => ToolError::new(format!(
                "It is not known whether the step {name:?} took effect. Do not repeat it blindly; find out first."
            )),
            StepError::Stopped => ToolError::stopped(),
            StepError::Misused(misuse) => ToolError::internal(misuse.to_string()),
            StepError::Lost(lost) => ToolError::internal(chain(&lost)),
        }
    }
}

/// The key by which the world outside answers what a call waits for. It is all the authority that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionKey {
    name: Arc<str>,
    text: String,
}

impl CompletionKey {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The key, as it is given to whoever answers.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for CompletionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What the world outside answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Completed {
    /// It is done, with this value.
    Ok(Value),
    /// It went wrong.
    Error {
        /// A code of the other side's.
        code: String,
        /// Written for the model.
        message: String,
    },
    /// It was called off.
    Cancelled,
}

/// What a tool leaves to the world outside: see [`Output::pending`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Without one nobody could answer: the call fails.
    pub(crate) key: Option<CompletionKey>,
    pub(crate) deadline: Option<Duration>,
}

impl Output {
    /// The tool has done its part; the answer to this key is the result of the call. Until then the call is parked and
    /// costs nothing. Without a key of this call nobody could answer: it fails with `pending_without_key`.
    pub fn pending(key: impl Into<Option<CompletionKey>>) -> Output {
        Output { pending: Some(Box::new(Pending { key: key.into(), deadline: None })), ..Output::default() }
    }

    /// The same, for so long at most.
    pub fn within(self, deadline: Duration) -> Output {
        let pending = self.pending.map(|pending| Box::new(Pending { deadline: Some(deadline), ..*pending }));
        Output { pending, ..self }
    }
}

impl Cx {
    /// Runs a step once, whatever happens: its result is durable when this returns, and a replay is told the result
    /// instead of running it. A step that fails tells why, and runs again when the call is tried again. A crash in the
    /// middle runs it again: send its [key](Self::step_key) to whoever deduplicates, or use
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
        self.run_step(name, input, (run, false)).await
    }

    /// The same for what must not be repeated: that it starts is durable first, and if a crash comes before its end is
    /// recorded, the body is told [`StepError::Unknown`] and decides.
    pub async fn step_once<I, O, F, Fut>(&self, name: &str, input: I, run: F) -> Result<O, StepError>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: FnOnce(I) -> Fut,
        Fut: Future<Output = Result<O, ToolError>>,
    {
        self.run_step(name, input, (run, true)).await
    }

    /// The idempotency key of a step: the same over attempts and restarts.
    pub fn step_key(&self, name: &str) -> String {
        step_key(&self.idempotency_key(), name)
    }

    async fn run_step<I, O, F, Fut>(
        &self,
        name: &str,
        input: I,
        (run, once): (F, bool),
    ) -> Result<O, StepError>
    where
        I: Serialize,
        O: Serialize + DeserializeOwned,
        F: FnOnce(I) -> Fut,
        Fut: Future<Output = Result<O, ToolError>>,
    {
        let given = self.kept(name, &input)?;
        let book = self.book();
        match book.begin_step(name, &given, self.limits().operations_max)? {
            Begun::Run => {}
            Begun::Done(value) => {
                if windlass_core::mutant::breaks("step-again") {
                    let _again = run(input).await;
                }
                return read(name, &value);
            }
            Begun::Failed(failure) => return Err(StepError::Failed(error_of(&failure))),
            Begun::Unknown => return Err(StepError::Unknown { name: name.to_string() }),
        }
        self.look_still();
        if once {
            book.note(self.now(), name, Did::StepStarted { input: given.clone() })?;
        }
        // Whoever finds a body put aside after a crash must know whether it has gone on, and so may have acted.
        if once || (self.is_put_aside && book.runs_unrecorded()) {
            self.commit().await?;
        }
        let returned = run(input).await;
        self.heartbeat();
        let (result, answer) = match returned {
            Ok(value) => {
                let text = self.kept(name, &value)?;
                // What a replay is told is what is returned now.
                (StepResult::Ok(text.clone()), read(name, &text))
            }
            Err(error) => {
                let failure = result::told(&error, self.limits());
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
        let begun = (self.now(), self.until(length));
        let Some(until) = self.book().begin_sleep(name, begun, self.limits().operations_max)? else {
            return Ok(());
        };
        self.wait_for(name, until).await?;
        self.book().note(self.now(), name, Did::SleepEnded)?;
        self.look_still();
        Ok(())
    }

    /// A key by which the world outside answers, with [`Runtime::complete`](crate::Runtime::complete), over HTTP or with
    /// `windlass complete`. The same name gives the same key. What comes before anybody waits is kept.
    pub async fn completion(&self, name: &str) -> Result<CompletionKey, StepError> {
        if self.book().take_key(name, self.now(), self.limits().operations_max)? {
            self.commit().await?;
        }
        let text = completion_key(self.secret(), self.call, name);
        Ok(CompletionKey { name: name.into(), text })
    }

    /// Waits for the answer to a key, until the deadline that was given the first time; without one for a day. `None`:
    /// nobody answered in time.
    pub async fn wait(
        &self,
        key: &CompletionKey,
        deadline: Option<Duration>,
    ) -> Result<Option<Completed>, StepError> {
        let length = deadline.unwrap_or(Duration::from_millis(self.limits().completion_ms));
        let until = self.book().begin_wait(&key.name, (self.now(), self.until(length)))?;
        Ok(match self.answer(&key.name, until).await? {
            Some(Completion::Ok(value)) => Some(Completed::Ok(read(&key.name, &value)?)),
            Some(Completion::Error { code, message }) => Some(Completed::Error { code, message }),
            Some(Completion::Cancelled) => Some(Completed::Cancelled),
            None => None,
        })
    }

    /// Asks a person and waits for the answer, for a day at most; `None`: nobody answered in time. The question is listed
    /// by [`Runtime::questions`](crate::Runtime::questions) and `windlass questions`; an answer that does not fit the
    /// schema is refused before it is taken, so the body sees none.
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
        let begun = (self.now(), question);
        let told = self.told_of(name, NoticeKind::TaskAsks);
        let (until, is_new) =
            self.book().begin_question(name, (begun, told), self.limits().operations_max)?;
        if is_new {
            self.commit().await?;
        }
        match self.answer(name, until).await? {
            Some(Completion::Ok(value)) => Ok(Some(read(name, &value)?)),
            Some(Completion::Error { .. } | Completion::Cancelled) | None => Ok(None),
        }
    }

    /// A question that can be asked.
    fn question(&self, name: &str, text: &str, schema: Option<Value>) -> Result<Question, Misuse> {
        let (limits, max) = (self.limits(), self.limits().question_chars_max);
        if text.trim().is_empty() || text.chars().count() as u64 > max {
            return Err(Misuse::unkept(name, format!("a question has 1 to {max} characters")));
        }
        if let Some(schema) = &schema {
            Schema::compile(schema, Role::Answer, name, limits)
                .map_err(|refused| Misuse::unkept(name, refused))?;
        }
        let until = self.until(Duration::from_millis(limits.completion_ms));
        Ok(Question { text: text.into(), schema: schema.map(|schema| schema.to_string().into()), until })
    }

    /// Waits until something is answered under this name, or it is too late for that: `None`.
    async fn answer(&self, name: &str, until: Until) -> Result<Option<Completion>, StepError> {
        self.wait_for(name, until).await?;
        if self.book().answer(name)?.is_none() {
            // What was left for the owner before the deadline counts.
            let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
            ask::adopt_now(&hold).await.map_err(StepError::Lost)?;
            self.book().hear(&self.batch, self.call.ordinal, self.now());
        }
        Ok(match self.book().end_wait(name, self.now())? {
            Answer::Given(completion) => Some(completion),
            Answer::TimedOut => None,
        })
    }

    /// Waits until what is waited for is over. If that is all the body of a `stepped` tool does, it is put aside here.
    async fn wait_for(&self, name: &str, until: Until) -> Result<(), StepError> {
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

    /// It does something beside waiting for calls inside it, or has done it.
    fn look_still(&self) {
        if self.book().is_waiting_inside()
            && let Some(hold) = self.hold.upgrade()
        {
            still::look(&hold.rt, &hold.session, self.call);
        }
    }

    fn book(&self) -> &Book {
        &self.signal.book
    }

    async fn commit(&self) -> Result<(), StepError> {
        // Another part of the body may only wait by now.
        let _writes = self.book().writes();
        self.book().commit(&self.batch, self.artifacts.lane()).await.map_err(StepError::Lost)
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn until(&self, length: Duration) -> Until {
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let wake_at = self.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX));
        Until { wake_at: Timestamp(wake_at), length_us }
    }

    /// A value as it is recorded.
    fn kept(&self, name: &str, value: &impl Serialize) -> Result<JsonText, Misuse> {
        let value = serde_json::to_value(value).map_err(|error| Misuse::unkept(name, error))?;
        windlass_core::json::measure_result(&value, self.limits())
            .map_err(|problem| Misuse::unkept(name, problem))?;
        Ok(value.to_string().into())
    }
}

fn read<O: DeserializeOwned>(name: &str, text: &str) -> Result<O, StepError> {
    serde_json::from_str(text).map_err(|error| {
        let found = format!("what is recorded is not what the body expects: {error}");
        StepError::Misused(Misuse::Diverged { name: name.to_string(), found })
    })
}

/// A recorded failure of a step, as its body was told it.
fn error_of(failure: &Failure) -> ToolError {
    ToolError {
        class: failure.class,
        message: if failure.class == FailureClass::Internal {
            String::new()
        } else {
            failure.message.clone()
        },
        tool_code: failure.tool_code.clone(),
        detail: failure.detail.clone(),
        retry: failure.retry,
        did_not_happen: failure.did_not_happen,
        stopped: false,
        connection: None,
    }
}

/// Polls the body of a tool until it returns, or until all it does is wait: `None`.
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
