//! The undelivered rule: a call identical to one whose answer never reached the client joins it instead of running.
//!
//! No client repeats a broken call by itself: it hands the error to its model, and the model makes the same call again under a
//! new id. So calls that are the same (session, contract, arguments) stand in one line and have numbers. A call has the number
//! of the last one until that one's answer was delivered; then the next number is noted in the store. After a crash an answer
//! counts as undelivered that is not noted as delivered, which repeats nothing.
//!
//! One request at a time holds a line. A repetition that arrives before the server has noticed that the first client is gone
//! waits here, and joins once it has.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;
use windlass::Runtime;
use windlass::error::SessionError;

/// The prefix of the keys of batches in a line.
const PREFIX: &str = "mcp:";
/// The ids of clients' calls that a line remembers: each is one delivered call.
const IDS_MAX: usize = 16;

/// The lines that a request holds or waits for.
#[derive(Default)]
pub(crate) struct DeliveryLines(Mutex<HashMap<LineName, Arc<tokio::sync::Mutex<()>>>>);

/// A session and the digest of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LineName {
    pub(crate) session: String,
    pub(crate) digest: String,
}

/// The right to make calls of a line, and to note their delivery.
pub(crate) struct HeldLine {
    name: LineName,
    runtime: Runtime,
    lines: Arc<DeliveryLines>,
    guard: Option<OwnedMutexGuard<()>>,
}

/// The note of a line in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DeliveryNote {
    /// The number of the next call: all before it were delivered.
    next: u64,
    /// The clients' ids of calls that were delivered, with their numbers.
    #[serde(default)]
    ids: VecDeque<(String, u64)>,
}

impl DeliveryNote {
    /// The number of a call with this id of its client.
    pub(crate) fn number(&self, client_id: Option<&str>) -> u64 {
        let known = self.ids.iter().find(|(id, _)| Some(id.as_str()) == client_id);
        known.map_or(self.next, |(_, number)| *number)
    }

    /// Notes a delivery; `false` if it was noted before.
    fn deliver(&mut self, number: u64, client_id: Option<&str>) -> bool {
        if number < self.next {
            return false;
        }
        self.next = number + 1;
        if let Some(id) = client_id {
            self.ids.push_back((id.to_string(), number));
            while self.ids.len() > IDS_MAX {
                self.ids.pop_front();
            }
        }
        true
    }
}

impl LineName {
    /// The key of the batch with this number.
    pub(crate) fn key(&self, number: u64) -> String {
        format!("{PREFIX}{}:{number}", self.digest)
    }

    /// The line and the number of a batch's key, if it is in a line.
    pub(crate) fn of_key(session: &str, key: &str) -> Option<(LineName, u64)> {
        let (digest, number) = key.strip_prefix(PREFIX)?.split_once(':')?;
        let name = LineName { session: session.to_string(), digest: digest.to_string() };
        Some((name, number.parse().ok()?))
    }
}

impl DeliveryLines {
    /// Waits for a line.
    pub(crate) async fn hold(self: &Arc<Self>, runtime: &Runtime, name: LineName) -> HeldLine {
        let line = {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.entry(name.clone()).or_default().clone()
        };
        // Dropped before the lock is had, this still leaves the line to the others.
        let mut held = HeldLine { name, runtime: runtime.clone(), lines: self.clone(), guard: None };
        held.guard = Some(line.lock_owned().await);
        held
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl HeldLine {
    pub(crate) fn name(&self) -> &LineName {
        &self.name
    }

    /// The note of the line.
    pub(crate) async fn note(&self) -> Result<DeliveryNote, SessionError> {
        let note = self.runtime.deliveries(&self.name.session).get(&self.name.digest).await?;
        // A note that cannot be read says nothing was delivered, which repeats nothing.
        Ok(note.and_then(|note| serde_json::from_slice(&note).ok()).unwrap_or_default())
    }

    /// Notes that the answer of this number was delivered.
    pub(crate) async fn delivered(&self, number: u64, client_id: Option<&str>) -> Result<(), SessionError> {
        let mut note = self.note().await?;
        if note.deliver(number, client_id) {
            let text = serde_json::to_vec(&note).unwrap_or_default();
            self.runtime.deliveries(&self.name.session).put(&self.name.digest, &text).await?;
        }
        Ok(())
    }
}

impl Drop for HeldLine {
    fn drop(&mut self) {
        self.guard = None;
        let mut lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.get(&self.name).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::Config;
    use windlass::store::memory::MemoryStore;

    #[test]
    fn one_delivery_ends_it_and_ids_are_remembered() {
        let mut note = DeliveryNote::default();
        assert_eq!(note.number(Some("a")), 0);
        assert!(note.deliver(0, Some("a")));
        assert!(!note.deliver(0, Some("b")), "it was delivered before");
        assert_eq!((note.number(Some("a")), note.number(Some("b")), note.number(None)), (0, 1, 1));
        for number in 1..40 {
            assert!(note.deliver(number, Some(&number.to_string())));
        }
        assert_eq!((note.ids.len(), note.number(Some("39")), note.number(Some("a"))), (IDS_MAX, 39, 40));
    }

    #[test]
    fn keys_name_their_line() {
        let name = LineName { session: "s".into(), digest: "abc".into() };
        assert_eq!(LineName::of_key("s", &name.key(7)), Some((name, 7)));
        assert_eq!(LineName::of_key("s", "mcp:abc"), None);
        assert_eq!(LineName::of_key("s", "abc:7"), None);
    }

    #[tokio::test]
    async fn a_line_is_held_by_one_and_forgotten_by_the_last() {
        let runtime = Runtime::new(Config::new(MemoryStore::new().expect("a store")));
        let lines = Arc::new(DeliveryLines::default());
        let name = || LineName { session: "s".into(), digest: "d".into() };
        let first = lines.hold(&runtime, name()).await;
        let mut second = Box::pin(lines.hold(&runtime, name()));
        let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending()));
        assert!(waits.await);
        first.delivered(0, None).await.expect("noted");
        drop(first);
        let second = second.await;
        assert_eq!(second.note().await.expect("readable").number(None), 1);
        assert_eq!(lines.count(), 1);
        drop(second);
        assert_eq!(lines.count(), 0);
    }
}
