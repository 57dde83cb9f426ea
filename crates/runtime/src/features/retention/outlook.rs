//! The view of retention on a store: what would expire now, by the record alone.

use crate::api::error::SessionError;
use crate::api::journal::entries;
use crate::api::retention::Retention;
use crate::session::bounds::Bounds;
use std::collections::HashMap;
use windlass_core::ids::{BatchNo, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{KeptBatch, Store};

/// The number of batches read at once.
const PAGE: u64 = 1_000;

/// The batches that retention would remove now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionOutlook {
    /// When the oldest kept entry was recorded.
    pub oldest: Option<Timestamp>,
    /// The number of closed batches that a rule lets go of. Some of them may have to stay, because something of them is still owed.
    pub batches: u64,
    /// The bytes of their entries.
    pub bytes: u64,
}

impl RetentionOutlook {
    /// Looks at a store under these rules, whoever owns it. It reads every kept batch that may be due.
    pub async fn of(
        store: &dyn Store,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<RetentionOutlook, SessionError> {
        let kept = all(store).await?;
        let mut found = RetentionOutlook::default();
        let (mut sizes, mut total): (HashMap<SessionNo, u64>, u64) = (HashMap::new(), 0);
        for batch in &kept {
            *sizes.entry(batch.session).or_default() += batch.bytes;
            total += batch.bytes;
        }
        let mut rules: HashMap<SessionNo, (Option<u64>, Option<u64>)> = HashMap::new();
        for batch in kept {
            let rule = match rules.get(&batch.session) {
                Some(rule) => *rule,
                None => {
                    let rule = rule(store, retention, batch.session).await?;
                    *rules.entry(batch.session).or_insert(rule)
                }
            };
            let size = sizes.get(&batch.session).copied().unwrap_or(0);
            let by_size = rule.1.is_some_and(|bytes| size > bytes)
                || retention.store_bytes.is_some_and(|bytes| total > bytes);
            if found.oldest.is_some() && rule.0.is_none() && !by_size {
                continue;
            }
            let rows = store.journal(batch.no).await?;
            let entries = entries(&rows)?;
            found.oldest = found.oldest.or(entries.first().map(|entry| entry.at));
            let last = entries.last().map(|entry| entry.at).unwrap_or_default();
            let by_age = rule.0.is_some_and(|age_ms| now.since(last) >= age_ms.saturating_mul(1_000));
            let is_closed = store.batch_by_no(batch.no).await?.is_some_and(|row| !row.open);
            if (by_age || by_size) && is_closed {
                sizes.entry(batch.session).and_modify(|size| *size -= batch.bytes);
                total -= batch.bytes;
                (found.batches, found.bytes) = (found.batches + 1, found.bytes + batch.bytes);
            }
        }
        Ok(found)
    }
}

async fn all(store: &dyn Store) -> Result<Vec<KeptBatch>, SessionError> {
    let (mut kept, mut after) = (Vec::new(), BatchNo(0));
    loop {
        let page = store.kept_batches(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(kept) };
        after = last.no;
        kept.extend(page);
    }
}

async fn rule(
    store: &dyn Store,
    retention: &Retention,
    no: SessionNo,
) -> Result<(Option<u64>, Option<u64>), SessionError> {
    let Some(row) = store.session_by_no(no).await? else { return Ok((None, None)) };
    Ok(retention.of_session(Bounds::kept(store, no, &row.name).await?.limits()))
}
