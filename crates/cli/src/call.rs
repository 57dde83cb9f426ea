//! `windlass call`: one call.

use crate::args::Call;
use crate::{exit, folder, show};
use std::path::Path;
use std::process::ExitCode;
use windlass::{Args, BatchRequest, CallRequest, Clock, SystemClock};

pub async fn call(data: &Path, args: Call) -> anyhow::Result<ExitCode> {
    let key = args.id.as_ref().map(|id| format!("call:{id}"));
    let (tool, text) = (args.tool, Args::Text(args.args));
    let call = CallRequest { id: args.id, tool, args: text, ..CallRequest::default() };
    let began = SystemClock::default().now();
    let runtime = folder::own(data)?;
    let batch = BatchRequest { key, calls: vec![call], ..BatchRequest::default() };
    let answer = runtime.submit(&args.session, batch).await?.settled().await?;
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
    folder::finish(&runtime).await;
    Ok(exit::of(&answer.calls))
}
