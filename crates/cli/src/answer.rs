//! `windlass answer`: answers a question that a call asks.

use crate::args::AnswerArgs;
use crate::door::{At, Door, DoorRoute};
use crate::{folder, input, show};
use std::process::ExitCode;
use windlass::ask::{AnswerRules, post_answer};
use windlass::time::SystemClock;

pub async fn answer(at: &At, args: AnswerArgs) -> anyhow::Result<ExitCode> {
    let limits = folder::limits(at)?;
    let answer = input::value("the answer", &args.answer, &limits)?;
    let door = Door::change(at).await?;
    let id = door.find_question(&args.id).await?;
    let left_for = match &door.way {
        DoorRoute::Driver(owner) => {
            owner.answer(&id, answer).await?;
            None
        }
        DoorRoute::Folder(store) => {
            let by = AnswerRules { clock: &SystemClock::default(), limits: &limits };
            Some(post_answer(&**store, &id, &answer, by).await?.name)
        }
    };
    show::completed(left_for.as_deref(), args.json)?;
    Ok(ExitCode::SUCCESS)
}
