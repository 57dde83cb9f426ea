//! Sessions that are deleted while calls run in them, while others write to them, and while their owner is killed.
//!
//! Every worker first deletes what the workers before it may have left, then opens sessions of its own and deletes them too. So
//! once the last worker is done nothing of any of them may be left, and none of their names may be used again.

use super::history::WorkerReplies;
use super::tools::World;
use anyhow::{Result, bail};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::error::{Lost, PairError, SessionError};
use windlass::sessions::{SessionOpening, SessionStanding};
use windlass::{BatchError, BatchRequest, CallRequest, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_core::ids::SessionNo;
use windlass_store::{RecordPage, Space, Store};

/// How the names of such sessions begin.
const PREFIX: &str = "doomed-";
/// The principal that opens them, and another one that wants them.
const PRINCIPAL: &str = "alice";
const OTHER: &str = "bob";
/// A call that runs, and a call that hangs until it is cancelled.
const SHORT: &str = "short";
const HANGS: &str = "hangs";
/// How long the short one runs.
const SHORT_FOR: Duration = Duration::from_millis(2);
/// The spaces of what such a session has.
const SPACES: [Space; 5] = [Space::Pair, Space::About, Space::Task, Space::Notice, Space::Removing];

/// Registers the tools that are called in such sessions.
pub fn register(runtime: &Runtime) -> Result<()> {
    let spec = |name: &str| ToolSpec {
        name: name.into(),
        class: Some(EffectClass::Keyed),
        claims: Some(Vec::new()),
        ..ToolSpec::default()
    };
    runtime.register(tool_fn(spec(SHORT), |args, _| async move {
        tokio::time::sleep(SHORT_FOR).await;
        Ok(args.into())
    }))?;
    Ok(runtime.register(tool_fn(spec(HANGS), |_, _| std::future::pending()))?)
}

fn name(worker: u32, number: u64) -> String {
    format!("{PREFIX}{worker}-{number}")
}

/// Deletes what earlier workers may have left, then `count` sessions of this worker.
pub async fn run(runtime: Runtime, world: Arc<World>, worker: u32, count: u64) -> Result<()> {
    for earlier in 1..worker {
        for number in 0..count {
            runtime.remove_session(&name(earlier, number)).await?;
        }
    }
    for number in 0..count {
        delete(&runtime, &world, &name(worker, number)).await?;
    }
    Ok(())
}

async fn delete(runtime: &Runtime, world: &World, session: &str) -> Result<()> {
    let opening = SessionOpening { principal: PRINCIPAL.into(), ..SessionOpening::default() };
    runtime.open_session(session, opening).await?;
    runtime.kv(session).set("first", &json!(1)).await.map_err(batch_error)?;
    runtime.submit(session, batch("first")).await?.admitted().await?;
    world.say(json!({"deleting": session}))?;
    let (removed, wrote) =
        tokio::join!(runtime.remove_session(session), write_until_refused(runtime, session));
    wrote?;
    if !removed? {
        bail!("R26: {session} was there, and was not deleted");
    }
    world.say(json!({"deleted": session}))?;
    let again = runtime.submit(session, batch("first")).await;
    if !matches!(again, Err(BatchError::Session(SessionError::Gone { .. }))) {
        bail!("R26: {session} was deleted, and took the same batch again");
    }
    let opening = SessionOpening { principal: OTHER.into(), ..SessionOpening::default() };
    match runtime.open_session(session, opening).await {
        Err(SessionError::Gone { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(opened) => bail!("R26: {session} was deleted, and is {OTHER}'s now: {opened:?}"),
    }
}

/// Writes pairs and submits batches until the session takes no more.
async fn write_until_refused(runtime: &Runtime, session: &str) -> Result<()> {
    for number in 0_u64.. {
        let set = runtime.kv(session).set(&format!("k{number}"), &json!(number)).await.map_err(batch_error);
        let submitted = runtime.submit(session, batch(&format!("b{number}"))).await.map(drop);
        for written in [set.map(drop), submitted] {
            match written {
                Ok(()) => {}
                Err(BatchError::Session(SessionError::Gone { .. } | SessionError::Lost(Lost::Removed))) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn batch_error(error: PairError) -> BatchError {
    match error {
        PairError::Session(error) => error.into(),
        error @ (PairError::Unfit { .. } | PairError::Full { .. } | PairError::Changed { .. } | _) => {
            BatchError::Shape { what: error.to_string() }
        }
    }
}

fn batch(key: &str) -> BatchRequest {
    let call =
        |tool: &str| CallRequest { id: Some(tool.into()), tool: tool.into(), ..CallRequest::default() };
    BatchRequest { key: Some(key.into()), calls: vec![call(SHORT), call(HANGS)], ..BatchRequest::default() }
}

/// Lists the remains of deleted sessions in a store, and their names that could be used again.
pub async fn problems(store: &dyn Store, told: &[WorkerReplies]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let rows = store.sessions(None, u64::MAX).await?;
    for row in rows.iter().filter(|row| row.name.starts_with(PREFIX)) {
        found.push(format!("R26: the session {} was to be deleted, and is there", row.name));
    }
    for session in told.iter().flat_map(|told| &told.deleted) {
        match SessionStanding::of(store, session).await? {
            SessionStanding::Gone(gone) if gone.was_of(store.secret(), session, PRINCIPAL) => {}
            standing @ (SessionStanding::Gone(_)
            | SessionStanding::Present { .. }
            | SessionStanding::Unused) => {
                found.push(format!("R26: the session {session} was deleted, and its name is {standing:?}"))
            }
        }
    }
    let page =
        |session, space: Space| RecordPage { shelf: space.of(session), prefix: "", after: None, limit: 9 };
    let removing = store.sessions_with(Space::Removing, None, 9).await?;
    found.extend(removing.iter().map(|row| format!("R26: the removal of {} is not finished", row.name)));
    let last = rows.iter().map(|row| row.no.0).max().unwrap_or_default();
    for session in (1..=last).map(SessionNo).filter(|no| rows.iter().all(|row| row.no != *no)) {
        for space in SPACES {
            let left = store.records(page(session, space)).await?;
            found.extend(
                left.iter().map(|left| format!("R26: {space:?} {:?} of session {session} is left", left.key)),
            );
        }
        let left = store.inbound(session, 9).await?;
        found.extend(
            left.iter().map(|left| format!("R26: the message {:?} of session {session} is left", left.key)),
        );
    }
    Ok(found)
}
