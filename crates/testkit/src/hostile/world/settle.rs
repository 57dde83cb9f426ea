//! Waiting until every call of a world is where the truth says that it must be.

use super::{HostileWorld, OUTER, SETTLED_AFTER};
use crate::hostile::truth::{AskedTruth, CallTruth, ExpectedState, Opinion, RememberedTruth};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;
use windlass::inspect::WaitingCall;

/// How often other tasks go on before it is looked where calls are.
const YIELDS: u32 = 40;

impl HostileWorld {
    /// Waits until every call is where it must be.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            // A look reads every open journal: what goes on by itself does so first.
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            let mut waits: BTreeMap<String, WaitingCall> =
                self.waits().await?.into_iter().map(|waits| (waits.call.clone(), waits)).collect();
            waits.retain(|call, waits| {
                self.truth.now().calls.get(call).is_none_or(|call| call.answered != waits.id)
            });
            // Siblings run beside each other: which of them read first what the others are judged by is not known.
            let is_exact = {
                let truth = self.truth.now();
                truth.exposures() == truth.exposed_before
            };
            self.see(&waits, is_exact);
            let stuck = self.look(&waits, is_exact).await?;
            self.find_remembered().await?;
            let Some(stuck) = stuck else { break };
            if began.elapsed() > SETTLED_AFTER {
                let open = self.runtime.open().await?;
                let line = format!("R5: after {SETTLED_AFTER:?} {stuck}, and open are {open:?}");
                self.truth.now().violations.push(line);
                break;
            }
        }
        Ok(())
    }

    /// Notes new questions, with what their answers cover.
    fn see(&mut self, waits: &BTreeMap<String, WaitingCall>, is_exact: bool) {
        let mut truth = self.truth.now();
        // Those that were judged again may wait no more.
        for (_, call) in truth.calls.iter_mut().filter(|(handle, _)| !waits.contains_key(*handle)) {
            call.asked = None;
        }
        for (handle, waits) in waits {
            // Arguments that were left out are none.
            let shown = waits.args.clone().filter(|args| !args.is_null()).unwrap_or_else(|| json!({}));
            let tool = truth.tool(&waits.tool).cloned();
            let mut call = truth.calls.get(handle).cloned().unwrap_or_else(|| CallTruth {
                session: waits.session.clone(),
                tool: tool.as_ref().map(|tool| tool.name.clone()),
                grant: tool.as_ref().and_then(|tool| truth.asked_by(&tool.name, &shown)),
                ..CallTruth::default()
            });
            let is_seen = call.asked.as_ref().is_some_and(|asked| asked.id == waits.id);
            let (Some(tool), Some(rules), false) = (tool, truth.rules.last().cloned(), is_seen) else {
                continue;
            };
            if call.denied || call.cancelled {
                continue;
            }
            if call.args.as_ref().is_some_and(|known| *known != shown) {
                let line = format!("R6: {handle}: {shown} was shown instead of {:?}", call.args);
                truth.violations.push(line);
            }
            let opinion = truth.opinion(&rules, &tool, &call, &shown);
            // Those that ask by what the session had read then.
            let asking = Opinion::asking(&rules, waits.rules.clone());
            let mut names = waits.rules.clone();
            names.sort();
            if is_exact && names != opinion.names {
                let line =
                    format!("R5: {handle}: {names:?} ask, and {opinion:?} must, {tool:?} {shown} {call:?}");
                truth.violations.push(line);
            }
            self.counts.asked += 1;
            self.counts.asked_again += u64::from(call.approval.is_some());
            call.asked = Some(AskedTruth {
                id: waits.id.clone(),
                covered: truth.covered(&tool, &asking, &shown),
                until: waits.until.map_or(i64::MAX, |until| until.0),
                allows_on_expiry: asking.allows_on_expiry,
            });
            // Somebody may have taken the last use of its grant after it was judged: it is not judged again by itself.
            let grant = call.grant.as_ref().and_then(|id| truth.grants.get(id));
            let is_used_up = grant.is_some_and(|grant| grant.left() == Some(0));
            (call.args, call.approval, call.outdated) = (Some(shown), None, !is_exact || is_used_up);
            truth.calls.insert(handle.clone(), call);
        }
    }

    /// A call that is not where it must be, if there is one.
    async fn look(
        &mut self,
        waits: &BTreeMap<String, WaitingCall>,
        is_exact: bool,
    ) -> Result<Option<String>> {
        let mut stuck = None;
        let mut open = std::mem::take(&mut self.open);
        let mut kept = Vec::new();
        for batch in open.drain(..) {
            let is_over =
                |call: &&String| self.truth.now().calls.get(*call).is_some_and(|call| call.ended.is_some());
            let left: Vec<String> = batch.calls.iter().filter(|call| !is_over(call)).cloned().collect();
            if left.is_empty() {
                continue;
            }
            if left.iter().all(|call| waits.contains_key(call)) {
                // What waits for a person is known: its journal need not be read.
                for call in &left {
                    stuck = stuck.or(self.place(call, "awaiting_approval", false, true, is_exact));
                }
                kept.push(batch);
                continue;
            }
            let receipt = batch.submitted.receipt().await?;
            let mut is_open = false;
            for call in &receipt.calls {
                let handle = call.handle().to_string();
                let state = match call.failure() {
                    Some(failure) if call.state() == "failed" => failure.code.as_str(),
                    _ => call.state(),
                };
                let is_over = call.call().end().is_some();
                is_open |= !is_over;
                let problem = self.place(&handle, state, is_over, waits.contains_key(&handle), is_exact);
                stuck = stuck.or(problem);
            }
            if is_open {
                kept.push(batch);
            }
        }
        self.open = kept;
        Ok(stuck)
    }

    /// Compares where a call is with where it must be.
    fn place(
        &mut self,
        handle: &str,
        state: &str,
        is_over: bool,
        waits: bool,
        is_exact: bool,
    ) -> Option<String> {
        let mut truth = self.truth.now();
        let call = truth.calls.get(handle).cloned()?;
        if call.ended.is_some() {
            return None;
        }
        let expected = truth.expected(&call);
        let is_blocked = call
            .behind
            .as_ref()
            .is_some_and(|before| truth.calls.get(before).is_some_and(|before| before.ended.is_none()));
        let ran = call.executions > 0;
        let is_there = match expected {
            // It waits for a person only as long as somebody must be asked.
            ExpectedState::Runs | ExpectedState::Denied if is_blocked => is_over || !waits,
            ExpectedState::Waits | ExpectedState::Missing | ExpectedState::Any if is_blocked => true,
            ExpectedState::Runs => false,
            ExpectedState::Denied => is_over && state == "denied",
            ExpectedState::Missing => is_over && state == "no_such_tool",
            ExpectedState::Waits => waits,
            ExpectedState::Any => is_over || waits,
        };
        let is_loose = !is_exact || call.outdated;
        let is_there = match ran {
            // The call inside it may wait for a person.
            true => is_over || call.tool.as_deref() == Some(OUTER),
            false => is_there || (is_loose && (is_over || waits)),
        };
        if is_over {
            let right = match state {
                "succeeded" => ran,
                "denied" => {
                    !ran && (is_loose || matches!(expected, ExpectedState::Denied | ExpectedState::Any))
                }
                "cancelled" => call.cancelled,
                _ => !ran,
            };
            if !right || !is_there {
                let line = format!(
                    "R5: {handle} is {state}, and must be {expected:?}: {call:?}, rules {:?}, grants {:?}",
                    truth.rules, truth.grants
                );
                truth.violations.push(line);
            }
            *self.counts.ended.entry(state.to_owned()).or_default() += 1;
            if let Some(call) = truth.calls.get_mut(handle) {
                call.ended = Some(state.to_owned());
            }
            return None;
        }
        (!is_there).then(|| {
            let grant = call.grant.as_ref().and_then(|id| truth.grants.get(id));
            let rules = &truth.rules;
            format!(
                "{handle} is {state}, and must be {expected:?}: {call:?}, grant {grant:?}, rules {rules:?}"
            )
        })
    }

    /// Finds the records of answers that were acknowledged: one of a call that waits for its turn is recorded with its start.
    async fn find_remembered(&mut self) -> Result<()> {
        let sessions: Vec<String> = self.truth.now().sessions.keys().cloned().collect();
        for name in &sessions {
            let known = self.truth.now().sessions.get(name).cloned().unwrap_or_default();
            if known.remembered.iter().all(|known| !known.id.is_empty()) {
                continue;
            }
            let kept = self.runtime.remembered(name).await?;
            let mut truth = self.truth.now();
            let known = &mut truth.sessions.entry(name.clone()).or_default().remembered;
            let named: Vec<String> = known.iter().map(|known| known.id.clone()).collect();
            for kept in kept.into_iter().filter(|kept| !named.contains(&kept.id)) {
                let is_it = |known: &&mut RememberedTruth| known.id.is_empty() && known.is(&kept);
                if let Some(known) = known.iter_mut().find(is_it) {
                    known.id = kept.id;
                    self.counts.remembered += 1;
                }
            }
        }
        Ok(())
    }
}
