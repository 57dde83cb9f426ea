//! The journal for people: one sentence per fact, with its reasons.

mod permission;

pub(crate) use permission::rule_names;

use crate::api::answer::wall_time;
use windlass_args::repair::Repair;
use windlass_core::attempt::{Deadlines, Rules};
use windlass_core::call::{
    Abort, CancelAsked, Cause, Detached, DetachedBy, Ended, Fact, LostAttempt, Opened, Parked, PreparedCall,
    Reason, ReconciledAttempt, Resolved, Resolver, Result as Attempted, Returned, SameAs, Started, Stopped,
    Suspended, Then, Unconnected, Verdict, Wake,
};
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::operation::{Completion, Did, Handover, Operation, StepResult, signal_of};
use windlass_core::outcome::{Effect, Outcome, Value};
use windlass_core::redact::{RedactedArgs, SecretNames, redacted_text};
use windlass_core::visible;

/// The sentence of a fact. Arguments with one of these names are masked, and anything else named like a
/// secret.
pub(crate) fn story(fact: &Fact, secret: &Secret, names: &SecretNames) -> String {
    match fact {
        Fact::Opened(fact) => opened(fact, names),
        Fact::Prepared(fact) => prepared(fact, names),
        Fact::Started(fact) => started(*fact),
        Fact::Lost(fact) => lost(*fact),
        Fact::Returned(fact) => returned(fact),
        Fact::Stopped(fact) => stopped(fact),
        Fact::Reconciled(fact) => reconciled(fact),
        Fact::Parked(fact) => parked(fact),
        Fact::CancelAsked(fact) => cancel_asked(fact),
        Fact::Accepted(fact) => format!(
            "an operator lets it continue with the changed tool; class {}, contract {}",
            fact.class, fact.contract
        ),
        Fact::Resolved(fact) => resolved(fact),
        Fact::SameAs(SameAs { first }) => {
            let first = Handle::seal(secret, HandleKind::Call, first.packed());
            format!("it is the same as call {first}: it gets that one's answer, or runs if that one fails")
        }
        Fact::First => "no other call with its dedupe key is open or has an answer: it runs".to_string(),
        Fact::Ended(fact) => ended(fact),
        Fact::Operation(fact) => operation(fact),
        Fact::Suspended(fact) => suspended(fact),
        Fact::Resumed(fact) => format!("attempt {} continues", fact.attempt),
        Fact::Unconnected(fact) => unconnected(fact),
        Fact::Connected(fact) if fact.connected => "it was connected, and continues".to_string(),
        Fact::Connected(_) => "the connection was declined".to_string(),
        Fact::Detached(fact) => detached(fact),
        Fact::CopyFound => {
            "the data is a copy, and the call was under way: whether it took effect at the original is not \
                            known here"
                .to_string()
        }
        Fact::Aborted(fact) => aborted(fact),
        Fact::SetAside(fact) => {
            let why = &fact.why;
            format!(
                "its record contradicts itself ({why}): it is set aside, and an operator says how it ended"
            )
        }
        Fact::StartRefused => "it is refused at once, so it is no task".to_string(),
        Fact::Judged(fact) => permission::judged(fact),
        Fact::ApprovalAsked(fact) => permission::asked(fact),
        Fact::ApprovalAnswered(fact) => permission::answered(fact, names),
        Fact::Withheld(fact) => {
            format!("attempt {} was not run: what it was allowed for had changed", fact.attempt)
        }
    }
}

fn aborted(fact: &Abort) -> String {
    let (attempt, ran, message) = (fact.attempt, length(fact.ran_us), &fact.failure.message);
    format!("attempt {attempt} was cut off after {ran}, and its effect is not known: {}", shorten(message))
}

fn detached(fact: &Detached) -> String {
    let why = match fact.by {
        DetachedBy::Budget => "it runs longer than its caller waits",
        DetachedBy::Queue => "it waits longer for its start than its caller does",
        DetachedBy::Spawned => "it was started so",
        DetachedBy::Scheduled => "a schedule started it",
        DetachedBy::Triggered => "an event started it",
    };
    let told = match fact.wake {
        Wake::Silent => "its session gets no notice of its end",
        Wake::OnEnd => "its session gets a notice of its end",
        Wake::OnActivity => "its session gets notices of its questions, messages and end",
    };
    format!("it continues as a task: {why}; {told}")
}

/// An event that was emitted or planned.
fn event(name: &str, did: &Did) -> String {
    if let Did::EventPlanned { event, payload } = did {
        return format!("{name}: it emits the event {event} if it succeeds: {}", shorten_json(payload));
    }
    let Did::Emitted { event, payload, triggered, numbered } = did else { return String::new() };
    if numbered.is_again {
        return format!("{name}: it emitted the event {event} again, which was number {}", numbered.number);
    }
    let started = match triggered.len() {
        0 => String::new(),
        count => format!(", which started {count} {}", if count == 1 { "task" } else { "tasks" }),
    };
    format!("{name}: it emitted the event {event}: {}{started}", shorten_json(payload))
}

fn answered(answer: &Completion) -> String {
    match answer {
        Completion::Ok { value, .. } => format!(": {}", shorten_json(value)),
        Completion::Error { code, message, .. } => {
            format!(", an error {}: {}", shorten(code), shorten(message))
        }
        Completion::Cancelled => ": it was cancelled".to_string(),
        Completion::TimedOut => ": it took too long".to_string(),
    }
}

fn operation(fact: &Operation) -> String {
    let name = &fact.name;
    let signal = || {
        let slot = signal_of(name).map(|(signal, number)| format!("{signal} ({number})"));
        slot.unwrap_or_else(|| name.to_string())
    };
    match &fact.did {
        Did::StepStarted { input } => {
            format!("the step {name} begins, once and for all, with {}", shorten_json(input))
        }
        Did::StepEnded { result: StepResult::Ok(value), .. } => {
            format!("the step {name} is done: {}", shorten_json(value))
        }
        Did::StepEnded { result: StepResult::Failed(failure), .. } => {
            format!("the step {name} failed: {}", shorten(&failure.message))
        }
        Did::SleepBegan(until) => {
            format!("{name}: it sleeps {}, until {}", length(until.length_us), wall_time(until.wake_at))
        }
        Did::SleepEnded => format!("{name}: it has slept"),
        Did::KeyTaken => format!("{name}: a key for an external answer was issued"),
        Did::Asked(question) => {
            let (text, until) = (shorten(&question.text), wall_time(question.until.wake_at));
            format!("{name}: it asks a person, until {until}: {text}")
        }
        Did::WaitBegan(until) => {
            format!("{name}: it waits for an external answer, until {}", wall_time(until.wake_at))
        }
        Did::Completed(answer) => format!("{name}: the answer came{}", answered(answer)),
        Did::PairsRead { asked, found } => {
            format!("{name}: it read key-value pairs {}: {}", shorten_json(asked), shorten_json(found))
        }
        Did::PairWritten { asked, written: true } => {
            format!("{name}: it wrote the key-value pair {}", shorten_json(asked))
        }
        Did::PairWritten { asked, written: false } => {
            format!(
                "{name}: it did not write {}, because the pair was changed meanwhile",
                shorten_json(asked)
            )
        }
        Did::Attached { content, kept } => {
            format!("{name}: it attached {} as artifact {}", shorten(content), kept.artifact)
        }
        Did::Emitted { .. } | Did::EventPlanned { .. } => event(name, &fact.did),
        Did::Awaited { what, until } => {
            format!("{name}: it waits for {}, until {}", shorten_json(what), wall_time(until.wake_at))
        }
        Did::Spawned { asked } => format!("{name}: it started the task {}", shorten_json(asked)),
        Did::ChildOpened { asked } => format!("{name}: it opened the child session {}", shorten_json(asked)),
        Did::Said { message } => format!("{name}: it sent the message {}", shorten_json(message)),
        Did::Handed(Handover { attempt, toolbox, .. }) => {
            format!("attempt {attempt} is handed to the toolbox {}", shorten(toolbox))
        }
        Did::SignalAwaited(until) => {
            format!("it waits for the signal {}, until {}", signal(), wall_time(until.wake_at))
        }
        Did::Signalled { payload } => format!("the signal {} came: {}", signal(), shorten_json(payload)),
        Did::TimedOut if signal_of(name).is_some() => format!("the signal {} did not come in time", signal()),
        Did::TimedOut => format!("{name}: the answer did not come in time"),
        Did::Called { generation: 1 } => format!("{name}: it calls other tools"),
        Did::Called { generation } => {
            format!("{name}: it calls again what had failed, for the {generation}. time")
        }
    }
}

fn unconnected(fact: &Unconnected) -> String {
    let (ran, until) = (length(fact.ran_us), wall_time(fact.parked.wake_at));
    let place = fact.setup_url.as_ref().map(|url| format!(" at {}", shorten(url))).unwrap_or_default();
    let provider = shorten(&fact.provider);
    format!(
        "attempt {} ran {ran}, did nothing, and waits until {until} for {provider} to be connected{place}",
        fact.attempt
    )
}

fn suspended(fact: &Suspended) -> String {
    let names: Vec<&str> = fact.waits.iter().map(|name| &**name).collect();
    let (ran, names) = (length(fact.ran_us), names.join(", "));
    match fact.then {
        Then::Replay => format!("attempt {} ran {ran} and is put aside until {names} is over", fact.attempt),
        Then::Return => format!("attempt {} ran {ran} and leaves its result to {names}", fact.attempt),
    }
}

fn opened(fact: &Opened, names: &SecretNames) -> String {
    let (tool, id) = (shorten(&fact.tool), shorten(&fact.id));
    let mut told = format!("{tool} was asked for as {id} with {}", arguments(&fact.args.text, names));
    if let Some(asked) = &fact.deadlines {
        told.push_str(&format!("; its caller allows {}", deadlines(asked)));
    }
    if fact.priority != 0 {
        told.push_str(&format!("; with priority {}", fact.priority));
    }
    if let Some(task) = &fact.task {
        told.push_str(&format!("; {}", detached(task)));
    }
    if let Some(grant) = &fact.grant {
        told.push_str(&format!("; by the grant {grant}"));
    }
    told
}

fn deadlines(asked: &Deadlines) -> String {
    let said = [
        (asked.queue_ms, "until its first start"),
        (asked.attempt_ms, "for an attempt"),
        (asked.silence_ms, "of silence"),
        (asked.total_ms, "in all"),
    ];
    let said = said.into_iter().filter_map(|(ms, what)| Some(format!("{} {what}", length(ms? * 1_000))));
    said.collect::<Vec<_>>().join(", ")
}

fn prepared(fact: &PreparedCall, names: &SecretNames) -> String {
    let mut told = format!("the arguments fit; class {}, contract {}", fact.class, fact.contract);
    if let Some(made) = &fact.made {
        let args = made.args.as_deref().map(|args| arguments(args, names));
        let had_it = match &made.answered_by {
            Some(hook) => format!("the hook {hook:?} answered in its place"),
            None => "its tool had the answer at once".to_string(),
        };
        let pieces = [
            ("its arguments were repaired", repaired(&made.repairs)),
            ("it runs with other arguments than it was asked for with", args),
            ("its tool attached", made.payload.as_deref().map(shorten_json)),
            (had_it.as_str(), made.answer.as_ref().map(|answer| value(&answer.value))),
        ];
        for (what, piece) in pieces {
            told.extend(piece.map(|piece| format!("; {what}: {piece}")));
        }
    }
    if let Some(said) = &fact.rules {
        told.push_str(&format!("; {}", rules(said)));
    }
    if let Some(same) = &fact.same {
        let held = same.for_ms.map(|ms| format!(" for {}", length(ms.saturating_mul(1_000))));
        told.push_str(&format!(
            "; it has a dedupe key, which holds{}",
            held.unwrap_or(" for the session".into())
        ));
    }
    if fact.reconciles {
        told.push_str("; its tool can be asked whether an attempt took effect");
    }
    told
}

fn repaired(repairs: &[Repair]) -> Option<String> {
    let texts: Vec<String> = repairs.iter().map(|repair| shorten(&repair.to_string())).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// The rules of its attempts, where they are not the defaults.
fn rules(rules: &Rules) -> String {
    let mut told = format!("at most {} attempts", rules.attempts);
    let limits = [
        (rules.queue_ms, "until the first start"),
        (rules.attempt_ms, "for each"),
        (rules.silence_ms, "of silence"),
        (rules.total_ms, "in all"),
    ];
    for (ms, what) in limits.into_iter().filter(|(ms, _)| *ms != Rules::NONE) {
        told.push_str(&format!(", {} {what}", length(ms.saturating_mul(1_000))));
    }
    told
}

fn started(fact: Started) -> String {
    match fact.redrive {
        true => format!("attempt {} starts, because an earlier one was lost with its owner", fact.attempt),
        false => format!("attempt {} starts", fact.attempt),
    }
}

fn lost(fact: LostAttempt) -> String {
    match fact.blamed {
        true => format!("the owner died while attempt {} was running", fact.attempt),
        false => {
            format!(
                "the owner went while attempt {} was running; that does not count against it",
                fact.attempt
            )
        }
    }
}

fn returned(fact: &Returned) -> String {
    let ran = format!("attempt {} ran {} ms", fact.attempt, fact.ran_us / 1_000);
    match &fact.result {
        Attempted::Ok(success) => format!("{ran} and returned {}", value(&success.value)),
        Attempted::Failed(failure) => {
            let certain = if failure.did_not_happen { "; it certainly did not take effect" } else { "" };
            format!("{ran} and failed: {}{certain}", shorten(&failure.message))
        }
    }
}

fn stopped(fact: &Stopped) -> String {
    let why = match fact.cause {
        Cause::Attempt => "it took longer than one attempt may",
        Cause::Silence => "it gave no sign of life for too long",
        Cause::Total => "the call took longer than it may in all",
        Cause::Cancel => "the call was cancelled",
    };
    let mut told = format!("attempt {} was stopped after {}: {why}", fact.attempt, length(fact.ran_us));
    if !fact.may_have_acted {
        told.push_str("; it did nothing that is not recorded");
    }
    if fact.stuck {
        told.push_str("; its tool does not let go and still blocks a thread");
    }
    if let Some(output) = &fact.output {
        told.push_str(&format!("; its last output: {}", shorten_front(output)));
    }
    told
}

fn reconciled(fact: &ReconciledAttempt) -> String {
    let said = match &fact.verdict {
        Verdict::Landed(success) => format!("it did, with {}", value(&success.value)),
        Verdict::Failed(failure) => format!("it failed: {}", shorten(&failure.message)),
        Verdict::DidNotHappen => "it did not".to_string(),
        Verdict::Unknown => "it cannot tell".to_string(),
    };
    format!("its tool was asked whether attempt {} took effect: {said}", fact.attempt)
}

fn parked(fact: &Parked) -> String {
    let waits = match fact.reason {
        Reason::Retry => {
            let (length, until) = (length(fact.length_us), wall_time(fact.wake_at));
            return format!("it waits {length} for its next attempt, until {until}");
        }
        Reason::ToolChanged => {
            "its tool is not the one it was prepared for; `windlass accept` lets it continue, `windlass cancel` ends it"
        }
        Reason::NoSuchTool => {
            "its tool is missing; it continues when the tool is registered, `windlass cancel` ends it"
        }
        Reason::ToolPaused => {
            "its tool is paused; it continues when the tool is resumed, `windlass cancel` ends it"
        }
        Reason::NoWorker => {
            "no process serves the toolbox of its tool; it continues when one asks for work, `windlass cancel` ends it"
        }
        Reason::Sleep => "it sleeps",
        Reason::Completion => "the world outside has not answered",
        Reason::Input => "a person has not answered",
        Reason::Connection => "its session is not connected",
        Reason::Client => "its caller has not posted its result",
        Reason::Signal => "no signal has come",
        Reason::Awaited => "a task has not ended, or an event of its session has not come",
        Reason::Approval => "nobody has approved or denied it",
    };
    match fact.length_us < FOREVER_US {
        true => format!("it waits, because {waits}, and its deadline does at {}", wall_time(fact.wake_at)),
        false => format!("it waits, because {waits}"),
    }
}

/// A century: a longer wait counts as no deadline.
const FOREVER_US: u64 = 100 * 366 * 86_400 * 1_000_000;

fn cancel_asked(fact: &CancelAsked) -> String {
    match &fact.reason {
        Some(reason) => format!("it was asked to stop: {}", shorten(reason)),
        None => "it was asked to stop, without a reason".to_string(),
    }
}

fn resolved(fact: &Resolved) -> String {
    let who = match fact.by {
        Resolver::Operator => "an operator",
        Resolver::Tool => "its tool, asked again,",
    };
    match &fact.outcome {
        Outcome::Succeeded(success) => {
            format!("{who} says that it took effect, with {}", value(&success.value))
        }
        Outcome::Failed(_) | Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => {
            format!("{who} says that it did not take effect")
        }
    }
}

fn ended(fact: &Ended) -> String {
    match &fact.outcome {
        None => "the call is over, as the attempt returned".to_string(),
        Some(Outcome::Failed(failure)) => {
            format!("the call failed with {}: {}", failure.code, shorten(&failure.message))
        }
        Some(Outcome::Unknown) => {
            "it is not known whether the lost attempt took effect, and it must not be repeated".to_string()
        }
        Some(Outcome::Cancelled { effect }) => match effect {
            Effect::None => "the call is cancelled; it had no effect".to_string(),
            Effect::Landed => "the call is cancelled, but it had taken effect".to_string(),
            Effect::Unknown => {
                "the call is cancelled, and it is not known whether it took effect".to_string()
            }
        },
        Some(Outcome::Denied { reason }) => format!("the call was not allowed: {}", shorten(reason)),
        Some(Outcome::Succeeded(success)) => {
            format!("the call is over: it succeeded with {}", value(&success.value))
        }
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Inline(text) => shorten_json(text),
        Value::Kept { kept, .. } => format!("{} bytes, kept as artifact {}", kept.bytes, kept.artifact),
    }
}

/// A length of time, for people.
pub(crate) fn length(us: u64) -> String {
    match us {
        us if us < 1_000 => format!("{us} µs"),
        us if us < 1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        us if us < 120_000_000 => format!("{:.2} s", us as f64 / 1e6),
        us => format!("{:.1} min", us as f64 / 6e7),
    }
}

/// The maximum length of a shown text.
const SHOWN: usize = 80;

/// The first line or so of a text, with controls escaped.
fn shorten(text: &str) -> String {
    visible::shortened(text, SHOWN)
}

/// The first line or so of a JSON text, with secrets masked.
fn shorten_json(text: &str) -> String {
    shorten(&redacted_text(text))
}

/// The first line or so of the arguments of a call.
fn arguments(text: &str, names: &SecretNames) -> String {
    let redacted = RedactedArgs::of_text(text, names);
    match redacted.value().as_str() {
        _ if !redacted.is_masked() => shorten(text),
        Some(masked) => shorten(masked),
        None => shorten(&redacted.value().to_string()),
    }
}

/// The last line or so: the end of an output tells most.
fn shorten_front(text: &str) -> String {
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(SHOWN);
    let shown = visible::line(&text.chars().skip(skipped).collect::<String>());
    if skipped > 0 { format!("…{shown}") } else { shown }
}

#[cfg(test)]
mod tests;
