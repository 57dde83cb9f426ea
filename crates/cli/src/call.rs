//! `windlass call`: one call.

use crate::args::Call;
use crate::folder::Owned;
use crate::owner::Owner;
use crate::{exit, folder, show};
use std::path::Path;
use std::process::ExitCode;
use windlass::{Args, BatchRequest, CallRequest, Clock, SystemClock};

pub async fn call((data, owned): (&Path, &mut Owned), args: Call) -> anyhow::Result<ExitCode> {
    let key = args.id.as_ref().map(|id| format!("call:{id}"));
    let (tool, text) = (args.tool, Args::Text(args.args));
    let call = CallRequest { id: args.id, tool, args: text, ..CallRequest::default() };
    let began = SystemClock::default().now();
    let mut owner = Owner::take((data, owned))?;
    let runtime = owner.runtime();
    let batch = BatchRequest { key, calls: vec![call], ..BatchRequest::default() };
    let settled = async { runtime.submit(&args.session, batch).await?.settled().await };
    let Some(answer) = owner.unless_stopped(settled).await else { return Ok(owner.leave().await) };
    let answer = answer?;
    let Some(call) = answer.calls.first() else { return Ok(ExitCode::SUCCESS) };
    if args.json {
        show::json(call)?;
    } else {
        show::model(call)?;
    }
    if call.is_recorded() && !call.is_conflict() && show::ended_before(call, began) {
        eprintln!("windlass: this answer was on record; the tool was not run again");
    }
    show::warnings(&answer.calls);
    if owner.unless_stopped(folder::finish(&runtime)).await.is_none() {
        return Ok(owner.leave().await);
    }
    owner.close().await;
    Ok(exit::of(&answer.calls))
}
