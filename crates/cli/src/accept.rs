//! `windlass accept`: lets a call go on although its tool has changed.

use crate::args::Accept;
use crate::door::Door;
use crate::show;
use std::path::Path;
use std::process::ExitCode;
use windlass::ask::post_accept;

pub async fn accept(data: &Path, args: Accept) -> anyhow::Result<ExitCode> {
    let door = Door::change(data).await?;
    let call = door.find(&args.call).await?;
    match &door.owner {
        Some(owner) => {
            let shown = owner.accept(&call).await?;
            match args.json {
                true => show::json(&shown)?,
                false => show::text("accepted; the call goes on under what its tool has become")?,
            }
        }
        None => {
            post_accept(&*door.store, &call).await?;
            show::left(&door.call(&call, false).await?, args.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
