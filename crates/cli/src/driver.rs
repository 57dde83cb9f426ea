//! A batch that another process drives: the folder's owner, or a server. The batch is sent again until it is
//! over; its key makes that safe.

use crate::door::{At, DoorReach, driver_or};
use crate::folder::Owned;
use crate::owner::{RuntimeOwner, tell_waiting_for};
use crate::show;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use windlass::batch::fresh_key;
use windlass_server::ProblemCode;
use windlass_server::client::{Client, ClientError};
use windlass_server::wire::{AnswerWait, BatchBody};

/// How long one request waits for calls before the driver is asked again.
const WAIT_MS: u64 = 30_000;
/// An owner may exit just when it is asked; then this command becomes the owner, or asks the next one. This
/// is how long the exit may take.
const GONE_WAIT: Duration = Duration::from_secs(60);
const GONE_LOOKS_EVERY: Duration = Duration::from_millis(50);

/// The outcome of a batch.
pub enum BatchOutcome {
    /// No process drives the folder: this command must.
    Own(Box<RuntimeOwner>),
    /// Another process has driven the batch to its end.
    Answered(Value),
    /// The batch was left running.
    Left(ExitCode),
}

/// Has a batch driven by the current driver; without one, this command becomes the owner.
pub async fn drive(
    at: &At,
    owned: &mut Owned,
    session: &str,
    batch: &mut BatchBody,
) -> anyhow::Result<BatchOutcome> {
    // Sent twice it must be one batch, so a key that cannot be derived is generated here.
    if batch.key.is_none() && batch.calls.iter().any(|call| call.id.is_none()) {
        batch.key = Some(fresh_key()?);
    }
    let mut gone_since = None;
    loop {
        let reached = driver_or(at, async || RuntimeOwner::take(at, &mut *owned).await).await?;
        let driver = match reached {
            DoorReach::Own(owner) => return Ok(BatchOutcome::Own(Box::new(owner))),
            DoorReach::Driver(driver) => driver,
        };
        match ask(&driver, &at.options(), session, batch).await {
            Err(error) if at.server.is_none() && went_away(&error) => {
                if gone_since.get_or_insert_with(Instant::now).elapsed() > GONE_WAIT {
                    return Err(error.into());
                }
                tokio::time::sleep(GONE_LOOKS_EVERY).await;
            }
            Err(error) => return Err(error.into()),
            Ok(Some(answer)) => return Ok(BatchOutcome::Answered(answer)),
            Ok(None) => {
                let options = at.options();
                crate::logs::tell!(
                    "the calls continue there; `windlass calls --state open{options}` shows them"
                );
                return Ok(BatchOutcome::Left(crate::exit::open()));
            }
        }
    }
}

/// Whether the driver has exited, or is about to.
fn went_away(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem(problem) => problem.code == ProblemCode::Draining,
        ClientError::Garbled { .. } | ClientError::NoAddress { .. } => false,
    }
}

/// Asks until all calls are over or continue as tasks. `None`: a signal came first.
async fn ask(
    driver: &Client,
    options: &str,
    session: &str,
    batch: &mut BatchBody,
) -> Result<Option<Value>, ClientError> {
    // The API takes no empty batch, and there is nothing to drive.
    if batch.calls.is_empty() {
        return Ok(Some(json!({"key": batch.key, "calls": []})));
    }
    let mut told = HashSet::new();
    // The first request returns early, so that people learn at once what the calls wait for.
    batch.wait = Some(AnswerWait::Inline);
    batch.timeout_ms = Some(WAIT_MS);
    loop {
        let answer = tokio::select! {
            answer = driver.submit(session, batch) => answer?,
            () = told_to_stop() => return Ok(None),
        };
        let calls = show::calls(&answer);
        if calls.iter().all(|call| call.get("outcome").is_some() || call.get("task").is_some()) {
            return Ok(Some(answer));
        }
        for call in calls {
            tell_waiting_for(call, &mut told, options);
        }
        batch.wait = Some(AnswerWait::Settled);
    }
}

async fn told_to_stop() {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    if let (Ok(mut interrupt), Ok(mut terminate)) = signals {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    } else {
        std::future::pending::<()>().await;
    }
}
