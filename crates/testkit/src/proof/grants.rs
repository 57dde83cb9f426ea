//! Grants of a worker's client: it issues them before it calls, keeps their tokens beside the data folder, and revokes some while they
//! are used. The checker compares the uses that are recorded with the calls that started.

use super::history::{CallHistory, Journal, WorkerReplies};
use super::plan::ProofPlan;
use super::tools::World;
use crate::chance::Chance;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass::Runtime;
use windlass::error::GrantError;
use windlass::grants::{Grant, GrantId, GrantNarrowing, GrantTerms, GrantToken, NewGrantCopy};
use windlass::sessions::SessionOpening;
use windlass_core::ids::EntryNo;
use windlass_store::{RecordPage, Space, Store};

/// The principal that issues, copies and revokes.
const BY: &str = "root";
/// How long a grant is used at most before it is revoked.
const REVOKED_US: u64 = 15_000;

/// Where the tokens are kept: a kill of the worker does not reach what it has written there.
fn tokens(data: &Path) -> PathBuf {
    data.with_file_name("tokens")
}

/// The plan with the tokens of its grants, of which those that are missing are issued. A worker that dies before it has kept a token
/// leaves a grant that nobody uses.
pub async fn issue(runtime: &Runtime, data: &Path, mut plan: ProofPlan) -> Result<ProofPlan> {
    let kept = tokens(data);
    let mut text = std::fs::read_to_string(&kept).unwrap_or_default();
    let mut known: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, token)| (name.into(), token.into()))
        .collect();
    for grant in plan.grants.iter().filter(|_| !plan.grants.is_empty()) {
        if known.contains_key(&grant.name) {
            continue;
        }
        runtime.open_session(&grant.session, SessionOpening::default()).await?;
        let issued = match grant.of.as_ref().and_then(|of| known.get(of)) {
            None => {
                let tool = grant.kind.tool();
                let terms = GrantTerms { tool, uses: grant.uses, ..GrantTerms::default() };
                runtime.grants().issue(&grant.session, terms, BY).await
            }
            Some(of) => {
                let of = GrantId::of(&GrantToken::given(of.clone())).to_string();
                let narrowing = GrantNarrowing { uses: grant.uses, ..GrantNarrowing::default() };
                runtime.grants().attenuate(&of, NewGrantCopy { session: None, narrowing }, BY).await
            }
        };
        let token = match issued {
            Ok(issued) => issued.token.reveal().to_owned(),
            // An earlier worker's copy took the uses, or the grant is revoked by now: nobody has a token.
            Err(GrantError::Terms(_) | GrantError::Over { .. }) => "none".to_owned(),
            Err(error) => return Err(error.into()),
        };
        writeln!(text, "{} {token}", grant.name)?;
        let next = kept.with_extension("next");
        std::fs::write(&next, &text)?;
        std::fs::rename(&next, &kept).context("tokens cannot be kept")?;
        known.insert(grant.name.clone(), token);
    }
    let calls =
        plan.sessions.iter_mut().flat_map(|session| &mut session.batches).flat_map(|batch| &mut batch.calls);
    for grant in calls.filter_map(|call| call.grant.as_mut()) {
        grant.token = known.get(&grant.name).cloned().unwrap_or_default();
    }
    Ok(plan)
}

/// Revokes those grants of a plan that are to be revoked, each in half of the workers.
pub async fn revoke(runtime: Runtime, world: Arc<World>, plan: ProofPlan, mut chance: Chance) -> Result<()> {
    let used = |name: &str| {
        let of_it =
            plan.calls().filter_map(|(_, _, call)| call.grant.clone()).find(|grant| grant.name == name);
        of_it.map(|grant| GrantId::of(&GrantToken::given(grant.token)).to_string())
    };
    for grant in plan.grants.iter().filter(|grant| grant.is_revoked) {
        let (delay, is_now) = (chance.between(0, REVOKED_US), chance.percent(50));
        let Some(id) = used(&grant.name).filter(|_| is_now) else { continue };
        tokio::time::sleep(Duration::from_micros(delay)).await;
        world.say(json!({ "revoking": id }))?;
        match runtime.grants().revoke(&id).await {
            Ok(_) => {
                let row = runtime.store().session(&grant.session).await?.context("the session is gone")?;
                // Every entry from here on came after the acknowledgement.
                world.say(json!({"revoked": {"grant": id, "head": row.head.0}}))?;
            }
            Err(GrantError::NotFound { .. } | GrantError::Unacknowledged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The uses of a grant, as they are recorded.
struct RecordedGrant {
    grant: Grant,
    uses: u64,
}

/// Every promise about grants that was broken.
pub async fn problems(store: &dyn Store, told: &[WorkerReplies], journal: &Journal) -> Result<Vec<String>> {
    let recorded = read(store).await?;
    let mut found = Vec::new();
    let by = |call: &CallHistory| call.answer["grant"].as_str().map(str::to_owned);
    let revoking: BTreeSet<&str> =
        told.iter().flat_map(|told| &told.revoking).filter_map(Value::as_str).collect();
    for call in &journal.calls {
        if by(call).is_some_and(|id| !recorded.contains_key(&id)) && !call.started.is_empty() {
            found.push(format!("R5: {} started by a grant that is none", call.name));
        }
    }
    for (id, RecordedGrant { grant, uses }) in &recorded {
        let calls: Vec<&CallHistory> =
            journal.calls.iter().filter(|call| by(call).as_ref() == Some(id)).collect();
        let started = calls.iter().filter(|call| !call.started.is_empty()).count() as u64;
        let counted = if grant.terms.uses.is_some() { started } else { 0 };
        if *uses != counted {
            found.push(format!("R5: {uses} uses of a grant are recorded, and {started} calls started by it"));
        }
        if grant.terms.uses.is_some_and(|most| uses + grant.shared > most) {
            found.push(format!(
                "R5: a grant has {uses} uses and {} shared of {:?}",
                grant.shared, grant.terms.uses
            ));
        }
        let taken: u64 = grant.copies.iter().filter_map(|copy| copy.uses).sum();
        if grant.terms.uses.is_some() && taken != grant.shared {
            found.push(format!("R5: copies took {taken} uses of a grant, and {} are recorded", grant.shared));
        }
        let line = line(&recorded, id);
        let is_left = grant.terms.uses.is_none_or(|most| uses + grant.shared < most);
        let is_revoked = line.iter().any(|id| revoking.contains(id.as_str()));
        if let Some(denied) = calls.iter().find(|call| call.state() == "denied")
            && is_left
            && !is_revoked
        {
            found.push(format!("R5: {} was denied, and its grant admits it", denied.name));
        }
        // One that started has its use already: only a revocation ends it in doubt without a cut.
        if let Some(ended) = calls.iter().find(|call| call.state() == "unknown" && !call.past.is_cut())
            && !is_revoked
        {
            found.push(format!("R5: {} was not continued, and its grant stands", ended.name));
        }
        for (of, head) in told.iter().flat_map(|told| &told.revoked).filter_map(acknowledged) {
            let late = |call: &&&CallHistory| {
                let late = call.started.iter().filter(|start| **start > head).count() as u32;
                // One that was taken back was none.
                late > call.past.withheld
            };
            if line.contains(&of)
                && let Some(call) = calls.iter().find(late)
            {
                let started = &call.started;
                found.push(format!(
                    "R5: {} started at {started:?}, and its grant was revoked at {head}",
                    call.name
                ));
            }
        }
    }
    Ok(found)
}

/// The grant that was revoked, and the last entry before that was acknowledged.
fn acknowledged(said: &Value) -> Option<(String, EntryNo)> {
    Some((said["grant"].as_str()?.to_owned(), EntryNo(said["head"].as_u64()?)))
}

/// A grant, and those that it was made of.
fn line(recorded: &BTreeMap<String, RecordedGrant>, id: &str) -> Vec<String> {
    let above = |id: &String| recorded.get(id).and_then(|recorded| recorded.grant.parent.clone());
    std::iter::successors(Some(id.to_owned()), above).collect()
}

async fn read(store: &dyn Store) -> Result<BTreeMap<String, RecordedGrant>> {
    let mut found = BTreeMap::new();
    let mut after = None;
    while let Some(row) = store.sessions_with(Space::Grant, after, 1).await?.pop() {
        let page =
            |space: Space| RecordPage { shelf: space.of(row.no), prefix: "", after: None, limit: 10_000 };
        let uses = store.records(page(Space::GrantUse)).await?;
        for record in store.records(page(Space::Grant)).await? {
            let grant: Grant = serde_json::from_slice(&record.value)?;
            let is_its = |key: &str| key.split(' ').next() == Some(grant.id.as_str());
            let uses = uses.iter().filter(|record| is_its(&record.key)).count() as u64;
            found.insert(grant.id.clone(), RecordedGrant { grant, uses });
        }
        after = Some(row.no);
    }
    Ok(found)
}
