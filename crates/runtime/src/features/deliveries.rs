//! Deliveries: which answers of a session reached their caller. Doors whose callers repeat a call under a new id, because its
//! answer was lost on the way, tell such a repetition from a new call by them.

use crate::api::error::SessionError;
use crate::session::inner::{Inner, Runtime};
use std::sync::Arc;
use windlass_store::{Row, Space};

/// The deliveries of one session. See [`Runtime::deliveries`].
pub struct Deliveries {
    rt: Arc<Inner>,
    session: String,
}

impl Runtime {
    /// The deliveries of the session of this name.
    ///
    /// ```
    /// # use windlass::store::memory::MemoryStore; use windlass::{Config, Runtime};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let deliveries = runtime.deliveries("demo");
    /// assert_eq!(deliveries.get("a digest").await?, None);
    /// deliveries.put("a digest", b"1").await?;
    /// assert_eq!(deliveries.get("a digest").await?.as_deref(), Some(&b"1"[..]));
    /// # Ok(()) }
    /// ```
    pub fn deliveries(&self, session: &str) -> Deliveries {
        Deliveries { rt: self.0.clone(), session: session.to_string() }
    }
}

impl Deliveries {
    /// The note about calls of this digest, if there is one.
    pub async fn get(&self, digest: &str) -> Result<Option<Vec<u8>>, SessionError> {
        let store = &self.rt.store;
        let Some(row) = store.session(&self.session).await? else { return Ok(None) };
        let record = store.record(Space::Delivered.of(row.no), digest).await?;
        Ok(record.map(|record| record.value))
    }

    /// Replaces the note. Durable when this returns.
    pub async fn put(&self, digest: &str, note: &[u8]) -> Result<(), SessionError> {
        let session = self.rt.session(&self.session).await?;
        let row = Row::Put { space: Space::Delivered, key: digest.to_string(), value: note.into() };
        Ok(session.lane.commit_rows(vec![row]).await?)
    }
}
