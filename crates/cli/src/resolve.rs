//! `windlass resolve`: says whether a call that is unknown took effect.

use crate::args::Resolve;
use crate::door::Door;
use crate::folder::Owned;
use crate::owner::Owner;
use crate::{folder, input, show};
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use windlass::Resolution;
use windlass::ask::post_resolve;
use windlass_server::view::View;
use windlass_server::wire;

pub async fn resolve((data, owned): (&Path, &mut Owned), args: Resolve) -> anyhow::Result<ExitCode> {
    let landed = args.landed.as_deref().map(|text| input::value("--landed", text)).transpose()?;
    let door = Door::change(data).await?;
    let call = door.find(&args.call).await?;
    if let Some(owner) = &door.owner {
        let said = wire::Resolve { landed, did_not_happen: args.did_not_happen, ask_tool: args.ask_tool };
        return tell(&owner.resolve(&call, &said).await?, &args);
    }
    if args.ask_tool {
        drop(door);
        return ask_tool((data, owned), &call, &args).await;
    }
    let resolution = landed.map_or(Resolution::DidNotHappen, Resolution::Landed);
    post_resolve(&*door.store, &call, &resolution).await?;
    show::left(&door.call(&call, false).await?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Only a process that has the tool can ask it, and where there is none, this becomes one: it owns the folder, and goes
/// on with what is open in the call's session.
async fn ask_tool(
    (data, owned): (&Path, &mut Owned),
    call: &str,
    args: &Resolve,
) -> anyhow::Result<ExitCode> {
    let mut owner = Owner::take((data, owned))?;
    let runtime = owner.runtime();
    let asking = async {
        runtime.reconcile(call).await?;
        let call = View::of(&runtime).show(call, false).await?;
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

fn tell(call: &Value, args: &Resolve) -> anyhow::Result<ExitCode> {
    if args.json {
        show::json(call)?;
    } else {
        let state = call["state"].as_str().unwrap_or_default();
        show::text(&format!("the call is {state} now; whoever submits it again gets that answer"))?;
    }
    Ok(ExitCode::SUCCESS)
}
