//! `windlass answer`: answers a question that a call asks.

use crate::args::Answer;
use crate::door::{At, Door, Way};
use crate::{input, show};
use std::process::ExitCode;
use windlass::SystemClock;
use windlass::ask::post_answer;

pub async fn answer(at: &At, args: Answer) -> anyhow::Result<ExitCode> {
    let answer = input::value("the answer", &args.answer)?;
    let door = Door::change(at).await?;
    let id = door.find_question(&args.id).await?;
    let left_for = match &door.way {
        Way::Driver(owner) => {
            owner.answer(&id, answer).await?;
            None
        }
        Way::Folder(store) => Some(post_answer(&**store, &id, &answer, &SystemClock::default()).await?.name),
    };
    show::completed(left_for.as_deref(), args.json)?;
    Ok(ExitCode::SUCCESS)
}
