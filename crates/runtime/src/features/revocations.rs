//! Revoked tokens: their number is an order, by which every worker forgets what it has read of tokens.

use crate::api::error::SessionError;
use crate::features::orders;
use crate::session::inner::{Inner, Runtime};
use crate::session::orders::Order;
use crate::session::worker;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The key of the record.
const KEY: &str = "revocations";

#[derive(Default, Deserialize, Serialize)]
struct RevocationRecord {
    /// How often tokens were revoked.
    number: u64,
}

impl Runtime {
    /// The number of the last revocation of a token that this worker has adopted: what was read of tokens before is out of date.
    pub fn revocations(&self) -> u64 {
        self.0.adopted.number(Order::Revocations)
    }

    /// Whether what it remembers of the whole store still counts: while its lease lasts, as one of several workers; always, if nobody
    /// else uses the store.
    pub fn is_current(&self) -> bool {
        self.0.owners.stands(&*self.0.clock)
    }

    /// Has every worker forget what it has read of tokens, after one was removed from the store. Returns when all live ones have:
    /// those that did not say so within `policy_acknowledge_ms` are named.
    pub async fn tokens_revoked(&self) -> Result<Vec<String>, SessionError> {
        let rt = &self.0;
        // A command that uses the store beside workers is none of them.
        if !rt.owners.has_others() && !worker::is_any_known(rt).await? {
            return Ok(Vec::new());
        }
        let number = loop {
            let mut found = orders::find::<RevocationRecord>(rt, KEY).await?;
            found.value.number += 1;
            if orders::put(rt, KEY, &found).await? {
                break found.value.number;
            }
        };
        rt.adopted.adopt(Order::Revocations, number);
        orders::behind(rt, Order::Revocations, number).await
    }
}

/// Adopts what other workers have revoked. `true`: there was something.
pub(super) async fn look(rt: &Arc<Inner>) -> Result<bool, SessionError> {
    let found = orders::find::<RevocationRecord>(rt, KEY).await?;
    Ok(rt.adopted.adopt(Order::Revocations, found.value.number))
}
