//! The key-value pairs of a session: records of the store that only the session's owner writes.

use crate::error::{BatchError, Lost};
use crate::lane::Lane;
use crate::runtime::{Inner, Runtime};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_core::limits::Limits;
use windlass_store::{
    RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, Record, RecordPage, Row, Space, Store, StoreError,
};

/// A key-value pair.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Pair {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Which writing of it this is: a later one has a larger number, also if the pair was deleted in between.
    pub generation: u64,
}

/// A pair in a list, without its value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct PairKey {
    /// Its key.
    pub key: String,
    /// Which writing of it this is.
    pub generation: u64,
}

/// Which pairs are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PairList<'a> {
    /// How their keys begin.
    pub prefix: &'a str,
    /// The key after which the list begins.
    pub after: Option<&'a str>,
    /// How many at most; `None`, or more than that, means the limit `pairs_page`.
    pub limit: Option<u64>,
}

/// Why a pair was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PairError {
    /// No pair can be so.
    #[error("{what}")]
    Unfit {
        /// What is wrong, and what to do.
        what: String,
    },
    /// There are as many as there may be.
    #[error("the session has {max} key-value pairs, which is the most it may have; delete some first")]
    Full {
        /// The limit `pairs_max`.
        max: u64,
    },
    /// Somebody else wrote it.
    #[error("the pair was written by somebody else (its generation is {now}); read it and go on from that")]
    Changed {
        /// Its generation; 0 if there is none.
        now: u64,
    },
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// How a pair is changed.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// It gets this value, as JSON.
    Set(&'a str),
    /// It is deleted.
    Delete,
}

/// What the owner of a session knows of its pairs. Whoever writes one holds this from the look at what is there until
/// that is durable: nobody else can write in between, since nobody else owns the session.
#[derive(Default)]
pub(crate) struct Pairs {
    /// How many there are, once they were counted.
    count: Option<u64>,
    /// Whether somebody began to write and did not wait until it was durable.
    is_unsettled: bool,
}

impl Pairs {
    /// The row that changes a pair, or why it may not be changed. Until [`settled`](Self::settled) the row must be sent.
    pub(crate) async fn row(
        &mut self,
        lane: &Lane,
        (key, change): (&str, Change<'_>),
        expected: Option<u64>,
    ) -> Result<Row, PairError> {
        if self.is_unsettled {
            // Whatever was sent is durable before this.
            lane.commit_rows(Vec::new()).await.map_err(BatchError::from)?;
        }
        let (store, session, max) = (lane.store(), lane.session(), lane.limits().pairs_max);
        let there = store.record(session, Space::Pair, key).await.map_err(BatchError::from)?;
        let now = there.map_or(0, |record| record.generation);
        if let Some(expected) = expected
            && expected != now
        {
            return Err(PairError::Changed { now });
        }
        let count = match self.count {
            Some(count) => count,
            None => store.count_records(session, Space::Pair).await.map_err(BatchError::from)?,
        };
        let (row, after) = match change {
            Change::Set(_) if now == 0 && count >= max => return Err(PairError::Full { max }),
            Change::Set(value) => {
                let value = value.as_bytes().into();
                let row = Row::Put { space: Space::Pair, key: key.to_string(), value };
                (row, count + u64::from(now == 0))
            }
            Change::Delete => {
                let row = Row::Remove { space: Space::Pair, key: key.to_string() };
                (row, count - u64::from(now != 0))
            }
        };
        self.count = Some(after);
        self.is_unsettled = true;
        Ok(row)
    }

    /// The row was not sent after all: what it would have changed is not so.
    pub(crate) fn not_sent(&mut self) {
        *self = Pairs { is_unsettled: self.is_unsettled, ..Pairs::default() };
    }

    /// What was sent is durable.
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

/// A value as it is kept.
pub(crate) fn kept_value(value: &Value, limits: &Limits) -> Result<String, PairError> {
    let max = limits.pair_value_bytes_max.min(RECORD_VALUE_BYTES_MAX as u64);
    windlass_core::json::measure_result(value, limits)
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
    store.record(session, Space::Pair, key).await?.map(pair).transpose()
}

/// The keys that are asked for, in their order.
pub(crate) async fn list(
    lane: (&dyn Store, &Limits),
    session: SessionNo,
    list: PairList<'_>,
) -> Result<Vec<PairKey>, Lost> {
    let (store, limits) = lane;
    let limit = list.limit.unwrap_or(u64::MAX).min(limits.pairs_page);
    let PairList { prefix, after, .. } = list;
    let page = RecordPage { session, space: Space::Pair, prefix, after, limit };
    let found = store.records(page).await?;
    Ok(found.into_iter().map(|Record { key, generation, .. }| PairKey { key, generation }).collect())
}

fn pair(record: Record) -> Result<Pair, Lost> {
    let Record { key, value, generation } = record;
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
    /// The key-value pairs of the session of this name, which its tools see too. The first one that is set opens it.
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
        Ok(get(&*self.rt.store, session, key).await.map_err(BatchError::from)?)
    }

    /// Writes a pair, whatever it was, and says its generation.
    pub async fn set(&self, key: &str, value: &Value) -> Result<u64, PairError> {
        let value = kept_value(value, &self.rt.limits)?;
        self.change(key, Change::Set(&value), None).await
    }

    /// Writes a pair if it has this generation, or is not there with 0; and says its new one.
    pub async fn set_if(&self, key: &str, value: &Value, generation: u64) -> Result<u64, PairError> {
        let value = kept_value(value, &self.rt.limits)?;
        self.change(key, Change::Set(&value), Some(generation)).await
    }

    /// Deletes a pair, if it is there.
    pub async fn delete(&self, key: &str) -> Result<(), PairError> {
        self.change(key, Change::Delete, None).await.map(drop)
    }

    /// Keys in their order.
    pub async fn list(&self, list: PairList<'_>) -> Result<Vec<PairKey>, PairError> {
        let Some(session) = self.number().await? else { return Ok(Vec::new()) };
        let found = self::list((&*self.rt.store, &self.rt.limits), session, list).await;
        Ok(found.map_err(BatchError::from)?)
    }

    async fn number(&self) -> Result<Option<SessionNo>, PairError> {
        let row = self.rt.store.session(&self.session).await.map_err(BatchError::from)?;
        Ok(row.map(|row| row.no))
    }

    async fn change(&self, key: &str, change: Change<'_>, expected: Option<u64>) -> Result<u64, PairError> {
        check_key(key, &self.rt.limits)?;
        let session = self.rt.session(&self.session).await?;
        session.check_stays().map_err(BatchError::from)?;
        let mut pairs = session.pairs.lock().await;
        let row = pairs.row(&session.lane, (key, change), expected).await?;
        let receipt = session.lane.send(Vec::new(), vec![row]).receipt().await.map_err(BatchError::from)?;
        pairs.settled();
        Ok(receipt.generation)
    }
}
