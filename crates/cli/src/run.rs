//! `windlass run`: a batch from a file.

use crate::args::Run;
use crate::folder::Owned;
use crate::owner::Owner;
use crate::{exit, folder, input, show};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use windlass::core::time::Timestamp;
use windlass::{
    BatchAnswer, BatchError, Clock, Decided, Decision, OpenCall, Progress, Runtime, Submitted, SystemClock,
    fresh_key,
};

pub async fn run((data, owned): (&Path, &mut Owned), args: Run) -> anyhow::Result<ExitCode> {
    let mut batch = input::read(&args.file)?;
    if args.key.is_some() {
        batch.key = args.key;
    }
    if args.new {
        batch.key = Some(fresh_key()?);
    }
    let derived = batch.key.is_none();
    let began = SystemClock::default().now();
    let total = batch.calls.len() as u64;
    let mut owner = Owner::take((data, owned))?;
    let runtime = owner.runtime();
    let settled = async {
        let submitted = runtime.submit(&args.session, batch).await?;
        with_progress(&runtime, submitted, total).await
    };
    let Some(answer) = owner.unless_stopped(settled).await else { return Ok(owner.leave().await) };
    let answer = answer?;
    if args.json {
        show::json(&answer)?;
    } else {
        show::answers(&answer.calls)?;
    }
    if answer.calls.is_empty() {
        eprintln!("windlass: the batch is empty, so there was nothing to run");
    }
    tell_recorded(&answer, began, derived);
    tell_decided(&answer);
    show::warnings(&answer.calls);
    if owner.unless_stopped(folder::finish(&runtime)).await.is_none() {
        return Ok(owner.leave().await);
    }
    owner.close().await;
    Ok(exit::of(&answer.calls))
}

/// Shows how many calls are still open, on a terminal.
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

/// What the running calls say of themselves: the first that says something.
fn words(open: &[OpenCall]) -> String {
    let said = |call: &OpenCall| {
        let progress = call.progress.as_ref().map(Progress::to_string);
        let told: Vec<String> = progress.into_iter().chain(call.status.clone()).collect();
        (!told.is_empty()).then(|| format!("{}: {}", call.id, told.join(", ")))
    };
    open.iter().find_map(said).unwrap_or_default()
}

fn tell_decided(answer: &BatchAnswer) {
    let Some(Decided { siblings, decision, winners }) = &answer.decided else { return };
    let by = if winners.is_empty() { "no call".to_string() } else { winners.join(", ") };
    match decision {
        Decision::Reached => eprintln!("windlass: {siblings} was reached by {by}"),
        Decision::Unreachable => {
            eprintln!("windlass: {siblings} could not be reached any more; succeeded had {by}")
        }
    }
}

fn tell_recorded(answer: &BatchAnswer, began: Timestamp, derived: bool) {
    let known = || answer.calls.iter().filter(|call| call.is_recorded() && !call.is_conflict());
    let recorded = known().filter(|call| show::ended_before(call, began)).count();
    let (key, all) = (&answer.key, answer.calls.len());
    if recorded > 0 {
        let how = if derived { "; --new runs them anew" } else { "" };
        eprintln!(
            "windlass: {recorded} of {all} answers were on record under key {key} and were not run again{how}"
        );
    }
    let open = known().count() - recorded;
    if open > 0 {
        eprintln!(
            "windlass: {open} of {all} calls were left open by an earlier owner and were brought to their end"
        );
    }
}
