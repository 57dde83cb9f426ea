//! The invariants of a store afterwards, whatever happened to it: nothing acknowledged is lost, nothing
//! recorded runs again, no effect is without its intent, and everything comes to an end.

use super::{
    BatchReplyKind, CallReply, ClientReplies, ClientRounds, RunCounts, ScenarioBatch, class, runtime, submit,
};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::EffectClass;
use windlass::store::Store;
use windlass_core::call::Call;

/// The findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ScenarioRemains {
    /// Calls that were acknowledged, and are there.
    pub acknowledged: u64,
    /// Batches that ended in a typed error.
    pub errors: u64,
    /// Calls that were recorded as ended when the store was opened anew.
    pub ended: u64,
    /// Calls that were recorded and open then.
    pub open: u64,
    /// Calls of which it is not known whether they took effect.
    pub unknown: u64,
    /// Runs that were repeated because no end was recorded, as their class allows.
    pub repeated: u64,
}

/// A recorded call.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    pub answer: CallReply,
    pub started: bool,
    pub ended: bool,
}

/// All calls of a store by `session/batch/id`. Every journal row of every session is read and verified.
pub async fn recorded(store: &Arc<dyn Store>) -> anyhow::Result<BTreeMap<String, CheckedCall>> {
    let mut seen = BTreeMap::new();
    for session in store.sessions(None, u64::MAX).await? {
        let calls = windlass::inspect::calls(store, &session, usize::MAX).await;
        for call in calls.with_context(|| format!("session {}", session.name))? {
            let name = format!("{}/{}/{}", call.session, call.batch_key, call.answer.id());
            let folded: &Call = call.answer.call();
            let (started, ended) = (folded.attempts > 0, folded.end().is_some());
            seen.insert(name, CheckedCall { answer: CallReply::of(&call.answer), started, ended });
        }
    }
    Ok(seen)
}

/// Checks what is left, lets a new owner finish the work, and checks that.
pub async fn check(
    store: Arc<dyn Store>,
    work: &[ClientRounds],
    told: &[ClientReplies],
    runs: &RunCounts,
) -> anyhow::Result<ScenarioRemains> {
    let mut left = ScenarioRemains::default();
    // Runs before the record: what ran was recorded before it did.
    let ran = runs.all();
    let before = recorded(&store).await?;
    left.ended = before.values().filter(|call| call.ended).count() as u64;
    left.open = before.len() as u64 - left.ended;
    acknowledged(told, &before, &mut left)?;
    let batches: Vec<&ScenarioBatch> = work.iter().flatten().flatten().collect();
    intents(&batches, &ran, &before)?;

    let owner = runtime(store.clone(), runs)?;
    owner.resume().await.context("could not take over what was left")?;
    for batch in &batches {
        let told = submit(owner.clone(), (*batch).clone()).await;
        let BatchReplyKind::Answered(answers) = told.reply else { bail!("{}: {:?}", batch.key, told.reply) };
        for answer in answers {
            let name = format!("{}/{}/{}", batch.session, batch.key, answer.id);
            left.unknown += u64::from(answer.state == "unknown");
            let tool = batch.calls.iter().find(|call| call.id == answer.id).map_or("", |call| call.tool);
            ensure!(may_end(tool, &answer.state), "{name} of {tool} is {}: {}", answer.state, answer.text);
            if let Some(seen) = before.get(&name).filter(|seen| seen.ended) {
                ensure!(seen.answer == answer, "{name} was {:?} and is now {answer:?}", seen.answer);
            }
        }
    }
    let after = recorded(&store).await?;
    let ran_after = runs.all();
    for (name, count) in &ran_after {
        let already = ran.get(name).copied().unwrap_or(0);
        let again = count - already;
        if before.get(name).is_some_and(|seen| seen.ended) {
            ensure!(again == 0, "{name} was recorded as ended and ran {again} times more");
        }
        left.repeated += u64::from(already > 0 && again > 0);
    }
    for (name, seen) in &after {
        ensure!(seen.ended, "{name} is still open");
    }
    intents(&batches, &ran_after, &after)?;
    Ok(left)
}

/// A failure below a tool is never reported as a failure of the tool.
fn may_end(tool: &str, state: &str) -> bool {
    match tool {
        "look" | "put" | "long" | "kept" => state == "succeeded",
        "send" | "stream" => state == "succeeded" || state == "unknown",
        "broken" => state == "failed" || state == "unknown",
        _ => state == "failed",
    }
}

/// Every acknowledged answer is recorded, and as it was told.
fn acknowledged(
    told: &[ClientReplies],
    before: &BTreeMap<String, CheckedCall>,
    left: &mut ScenarioRemains,
) -> anyhow::Result<()> {
    for told in told {
        let answers = match &told.reply {
            BatchReplyKind::Answered(answers) => answers,
            BatchReplyKind::Failed { kind, text } => {
                ensure!(["lost store", "lost session", "stalled"].contains(&kind.as_str()), "{kind}: {text}");
                left.errors += 1;
                continue;
            }
            BatchReplyKind::Hung => bail!("{} of {} was never answered", told.batch, told.session),
        };
        for answer in answers {
            let name = format!("{}/{}/{}", told.session, told.batch, answer.id);
            let Some(seen) = before.get(&name).filter(|seen| seen.ended) else {
                bail!("{name} was acknowledged as {answer:?} and is lost");
            };
            ensure!(seen.answer == *answer, "{name}: told {answer:?}, recorded {:?}", seen.answer);
            left.acknowledged += 1;
        }
    }
    Ok(())
}

/// A call with effects runs only after its intent is recorded; one that must not be repeated is not.
fn intents(
    batches: &[&ScenarioBatch],
    ran: &BTreeMap<String, u32>,
    recorded: &BTreeMap<String, CheckedCall>,
) -> anyhow::Result<()> {
    for batch in batches {
        for call in &batch.calls {
            let name = format!("{}/{}/{}", batch.session, batch.key, call.id);
            let (Some(count), class) = (ran.get(&name), class(call.tool)) else { continue };
            let started = recorded.get(&name).is_some_and(|seen| seen.started);
            ensure!(class == EffectClass::Read || started, "{name} ran and no intent is recorded");
            ensure!(
                class != EffectClass::Once || *count <= 1,
                "{name} must not be repeated and ran {count} times"
            );
        }
    }
    Ok(())
}
