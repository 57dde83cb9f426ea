//! The record of a live worker, which it writes itself: the version of its policy, its address, whether it leaves.

use super::{is_over, sweep};
use crate::api::error::SessionError;
use crate::session::inner::Inner;
use crate::session::orders::Order;
use serde::{Deserialize, Serialize};
use windlass_store::StoredRecord;

/// The text that earlier releases wrote, before the version of the policy.
const POLICY: &str = "policy ";

/// The record of a live worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct LiveRecord {
    /// The version of the policy that it uses.
    pub(super) policy: u64,
    /// The number of the last revocation of a token that it has adopted; of an earlier release nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revocations: Option<u64>,
    /// The number of the last change of paused tools that it has adopted; of an earlier release nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pauses: Option<u64>,
    /// The address of its server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    /// When it began, in microseconds since 1970 by its own clock.
    pub(super) since: i64,
    /// Whether it takes no more work, and gives up its sessions as soon as their calls have ended.
    pub(super) leaving: bool,
    /// The number of sessions in its memory.
    pub(super) sessions: u64,
    /// The version of the program.
    pub(super) version: String,
    /// A digest of the contracts of its tools: workers that differ here have other tools.
    pub(super) tools: String,
}

impl LiveRecord {
    /// The value of the record.
    pub(super) fn bytes(&self) -> Vec<u8> {
        // A record of plain fields can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record; one that is not understood says nothing.
    pub(super) fn read(value: &[u8]) -> LiveRecord {
        if let Ok(live) = serde_json::from_slice(value) {
            return live;
        }
        let text = std::str::from_utf8(value).unwrap_or_default();
        let policy = text.strip_prefix(POLICY).and_then(|version| version.parse().ok()).unwrap_or(0);
        LiveRecord { policy, ..LiveRecord::default() }
    }
}

/// The workers that are not known to be over and have not said that they have adopted this change. One of an earlier release says
/// nothing of what it does not know, and is not waited for.
pub(crate) async fn behind(rt: &Inner, order: Order, number: u64) -> Result<Vec<String>, SessionError> {
    let records = sweep::records(rt).await?;
    let is_behind = |record: &StoredRecord| {
        let live = LiveRecord::read(&record.value);
        let said = match order {
            Order::Policy => Some(live.policy),
            Order::Revocations => live.revocations,
            Order::Pauses => live.pauses,
        };
        !is_over(record) && said.is_some_and(|said| said < number)
    };
    Ok(records.into_iter().filter(is_behind).map(|record| record.key).collect())
}

/// Whether the store knows any worker, alive or not.
pub(crate) async fn is_any_known(rt: &Inner) -> Result<bool, SessionError> {
    Ok(!sweep::records(rt).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_is_read_back_also_from_records_of_earlier_releases() {
        let live = LiveRecord {
            policy: 7,
            leaving: true,
            address: Some("http://h:1".into()),
            ..LiveRecord::default()
        };
        assert_eq!(LiveRecord::read(&live.bytes()), live);
        for (text, policy) in
            [(&b"policy 17"[..], 17), (b"", 0), (b"policy x", 0), (b"dead", 0), (&[0xff], 0)]
        {
            assert_eq!(LiveRecord::read(text), LiveRecord { policy, ..LiveRecord::default() });
        }
    }
}
