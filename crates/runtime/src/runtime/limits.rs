//! The limits that can be changed while calls run.

use crate::api::error::{LimitError, SessionError};
use crate::api::limits::Limits;
use crate::api::limits::{RunningLimits, SessionLimits, ZeroLimit};
use crate::features::retention;
use crate::session::bounds::{BOUNDS, Bounds};
use crate::session::inner::Runtime;
use windlass_core::plan::Cap;
use windlass_store::{Row, Space};

impl Runtime {
    /// Limits all tools that declare this group together, from now on; excess running calls continue.
    pub fn limit_group(&self, group: &str, cap: Cap) {
        self.0.turns.set_group_over_all(&self.0, group, cap);
    }

    /// The current limits of running and waiting calls.
    pub fn running_limits(&self) -> RunningLimits {
        self.0.turns.limits()
    }

    /// Changes the limits of running and waiting calls. Calls that may start now do; running calls above a
    /// lower limit finish normally. A tool's limits change with [`replace`](Self::replace), a group's with
    /// [`limit_group`](Self::limit_group).
    pub fn set_limits(&self, limits: RunningLimits) -> Result<(), ZeroLimit> {
        limits.check()?;
        self.0.turns.set_limits(&self.0, limits);
        Ok(())
    }

    /// Limits one session permanently: the limits are stored, and apply to every owner of the session. A new
    /// session is opened.
    pub async fn limit_session(&self, session: &str, limits: SessionLimits) -> Result<(), LimitError> {
        limits.check(&self.0.limits)?;
        let session = self.0.session(session).await?;
        {
            // A removal of the session takes this lock first: the limits are written before it, or refused.
            let admission = session.admit().await;
            admission.check_stays().map_err(SessionError::from)?;
            let kept = Bounds::of(&*self.0.store, &session.name).await?;
            let row = Bounds::new(limits, kept.child).with(kept.overlay).within(kept.folder).row();
            let none = Row::Remove { space: Space::About, key: BOUNDS.to_string() };
            session.lane.commit_rows(vec![row.unwrap_or(none)]).await.map_err(SessionError::from)?;
        }
        self.0.turns.set_session(&self.0, session.lane.session(), limits);
        session.set_inline_ms(limits.inline_ms);
        session.answer.set(&limits);
        retention::begin_session(&self.0, limits);
        Ok(())
    }

    /// The limits it was made with; [`running_limits`](Self::running_limits) may have changed since.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }
}
