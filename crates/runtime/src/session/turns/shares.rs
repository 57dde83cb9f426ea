//! The limits of tools, groups and sessions, and the shares of them that this worker has, in the planner.

use super::{Turns, go_on};
use crate::api::limits::SessionLimits;
use crate::session::inner::Inner;
use crate::tools::registry::Registered;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass_core::ids::SessionNo;
use windlass_core::plan::{Cap, ShareUse, SharedLimit};

/// A share that a worker may use from now on, if it is more than it has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareRaise {
    /// The [epoch](Turns::shares) in which it was taken: it is void in a later one.
    pub(crate) epoch: u64,
    pub(crate) permits: u32,
    pub(crate) starts: u32,
    /// The rest of the starts that are new, in millionths of a start.
    pub(crate) left: u64,
}

impl Turns {
    /// The use of all limits that workers share, and their epoch: the next one begins when all shares are lost.
    pub(crate) fn shares(&self, rt: &Inner) -> (u64, Vec<ShareUse>) {
        let state = self.lock();
        (state.share_epoch, state.planner.shares(rt.clock.elapsed_us()))
    }

    /// Notified when shares are too small, or more than what runs.
    pub(crate) fn shares_wanted(&self) -> Arc<Notify> {
        self.lock_as_it_is().shares_wanted.clone()
    }

    /// Lowers a share to so many permits, if there are more, and returns how many of its calls run.
    pub(crate) fn lower_permits(&self, limit: &SharedLimit, permits: u32) -> u32 {
        self.lock().planner.lower_permits(limit, permits)
    }

    /// Gives starts away, with what is left of them in millionths.
    pub(crate) fn give_starts(&self, rt: &Inner, limit: &SharedLimit, starts: u32) -> u64 {
        match starts {
            0 => 0,
            starts => self.lock().planner.give_starts(rt.clock.elapsed_us(), limit, starts),
        }
    }

    /// Raises a share to what was taken.
    pub(crate) fn raise_share(&self, rt: &Arc<Inner>, limit: &SharedLimit, raise: ShareRaise) {
        self.change(rt, |state, now_us| {
            if state.share_epoch == raise.epoch {
                let ShareRaise { permits, starts, left, .. } = raise;
                state.planner.raise_share(now_us, limit, permits, starts, left);
            }
        });
    }

    /// Nothing of any limit is this worker's any more.
    pub(crate) fn drop_shares(&self, rt: &Inner) {
        let mut state = self.lock();
        state.share_epoch += 1;
        state.planner.drop_shares(rt.clock.elapsed_us());
    }

    /// A tool is registered, perhaps replacing another.
    pub(crate) fn set_tool(&self, rt: &Arc<Inner>, tool: &Registered) {
        self.change(rt, |state, now_us| {
            // A tool without limits matters only if one of its id had some.
            if tool.is_limited() || state.planner.knows_tool(tool.spec.stable_id()) {
                state.announce(now_us, tool);
            }
        });
    }

    /// A tool is gone.
    pub(crate) fn remove_tool(&self, rt: &Arc<Inner>, tool: &Registered) {
        self.change(rt, |state, _| {
            if let Some(no) = state.planner.tool(tool.spec.stable_id()) {
                state.planner.remove_tool(no);
            }
        });
    }

    /// Sets the limits of a group of tools.
    pub(crate) fn set_group(&self, rt: &Arc<Inner>, group: &str, cap: Cap) {
        self.change(rt, |state, now_us| state.planner.set_group(now_us, group, cap));
    }

    /// Sets how many calls and tasks of a session may run at once.
    pub(crate) fn set_session(&self, rt: &Arc<Inner>, session: SessionNo, limits: SessionLimits) {
        let max = [limits.calls_running_max, limits.tasks_running_max];
        let max = max.map(|max| max.map(|max| u32::try_from(max).unwrap_or(u32::MAX)));
        self.change(rt, |state, _| state.planner.set_session(session, max));
    }

    /// A session is released: its limits are read again when it is taken.
    pub(crate) fn forget_session(&self, session: SessionNo) {
        self.lock().planner.set_session(session, [None; 2]);
    }

    /// Sets the limits of a group of tools, which hold over all workers.
    pub(crate) fn set_group_over_all(&self, rt: &Arc<Inner>, group: &str, cap: Cap) {
        let now_us = rt.clock.elapsed_us();
        let mut state = self.lock();
        state.planner.set_group(now_us, group, cap);
        if state.is_shared {
            state.planner.share_group(now_us, group);
        }
        let next = state.next(rt, || now_us, |_| {});
        drop(state);
        go_on(rt, next);
    }
}
