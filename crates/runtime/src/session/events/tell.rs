//! The content of an event: fields for programs, and the kind of sentence for people.

use crate::api::answer::wall_time;
use crate::api::view::{FailureView, TriggeredTask};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};
use windlass_core::call::{
    ApprovalAnswer, ApprovalAnswered, Call, Detached, Ended, Fact, Parked, ReconciledAttempt, Resolved,
    Result as Attempted, Verdict,
};
use windlass_core::failure::Failure;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::narration::{Locale, Narrative};
use windlass_core::operation::{Did, Operation, StepResult};
use windlass_core::outcome::{Outcome, Success, Value};
use windlass_core::redact::{RedactedArgs, SecretNames, redacted_text};

/// The fields of an event that only its kind has, in order.
#[derive(Clone, Debug, Default)]
pub struct Outline(pub Vec<(&'static str, Json)>);

/// The sentence of an event.
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
    pub(super) fn narrative(&self) -> Narrative<'_> {
        match self {
            Spoken::Started => Narrative::Started,
            Spoken::Waiting(reason) => Narrative::Waiting(reason),
            Spoken::Completed => Narrative::Completed,
            Spoken::Failed(message) => Narrative::Failed(message),
            Spoken::Cancelled => Narrative::Cancelled,
            Spoken::Denied(reason) => Narrative::Denied(reason),
            Spoken::Unknown => Narrative::Unknown,
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

/// Whether a fact is relevant to followers: facts that only prepare a call are not.
pub(super) fn matters(fact: &Fact) -> bool {
    !matches!(fact, Fact::Prepared(_) | Fact::First | Fact::StartRefused)
}

/// The content for a fact, given the call's state after it.
pub(super) fn tell(fact: &Fact, call: &Call, secret: &Secret, max: u64) -> (Outline, Option<Spoken>) {
    let mut told = Outline::default();
    let spoken = match fact {
        Fact::Opened(fact) => {
            fact.task.iter().for_each(|task| told.of_task(task));
            None
        }
        Fact::Prepared(_) | Fact::First | Fact::Accepted(_) | Fact::CopyFound => None,
        Fact::StartRefused => None,
        Fact::Started(fact) => {
            told.add("attempt", fact.attempt.0);
            told.add_if("redrive", fact.redrive.then_some(true));
            Some(Spoken::Started)
        }
        Fact::Lost(fact) => told.of_attempt(fact.attempt.0, None),
        Fact::Returned(fact) => {
            let (attempt, ran_us) = (fact.attempt.0, fact.ran_us);
            match &fact.result {
                Attempted::Failed(failed) => told.of_failure(attempt, ran_us, failed, max),
                Attempted::Ok(_) => told.of_attempt(attempt, Some(ran_us)),
            }
        }
        Fact::Stopped(fact) => {
            told.of_attempt(fact.attempt.0, Some(fact.ran_us));
            told.add("cause", fact.cause.as_str());
            None
        }
        Fact::Reconciled(fact) => told.of_verdict(fact),
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
        Fact::Aborted(fact) => told.of_failure(fact.attempt.0, fact.ran_us, &fact.failure, max),
        Fact::SetAside(fact) => {
            told.add("why", &*fact.why);
            None
        }
        Fact::Judged(_) | Fact::ApprovalAsked(_) | Fact::ApprovalAnswered(_) | Fact::Withheld(_) => {
            told.of_permission(fact)
        }
        Fact::SameAs(fact) => {
            let first = Handle::seal(secret, HandleKind::Call, fact.first.packed());
            told.add("same_as", first.to_string());
            Some(Spoken::Waiting("same"))
        }
        Fact::Operation(fact) => told.of_operation(fact, secret, max),
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

    /// Adds a tool's payload, with secrets masked and shortened if it is long; then its length is added too.
    fn add_payload(&mut self, payload: &str, max: u64) {
        let (shown, bytes) = bounded(&redacted_text(payload), max);
        self.add("payload", shown);
        self.add_if("payload_bytes", bytes);
    }

    /// Masks the call's secrets, wherever they occur.
    pub(super) fn scrub(&mut self, args: &RedactedArgs) {
        self.0.iter_mut().for_each(|(_, value)| args.scrub_value(value));
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

    /// Adds the content of a fact about permission.
    fn of_permission(&mut self, fact: &Fact) -> Option<Spoken> {
        if let Fact::Judged(fact) = fact {
            self.add("allowed", fact.allowed);
            self.of_rules(fact.policy, &fact.by, fact.reason.as_deref())
        } else if let Fact::ApprovalAsked(fact) = fact {
            self.of_rules(fact.policy, &fact.by, fact.reason.as_deref());
            self.add("digest", fact.digest.whole());
            self.add_if("four_eyes", fact.four_eyes.then_some(true));
            self.of_wait(&fact.parked)
        } else if let Fact::ApprovalAnswered(fact) = fact {
            self.of_decision(fact)
        } else if let Fact::Withheld(fact) = fact {
            self.of_attempt(fact.attempt.0, None)
        } else {
            None
        }
    }

    /// Adds the rules that decided about a call.
    fn of_rules(&mut self, policy: u64, by: &[Arc<str>], reason: Option<&str>) -> Option<Spoken> {
        self.add("policy", policy);
        self.add("rules", by.iter().map(|name| &**name).collect::<Vec<_>>());
        self.add_if("reason", reason);
        None
    }

    /// Adds the answer to an approval.
    fn of_decision(&mut self, fact: &ApprovalAnswered) -> Option<Spoken> {
        let (decision, edited, reason) = match &fact.answer {
            ApprovalAnswer::Approved { args, .. } => ("approve", args.is_some(), None),
            ApprovalAnswer::Denied { reason } => ("deny", false, reason.as_deref()),
        };
        self.add("decision", decision);
        self.add_if("edited", edited.then_some(true));
        self.add_if("reason", reason);
        self.add_if("approver", fact.by.as_deref());
        self.add_if("remembered", fact.remembered.as_deref());
        None
    }

    fn of_task(&mut self, task: &Detached) {
        self.add("by", task.by.as_str());
        self.add("wake", task.wake.as_str());
        self.add_if("title", task.title.as_deref());
    }

    fn of_operation(&mut self, fact: &Operation, secret: &Secret, max: u64) -> Option<Spoken> {
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
            Did::EventPlanned { event, payload } => {
                self.add("event", &**event);
                self.add_payload(payload, max);
            }
            Did::Awaited { what, until } => {
                self.add("until", wall_time(until.wake_at));
                self.add_payload(what, max);
            }
            Did::Emitted { event, payload, triggered, numbered } => {
                self.add("event", &**event);
                self.add_if("number", (numbered.number > 0).then_some(numbered.number));
                self.add_if("again", numbered.is_again.then_some(true));
                self.add_payload(payload, max);
                let started: Vec<Json> =
                    triggered.iter().map(|one| json!(TriggeredTask::of(one, secret))).collect();
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
            Did::Handed(handover) => self.add("toolbox", &*handover.toolbox),
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

    fn of_failure(&mut self, attempt: u32, ran_us: u64, failed: &Failure, max: u64) -> Option<Spoken> {
        self.of_attempt(attempt, Some(ran_us));
        self.add("failure", shown_failure(failed, max));
        None
    }

    fn of_verdict(&mut self, fact: &ReconciledAttempt) -> Option<Spoken> {
        let verdict = match &fact.verdict {
            Verdict::Landed(_) => "landed",
            Verdict::Failed(_) => "failed",
            Verdict::DidNotHappen => "did_not_happen",
            Verdict::Unknown => "unknown",
        };
        self.of_attempt(fact.attempt.0, None);
        self.add("verdict", verdict);
        None
    }

    fn of_end(&mut self, fact: &Ended, call: &Call, max: u64) -> Option<Spoken> {
        let end = call.end()?;
        self.add("outcome", outcome(call, max)?);
        self.add("attempts", call.attempts);
        self.add("opened_at", wall_time(call.opened_at));
        self.add("queued_ms", fact.spent.queued_us / 1_000);
        self.add("waited_ms", fact.spent.waited_us / 1_000);
        self.add_if("ran_ms", call.measured_us().map(|us| us / 1_000));
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
        Outcome::Succeeded(success) => succeeded(success, max),
        Outcome::Failed(failed) => json!({"failure": shown_failure(failed, max)}),
        Outcome::Denied { reason } => json!({"reason": bounded_text(reason, max).0}),
        Outcome::Cancelled { effect } => json!({"effect": effect.as_str()}),
        Outcome::Unknown => json!({"since": wall_time(end.at)}),
    })
}

fn succeeded(success: &Success, max: u64) -> Json {
    let mut shown = match &success.value {
        Value::Inline(text) => match bounded(text, max) {
            (value, None) => Json::Object([("value".to_string(), value)].into_iter().collect()),
            (value, Some(bytes)) => json!({"value": value, "value_bytes": bytes}),
        },
        Value::Kept { kept, form } => {
            json!({"kept": {"artifact": kept.artifact.to_string(), "bytes": kept.bytes, "form": form.as_str()}})
        }
    };
    if let Some(control) = success.side.as_deref().and_then(|side| side.control.as_ref()) {
        shown["control"] = bounded(control, max).0;
    }
    shown
}

fn shown_failure(failed: &Failure, max: u64) -> Json {
    // What the tool returned may be large, and is found at the call.
    let mut shown = FailureView { raw: None, ..FailureView::of(failed) }.to_value();
    shown["message"] = bounded_text(&failed.message, max).0;
    shown
}

/// The arguments of a call: for sentences, and for the event.
pub(super) fn arguments(
    given: &Arguments,
    names: &SecretNames,
    max: u64,
) -> (RedactedArgs, (Json, Option<u64>)) {
    let (text, is_long) = (&*given.text, given.text.len() as u64 > max);
    let redacted = RedactedArgs::of_text(text, names);
    let masked = || redacted.value().as_str().map_or_else(|| redacted.value().to_string(), str::to_string);
    let shown = match (given.given, is_long, redacted.is_masked()) {
        (Given::Json, false, _) => (redacted.value().clone(), None),
        (Given::Text, false, false) => (text.into(), None),
        (Given::Text, false, true) => (masked().into(), None),
        (_, true, false) => bounded_text(text, max),
        (_, true, true) => (bounded_text(&masked(), max).0, Some(text.len() as u64)),
    };
    // Arguments given as text and long ones would be stored twice.
    let is_kept = !is_long && given.given == Given::Json;
    (if is_kept { redacted } else { redacted.into_told() }, shown)
}

/// A JSON text as its value, or its beginning as a string with its length.
pub(super) fn bounded(text: &str, max: u64) -> (Json, Option<u64>) {
    match text.len() as u64 <= max {
        true => (serde_json::from_str(text).unwrap_or_else(|_| text.into()), None),
        false => bounded_text(text, max),
    }
}

/// A text, or its beginning with its length.
pub(super) fn bounded_text(text: &str, max: u64) -> (Json, Option<u64>) {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    if text.len() <= max {
        return (text.into(), None);
    }
    (text[..text.floor_char_boundary(max)].into(), Some(text.len() as u64))
}

impl super::Event {
    /// Appends it as JSON, with the sentence for people in this language.
    pub fn write_json(&self, text: &mut Vec<u8>, locale: Locale) {
        let mut fields = JsonFields::begin(text);
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
        let mut fields = JsonFields::begin(text);
        fields.add("kind", self.kind());
        if let Some(running) = &self.running {
            fields.add("at", &wall_time(running.at));
            fields.add_written(self.subject.written());
            fields.add("state", "running");
            fields.add("attempt", &running.attempt);
            fields.add_if("narration", self.narration(locale));
            fields.end();
            return;
        }
        self.subject.name(&mut fields);
        fields.add_if("progress", self.progress.as_ref());
        fields.add_if("status", self.status.as_ref());
        fields.add_if("output", self.output.as_ref());
        fields.add_if("narration", self.narration(locale));
        fields.end();
    }
}

impl super::Subject {
    /// The serialised part that all events of the call share, made once.
    fn written(&self) -> &[u8] {
        self.written.get_or_init(|| {
            let mut text = Vec::new();
            let mut fields = JsonFields { text: &mut text, is_first: true };
            self.name(&mut fields);
            fields.add("args", &self.args);
            fields.add_if("args_bytes", self.args_bytes);
            text.into()
        })
    }

    fn name(&self, fields: &mut JsonFields<'_>) {
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
struct JsonFields<'a> {
    text: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> JsonFields<'a> {
    fn begin(text: &'a mut Vec<u8>) -> JsonFields<'a> {
        text.push(b'{');
        JsonFields { text, is_first: true }
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
        // Writing to memory does not fail, and the content has only string keys.
        let _ = serde_json::to_writer(&mut *self.text, value);
    }

    fn add_if(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }

    /// Adds fields that are already serialised.
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
