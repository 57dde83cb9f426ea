//! `windlass answer`: answers a question that a call asks.

use crate::args::Answer;
use crate::door::Door;
use crate::{input, show};
use std::path::Path;
use std::process::ExitCode;
use windlass::SystemClock;
use windlass::ask::post_answer;

pub async fn answer(data: &Path, args: Answer) -> anyhow::Result<ExitCode> {
    let answer = input::value("the answer", &args.answer)?;
    let door = Door::change(data).await?;
    let id = door.find_question(&args.id).await?;
    let left_for = match &door.owner {
        Some(owner) => {
            owner.answer(&id, answer).await?;
            None
        }
        None => Some(post_answer(&*door.store, &id, &answer, &SystemClock::default()).await?.name),
    };
    show::completed(left_for.as_deref(), args.json)?;
    Ok(ExitCode::SUCCESS)
}
