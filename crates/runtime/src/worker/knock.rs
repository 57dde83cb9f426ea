//! Telling the owner of a session that there is something to hear, and hearing it.

use super::{Place, sleep};
use crate::ask;
use crate::error::{BatchError, Lost, chain};
use crate::held::due_us;
use crate::runtime::Inner;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{Change, Guard, Hold, Record, RecordPage, Row, STORE, Space};

/// Tells the worker that owns a session that a message waits there. Durable when this returns.
pub(crate) async fn knock(rt: &Inner, worker: &str, session: SessionNo) -> Result<(), BatchError> {
    let row = Row::Put { space: Space::Knock, key: key(worker, session), value: Arc::from([]) };
    let change = Change { session: STORE, hold: Hold::Store, guards: Vec::new(), rows: vec![row] };
    let answers = rt.store.commit(vec![change]).await?;
    answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(Lost::Refused)?;
    Ok(())
}

fn key(worker: &str, session: SessionNo) -> String {
    format!("{worker}/{:016x}", session.0)
}

/// Hears what others have left for sessions of this worker, until the runtime is gone.
pub(super) async fn keep_hearing(mut place: Place) {
    loop {
        let next_us = {
            let Some(rt) = place.0.upgrade() else { return };
            if let Err(error) = hear_all(&rt).await {
                tracing::warn!(error = %chain(&error), "what others have left could not be heard; it is again later");
            }
            due_us(rt.clock.elapsed_us(), rt.limits.knock_ms)
        };
        if !sleep(&mut place, next_us).await {
            return;
        }
    }
}

async fn hear_all(rt: &Arc<Inner>) -> Result<(), BatchError> {
    let Some(own) = rt.worker.as_ref().and_then(|worker| worker.id_now()) else { return Ok(()) };
    let prefix = format!("{own}/");
    let (session, space, limit) = (STORE, Space::Knock, rt.limits.workers_page);
    let page = RecordPage { session, space, prefix: &prefix, after: None, limit };
    for knock in rt.store.records(page).await? {
        let session = knock.key.strip_prefix(&prefix).and_then(|no| u64::from_str_radix(no, 16).ok());
        if let Some(session) = session {
            hear(rt, SessionNo(session)).await;
        }
        heard(rt, &knock).await?;
    }
    Ok(())
}

/// Takes what waits for a session. Whoever takes a session hears it too, so there is nothing to do if it is another's by now.
async fn hear(rt: &Arc<Inner>, session: SessionNo) {
    let adopted = match rt.session_by_no(session).await {
        Ok(session) => ask::adopt(rt, &session).await,
        Err(error) => Err(error),
    };
    match adopted {
        Ok(()) | Err(BatchError::Owned { .. } | BatchError::Lost(_)) => {}
        Err(error) => {
            tracing::error!(%session, error = %chain(&error), "a message for a session is not taken");
        }
    }
}

/// Forgets a knock, unless somebody knocked again meanwhile.
async fn heard(rt: &Inner, knock: &Record) -> Result<(), BatchError> {
    let (space, key) = (Space::Knock, knock.key.clone());
    let guards = vec![Guard::Generation { space, key: key.clone(), is: knock.generation }];
    let change = Change { session: STORE, hold: Hold::Store, guards, rows: vec![Row::Remove { space, key }] };
    let _told = rt.store.commit(vec![change]).await?;
    Ok(())
}
