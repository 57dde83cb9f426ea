//! The numbers of a session's events, and which events with a key of their own there were.

use crate::api::error::SessionError;
use crate::session::owner::Session;
use std::sync::Arc;
use windlass_store::{Row, Space};

/// The key of the count.
const COUNT: &str = "count";

/// The count of a session's events. Its lock is held until the next event is on its way to the store, so that numbers are
/// recorded in their order.
#[derive(Default)]
pub(super) struct EventLedger {
    /// The number of the last event, once it was read.
    last: Option<u64>,
}

impl EventLedger {
    /// The number of the next event.
    pub(super) async fn next(&mut self, session: &Session) -> Result<u64, SessionError> {
        let last = match self.last {
            Some(last) => last,
            None => read(session, COUNT).await?.unwrap_or(0),
        };
        Ok(self.last.insert(last).saturating_add(1))
    }

    /// The event of this number is on its way.
    pub(super) fn used(&mut self, number: u64) {
        self.last = Some(number);
    }

    /// The number of the event with this key, if there was one.
    pub(super) async fn first(session: &Session, key: &str) -> Result<Option<u64>, SessionError> {
        read(session, key).await
    }
}

/// The rows of an event.
pub(super) fn rows(number: u64, key: Option<&str>) -> impl Iterator<Item = Row> {
    let put = move |key: &str| {
        let value: Arc<[u8]> = number.to_string().into_bytes().into();
        Row::Put { space: Space::Event, key: key.to_string(), value }
    };
    std::iter::once(put(COUNT)).chain(key.map(put))
}

/// The key of the record of an event of this kind that is unique by this key.
pub(super) fn unique(kind: &str, key: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes()).update(&[0]).update(key.as_bytes());
    format!("key.{}", &hasher.finalize().to_hex()[..32])
}

async fn read(session: &Session, key: &str) -> Result<Option<u64>, SessionError> {
    let record = session.lane.store().record(Space::Event.of(session.lane.session()), key).await?;
    let Some(record) = record else { return Ok(None) };
    let text = String::from_utf8_lossy(&record.value);
    text.parse().map(Some).map_err(|error| SessionError::undecodable("the count of its events", error))
}
