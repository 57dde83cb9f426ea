//! Messages about grants: issued, shared with a copy, revoked. Each is acknowledged once the owner of its session has adopted it.

use super::ask::hear;
use crate::api::error::{Lost, SessionError};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use std::sync::Arc;
use windlass_core::ask::{Ask, GrantDemand};
use windlass_store::{Inbound, Posted, SessionRow};

/// How far a message about a grant got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantReach {
    /// The owner of the session has adopted it.
    Adopted,
    /// It is durable, and the owner of the session has not adopted it in time.
    Posted,
}

/// Posts a message about a grant, and waits until the owner of its session has adopted it.
pub(crate) async fn deliver(
    rt: &Arc<Inner>,
    row: &SessionRow,
    demand: GrantDemand,
) -> Result<GrantReach, SessionError> {
    let ask = Ask::Grant(Box::new(demand));
    let key = ask.key(row.head.0);
    let inbound = Inbound { session: row.no, key: key.clone(), body: ask.encode() };
    match point!("inbound.post", rt.store.post(inbound).await)? {
        // One that differs was posted under the same id before: it stands.
        Posted::New | Posted::Again | Posted::Differs => {}
        Posted::NoSession => return Err(Lost::Removed.into()),
    }
    hear(rt, row).await?;
    let until_us = due_us(rt.clock.elapsed_us(), rt.limits.lease_ms);
    loop {
        let waiting = rt.store.inbound(row.no, u64::MAX).await?;
        if waiting.iter().all(|message| message.key != key) {
            return Ok(GrantReach::Adopted);
        }
        let now_us = rt.clock.elapsed_us();
        if !rt.owners.has_others() || now_us >= until_us {
            return Ok(GrantReach::Posted);
        }
        // Another worker hears of it a little later.
        rt.wheel.until(due_us(now_us, rt.limits.knock_ms)).await;
    }
}
