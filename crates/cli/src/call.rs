//! `windlass call`: one call.

use crate::args::CallArgs;
use crate::door::At;
use crate::driver::{self, BatchOutcome};
use crate::folder::Owned;
use crate::{exit, folder, show};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::process::ExitCode;
use windlass::BatchRequest;
use windlass::time::{Clock, SystemClock};
use windlass_server::access::Caller;
use windlass_server::wire::{BatchBody, batch};

pub async fn call(at: &At, owned: &mut Owned, args: CallArgs) -> anyhow::Result<ExitCode> {
    let key = args.id.as_ref().map(|id| format!("call:{id}"));
    // Passed on as a model's raw text: bad JSON is the call's own failure, not a usage error.
    let written = Some(to_raw_value(&args.args)?);
    let call =
        batch::CallBody { id: args.id, tool: Some(args.tool), args: written, ..batch::CallBody::default() };
    let mut batch = BatchBody { key, calls: vec![call], ..BatchBody::default() };
    let mut owner = match driver::drive(at, owned, &args.session, &mut batch).await? {
        BatchOutcome::Own(owner) => *owner,
        BatchOutcome::Left(code) => return Ok(code),
        BatchOutcome::Answered(answer) => {
            print(at, &answer, show::calls(&answer), args.json, answer["recorded"].is_number())?;
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
    print(at, &shown, &answer.calls, args.json, answer.calls.iter().any(before))?;
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

fn print(
    at: &At,
    answer: &Value,
    whole: &[impl Serialize],
    as_json: bool,
    recorded: bool,
) -> anyhow::Result<()> {
    let calls = show::calls(answer);
    for (call, whole) in calls.iter().zip(whole) {
        match as_json {
            true => show::json(whole)?,
            false => show::answer_text(&show::model_text(call))?,
        }
    }
    if recorded {
        crate::logs::tell!("this answer was recorded before; the tool did not run again");
    }
    show::unknown(calls, at);
    Ok(())
}
