//! `windlass complete`: answers what a call waits for.

use crate::args::Complete;
use crate::door::{At, Door, Way};
use crate::{input, show};
use std::process::ExitCode;
use windlass::SystemClock;
use windlass::ask::{completion, post_client_result, post_complete};
use windlass_server::wire;

pub async fn complete(at: &At, args: Complete) -> anyhow::Result<ExitCode> {
    let answer = answer(&args)?;
    let door = Door::change(at).await?;
    let key = args.key.as_deref().unwrap_or_default();
    let call = match &args.call {
        Some(call) => Some(door.find(call).await?),
        None => None,
    };
    let left_for = match (&door.way, &call) {
        (Way::Driver(owner), Some(call)) => {
            owner.client_result(call, &answer).await?;
            None
        }
        (Way::Driver(owner), None) => {
            owner.complete(key, &answer).await?;
            None
        }
        (Way::Folder(store), _) => {
            let completion = completion(&answer.said()?)?;
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

fn answer(args: &Complete) -> anyhow::Result<wire::Complete> {
    let ok = args.ok.as_deref().map(|text| input::value("--ok", text)).transpose()?;
    let error = args.error.clone().zip(args.message.clone());
    let error = error.map(|(code, message)| wire::CompleteError { code, message });
    Ok(wire::Complete { ok, error, cancelled: args.cancelled })
}
