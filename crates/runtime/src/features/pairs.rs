//! The key-value pairs of a session: records of the store that only the session's owner writes.

mod inside;

pub use inside::Pairs;

use crate::api::error::{Lost, SessionError};
use crate::api::limits::Limits;
use crate::session::inner::{Inner, Runtime};
use crate::session::lane::Lane;
use serde_json::Value;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{
    RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, RecordPage, Row, Space, Store, StoreError, StoredRecord,
};

/// A key-value pair.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Pair {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its generation: larger after each write, even if the pair was deleted in between.
    pub generation: u64,
}

/// A pair in a list, without its value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct PairKey {
    /// Its key.
    pub key: String,
    /// Its generation.
    pub generation: u64,
}

/// Which pairs to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PairList<'a> {
    /// The prefix of their keys.
    pub prefix: &'a str,
    /// The key after which the list begins.
    pub after: Option<&'a str>,
    /// The maximum number; `None`, or a larger one, means the limit `pairs_page`.
    pub limit: Option<u64>,
}

/// Why a pair was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The key or the value is invalid.
    #[error("{what}")]
    Unfit {
        /// The mistake, and what to do.
        what: String,
    },
    /// The session has the maximum number of pairs.
    #[error("the session has {max} key-value pairs, which is the most it may have; delete some first")]
    Full {
        /// The limit `pairs_max`.
        max: u64,
    },
    /// It was written meanwhile.
    #[error("the pair was changed meanwhile (its generation is {now}); read it and try again")]
    Changed {
        /// Its generation; 0 if there is none.
        now: u64,
    },
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A change of a pair.
#[derive(Clone, Copy)]
pub(crate) enum PairChange<'a> {
    /// Sets this value, as JSON.
    Set(&'a str),
    /// Deletes it.
    Delete,
}

/// The owner's knowledge of a session's pairs. A writer holds this from the look at the pairs until its write
/// is durable: nobody else can write in between, since nobody else owns the session.
#[derive(Default)]
pub(crate) struct PairWriter {
    /// The number of pairs, once they were counted.
    count: Option<u64>,
    /// Whether a write began that was not waited for.
    is_unsettled: bool,
}

impl PairWriter {
    /// The row that changes a pair, or why it may not be changed. The row must be sent before [`settled`](Self::settled).
    pub(crate) async fn row(
        &mut self,
        lane: &Lane,
        key: &str,
        change: PairChange<'_>,
        expected: Option<u64>,
    ) -> Result<Row, PairError> {
        if self.is_unsettled {
            // Everything sent is durable before this.
            lane.commit_rows(Vec::new()).await.map_err(SessionError::from)?;
        }
        let (store, session, max) = (lane.store(), lane.session(), lane.limits().pairs_max);
        let there = store.record(Space::Pair.of(session), key).await.map_err(SessionError::from)?;
        let now = there.map_or(0, |record| record.generation);
        if let Some(expected) = expected
            && expected != now
        {
            return Err(PairError::Changed { now });
        }
        let count = match self.count {
            Some(count) => count,
            None => store.count_records(Space::Pair.of(session)).await.map_err(SessionError::from)?,
        };
        let (row, after) = match change {
            PairChange::Set(_) if now == 0 && count >= max => return Err(PairError::Full { max }),
            PairChange::Set(value) => {
                let value = value.as_bytes().into();
                let row = Row::Put { space: Space::Pair, key: key.to_string(), value };
                (row, count + u64::from(now == 0))
            }
            PairChange::Delete => {
                let row = Row::Remove { space: Space::Pair, key: key.to_string() };
                (row, count - u64::from(now != 0))
            }
        };
        self.count = Some(after);
        self.is_unsettled = true;
        Ok(row)
    }

    /// The row was not sent after all.
    pub(crate) fn not_sent(&mut self) {
        *self = PairWriter { is_unsettled: self.is_unsettled, ..PairWriter::default() };
    }

    /// The write is durable.
    pub(crate) fn settled(&mut self) {
        self.is_unsettled = false;
    }
}

/// Checks a key.
pub(crate) fn check_key(key: &str, limits: &Limits) -> Result<(), PairError> {
    let max = limits.pair_key_bytes_max.min(RECORD_KEY_BYTES_MAX as u64);
    if (1..=max).contains(&(key.len() as u64)) && !key.chars().any(char::is_control) {
        return Ok(());
    }
    let what = format!("the key of a pair has 1 to {max} bytes and no control characters; choose another");
    Err(PairError::Unfit { what })
}

/// A value in stored form.
pub(crate) fn kept_value(value: &Value, limits: &Limits) -> Result<String, PairError> {
    let max = limits.pair_value_bytes_max.min(RECORD_VALUE_BYTES_MAX as u64);
    windlass_args::json::measure_result(value, &limits.args())
        .map_err(|problem| PairError::Unfit { what: format!("the value cannot be kept: {problem}") })?;
    let text = value.to_string();
    if text.len() as u64 <= max {
        return Ok(text);
    }
    let what = format!("the value has {} bytes as JSON, and {max} are kept; keep an artifact", text.len());
    Err(PairError::Unfit { what })
}

/// The pair of this key.
pub(crate) async fn get(store: &dyn Store, session: SessionNo, key: &str) -> Result<Option<Pair>, Lost> {
    store.record(Space::Pair.of(session), key).await?.map(pair).transpose()
}

/// The requested keys, in their order.
pub(crate) async fn list(
    store: &dyn Store,
    limits: &Limits,
    session: SessionNo,
    list: PairList<'_>,
) -> Result<Vec<PairKey>, Lost> {
    let limit = list.limit.unwrap_or(u64::MAX).min(limits.pairs_page);
    let PairList { prefix, after, .. } = list;
    let page = RecordPage { shelf: Space::Pair.of(session), prefix, after, limit };
    let found = store.records(page).await?;
    Ok(found.into_iter().map(|StoredRecord { key, generation, .. }| PairKey { key, generation }).collect())
}

fn pair(record: StoredRecord) -> Result<Pair, Lost> {
    let StoredRecord { key, value, generation } = record;
    let value = serde_json::from_slice(&value).map_err(|error| {
        Lost::from(StoreError::Io { doing: "read a key-value pair", source: Box::new(error) })
    })?;
    Ok(Pair { key, value, generation })
}

/// The key-value pairs of one session, for the host. See [`Runtime::kv`].
pub struct SessionPairs {
    rt: Arc<Inner>,
    session: String,
}

impl Runtime {
    /// The key-value pairs of the session of this name, shared with its tools. The first write opens the session.
    ///
    /// ```
    /// # use windlass::{Config, Runtime, store::memory::MemoryStore}; use serde_json::json;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let pairs = runtime.kv("demo");
    /// let generation = pairs.set("colour", &json!("red")).await?;
    /// pairs.set_if("colour", &json!("green"), generation).await?;
    /// assert!(pairs.set_if("colour", &json!("blue"), generation).await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn kv(&self, session: &str) -> SessionPairs {
        SessionPairs { rt: self.0.clone(), session: session.to_string() }
    }
}

impl SessionPairs {
    /// The pair of this key.
    pub async fn get(&self, key: &str) -> Result<Option<Pair>, PairError> {
        check_key(key, &self.rt.limits)?;
        let Some(session) = self.number().await? else { return Ok(None) };
        Ok(get(&*self.rt.store, session, key).await.map_err(SessionError::from)?)
    }

    /// Writes a pair unconditionally, and returns its generation.
    pub async fn set(&self, key: &str, value: &Value) -> Result<u64, PairError> {
        let value = kept_value(value, &self.rt.limits)?;
        self.change(key, PairChange::Set(&value), None).await
    }

    /// Writes a pair if it has this generation (0: if it does not exist), and returns the new one.
    pub async fn set_if(&self, key: &str, value: &Value, generation: u64) -> Result<u64, PairError> {
        let value = kept_value(value, &self.rt.limits)?;
        self.change(key, PairChange::Set(&value), Some(generation)).await
    }

    /// Deletes a pair, if it exists.
    pub async fn delete(&self, key: &str) -> Result<(), PairError> {
        self.change(key, PairChange::Delete, None).await.map(drop)
    }

    /// Keys in their order.
    pub async fn list(&self, list: PairList<'_>) -> Result<Vec<PairKey>, PairError> {
        let Some(session) = self.number().await? else { return Ok(Vec::new()) };
        let found = self::list(&*self.rt.store, &self.rt.limits, session, list).await;
        Ok(found.map_err(SessionError::from)?)
    }

    async fn number(&self) -> Result<Option<SessionNo>, PairError> {
        let row = self.rt.store.session(&self.session).await.map_err(SessionError::from)?;
        Ok(row.map(|row| row.no))
    }

    async fn change(
        &self,
        key: &str,
        change: PairChange<'_>,
        expected: Option<u64>,
    ) -> Result<u64, PairError> {
        check_key(key, &self.rt.limits)?;
        let session = self.rt.session(&self.session).await?;
        session.check_stays().map_err(SessionError::from)?;
        let pairs = session.slots.of::<tokio::sync::Mutex<PairWriter>>();
        let mut pairs = pairs.lock().await;
        let row = pairs.row(&session.lane, key, change, expected).await?;
        let receipt = session.lane.send(Vec::new(), vec![row]).receipt().await.map_err(SessionError::from)?;
        pairs.settled();
        Ok(receipt.generation)
    }
}
