//! The other workers: which of them owns a session, and which are alive.

use super::record::LiveRecord;
use super::{Leases, is_over, owner, sweep};
use crate::api::error::SessionError;
use crate::session::inner::Inner;
use crate::session::owners::{OtherWorker, OwnerPlace};
use windlass_store::{StoreSpace, StoredRecord};

impl OtherWorker {
    fn of(record: &StoredRecord) -> OtherWorker {
        let LiveRecord { address, leaving, .. } = LiveRecord::read(&record.value);
        OtherWorker { id: record.key.clone(), address, leaving }
    }
}

/// The owner of a session, as far as this worker can tell without taking it.
pub(super) async fn place(leases: &Leases, rt: &Inner, session: &str) -> Result<OwnerPlace, SessionError> {
    if rt.owned_session(session).is_some_and(|session| session.lane.lost().is_none()) {
        return Ok(OwnerPlace::Here);
    }
    let Some(row) = rt.store.session(session).await? else { return Ok(OwnerPlace::Nobody) };
    let Some(id) = owner(&*rt.store, row.no).await? else { return Ok(OwnerPlace::Nobody) };
    if leases.0.id_now().is_some_and(|own| *own == *id) {
        return Ok(OwnerPlace::Here);
    }
    let record = rt.store.record(StoreSpace::Worker.shelf(), &id).await?;
    let Some(record) = record.filter(|record| !is_over(record)) else { return Ok(OwnerPlace::Nobody) };
    let (now_us, lease_ms) = (rt.clock.elapsed_us(), rt.limits.lease_ms);
    match leases.0.is_silent(&id, record.generation, now_us, lease_ms) {
        true => Ok(OwnerPlace::Nobody),
        false => Ok(OwnerPlace::Other(OtherWorker::of(&record))),
    }
}

/// The other workers that are alive, as far as is known.
pub(super) async fn list(leases: &Leases, rt: &Inner) -> Result<Vec<OtherWorker>, SessionError> {
    let (own, now_us) = (leases.0.id_now(), rt.clock.elapsed_us());
    let mut others = sweep::records(rt).await?;
    others.retain(|record| {
        own.as_deref() != Some(&*record.key)
            && !is_over(record)
            && !leases.0.is_silent(&record.key, record.generation, now_us, rt.limits.lease_ms)
    });
    Ok(others.iter().map(OtherWorker::of).collect())
}
