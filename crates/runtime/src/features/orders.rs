//! Orders hold over all workers: the policy, revoked tokens, paused tools. Whoever changes one waits until every live worker has
//! adopted it.
//!
//! A worker looks for changes every `knock_ms`, and before it owns anything under a new id: a record that is not there yet is not
//! waited for. What it has adopted stands in its heartbeat. One that is silent is waited for until its lease is over; it starts nothing
//! more then, whenever it continues.

use crate::api::error::{SessionError, chain};
use crate::features::{pauses, policy, revocations};
use crate::session::inner::Inner;
use crate::session::orders::Order;
use crate::session::plugs::Plugged;
use crate::session::swapped;
use crate::session::wheel::WakeTime;
use crate::session::worker;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use windlass_store::StoreSpace;

/// Looks for changes of other workers from time to time, if there may be any.
pub(crate) fn begin(rt: &Arc<Inner>) {
    if rt.owners.has_others() {
        look_later(rt);
    }
}

fn look_later(rt: &Arc<Inner>) {
    let due_us = rt.clock.elapsed_us().saturating_add(rt.limits.knock_ms.saturating_mul(1_000));
    // The alarm is for all sessions.
    rt.wheel.alarm_session(WakeTime { due_us, wall: None }, &Arc::from(""), |rt, _| {
        let rt = rt.clone();
        rt.tasks.clone().spawn(async move {
            if let Err(error) = look(&rt).await {
                tracing::warn!(error = %chain(&error), "what holds for all workers could not be read again; it is tried later");
            }
            look_later(&rt);
        });
    });
}

/// Adopts all that was changed.
pub(crate) fn adopt(rt: &Arc<Inner>) -> Plugged<'_, Result<(), SessionError>> {
    Box::pin(look(rt))
}

async fn look(rt: &Arc<Inner>) -> Result<(), SessionError> {
    let is_policy_new = policy::look(rt).await?;
    let are_pauses_new = pauses::look(rt).await?;
    if revocations::look(rt).await? || is_policy_new || are_pauses_new {
        rt.owners.tell_soon();
    }
    Ok(())
}

/// Waits until every live worker says that it has adopted an order. Returns those that did not in time.
pub(crate) async fn behind(rt: &Arc<Inner>, order: Order, number: u64) -> Result<Vec<String>, SessionError> {
    rt.owners.tell_soon();
    let until_us =
        rt.clock.elapsed_us().saturating_add(rt.limits.policy_acknowledge_ms.saturating_mul(1_000));
    loop {
        let workers = worker::behind(rt, order, number).await?;
        let now_us = rt.clock.elapsed_us();
        if workers.is_empty() || now_us >= until_us {
            return Ok(workers);
        }
        let pause_us = rt.limits.knock_ms.saturating_mul(1_000);
        rt.wheel.until(now_us.saturating_add(pause_us).min(until_us)).await;
    }
}

/// The record of an order as it was found.
pub(super) struct FoundOrder<T> {
    pub(super) value: T,
    generation: u64,
}

/// The record under this key; the default if there is none.
pub(super) async fn find<T: DeserializeOwned + Default>(
    rt: &Inner,
    key: &str,
) -> Result<FoundOrder<T>, SessionError> {
    let (value, generation) = swapped::find(rt, StoreSpace::Order, key, key).await?;
    Ok(FoundOrder { value, generation })
}

/// Replaces a record that is still as it was found. `false`: somebody else was faster.
pub(super) async fn put<T: Serialize>(
    rt: &Inner,
    key: &str,
    found: &FoundOrder<T>,
) -> Result<bool, SessionError> {
    swapped::replace(rt, StoreSpace::Order, key.to_string(), Some(&found.value), found.generation).await
}
