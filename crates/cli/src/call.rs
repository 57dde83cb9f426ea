//! `windlass call`: one call.

use crate::args::Call;
use crate::door::At;
use crate::driver::{self, Driven};
use crate::folder::Owned;
use crate::{exit, folder, show};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::process::ExitCode;
use windlass::{BatchRequest, Clock, SystemClock};
use windlass_server::access::Caller;
use windlass_server::wire::{Batch, batch};

pub async fn call((at, owned): (&At, &mut Owned), args: Call) -> anyhow::Result<ExitCode> {
    let key = args.id.as_ref().map(|id| format!("call:{id}"));
    // As the raw text of a model: what is wrong with it is the call's own failure.
    let written = Some(to_raw_value(&args.args)?);
    let call = batch::Call { id: args.id, tool: args.tool, args: written, ..batch::Call::default() };
    let mut batch = Batch { key, calls: vec![call], ..Batch::default() };
    let mut owner = match driver::drive((at, owned), &args.session, &mut batch).await? {
        Driven::Own(owner) => *owner,
        Driven::Left(code) => return Ok(code),
        Driven::Answered(answer) => {
            print(&answer, (show::calls(&answer), args.json), answer["recorded"].is_number())?;
            return Ok(exit::of(show::calls(&answer)));
        }
    };
    let began = SystemClock::default().now();
    let (api, runtime) = (owner.api().clone(), owner.runtime());
    let batch = batch.request(runtime.limits())?;
    let settled = async {
        api.claim(&Caller::local(), &args.session).await?;
        anyhow::Ok(runtime.submit(&args.session, batch.clone()).await?.settled().await?)
    };
    let Some(answer) = owner.unless_stopped(settled).await else { return Ok(owner.leave().await) };
    let answer = answer?;
    let shown = serde_json::to_value(&answer)?;
    let before = |call: &windlass::CallAnswer| {
        call.is_recorded() && !call.is_conflict() && show::ended_before(call, began)
    };
    print(&shown, (&answer.calls, args.json), answer.calls.iter().any(before))?;
    show::inside(&answer.calls);
    if owner.unless_stopped(folder::finish(&runtime)).await.is_none() {
        return Ok(owner.leave().await);
    }
    let mut shown = shown;
    if answer.calls.iter().any(|call| call.is_task()) {
        let again = BatchRequest { key: Some(answer.key.to_string()), ..batch };
        let ended = runtime.submit(&args.session, again).await?.settled().await?;
        show::tasks(&ended.calls);
        shown = serde_json::to_value(&ended)?;
    }
    drop((api, runtime));
    owner.close().await;
    Ok(exit::of(show::calls(&shown)))
}

fn print(answer: &Value, (whole, as_json): (&[impl Serialize], bool), recorded: bool) -> anyhow::Result<()> {
    let calls = show::calls(answer);
    for (call, whole) in calls.iter().zip(whole) {
        match as_json {
            true => show::json(whole)?,
            false => show::text(&show::model_text(call))?,
        }
    }
    if recorded {
        eprintln!("windlass: this answer was on record; the tool was not run again");
    }
    show::unknown(calls);
    Ok(())
}
