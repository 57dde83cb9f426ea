//! `windlass cancel`: asks calls to stop.

use crate::args::CancelArgs;
use crate::door::{At, Door, DoorRoute};
use crate::show;
use serde_json::json;
use std::process::ExitCode;
use windlass::ask::{Target, post_cancel};
use windlass_server::wire::Cancelled;

/// The default session of a batch: that of `windlass run`.
const SESSION: &str = "default";

pub async fn cancel(at: &At, args: CancelArgs) -> anyhow::Result<ExitCode> {
    let door = Door::change(at).await?;
    let call = match &args.call {
        Some(call) => door.find(call).await?,
        None => String::new(),
    };
    let session = args.session.as_deref().unwrap_or(SESSION);
    let target = match (&args.batch, &args.id) {
        (Some(key), Some(id)) => Target::CallOf { session, key, id },
        (Some(key), None) => Target::Batch { session, key },
        (None, _) if args.call.is_some() => Target::Call(&call),
        (None, _) => Target::Session(session),
    };
    let told = match &door.way {
        DoorRoute::Driver(owner) => owner.cancel(target, args.reason.clone()).await?,
        DoorRoute::Folder(store) => {
            let asked = post_cancel(&**store, target, args.reason.as_deref()).await?;
            Cancelled { asked: asked.asked, over: asked.over }
        }
    };
    let left = matches!(door.way, DoorRoute::Folder(_)) && told.asked > 0;
    if args.json {
        show::json(&json!({"asked": told.asked, "over": told.over, "left_for_next_owner": left}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if left {
        let of = match &args.call {
            Some(_) => door.call(&call, false).await?["session"].as_str().unwrap_or(session).to_string(),
            None => session.to_string(),
        };
        show::text(&show::left_for_next(&of))?;
    } else {
        show::text(&words(told, &at.options(), &args))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn words(told: Cancelled, options: &str, args: &CancelArgs) -> String {
    let one = args.call.is_some();
    match told {
        Cancelled { asked: 0, over: 0 } => "there is no call to cancel; nothing changed".to_string(),
        Cancelled { asked: 0, .. } if one => "the call is already over; nothing changed".to_string(),
        Cancelled { asked: 0, over } => {
            format!("no call is open there ({over} already over); nothing changed")
        }
        Cancelled { .. } if one => {
            let call = args.call.as_deref().unwrap_or_default();
            format!(
                "the call was asked to stop; `windlass calls {call} --journal{options}` shows how it ends"
            )
        }
        Cancelled { asked, over } => {
            let rest = if over > 0 {
                format!(" ({over} of the batch or session already over)")
            } else {
                String::new()
            };
            format!("asked to stop: {asked}{rest}; `windlass calls{options}` shows how they end")
        }
    }
}
