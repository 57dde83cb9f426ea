//! A batch that somebody else drives: the folder's owner, or a server. It is sent again until it is over; under its key that
//! is always the same batch.

use crate::door::{At, Reached, driver_or};
use crate::folder::Owned;
use crate::owner::{Owner, tell_waiting_for};
use crate::show;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use windlass::fresh_key;
use windlass_server::client::{Client, ClientError};
use windlass_server::wire::{Batch, Wait};

/// How long the driver is asked to wait for calls before it is asked again.
const WAIT_MS: u64 = 30_000;
/// An owner may end just when it is asked, and then this command is the next, or asks the next. For so long it may take to
/// end.
const GONE_WAIT: Duration = Duration::from_secs(60);
const GONE_LOOKS_EVERY: Duration = Duration::from_millis(50);

/// What became of a batch.
pub enum Driven {
    /// Nobody drives the folder: this command is to.
    Own(Box<Owner>),
    /// Somebody else has driven it to its end.
    Answered(Value),
    /// It was left under way.
    Left(ExitCode),
}

/// Has a batch driven by whoever drives calls there; if nobody does, this command becomes the owner.
pub async fn drive(
    (at, owned): (&At, &mut Owned),
    session: &str,
    batch: &mut Batch,
) -> anyhow::Result<Driven> {
    // Sent twice it must be one batch, so what could not be derived is made here.
    if batch.key.is_none() && batch.calls.iter().any(|call| call.id.is_none()) {
        batch.key = Some(fresh_key()?);
    }
    let mut gone_since = None;
    loop {
        let reached = driver_or(at, async || Owner::take((at, &mut *owned)).await).await?;
        let driver = match reached {
            Reached::Own(owner) => return Ok(Driven::Own(Box::new(owner))),
            Reached::Driver(driver) => driver,
        };
        match ask(&driver, session, batch).await {
            Err(error) if at.server.is_none() && went_away(&error) => {
                if gone_since.get_or_insert_with(Instant::now).elapsed() > GONE_WAIT {
                    return Err(error.into());
                }
                tokio::time::sleep(GONE_LOOKS_EVERY).await;
            }
            Err(error) => return Err(error.into()),
            Ok(Some(answer)) => return Ok(Driven::Answered(answer)),
            Ok(None) => {
                eprintln!("windlass: the calls go on there; `windlass calls --state open` shows them");
                return Ok(Driven::Left(crate::exit::open()));
            }
        }
    }
}

/// Whoever was asked has ended, or is about to.
fn went_away(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem(problem) => problem.code == "draining",
        ClientError::Garbled { .. } | ClientError::NoAddress { .. } => false,
    }
}

/// Asks until all calls are over or go on as tasks. `None`: a signal came before.
async fn ask(driver: &Client, session: &str, batch: &mut Batch) -> Result<Option<Value>, ClientError> {
    // The API takes none of these, and there is nothing to be driven.
    if batch.calls.is_empty() {
        return Ok(Some(json!({"key": batch.key, "calls": []})));
    }
    let mut told = HashSet::new();
    // First as far as it gets by itself: people are told at once for what it waits.
    batch.wait = Some(Wait::Inline);
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
            tell_waiting_for(call, &mut told);
        }
        batch.wait = Some(Wait::Settled);
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
