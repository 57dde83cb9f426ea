//! The journal as people read it: one sentence per fact, with its reasons.

use crate::answer::wall_time;
use windlass_core::attempt::{Deadlines, Rules};
use windlass_core::call::{
    CancelAsked, Cause, Detached, DetachedBy, Ended, Fact, Lost, Opened, Parked, Prepared, Reason,
    Reconciled, Resolved, Resolver, Result as Attempted, Returned, SameAs, Started, Stopped, Suspended, Then,
    Unconnected, Verdict, Wake,
};
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::operation::{Completion, Did, Operation, StepResult, signal_of};
use windlass_core::outcome::{Effect, Outcome, Value};
use windlass_core::repair::Repair;

/// What a fact says, as a sentence.
pub(crate) fn story(fact: &Fact, secret: &Secret) -> String {
    match fact {
        Fact::Opened(fact) => opened(fact),
        Fact::Prepared(fact) => prepared(fact),
        Fact::Started(fact) => started(*fact),
        Fact::Lost(fact) => lost(*fact),
        Fact::Returned(fact) => returned(fact),
        Fact::Stopped(fact) => stopped(fact),
        Fact::Reconciled(fact) => reconciled(fact),
        Fact::Parked(fact) => parked(fact),
        Fact::CancelAsked(fact) => cancel_asked(fact),
        Fact::Accepted(fact) => format!(
            "an operator lets it go on under what its tool has become; class {}, contract {}",
            fact.class, fact.contract
        ),
        Fact::Resolved(fact) => resolved(fact),
        Fact::SameAs(SameAs { first }) => {
            let first = Handle::seal(secret, Kind::Call, first.packed());
            format!("it is the same as call {first}: it gets that one's answer, or runs if that one fails")
        }
        Fact::First => "no other call with its dedupe key is open or has an answer: it runs".to_string(),
        Fact::Ended(fact) => ended(fact),
        Fact::Operation(fact) => operation(fact),
        Fact::Suspended(fact) => suspended(fact),
        Fact::Resumed(fact) => format!("attempt {} goes on", fact.attempt),
        Fact::Unconnected(fact) => unconnected(fact),
        Fact::Connected(fact) if fact.connected => "it was connected, and goes on".to_string(),
        Fact::Connected(_) => "somebody declined to connect it".to_string(),
        Fact::Detached(fact) => detached(fact),
    }
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
        Wake::Silent => "nobody is told of its end",
        Wake::OnEnd => "its session is told of its end",
        Wake::OnActivity => "its session is told of what it asks and says, and of its end",
    };
    format!("it goes on as a task: {why}; {told}")
}

fn operation(fact: &Operation) -> String {
    let name = &fact.name;
    let signal = || {
        let slot = signal_of(name).map(|(signal, number)| format!("{signal} ({number})"));
        slot.unwrap_or_else(|| name.to_string())
    };
    match &fact.did {
        Did::StepStarted { input } => {
            format!("the step {name} begins, once and for all, with {}", shorten(input))
        }
        Did::StepEnded { result: StepResult::Ok(value), .. } => {
            format!("the step {name} is done: {}", shorten(value))
        }
        Did::StepEnded { result: StepResult::Failed(failure), .. } => {
            format!("the step {name} failed: {}", shorten(&failure.message))
        }
        Did::SleepBegan(until) => {
            format!("{name}: it sleeps {}, until {}", length(until.length_us), wall_time(until.wake_at))
        }
        Did::SleepEnded => format!("{name}: it has slept"),
        Did::KeyTaken => format!("{name}: the key for an answer from outside was given out"),
        Did::Asked(question) => {
            let (text, until) = (shorten(&question.text), wall_time(question.until.wake_at));
            format!("{name}: it asks a person, until {until}: {text}")
        }
        Did::WaitBegan(until) => {
            format!("{name}: it waits for an answer from outside, until {}", wall_time(until.wake_at))
        }
        Did::Completed(Completion::Ok(value)) => format!("{name}: the answer came: {}", shorten(value)),
        Did::Completed(Completion::Error { code, message }) => {
            format!("{name}: the answer came, an error {}: {}", shorten(code), shorten(message))
        }
        Did::Completed(Completion::Cancelled) => format!("{name}: the answer came: it was called off"),
        Did::PairsRead { asked, found } => {
            format!("{name}: it looked at key-value pairs {}: {}", shorten(asked), shorten(found))
        }
        Did::PairWritten { asked, written: true } => {
            format!("{name}: it wrote the key-value pair {}", shorten(asked))
        }
        Did::PairWritten { asked, written: false } => {
            format!("{name}: it did not write {}, because somebody else had", shorten(asked))
        }
        Did::Attached { content, kept } => {
            format!("{name}: it attached {} as artifact {}", shorten(content), kept.artifact)
        }
        Did::Emitted { event, payload, triggered } => {
            let started = match triggered.len() {
                0 => String::new(),
                count => format!(", which started {count} {}", if count == 1 { "task" } else { "tasks" }),
            };
            format!("{name}: it told of the event {event}: {}{started}", shorten(payload))
        }
        Did::Spawned { asked } => format!("{name}: it started the task {}", shorten(asked)),
        Did::ChildOpened { asked } => format!("{name}: it opened the child session {}", shorten(asked)),
        Did::Said { message } => format!("{name}: it said {}", shorten(message)),
        Did::SignalAwaited(until) => {
            format!("it waits for the signal {}, until {}", signal(), wall_time(until.wake_at))
        }
        Did::Signalled { payload } => format!("the signal {} came: {}", signal(), shorten(payload)),
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

fn opened(fact: &Opened) -> String {
    let mut told = format!("{} was asked for as {} with {}", fact.tool, fact.id, shorten(&fact.args.text));
    if let Some(asked) = &fact.deadlines {
        told.push_str(&format!("; its caller allows {}", deadlines(asked)));
    }
    if fact.priority != 0 {
        told.push_str(&format!("; with priority {}", fact.priority));
    }
    if let Some(task) = &fact.task {
        told.push_str(&format!("; {}", detached(task)));
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

fn prepared(fact: &Prepared) -> String {
    let mut told = format!("the arguments fit; class {}, contract {}", fact.class, fact.contract);
    if let Some(made) = &fact.made {
        let pieces = [
            ("its arguments were repaired", repaired(&made.repairs)),
            ("it runs with other arguments than it was asked for with", made.args.as_deref().map(shorten)),
            ("its tool attached", made.payload.as_deref().map(shorten)),
            ("its tool had the answer at once", made.answer.as_ref().map(|answer| value(&answer.value))),
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

/// How its attempts are made, where that is not the usual way.
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
    let mut told = match fact.redrive {
        true => format!("attempt {} starts, because an earlier one was lost with its owner", fact.attempt),
        false => format!("attempt {} starts", fact.attempt),
    };
    if let Some(jump) = fact.clock_jump_us {
        let way = if jump < 0 { "back" } else { "on" };
        told.push_str(&format!(
            "; while it waited the clock of the machine jumped {way} by {}",
            length(jump.unsigned_abs())
        ));
    }
    told
}

fn lost(fact: Lost) -> String {
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

fn reconciled(fact: &Reconciled) -> String {
    let said = match &fact.verdict {
        Verdict::Landed(success) => format!("it did, with {}", value(&success.value)),
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
            "its tool is not the one it was prepared for; `windlass accept` lets it go on, `windlass cancel` ends it"
        }
        Reason::NoSuchTool => {
            "its tool is not there; it goes on when the tool is registered, `windlass cancel` ends it"
        }
        Reason::ToolPaused => {
            "its tool is paused; it goes on when the tool is resumed, `windlass cancel` ends it"
        }
        Reason::Sleep => "it sleeps",
        Reason::Completion => "the world outside has not answered",
        Reason::Input => "a person has not answered",
        Reason::Connection => "its session is not connected",
        Reason::Client => "its caller has not posted its result",
        Reason::Signal => "no signal has come",
    };
    match fact.length_us < FOREVER_US {
        true => format!("it waits, because {waits}, and its deadline does at {}", wall_time(fact.wake_at)),
        false => format!("it waits, because {waits}"),
    }
}

/// A century: who waits as long has no deadline.
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
        Value::Inline(text) => shorten(text),
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

/// So much of a text is told.
const SHOWN: usize = 80;

/// The first line or so of a text, with controls made visible.
fn shorten(text: &str) -> String {
    let mut shown = visible(text.chars().take(SHOWN));
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// The last line or so: of an output the end tells most.
fn shorten_front(text: &str) -> String {
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(SHOWN);
    let shown = visible(text.chars().skip(skipped));
    if skipped > 0 { format!("…{shown}") } else { shown }
}

fn visible(text: impl Iterator<Item = char>) -> String {
    let shown: String = text.flat_map(char::escape_debug).collect();
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

#[cfg(test)]
mod tests;
