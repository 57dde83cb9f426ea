//! Whether the clocks of an attempt stand still: all it does is wait for calls inside it that wait for the world outside.

use super::Book;
use std::sync::Arc;

impl Book {
    /// One more nested call is waited for, or one less: how many are.
    pub(in crate::inside) fn waits_inside(&self, change: i32) -> u32 {
        let mut page = self.lock();
        page.inside = page.inside.saturating_add_signed(change);
        page.inside
    }

    /// Whether nested calls are waited for.
    pub(crate) fn is_waiting_inside(&self) -> bool {
        self.lock().inside > 0
    }

    /// How many nested batches are waited for, if nothing else is done: sleeps count, as what goes on by itself.
    fn only_waits_inside(&self) -> Option<usize> {
        let page = self.lock();
        let sleeps = |name: &Arc<str>| {
            let known = page.operations.as_deref();
            known.is_some_and(|operations| matches!(operations.sleep(name), Ok(Some(_))))
        };
        let only = page.inside > 0 && !page.is_unsettled() && !page.waits.iter().any(sleeps);
        only.then_some(page.inside as usize)
    }

    /// Looks whether the clocks of the attempt stand still, given whether so many nested batches are there and wait. `true`: that
    /// has changed.
    pub(in crate::inside) fn look_still(
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

    /// Whether the clocks of the attempt stand still, since all it does is wait for calls inside that wait themselves.
    pub(crate) fn stands_still(&self) -> bool {
        self.still.stands()
    }

    /// How long the clocks of the attempt have stood still.
    pub(crate) fn excused_us(&self, now_us: u64) -> u64 {
        self.still.excused_us(now_us)
    }

    /// Until the clocks of the attempt go on.
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
