//! Key-value pairs inside a call: a replay reads recorded values, and writes nothing again.

use crate::api::error::{Lost, SessionError};
use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::attempt::inside::read;
use crate::features::pairs::{self, Pair, PairChange, PairError, PairKey, PairList};
use crate::session::cx::Cx;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::failure::FailureClass;
use windlass_core::operation::Did;
use windlass_store::StoreError;

/// The key-value pairs of a call's session. See [`Cx::kv`].
pub struct Pairs<'a>(&'a Cx);

impl Cx {
    /// The key-value pairs of the session. Each read and each write is a named operation: a replay gets what
    /// the first read saw, and never overwrites a later write.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn count(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let before = cx.kv().get("look", "count").await?;
    ///     let count = before.as_ref().and_then(|pair| pair.value.as_u64()).unwrap_or(0) + 1;
    ///     let generation = before.map_or(0, |pair| pair.generation);
    ///     if !cx.kv().set_if("count", "count", count, generation).await? {
    ///         return Err(ToolError::new("Somebody else counted too.").safe_to_retry());
    ///     }
    ///     Ok(json!(count).into())
    /// }
    /// ```
    pub fn kv(&self) -> Pairs<'_> {
        Pairs(self)
    }
}

impl Pairs<'_> {
    /// The pair of this key.
    pub async fn get(&self, name: &str, key: &str) -> Result<Option<Pair>, StepError> {
        let cx = self.0;
        pairs::check_key(key, cx.limits()).map_err(|error| refused(name, error))?;
        let asked = json!({ "key": key });
        self.look(name, &asked, async || {
            let lane = cx.artifacts.lane();
            pairs::get(lane.store(), lane.session(), key).await
        })
        .await
    }

    /// Keys in their order.
    pub async fn list(&self, name: &str, list: PairList<'_>) -> Result<Vec<PairKey>, StepError> {
        let cx = self.0;
        self.look(name, &json!({ "list": list }), async || {
            let lane = cx.artifacts.lane();
            pairs::list(lane.store(), lane.limits(), lane.session(), list).await
        })
        .await
    }

    /// Writes a pair unconditionally. Durable when this returns.
    pub async fn set(&self, name: &str, key: &str, value: impl Serialize) -> Result<(), StepError> {
        self.write(name, key, Some(self.value(name, value)?), None).await.map(drop)
    }

    /// Writes a pair if it has this generation (0: if it does not exist). `false`: it has another, and nothing is written.
    pub async fn set_if(
        &self,
        name: &str,
        key: &str,
        value: impl Serialize,
        generation: u64,
    ) -> Result<bool, StepError> {
        self.write(name, key, Some(self.value(name, value)?), Some(generation)).await
    }

    /// Deletes a pair, if it exists.
    pub async fn delete(&self, name: &str, key: &str) -> Result<(), StepError> {
        self.write(name, key, None, None).await.map(drop)
    }

    fn value(&self, name: &str, value: impl Serialize) -> Result<Value, Misuse> {
        serde_json::to_value(value).map_err(|error| Misuse::unkept(name, error))
    }

    async fn look<T: Serialize + serde::de::DeserializeOwned>(
        &self,
        name: &str,
        asked: &Value,
        look: impl AsyncFnOnce() -> Result<T, Lost>,
    ) -> Result<T, StepError> {
        let (cx, asked) = (self.0, asked.to_string());
        let book = cx.book();
        if let Some(found) = book.pairs_read(name, &asked, cx.limits().operations_max)? {
            return read(name, &found);
        }
        let found = look().await.map_err(StepError::Lost)?;
        let text = serde_json::to_string(&found).map_err(|error| Misuse::unkept(name, error))?;
        book.note(cx.now(), name, Did::PairsRead { asked: asked.into(), found: text.into() })?;
        Ok(found)
    }

    async fn write(
        &self,
        name: &str,
        key: &str,
        value: Option<Value>,
        expected: Option<u64>,
    ) -> Result<bool, StepError> {
        let (cx, limits) = (self.0, self.0.limits());
        pairs::check_key(key, limits).map_err(|error| refused(name, error))?;
        let text = value.as_ref().map(|value| pairs::kept_value(value, limits)).transpose();
        let text = text.map_err(|error| refused(name, error))?;
        let asked = match value {
            Some(value) => json!({ "key": key, "value": value, "if": expected }),
            None => json!({ "delete": key }),
        };
        let asked = asked.to_string();
        if let Some(written) = cx.book().pair_written(name, &asked, limits.operations_max)? {
            return Ok(written);
        }
        let hold = cx.hold.upgrade().ok_or(Misuse::Over)?;
        let pairs = hold.session.slots.of::<tokio::sync::Mutex<pairs::PairWriter>>();
        let mut pairs = pairs.lock().await;
        let change = text.as_deref().map_or(PairChange::Delete, PairChange::Set);
        let (written, rows) = match pairs.row(cx.artifacts.lane(), key, change, expected).await {
            Ok(row) => (true, vec![row]),
            Err(PairError::Changed { .. }) => (false, Vec::new()),
            Err(error) => return Err(refused(name, error)),
        };
        // The row and its record are one change, whichever task sends them.
        let did = Did::PairWritten { asked: asked.into(), written };
        if let Err(over) = cx.book().note_with(cx.now(), name, did, rows) {
            pairs.not_sent();
            return Err(over.into());
        }
        if written {
            cx.commit().await?;
            pairs.settled();
        }
        Ok(written)
    }
}

fn refused(name: &str, error: PairError) -> StepError {
    match error {
        PairError::Session(SessionError::Lost(lost)) => StepError::Lost(lost),
        PairError::Unfit { what } => StepError::Misused(Misuse::unkept(name, what)),
        PairError::Full { .. } | PairError::Changed { .. } => {
            let class = FailureClass::ResourceLimit;
            StepError::Failed(ToolError { class, ..ToolError::new(error.to_string()) })
        }
        PairError::Session(error) => {
            StepError::Lost(Lost::from(StoreError::Io { doing: "look at a pair", source: Box::new(error) }))
        }
    }
}
