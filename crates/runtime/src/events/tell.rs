//! What an event says of its entry: fields for programs, and for people what kind of sentence it is.

use crate::answer::{failure, shown_triggered, wall_time};
use serde::Serialize;
use serde_json::{Value as Json, json};
use windlass_core::call::{Call, Detached, Ended, Fact, Parked, Resolved, Result as Attempted, Verdict};
use windlass_core::failure::Failure;
use windlass_core::handle::{Handle, Kind as HandleKind, Secret};
use windlass_core::narration::{Locale, Told};
use windlass_core::operation::{Did, Operation, StepResult};
use windlass_core::outcome::{Outcome, Value};

/// The fields of an event that only its kind has, in order.
#[derive(Clone, Debug, Default)]
pub struct Outline(pub Vec<(&'static str, Json)>);

/// What people are told of an event.
#[derive(Clone, Debug)]
pub(super) enum Spoken {
    Started,
    Waiting(&'static str),
    Completed,
    Failed(String),
    Cancelled,
    Denied(String),
    Unknown,
}

impl Spoken {
    pub(super) fn told(&self) -> Told<'_> {
        match self {
            Spoken::Started => Told::Started,
            Spoken::Waiting(reason) => Told::Waiting(reason),
            Spoken::Completed => Told::Completed,
            Spoken::Failed(message) => Told::Failed(message),
            Spoken::Cancelled => Told::Cancelled,
            Spoken::Denied(reason) => Told::Denied(reason),
            Spoken::Unknown => Told::Unknown,
        }
    }

    fn of(outcome: &Outcome) -> Spoken {
        match outcome {
            Outcome::Succeeded(_) => Spoken::Completed,
            Outcome::Failed(failure) => Spoken::Failed(failure.message.clone()),
            Outcome::Denied { reason } => Spoken::Denied(reason.clone()),
            Outcome::Cancelled { .. } => Spoken::Cancelled,
            Outcome::Unknown => Spoken::Unknown,
        }
    }
}

/// Whether somebody who follows is told of such a fact: what only prepares a call is not.
pub(super) fn matters(fact: &Fact) -> bool {
    !matches!(fact, Fact::Prepared(_) | Fact::First)
}

/// What is said of a fact, when the call stands as it leaves it.
pub(super) fn tell(fact: &Fact, call: &Call, (secret, max): (&Secret, u64)) -> (Outline, Option<Spoken>) {
    let mut told = Outline::default();
    let spoken = match fact {
        Fact::Opened(fact) => {
            fact.task.iter().for_each(|task| told.of_task(task));
            None
        }
        Fact::Prepared(_) | Fact::First | Fact::Accepted(_) => None,
        Fact::Started(fact) => {
            told.add("attempt", fact.attempt.0);
            told.add_if("redrive", fact.redrive.then_some(true));
            Some(Spoken::Started)
        }
        Fact::Lost(fact) => told.of_attempt(fact.attempt.0, None),
        Fact::Returned(fact) => {
            told.of_attempt(fact.attempt.0, Some(fact.ran_us));
            if let Attempted::Failed(failed) = &fact.result {
                told.add("failure", shown_failure(failed, max));
            }
            None
        }
        Fact::Stopped(fact) => {
            told.of_attempt(fact.attempt.0, Some(fact.ran_us));
            told.add("cause", fact.cause.as_str());
            None
        }
        Fact::Reconciled(fact) => {
            told.of_attempt(fact.attempt.0, None);
            let verdict = match &fact.verdict {
                Verdict::Landed(_) => "landed",
                Verdict::DidNotHappen => "did_not_happen",
                Verdict::Unknown => "unknown",
            };
            told.add("verdict", verdict);
            None
        }
        Fact::Parked(parked) => told.of_wait(parked),
        Fact::Suspended(fact) => {
            told.of_attempt(fact.attempt.0, Some(fact.ran_us));
            told.add("names", fact.waits.iter().map(|name| &**name).collect::<Vec<_>>());
            told.of_wait(&fact.parked)
        }
        Fact::Resumed(fact) => told.of_attempt(fact.attempt.0, None),
        Fact::Unconnected(fact) => {
            told.of_attempt(fact.attempt.0, Some(fact.ran_us));
            told.add("provider", &*fact.provider);
            told.add_if("setup_url", fact.setup_url.as_deref());
            told.of_wait(&fact.parked)
        }
        Fact::Connected(fact) => {
            told.add("connected", fact.connected);
            None
        }
        Fact::Detached(fact) => {
            told.of_task(fact);
            None
        }
        Fact::CancelAsked(fact) => {
            told.add_if("reason", fact.reason.as_deref());
            None
        }
        Fact::SameAs(fact) => {
            let first = Handle::seal(secret, HandleKind::Call, fact.first.packed());
            told.add("same_as", first.to_string());
            Some(Spoken::Waiting("same"))
        }
        Fact::Operation(fact) => told.of_operation(fact, (secret, max)),
        Fact::Ended(fact) => told.of_end(fact, call, max),
        Fact::Resolved(fact) => told.of_resolution(fact, call, max),
    };
    (told, spoken)
}

impl Outline {
    fn add(&mut self, name: &'static str, value: impl Into<Json>) {
        self.0.push((name, value.into()));
    }

    fn add_if<T: Into<Json>>(&mut self, name: &'static str, value: Option<T>) {
        self.0.extend(value.map(|value| (name, value.into())));
    }

    /// What a tool said, shortened if it is long; then it is also said how long it is.
    fn add_payload(&mut self, payload: &str, max: u64) {
        let (shown, bytes) = bounded(payload, max);
        self.add("payload", shown);
        self.add_if("payload_bytes", bytes);
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn of_attempt(&mut self, attempt: u32, ran_us: Option<u64>) -> Option<Spoken> {
        self.add("attempt", attempt);
        self.add_if("ran_ms", ran_us.map(|us| us / 1_000));
        None
    }

    fn of_wait(&mut self, parked: &Parked) -> Option<Spoken> {
        self.add("waiting_for", parked.reason.as_str());
        self.add("until", wall_time(parked.wake_at));
        Some(Spoken::Waiting(parked.reason.as_str()))
    }

    fn of_task(&mut self, task: &Detached) {
        self.add("by", task.by.as_str());
        self.add("wake", task.wake.as_str());
        self.add_if("title", task.title.as_deref());
    }

    fn of_operation(&mut self, fact: &Operation, (secret, max): (&Secret, u64)) -> Option<Spoken> {
        self.add("name", &*fact.name);
        match &fact.did {
            Did::StepEnded { result: StepResult::Failed(failed), .. } => {
                self.add("failure", shown_failure(failed, max));
            }
            Did::SleepBegan(until) | Did::WaitBegan(until) | Did::SignalAwaited(until) => {
                self.add("until", wall_time(until.wake_at))
            }
            Did::Asked(question) => {
                self.add("question", bounded_text(&question.text, max).0);
                self.add("until", wall_time(question.until.wake_at));
            }
            Did::Emitted { event, payload, triggered } => {
                self.add("event", &**event);
                self.add_payload(payload, max);
                let started: Vec<Json> = triggered.iter().map(|one| shown_triggered(one, secret)).collect();
                self.add_if("triggered", (!started.is_empty()).then_some(started));
            }
            Did::Signalled { payload } | Did::Said { message: payload } => self.add_payload(payload, max),
            Did::Spawned { asked: payload } | Did::ChildOpened { asked: payload } => {
                self.add_payload(payload, max)
            }
            Did::Attached { kept, .. } => {
                self.add("artifact", kept.artifact.to_string());
                self.add("bytes", kept.bytes);
            }
            Did::PairWritten { written, .. } => self.add("written", *written),
            Did::StepStarted { .. }
            | Did::StepEnded { result: StepResult::Ok(_), .. }
            | Did::SleepEnded
            | Did::KeyTaken
            | Did::Completed(_)
            | Did::TimedOut
            | Did::Called { .. }
            | Did::PairsRead { .. } => {}
        }
        None
    }

    fn of_end(&mut self, fact: &Ended, call: &Call, max: u64) -> Option<Spoken> {
        let end = call.end()?;
        self.add("outcome", outcome(call, max)?);
        self.add("attempts", call.attempts);
        self.add("opened_at", wall_time(call.opened_at));
        self.add("queued_ms", fact.spent.queued_us / 1_000);
        self.add("waited_ms", fact.spent.waited_us / 1_000);
        self.add("ran_ms", fact.spent.ran_us / 1_000);
        Some(Spoken::of(&end.outcome))
    }

    fn of_resolution(&mut self, fact: &Resolved, call: &Call, max: u64) -> Option<Spoken> {
        self.add("outcome", outcome(call, max)?);
        self.add("by", fact.by.as_str());
        Some(Spoken::of(&fact.outcome))
    }
}

/// How a call ended, with long texts shortened.
fn outcome(call: &Call, max: u64) -> Option<Json> {
    let end = call.end()?;
    Some(match &end.outcome {
        Outcome::Succeeded(success) => match &success.value {
            Value::Inline(text) => match bounded(text, max) {
                (value, None) => Json::Object([("value".to_string(), value)].into_iter().collect()),
                (value, Some(bytes)) => json!({"value": value, "value_bytes": bytes}),
            },
            Value::Kept { kept, form } => {
                json!({"kept": {"artifact": kept.artifact.to_string(), "bytes": kept.bytes, "form": form.as_str()}})
            }
        },
        Outcome::Failed(failed) => json!({"failure": shown_failure(failed, max)}),
        Outcome::Denied { reason } => json!({"reason": bounded_text(reason, max).0}),
        Outcome::Cancelled { effect } => json!({"effect": effect.as_str()}),
        Outcome::Unknown => json!({"since": wall_time(end.at)}),
    })
}

fn shown_failure(failed: &Failure, max: u64) -> Json {
    let mut shown = failure(failed);
    if let Some(fields) = shown.as_object_mut() {
        // What the tool returned may be large, and is found at the call.
        fields.remove("raw");
    }
    shown["message"] = bounded_text(&failed.message, max).0;
    shown
}

/// A JSON text as its value, or its beginning as a string and how long it is.
pub(super) fn bounded(text: &str, max: u64) -> (Json, Option<u64>) {
    match text.len() as u64 <= max {
        true => (serde_json::from_str(text).unwrap_or_else(|_| text.into()), None),
        false => bounded_text(text, max),
    }
}

/// A text, or its beginning and how long it is.
pub(super) fn bounded_text(text: &str, max: u64) -> (Json, Option<u64>) {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    if text.len() <= max {
        return (text.into(), None);
    }
    (text[..text.floor_char_boundary(max)].into(), Some(text.len() as u64))
}

impl super::Event {
    /// Appends it as JSON, as programs read it, with the sentence for people in this language.
    pub fn write_json(&self, text: &mut Vec<u8>, locale: Locale) {
        let mut fields = Fields::begin(text);
        fields.add("cursor", &self.cursor.0);
        fields.add("kind", self.kind.as_str());
        fields.add("at", &wall_time(self.at));
        fields.add_written(self.subject.written());
        fields.add("state", self.state);
        for (name, value) in &self.told.0 {
            fields.add(name, value);
        }
        fields.add_if("narration", self.narration(locale));
        fields.end();
    }
}

impl super::Words {
    /// Appends them as JSON, with the sentence for people in this language.
    pub fn write_json(&self, text: &mut Vec<u8>, locale: Locale) {
        let mut fields = Fields::begin(text);
        fields.add("kind", "progress");
        self.subject.name(&mut fields);
        fields.add_if("progress", self.progress.as_ref());
        fields.add_if("status", self.status.as_ref());
        fields.add_if("output", self.output.as_ref());
        fields.add_if("narration", self.narration(locale));
        fields.end();
    }
}

impl super::Subject {
    /// What all events say of their call, as it is written: once for all of them.
    fn written(&self) -> &[u8] {
        self.written.get_or_init(|| {
            let mut text = Vec::new();
            let mut fields = Fields { text: &mut text, is_first: true };
            self.name(&mut fields);
            fields.add("args", &self.args);
            fields.add_if("args_bytes", self.args_bytes);
            text.into()
        })
    }

    fn name(&self, fields: &mut Fields<'_>) {
        fields.add("session", &*self.session);
        fields.add("batch", &*self.batch);
        fields.add_if("turn", self.turn.as_deref());
        fields.add("call", &self.call.to_string());
        fields.add_if("parent", self.parent.map(|parent| parent.to_string()));
        fields.add("id", &*self.id);
        fields.add("tool", &*self.tool);
    }
}

/// The fields of a JSON object, written one after the other.
struct Fields<'a> {
    text: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Fields<'a> {
    fn begin(text: &'a mut Vec<u8>) -> Fields<'a> {
        text.push(b'{');
        Fields { text, is_first: true }
    }

    fn end(self) {
        self.text.push(b'}');
    }

    /// Names are ours, and need no escaping.
    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.separate();
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        // Writing to memory does not fail, and what is told has text keys only.
        let _ = serde_json::to_writer(&mut *self.text, value);
    }

    fn add_if(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }

    /// Fields that were written before.
    fn add_written(&mut self, fields: &[u8]) {
        self.separate();
        self.text.extend_from_slice(fields);
    }

    fn separate(&mut self) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.text.push(b',');
        }
    }
}
