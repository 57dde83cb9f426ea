//! The version of the policy that each live worker has, in its own record.

use super::{is_over, sweep};
use crate::api::error::SessionError;
use crate::session::inner::Inner;

const POLICY: &str = "policy ";

/// The value of a live worker's record: empty without a policy, as earlier releases always wrote it.
pub(super) fn live(policy: u64) -> Vec<u8> {
    if policy == 0 { Vec::new() } else { format!("{POLICY}{policy}").into_bytes() }
}

/// The workers that are not known to be over and have not said that they have this version of the policy.
pub(crate) async fn behind(rt: &Inner, version: u64) -> Result<Vec<String>, SessionError> {
    let records = sweep::records(rt).await?;
    let is_behind = |value: &[u8]| stated(value) < version;
    Ok(records.into_iter().filter(|r| !is_over(r) && is_behind(&r.value)).map(|r| r.key).collect())
}

fn stated(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.strip_prefix(POLICY).and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_states_the_version_it_has() {
        for version in [0, 1, 17, u64::MAX] {
            assert_eq!(stated(&live(version)), version);
        }
        for other in [&b""[..], b"policy x", b"dead", b"left", &[0xff]] {
            assert_eq!(stated(other), 0);
        }
    }
}
