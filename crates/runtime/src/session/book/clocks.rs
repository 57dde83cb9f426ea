//! Whether the clocks of an attempt stand still: it only waits for nested calls that wait for external answers.

use super::Book;
use std::sync::Arc;

impl Book {
    /// Counts nested calls being waited for; returns their number.
    pub(crate) fn waits_inside(&self, change: i32) -> u32 {
        let mut page = self.page.lock();
        page.inside = page.inside.saturating_add_signed(change);
        page.inside
    }

    /// Whether nested calls are waited for.
    pub(crate) fn is_waiting_inside(&self) -> bool {
        self.page.lock().inside > 0
    }

    /// Whether it waits under a name: for a nested call, a sleep, an answer or a signal.
    pub(crate) fn is_waiting(&self) -> bool {
        let page = self.page.lock();
        page.inside > 0 || !page.waits.is_empty()
    }

    /// The number of nested batches it waits for, if it does nothing else. A sleep counts as progress.
    fn only_waits_inside(&self) -> Option<usize> {
        let page = self.page.lock();
        let sleeps = |name: &Arc<str>| {
            let known = page.operations.as_deref();
            known.is_some_and(|operations| matches!(operations.sleep(name), Ok(Some(_))))
        };
        let only = page.inside > 0 && !page.is_unsettled() && !page.waits.iter().any(sleeps);
        only.then_some(page.inside as usize)
    }

    /// Whether it only waits: no step runs and no nested call is waited for.
    pub(crate) fn only_waits(&self) -> bool {
        let page = self.page.lock();
        page.inside == 0 && !page.is_unsettled()
    }

    /// Sets whether the body waits for an external answer and others may have its call's claims; returns the old value.
    pub(crate) fn set_outside(&self, is_outside: bool) -> bool {
        std::mem::replace(&mut self.page.lock().is_outside, is_outside)
    }

    /// Updates whether the clocks of the attempt stand still, given its waiting nested batches. `true`: that
    /// has changed.
    pub(crate) fn look_still(
        &self,
        now_us: impl FnOnce() -> u64,
        all_wait: impl FnOnce(usize) -> bool,
    ) -> bool {
        let changed = self.still.look(now_us, || self.only_waits_inside().is_some_and(all_wait));
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Whether the clocks of the attempt stand still, since it only waits for nested calls that wait themselves.
    pub(crate) fn stands_still(&self) -> bool {
        self.still.stands()
    }

    /// How long the clocks of the attempt have stood still.
    pub(crate) fn excused_us(&self, now_us: u64) -> u64 {
        self.still.excused_us(now_us)
    }

    /// Waits until the clocks of the attempt run again.
    pub(crate) async fn goes_on(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.stands_still() {
                return;
            }
            changed.await;
        }
    }
}
