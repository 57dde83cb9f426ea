//! Heartbeats: how a worker gets its lease, keeps it, and finds out that it is over.

use super::record::LiveRecord;
use super::{Worker, WorkerPlace, due_us, gone, is_over};
use crate::api::error::chain;
use crate::api::keys::fresh_key;
use crate::session::inner::Inner;
use crate::session::wheel::Wheel;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_store::{Change, Receipt, RecordChange, RecordGuard, Refused, StoreError, StoreSpace};

/// A worker's own view of its lease.
struct Beating {
    id: Arc<str>,
    /// Its record under an earlier id.
    before: Option<Arc<str>>,
    /// The generation of its record when it was last acknowledged; 0 before the first time.
    generation: u64,
    /// Whether a heartbeat got no answer since then: it may have been applied.
    in_doubt: bool,
    /// The end of its lease, by the clock that never jumps; `None` if it has no lease.
    until_us: Option<u64>,
}

/// Writes heartbeats until the runtime is gone. If they are not acknowledged in time the worker loses its
/// sessions, and starts again under another id.
pub(super) async fn keep_beating(mut place: WorkerPlace) {
    let mut beating: Option<Beating> = None;
    loop {
        let (sent_us, answer) = {
            let Some((rt, worker)) = place.upgrade() else { return };
            let mine = match beating.take() {
                Some(mine) => mine,
                None => match fresh_key() {
                    Ok(id) => Beating::new(id.into(), None),
                    Err(error) => return worker.failed(error),
                },
            };
            if worker.has_left.load(Ordering::SeqCst) {
                return;
            }
            let sent_us = rt.clock.elapsed_us();
            let answer = rt.store.commit(mine.beat(&worker.live(&rt)));
            beating = Some(mine);
            (sent_us, answer)
        };
        let Some(mine) = &mut beating else { return };
        let answered = tokio::select! {
            biased;
            () = gone(&mut place.standing) => return,
            () = place.wheel.until(mine.until_us.unwrap_or(u64::MAX)) => None,
            answered = answer => Some(answered),
        };
        let Some((rt, worker)) = place.upgrade() else { return };
        let mut outcome = mine.heard(&rt, &worker, sent_us, answered);
        if let HeartbeatOutcome::Doubtful = outcome {
            outcome = mine.decide(&rt).await;
        }
        if let HeartbeatOutcome::Alive = outcome
            && !worker.stands_as(&mine.id)
            && !mine.stand(&rt, &worker, &place.wheel).await
        {
            outcome = HeartbeatOutcome::Failed;
        }
        let next_us = match outcome {
            HeartbeatOutcome::Alive => due_us(sent_us, rt.limits.heartbeat_ms),
            HeartbeatOutcome::Again => rt.clock.elapsed_us(),
            HeartbeatOutcome::Failed | HeartbeatOutcome::Doubtful => {
                due_us(rt.clock.elapsed_us(), rt.limits.heartbeat_ms)
            }
            HeartbeatOutcome::Over => {
                worker.lose_lease(&rt);
                beating = mine.anew();
                continue;
            }
        };
        let wake_us = next_us.min(mine.until_us.unwrap_or(u64::MAX));
        let hurry = worker.hurry.clone();
        // Nothing here keeps the runtime or its standing alive.
        drop((rt, worker));
        tokio::select! {
            sleeping = place.sleep(wake_us) => if !sleeping { return },
            () = hurry.notified() => {}
        }
    }
}

/// The outcome of a heartbeat.
enum HeartbeatOutcome {
    Alive,
    /// It was acknowledged too late to count.
    Again,
    /// The store did not take it; it may take the next.
    Failed,
    /// It was refused, perhaps because of an earlier heartbeat that got no answer.
    Doubtful,
    /// The lease is over.
    Over,
}

impl Beating {
    fn new(id: Arc<str>, before: Option<Arc<str>>) -> Beating {
        Beating { id, before, generation: 0, in_doubt: false, until_us: None }
    }

    /// The changes of a heartbeat. The guard allows no record that others wrote or removed: they took this worker for dead.
    fn beat(&self, live: &LiveRecord) -> Vec<Change> {
        let beat = RecordChange::put(StoreSpace::Worker, &*self.id, live.bytes())
            .guarded(RecordGuard::Generation(self.generation));
        let former = self.before.iter().map(|before| RecordChange::remove(StoreSpace::Worker, &**before));
        // The heartbeat is the last one.
        former.chain([beat]).map(Change::from).collect()
    }

    /// Handles the answer to a heartbeat.
    fn heard(
        &mut self,
        rt: &Inner,
        worker: &Worker,
        sent_us: u64,
        answered: Option<StoreReply>,
    ) -> HeartbeatOutcome {
        let now_us = rt.clock.elapsed_us();
        match answered.map(|answered| answered.map(|mut receipts| receipts.pop())) {
            Some(Ok(Some(Ok(receipt)))) => {
                (self.generation, self.in_doubt, self.before) = (receipt.generation, false, None);
                let until_us = due_us(sent_us, rt.limits.lease_ms);
                if now_us >= self.until_us.unwrap_or(u64::MAX) {
                    return HeartbeatOutcome::Over;
                }
                if now_us >= until_us {
                    return if self.until_us.is_some() {
                        HeartbeatOutcome::Over
                    } else {
                        HeartbeatOutcome::Again
                    };
                }
                self.until_us = Some(until_us);
                worker.until_us.store(until_us, Ordering::Release);
                HeartbeatOutcome::Alive
            }
            Some(Ok(Some(Err(Refused::Changed { .. })))) if self.in_doubt => HeartbeatOutcome::Doubtful,
            Some(Ok(Some(Err(_)) | None)) => HeartbeatOutcome::Over,
            Some(Err(error)) if self.until_us.is_none_or(|until_us| now_us < until_us) => {
                self.in_doubt = true;
                if self.until_us.is_none() {
                    worker.failed(error);
                }
                HeartbeatOutcome::Failed
            }
            Some(Err(_)) | None => HeartbeatOutcome::Over,
        }
    }

    /// Adopts what was changed for all workers before its record was there: nobody waited for it then. Only after that it may own
    /// sessions. `false`: that cannot be read now.
    async fn stand(&self, rt: &Arc<Inner>, worker: &Worker, wheel: &Wheel) -> bool {
        let adopting = tokio::select! {
            adopted = (rt.plugs.adopt_orders)(rt) => adopted,
            () = wheel.until(self.until_us.unwrap_or(0)) => return false,
        };
        match adopting {
            Ok(()) => worker.stands(&self.id),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "what holds for all workers could not be read; it is tried again");
            }
        }
        worker.stands_as(&self.id)
    }

    /// Decides about a heartbeat without an answer by its record: if it is alive, this worker wrote it.
    async fn decide(&mut self, rt: &Inner) -> HeartbeatOutcome {
        match rt.store.record(StoreSpace::Worker.shelf(), &self.id).await {
            Ok(Some(record)) if !is_over(&record) => {
                (self.generation, self.in_doubt) = (record.generation, false);
                HeartbeatOutcome::Again
            }
            Ok(_) => HeartbeatOutcome::Over,
            Err(_) => HeartbeatOutcome::Failed,
        }
    }

    /// This worker without anything, under a fresh id. `None`: there is no randomness for one.
    fn anew(&self) -> Option<Beating> {
        let id = fresh_key().ok()?.into();
        Some(Beating::new(id, Some(self.id.clone())))
    }
}

type StoreReply = Result<Vec<Result<Receipt, Refused>>, StoreError>;
