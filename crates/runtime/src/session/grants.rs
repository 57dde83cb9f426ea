//! The grants of a session, as its owner knows them: read at their first use, counted in memory, claimed in the store.

use crate::api::error::{Lost, SessionError, chain};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::adopting::judge_again;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::ask::GrantDemand;
use windlass_core::grant::{GrantCheck, GrantId, GrantMismatch, GrantTerms};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Shelf, Space, Store, StoredRecord};

/// A grant of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id: a hash of its token.
    pub id: String,
    /// The session it was issued to.
    pub session: String,
    /// The principal it was issued to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The id of the grant that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its terms.
    pub terms: GrantTerms,
    /// The principal that issued it.
    pub issued_by: String,
    /// When, in microseconds since 1970.
    pub issued_at: i64,
    /// When it was revoked, in microseconds since 1970, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Its copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<GrantCopy>,
    /// The uses that its copies took out of it.
    #[serde(default)]
    pub shared: u64,
    /// The calls that have started by it. Not part of the record: each has a record of its own.
    #[serde(skip)]
    pub used: u64,
}

/// A copy of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantCopy {
    /// Its id.
    pub id: String,
    /// The session it was issued to.
    pub session: String,
    /// The uses that it took; `None` if it does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
}

impl Grant {
    /// The record of a grant that was revoked before it arrived: it never takes effect.
    fn revoked_early(id: GrantId, session: &str, now: Timestamp) -> Grant {
        let (id, session) = (id.to_string(), session.to_string());
        Grant { id, session, revoked_at: Some(now.0), ..Grant::default() }
    }

    /// Whether it has arrived; otherwise the record only says that it was revoked.
    pub(crate) fn has_arrived(&self) -> bool {
        !self.terms.tool.is_empty()
    }

    /// The uses left, if they are counted.
    pub fn left(&self) -> Option<u64> {
        self.terms.uses.map(|uses| uses.saturating_sub(self.used).saturating_sub(self.shared))
    }

    /// Whether nothing can start by it any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        let expired = self.terms.expires_at.is_some_and(|until| now.0 >= until);
        expired || self.revoked_at.is_some() || self.left() == Some(0)
    }

    pub(crate) fn read(record: &StoredRecord) -> Option<Grant> {
        serde_json::from_slice(&record.value).ok()
    }

    /// As a row of its session. Only numbers and texts: writing it cannot fail.
    fn row(&self) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Grant, key: self.id.clone(), value }
    }
}

/// A reason why a call may not run by its grant, for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrantRefusal {
    /// Also for one that was forged, or issued to another session or principal.
    #[error("the grant is not known in this session; use a grant that was issued to it, or call without one")]
    Unknown,
    #[error("the grant was revoked; do without the call, or ask for a new grant")]
    Revoked,
    #[error("the grant has expired; do without the call, or ask for a new grant")]
    Expired,
    #[error("the grant has no uses left; do without the call, or ask for a new grant")]
    UsedUp,
    #[error(transparent)]
    Mismatch(#[from] GrantMismatch),
}

/// A grant in the memory of its session's owner.
pub(crate) struct HeldGrant {
    id: GrantId,
    pub(crate) check: GrantCheck,
    principal: Option<String>,
    state: OrderedMutex<GrantState, { LockRank::Grant as u8 }>,
}

struct GrantState {
    revoked: bool,
    /// The uses that copies took.
    shared: u64,
    /// The uses that calls took, by number.
    used: BTreeSet<u64>,
    /// All uses below this number are taken.
    next: u64,
}

/// The grants of a session that were used under this owner. Unknown ones are not remembered.
#[derive(Default)]
pub(crate) struct SessionGrants(OrderedMutex<BTreeMap<GrantId, Arc<HeldGrant>>, { LockRank::Grants as u8 }>);

impl SessionGrants {
    /// A grant that was read before.
    pub(crate) fn known(&self, id: &GrantId) -> Option<Arc<HeldGrant>> {
        self.0.lock().get(id).cloned()
    }
}

impl HeldGrant {
    /// Whether a call of this principal may start by it. One that has started before keeps its use, and is stopped only by a
    /// revocation.
    pub(crate) fn admits(
        &self,
        principal: Option<&str>,
        has_started: bool,
        now: Timestamp,
    ) -> Result<(), GrantRefusal> {
        if self.principal.as_deref() != principal {
            return Err(GrantRefusal::Unknown);
        }
        if self.is_revoked() {
            return Err(GrantRefusal::Revoked);
        }
        let state = self.state.lock();
        if has_started {
            return Ok(());
        }
        if self.check.has_expired(now) {
            return Err(GrantRefusal::Expired);
        }
        match self.left(&state) {
            Some(0) => Err(GrantRefusal::UsedUp),
            Some(_) | None => Ok(()),
        }
    }

    fn left(&self, state: &GrantState) -> Option<u64> {
        let taken = (state.used.len() as u64).saturating_add(state.shared);
        self.check.terms().uses.map(|uses| uses.saturating_sub(taken))
    }

    /// Takes a use for a call that starts, with the row that claims it in the change of the start. `Err`: there is none left, or
    /// the grant was revoked.
    pub(crate) fn take_use(&self) -> Result<Option<Row>, GrantRefusal> {
        let mut state = self.state.lock();
        if state.revoked && !windlass_core::mutant::breaks("revoked-grant") {
            return Err(GrantRefusal::Revoked);
        }
        let Some(uses) = self.check.terms().uses else { return Ok(None) };
        if self.left(&state) == Some(0) {
            return Err(GrantRefusal::UsedUp);
        }
        if windlass_core::mutant::breaks("grant-uncounted") {
            return Ok(None);
        }
        while state.used.contains(&state.next) {
            state.next += 1;
        }
        let number = state.next;
        if number > uses {
            return Err(GrantRefusal::UsedUp);
        }
        state.used.insert(number);
        Ok(Some(Row::Claim { space: Space::GrantUse, key: use_key(&self.id.to_string(), number) }))
    }

    /// Takes uses for a copy; `false`: there are fewer left.
    fn share(&self, uses: Option<u64>) -> bool {
        let mut state = self.state.lock();
        match (self.left(&state), uses) {
            _ if state.revoked => false,
            (None, _) => true,
            (Some(left), Some(uses)) if uses <= left => {
                state.shared = state.shared.saturating_add(uses);
                true
            }
            (Some(_), _) => false,
        }
    }

    /// Whether nothing may start by it any more because somebody says so.
    pub(crate) fn is_revoked(&self) -> bool {
        self.state.lock().revoked && !windlass_core::mutant::breaks("revoked-grant")
    }

    fn revoke(&self) {
        self.state.lock().revoked = true;
    }

    /// The value for the tool.
    pub(crate) fn binding(&self) -> Option<Value> {
        self.check.terms().binding.clone()
    }
}

/// The key of a use.
fn use_key(grant: &str, number: u64) -> String {
    format!("{grant} {number:06}")
}

/// The numbers of the uses of a grant that calls took.
pub(crate) async fn used(store: &dyn Store, shelf: Shelf, id: &str) -> Result<BTreeSet<u64>, SessionError> {
    let prefix = format!("{id} ");
    let mut numbers = BTreeSet::new();
    let mut after: Option<String> = None;
    loop {
        let page = RecordPage { shelf, prefix: &prefix, after: after.as_deref(), limit: USES_PAGE };
        let records = store.records(page).await?;
        numbers.extend(records.iter().filter_map(|record| record.key[prefix.len()..].parse::<u64>().ok()));
        match records.last() {
            Some(last) if records.len() as u64 == USES_PAGE => after = Some(last.key.clone()),
            Some(_) | None => return Ok(numbers),
        }
    }
}

/// The uses that are read at once.
const USES_PAGE: u64 = 1_000;

impl Session {
    /// The grant of this id, read at its first use. `None`: the session has none.
    pub(crate) async fn grant(
        &self,
        rt: &Inner,
        id: &GrantId,
    ) -> Result<Option<Arc<HeldGrant>>, SessionError> {
        let known = self.slots.of::<SessionGrants>();
        if let Some(held) = known.known(id) {
            return Ok(Some(held));
        }
        let name = id.to_string();
        let record = rt.store.record(Space::Grant.of(self.lane.session()), &name).await?;
        let Some(grant) = record.as_ref().and_then(Grant::read).filter(Grant::has_arrived) else {
            return Ok(None);
        };
        let used = used(&*rt.store, Space::GrantUse.of(self.lane.session()), &name).await?;
        let check = match GrantCheck::new(grant.terms, rt.limits.call()) {
            Ok(check) => check,
            Err(error) => {
                // Limits that were tightened since: a grant that cannot be checked admits nothing.
                tracing::error!(session = %self.name, grant = name, error = %chain(&error), "a grant cannot be used");
                return Ok(None);
            }
        };
        let (revoked, shared) = (grant.revoked_at.is_some(), grant.shared);
        let state = GrantState { revoked, shared, used, next: 1 };
        let held = HeldGrant { id: *id, check, principal: grant.principal, state: OrderedMutex::new(state) };
        // Whoever was first has counted since: its counts stand.
        Ok(Some(known.0.lock().entry(*id).or_insert_with(|| Arc::new(held)).clone()))
    }
}

/// Adopts a message about a grant: in memory first, so nothing starts by what is acknowledged as gone.
pub(crate) async fn adopt(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    key: &str,
    demand: &GrantDemand,
) -> Result<(), SessionError> {
    let mut rows = vec![Row::Adopt { key: key.to_string() }];
    let shelf = Space::Grant.of(session.lane.session());
    match demand {
        GrantDemand::Issue { id, record } => {
            let is_new = rt.store.record(shelf, &id.to_string()).await?.is_none();
            match serde_json::from_str::<Grant>(record) {
                Ok(grant) if is_new && *grant.session == *session.name => {
                    if let Some(removed) = room_for_one(rt, session).await? {
                        rows.extend(removed);
                        rows.push(grant.row());
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::error!(session = %session.name, %error, "a grant cannot be read"),
            }
        }
        GrantDemand::Share { id, record, .. } => rows.extend(shared(rt, session, id, record).await?),
        GrantDemand::Revoke { id } => {
            if let Some(held) = session.grant(rt, id).await? {
                held.revoke();
            }
            let (now, name) = (rt.clock.now(), id.to_string());
            let record = rt.store.record(shelf, &name).await?;
            let kept = record.as_ref().and_then(Grant::read);
            let mut grant = kept.unwrap_or_else(|| Grant::revoked_early(*id, &session.name, now));
            grant.revoked_at.get_or_insert(now.0);
            rows.push(grant.row());
        }
    }
    session.lane.commit_rows(rows).await?;
    if matches!(demand, GrantDemand::Revoke { .. }) {
        // Calls that wait for an approval are denied now, not once somebody approves them.
        judge_again(rt, session).await?;
    }
    Ok(())
}

/// The rows by which a copy takes its uses out of a grant; none if it may not.
async fn shared(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    id: &GrantId,
    record: &str,
) -> Result<Vec<Row>, SessionError> {
    let found = rt.store.record(Space::Grant.of(session.lane.session()), &id.to_string()).await?;
    let (Some(mut parent), Some(held)) = (found.as_ref().and_then(Grant::read), session.grant(rt, id).await?)
    else {
        return Ok(Vec::new());
    };
    let Ok(copy) = serde_json::from_str::<Grant>(record) else { return Ok(Vec::new()) };
    if parent.copies.iter().any(|known| known.id == copy.id) {
        return Ok(Vec::new());
    }
    let is_within =
        GrantCheck::new(copy.terms.clone(), rt.limits.call()).is_ok_and(|check| check.is_within(&held.check));
    let has_room = (parent.copies.len() as u64) < rt.limits.grant_copies_max;
    let mut rows = Vec::new();
    if *copy.session == *session.name {
        match room_for_one(rt, session).await? {
            Some(removed) => rows.extend(removed),
            None => return Ok(Vec::new()),
        }
    }
    if !is_within || !has_room || held.check.has_expired(rt.clock.now()) || !held.share(copy.terms.uses) {
        return Ok(Vec::new());
    }
    parent.shared = parent.shared.saturating_add(held.check.terms().uses.and(copy.terms.uses).unwrap_or(0));
    let (id, uses) = (copy.id.clone(), copy.terms.uses);
    parent.copies.push(GrantCopy { id, session: copy.session.clone(), uses });
    rows.push(parent.row());
    if *copy.session == *session.name {
        rows.push(copy.row());
    }
    Ok(rows)
}

/// Room for one more grant of a session: the rows that remove those that were over for long, if it has all it may have. `None`: there
/// is no room.
async fn room_for_one(rt: &Inner, session: &Session) -> Result<Option<Vec<Row>>, SessionError> {
    let shelf = Space::Grant.of(session.lane.session());
    let max = rt.limits.grants_max;
    if rt.store.count_records(shelf).await? < max {
        return Ok(Some(Vec::new()));
    }
    let page = RecordPage { shelf, prefix: "", after: None, limit: max };
    let kept_us = i64::try_from(rt.limits.grant_kept_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
    let long_ago = Timestamp(rt.clock.now().0.saturating_sub(kept_us));
    let mut rows = Vec::new();
    for mut grant in rt.store.records(page).await?.iter().filter_map(Grant::read) {
        let uses = used(&*rt.store, Space::GrantUse.of(session.lane.session()), &grant.id).await?;
        grant.used = uses.len() as u64;
        let ended_at = grant.revoked_at.or(grant.terms.expires_at).unwrap_or(grant.issued_at);
        if grant.is_over(long_ago) && ended_at <= long_ago.0 {
            let uses = uses.into_iter().map(|number| use_key(&grant.id, number));
            rows.extend(uses.map(|key| Row::Remove { space: Space::GrantUse, key }));
            rows.push(Row::Remove { space: Space::Grant, key: grant.id });
        }
    }
    Ok((!rows.is_empty()).then_some(rows))
}

/// Why a grant cannot be read.
pub(crate) enum GrantUnread {
    Lost(Lost),
    /// The reason, for operators.
    Store(String),
}

impl From<SessionError> for GrantUnread {
    fn from(error: SessionError) -> GrantUnread {
        if let SessionError::Lost(lost) = error {
            return GrantUnread::Lost(lost);
        }
        GrantUnread::Store(format!("a grant cannot be read: {}", chain(&error)))
    }
}
