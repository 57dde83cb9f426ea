//! `windlass resolve`: decides whether a call in state unknown took effect.

use crate::args::ResolveArgs;
use crate::door::{At, Door, DoorRoute};
use crate::folder::Owned;
use crate::owner::RuntimeOwner;
use crate::{folder, input, show};
use serde_json::Value;
use std::process::ExitCode;
use windlass::ask::{Resolution, post_resolve};
use windlass_server::view::View;
use windlass_server::wire;

pub async fn resolve(at: &At, owned: &mut Owned, args: ResolveArgs) -> anyhow::Result<ExitCode> {
    let limits = folder::limits(at)?;
    let landed = args.landed.as_deref().map(|text| input::value("--landed", text, &limits)).transpose()?;
    let door = Door::change(at).await?;
    let call = door.find(&args.call).await?;
    let store = match &door.way {
        DoorRoute::Folder(store) => store.clone(),
        DoorRoute::Driver(owner) => {
            let said =
                wire::ResolveBody { landed, did_not_happen: args.did_not_happen, ask_tool: args.ask_tool };
            return tell(&owner.resolve(&call, &said).await?, &args);
        }
    };
    if args.ask_tool {
        drop((store, door));
        return ask_tool(at, owned, &call, &args).await;
    }
    let resolution = landed.map_or(Resolution::DidNotHappen, Resolution::Landed);
    post_resolve(&*store, &call, &resolution, &limits).await?;
    show::left(&door.call(&call, false).await?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the tool. Only a process with the tool can, so without an owner this command becomes one: it owns the
/// folder and continues the open calls of the call's session.
async fn ask_tool(at: &At, owned: &mut Owned, call: &str, args: &ResolveArgs) -> anyhow::Result<ExitCode> {
    let mut owner = RuntimeOwner::take(at, owned).await?;
    let runtime = owner.runtime();
    let asking = async {
        runtime.reconcile(call).await?;
        let call = View::of(&runtime).show(call, wire::Show::default()).await?.to_value();
        let code = tell(&call, args)?;
        folder::finish(&runtime).await;
        anyhow::Ok(code)
    };
    match owner.unless_stopped(asking).await {
        Some(code) => {
            owner.close().await;
            code
        }
        None => Ok(owner.leave().await),
    }
}

fn tell(call: &Value, args: &ResolveArgs) -> anyhow::Result<ExitCode> {
    if args.json {
        show::json(call)?;
    } else {
        let state = call["state"].as_str().unwrap_or_default();
        show::text(&format!("the call is {state} now; submitting it again returns that answer"))?;
    }
    Ok(ExitCode::SUCCESS)
}
