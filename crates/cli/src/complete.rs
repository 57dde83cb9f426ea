//! `windlass complete`: completes a call that waits for an external answer.

use crate::args::CompleteArgs;
use crate::door::{At, Door, DoorRoute};
use crate::{folder, input, show};
use anyhow::Context;
use std::process::ExitCode;
use windlass::Limits;
use windlass::ask::{completion, post_client_result, post_complete};
use windlass::time::SystemClock;
use windlass_server::wire;

pub async fn complete(at: &At, args: CompleteArgs) -> anyhow::Result<ExitCode> {
    let limits = folder::limits(at)?;
    let answer = answer(&args, &limits)?;
    let door = Door::change(at).await?;
    let key = args.key.as_deref().unwrap_or_default();
    let call = match &args.call {
        Some(call) => Some(door.find(call).await?),
        None => None,
    };
    let left_for = match (&door.way, &call) {
        (DoorRoute::Driver(owner), Some(call)) => {
            owner.client_result(call, &answer).await?;
            None
        }
        (DoorRoute::Driver(owner), None) => {
            owner.complete(key, &answer).await?;
            None
        }
        (DoorRoute::Folder(store), _) => {
            let completion = completion(&answer.said()?, &limits)?;
            let clock = SystemClock::default();
            let session = match &call {
                Some(call) => post_client_result(&**store, call, &completion, &clock).await?,
                None => post_complete(&**store, key, &completion, &clock).await?,
            };
            Some(session.name)
        }
    };
    show::completed(left_for.as_deref(), args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn answer(args: &CompleteArgs, limits: &Limits) -> anyhow::Result<wire::CompletionBody> {
    let ok = args.ok.as_deref().map(|text| input::value("--ok", text, limits)).transpose()?;
    let parts = args.parts.as_deref().map(|text| input::value("--parts", text, limits)).transpose()?;
    let mut parts: Vec<wire::PartBody> = match parts {
        Some(parts) => serde_json::from_value(parts).context("--parts is no array of parts")?,
        None => Vec::new(),
    };
    let mut raw = args.raw.as_deref().map(|text| input::value("--raw", text, limits)).transpose()?;
    let error = args.error.clone().zip(args.message.clone()).map(|(code, message)| {
        let (parts, raw) = (std::mem::take(&mut parts), raw.take());
        wire::CompleteError { code, message, parts, raw, control: None }
    });
    let (cancelled, timeout) = (args.cancelled, args.timeout);
    Ok(wire::CompletionBody { ok, parts, raw, control: None, error, cancelled, timeout })
}
