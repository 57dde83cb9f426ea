//! The people who are asked about calls, as part of a worker's client: they answer as the plan of each call says, try to answer twice,
//! and change the rules in between. What a worker's people say differs from what any other's do, so that it is seen whose word
//! counted.

use super::person::{LOOK, think};
use super::plan::{PlannedAnswer, changed_rule};
use super::tools::World;
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass::Runtime;
use windlass::approvals::{ApprovalDecision, Remember, RememberedArgs};
use windlass::error::AskError;
use windlass::inspect::{WaitingCall, WaitingKind};
use windlass::policy::NewPolicy;
use windlass::sessions::LOCAL;

/// Who approves, and who says something else.
const FIRST: &str = "ann";
const SECOND: &str = "bob";

/// The people of one worker.
struct AskedPeople {
    runtime: Runtime,
    world: Arc<World>,
    chance: Chance,
    /// How often they have changed the rules.
    changes: u32,
}

/// Answers every question about a call, until nobody needs that any more.
pub async fn answer(runtime: Runtime, world: Arc<World>, chance: Chance) -> Result<()> {
    let mut people = AskedPeople { runtime, world, chance, changes: 0 };
    if people.chance.percent(50) {
        people.change_rules().await?;
    }
    let mut seen = BTreeSet::new();
    loop {
        for (_, waits) in people.runtime.waiting().await? {
            if waits.kind == WaitingKind::Approval && seen.insert(waits.id.clone()) {
                think(&mut people.chance).await;
                people.answer(&waits).await?;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl AskedPeople {
    async fn answer(&mut self, waits: &WaitingCall) -> Result<()> {
        let shown = waits.args.clone().unwrap_or_default();
        let yes = decision(waits, true);
        match PlannedAnswer::of(&shown) {
            PlannedAnswer::Unruled | PlannedAnswer::Unasked => {
                bail!("R5: {} waits, and no rule asks about it", waits.call_id)
            }
            PlannedAnswer::Lapse | PlannedAnswer::LapseAllowed => Ok(()),
            PlannedAnswer::Approve => self.say(waits, &yes).await,
            PlannedAnswer::Deny => self.say(waits, &decision(waits, false)).await,
            PlannedAnswer::Edit => {
                let mut args = shown;
                args["edited"] = json!(self.world.client.chance());
                if self.decide(waits, &ApprovalDecision { args: Some(args), ..yes.clone() }, FIRST).await? {
                    return self.contradict(waits, &decision(waits, false)).await;
                }
                // It has started before: then its arguments stay as they are.
                self.say(waits, &yes).await
            }
            PlannedAnswer::Remember => {
                let args = RememberedArgs::At(vec!["/ask".to_owned()]);
                let remember = Some(Remember { args, for_ms: None });
                self.say(waits, &ApprovalDecision { remember, ..yes }).await
            }
            PlannedAnswer::FourEyes => {
                if self.decide(waits, &yes, LOCAL).await? {
                    bail!("R6: {} was approved by its own caller", waits.call_id);
                }
                self.say(waits, &yes).await
            }
            PlannedAnswer::Race => self.race(waits).await,
            PlannedAnswer::Changes => {
                let before = self.chance.percent(50);
                if before && self.chance.percent(50) {
                    self.change_rules().await?;
                }
                self.decide(waits, &yes, FIRST).await?;
                if !before && self.chance.percent(50) {
                    self.change_rules().await?;
                }
                Ok(())
            }
        }
    }

    /// Two people answer at once: one of them is heard.
    async fn race(&self, waits: &WaitingCall) -> Result<()> {
        let (yes, no) = (decision(waits, true), decision(waits, false));
        let (first, second) = tokio::join!(self.decide(waits, &yes, FIRST), self.decide(waits, &no, SECOND));
        if first? && second? {
            bail!("R6: {} was approved and denied", waits.call_id);
        }
        Ok(())
    }

    /// Answers, and then otherwise, which must not count.
    async fn say(&self, waits: &WaitingCall, decision: &ApprovalDecision) -> Result<()> {
        if self.decide(waits, decision, FIRST).await? {
            self.contradict(waits, &self::decision(waits, !decision.approve)).await?;
        }
        Ok(())
    }

    async fn contradict(&self, waits: &WaitingCall, decision: &ApprovalDecision) -> Result<()> {
        if self.decide(waits, decision, SECOND).await? {
            bail!("R6: {}: a second answer was taken that says something else", waits.call_id);
        }
        Ok(())
    }

    /// Whether an answer was taken. Who dies between the two lines does not know.
    async fn decide(&self, waits: &WaitingCall, decision: &ApprovalDecision, by: &str) -> Result<bool> {
        let ApprovalDecision { approve, args, .. } = decision;
        let said = json!({"call": waits.call, "by": by, "approve": approve, "args": args});
        self.world.say(json!({ "deciding": said }))?;
        match self.runtime.decide(&waits.id, decision, by).await {
            Ok(()) => {
                self.world.say(json!({ "decided": said }))?;
                Ok(true)
            }
            Err(
                AskError::Answered
                | AskError::Over { .. }
                | AskError::StaleDigest { .. }
                | AskError::FourEyes { .. }
                | AskError::Invalid { .. },
            ) => Ok(false),
            Err(error) => Err(error).context(format!("R6: {} was not answered", waits.call_id)),
        }
    }

    /// Sets another text of the rule that changes.
    async fn change_rules(&mut self) -> Result<()> {
        self.changes += 1;
        let reason = format!("worker {} change {}", self.world.client.chance(), self.changes);
        let (rules, by) = (vec![changed_rule(&reason)], "root".to_owned());
        self.runtime.set_policy(NewPolicy { rules, by, version: None }).await?;
        Ok(())
    }
}

fn decision(waits: &WaitingCall, approve: bool) -> ApprovalDecision {
    ApprovalDecision {
        approve,
        digest: waits.digest.clone().unwrap_or_default(),
        ..ApprovalDecision::default()
    }
}

/// The versions of the policy, each with the text of the rule that changes, for whoever checks.
pub async fn policies(runtime: &Runtime) -> Result<Value> {
    let versions = runtime.policy_history(None, u64::MAX).await?;
    let text = |rules: &[Value]| rules.first().map(|rule| rule["reason"].clone()).unwrap_or_default();
    Ok(versions.iter().map(|version| json!([version.version, text(&version.rules)])).collect())
}
