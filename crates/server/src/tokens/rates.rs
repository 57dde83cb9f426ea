//! Rates of tokens over all workers.
//!
//! A worker lets requests in by buckets of its own, and asks nobody for that. While there are requests it tells the others every `knock_ms`
//! how many of each token it has let in; they owe as much to their buckets, which they pay before they let anybody in. So over time all
//! workers let in what one would, and more only until they have heard of each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use windlass::Runtime;
use windlass::store::{
    RecordChange, RecordGuard, RecordPage, Refused, Store, StoreError, StoreSpace, StoredRecord,
};
use windlass_core::rate::{Bucket, Rate};

/// Tokens that were not used for so long are not told of. After it every bucket is full.
const PERIOD_US: u64 = 60_000_000;
/// The tokens that a worker tells of at once, those with the most requests: a record has limited room.
const TOLD_MAX: usize = 1_000;
/// The page size for reading what the others tell.
const PAGE: u64 = 200;

/// The buckets of a server, by the hashes of tokens.
pub(super) struct TokenRates {
    runtime: Runtime,
    buckets: Mutex<HashMap<Arc<str>, SharedBucket>>,
    /// Whether a task tells the others.
    tells: AtomicBool,
}

/// The bucket of a token at one worker.
struct SharedBucket {
    bucket: Bucket,
    /// How many requests it has let in.
    passed: u64,
    /// The requests that others have let in beyond what it had.
    owed: u64,
    used_us: u64,
}

/// The use of a token that a worker tells of: how many requests it has let in, and how many tokens are missing in its bucket.
type TokenUse = (u64, u32);

/// The use of tokens by the others, as far as it was heard of.
#[derive(Default)]
struct Heard {
    /// The generation of each worker's record, since when it has been that, and whether the worker was alive then.
    records: HashMap<String, (u64, u64, bool)>,
    /// How many requests each had let in, by worker and token.
    passed: HashMap<(String, String), u64>,
}

impl SharedBucket {
    fn new(rate: Rate, now_us: u64) -> SharedBucket {
        SharedBucket { bucket: Bucket::full(rate, now_us), passed: 0, owed: 0, used_us: now_us }
    }

    /// Lets a request in, or says when it might.
    fn pass(&mut self, now_us: u64) -> Result<(), u64> {
        self.owed -= self.bucket.take_most(self.owed, now_us);
        let due_us = self.bucket.due_us(now_us);
        if due_us > now_us || self.owed > 0 {
            let Rate { count, period_us } = self.bucket.rate();
            let owed_us =
                self.owed.saturating_mul(period_us).checked_div(u64::from(count)).unwrap_or(u64::MAX);
            return Err(due_us.saturating_add(owed_us));
        }
        self.bucket.take(now_us);
        self.passed += 1;
        self.used_us = now_us;
        Ok(())
    }

    /// Others have let in so many. More than a period's worth is not owed: one bucket would not have let them in.
    fn owes(&mut self, passed: u64, now_us: u64) {
        let owed = self.owed.saturating_add(passed);
        let most = u64::from(self.bucket.rate().count);
        self.owed = (owed - self.bucket.take_most(owed, now_us)).min(most);
    }
}

impl TokenRates {
    pub(super) fn new(runtime: &Runtime) -> Arc<TokenRates> {
        Arc::new(TokenRates {
            runtime: runtime.clone(),
            buckets: Mutex::default(),
            tells: AtomicBool::new(false),
        })
    }

    /// Lets a request with the token of this hash in, or says when it might be.
    pub(super) fn pass(self: &Arc<TokenRates>, hash: &Arc<str>, rate: Rate, now_us: u64) -> Result<(), u64> {
        let mut buckets = self.lock();
        let bucket = buckets.entry(hash.clone()).or_insert_with(|| SharedBucket::new(rate, now_us));
        bucket.pass(now_us)?;
        drop(buckets);
        if self.runtime.is_shared() && !self.tells.swap(true, Ordering::SeqCst) {
            tokio::spawn(tell(Arc::downgrade(self)));
        }
        Ok(())
    }

    /// Forgets a token that is none any more.
    pub(super) fn forget(&self, hash: &str) {
        self.lock().remove(hash);
    }

    /// The use of tokens here, to be told.
    fn used(&self, now_us: u64) -> BTreeMap<String, TokenUse> {
        let mut buckets = self.lock();
        let mut used: Vec<(u64, String, TokenUse)> = buckets
            .iter_mut()
            .filter(|(_, bucket)| now_us.saturating_sub(bucket.used_us) < PERIOD_US)
            .map(|(hash, bucket)| {
                (bucket.passed, short(hash), (bucket.passed, bucket.bucket.missing(now_us)))
            })
            .collect();
        drop(buckets);
        used.sort_unstable_by(|left, right| right.cmp(left));
        used.into_iter().take(TOLD_MAX).map(|(_, token, used)| (token, used)).collect()
    }

    /// Charges what another worker tells to the buckets here.
    fn hear(&self, worker: &str, told: BTreeMap<String, TokenUse>, heard: &mut Heard, now_us: u64) {
        let mut buckets = self.lock();
        for (hash, bucket) in buckets.iter_mut() {
            let token = short(hash);
            let Some((passed, missing)) = told.get(&token).copied() else { continue };
            let more = match heard.passed.insert((worker.to_string(), token), passed) {
                Some(before) if before <= passed => passed - before,
                // It was not heard of before, or has begun anew.
                Some(_) | None => u64::from(missing),
            };
            bucket.owes(more, now_us);
        }
    }

    /// Writes what this worker has let in, and reads what the others have.
    async fn exchange(
        &self,
        told: &mut BTreeMap<String, TokenUse>,
        heard: &mut Heard,
    ) -> Result<(), StoreError> {
        let Some(worker) = self.runtime.worker() else { return Ok(()) };
        let (store, now_us) = (self.runtime.store(), self.runtime.clock().elapsed_us());
        let used = self.used(now_us);
        let has_passed = |(token, (passed, _)): (&String, &TokenUse)| {
            told.get(token).is_none_or(|(before, _)| before != passed)
        };
        if used.iter().any(has_passed) {
            // Numbers and texts serialise without fail.
            let value = serde_json::to_vec(&used).unwrap_or_default();
            store.commit(vec![RecordChange::put(StoreSpace::TokenUse, &*worker, value).into()]).await?;
        } else if used.is_empty() && !told.is_empty() {
            store.commit(vec![RecordChange::remove(StoreSpace::TokenUse, &*worker).into()]).await?;
        }
        *told = used;
        for record in records(&**store).await?.into_iter().filter(|record| record.key != worker) {
            let is_alive = self.runtime.is_worker_alive(&record.key);
            match heard.since(&record, is_alive, now_us) {
                Some(since_us) if !is_alive && now_us.saturating_sub(since_us) >= 2 * PERIOD_US => {
                    heard.forget(&record.key);
                    remove(&**store, &record).await?;
                }
                Some(_) => {}
                None if is_alive => {
                    let told = serde_json::from_slice(&record.value).unwrap_or_default();
                    self.hear(&record.key, told, heard, now_us);
                }
                // Nobody knows how long ago it told this.
                None => {}
            }
        }
        Ok(())
    }

    /// The pause between two exchanges, and how long one may take.
    fn times(&self) -> (Duration, Duration) {
        let limits = self.runtime.limits();
        (Duration::from_millis(limits.knock_ms), Duration::from_millis(limits.lease_ms))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, SharedBucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// Since when a record has been as it is; `None`: it is new, and remembered.
    fn since(&mut self, record: &StoredRecord, is_alive: bool, now_us: u64) -> Option<u64> {
        match self.records.get(&record.key) {
            Some((generation, since_us, was_alive))
                if *generation == record.generation && *was_alive == is_alive =>
            {
                Some(*since_us)
            }
            Some(_) | None => {
                self.records.insert(record.key.clone(), (record.generation, now_us, is_alive));
                None
            }
        }
    }

    fn forget(&mut self, worker: &str) {
        self.records.remove(worker);
        self.passed.retain(|(of, _), _| of != worker);
    }
}

/// Exchanges what was let in until nothing is for a while.
async fn tell(rates: Weak<TokenRates>) {
    let (mut told, mut heard) = (BTreeMap::new(), Heard::default());
    loop {
        let Some((pause, patience)) = rates.upgrade().map(|rates| rates.times()) else { return };
        tokio::time::sleep(pause).await;
        let Some(rates) = rates.upgrade() else { return };
        // The runtime is not kept for a database that is away.
        match tokio::time::timeout(patience, rates.exchange(&mut told, &mut heard)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the use of tokens was not exchanged; it is later"),
            Err(_elapsed) => tracing::debug!("the use of tokens was not exchanged in time; it is later"),
        }
        if told.is_empty() {
            rates.tells.store(false, Ordering::SeqCst);
            // A request that came before that relies on this task.
            let is_used = !rates.used(rates.runtime.clock().elapsed_us()).is_empty();
            if !is_used || rates.tells.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// The part of a token's hash that stands for it.
fn short(hash: &str) -> String {
    hash.chars().take(SHORT_CHARS).collect()
}

const SHORT_CHARS: usize = 16;

/// The records of all workers.
async fn records(store: &dyn Store) -> Result<Vec<StoredRecord>, StoreError> {
    let mut found: Vec<StoredRecord> = Vec::new();
    loop {
        let after = found.last().map(|record| record.key.clone());
        let page = RecordPage {
            shelf: StoreSpace::TokenUse.shelf(),
            prefix: "",
            after: after.as_deref(),
            limit: PAGE,
        };
        let more = store.records(page).await?;
        let is_last = (more.len() as u64) < PAGE;
        found.extend(more);
        if is_last {
            return Ok(found);
        }
    }
}

/// Removes what a worker told that is gone; if it tells something meanwhile, that stays.
async fn remove(store: &dyn Store, record: &StoredRecord) -> Result<(), StoreError> {
    let change = RecordChange::remove(StoreSpace::TokenUse, record.key.as_str())
        .guarded(RecordGuard::Generation(record.generation));
    match store.commit(vec![change.into()]).await?.pop() {
        Some(Ok(_) | Err(Refused::Changed { .. })) | None => Ok(()),
        Some(Err(refused)) => {
            tracing::debug!(%refused, "what a worker told of tokens stays");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { count: 60, period_us: PERIOD_US };

    fn passes(bucket: &mut SharedBucket, now_us: u64) -> u32 {
        (0..1_000).map_while(|_| bucket.pass(now_us).ok()).count() as u32
    }

    #[test]
    fn what_others_have_let_in_is_paid_first() {
        let mut bucket = SharedBucket::new(RATE, 0);
        bucket.owes(50, 0);
        assert_eq!(passes(&mut bucket, 0), 10);
        // Others had as many as there are in a period: it is paid in a minute, a token a second.
        bucket.owes(60, 0);
        assert_eq!(bucket.pass(0), Err(61_000_000));
        assert_eq!((passes(&mut bucket, 60_000_000), passes(&mut bucket, 61_000_000)), (0, 1));
        // However much they had, they are waited for no longer.
        bucket.owes(10_000, 61_000_000);
        assert_eq!((passes(&mut bucket, 121_000_000), passes(&mut bucket, 122_000_000)), (0, 1));
    }

    #[test]
    fn two_workers_that_hear_of_each_other_let_in_together_what_one_would() {
        let mut buckets = [SharedBucket::new(RATE, 0), SharedBucket::new(RATE, 0)];
        let mut passed = [0_u64; 2];
        // Ten minutes, with more requests than the rate at both.
        for second in 0..600_u64 {
            let now_us = second * 1_000_000;
            let now = buckets.each_mut().map(|bucket| u64::from(passes(bucket, now_us)));
            buckets[0].owes(now[1], now_us);
            buckets[1].owes(now[0], now_us);
            passed = [passed[0] + now[0], passed[1] + now[1]];
        }
        let both = passed[0] + passed[1];
        assert!((600..=600 + 2 * 60).contains(&both), "{passed:?}");
    }

    #[tokio::test]
    async fn the_use_of_a_worker_that_is_new_here_is_what_its_bucket_lacks() {
        let runtime =
            Runtime::new(windlass::Config::new(windlass::store::memory::MemoryStore::new().unwrap()));
        let rates = TokenRates::new(&runtime);
        let (token, mut heard) = (Arc::<str>::from("a-hash-longer-than-its-id"), Heard::default());
        rates.pass(&token, RATE, 0).unwrap();
        let told = |passed, missing| BTreeMap::from([(short(&token), (passed, missing))]);
        rates.hear("w", told(7_000, 20), &mut heard, 0);
        rates.hear("w", told(7_030, 50), &mut heard, 0);
        // One here, twenty, and thirty more.
        let left = (0..100).map_while(|_| rates.pass(&token, RATE, 0).ok()).count();
        assert_eq!(left, 60 - 1 - 20 - 30);
        assert_eq!(rates.used(0), told(10, 60));
        assert!(rates.used(PERIOD_US).is_empty());
    }
}
