//! `windlass resolve`: says whether a call that is unknown took effect.

use crate::args::Resolve;
use crate::door::{At, Door, Way};
use crate::folder::Owned;
use crate::owner::Owner;
use crate::{folder, input, show};
use serde_json::Value;
use std::process::ExitCode;
use windlass::Resolution;
use windlass::ask::post_resolve;
use windlass_server::view::View;
use windlass_server::wire;

pub async fn resolve((at, owned): (&At, &mut Owned), args: Resolve) -> anyhow::Result<ExitCode> {
    let landed = args.landed.as_deref().map(|text| input::value("--landed", text)).transpose()?;
    let door = Door::change(at).await?;
    let call = door.find(&args.call).await?;
    let store = match &door.way {
        Way::Folder(store) => store.clone(),
        Way::Driver(owner) => {
            let said = wire::Resolve { landed, did_not_happen: args.did_not_happen, ask_tool: args.ask_tool };
            return tell(&owner.resolve(&call, &said).await?, &args);
        }
    };
    if args.ask_tool {
        drop((store, door));
        return ask_tool((at, owned), &call, &args).await;
    }
    let resolution = landed.map_or(Resolution::DidNotHappen, Resolution::Landed);
    post_resolve(&*store, &call, &resolution).await?;
    show::left(&door.call(&call, false).await?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Only a process that has the tool can ask it, and where there is none, this becomes one: it owns the folder, and goes
/// on with what is open in the call's session.
async fn ask_tool((at, owned): (&At, &mut Owned), call: &str, args: &Resolve) -> anyhow::Result<ExitCode> {
    let mut owner = Owner::take((at, owned)).await?;
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
