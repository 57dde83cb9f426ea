//! Grants: issued to a session, narrowed for a sub-agent, listed and revoked with all their copies.

mod inside;

use crate::api::error::{SessionError, no_randomness};
use crate::mailbox::grants::{GrantReach, deliver};
use crate::session::grants::{Grant, used};
use crate::session::inner::{Inner, Runtime};
use crate::session::kin::Child;
use std::sync::Arc;
use windlass_core::ask::GrantDemand;
use windlass_core::grant::{GrantCheck, GrantId, GrantNarrowing, GrantProblem, GrantTerms, GrantToken};
use windlass_core::ids::SessionNo;
use windlass_store::{RecordPage, SessionRow, Space};

/// A grant that was issued, with its token.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedGrant {
    /// The token. It is shown only here.
    pub token: GrantToken,
    /// The grant.
    pub grant: Grant,
}

/// The copy of a grant to make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewGrantCopy {
    /// The session that gets it: a child of the grant's session, or one further down; `None`: the grant's session itself.
    pub session: Option<String>,
    /// The changes by which it is narrower.
    pub narrowing: GrantNarrowing,
}

/// A page of grants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GrantPage {
    /// The grants, by session and id.
    pub items: Vec<Grant>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
}

/// Why a grant was not issued, narrowed or revoked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The terms are invalid, or wider than those of the grant they are to be a copy of.
    #[error(transparent)]
    Terms(#[from] GrantProblem),
    /// There is no such grant.
    #[error("there is no grant {id:?}; `windlass grants ls` lists all grants")]
    NotFound {
        /// The id.
        id: String,
    },
    /// The grant can no longer be used.
    #[error("the grant is over: {what}; issue a new one")]
    Over {
        /// How it ended.
        what: &'static str,
    },
    /// The session of a copy is no child of the grant's session.
    #[error(
        "a copy of a grant of {of:?} goes to that session or one of its children, and {session:?} is none"
    )]
    NoChild {
        /// The session of the grant.
        of: String,
        /// The wanted session.
        session: String,
    },
    /// A copy was made under this name with other terms.
    #[error("a copy with other terms was made under this name before; give this one another name")]
    Differs,
    /// The session has too many grants.
    #[error(
        "the session {session:?} has {max} grants (`grants_max`), and none of them has been over for long; open another session"
    )]
    Full {
        /// The session.
        session: String,
        /// The limit.
        max: u64,
    },
    /// The grant has too many copies.
    #[error("the grant has {max} copies (`grant_copies_max`); issue a new one")]
    TooManyCopies {
        /// The limit.
        max: u64,
    },
    /// The record would be too large.
    #[error(
        "the terms of the grant have {bytes} bytes and may have {max}; use fewer conditions, or a smaller binding"
    )]
    TooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It is recorded, and a worker has not adopted it yet.
    #[error(
        "it is recorded, and the worker that owns the session {session:?} has not confirmed it yet; repeat the request"
    )]
    Unacknowledged {
        /// The session.
        session: String,
    },
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The terms of a grant in bytes: its copies are named in the same record.
const TERMS_BYTES_MAX: usize = 24 << 10;

/// The grants of all sessions. See [`Runtime::grants`].
pub struct Grants {
    rt: Arc<Inner>,
}

impl Runtime {
    /// The grants: standing permissions to call one tool, by token.
    ///
    /// ```
    /// # use windlass::grants::GrantTerms;
    /// # use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let read = tool_fn(ToolSpec { name: "read_order".into(), ..ToolSpec::default() }, |_, cx| {
    ///     let order = cx.binding().unwrap_or_default();
    ///     async move { Ok(order.into()) }
    /// });
    /// runtime.register(read)?;
    /// // The session does not have the tool.
    /// let mut overlay = runtime.overlay();
    /// overlay.hide("read_order");
    /// let _hidden = runtime.attach("visitor", overlay);
    /// # runtime.open_session("visitor", windlass::sessions::SessionOpening::default()).await?;
    /// let terms = GrantTerms {
    ///     tool: "read_order".into(),
    ///     binding: Some("order 7".into()),
    ///     uses: Some(1),
    ///     ..GrantTerms::default()
    /// };
    /// let issued = runtime.grants().issue("visitor", terms, "ann").await?;
    /// let call = CallRequest { tool: "read_order".into(), grant: Some(issued.token), ..CallRequest::default() };
    /// let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    /// let answer = runtime.submit("visitor", batch).await?.settled().await?;
    /// assert_eq!(answer.calls[0].model_text(), "order 7");
    /// # Ok(()) }
    /// ```
    pub fn grants(&self) -> Grants {
        Grants { rt: self.0.clone() }
    }
}

impl Grants {
    /// Issues a grant to a session and its principal. Durable, and in force, when this returns.
    pub async fn issue(&self, session: &str, terms: GrantTerms, by: &str) -> Result<IssuedGrant, GrantError> {
        let row = self.session(session).await?;
        let check = GrantCheck::new(terms, self.rt.limits.call())?;
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(no_randomness)?;
        let token = GrantToken::new(&bytes);
        let grant = self.grant(&row, &token, check, by);
        let record = record_of(&grant)?;
        let demand = GrantDemand::Issue { id: GrantId::of(&token), record };
        self.put(&row, &grant, demand).await?;
        Ok(IssuedGrant { token, grant })
    }

    /// Makes a narrower copy of a grant, for its session or one of its children. The uses of the copy are taken out of the grant first.
    pub async fn attenuate(&self, id: &str, copy: NewGrantCopy, by: &str) -> Result<IssuedGrant, GrantError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(no_randomness)?;
        self.copy(id, copy, GrantToken::new(&bytes), by).await
    }

    /// Makes a copy with this token, or finishes making it.
    async fn copy(
        &self,
        id: &str,
        copy: NewGrantCopy,
        token: GrantToken,
        by: &str,
    ) -> Result<IssuedGrant, GrantError> {
        let (row, parent) = self.find(id).await?;
        let to = match &copy.session {
            Some(session) => self.child(&row, session).await?,
            None => row.clone(),
        };
        let (of, copy_id) = (parse(id)?, GrantId::of(&token));
        let check = GrantCheck::new(parent.terms.clone(), self.rt.limits.call())?;
        let known = parent.copies.iter().find(|known| known.id == copy_id.to_string());
        let is_shared = known.is_some();
        let left = parent.left().filter(|_| !is_shared);
        let check = check.narrowed(&copy.narrowing, left, self.rt.limits.call())?;
        let mut grant = self.grant(&to, &token, check, by);
        grant.parent = Some(parent.id.clone());
        if known.is_some_and(|known| known.uses != grant.terms.uses) {
            return Err(GrantError::Differs);
        }
        let record = record_of(&grant)?;
        if !is_shared {
            self.check_shares(&parent)?;
            let demand = GrantDemand::Share { id: of, copy: copy_id, record: record.clone() };
            self.acknowledge(&row, deliver(&self.rt, &row, demand).await?)?;
            // Another copy may have been faster.
            let (_, parent) = self.find(id).await?;
            if !parent.copies.iter().any(|known| known.id == grant.id) {
                self.check_shares(&parent)?;
                return Err(GrantProblem::MoreUses { left: parent.left().unwrap_or(0) }.into());
            }
        }
        if is_shared && self.terms_of(&to, &grant.id).await?.is_some_and(|terms| terms != grant.terms) {
            return Err(GrantError::Differs);
        }
        if to.no != row.no {
            self.put(&to, &grant, GrantDemand::Issue { id: copy_id, record }).await?;
        }
        Ok(IssuedGrant { token, grant })
    }

    /// Revokes a grant and all its copies. Once this returns nothing starts by any of them. `false`: it was revoked before.
    pub async fn revoke(&self, id: &str) -> Result<bool, GrantError> {
        let (row, grant) = self.find(id).await?;
        let is_new = grant.revoked_at.is_none();
        let mut open = vec![(row, parse(id)?)];
        while let Some((row, id)) = open.pop() {
            self.acknowledge(&row, deliver(&self.rt, &row, GrantDemand::Revoke { id }).await?)?;
            let record = self.rt.store.record(Space::Grant.of(row.no), &id.to_string()).await;
            let grant = record.map_err(SessionError::from)?.as_ref().and_then(Grant::read);
            for copy in grant.into_iter().flat_map(|grant| grant.copies) {
                // The copies of a removed session are gone with it.
                let home = self.rt.store.session(&copy.session).await.map_err(SessionError::from)?;
                open.extend(home.zip(GrantId::parse(&copy.id)));
            }
        }
        Ok(is_new)
    }

    /// A grant by its id.
    pub async fn get(&self, id: &str) -> Result<Grant, GrantError> {
        self.find(id).await.map(|(_, grant)| grant)
    }

    /// A page of the grants of a session, or of all.
    pub async fn page(
        &self,
        session: Option<&str>,
        after: Option<&str>,
        limit: u64,
    ) -> Result<GrantPage, GrantError> {
        let only = match session {
            Some(session) => Some(self.session(session).await?),
            None => None,
        };
        let cursor = after.and_then(Cursor::parse);
        let mut items: Vec<Grant> = Vec::new();
        let mut at =
            cursor.as_ref().map_or(SessionNo(0), |cursor| SessionNo(cursor.session.0.saturating_sub(1)));
        loop {
            let row = match &only {
                Some(row) => Some(row.clone()),
                None => self.next_session(at).await?,
            };
            let Some(row) = row else { return Ok(GrantPage { items, next: None }) };
            let after = cursor.as_ref().filter(|cursor| cursor.session == row.no).map(|cursor| &*cursor.id);
            let wanted = limit.saturating_add(1).saturating_sub(items.len() as u64);
            items.extend(self.of_session(&row, after, wanted).await?);
            if items.len() as u64 > limit {
                items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                let next = match items.last() {
                    Some(last) => self.cursor_of(last).await?,
                    None => None,
                };
                return Ok(GrantPage { items, next });
            }
            if only.is_some() {
                return Ok(GrantPage { items, next: None });
            }
            at = row.no;
        }
    }

    /// The next session that has grants.
    async fn next_session(&self, after: SessionNo) -> Result<Option<SessionRow>, SessionError> {
        let after = (after.0 > 0).then_some(after);
        Ok(self.rt.store.sessions_with(Space::Grant, after, 1).await?.pop())
    }

    async fn cursor_of(&self, last: &Grant) -> Result<Option<String>, SessionError> {
        let row = self.rt.store.session(&last.session).await?;
        Ok(row.map(|row| format!("{}.{}", row.no, last.id)))
    }

    /// Grants of one session, by id.
    async fn of_session(
        &self,
        row: &SessionRow,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<Grant>, SessionError> {
        let page = RecordPage { shelf: Space::Grant.of(row.no), prefix: "", after, limit };
        let mut found = Vec::new();
        for grant in self.rt.store.records(page).await?.iter().filter_map(Grant::read) {
            found.push(self.counted(row, grant).await?);
        }
        Ok(found)
    }

    async fn counted(&self, row: &SessionRow, mut grant: Grant) -> Result<Grant, SessionError> {
        let shelf = Space::GrantUse.of(row.no);
        grant.used = used(&*self.rt.store, shelf, &grant.id).await?.len() as u64;
        Ok(grant)
    }

    async fn session(&self, name: &str) -> Result<SessionRow, SessionError> {
        let row = self.rt.store.session(name).await?;
        row.ok_or_else(|| SessionError::NotFound { session: name.to_string() })
    }

    /// A session that is this one or lies below it.
    async fn child(&self, of: &SessionRow, session: &str) -> Result<SessionRow, GrantError> {
        let row = self.session(session).await?;
        let mut at = session.to_string();
        while at != of.name {
            match Child::of(&*self.rt.store, &at).await? {
                Some(child) => at = child.parent,
                None => {
                    let (of, session) = (of.name.clone(), session.to_string());
                    return Err(GrantError::NoChild { of, session });
                }
            }
        }
        Ok(row)
    }

    /// A grant with its session, wherever it is.
    async fn find(&self, id: &str) -> Result<(SessionRow, Grant), GrantError> {
        let not_found = || GrantError::NotFound { id: id.to_string() };
        let name = parse(id)?.to_string();
        let mut after = SessionNo(0);
        while let Some(row) = self.next_session(after).await? {
            let record = self.rt.store.record(Space::Grant.of(row.no), &name).await;
            if let Some(grant) = record.map_err(SessionError::from)?.as_ref().and_then(Grant::read) {
                let grant = Some(grant).filter(Grant::has_arrived).ok_or_else(not_found)?;
                let grant = self.counted(&row, grant).await?;
                return Ok((row, grant));
            }
            after = row.no;
        }
        Err(not_found())
    }

    fn grant(&self, row: &SessionRow, token: &GrantToken, check: GrantCheck, by: &str) -> Grant {
        Grant {
            id: GrantId::of(token).to_string(),
            session: row.name.clone(),
            principal: row.principal.clone(),
            terms: check.terms().clone(),
            issued_by: by.to_string(),
            issued_at: self.rt.clock.now().0,
            ..Grant::default()
        }
    }

    /// Has the owner of a session record a grant.
    async fn put(&self, row: &SessionRow, grant: &Grant, demand: GrantDemand) -> Result<(), GrantError> {
        self.acknowledge(row, deliver(&self.rt, row, demand).await?)?;
        let record = self.rt.store.record(Space::Grant.of(row.no), &grant.id).await;
        match record.map_err(SessionError::from)?.as_ref().and_then(Grant::read) {
            Some(kept) if kept.revoked_at.is_some() => Err(GrantError::Over { what: "it was revoked" }),
            Some(_) => Ok(()),
            None => Err(GrantError::Full { session: row.name.clone(), max: self.rt.limits.grants_max }),
        }
    }

    /// The recorded terms of a grant of this session.
    async fn terms_of(&self, row: &SessionRow, id: &str) -> Result<Option<GrantTerms>, SessionError> {
        let record = self.rt.store.record(Space::Grant.of(row.no), id).await?;
        let grant = record.as_ref().and_then(Grant::read).filter(Grant::has_arrived);
        Ok(grant.map(|grant| grant.terms))
    }

    /// Refuses a copy of a grant that can have none.
    fn check_shares(&self, parent: &Grant) -> Result<(), GrantError> {
        let max = self.rt.limits.grant_copies_max;
        if parent.revoked_at.is_some() {
            return Err(GrantError::Over { what: "it was revoked" });
        }
        if parent.terms.expires_at.is_some_and(|until| self.rt.clock.now().0 >= until) {
            return Err(GrantError::Over { what: "it has expired" });
        }
        if parent.copies.len() as u64 >= max {
            return Err(GrantError::TooManyCopies { max });
        }
        Ok(())
    }

    fn acknowledge(&self, row: &SessionRow, reach: GrantReach) -> Result<(), GrantError> {
        match reach {
            GrantReach::Adopted => Ok(()),
            GrantReach::Posted => Err(GrantError::Unacknowledged { session: row.name.clone() }),
        }
    }
}

/// The place after which a page of grants begins.
struct Cursor {
    session: SessionNo,
    id: String,
}

impl Cursor {
    fn parse(text: &str) -> Option<Cursor> {
        let (session, id) = text.split_once('.')?;
        Some(Cursor { session: SessionNo(session.parse().ok()?), id: id.to_string() })
    }
}

fn parse(id: &str) -> Result<GrantId, GrantError> {
    GrantId::parse(id).ok_or_else(|| GrantError::NotFound { id: id.chars().take(64).collect() })
}

/// The record of a grant, as a message has it.
fn record_of(grant: &Grant) -> Result<Arc<str>, GrantError> {
    let record = serde_json::to_string(grant).unwrap_or_default();
    if record.len() > TERMS_BYTES_MAX {
        return Err(GrantError::TooLarge { bytes: record.len(), max: TERMS_BYTES_MAX });
    }
    Ok(record.into())
}
