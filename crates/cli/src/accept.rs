//! `windlass accept`: lets a call continue although its tool has changed.

use crate::args::Accept;
use crate::door::{At, Door, DoorRoute};
use crate::show;
use std::process::ExitCode;
use windlass::ask::post_accept;

pub async fn accept(at: &At, args: Accept) -> anyhow::Result<ExitCode> {
    let door = Door::change(at).await?;
    let call = door.find(&args.call).await?;
    match &door.way {
        DoorRoute::Driver(owner) => {
            let shown = owner.accept(&call).await?;
            match args.json {
                true => show::json(&shown)?,
                false => show::text("accepted; the call continues with the changed tool")?,
            }
        }
        DoorRoute::Folder(store) => {
            post_accept(&**store, &call).await?;
            show::left(&door.call(&call, false).await?, args.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
