//! `windlass run`: a batch from a file.

use crate::args::RunArgs;
use crate::door::At;
use crate::driver::{self, BatchOutcome};
use crate::folder::Owned;
use crate::{exit, folder, input, show, turn};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use windlass::batch::{Siblings, fresh_key};
use windlass::inspect::OpenCall;
use windlass::time::{Clock, SystemClock};
use windlass::tool::Progress;
use windlass::{BatchAnswer, BatchError, BatchRequest, Runtime, Submitted};
use windlass_core::time::Timestamp;
use windlass_server::access::Caller;

pub async fn run(at: &At, owned: &mut Owned, args: RunArgs) -> anyhow::Result<ExitCode> {
    if let Some(wire) = args.wire {
        return turn::run(at, owned, args, wire.into()).await;
    }
    let mut batch = input::read(&args.file)?;
    if args.key.is_some() {
        batch.key = args.key;
    }
    if args.new {
        batch.key = Some(fresh_key()?);
    }
    let derived = batch.key.is_none();
    let mut owner = match driver::drive(at, owned, &args.session, &mut batch).await? {
        BatchOutcome::Own(owner) => *owner,
        BatchOutcome::Left(code) => return Ok(code),
        BatchOutcome::Answered(answer) => {
            print(&answer, &answer, args.json)?;
            let recorded = answer["recorded"].as_u64().unwrap_or(0);
            tell(at, &answer, OnRecord { answered: recorded, open: 0 }, derived);
            return Ok(exit::of(show::calls(&answer)));
        }
    };
    let began = SystemClock::default().now();
    let total = batch.calls.len() as u64;
    let (api, runtime) = (owner.api().clone(), owner.runtime());
    let batch = batch.request(runtime.limits())?;
    let settled = async {
        api.claim(&Caller::local(), &args.session).await?;
        let submitted = runtime.submit(&args.session, batch.clone()).await?;
        anyhow::Ok(with_progress(&runtime, submitted, total).await?)
    };
    let Some(answer) = owner.unless_stopped(settled).await else { return Ok(owner.leave().await) };
    let answer = answer?;
    let shown = serde_json::to_value(&answer)?;
    print(&shown, &answer, args.json)?;
    tell(at, &shown, recorded(&answer, began), derived);
    show::inside(&answer.calls);
    let has_tasks = answer.calls.iter().any(|call| call.is_task());
    if has_tasks && args.no_wait {
        return Ok(owner.leave().await);
    }
    if owner.unless_stopped(folder::finish(&runtime)).await.is_none() {
        return Ok(owner.leave().await);
    }
    let mut shown = shown;
    if has_tasks {
        let again = BatchRequest { key: Some(answer.key.to_string()), ..batch };
        let ended = runtime.submit(&args.session, again).await?.settled().await?;
        show::tasks(&ended.calls);
        shown = serde_json::to_value(&ended)?;
    }
    drop((api, runtime));
    owner.close().await;
    Ok(exit::of(show::calls(&shown)))
}

/// Shows the number of open calls, on a terminal.
async fn with_progress(
    runtime: &Runtime,
    submitted: Submitted,
    total: u64,
) -> Result<BatchAnswer, BatchError> {
    if !std::io::stderr().is_terminal() {
        return submitted.settled().await;
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} calls  {elapsed}  {msg}");
    let bar = ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let settled = submitted.settled();
    tokio::pin!(settled);
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            answer = &mut settled => {
                bar.finish_and_clear();
                return answer;
            }
            _ = tick.tick() => {
                bar.set_position(total.saturating_sub(runtime.open_calls()));
                bar.set_message(words(&runtime.live()));
            }
        }
    }
}

/// The first status message among the running calls.
fn words(open: &[OpenCall]) -> String {
    let said = |call: &OpenCall| {
        let progress = call.progress.as_ref().map(Progress::to_string);
        let told: Vec<String> = progress.into_iter().chain(call.status.clone()).collect();
        (!told.is_empty()).then(|| show::line(&format!("{}: {}", call.id, told.join(", "))))
    };
    open.iter().find_map(said).unwrap_or_default()
}

fn print(answer: &Value, whole: &impl Serialize, as_json: bool) -> anyhow::Result<()> {
    let calls = show::calls(answer);
    if as_json {
        show::json(whole)?;
    } else {
        show::answers(calls)?;
    }
    if calls.is_empty() {
        crate::logs::tell!("the batch is empty; nothing to run");
    }
    Ok(())
}

/// Reports facts that the answers do not show.
fn tell(at: &At, answer: &Value, recorded: OnRecord, derived: bool) {
    tell_recorded(answer, recorded, derived);
    tell_decided(&answer["decided"]);
    show::unknown(show::calls(answer), at);
}

fn tell_decided(decided: &Value) {
    let Ok(siblings) = serde_json::from_value::<Siblings>(decided["siblings"].clone()) else { return };
    let winners: Vec<&str> =
        decided["winners"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let by = if winners.is_empty() { "no call".to_string() } else { winners.join(", ") };
    match decided["decision"].as_str() {
        Some("reached") => crate::logs::tell!("{siblings} was reached by {by}"),
        _ => crate::logs::tell!("{siblings} could not be reached any more; succeeded had {by}"),
    }
}

/// The calls of a batch that were recorded before this command began.
#[derive(Clone, Copy)]
struct OnRecord {
    /// So many were answered.
    answered: u64,
    /// So many were left open by an earlier owner.
    open: u64,
}

fn recorded(answer: &BatchAnswer, began: Timestamp) -> OnRecord {
    let known = || answer.calls.iter().filter(|call| call.is_recorded() && !call.is_conflict());
    let answered = known().filter(|call| show::ended_before(call, began)).count() as u64;
    OnRecord { answered, open: known().count() as u64 - answered }
}

fn tell_recorded(answer: &Value, OnRecord { answered, open }: OnRecord, derived: bool) {
    let (key, all) = (answer["key"].as_str().unwrap_or_default(), show::calls(answer).len());
    if answered > 0 {
        let how = if derived { "; --new runs them again" } else { "" };
        crate::logs::tell!(
            "{answered} of {all} answers were recorded under key {key} and did not run again{how}"
        );
    }
    if open > 0 {
        crate::logs::tell!(
            "{open} of {all} calls were left open by an earlier owner and were brought to their end"
        );
    }
}
