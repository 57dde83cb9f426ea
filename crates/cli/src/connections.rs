//! `windlass connections`: reports whether a session is connected to a provider.

use crate::args::Connections;
use crate::door::{At, Door, DoorRoute};
use crate::show;
use serde_json::json;
use std::process::ExitCode;
use windlass::ask::post_connected;

pub async fn connections(at: &At, args: Connections) -> anyhow::Result<ExitCode> {
    let door = Door::change(at).await?;
    let (session, provider) = (&args.session, &args.provider);
    let waiting = match &door.way {
        DoorRoute::Driver(owner) => owner.connect(session, provider, args.connected).await?.waiting,
        DoorRoute::Folder(store) => {
            post_connected(&**store, session, provider, args.connected).await?.waiting
        }
    };
    let left = matches!(door.way, DoorRoute::Folder(_)) && waiting > 0;
    if args.json {
        show::json(&json!({"waiting": waiting, "left_for_next_owner": left}))?;
    } else if waiting == 0 {
        show::text(&format!("no call of session {session} waits for {provider}; nothing changed"))?;
    } else if left {
        show::text(&show::left_for_next(session))?;
    } else {
        let then = if args.connected { "run again" } else { "fail" };
        show::text(&format!("calls that waited for {provider} and {then} now: {waiting}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
