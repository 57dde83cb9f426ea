//! Notifying the owner of a session of messages, and receiving such notifications.

use super::{Worker, WorkerPlace};
use crate::api::error::{Lost, SessionError, chain};
use crate::session::adopting::adopt;
use crate::session::held::due_us;
use crate::session::inner::Inner;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{RecordChange, RecordGuard, RecordPage, StoreSpace, StoredRecord, Wakes};

/// Tells the worker that owns a session that a message waits there. Durable when this returns.
pub(super) async fn knock(rt: &Inner, worker: &str, session: SessionNo) -> Result<(), SessionError> {
    let change = RecordChange::put(StoreSpace::Knock, key(worker, session), []);
    let answers = rt.store.commit(vec![change.into()]).await?;
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(Lost::Refused)?;
    rt.store.wake(&target(worker));
    Ok(())
}

/// The target of wakes that are for this worker.
fn target(worker: &str) -> String {
    format!("worker/{worker}")
}

fn key(worker: &str, session: SessionNo) -> String {
    format!("{worker}/{:016x}", session.0)
}

/// Receives messages for this worker's sessions, until the runtime is gone.
pub(super) async fn keep_hearing(mut place: WorkerPlace) {
    // Under another id it is woken as another.
    let mut listening: Option<(Arc<str>, Wakes)> = None;
    loop {
        let next_us = {
            let Some((rt, worker)) = place.upgrade() else { return };
            let own = worker.id_now();
            if listening.as_ref().map(|(id, _)| id) != own.as_ref() {
                listening = own.map(|own| (own.clone(), rt.store.wakes(&target(&own))));
            }
            if let Err(error) = hear_all(&rt, &worker).await {
                tracing::warn!(error = %chain(&error), "what others have left could not be heard; it is again later");
            }
            due_us(rt.clock.elapsed_us(), rt.limits.knock_ms)
        };
        let is_there = match &mut listening {
            Some((_, wakes)) => place.sleep_or_wake(next_us, wakes).await,
            None => place.sleep(next_us).await,
        };
        if !is_there {
            return;
        }
    }
}

async fn hear_all(rt: &Arc<Inner>, worker: &Worker) -> Result<(), SessionError> {
    let Some(own) = worker.id_now() else { return Ok(()) };
    let prefix = format!("{own}/");
    let (shelf, limit) = (StoreSpace::Knock.shelf(), rt.limits.workers_page);
    let page = RecordPage { shelf, prefix: &prefix, after: None, limit };
    for knock in rt.store.records(page).await? {
        let session = knock.key.strip_prefix(&prefix).and_then(|no| u64::from_str_radix(no, 16).ok());
        if let Some(session) = session {
            hear(rt, SessionNo(session)).await;
        }
        heard(rt, &knock).await?;
    }
    Ok(())
}

/// Adopts the messages of a session. The next owner adopts them too, so there is nothing to do if the session has moved.
async fn hear(rt: &Arc<Inner>, session: SessionNo) {
    let adopted = match rt.session_by_no(session).await {
        Ok(session) => adopt(rt, &session).await,
        Err(error) => Err(error),
    };
    match adopted {
        Ok(()) | Err(SessionError::Owned { .. } | SessionError::Lost(_)) => {}
        Err(error) => {
            tracing::error!(%session, error = %chain(&error), "a message for a session is not taken");
        }
    }
}

/// Removes a knock, unless there was another one meanwhile.
async fn heard(rt: &Inner, knock: &StoredRecord) -> Result<(), SessionError> {
    let change = RecordChange::remove(StoreSpace::Knock, knock.key.as_str())
        .guarded(RecordGuard::Generation(knock.generation));
    let _told = rt.store.commit(vec![change.into()]).await?;
    Ok(())
}
