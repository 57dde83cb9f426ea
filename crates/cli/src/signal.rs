//! `windlass signal`: sends a signal to a call.

use crate::args::SignalArgs;
use crate::door::{At, Door, DoorRoute};
use crate::exit::Usage;
use crate::{folder, input, show};
use std::process::ExitCode;
use windlass_server::wire;

pub async fn signal(at: &At, args: SignalArgs) -> anyhow::Result<ExitCode> {
    let payload = input::value("the payload", &args.payload, &folder::limits(at)?)?;
    let door = Door::look(at).await?;
    // Only a process that has the tool knows its signals.
    let DoorRoute::Driver(driver) = &door.way else {
        let told = "this folder has no owner, so the signals that its calls take are not known; start `windlass serve` first";
        return Err(Usage(told.to_string()).into());
    };
    let call = door.find(&args.call).await?;
    let signalled =
        driver.signal(&call, &wire::SignalBody { name: args.name, payload, key: args.key }).await?;
    match args.json {
        true => show::json(&signalled)?,
        false => show::text("sent; the call receives it once, in order")?,
    }
    Ok(ExitCode::SUCCESS)
}
