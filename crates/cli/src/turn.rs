//! `windlass run --wire`: the calls of a model provider's response, and the messages to append.

use crate::args::RunArgs;
use crate::door::{At, DoorReach, driver_or};
use crate::folder::Owned;
use crate::owner::RuntimeOwner;
use crate::{exit, folder, input, show};
use serde_json::json;
use std::process::ExitCode;
use windlass::batch::fresh_key;
use windlass_server::access::Caller;
use windlass_server::client::Client;
use windlass_server::turns::TurnPost;
use windlass_server::wire::AnswerWait;
use windlass_server::wire::turns::{BatchQuery, TurnAnswer, TurnCall, WireName};

/// How long one request waits for calls before it is sent again; its key makes that safe.
const WAIT_MS: u64 = 30_000;

pub async fn run(at: &At, owned: &mut Owned, args: RunArgs, wire: WireName) -> anyhow::Result<ExitCode> {
    let response = input::text(&args.file)?;
    let key = if args.new { Some(fresh_key()?) } else { args.key };
    let (wait, timeout_ms) = (Some(AnswerWait::Settled), Some(WAIT_MS));
    let query = BatchQuery { wire: Some(wire), turn: args.turn, key, wait, timeout_ms };
    let reached = driver_or(at, async || RuntimeOwner::take(at, &mut *owned).await).await?;
    let mut owner = match reached {
        DoorReach::Driver(driver) => {
            let answer = ask(&driver, &args.session, &query, &response).await?;
            return print(&answer, args.json);
        }
        DoorReach::Own(owner) => owner,
    };
    let (api, runtime) = (owner.api().clone(), owner.runtime());
    let answered = async {
        api.claim(&Caller::local(), &args.session).await?;
        loop {
            let post = TurnPost::new(&api, &args.session, wire.into(), query.clone())?;
            let answer = post.answer(&api, &response).await?;
            if is_answered(&answer) {
                return anyhow::Ok(answer);
            }
        }
    };
    let Some(answer) = owner.unless_stopped(answered).await else { return Ok(owner.leave().await) };
    let code = print(&answer?, args.json)?;
    if !args.no_wait && owner.unless_stopped(folder::finish(&runtime)).await.is_none() {
        return Ok(owner.leave().await);
    }
    drop((api, runtime));
    owner.close().await;
    Ok(code)
}

/// Posts the response until all calls are over or continue as tasks.
async fn ask(
    driver: &Client,
    session: &str,
    query: &BatchQuery,
    response: &str,
) -> anyhow::Result<TurnAnswer> {
    loop {
        let answer = driver.submit_response(session, query, response).await?;
        if is_answered(&answer) {
            return Ok(answer);
        }
    }
}

fn is_answered(answer: &TurnAnswer) -> bool {
    answer.calls.iter().all(|call| call.is_over() || call.task.is_some())
}

/// Prints the messages, one per line, or the whole answer.
fn print(answer: &TurnAnswer, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        show::json(answer)?;
    } else {
        answer.messages.iter().try_for_each(|message| show::text(message.get()))?;
    }
    let outcome = |call: &TurnCall| call.is_over().then(|| json!({"failure": {"code": call.code}}));
    let ended = |call: &TurnCall| json!({"state": call.state, "outcome": outcome(call)});
    Ok(exit::of(&answer.calls.iter().map(ended).collect::<Vec<_>>()))
}
