//! Grants of a world: issued, narrowed, used and revoked at random, by those who may, and tried by those who may not.

use super::HostileWorld;
use crate::hostile::chances::{TOOLS, conditions, fit};
use crate::hostile::grants::GrantTruth;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass::error::{GrantError, SessionError};
use windlass::grants::{GrantNarrowing, GrantProblem, GrantTerms, GrantToken, IssuedGrant, NewGrantCopy};
use windlass_core::tool::ToolSource;

/// An operator, as a principal.
const BY: &str = "root";
const US_PER_S: i64 = 1_000_000;

/// The grant of a call, or whatever its caller takes for one.
pub(super) struct TriedGrant {
    /// The token.
    pub(super) token: GrantToken,
    /// The id of the grant, if there is one.
    pub(super) id: String,
    /// The tool that is called: mostly the grant's own.
    pub(super) tool: String,
}

impl HostileWorld {
    /// An operator issues a grant.
    pub(super) async fn issue(&mut self) -> Result<()> {
        let session = self.session();
        let tool = self.truth.now().tools[&format!("t{}", self.chance.below(TOOLS))].clone();
        let other = [ToolSource::Registered, ToolSource::Declared, ToolSource::BuiltIn, ToolSource::Mcp];
        let source = match self.chance.below(10) {
            0 => Some(self.chance.one_of(&other)),
            1 => Some(tool.source),
            _ => None,
        };
        let listed = self.runtime.tools_of(&session).await?;
        let contract = listed
            .iter()
            .find(|listed| listed.summary.name == tool.name)
            .and_then(|listed| listed.tool.as_ref().map(|registered| registered.contract.whole()));
        let contract = contract.filter(|_| self.chance.percent(15));
        self.numbers += 1;
        let grant = GrantTruth {
            token: GrantToken::given(""),
            session: session.clone(),
            parent: None,
            tool: if self.chance.percent(70) { tool.name.clone() } else { tool.id.clone() },
            source,
            version: contract.is_some().then_some(tool.version),
            binding: json!({"grant": self.numbers}),
            args: conditions(&mut self.chance),
            until: self.chance.percent(30).then(|| self.later()),
            uses: self.chance.percent(60).then(|| self.chance.between(1, 4)),
            shared: 0,
            used: BTreeSet::new(),
            is_revoked: false,
        };
        let terms = GrantTerms {
            tool: grant.tool.clone(),
            source: source.map(|source| source.as_str().to_owned()),
            contract,
            binding: Some(grant.binding.clone()),
            args: grant.args.clone(),
            expires_at: grant.until,
            uses: grant.uses,
            retry: None,
        };
        match self.runtime.grants().issue(&session, terms, BY).await {
            Ok(issued) => {
                let token = issued.token;
                self.truth.now().grants.insert(issued.grant.id, GrantTruth { token, ..grant });
                self.counts.issued += 1;
                Ok(())
            }
            // One that nobody opened yet.
            Err(GrantError::Session(SessionError::NotFound { .. })) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A time that passes in this world, or the one now.
    fn later(&mut self) -> i64 {
        let now = self.truth.now().now;
        now + self.chance.one_of(&[0, 30, 200, 700, 1_500, 5_000]) * US_PER_S
    }

    fn any_grant(&mut self) -> Option<(String, GrantTruth)> {
        let truth = self.truth.now();
        let place = self.chance.below(truth.grants.len() as u64) as usize;
        truth.grants.iter().nth(place).map(|(id, grant)| (id.clone(), grant.clone()))
    }

    /// Somebody makes a copy of a grant, or tries to make one that is wider.
    pub(super) async fn narrow(&mut self) -> Result<()> {
        let Some((id, parent)) = self.any_grant() else { return Ok(()) };
        // Those with conditions are of more interest.
        let other = self.any_grant().filter(|_| parent.args.is_empty());
        let (id, parent) = other.unwrap_or((id, parent));
        let session = match self.chance.below(5) {
            0 | 1 => None,
            2 | 3 => Some(parent.session.replace('s', "k")),
            _ => Some(self.session()),
        };
        let uses = match parent.left() {
            Some(left) if left > 0 && self.chance.percent(75) => Some(self.chance.between(1, left)),
            _ => self.chance.percent(50).then(|| self.chance.between(1, 3)),
        };
        let args = conditions(&mut self.chance);
        let expires_at = self.chance.percent(25).then(|| self.later());
        let narrowing = GrantNarrowing { args, expires_at, uses };
        let to = session.clone().unwrap_or_else(|| parent.session.clone());
        let is_child = to == parent.session || parent.session.replace('s', "k") == to;
        let is_wider = !is_child
            || parent.is_revoked
            || parent.until.zip(narrowing.expires_at).is_some_and(|(ours, theirs)| theirs > ours)
            || parent.left().is_some_and(|left| narrowing.uses.is_none_or(|uses| uses > left));
        let copy = NewGrantCopy { session, narrowing: narrowing.clone() };
        match self.runtime.grants().attenuate(&id, copy, BY).await {
            Ok(issued) => {
                self.note_copy(id, parent, issued, narrowing, is_wider);
                self.counts.narrowed += 1;
                // Whoever has it tries it.
                self.submit_to(to, 70).await
            }
            Err(GrantError::Terms(GrantProblem::Args(_))) => Ok(()),
            Err(_) => {
                self.counts.narrowings_refused += 1;
                Ok(())
            }
        }
    }

    /// Notes a copy that was made, and whether it may be.
    fn note_copy(
        &self,
        id: String,
        parent: GrantTruth,
        issued: IssuedGrant,
        narrowing: GrantNarrowing,
        is_wider: bool,
    ) {
        let mut truth = self.truth.now();
        let kept = &issued.grant.terms.args;
        if is_wider || truth.conditions(&id).iter().any(|above| !kept.contains(above)) {
            let line = format!("R5: a copy is wider than its grant: {parent:?} was narrowed to {issued:?}");
            truth.violations.push(line);
        }
        let GrantNarrowing { args, expires_at: until, uses } = narrowing;
        if let Some(of) = truth.grants.get_mut(&id).filter(|of| of.uses.is_some()) {
            of.shared += uses.unwrap_or_default();
        }
        truth.outdate_grants(&BTreeSet::from([id.clone()]));
        let copy = GrantTruth {
            token: issued.token,
            session: issued.grant.session,
            parent: Some(id),
            args,
            until,
            uses,
            shared: 0,
            used: BTreeSet::new(),
            ..parent
        };
        truth.grants.insert(issued.grant.id, copy);
    }

    /// An operator revokes a grant, maybe while it is used.
    pub(super) async fn revoke(&mut self) -> Result<()> {
        let Some((id, grant)) = self.any_grant() else { return Ok(()) };
        let (grants, truth) = (self.runtime.grants(), self.truth.clone());
        let revoked = async {
            grants.revoke(&id).await?;
            // From now on nothing starts by it.
            let mut truth = truth.now();
            for id in truth.family(&id) {
                if let Some(grant) = truth.grants.get_mut(&id) {
                    grant.is_revoked = true;
                }
            }
            anyhow::Ok(())
        };
        self.counts.revoked += u64::from(!grant.is_revoked);
        if self.chance.percent(60) {
            let (submitted, revoked) = tokio::join!(self.submit_to(grant.session, 70), revoked);
            return submitted.and(revoked);
        }
        revoked.await
    }

    /// A grant for a call of this session: mostly one of its own, and else somebody's, or none at all.
    pub(super) fn tried_grant(&mut self, session: &str) -> Option<TriedGrant> {
        let own: Vec<(String, GrantTruth)> = {
            let truth = self.truth.now();
            let own = truth.grants.iter().filter(|(_, grant)| grant.session == session);
            own.map(|(id, grant)| (id.clone(), grant.clone())).collect()
        };
        let chosen = match own.is_empty() || self.chance.percent(12) {
            true => self.any_grant()?,
            false => own[self.chance.below(own.len() as u64) as usize].clone(),
        };
        let (id, grant) = chosen;
        let tool = match self.chance.percent(88) {
            true => self.truth.now().tool(&grant.tool).map(|tool| tool.name.clone())?,
            false => format!("t{}", self.chance.below(TOOLS)),
        };
        let (token, id) = match self.chance.below(40) {
            // An id is no token.
            0 => (GrantToken::given(id), "nobody's".to_owned()),
            1 => (GrantToken::given(format!("{}0", grant.token.reveal())), "nobody's".to_owned()),
            _ => (grant.token, id),
        };
        Some(TriedGrant { token, id, tool })
    }

    /// Arguments that meet the conditions of a grant, if they can.
    pub(super) fn fitted(&mut self, grant: &TriedGrant, args: &mut Value) {
        // Whoever has a copy may know only how it was narrowed.
        let conditions = match self.chance.below(3) {
            0 => self.truth.now().grants.get(&grant.id).map(|grant| grant.args.clone()).unwrap_or_default(),
            _ => self.truth.now().conditions(&grant.id),
        };
        if self.chance.percent(75) {
            conditions.iter().for_each(|condition| fit(&mut self.chance, args, condition));
        }
    }

    /// The uses that are recorded are those that were taken.
    pub(super) async fn count_uses(&mut self) -> Result<()> {
        let known = self.truth.now().grants.clone();
        for (id, grant) in known {
            let kept = self.runtime.grants().get(&id).await?;
            let (used, shared) =
                (if grant.uses.is_some() { grant.used.len() as u64 } else { 0 }, grant.shared);
            if (kept.used, kept.shared) != (used, shared) {
                let line = format!("R5: {kept:?} is recorded of {grant:?}");
                self.truth.now().violations.push(line);
            }
        }
        Ok(())
    }
}
