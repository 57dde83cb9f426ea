//! How an attempt ends that has not ended its call: the call waits for what it named, for an answer, or to be connected.

use super::EndedAttempt;
use crate::api::error::Lost;
use crate::api::output::Connection;
use crate::api::pending::{CompletionKey, Pending};
use crate::path::stage::result;
use crate::session::book::AttemptRemains;
use crate::session::held::Held;
use crate::session::notices::{NoticeKind, task_does};
use crate::session::outgoing::WebhookKind;
use crate::session::plugs::FollowUp;
use crate::tools::registry::Registered;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::call::{
    Fact, Parked, Reason, Result as Attempted, Returned, Suspended, Then, Unconnected, Wake,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::handle::completion_key;
use windlass_core::operation::{CLIENT, Did, Operation, Until};
use windlass_core::time::Timestamp;

/// Puts an attempt aside whose body only waits. Its body runs again when something that it waits for is over.
pub(super) async fn put_aside(
    held: &mut Held,
    ended: EndedAttempt,
    left: AttemptRemains,
) -> Result<(), Lost> {
    let EndedAttempt { attempt, ran_us } = ended;
    held.begin_stage();
    let parked = parked(held, &left.waits);
    let suspended = Suspended { attempt, ran_us, parked, waits: left.waits, then: Then::Replay };
    held.note(Fact::Suspended(Box::new(suspended)))?;
    held.commit().await
}

/// The wait of a call with these named waits, and its end.
fn parked(held: &Held, waits: &[Arc<str>]) -> Parked {
    let now = held.now();
    let mut parked = Parked { reason: Reason::Sleep, wake_at: Timestamp(i64::MAX), length_us: u64::MAX };
    let Some(operations) = held.call.operations.as_deref() else { return parked };
    for name in waits {
        let until = match operations.sleep(name) {
            Ok(Some((until, _))) => until,
            Ok(None) | Err(_) => {
                // Of several things it waits for, a person can do something about a question.
                if parked.reason != Reason::Input {
                    parked.reason = match &**name {
                        CLIENT => Reason::Client,
                        name if operations.is_question(name) => Reason::Input,
                        name if operations.is_signal(name) => Reason::Signal,
                        name if operations.is_awaited(name) => Reason::Awaited,
                        _ => Reason::Completion,
                    };
                }
                let Some(until) = operations.wait(name).0 else { continue };
                until
            }
        };
        parked.wake_at = parked.wake_at.min(until.wake_at);
        parked.length_us = parked.length_us.min(until.wake_at.since(now).min(until.length_us));
    }
    parked
}

/// The tool has returned, and leaves the rest to the world outside.
pub(super) async fn leave(
    held: &mut Held,
    tool: &Registered,
    ended: EndedAttempt,
    pending: Pending,
) -> Result<(), Lost> {
    let EndedAttempt { attempt, ran_us } = ended;
    held.begin_stage();
    let Some(name) = pending.key.as_ref().and_then(|key| own_name(held, key)) else {
        let result = Attempted::Failed(Box::new(without_key(tool)));
        return held.note(Fact::Returned(Returned { attempt, ran_us, result }));
    };
    let length = pending.deadline.unwrap_or(Duration::from_millis(held.on.rt.limits.completion_ms));
    let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let wake_at = Timestamp(held.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX)));
    let begun = Operation { name: name.clone(), did: Did::WaitBegan(Until { wake_at, length_us }) };
    // It may have waited for the same answer in its body, or the answer may be there.
    if held.call.takes(&begun) {
        held.note(Fact::Operation(Box::new(begun)))?;
        tell_of_wait(held, &name);
    }
    let waits = vec![name];
    let parked = match parked(held, &waits) {
        // Answered before anybody waited for it.
        Parked { wake_at: Timestamp(i64::MAX), reason, .. } => Parked { reason, wake_at, length_us },
        parked => parked,
    };
    let suspended = Suspended { attempt, ran_us, parked, waits, then: Then::Return };
    held.note(Fact::Suspended(Box::new(suspended)))?;
    held.commit().await
}

/// The attempt did nothing, and is made anew once its session is connected.
pub(super) async fn wait_for_connection(
    held: &mut Held,
    ended: EndedAttempt,
    connection: Connection,
) -> Result<(), Lost> {
    let EndedAttempt { attempt, ran_us } = ended;
    let Connection { provider, setup_url } = connection;
    held.begin_stage();
    let limits = &held.on.rt.limits;
    let fits = |text: &str, max: u64| (1..=max).contains(&(text.chars().count() as u64));
    if !fits(&provider, limits.provider_chars_max)
        || setup_url.as_ref().is_some_and(|url| !fits(url, limits.setup_url_chars_max))
    {
        let what = "the provider of a connection or its setup URL is empty or too long".to_string();
        let result = Attempted::Failed(Box::new(result::internal(held, Code::Internal, what)));
        return held.note(Fact::Returned(Returned { attempt, ran_us, result }));
    }
    let length_us = limits.completion_ms.saturating_mul(1_000);
    let wake_at = Timestamp(held.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX)));
    let parked = Parked { reason: Reason::Connection, wake_at, length_us };
    let (provider, setup_url) = (provider.into(), setup_url.map(Into::into));
    let said = Unconnected { attempt, ran_us, parked, provider, setup_url };
    tell_of_wait(held, &said.provider);
    let place = said.setup_url.as_deref().unwrap_or_default();
    held.tell_webhooks(WebhookKind::Connection, &said.provider, place, wake_at);
    held.note(Fact::Unconnected(Box::new(said)))?;
    held.commit().await
}

/// Tells of what a task waits for, if its session is told of what it does.
fn tell_of_wait(held: &mut Held, what: &str) {
    if held.call.task.as_ref().is_some_and(|task| task.wake == Wake::OnActivity) {
        let (priority, kind) = (held.call.opened.priority, NoticeKind::TaskWaits);
        held.carry(vec![task_does(held.id, priority, kind, what, held.now())]);
        held.on.rt.follow_up(&held.on.session, FollowUp::Noticed(1));
    }
}

/// The name of this key, if the call has given it out.
fn own_name(held: &Held, key: &CompletionKey) -> Option<Arc<str>> {
    let own = completion_key(held.on.rt.store.secret(), held.id, key.name()) == key.as_str();
    let taken = held.call.operations.as_deref()?.has_key(key.name()) == Ok(true);
    (own && taken).then(|| key.name().clone())
}

fn without_key(tool: &Registered) -> Failure {
    let message = format!(
        "The tool {:?} said that its result comes later, without a key of this call by which it could come.",
        tool.spec.name
    );
    Failure {
        class: FailureClass::Execution,
        source: Source::Tool,
        detail: Some(
            "the key is taken first: with Cx::completion, by a command with `completion = true` in windlass.toml"
                .to_string(),
        ),
        ..Failure::invalid_request(Code::PendingWithoutKey, message)
    }
}
