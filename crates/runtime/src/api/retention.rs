//! The rules of retention: when the records of calls that are over expire.

use crate::api::limits::SessionLimits;
use serde::{Deserialize, Serialize};

/// When batches of which every call is over expire: their journals, logs and artifacts are removed, and their identities stay. Nothing
/// expires by default. Set in `windlass.toml` under `[retention]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Batches expire this many milliseconds after their last entry.
    pub age_ms: Option<u64>,
    /// The oldest batches of a session expire while its journal has more bytes than this.
    pub session_bytes: Option<u64>,
    /// The oldest batches of all sessions expire while the journals of the store have more bytes than this.
    pub store_bytes: Option<u64>,
    /// Whether calls whose effect is unknown expire, too. Otherwise they stay until somebody resolves them.
    pub unknown_too: bool,
}

impl Retention {
    /// Whether anything expires.
    pub fn is_on(&self) -> bool {
        self.age_ms.is_some() || self.session_bytes.is_some() || self.store_bytes.is_some()
    }

    /// The age in milliseconds and the bytes after which batches of a session with these limits expire.
    pub(crate) fn of_session(&self, limits: SessionLimits) -> (Option<u64>, Option<u64>) {
        let own = |own: Option<u64>, general| match own {
            Some(0) => None,
            Some(own) => Some(own),
            None => general,
        };
        (own(limits.retention_age_ms, self.age_ms), own(limits.retention_bytes, self.session_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_rules_of_its_own_or_the_general_ones() {
        let general = Retention { age_ms: Some(10), ..Retention::default() };
        let of = |retention_age_ms, retention_bytes| {
            general.of_session(SessionLimits {
                retention_age_ms,
                retention_bytes,
                ..SessionLimits::default()
            })
        };
        assert_eq!(of(None, None), (Some(10), None));
        assert_eq!(of(Some(20), Some(5)), (Some(20), Some(5)));
        assert_eq!(of(Some(0), Some(0)), (None, None), "0 keeps everything");
        assert!(general.is_on() && !Retention::default().is_on());
    }
}
