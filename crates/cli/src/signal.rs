//! `windlass signal`: sends a signal to a call.

use crate::args::Signal;
use crate::door::{At, Door, Way};
use crate::exit::Usage;
use crate::{input, show};
use std::process::ExitCode;
use windlass_server::wire;

pub async fn signal(at: &At, args: Signal) -> anyhow::Result<ExitCode> {
    let payload = input::value("the payload", &args.payload)?;
    let door = Door::look(at).await?;
    // What its tool takes is known to whoever has the tool.
    let Way::Driver(driver) = &door.way else {
        let told = "nobody drives the calls of this folder, so nobody knows which signals they take; start its owner first";
        return Err(Usage(told.to_string()).into());
    };
    let call = door.find(&args.call).await?;
    let signalled = driver.signal(&call, &wire::Signal { name: args.name, payload, key: args.key }).await?;
    match args.json {
        true => show::json(&signalled)?,
        false => show::text("sent; the call receives it once, in its turn")?,
    }
    Ok(ExitCode::SUCCESS)
}
