//! `windlass complete`: answers what a call waits for.

use crate::args::Complete;
use crate::door::Door;
use crate::{input, show};
use std::path::Path;
use std::process::ExitCode;
use windlass::ask::{completion, post_complete};
use windlass::{Clock, SystemClock};
use windlass_server::wire;

pub async fn complete(data: &Path, args: Complete) -> anyhow::Result<ExitCode> {
    let answer = answer(&args)?;
    let door = Door::change(data).await?;
    let left_for = match &door.owner {
        Some(owner) => {
            owner.complete(&args.key, &answer).await?;
            None
        }
        None => {
            let completion = completion(&answer.said()?)?;
            let now = SystemClock::default().now();
            Some(post_complete(&*door.store, &args.key, &completion, now).await?.name)
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
