//! One pass over the kept batches of the store, oldest first.

use super::judge::{ExpiryJudge, ExpiryVerdict};
use crate::api::error::{SessionError, chain};
use crate::session::bounds::Bounds;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::ids::{BatchNo, SessionNo};
use windlass_store::{KeptBatch, Row};

/// The number of kept batches that are looked at between two pieces.
const PAGE: u64 = 256;
/// The number of pages of the file that are returned to the file system at once: a megabyte.
const SHRINK_PAGES: u64 = 256;
/// A pass returns at most so many pieces; the next one goes on.
const SHRINK_PIECES: u64 = 256;
/// The longest rest between two pieces.
const REST_MAX: Duration = Duration::from_millis(50);

/// How fast a pass works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SweepPace {
    /// As fast as it can.
    AtOnce,
    /// With a rest after each piece, as long as the piece took.
    Slow,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryReport {
    /// The number of batches that expired.
    pub batches: u64,
    /// The bytes of their entries.
    pub bytes: u64,
    /// The number of batches that are due and must stay for now: one of their calls is open or unknown, or something of them is
    /// still owed.
    pub held: u64,
}

/// The rules of one session.
pub(super) struct SessionRule {
    name: String,
    pub(super) age_us: Option<u64>,
    bytes: Option<u64>,
}

/// A pass.
pub(super) struct Sweep<'a> {
    rt: &'a Arc<Inner>,
    pace: SweepPace,
    is_sized: bool,
    /// The bytes of each session's kept entries, where a rule is about them.
    sizes: HashMap<SessionNo, u64>,
    total: u64,
    /// `None`: nothing of the session expires, or not here and now.
    rules: HashMap<SessionNo, Option<Arc<SessionRule>>>,
    report: ExpiryReport,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(rt: &'a Arc<Inner>, pace: SweepPace, is_sized: bool) -> Sweep<'a> {
        let (sizes, rules) = (HashMap::new(), HashMap::new());
        Sweep { rt, pace, is_sized, sizes, total: 0, rules, report: ExpiryReport::default() }
    }

    pub(super) async fn run(mut self) -> Result<ExpiryReport, SessionError> {
        if self.is_sized {
            self.measure().await?;
        }
        let mut after = BatchNo(0);
        loop {
            let page = self.rt.store.kept_batches(after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.no;
            let mut by_session: BTreeMap<SessionNo, Vec<KeptBatch>> = BTreeMap::new();
            for kept in page {
                if self.rule(kept.session).await?.is_some_and(|rule| self.may_be_due(kept.session, &rule)) {
                    by_session.entry(kept.session).or_default().push(kept);
                }
            }
            let mut is_young = false;
            for (session, batches) in by_session {
                for piece in batches.chunks(self.rt.limits.retention_batches_max.max(1) as usize) {
                    is_young |= self.piece(session, piece).await?;
                }
            }
            // Later batches are younger.
            if is_young && !self.is_too_large() {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.shrink().await?;
        Ok(self.report)
    }

    /// Adds up what is kept.
    async fn measure(&mut self) -> Result<(), SessionError> {
        let mut after = BatchNo(0);
        loop {
            let page = self.rt.store.kept_batches(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.no;
            for kept in page {
                *self.sizes.entry(kept.session).or_default() += kept.bytes;
                self.total += kept.bytes;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The rules of a session, read once in a pass.
    async fn rule(&mut self, no: SessionNo) -> Result<Option<Arc<SessionRule>>, SessionError> {
        if let Some(rule) = self.rules.get(&no) {
            return Ok(rule.clone());
        }
        let rt = self.rt;
        let rule = match rt.store.session_by_no(no).await.map_err(SessionError::from) {
            // A session without an entry of its own was removed; one that is damaged stands still.
            Ok(None) | Err(SessionError::Unreadable { .. }) => None,
            Err(error) => return Err(error),
            Ok(Some(row)) => {
                let limits = Bounds::kept(&*rt.store, no, &row.name).await?.limits();
                let (age_ms, bytes) = rt.retention.of_session(limits);
                let age_us = age_ms.map(|age_ms| age_ms.saturating_mul(1_000));
                let is_kept = limits.retention_age_ms == Some(0) && limits.retention_bytes == Some(0);
                let has_rule = age_us.is_some() || bytes.is_some() || rt.retention.store_bytes.is_some();
                (has_rule && !is_kept).then(|| Arc::new(SessionRule { name: row.name, age_us, bytes }))
            }
        };
        self.rules.insert(no, rule.clone());
        Ok(rule)
    }

    /// Whether a rule wants more of a session to go, whatever its age.
    pub(super) fn is_over_size(&self, session: SessionNo, rule: &SessionRule, freed: u64) -> bool {
        let size = self.sizes.get(&session).copied().unwrap_or(0).saturating_sub(freed);
        let total = self.total.saturating_sub(freed);
        rule.bytes.is_some_and(|bytes| size > bytes)
            || self.rt.retention.store_bytes.is_some_and(|bytes| total > bytes)
    }

    /// Whether more than twice as much is kept as a rule allows.
    fn is_far_over(&self, session: SessionNo, rule: &SessionRule) -> bool {
        let size = self.sizes.get(&session).copied().unwrap_or(0);
        rule.bytes.is_some_and(|bytes| size / 2 > bytes)
            || self.rt.retention.store_bytes.is_some_and(|bytes| self.total / 2 > bytes)
    }

    fn may_be_due(&self, session: SessionNo, rule: &SessionRule) -> bool {
        rule.age_us.is_some() || self.is_over_size(session, rule, 0)
    }

    fn is_too_large(&self) -> bool {
        let over = |(no, rule): (&SessionNo, &Option<Arc<SessionRule>>)| {
            rule.as_ref().is_some_and(|rule| self.is_over_size(*no, rule, 0))
        };
        self.rules.iter().any(over)
    }

    /// The least age by which anything expires.
    fn least_age_us(&self) -> u64 {
        let own = self.rules.values().flatten().filter_map(|rule| rule.age_us);
        let general = self.rt.retention.age_ms.map(|age_ms| age_ms.saturating_mul(1_000));
        own.chain(general).min().unwrap_or(u64::MAX)
    }

    /// Expires those of these batches that are due. Returns whether one of them was opened later than any rule asks for.
    async fn piece(&mut self, no: SessionNo, batches: &[KeptBatch]) -> Result<bool, SessionError> {
        let Some(rule) = self.rule(no).await? else { return Ok(false) };
        let Some(session) = self.session(no, &rule.name).await? else { return Ok(false) };
        let began_us = self.rt.clock.elapsed_us();
        let (mut rows, mut guards) = (Vec::new(), Vec::new());
        let (mut expired, mut freed, mut is_young) = (0, 0, false);
        let admission = session.admit().await;
        if admission.check_stays().is_err() || session.lane.lost().is_some() {
            return Ok(false);
        }
        if !session.lane.is_taken() {
            session.lane.commit_rows(Vec::new()).await?;
        }
        let judge = ExpiryJudge::new(self.rt, &session).await?;
        for kept in batches {
            let by_size = self.is_over_size(no, &rule, freed);
            match judge.batch(kept.no, rule.age_us.filter(|_| !by_size), by_size).await? {
                ExpiryVerdict::Due { with, guard } => {
                    rows.push(Row::Expire(kept.no));
                    rows.extend(with);
                    guards.extend(guard);
                    (expired, freed) = (expired + 1, freed + kept.bytes);
                }
                ExpiryVerdict::Held => self.report.held += 1,
                ExpiryVerdict::Young { age_us } => is_young |= age_us < self.least_age_us(),
            }
        }
        if expired > 0 {
            match session.lane.attempt(guards, rows).await? {
                Ok(_) => self.count(no, expired, freed),
                // Something of it is used again; the next pass looks anew.
                Err(_) => self.report.held += expired,
            }
        }
        drop(admission);
        // Whoever writes faster than records expire waits for it.
        if self.pace == SweepPace::Slow && !self.is_far_over(no, &rule) {
            self.rest(began_us).await;
        }
        Ok(is_young)
    }

    fn count(&mut self, session: SessionNo, batches: u64, bytes: u64) {
        if let Some(size) = self.sizes.get_mut(&session) {
            *size = size.saturating_sub(bytes);
        }
        self.total = self.total.saturating_sub(bytes);
        self.report.batches += batches;
        self.report.bytes += bytes;
    }

    /// The session, owned here. Of a shared store each worker looks after its own sessions.
    async fn session(&mut self, no: SessionNo, name: &str) -> Result<Option<Arc<Session>>, SessionError> {
        let found = match self.rt.owners.has_others() {
            true => Ok(self.rt.owned_session(name)),
            false => self.rt.session(name).await.map(Some),
        };
        match found {
            Ok(Some(session)) if session.lane.session() == no => Ok(Some(session)),
            Ok(_) | Err(SessionError::Gone { .. } | SessionError::Owned { .. }) => {
                self.rules.insert(no, None);
                Ok(None)
            }
            Err(error @ SessionError::Unreadable { .. }) => {
                tracing::warn!(session = %name, error = %chain(&error), "nothing of a damaged session expires");
                self.rules.insert(no, None);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Rests as long as the work since then took.
    async fn rest(&self, began_us: u64) {
        let took = Duration::from_micros(self.rt.clock.elapsed_us().saturating_sub(began_us));
        tokio::time::sleep(took.min(REST_MAX)).await;
    }

    /// Returns space that is free in the file, in pieces between which others write.
    async fn shrink(&self) -> Result<(), SessionError> {
        for _ in 0..SHRINK_PIECES {
            let began_us = self.rt.clock.elapsed_us();
            if !self.rt.store.shrink(SHRINK_PAGES).await? {
                return Ok(());
            }
            if self.pace == SweepPace::Slow {
                self.rest(began_us).await;
            }
        }
        Ok(())
    }
}
