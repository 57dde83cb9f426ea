//! Grants that a call passes on to its child session, narrower than its own.

use super::{GrantError, Grants, NewGrantCopy};
use crate::api::error::SessionError;
use crate::api::misuse::{Misuse, StepError};
use crate::features::children::ChildSession;
use windlass_core::grant::{GrantId, GrantNarrowing, GrantToken};
use windlass_core::handle::content_hasher;

impl ChildSession<'_> {
    /// Makes a narrower copy of a grant of this session for the child, or finds the one that was made under this name: a body that
    /// runs again gets the same token, and no uses are taken twice. The copy is revoked with the grant.
    pub async fn grant(
        &self,
        name: &str,
        grant: &GrantToken,
        narrowing: GrantNarrowing,
    ) -> Result<GrantToken, StepError> {
        let cx = self.opener();
        if cx.is_stopping() {
            return Err(StepError::Stopped);
        }
        let hold = cx.hold.upgrade().ok_or(Misuse::Over)?;
        let by = cx.principal().map_or_else(|| "a call".to_string(), |principal| principal.to_string());
        let (id, session) = (GrantId::of(grant), self.session().to_string());
        // Derived, so that it need not be kept: nobody can guess it without the secret of the store.
        let mut hasher = content_hasher(hold.rt.store.secret());
        for part in ["grant copy", &session, &id.to_string(), name] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let token = GrantToken::new(hasher.finalize().as_bytes());
        let copy = NewGrantCopy { session: Some(session), narrowing };
        let (grants, tasks) = (Grants { rt: hold.rt.clone() }, hold.rt.tasks.clone());
        let from = hold.session.name.clone();
        drop(hold);
        // In a task of the runtime, like all work for a tool: work that has begun is finished.
        let made = tasks.spawn(async move {
            let is_own = grants.get(&id.to_string()).await?.session == *from;
            if !is_own {
                return Err(GrantError::NotFound { id: id.to_string() });
            }
            grants.copy(&id.to_string(), copy, token, &by).await
        });
        match made.await.map_err(|_| Misuse::Over)? {
            Ok(issued) => Ok(issued.token),
            Err(GrantError::Session(SessionError::Lost(lost))) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept(name, error).into()),
        }
    }
}
